"""Claims: multifrontal factorization and substitution on real matrices, front after front in cache.

Fronts lie on a stack: what children leave for their parent is on top of it when the parent is assembled. Wide ones
are eliminated in blocks of columns, with OpenBLAS for the products. Items of a batch, or right-hand sides, go over the
pool.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from contextlib import contextmanager

from rlx.device.cpu import blas, lapack
from rlx.device.cpu.emit import Emit
from rlx.ir.claim import Call, Claim
from rlx.ir.loop import Native

#: Columns of the table of fronts, as rlx.sparse's ops define them.
FIRST, WIDTH, SIZE, ABOVE, PARENT, PANEL, BASE, ENTRY, KIDS, LOW, COLUMNS = range(11)
#: Columns eliminated before the rest of the front is updated: of 300 rows, they stay in the first cache.
BLOCK = 16
#: Multiplications of an update from which a call of the library pays (about 0.3 us for the call).
PRODUCT = 6000
_ROW_MAJOR, _PLAIN, _TRANSPOSED = 101, 111, 112


def accepts(call: Call) -> str | None:
    """None for float32 and float64 matrices; else the reason."""
    if (reason := blas.absent()) is not None:
        return reason
    dtype, shape = call.inputs[0]
    if dtype.name not in ("float32", "float64"):
        return f"is written for float32 and float64, got {dtype.name}"
    if 0 in shape or any(0 in s for _, s in call.outputs):
        return "has nothing to do"
    return None


class _Writer:
    """Shorthands over Emit for one element type."""

    def __init__(self, e: Emit, bits: int) -> None:
        self.e = e
        self.t = "float" if bits == 32 else "double"
        self.bytes = bits // 8
        self.letter = "s" if bits == 32 else "d"

    def op(self, how: str, x: str | int, y: str | int) -> str:
        """An instruction on 64-bit integers."""
        return self.e.let(f"{how} i64 {x}, {y}")

    def f(self, how: str, x: str, y: str) -> str:
        """An instruction on numbers; products and sums may fuse, and sums be taken in any order."""
        return self.e.let(f"{how} contract reassoc {self.t} {x}, {y}")

    def load(self, base: str, *terms: tuple[str | int, int | str]) -> str:
        return self.e.let(f"load {self.t}, ptr {self.at(base, *terms)}, align {self.bytes}")

    def store(self, x: str, base: str, *terms: tuple[str | int, int | str]) -> None:
        self.e.do(f"store {self.t} {x}, ptr {self.at(base, *terms)}, align {self.bytes}")

    def at(self, base: str, *terms: tuple[str | int, int | str]) -> str:
        """``base + sum(index * stride)`` in elements; strides may be values."""
        total: str | None = None
        for index, stride in terms:
            part = str(index) if stride == 1 else self.op("mul", index, stride)
            total = part if total is None else self.op("add", total, part)
        return base if total is None else self.e.let(f"getelementptr {self.t}, ptr {base}, i64 {total}")

    def int32(self, base: str, index: str) -> str:
        """A 32-bit index of a list, widened."""
        raw = self.e.let(f"load i32, ptr {self.e.at(base, 'i32', (index, 1))}")
        return self.e.let(f"sext i32 {raw} to i64")

    def field(self, nodes: str, s: str, column: int) -> str:
        """A column of the table of fronts."""
        return self.e.let(f"load i64, ptr {self.e.at(nodes, 'i64', (s, COLUMNS), (column, 1))}")

    def minus(self, base: str, index: tuple[tuple[str | int, int | str], ...], x: str) -> None:
        """``base[index] -= x``."""
        where = self.at(base, *index)
        old = self.e.let(f"load {self.t}, ptr {where}, align {self.bytes}")
        self.e.do(f"store {self.t} {self.f('fsub', old, x)}, ptr {where}, align {self.bytes}")

    def get(self, slot: str) -> str:
        return self.e.let(f"load i64, ptr {slot}")

    def put(self, slot: str, x: str) -> None:
        self.e.do(f"store i64 {x}, ptr {slot}")

    @contextmanager
    def down(self, n: str) -> Iterator[str]:
        """A loop over n - 1 .. 0."""
        with self.e.loop(n) as i:
            yield self.op("sub", self.op("sub", n, 1), i)


# Factorization

def lower_factor(native: Native) -> tuple[str, str]:
    """Item g of the batch: assemble, eliminate, store, and leave the rest on the stack, for every front."""
    attrs = dict(native.attrs)
    dtype, shape = native.types[0]
    batches = math.prod(shape[:-1])
    count = native.types[3][1][0] - 1

    def body(e: Emit, g: str) -> None:
        w = _Writer(e, dtype.bits)
        values, out = w.at(e.buffer(0), (g, shape[-1])), w.at(e.buffer(9), (g, int(attrs["panels"])))
        scale, tiny, nodes, into, source, place = [e.buffer(k) for k in range(1, 7)]
        threshold = w.load(tiny, *([(g, 1)] if native.types[2][1] else []))
        stack = e.call("malloc", [("i64", max(int(attrs["stack"]), 1) * w.bytes)], "ptr")
        top, bad, first_bad = e.slot("i64", 0), e.slot("i64", 0), e.slot("i64", 0)
        f = _Front(w, attrs["kind"] == "cholesky", threshold, bad, first_bad)
        with e.loop(count) as s:
            f.open(nodes, s, w.at(stack, (w.get(top), 1)))
            _enter(f, nodes, s, source, place, scale, values)
            left = _from_children(f, nodes, into, s, stack, w.get(top))
            f.eliminate()
            f.pack(w.at(out, (w.field(nodes, s, PANEL), 1)))
            rest = w.at(stack, (left, 1))
            with e.loop(f.rest) as i:
                row = w.at(f.data, (w.op("add", f.width, i), f.size), (f.width, 1))
                e.call("llvm.memmove.p0.p0.i64", [("ptr", w.at(rest, (i, f.rest))), ("ptr", row),
                                                  ("i64", w.op("mul", f.rest, w.bytes)), ("i1", "false")])
            w.put(top, w.op("add", left, w.op("mul", f.rest, f.rest)))
        e.call("free", [("ptr", stack)])
        info = e.buffer(10)
        for k, slot in enumerate((bad, first_bad)):
            found = e.let(f"trunc i64 {w.get(slot)} to i32")
            e.do(f"store i32 {found}, ptr {e.at(info, 'i32', (g, 2), (k, 1))}")

    name = "rlx_fronts_" + _digest(native)
    return name, lapack.batched(name, batches, body, parallel=batches > 1)


def _enter(f: _Front, nodes: str, s: str, source: str, place: str, scale: str, values: str) -> None:
    """Zeros, and the entries of the matrix."""
    w, e = f.w, f.w.e
    cells = w.op("mul", w.op("mul", f.size, f.size), w.bytes)
    e.call("llvm.memset.p0.i64", [("ptr", f.data), ("i8", 0), ("i64", cells), ("i1", "false")])
    stop = w.field(nodes, w.op("add", s, 1), ENTRY)
    with e.loop(stop, w.field(nodes, s, ENTRY)) as k:
        entry = w.int32(source, k)
        x = w.f("fmul", w.load(values, (entry, 1)), w.load(scale, (entry, 1)))
        w.store(x, f.data, (w.int32(place, k), 1))


def _from_children(f: _Front, nodes: str, into: str, s: str, stack: str, top: str) -> str:
    """Add what the children left on the stack, the last child first; returns where the first one's lies."""
    w, e = f.w, f.w.e
    at, child = e.slot("i64", top), e.slot("i64", w.op("sub", s, 1))
    with e.loop(w.field(nodes, s, KIDS)):
        c = w.get(child)
        size = w.op("sub", w.field(nodes, c, SIZE), w.field(nodes, c, WIDTH))
        w.put(at, w.op("sub", w.get(at), w.op("mul", size, size)))
        begin = w.at(stack, (w.get(at), 1))
        where = e.at(into, "i32", (w.field(nodes, c, ABOVE), 1))
        with e.loop(size) as i:
            target = w.at(f.data, (w.int32(where, i), f.size))
            row = w.at(begin, (i, size))
            with e.loop(size, i if f.symmetric else 0) as j:
                spot = w.at(target, (w.int32(where, j), 1))
                old = e.let(f"load {w.t}, ptr {spot}, align {w.bytes}")
                new = w.f("fadd", old, w.load(row, (j, 1)))
                e.do(f"store {w.t} {new}, ptr {spot}, align {w.bytes}")
        w.put(child, w.op("sub", w.field(nodes, c, LOW), 1))
    return w.get(at)


