"""Claim: the backward pass of compositing, a tile a task, with a vector of sums for each Gaussian of a batch."""

from __future__ import annotations

import hashlib

from rlx.device._splats import Frame, accepts, frame
from rlx.device.cpu import splats
from rlx.device.cpu.emit import Emit
from rlx.device.cpu.lanes import Lanes
from rlx.device.cpu.splats import integer, positive
from rlx.ir.claim import Claim
from rlx.ir.loop import Native

#: Gradients of a place before those of the features: mean x, y, conic xx, xy, yy, opacity.
GEOMETRY = 6


def lower(native: Native) -> tuple[str, str]:
    """The function for one accepted use."""
    f = frame(dict(native.attrs), native.types[2][1])
    places = native.types[4][1][0]
    name = f"rlx_splat_back_{hashlib.sha256(repr((f, places)).encode()).hexdigest()[:16]}"
    return name, _tile(name, f) + _driver(name, f, places)


def _driver(name: str, f: Frame, places: int) -> str:
    """Zeros for the places that no pixel reaches, then the tiles."""
    e = Emit(name)
    e.call(
        "llvm.memset.p0.i64",
        [("ptr", e.buffer(8)), ("i8", 0), ("i64", 4 * places * (GEOMETRY + f.channels)), ("i1", 0)],
    )
    e.call("rlx_parallel_for", [("ptr", f"@{name}.tile"), ("ptr", "%bufs"), ("i64", f.tiles)])
    return e.text()


class _Rows:
    """A vector for each row of the tile: transmittance, gate, what lies behind, and the gradients of the features."""

    def __init__(self, e: Emit, f: Frame) -> None:
        self.e, self.f, self.v = e, f, Lanes(e, f.tile)
        self.planes = [e.slot(f"[{f.tile} x {self.v.type}]") for _ in range(3 + f.channels)]

    def at(self, plane: int, row: str) -> str:
        """Where a row of a plane is."""
        return self.e.at(self.planes[plane], self.v.type, (row, 1))


def _tile(name: str, f: Frame) -> str:
    e = Emit(f"{name}.tile", "ptr %bufs, i64 %g")
    data, rows, v = splats.Inputs(e, f), _Rows(e, f), Lanes(e, f.tile)
    sums = e.slot(f"[{splats.BATCH * (GEOMETRY + f.channels)} x {v.type}]")
    _read(e, data, rows)
    px, left = splats.pixels(v, data.x0), e.slot("i64", f.tile)
    with e.loop(data.batches) as batch, e.when(positive(e, left)):
        low, count = data.size(batch)
        data.fill(low, count)
        size = integer(e, "mul", count, (GEOMETRY + f.channels) * f.tile * 4)
        e.call("llvm.memset.p0.i64", [("ptr", sums), ("i8", 0), ("i64", size), ("i1", 0)])
        e.do(f"store i64 0, ptr {left}")
        with e.loop(f.tile) as r:
            _row(e, data, rows, r, px, count, left, sums)
        _reduce(e, data, v, low, count, sums)
    return e.text()


def _read(e: Emit, data: splats.Inputs, rows: _Rows) -> None:
    """The rows before the first Gaussian; pixels outside of the image have their gate closed."""
    f, v = data.f, rows.v
    with e.loop(f.tile) as r:
        for k in range(3 + f.channels):
            v.store(v.const(1.0 if k == 0 else 0.0), rows.at(k, r))
    wide = e.call("llvm.smin.i64", [("i64", integer(e, "sub", f.width, data.x0)), ("i64", f.tile)], "i64")
    tall = e.call("llvm.smin.i64", [("i64", integer(e, "sub", f.height, data.y0)), ("i64", f.tile)], "i64")
    d_image, behind = e.buffer(6), e.buffer(7)
    with e.loop(tall) as r:
        first = integer(e, "add", integer(e, "mul", integer(e, "add", data.y0, r), f.width), data.x0)
        with e.loop(wide) as x:
            pixel = integer(e, "add", first, x)
            values = ["1.0", e.let(f"load float, ptr {e.at(behind, 'float', (pixel, 1))}")]
            for c in range(f.channels):
                at = e.at(d_image, "float", (pixel, f.channels), *([(1, c)] if c else []))
                values.append(e.let(f"load float, ptr {at}"))
            for k, value in enumerate(values):
                e.do(f"store float {value}, ptr {e.at(rows.planes[1 + k], 'float', (r, f.tile), (x, 1))}")


