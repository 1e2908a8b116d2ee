"""Fourier transforms of whole lines: one line as a rectangle of columns and rows, several short ones side by side, and
any length as a convolution.

A length ``n1 n2`` is ``n2`` transforms of length ``n1`` across the columns of the line as a matrix, a product with
twiddles, and ``n1`` transforms of length ``n2``. In both, neighbours are the lanes of a vector, so that only the matrix
between the two is transposed, while it is in cache.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import final

import numpy as np

from rlx.device.cpu.emit import Emit
from rlx.device.cpu.fft_radix import (
    VECTOR_BYTES,
    Columns,
    Complex,
    Pair,
    Read,
    Tables,
    Term,
    Write,
    counted,
    place,
    radices,
)
from rlx.ops.fft_plan import roots

#: Twiddles between columns and rows up to this length are one table; of longer lines products of two.
ONE_TABLE = 8192
#: Part of a transposed block's cost in one pass.
TRANSPOSE = 0.6


@cache
def halves(n: int, lanes: int) -> tuple[int, int] | None:
    """The two factors, each at least a vector long, that cost least; None if there are none."""
    best: tuple[float, tuple[int, int]] | None = None
    for a in range(lanes, n // lanes + 1):
        if n % a == 0 and radices(a) and radices(n // a):
            b = n // a
            whole = [-(-x // lanes) * lanes for x in (a, b)]
            cost = a * whole[1] * len(radices(a)) + b * whole[0] * (len(radices(b)) + TRANSPOSE)
            if best is None or cost < best[0]:
                best = cost, (a, b)
    return best[1] if best else None


def lanes(kind: str) -> int:
    """Numbers in a vector."""
    return VECTOR_BYTES // (4 if kind == "float" else 8)


@final
class Line:
    """One line of a length that has :func:`halves`."""

    def __init__(self, c: Complex, tables: Tables, n: int) -> None:
        both = halves(n, c.lanes)
        assert both is not None
        self.c, self.e, self.tables, self.n = c, c.e, tables, n
        self.n1, self.n2 = both
        #: Blocks of columns, and of rows: the last overlaps the one before where they do not fit evenly.
        self.blocks = -(-self.n2 // c.lanes), -(-self.n1 // c.lanes)

    @staticmethod
    def vectors(n: int, width: int) -> tuple[int, int, int]:
        """Sizes of scratch memory: the matrix, and two arrays between passes."""
        both = halves(n, width)
        assert both is not None
        return 2 * both[0] * -(-both[1] // width), 2 * max(both), 2 * max(both)

    def run(self, read: Read, write: Write, scratch: tuple[str, str, str]) -> None:
        """``read(*terms)`` gives neighbours from the element there on, ``write(pair, *terms)`` takes them."""
        matrix, *spare = scratch
        with counted(self.e, self.blocks[0]) as b:
            self.columns(read, matrix, b, (spare[0], spare[1]))
        with counted(self.e, self.blocks[1]) as b:
            self.rows(write, matrix, b, (spare[0], spare[1]))

    def _first(self, b: str, n: int) -> str:
        """Where a block begins."""
        first = self.e.let(f"mul nsw i64 {b}, {self.c.lanes}")
        if n % self.c.lanes == 0:
            return first
        return self.e.call("llvm.smin.i64", [("i64", first), ("i64", n - self.c.lanes)], "i64")

    def columns(self, read: Read, matrix: str, b: str, spare: tuple[str, str]) -> None:
        """A block of transforms along the columns, into the matrix."""
        j, turn = self._first(b, self.n2), self._twiddles(b)

        def load(*terms: Term) -> Pair:
            return read(*((i, s * self.n2) for i, s in terms), (j, 1))

        def store(x: Pair, *terms: Term) -> None:
            k = place(self.e, *terms)
            self.c.store(turn(x, k, j), matrix, (k, self.blocks[0]), (b, 1))
        Columns(self.c, self.tables, self.n1).run(load, store, spare)

    def rows(self, write: Write, matrix: str, b: str, spare: tuple[str, str]) -> None:
        """A block of transforms along the rows: in tiles into scratch memory, then out."""
        c, width = self.c, self.c.lanes
        k = self._first(b, self.n1)
        with counted(self.e, self.blocks[0]) as t:
            tile = [c.load(matrix, (k, self.blocks[0]), (i * self.blocks[0], 1), (t, 1)) for i in range(width)]
            to = self._first(t, self.n2)
            for i, x in enumerate(turned(c, tile)):
                c.store(x, spare[1], (to, 1), (i, 1))
        Columns(c, self.tables, self.n2).run(
            lambda *terms: c.load(spare[1], *terms),
            lambda x, *terms: write(x, *((i, s * self.n1) for i, s in terms), (k, 1)), spare)

    def _twiddles(self, b: str) -> Callable[[Pair, str, str], Pair]:
        """``exp(-2 pi i j k / n)`` times a pair of columns j, j + 1 ... in row k."""
        c, e, width = self.c, self.e, self.c.lanes
        if self.n <= ONE_TABLE:
            first = np.minimum(np.arange(self.blocks[0]) * width, self.n2 - width)
            j = first[:, None] + np.arange(width)
            w = roots(np.arange(self.n1)[:, None, None] * j, self.n)
            table = self.tables.add(np.moveaxis(w, 0, 2))
            return lambda x, k, j: c.mul(x, c.load(table, (k, self.blocks[0]), (b, 1)))
        near = self.tables.add(np.moveaxis(roots(np.outer(np.arange(self.n1), np.arange(width)), self.n), 0, 1))
        bits = self.n.bit_length() // 2
        low = self.tables.add(roots(np.arange(1 << bits), self.n).T)
        high = self.tables.add(roots(np.arange((self.n >> bits) + 1) << bits, self.n).T)
        one = Complex(e, c.kind, 0)

        def turn(x: Pair, k: str, j: str) -> Pair:
            at = e.let(f"mul nsw i64 {k}, {j}")
            far = one.mul(one.read(low, (e.let(f"and i64 {at}, {(1 << bits) - 1}"), 1)),
                          one.read(high, (e.let(f"lshr i64 {at}, {bits}"), 1)))
            return c.mul(c.mul(x, c.load(near, (k, 1))), c.all(far))
        return turn


def turned(c: Complex, tile: list[Pair]) -> list[Pair]:
    """Lines and elements of a square exchanged."""
    return list(zip(c.v.transposed([x[0] for x in tile]), c.v.transposed([x[1] for x in tile]), strict=True))


@dataclass(frozen=True)
class Place:
    """How values are read from and written to a line in memory."""

    read: Callable[[Complex, str], Read]
    write: Callable[[Complex, str], Write]


@final
class Group:
    """As many short lines as there are lanes, side by side."""

    def __init__(self, c: Complex, tables: Tables, n: int) -> None:
        self.c, self.e, self.tables, self.n = c, c.e, tables, n

    @staticmethod
    def vectors(n: int) -> tuple[int, int]:
        """Sizes of scratch memory."""
        return 2 * n, 2 * n

    def run(self, how: Place, sources: list[str], targets: list[str], scratch: tuple[str, str]) -> None:
        """From the lines at some addresses to those at others."""
        c, last = self.c, scratch[0]
        self._in(how, sources, scratch[1])
        if len(radices(self.n)) % 2 == 0:
            last = scratch[1]
        # The last pass writes where it does not read.
        Columns(c, self.tables, self.n).run(lambda *terms: c.load(scratch[1], *terms),
                                            lambda x, *terms: c.store(x, last, *terms), scratch)
        self._out(how, last, targets)

    def _tiles(self) -> tuple[int, Callable[[str], str]]:
        """Number of squares, and where one begins."""
        width = self.c.lanes
        count = -(-self.n // width)

        def first(b: str) -> str:
            at = self.e.let(f"mul nsw i64 {b}, {width}")
            return self.e.call("llvm.smin.i64", [("i64", at), ("i64", self.n - width)], "i64")
        return count, first

    def _in(self, how: Place, sources: list[str], to: str) -> None:
        c, e = self.c, self.e
        if self.n < c.lanes:
            one = Complex(e, c.kind, 0)
            for lane, source in enumerate(sources):
                with counted(e, self.n) as i:
                    for part, number in enumerate(how.read(one, source)((i, 1))):
                        one.v.store(number, e.at(to, c.kind, (i, 2 * c.lanes), (part * c.lanes + lane, 1)))
            return
        count, first = self._tiles()
        reads = [how.read(c, source) for source in sources]
        with counted(e, count) as b:
            at = first(b)
            for k, x in enumerate(turned(c, [read((at, 1)) for read in reads])):
                c.store(x, to, (at, 1), (k, 1))

    def _out(self, how: Place, source: str, targets: list[str]) -> None:
        c, e = self.c, self.e
        if self.n < c.lanes:
            one = Complex(e, c.kind, 0)
            for lane, target in enumerate(targets):
                with counted(e, self.n) as i:
                    re, im = (one.v.load(e.at(source, c.kind, (i, 2 * c.lanes), (part * c.lanes + lane, 1)))
                              for part in (0, 1))
                    how.write(one, target)((re, im), (i, 1))
            return
        count, first = self._tiles()
        writes = [how.write(c, target) for target in targets]
        with counted(e, count) as b:
            at = first(b)
            for write, x in zip(writes, turned(c, [c.load(source, (at, 1), (i, 1)) for i in range(c.lanes)]),
                                strict=True):
                write(x, (at, 1))


def swept(e: Emit, n: int, width: int, work: Callable[[str], None]) -> None:
    """``work(i)`` for neighbours from i on; the last of them overlap those before where they do not fit evenly."""
    with counted(e, -(-n // width)) as b:
        at = e.let(f"mul nsw i64 {b}, {width}")
        if n % width:
            at = e.call("llvm.smin.i64", [("i64", at), ("i64", n - width)], "i64")
        work(at)


@final
class Chirp:
    """One line of any length ``n`` as a convolution of length ``size``; its tables are two planes each."""

    def __init__(self, c: Complex, tables: Tables, n: int, size: int, chirp: str, filter_: str) -> None:
        self.c, self.e, self.tables, self.n, self.size = c, c.e, tables, n, size
        self.chirp, self.filter = chirp, filter_

    @staticmethod
    def vectors(size: int, width: int) -> tuple[int, ...]:
        """Sizes of scratch memory: that of a line, and two arrays."""
        array = -(-2 * size // width)
        return (*Line.vectors(size, width), array, array)

    def run(self, read: Read, write: Write, scratch: tuple[str, str, str, str, str]) -> None:
        """Like :meth:`Line.run`."""
        c, e, (first, second) = self.c, self.e, scratch[3:]
        line = Line(c, self.tables, self.size)
        zero = c.v.const(0.0)
        swept(e, self.size - self.n, c.lanes,
              lambda i: c.write((zero, zero), first, (i, 1), (self.n, 1)))
        swept(e, self.n, c.lanes, lambda i: c.write(c.mul(read((i, 1)), self._plane(self.chirp, self.n, i)),
                                                    first, (i, 1)))

        def filtered(x: Pair, *terms: Term) -> None:
            k = place(e, *terms)
            re, im = c.mul(x, self._plane(self.filter, self.size, k))
            c.write((im, re), second, (k, 1))

        def back(x: Pair, *terms: Term) -> None:
            c.write((x[1], x[0]), first, *terms)
        spare = scratch[0], scratch[1], scratch[2]
        line.run(lambda *terms: c.read(first, *terms), filtered, spare)
        line.run(lambda *terms: c.read(second, *terms), back, spare)
        swept(e, self.n, c.lanes, lambda i: write(c.mul(c.read(first, (i, 1)), self._plane(self.chirp, self.n, i)),
                                                  (i, 1)))

    def _plane(self, table: str, n: int, i: str) -> Pair:
        """The table's pair at an index: real parts, then imaginary ones."""
        return (self.c.v.load(self.e.at(table, self.c.kind, (i, 1))),
                self.c.v.load(self.e.at(table, self.c.kind, (i, 1), (n, 1))))