class _Front:
    """One front: ``size`` by ``size``, row-major at ``data``; the first ``width`` columns are eliminated."""

    def __init__(self, w: _Writer, symmetric: bool, tiny: str, bad: str, first_bad: str) -> None:
        self.w, self.symmetric, self.tiny, self.bad, self.first_bad = w, symmetric, tiny, bad, first_bad

    def open(self, nodes: str, s: str, data: str) -> None:
        """Read its row of the table."""
        w = self.w
        self.data = data
        self.first, self.width, self.size = [w.field(nodes, s, k) for k in (FIRST, WIDTH, SIZE)]
        self.rest = w.op("sub", self.size, self.width)

    def eliminate(self) -> None:
        """Blocks of columns, each followed by the update of what is right of and below it."""
        w, e = self.w, self.w.e
        blocks = w.op("udiv", w.op("add", self.width, BLOCK - 1), BLOCK)
        with e.loop(blocks) as b:
            begin = w.op("mul", b, BLOCK)
            end = e.call("llvm.smin.i64", [("i64", w.op("add", begin, BLOCK)), ("i64", self.width)], "i64")
            with e.loop(end, begin) as k:
                self._column(k, end)
            wide = e.let(f"icmp slt i64 {end}, {self.size}")
            with e.when(wide):
                self._update(begin, end)

    def _column(self, k: str, end: str) -> None:
        """Column k of a block that ends at ``end``: only the block's own columns (or rows, if symmetric) change."""
        w, e = self.w, self.w.e
        row = w.at(self.data, (k, self.size))
        pivot = self._pivot(w.load(row, (k, 1)), k)
        w.store(pivot, row, (k, 1))
        inverse = e.let(f"fdiv {w.t} 1.0, {pivot}")
        after = w.op("add", k, 1)
        if self.symmetric:
            with e.loop(self.size, after) as j:
                w.store(w.f("fmul", w.load(row, (j, 1)), inverse), row, (j, 1))
            with e.loop(end, after) as i:
                self._row_minus(row, i, w.load(row, (i, 1)), i, self.size)
            return
        with e.loop(self.size, after) as i:
            l = w.f("fmul", w.load(self.data, (i, self.size), (k, 1)), inverse)
            w.store(l, self.data, (i, self.size), (k, 1))
            self._row_minus(row, i, l, after, end)

    def _row_minus(self, row: str, i: str, factor: str, start: str, stop: str) -> None:
        """``F[i, j] -= factor * row[j]`` for j in [start, stop)."""
        w, e = self.w, self.w.e
        target = w.at(self.data, (i, self.size))
        with e.loop(stop, start) as j:
            w.minus(target, ((j, 1),), w.f("fmul", factor, w.load(row, (j, 1))))

    def _pivot(self, x: str, k: str) -> str:
        """The pivot as it is used: its root if symmetric, else replaced where it is tiny."""
        w, e = self.w, self.w.e
        if self.symmetric:
            wrong = e.let(f"fcmp ule {w.t} {x}, 0.0")
            used = e.call(f"llvm.sqrt.f{w.bytes * 8}", [(w.t, x)], w.t)
        else:
            size = e.call(f"llvm.fabs.f{w.bytes * 8}", [(w.t, x)], w.t)
            # NaN counts as wrong, and stays.
            wrong = e.let(f"fcmp ult {w.t} {size}, {self.tiny}")
            small = e.let(f"fcmp olt {w.t} {size}, {self.tiny}")
            signed = e.call(f"llvm.copysign.f{w.bytes * 8}", [(w.t, self.tiny), (w.t, x)], w.t)
            used = e.let(f"select i1 {small}, {w.t} {signed}, {w.t} {x}")
        with e.when(wrong):
            number = w.op("add", w.op("add", self.first, k), 1)
            before = w.get(self.first_bad)
            fresh = e.let(f"icmp eq i64 {before}, 0")
            lower = e.call("llvm.smin.i64", [("i64", before), ("i64", number)], "i64")
            w.put(self.first_bad, e.let(f"select i1 {fresh}, i64 {number}, i64 {lower}"))
            w.put(self.bad, w.op("add", w.get(self.bad), 1))
        return used

    def _update(self, begin: str, end: str) -> None:
        """Rows of U right of a block (unless symmetric: they are done), then everything below and right of it."""
        w, e = self.w, self.w.e
        if not self.symmetric:
            with e.loop(end, begin) as k:
                row = w.at(self.data, (k, self.size))
                with e.loop(end, w.op("add", k, 1)) as i:
                    self._row_minus(row, i, w.load(self.data, (i, self.size), (k, 1)), end, self.size)
        left = w.op("sub", self.size, end)
        work = w.op("mul", w.op("mul", left, left), w.op("sub", end, begin))
        large = e.let(f"icmp sge i64 {work}, {PRODUCT}")
        with e.when(large):
            self._product(begin, end, left)
        with e.when(e.let(f"xor i1 {large}, true")), e.loop(self.size, end) as i, e.loop(end, begin) as k:
            row = w.at(self.data, (k, self.size))
            l = w.load(row, (i, 1)) if self.symmetric else w.load(self.data, (i, self.size), (k, 1))
            self._row_minus(row, i, l, i if self.symmetric else end, self.size)

    def _product(self, begin: str, end: str, left: str) -> None:
        w, e = self.w, self.w.e
        depth = w.op("sub", end, begin)
        right = w.at(self.data, (begin, self.size), (end, 1))
        below = right if self.symmetric else w.at(self.data, (end, self.size), (begin, 1))
        corner = w.at(self.data, (end, self.size), (end, 1))
        if self.symmetric:
            e.call(blas.cblas(f"{w.letter}syrk"), [
                ("i32", _ROW_MAJOR), ("i32", 121), ("i32", _TRANSPOSED), ("i64", left), ("i64", depth), (w.t, "-1.0"),
                ("ptr", right), ("i64", self.size), (w.t, "1.0"), ("ptr", corner), ("i64", self.size)])
            return
        e.call(blas.cblas(f"{w.letter}gemm"), [
            ("i32", _ROW_MAJOR), ("i32", _PLAIN), ("i32", _PLAIN), ("i64", left), ("i64", left), ("i64", depth),
            (w.t, "-1.0"), ("ptr", below), ("i64", self.size), ("ptr", right), ("i64", self.size), (w.t, "1.0"),
            ("ptr", corner), ("i64", self.size)])

    def pack(self, panel: str) -> None:
        """Rows of U, then L below the block, transposed."""
        w, e = self.w, self.w.e
        cells = w.op("mul", self.width, self.size)
        e.call("llvm.memcpy.p0.p0.i64", [("ptr", panel), ("ptr", self.data), ("i64", w.op("mul", cells, w.bytes)),
                                         ("i1", "false")])
        if self.symmetric:
            return
        low = w.at(panel, (cells, 1))
        with e.loop(self.width) as k:
            target = w.at(low, (k, self.rest))
            with e.loop(self.rest) as i:
                x = w.load(self.data, (w.op("add", self.width, i), self.size), (k, 1))
                w.store(x, target, (i, 1))


