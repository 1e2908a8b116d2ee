"""Claim: compositing of splats is a loop over tiles on the thread pool, a row of pixels in a vector."""

from __future__ import annotations

import hashlib

from rlx.device._splats import Frame, accepts, frame
from rlx.device.cpu import splats
from rlx.device.cpu.emit import Emit, driver
from rlx.device.cpu.lanes import Lanes
from rlx.device.cpu.splats import integer, positive
from rlx.ir.claim import Claim
from rlx.ir.loop import Native


def lower(native: Native) -> tuple[str, str]:
    """The function for one accepted use."""
    f = frame(dict(native.attrs), native.types[2][1])
    name = f"rlx_splat_{hashlib.sha256(repr(f).encode()).hexdigest()[:16]}"
    return name, _tile(name, f) + driver(name, f.tiles, f.tiles > 1)


class _Rows:
    """What a tile's pixels carry from batch to batch, a vector for each row."""

    def __init__(self, e: Emit, f: Frame) -> None:
        self.e, self.f, self.v = e, f, Lanes(e, f.tile)
        self.planes = [e.slot(f"[{f.tile} x {self.v.type}]") for _ in range(f.channels + 2)]

    def at(self, plane: int, row: str) -> str:
        """Where a row of a plane is: transmittance, gate (1 while a pixel goes on), then the features."""
        return self.e.at(self.planes[plane], self.v.type, (row, 1))


def _tile(name: str, f: Frame) -> str:
    e = Emit(f"{name}.tile", "ptr %bufs, i64 %g")
    data, rows, v = splats.Inputs(e, f), _Rows(e, f), Lanes(e, f.tile)
    with e.loop(f.tile) as r:
        for k in range(f.channels + 2):
            v.store(v.const(1.0 if k < 2 else 0.0), rows.at(k, r))
    px = splats.pixels(v, data.x0)
    left = e.slot("i64", f.tile)
    with e.loop(data.batches) as batch, e.when(positive(e, left)):
        low, count = data.size(batch)
        data.fill(low, count)
        e.do(f"store i64 0, ptr {left}")
        with e.loop(f.tile) as r:
            _row(e, data, rows, r, px, count, left)
    _write(e, data, rows)
    return e.text()


def _row(e: Emit, data: splats.Inputs, rows: _Rows, r: str, px: str, count: str, left: str) -> None:
    """A batch over one row, while any of its pixels goes on."""
    f, v, s = data.f, rows.v, Lanes(e, 0)
    gate = v.load(rows.at(1, r))
    with e.when(v.some(v.compare("ogt", gate, v.const(0.0)))):
        seen = e.let(f"load i64, ptr {left}")
        e.do(f"store i64 {integer(e, 'add', seen, 1)}, ptr {left}")
        py = splats.row_centre(e, integer(e, "add", data.y0, r))
        slots = [e.slot(v.type) for _ in range(f.channels + 2)]
        for k, slot in enumerate(slots):
            v.store(v.load(rows.at(k, r)), slot)
        with splats.touched(data, v, count, px, py, slots[1]) as (i, hit):
            rest = v.load(slots[0])
            after = v.mul(rest, v.sub(v.const(1.0), hit.alpha))
            stops = v.both(hit.counts, v.compare("ole", after, v.const(f.stop)))
            drawn = v.both(hit.counts, v.compare("ogt", after, v.const(f.stop)))
            weight = v.choose(drawn, v.mul(hit.alpha, rest), v.const(0.0))
            v.store(v.choose(drawn, after, rest), slots[0])
            v.store(v.choose(stops, v.const(0.0), v.load(slots[1])), slots[1])
            for c in range(f.channels):
                x = v.all(s.load(data.field(i, splats.FIELDS + c)))
                v.store(v.fma(weight, x, v.load(slots[2 + c])), slots[2 + c])
        for k, slot in enumerate(slots):
            v.store(v.load(slot), rows.at(k, r))


def _write(e: Emit, data: splats.Inputs, rows: _Rows) -> None:
    """The rows into the image, features next to each other, without what lies outside of it."""
    f, image, alpha = data.f, e.buffer(6), e.buffer(7)
    wide = e.call("llvm.smin.i64", [("i64", integer(e, "sub", f.width, data.x0)), ("i64", f.tile)], "i64")
    tall = e.call("llvm.smin.i64", [("i64", integer(e, "sub", f.height, data.y0)), ("i64", f.tile)], "i64")
    with e.loop(tall) as r:
        first = integer(e, "add", integer(e, "mul", integer(e, "add", data.y0, r), f.width), data.x0)
        with e.loop(wide) as x:
            pixel = integer(e, "add", first, x)
            rest = _lane(e, rows, 0, r, x)
            covered = e.let(f"fsub float 1.0, {rest}")
            e.do(f"store float {covered}, ptr {e.at(alpha, 'float', (pixel, 1))}")
            for c in range(f.channels):
                place = (
                    e.at(image, "float", (pixel, f.channels), (1, c))
                    if c
                    else e.at(image, "float", (pixel, f.channels))
                )
                e.do(f"store float {_lane(e, rows, 2 + c, r, x)}, ptr {place}")


def _lane(e: Emit, rows: _Rows, plane: int, r: str, x: str) -> str:
    at = e.at(rows.planes[plane], "float", (r, rows.f.tile), (x, 1))
    return e.let(f"load float, ptr {at}")


CLAIMS = (Claim("splat_rasterize", "splat.rasterize", "rlx_splat", accepts, lower,
                "tiles over the thread pool, a row of pixels in a vector, early exit"),)
