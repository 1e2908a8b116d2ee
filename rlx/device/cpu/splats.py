"""What the claims on splatting share: the limits of an image, and batches of Gaussians in a tile's local memory.

A tile is done by one thread, a row of pixels at a time, one pixel a lane. Gaussians are read in batches into local
memory, a plane for each field. Before a row is done the batch is tested against it, one Gaussian a lane: those whose
alpha may reach the threshold at one of the row's pixels are the bits of a mask, and only they are composited.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rlx.device._splats import MIN_ALPHA, Frame
from rlx.device.cpu.emit import Emit
from rlx.device.cpu.lanes import Lanes, number

#: Gaussians in a batch, the bits of a mask: with 8 features 64 of them take 4 kB, and the rows of a tile another 10 kB,
#: of 32 kB.
BATCH = 64
#: Fields of a Gaussian in local memory, before its features.
CX, CY, A, B, C, OPACITY, LIMIT, SLOPE, FIELDS = range(9)
#: Gaussians that are tested at once.
TESTED = 16


def integer(e: Emit, how: str, x: str | int, y: str | int) -> str:
    """An instruction on two 64-bit integers: add, sub, mul, udiv, urem."""
    return e.let(f"{how} i64 {x}, {y}")


def positive(e: Emit, slot: str) -> str:
    """Whether the integer in a slot is above 0."""
    value = e.let(f"load i64, ptr {slot}")
    return e.let(f"icmp sgt i64 {value}, 0")


class Inputs:
    """The pointers of the op's inputs, and a tile's place and part of the list."""

    def __init__(self, e: Emit, f: Frame, tile: str = "%g") -> None:
        self.e, self.f = e, f
        self.means, self.conics, self.features, self.opacities, self.ids, offsets = [e.buffer(i) for i in range(6)]
        self.start = self._int(offsets, tile)
        self.stop = self._int(offsets, integer(e, "add", tile, 1))
        size = integer(e, "sub", self.stop, self.start)
        self.batches = integer(e, "udiv", integer(e, "add", size, BATCH - 1), BATCH)
        self.x0 = integer(e, "mul", integer(e, "urem", tile, f.columns), f.tile)
        self.y0 = integer(e, "mul", integer(e, "udiv", tile, f.columns), f.tile)
        self.row = FIELDS + f.channels
        self.local = e.slot(f"[{BATCH * self.row} x float]")

    def _int(self, pointer: str, index: str) -> str:
        e = self.e
        value = e.let(f"load i32, ptr {e.at(pointer, 'i32', (index, 1))}")
        return e.let(f"sext i32 {value} to i64")

    def size(self, batch: str) -> tuple[str, str]:
        """First place in the list, and number of Gaussians, of a batch."""
        e = self.e
        low = integer(e, "add", self.start, integer(e, "mul", batch, BATCH))
        left = integer(e, "sub", self.stop, low)
        return low, e.call("llvm.smin.i64", [("i64", left), ("i64", BATCH)], "i64")

    def id(self, place: str) -> str:
        """The Gaussian at a place of the list, kept within the arrays."""
        raw = self._int(self.ids, place)
        return self.e.call("llvm.umin.i64", [("i64", raw), ("i64", self.f.count - 1)], "i64")

    def fill(self, low: str, count: str) -> None:
        """Copy a batch into local memory."""
        e, s = self.e, Lanes(self.e, 0)
        with e.loop(count) as i:
            g = self.id(integer(e, "add", low, i))
            parts = [(self.means, 2, 0), (self.means, 2, 1), *[(self.conics, 3, k) for k in range(3)]]
            parts += [(self.opacities, 1, 0)]
            parts += [(self.features, self.f.channels, k) for k in range(self.f.channels)]
            values = [s.load(e.at(p, "float", (g, stride), *([(1, k)] if k else []))) for p, stride, k in parts]
            values[LIMIT:LIMIT] = _bounds(s, *values[A:LIMIT])
            for k, v in enumerate(values):
                s.store(v, self.field(i, k))

    def field(self, i: str, k: int) -> str:
        """Where field k of the batch's Gaussian i is."""
        return self.e.at(self.local, "float", (i, 1), *([(k * BATCH, 1)] if k else []))

    def reaching(self, py: str, count: str) -> str:
        """The batch's Gaussians whose alpha may reach the threshold at a pixel of the row at y ``py``: bits of an i64.

        Over the row ``sigma`` is smallest where its slope is 0, at ``dx = -b dy / a``, or at the end next to that.
        """
        e, v = self.e, Lanes(self.e, TESTED)
        mask = "0"
        left = e.let(f"uitofp i64 {self.x0} to float")
        first = v.all(Lanes(e, 0).add(left, number(0.5)))
        for start in range(0, BATCH, TESTED):
            cx, cy, a, b, c, limit, slope = (v.load(self.field(str(start), k))
                                             for k in (CX, CY, A, B, C, LIMIT, SLOPE))
            dy, low = v.sub(v.all(py), cy), v.sub(first, cx)
            dx = v.min(v.max(v.mul(slope, dy), low), v.add(low, v.const(self.f.tile - 1.0)))
            inner = v.fma(v.mul(a, v.const(0.5)), dx, v.mul(b, dy))
            sigma = v.fma(dx, inner, v.mul(v.mul(c, v.const(0.5)), v.mul(dy, dy)))
            bits = e.let(f"bitcast {v.mask} {v.compare('ule', sigma, limit)} to i{TESTED}")
            wide = e.let(f"shl i64 {e.let(f'zext i{TESTED} {bits} to i64')}, {start}")
            mask = e.let(f"or i64 {mask}, {wide}")
        unused = integer(e, "sub", BATCH, count)
        return integer(e, "and", mask, e.let(f"lshr i64 -1, {unused}"))