# Substitution

def lower_solve(native: Native) -> tuple[str, str]:
    """One right-hand side g: forward over the fronts, then backward."""
    attrs = dict(native.attrs)
    dtype, shape = native.types[1]
    panels, columns, n = native.types[0][1][-1], shape[-2], shape[-1]
    count = native.types[2][1][0] - 1
    total = math.prod(shape[:-1])
    symmetric, turned = attrs["kind"] == "cholesky", bool(attrs["trans"])

    def body(e: Emit, g: str) -> None:
        w = _Writer(e, dtype.bits)
        panel = w.at(e.buffer(0), (w.op("udiv", g, columns), panels))
        x = w.at(e.buffer(6), (g, n))
        lapack.copy(e, dtype, x, w.at(e.buffer(1), (g, n)), n)
        nodes, members = e.buffer(2), e.buffer(3)
        short = e.call("malloc", [("i64", int(attrs["longest"]) * w.bytes + 64)], "ptr")
        with e.loop(count) as s:
            _Step(w, nodes, members, s, panel, x, short).forward(symmetric or turned, not (symmetric or turned))
        with w.down(str(count)) as s:
            upper = symmetric or not turned
            _Step(w, nodes, members, s, panel, x, short).backward(upper, not upper)
        e.call("free", [("ptr", short)])

    name = "rlx_substitute_" + _digest(native)
    return name, lapack.batched(name, total, body, parallel=total > 1)


