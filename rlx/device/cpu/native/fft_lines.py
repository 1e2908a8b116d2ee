"""Claims: Fourier transforms along one axis, in vectors, over the thread pool.

Lines that lie one behind the other are done each by itself, in cache; of an axis with others behind it, neighbours are
the lanes; one long line is shared by all threads.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from rlx.device.cpu import fft
from rlx.device.cpu.emit import Emit, driver
from rlx.device.cpu.fft import Job, Parts, memory
from rlx.device.cpu.fft_lines import Line
from rlx.device.cpu.fft_radix import VECTOR_BYTES, Columns, Complex, Pair, Tables, Term, counted, radices, swapped
from rlx.ir.claim import Call, Claim
from rlx.ir.loop import Native

#: Floating operations of a unit of work, about 20 us.
UNIT_FLOPS = 150_000
#: Floating operations in all, from which they are shared by threads.
PARALLEL_FLOPS = 300_000
#: Values of a line that all threads share, where there are few lines.
SHARED, FEW = 1 << 14, 4
#: Bytes of the scratch memory of lanes that are neighbours: half of a second-level cache.
CACHE = 1 << 19
#: Blocks of a long line's columns or rows in a unit.
BLOCKS = 2


def accepts(call: Call) -> str | None:
    """None for lines that are neither empty nor single values, of lengths with small primes or not too long."""
    dtype, shape = call.inputs[0]
    return fft.refused(call.op.removeprefix("fft."), dtype, shape, call.attrs)


def lower(native: Native) -> tuple[str, str]:
    """``op(x, *roots) -> y``."""
    dtype, shape = native.types[0]
    j = fft.job(native.claim.removeprefix("lines_"), dtype, shape, dict(native.attrs))
    facts = f"{native.types} {native.attrs} {native.claim}"
    name = f"rlx_fft_{hashlib.sha256(facts.encode()).hexdigest()[:16]}"
    tables, last = Tables(name, j.kind), len(native.types) - 1
    if _across(j):
        text = _neighbours(name, j, tables, last)
    elif _alone(j):
        text = _shared(name, j, tables, last)
    else:
        text = _lines(name, j, tables, last)
    return name, tables.text() + text


def _across(j: Job) -> bool:
    return j.op == "c2c" and j.inner >= j.lanes and bool(radices(j.n)) and j.n * 4 * VECTOR_BYTES <= CACHE


def _alone(j: Job) -> bool:
    return j.inner == 1 and j.core == "line" and j.m >= SHARED and j.outer <= FEW


def scratch(call: Call) -> int:
    """Bytes that the threads share: of a line they do together, the matrix and what is before or after it."""
    dtype, shape = call.inputs[0]
    j = fft.job(call.op.removeprefix("fft."), dtype, shape, call.attrs)
    return sum(_shared_sizes(j)) * VECTOR_BYTES if _alone(j) and not _across(j) else 0


def _shared_sizes(j: Job) -> tuple[int, int]:
    """Vectors of the matrix and of a line between the steps."""
    return Line.vectors(j.m, j.lanes)[0], 0 if j.op == "c2c" else -(-2 * (j.m + 1) // j.lanes)


def _driver(name: str, j: Job, units: int) -> str:
    return driver(name, units, j.outer * j.inner * j.flops > PARALLEL_FLOPS)


def _neighbours(name: str, j: Job, tables: Tables, last: int) -> str:
    """Lanes are neighbours along the axes behind."""
    e = Emit(f"{name}.tile", "ptr %bufs, i64 %g")
    c = Complex(e, j.kind, j.lanes)
    blocks = -(-j.inner // c.lanes)
    outer = e.let(f"udiv i64 %g, {blocks}")
    first = e.let(f"mul i64 {e.let(f'urem i64 %g, {blocks}')}, {c.lanes}")
    first = e.call("llvm.smin.i64", [("i64", first), ("i64", j.inner - c.lanes)], "i64")
    source, target = (e.at(e.buffer(k), j.kind, (outer, 2 * j.n * j.inner), (first, 2)) for k in (0, last))

    def read(*terms: Term) -> Pair:
        x = c.read(source, *((i, s * j.inner) for i, s in terms))
        return swapped(x) if j.inverse else x

    def write(x: Pair, *terms: Term) -> None:
        c.write(swapped(x) if j.inverse else x, target, *((i, s * j.inner) for i, s in terms))
    with memory(e, [2 * j.n, 2 * j.n]) as (ping, pong):
        Columns(c, tables, j.n).run(read, write, (ping, pong))
    return e.text() + _driver(name, j, j.outer * blocks)


@dataclass(frozen=True)
class _Unit:
    """The lines of one unit: ``count`` of them, ``groups`` units along the inner axes."""

    count: int
    groups: int

    @classmethod
    def of(cls, j: Job) -> _Unit:
        """A vector's lanes where lines lie apart or are short, else as many as are worth handing over."""
        if j.inner > 1:
            count = min(j.lanes, j.inner)
            return cls(count, -(-j.inner // count))
        if j.core == "group":
            return cls(j.lanes, 1)
        return cls(min(max(int(UNIT_FLOPS / j.flops), 1), j.outer), 1)

    def units(self, j: Job) -> int:
        """How many there are."""
        return j.outer * self.groups if j.inner > 1 else -(-j.outer // self.count)


def _lines(name: str, j: Job, tables: Tables, last: int) -> str:
    """Lines one after the other; those that lie apart are first copied behind each other."""
    e = Emit(f"{name}.tile", "ptr %bufs, i64 %g")
    parts, unit = Parts(e, j, tables, lambda k: e.buffer(k + 1)), _Unit.of(j)
    copies = unit.count if j.core == "group" else 1
    between = -(-2 * (j.m + 1) // j.lanes)
    sizes = [*parts.vectors(), copies * between]
    if j.inner > 1:
        sizes += [unit.count * -(-n // j.lanes) for n in j.sizes]
    with memory(e, sizes) as blocks:
        core, spare = blocks[:len(parts.vectors())], blocks[len(parts.vectors())]
        place_of = _Places(e, j, unit, last, tuple(blocks[len(core) + 1:]))
        place_of.fetch()
        if j.core == "group":
            _grouped(parts, place_of, spare, between, core)
        else:
            with e.loop(place_of.stop) as l:
                _single(parts, place_of.at(0, l), place_of.at(1, l), spare, core)
        place_of.put()
    return e.text() + _driver(name, j, unit.units(j))


def _single(parts: Parts, source: str, target: str, spare: str, core: list[str]) -> None:
    """One line, with what comes before and after."""
    if parts.before is not None:
        parts.before(source, spare)
        parts.line(spare, target, core)
    elif parts.after is not None:
        parts.line(source, spare, core)
        parts.after(spare, target)
    else:
        parts.line(source, target, core)


def _grouped(parts: Parts, place_of: _Places, spare: str, between: int, core: list[str]) -> None:
    """A vector's lanes of lines; the last line stands in for those that are not there."""
    e, v, count = parts.e, parts.c.v, place_of.unit.count

    def kept(l: str | int) -> str:
        return e.at(spare, v.type, (l, between))
    every = range(parts.c.lanes)
    sources = [place_of.at(0, l) if parts.before is None else kept(min(l, count - 1)) for l in every]
    targets = [place_of.at(1, l) if parts.after is None else kept(min(l, count - 1)) for l in every]
    if parts.before is not None:
        with e.loop(count) as l:
            parts.before(place_of.at(0, l), kept(l))
    parts.group(sources, targets, core)
    if parts.after is not None:
        with e.loop(count) as l:
            parts.after(kept(l), place_of.at(1, l))


class _Places:
    """Where the lines of unit %g are: in the buffers, or copied next to each other."""

    def __init__(self, e: Emit, j: Job, unit: _Unit, last: int, copies: tuple[str, ...]) -> None:
        self.e, self.j, self.unit, self.copies = e, j, unit, copies
        self.buffers = e.buffer(0), e.buffer(last)
        if j.inner > 1:
            self.outer = e.let(f"udiv i64 %g, {unit.groups}")
            first = e.let(f"mul i64 {e.let(f'urem i64 %g, {unit.groups}')}, {unit.count}")
            self.first = e.call("llvm.smin.i64", [("i64", first), ("i64", j.inner - unit.count)], "i64")
            self.stop = str(unit.count)
        else:
            self.first = e.let(f"mul i64 %g, {unit.count}")
            left = e.let(f"sub i64 {j.outer}, {self.first}")
            self.stop = e.call("llvm.smin.i64", [("i64", left), ("i64", unit.count)], "i64")

    def at(self, side: int, l: str | int) -> str:
        """The address of the unit's line l, or of its last, in the input (side 0) or the output (1)."""
        e, size = self.e, self.j.sizes[side]
        if self.copies:
            l = min(l, self.unit.count - 1) if isinstance(l, int) else l
            return e.at(self.copies[side], self._vector, (l, -(-size // self.j.lanes)))
        number = e.let(f"add i64 {self.first}, {l}")
        number = e.call("llvm.smin.i64", [("i64", number), ("i64", self.j.outer - 1)], "i64")
        return e.at(self.buffers[side], self.j.kind, (number, size))

    @property
    def _vector(self) -> str:
        return f"[{VECTOR_BYTES} x i8]"

    def fetch(self) -> None:
        """Copy the lines of the input."""
        if self.copies:
            self._move(0)

    def put(self) -> None:
        """Copy the lines of the output."""
        if self.copies:
            self._move(1)

    def _move(self, side: int) -> None:
        e, j = self.e, self.j
        words = 2 if j.op == "c2c" or (j.op == "r2c") == (side == 1) else 1
        word = f"i{words * (32 if j.kind == 'float' else 64)}"
        count = j.sizes[side] // words
        base = e.at(self.buffers[side], word, (self.outer, count * j.inner), (self.first, 1))
        with e.loop(count) as i, counted(e, self.unit.count) as l:
            far, near = e.at(base, word, (i, j.inner), (l, 1)), e.at(self.at(side, l), word, (i, 1))
            source, target = (far, near) if side == 0 else (near, far)
            e.do(f"store {word} {e.let(f'load {word}, ptr {source}, align 4')}, ptr {target}, align 4")


# One line for all threads: its steps are loops of the pool, with a table of pointers of their own

_SOURCE, _TARGET, _MATRIX, _SPARE, _TABLES = range(5)


def _shared(name: str, j: Job, tables: Tables, last: int) -> str:
    """Line after line: blocks of columns, then of rows, over the pool."""
    steps = _Steps(name, j, tables)
    e = Emit(name)
    matrix = e.buffer(last + 1)
    spare = e.at(matrix, f"[{VECTOR_BYTES} x i8]", (_shared_sizes(j)[0], 1))
    table = e.slot("ptr", count=_TABLES + last - 1)
    for k in range(1, last):
        e.do(f"store ptr {e.buffer(k)}, ptr {e.at(table, 'ptr', (_TABLES + k - 1, 1))}")
    for k, p in ((_MATRIX, matrix), (_SPARE, spare)):
        e.do(f"store ptr {p}, ptr {e.at(table, 'ptr', (k, 1))}")
    with counted(e, j.outer) as l:
        for k, (buffer, size) in enumerate(zip((0, last), j.sizes, strict=True)):
            line = e.at(e.buffer(buffer), j.kind, (l, size))
            e.do(f"store ptr {line}, ptr {e.at(table, 'ptr', (k, 1))}")
        for symbol, units in steps.calls:
            e.call("rlx_parallel_for", [("ptr", f"@{symbol}"), ("ptr", table), ("i64", units)])
    return "".join(steps.texts) + e.text()


class _Steps:
    """The functions of one line's steps, and how many units each has."""

    def __init__(self, name: str, j: Job, tables: Tables) -> None:
        self.name, self.j, self.tables = name, j, tables
        self.texts: list[str] = []
        self.calls: list[tuple[str, int]] = []
        line = Line(Complex(Emit("none"), j.kind, j.lanes), tables, j.m)
        before, after = self._parts(Emit("none")).before, self._parts(Emit("none")).after
        if before is not None:
            self._add("before", 1, self._before)
        self._add("columns", -(-line.blocks[0] // BLOCKS), self._columns)
        self._add("rows", -(-line.blocks[1] // BLOCKS), self._rows)
        if after is not None:
            self._add("after", 1, self._after)

    def _parts(self, e: Emit) -> Parts:
        return Parts(e, self.j, self.tables, lambda k: e.buffer(_TABLES + k))

    def _add(self, label: str, units: int, write: Callable[[Emit, Parts], None]) -> None:
        e = Emit(f"{self.name}.{label}", "ptr %bufs, i64 %g")
        write(e, self._parts(e))
        self.texts.append(e.text())
        self.calls.append((e.name, units))

    def _before(self, e: Emit, parts: Parts) -> None:
        assert parts.before is not None
        parts.before(e.buffer(_SOURCE), e.buffer(_SPARE))

    def _after(self, e: Emit, parts: Parts) -> None:
        assert parts.after is not None
        parts.after(e.buffer(_SPARE), e.buffer(_TARGET))

    def _blocks(self, e: Emit, count: int) -> AbstractContextManager[str]:
        start = e.let(f"mul i64 %g, {BLOCKS}")
        stop = e.call("llvm.smin.i64", [("i64", e.let(f"add i64 {start}, {BLOCKS}")), ("i64", count)], "i64")
        return e.loop(stop, start)

    def _columns(self, e: Emit, parts: Parts) -> None:
        line = Line(parts.c, self.tables, self.j.m)
        read = parts.how.read(parts.c, e.buffer(_SOURCE if parts.before is None else _SPARE))
        matrix = e.buffer(_MATRIX)
        with memory(e, list(Line.vectors(self.j.m, self.j.lanes)[1:])) as spare, self._blocks(e, line.blocks[0]) as b:
            line.columns(read, matrix, b, (spare[0], spare[1]))

    def _rows(self, e: Emit, parts: Parts) -> None:
        line = Line(parts.c, self.tables, self.j.m)
        write = parts.how.write(parts.c, e.buffer(_TARGET if parts.after is None else _SPARE))
        matrix = e.buffer(_MATRIX)
        with memory(e, list(Line.vectors(self.j.m, self.j.lanes)[1:])) as spare, self._blocks(e, line.blocks[1]) as b:
            line.rows(write, matrix, b, (spare[0], spare[1]))


_DOC = "in vectors and in cache, over the thread pool"
_WHAT = {"c2c": "complex transforms", "r2c": "transforms of real values", "c2r": "transforms to real values"}
CLAIMS = tuple(Claim(f"lines_{kind}", f"fft.{kind}", "generated", accepts, lower, f"{what} {_DOC}", scratch)
               for kind, what in _WHAT.items())