def _bounds(s: Lanes, a: str, b: str, c: str, opacity: str) -> tuple[str, str]:
    """The sigma from which ``opacity exp(-sigma)`` is below MIN_ALPHA, and ``-b / a``.

    That is ``ln(255 opacity)``, of which the bits of the number give an upper bound: ``log2(1 + f) <= f + 0.0861``.
    Where the conic is not that of an ellipse nothing is known: the limit is infinite.
    """
    e = s.e
    bright = s.mul(opacity, s.const(1 / MIN_ALPHA))
    raw = e.let(f"bitcast float {bright} to i32")
    bits = e.let(f"sitofp i32 {raw} to float")
    limit = s.mul(s.fma(bits, s.const(2.0 ** -23), s.const(-127 + 0.0862)), s.const(math.log(2)))
    proper = s.both(s.compare("ogt", s.fma(a, c, s.mul(e.let(f"fneg float {b}"), b)), s.const(0.0)),
                    s.compare("ogt", a, s.const(0.0)))
    some = s.compare("ogt", limit, s.const(0.0))
    # The same sigma in another order of operations differs by its rounding.
    near = s.fma(limit, s.const(1.01), s.const(0.02))
    limit = s.choose(proper, s.choose(some, near, s.const(-1.0)), s.const(math.inf))
    return limit, e.let(f"fneg float {s.div(b, a)}")


@dataclass(frozen=True)
class Hit:
    """One Gaussian over a row: offsets, falloff, capped alpha and the lanes that it can touch."""

    dx: str
    dy: str
    falloff: str
    alpha: str
    counts: str
    fields: tuple[str, ...]


@contextmanager
def touched(data: Inputs, v: Lanes, count: str, px: str, py: str, gate: str) -> Iterator[tuple[str, Hit]]:
    """Code for each Gaussian i of the batch, and what it is over a row at y ``py``: run in order, and only for those
    whose alpha reaches the threshold at some pixel that is open by the slot ``gate``.
    """
    e, s, f = data.e, Lanes(data.e, 0), data.f
    mask = data.reaching(py, count)
    rest = e.slot("i64", mask)
    with e.loop(e.call("llvm.ctpop.i64", [("i64", mask)], "i64")):
        bits = e.let(f"load i64, ptr {rest}")
        i = e.call("llvm.cttz.i64", [("i64", bits), ("i1", "true")], "i64")
        e.do(f"store i64 {integer(e, 'and', bits, integer(e, 'sub', bits, 1))}, ptr {rest}")
        dy = s.sub(py, s.load(data.field(i, CY)))
        a, b, c, opacity = (s.load(data.field(i, k)) for k in (A, B, C, OPACITY))
        dx = v.sub(px, v.all(s.load(data.field(i, CX))))
        # sigma = (a dx^2 + c dy^2) / 2 + b dx dy = dx (a/2 dx + b dy) + c/2 dy^2
        inner = v.fma(v.all(s.mul(a, s.const(0.5))), dx, v.all(s.mul(b, dy)))
        sigma = v.fma(dx, inner, v.all(s.mul(s.mul(c, s.const(0.5)), s.mul(dy, dy))))
        falloff = v.exp_minus(v.max(sigma, v.const(0.0)))
        alpha = v.min(v.mul(v.all(opacity), falloff), v.const(f.max_alpha))
        counts = v.both(v.compare("oge", sigma, v.const(0.0)), v.compare("oge", alpha, v.const(MIN_ALPHA)))
        counts = v.both(counts, v.compare("ogt", v.load(gate), v.const(0.0)))
        with e.when(v.some(counts)):
            yield i, Hit(dx, dy, falloff, alpha, counts, (a, b, c, opacity))


def pixels(v: Lanes, x0: str) -> str:
    """Centres in x of the pixels of a row that starts at column ``x0``."""
    e = v.e
    first = e.let(f"uitofp i64 {x0} to float")
    steps = "<" + ", ".join(f"float {i}.5" for i in range(v.n)) + ">"
    return v.add(v.all(first), steps)


def row_centre(e: Emit, y: str) -> str:
    """Centre in y of a row of pixels."""
    whole = e.let(f"uitofp i64 {y} to float")
    return e.let(f"fadd float {whole}, 0.5")