class _Step:
    """One front in a substitution: ``x`` of its columns, and of the rows below, through a short vector."""

    def __init__(self, w: _Writer, nodes: str, members: str, s: str, panels: str, x: str, short: str) -> None:
        self.w, self.x, self.short = w, x, short
        first, self.width, self.size, above = [w.field(nodes, s, k) for k in (FIRST, WIDTH, SIZE, ABOVE)]
        self.panel = w.at(panels, (w.field(nodes, s, PANEL), 1))
        self.rest = w.op("sub", self.size, self.width)
        self.own = w.at(x, (first, 1))
        self.members = w.e.at(members, "i32", (above, 1))

    def _element(self, k: str, j: str, rows: bool) -> str:
        """What column (or row) k of the diagonal block holds at j."""
        where = ((k, self.size), (j, 1)) if rows else ((j, self.size), (k, 1))
        return self.w.load(self.panel, *where)

    def _line(self, k: str, rows: bool) -> str:
        """Where the part outside of the block begins: of row k of U, or of column k of L."""
        w = self.w
        if rows:
            return w.at(self.panel, (k, self.size), (self.width, 1))
        return w.at(self.panel, (self.width, self.size), (k, self.rest))

    def forward(self, rows: bool, unit: bool) -> None:
        """With ``rows`` by U^T, else by L."""
        w, e = self.w, self.w.e
        cells = w.op("mul", self.rest, w.bytes)
        e.call("llvm.memset.p0.i64", [("ptr", self.short), ("i8", 0), ("i64", cells), ("i1", "false")])
        with e.loop(self.width) as k:
            value = w.load(self.own, (k, 1))
            if not unit:
                value = e.let(f"fdiv {w.t} {value}, {self._element(k, k, True)}")
                w.store(value, self.own, (k, 1))
            with e.loop(self.width, w.op("add", k, 1)) as j:
                w.minus(self.own, ((j, 1),), w.f("fmul", value, self._element(k, j, rows)))
            line = self._line(k, rows)
            with e.loop(self.rest) as i:
                old = w.load(self.short, (i, 1))
                w.store(w.f("fadd", old, w.f("fmul", value, w.load(line, (i, 1)))), self.short, (i, 1))
        with e.loop(self.rest) as i:
            w.minus(self.x, ((w.int32(self.members, i), 1),), w.load(self.short, (i, 1)))

    def backward(self, rows: bool, unit: bool) -> None:
        """With ``rows`` by U, else by L^T."""
        w, e = self.w, self.w.e
        with e.loop(self.rest) as i:
            w.store(w.load(self.x, (w.int32(self.members, i), 1)), self.short, (i, 1))
        sum_ = e.slot(w.t)
        with w.down(self.width) as k:
            e.do(f"store {w.t} {w.load(self.own, (k, 1))}, ptr {sum_}")
            line = self._line(k, rows)
            with e.loop(self.rest) as i:
                w.minus(sum_, (), w.f("fmul", w.load(line, (i, 1)), w.load(self.short, (i, 1))))
            with e.loop(self.width, w.op("add", k, 1)) as j:
                w.minus(sum_, (), w.f("fmul", w.load(self.own, (j, 1)), self._element(k, j, rows)))
            value = e.let(f"load {w.t}, ptr {sum_}")
            if not unit:
                value = e.let(f"fdiv {w.t} {value}, {self._element(k, k, True)}")
            w.store(value, self.own, (k, 1))


def _digest(native: Native) -> str:
    facts = f"{native.types} {native.attrs}"
    return hashlib.sha256(facts.encode()).hexdigest()[:16]


CLAIMS = (
    Claim("sparse_fronts", "sparse.front_factor", "fronts", accepts, lower_factor,
          "multifrontal factorization on a stack of fronts, OpenBLAS for wide ones, batches over the thread pool"),
    Claim("sparse_substitute", "sparse.substitute", "substitute", accepts, lower_solve,
          "substitution front by front, right-hand sides over the thread pool"),
)
