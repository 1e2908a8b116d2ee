"""Claim: a convolution is OpenBLAS's GEMM of the filters and what they see, a block of places at a time.

What the filters see of a few rows of a picture, ``(C / groups * prod(K), places)``, is gathered into scratch memory
that stays in cache; its product with the filters goes where the result's places are. The whole of it, as large as the
picture times the window, is never in memory.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rlx.core.dtype import float32, float64
from rlx.device.cpu import blas, factor
from rlx.device.cpu.emit import Emit, digits, driver
from rlx.ir.claim import Call, Claim, ValueType
from rlx.ir.loop import Native

#: Bytes of what is gathered at once: a quarter of a second-level cache.
BLOCK_BYTES = 1 << 18
#: Places of a block at least, where there are so many: the filters are read once for each block.
FEWEST_PLACES = 192
#: Filters of a group, and numbers that one sees, from which a product is worth gathering for.
FEWEST_FILTERS, SMALLEST_FILTER = 8, 16
#: Taps of the last axis, each of which is code of its own.
MOST_TAPS = 16
#: Real operations of the whole from which threads share it.
PARALLEL_FLOPS = 1_000_000
_ROW_MAJOR, _PLAIN = 101, 111


@dataclass(frozen=True)
class Shape:
    """A convolution over at least two axes; one axis is the last of two."""

    kind: str
    batch: int
    groups: int
    channels: int
    filters: int
    size: tuple[int, ...]
    window: tuple[int, ...]
    places: tuple[int, ...]
    stride: tuple[int, ...]
    before: tuple[int, ...]
    dilation: tuple[int, ...]

    @property
    def itemsize(self) -> int:
        """Bytes of a number."""
        return 4 if self.kind == "float" else 8

    @property
    def seen(self) -> int:
        """Numbers that a filter sees."""
        return self.channels * math.prod(self.window)

    @property
    def inner(self) -> int:
        """Places of a row."""
        return math.prod(self.places[1:])

    @property
    def rows(self) -> int:
        """Rows of a block."""
        fit = max(BLOCK_BYTES // (self.seen * self.inner * self.itemsize), FEWEST_PLACES // self.inner)
        blocks = -(-self.places[0] // max(fit, 1))
        return -(-self.places[0] // blocks)

    @property
    def blocks(self) -> int:
        """Blocks of a picture."""
        return -(-self.places[0] // self.rows)

    @property
    def plain(self) -> bool:
        """Whether the filters see the picture as it is."""
        return self.seen == self.channels and self.size == self.places and not any(self.before)


def shape_of(types: tuple[ValueType, ...], attrs: Mapping[str, Any]) -> Shape:
    """The convolution of operands x and weight, and its result, of these types."""
    (dtype, x), (_, w), (_, out) = types[0], types[1], types[-1]
    groups, one = attrs["groups"], (1,) if len(x) == 3 else ()
    return Shape("float" if dtype == float32 else "double", x[0], groups, w[1], w[0] // groups, one + x[2:],
                 one + w[2:], one + out[2:], one + tuple(attrs["stride"]),
                 (0,) * len(one) + tuple(p[0] for p in attrs["padding"]), one + tuple(attrs["dilation"]))


def accepts(call: Call) -> str | None:
    """None for f32 or f64 pictures, and filters that are enough and not tiny; else the reason."""
    if (reason := blas.absent()) is not None:
        return reason
    types = (*call.inputs, *call.outputs)
    if {d for d, _ in types} not in ({float32}, {float64}):
        return f"needs float32 or float64 throughout, got {', '.join(sorted({d.name for d, _ in types}))}"
    if any(0 in s for _, s in types) or len(types[0][1]) < 3:
        return "has no places"
    s = shape_of(types, call.attrs)
    if s.filters < FEWEST_FILTERS:
        return f"takes at least {FEWEST_FILTERS} filters in a group, got {s.filters}"
    if s.seen < SMALLEST_FILTER:
        return f"takes filters of at least {SMALLEST_FILTER} numbers, got {s.seen}"
    if s.window[-1] > MOST_TAPS:
        return f"takes up to {MOST_TAPS} taps along the last axis, got {s.window[-1]}"
    return None


def lower(native: Native) -> tuple[str, str]:
    """``conv(x, weight) -> out``: a task for each block of each picture and group."""
    s = shape_of(native.types, dict(native.attrs))
    name = f"rlx_conv_{hashlib.sha256(repr(s).encode()).hexdigest()[:16]}"
    e = Emit(f"{name}.tile", "ptr %bufs, i64 %g")
    picture, group, block = digits("%g", (s.batch, s.groups, s.blocks), e)
    which = e.let(f"add i64 {e.let(f'mul i64 {picture}, {s.groups}')}, {group}")
    first = e.let(f"mul i64 {block}, {s.rows}")
    left = e.let(f"sub i64 {s.places[0]}, {first}")
    rows = e.call("llvm.umin.i64", [("i64", left), ("i64", s.rows)], "i64")
    x = e.at(e.buffer(0), s.kind, (which, s.channels * math.prod(s.size)))
    weight = e.at(e.buffer(1), s.kind, (group, s.filters * s.seen))
    out = e.at(e.buffer(2), s.kind, (which, s.filters * math.prod(s.places)), (first, s.inner))
    count = e.let(f"mul i64 {rows}, {s.inner}")
    if s.plain:
        _product(e, s, weight, e.at(x, s.kind, (first, s.inner)), math.prod(s.places), out, count)
    else:
        with factor.scratch(e, s.seen * s.rows * s.inner * s.itemsize) as (columns,):
            _gather(e, s, x, columns, first, rows)
            _product(e, s, weight, columns, s.rows * s.inner, out, count)
    units = s.batch * s.groups * s.blocks
    flops = 2 * s.batch * s.groups * s.filters * s.seen * math.prod(s.places)
    return name, e.text() + driver(name, units, flops > PARALLEL_FLOPS)


def _product(e: Emit, s: Shape, weight: str, columns: str, apart: int, out: str, count: str) -> None:
    """``out = weight columns``, whose rows are ``apart``."""
    letter = "s" if s.kind == "float" else "d"
    e.call(blas.cblas(f"{letter}gemm"), [
        ("i32", _ROW_MAJOR), ("i32", _PLAIN), ("i32", _PLAIN), ("i64", s.filters), ("i64", count), ("i64", s.seen),
        (s.kind, "1.0"), ("ptr", weight), ("i64", s.seen), ("ptr", columns), ("i64", apart), (s.kind, "0.0"),
        ("ptr", out), ("i64", math.prod(s.places))])


def _gather(e: Emit, s: Shape, x: str, columns: str, first: str, rows: str) -> None:
    """What the filters see of some rows: for each channel and tap its places, zeros outside of the picture."""
    leads = s.window[:-1]
    with e.loop(s.channels * math.prod(leads)) as q:
        channel, *taps = digits(q, (s.channels, *leads), e)
        target = e.at(columns, s.kind, (q, s.window[-1] * s.rows * s.inner))
        lines = math.prod(s.places[1:-1])
        with e.loop(e.let(f"mul i64 {rows}, {lines}")) as r:
            row, *others = digits(r, (1, *s.places[1:-1]), e) if len(s.places) > 2 else [r]
            at, inside = [], "true"
            for k, (tap, place) in enumerate(zip(taps, (row, *others), strict=True)):
                i = e.let(f"add i64 {first}, {place}") if k == 0 else place
                i = e.let(f"mul i64 {i}, {s.stride[k]}")
                i = e.let(f"add i64 {i}, {e.let(f'mul i64 {tap}, {s.dilation[k]}')}")
                i = e.let(f"sub i64 {i}, {s.before[k]}")
                good = e.let(f"icmp ult i64 {i}, {s.size[k]}")
                inside = e.let(f"and i1 {inside}, {good}")
                at.append((i, math.prod(s.size[k + 1:])))
            to = e.at(target, s.kind, (r, s.places[-1]))
            with e.when(inside):
                line = e.at(x, s.kind, (channel, math.prod(s.size)), *at)
                for t in range(s.window[-1]):
                    _line(e, s, line, e.at(to, s.kind, (t, s.rows * s.inner)), t)
            with e.when(e.let(f"xor i1 {inside}, true")):
                for t in range(s.window[-1]):
                    _zeros(e, s, e.at(to, s.kind, (t, s.rows * s.inner)), 0, s.places[-1])


def _line(e: Emit, s: Shape, line: str, to: str, tap: int) -> None:
    """One tap's places along the last axis."""
    step, shift, count = s.stride[-1], tap * s.dilation[-1] - s.before[-1], s.places[-1]
    low = min(max(-(shift // step), 0), count)
    high = max(min((s.size[-1] - 1 - shift) // step + 1, count), low)
    _zeros(e, s, to, 0, low)
    if high > low:
        with e.loop(high, low) as i:
            x = e.let(f"load {s.kind}, ptr {e.at(line, s.kind, (i, step), (shift, 1))}")
            e.do(f"store {s.kind} {x}, ptr {e.at(to, s.kind, (i, 1))}")
    _zeros(e, s, to, high, count)


def _zeros(e: Emit, s: Shape, to: str, start: int, stop: int) -> None:
    if stop > start:
        e.call("llvm.memset.p0.i64", [("ptr", e.at(to, s.kind, (start, 1))), ("i8", 0),
                                      ("i64", (stop - start) * s.itemsize), ("i1", "false")])


CLAIMS = (Claim("openblas_conv", "nn.conv", "cblas_gemm", accepts, lower,
                "GEMM of filters and gathered blocks of places, over the thread pool"),)