def _row(e: Emit, data: splats.Inputs, rows: _Rows, r: str, px: str, count: str, left: str, sums: str) -> None:
    """A batch over one row, while any of its pixels goes on."""
    f, v, s = data.f, rows.v, Lanes(e, 0)
    gate = v.load(rows.at(1, r))
    with e.when(v.some(v.compare("ogt", gate, v.const(0.0)))):
        seen = e.let(f"load i64, ptr {left}")
        e.do(f"store i64 {integer(e, 'add', seen, 1)}, ptr {left}")
        py = splats.row_centre(e, integer(e, "add", data.y0, r))
        slots = [e.slot(v.type) for _ in range(3)]
        for k, slot in enumerate(slots):
            v.store(v.load(rows.at(k, r)), slot)
        d_features = [v.load(rows.at(3 + c, r)) for c in range(f.channels)]
        with splats.touched(data, v, count, px, py, slots[1]) as (i, hit):
            rest, one = v.load(slots[0]), v.const(1.0)
            through = v.sub(one, hit.alpha)
            after = v.mul(rest, through)
            stops = v.both(hit.counts, v.compare("ole", after, v.const(f.stop)))
            drawn = v.both(hit.counts, v.compare("ogt", after, v.const(f.stop)))
            weight = v.choose(drawn, v.mul(hit.alpha, rest), v.const(0.0))
            g = v.const(0.0)
            for c, d in enumerate(d_features):
                g = v.fma(d, v.all(s.load(data.field(i, splats.FIELDS + c))), g)
            behind = v.sub(v.load(slots[2]), v.mul(weight, g))
            v.store(v.choose(drawn, after, rest), slots[0])
            v.store(v.choose(stops, v.const(0.0), v.load(slots[1])), slots[1])
            v.store(behind, slots[2])
            d = v.sub(v.mul(rest, g), v.div(behind, through))
            d = v.choose(v.both(drawn, v.compare("olt", hit.alpha, v.const(f.max_alpha))), d, v.const(0.0))
            parts = [*_geometry(v, hit, d), *[v.mul(weight, x) for x in d_features]]
            for k, part in enumerate(parts):
                at = e.at(sums, v.type, (i, len(parts)), *([(1, k)] if k else []))
                v.store(v.add(v.load(at), part), at)
        for k, slot in enumerate(slots):
            v.store(v.load(slot), rows.at(k, r))


def _geometry(v: Lanes, hit: splats.Hit, d: str) -> list[str]:
    """From d alpha: with respect to mean x, y, conic xx, xy, yy and opacity."""
    a, b, c, _ = hit.fields
    dy = v.all(hit.dy)
    minus = v.mul(d, hit.alpha)
    ds = v.e.let(f"fneg {v.type} {minus}")
    half = v.mul(v.const(0.5), ds)
    slope_x = v.fma(v.all(a), hit.dx, v.mul(v.all(b), dy))
    slope_y = v.fma(v.all(b), hit.dx, v.mul(v.all(c), dy))
    return [v.mul(minus, slope_x), v.mul(minus, slope_y), v.mul(half, v.mul(hit.dx, hit.dx)),
            v.mul(ds, v.mul(hit.dx, dy)), v.mul(half, v.mul(dy, dy)), v.mul(d, hit.falloff)]


def _reduce(e: Emit, data: splats.Inputs, v: Lanes, low: str, count: str, sums: str) -> None:
    """The sums over a tile's pixels, into the batch's places."""
    parts, out = GEOMETRY + data.f.channels, e.buffer(8)
    with e.loop(count) as i:
        place = integer(e, "add", low, i)
        with e.loop(parts) as k:
            total = v.total(v.load(e.at(sums, v.type, (i, parts), (k, 1))))
            e.do(f"store float {total}, ptr {e.at(out, 'float', (place, parts), (k, 1))}")


CLAIMS = (Claim("splat_places", "splat.rasterize_places", "rlx_splat_back", accepts, lower,
                "tiles over the thread pool, a row of pixels in a vector, sums without atomics"),)
