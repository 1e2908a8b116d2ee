"""What a Fourier transform of the cpu device is made of: its job, and what real transforms do before and after.

Real values of even number are half as many complex ones, as they lie in memory. Their spectrum is joined from that
one's two ends (``r2c``), or split into it (``c2r``). An inverse transform is one of exchanged real and imaginary parts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, final

from rlx.core.dtype import DType, complex64, complex128, float32, float64
from rlx.device.cpu import factor
from rlx.device.cpu.emit import Emit
from rlx.device.cpu.fft_lines import Chirp, Group, Line, Place, halves, lanes, swept
from rlx.device.cpu.fft_radix import VECTOR_BYTES, Complex, Pair, Read, Tables, Write, counted, place, radices, swapped
from rlx.ops.fft_plan import plan, smooth

#: Lengths with a prime from 17 to 127, whose convolution's tables are part of the code, go up to here.
LONGEST_CHIRP = 4096
#: Longest line.
LONGEST = 1 << 26


@dataclass(frozen=True)
class Job:
    """One use: ``c2c``, ``r2c`` or ``c2r`` of ``outer`` times ``inner`` lines of ``n`` values, ``inner`` apart."""

    op: str
    n: int
    outer: int
    inner: int
    kind: str
    inverse: bool

    @property
    def m(self) -> int:
        """Length of the complex transform inside."""
        return self.n // 2 if self.op != "c2c" and self.n % 2 == 0 else self.n

    @property
    def lanes(self) -> int:
        """Numbers in a vector."""
        return lanes(self.kind)

    @property
    def sizes(self) -> tuple[int, int]:
        """Numbers of a line of the input and of the output, two of a complex value."""
        half = 2 * (self.n // 2 + 1)
        return {"c2c": (2 * self.n, 2 * self.n), "r2c": (self.n, half), "c2r": (half, self.n)}[self.op]

    @property
    def core(self) -> str:
        """How the complex transform is done: ``line``, ``group`` or ``chirp``."""
        if not radices(self.m):
            return "chirp"
        return "line" if halves(self.m, self.lanes) else "group"

    @property
    def padded(self) -> int:
        """Length of the convolution."""
        return plan(self.m).chirp or smooth(max(2 * self.m - 1, 128))

    @property
    def flops(self) -> float:
        """Floating operations of one line, about."""
        size, times = (self.padded, 2) if self.core == "chirp" else (self.m, 1)
        return 5.0 * size * math.log2(size + 1) * times


def job(op: str, dtype: DType, shape: tuple[int, ...], attrs: Mapping[str, Any]) -> Job:
    """The job of one use of an op ``fft.<op>``."""
    axis = attrs["axis"]
    n = attrs.get("n", shape[axis])
    kind = "float" if dtype in (float32, complex64) else "double"
    return Job(op, n, math.prod(shape[:axis]), math.prod(shape[axis + 1:]), kind,
               bool(attrs.get("inverse", op == "c2r")))


def refused(op: str, dtype: DType, shape: tuple[int, ...], attrs: Mapping[str, Any]) -> str | None:
    """Why there is no job for one use, or None."""
    if dtype not in (float32, float64, complex64, complex128):
        return f"needs 32-bit or 64-bit floats, got {dtype.name}"
    if 0 in shape:
        return "has nothing to transform"
    found = job(op, dtype, shape, attrs)
    if found.m == 1:
        return "has one complex value in each line"
    if found.n > LONGEST:
        return f"takes up to {LONGEST} values in a line, got {found.n}"
    if found.core == "chirp" and not plan(found.m).chirp and found.m > LONGEST_CHIRP:
        return f"takes lengths with a prime between 13 and 128 up to {LONGEST_CHIRP}, got {found.m}"
    return None


@contextmanager
def memory(e: Emit, sizes: list[int]) -> Iterator[list[str]]:
    """Scratch memory of so many vectors each, on their boundaries."""
    starts = [sum(sizes[:k]) for k in range(len(sizes))]
    with factor.scratch(e, (sum(sizes) + 2) * VECTOR_BYTES) as (raw,):
        number = e.let(f"ptrtoint ptr {raw} to i64")
        up = e.let(f"and i64 {e.let(f'add i64 {number}, 63')}, -64")
        base = e.let(f"inttoptr i64 {up} to ptr")
        yield [e.at(base, f"[{VECTOR_BYTES} x i8]", (s, 1)) for s in starts]


@final
class Parts:
    """The steps of a job in one function. ``table`` gives the address of its joining (or splitting) table, and of a
    convolution's two, as they lie behind each other in the operands.
    """

    def __init__(self, e: Emit, j: Job, tables: Tables, table: Callable[[int], str]) -> None:
        self.e, self.j, self.tables, self.table = e, j, tables, table
        self.c = Complex(e, j.kind, j.lanes)
        self.one = Complex(e, j.kind, 0)
        self.even = j.op != "c2c" and j.n % 2 == 0

    # The complex transform

    @property
    def how(self) -> Place:
        """How the complex transform's values are read and written."""
        return Place(self._real if self.j.op == "r2c" and not self.even else self._pairs,
                     self._real_out if self.j.op == "c2r" and not self.even else self._pairs_out)

    def _pairs(self, c: Complex, base: str) -> Read:
        if self.j.inverse:
            return lambda *terms: swapped(c.read(base, *terms))
        return lambda *terms: c.read(base, *terms)

    def _pairs_out(self, c: Complex, base: str) -> Write:
        if self.j.inverse:
            return lambda x, *terms: c.write(swapped(x), base, *terms)
        return lambda x, *terms: c.write(x, base, *terms)

    def _real(self, c: Complex, base: str) -> Read:
        return lambda *terms: (c.v.load(self.e.at(base, c.kind, (place(self.e, *terms), 1))), c.v.const(0.0))

    def _real_out(self, c: Complex, base: str) -> Write:
        return lambda x, *terms: c.v.store(x[1], self.e.at(base, c.kind, (place(self.e, *terms), 1)))

    def vectors(self) -> list[int]:
        """Sizes of the scratch memory of :meth:`line` or :meth:`group`."""
        j = self.j
        if j.core == "chirp":
            return list(Chirp.vectors(j.padded, j.lanes))
        return list(Line.vectors(j.m, j.lanes) if j.core == "line" else Group.vectors(j.m))

    def line(self, source: str, target: str, scratch: list[str]) -> None:
        """The complex transform of one line."""
        read, write = self.how.read(self.c, source), self.how.write(self.c, target)
        if self.j.core == "line":
            Line(self.c, self.tables, self.j.m).run(read, write, (scratch[0], scratch[1], scratch[2]))
            return
        chirp, filter_ = self._convolution()
        Chirp(self.c, self.tables, self.j.m, self.j.padded, chirp, filter_).run(
            read, write, (scratch[0], scratch[1], scratch[2], scratch[3], scratch[4]))

    def _convolution(self) -> tuple[str, str]:
        if plan(self.j.m).chirp:
            first = int(self.even)
            return self.table(first), self.table(first + 1)
        from rlx.ops.fft_plan import convolution
        chirp, filter_ = convolution(self.j.m, self.j.padded)
        return self.tables.add(chirp), self.tables.add(filter_)

    def group(self, sources: list[str], targets: list[str], scratch: list[str]) -> None:
        """The complex transforms of as many lines as there are lanes."""
        Group(self.c, self.tables, self.j.m).run(self.how, sources, targets, (scratch[0], scratch[1]))

    # Before and after

    @property
    def before(self) -> Callable[[str, str], None] | None:
        """What makes the complex transform's input from a line: ``f(source, target)``."""
        if self.j.op != "c2r":
            return None
        return self._split if self.even else self._mirror

    @property
    def after(self) -> Callable[[str, str], None] | None:
        """What makes a line of the output from the complex transform's."""
        if self.j.op != "r2c":
            return None
        return self._join if self.even else self._cut

    def _fit(self, count: int) -> Complex:
        return self.c if count >= self.c.lanes else self.one

    def _plane(self, c: Complex, table: str, size: int, i: str) -> Pair:
        return (c.v.load(self.e.at(table, c.kind, (i, 1))), c.v.load(self.e.at(table, c.kind, (i, 1), (size, 1))))

    def _ends(self, c: Complex, source: str, i: str) -> tuple[Pair, Pair]:
        """Values from i on, and the conjugates of those as far from m."""
        m = self.j.m
        at = self.e.let(f"sub i64 {m - c.step + 1}, {i}")
        re, im = c.reversed(c.read(source, (at, 1)))
        return c.read(source, (i, 1)), (re, c.neg(im))

    def _join(self, source: str, target: str) -> None:
        """``X_k = (Z_k + conj Z_{m-k}) / 2 - i w^k (Z_k - conj Z_{m-k}) / 2``, where Z_m is Z_0."""
        e, m = self.e, self.j.m
        self.one.write(self.one.read(source), source, (m, 1))
        c = self._fit(m + 1)

        def work(i: str) -> None:
            z, mirror = self._ends(c, source, i)
            half = c.v.const(0.5)
            odd = c.mul(c.scale(c.sub(z, mirror), half), self._plane(c, self.table(0), m + 1, i))
            c.write(c.add(c.scale(c.add(z, mirror), half), odd), target, (i, 1))
        swept(e, m + 1, c.step, work)

    def _split(self, source: str, target: str) -> None:
        """The other way: ``Z_k = X_k + conj X_{m-k} + i w^-k (X_k - conj X_{m-k})``; X_0 and X_m are real."""
        e, m, one = self.e, self.j.m, self.one
        c = self._fit(m)

        def work(i: str) -> None:
            self._split_at(c, *self._ends(c, source, i), i, target)
        swept(e, m, c.step, work)
        zero = one.v.const(0.0)
        self._split_at(one, (one.read(source)[0], zero), (one.read(source, (m, 1))[0], zero), "0", target)

    def _split_at(self, c: Complex, x: Pair, mirror: Pair, i: str, target: str) -> None:
        odd = c.mul(c.sub(x, mirror), self._plane(c, self.table(0), self.j.m, i))
        c.write(c.add(c.add(x, mirror), odd), target, (i, 1))

    def _mirror(self, source: str, target: str) -> None:
        """A whole spectrum of odd length from its first half; X_0 is real."""
        one, n = self.one, self.j.n
        one.write((one.read(source)[0], one.v.const(0.0)), target)
        with counted(self.e, n // 2) as i:
            re, im = one.read(source, (i, 1), (1, 1))
            one.write((re, im), target, (i, 1), (1, 1))
            one.write((re, one.neg(im)), target, (self.e.let(f"sub i64 {n - 1}, {i}"), 1))

    def _cut(self, source: str, target: str) -> None:
        """The first half of a spectrum."""
        nbytes = self.j.sizes[1] * (4 if self.j.kind == "float" else 8)
        self.e.call("llvm.memcpy.p0.p0.i64", [("ptr", target), ("ptr", source), ("i64", nbytes), ("i1", "false")])


__all__ = ["Job", "Parts", "job", "memory", "refused"]
