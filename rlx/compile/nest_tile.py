"""Schedule contractions for cores with vector units: pack one operand in panels, then register tiles with fused ends.

``gelu(x @ w + b)`` -> pack ``w`` into panels of the tile's width; for blocks of rows, for panels: contract a tile, then
the group's pointwise members on it. What is cast or dequantized into the packed operand happens while packing.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import prod

from rlx.compile.emit import Emitter
from rlx.compile.fuse import POINT, REDUCE, Group, Member, Sizes, sizes
from rlx.compile.index import Indexer
from rlx.compile.nest import MAX_CHUNKS, Made, Naming, Nest
from rlx.core.caps import Caps
from rlx.core.dtype import DType, bool_
from rlx.core.shape import strides
from rlx.ir import loop as L
from rlx.ir.graph import Node, Value
from rlx.ir.loop import Expr, Stmt

#: Rows of one block, so that a block of the unpacked operand stays in the second-level cache.
BLOCK_ROWS = 96
#: Multiply-adds in one chunk: about 20 us of one core.
CHUNK_FLOPS = 1_000_000
#: Elements between rows that are copied apart: a cache line or two.
GAP = 16
#: Rows at multiples of this many bytes fall into one set of the first-level cache (x86: 64 sets of 64 bytes).
ALIAS = 4096
#: Depth and width from which tiles beat a plain reduction.
SMALLEST = 8


Axes = tuple[tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True)
class Form:
    """A contraction as ``out[b, i, j] = sum_k x[b, i, k] * y[b, k, j]`` with constant strides of x (in elements)."""

    batch: Sizes
    m: int
    n: int
    depth: int
    x_batch: tuple[int, ...]
    x_row: int
    x_depth: int


def form(n: Node) -> Form | None:
    """The form of a node's contraction, or None where tiles do not fit it."""
    return form_of(n.types[0].dtype, sizes(n.args[0]), sizes(n.args[1]), n.attr("contract"),
                   n.attr("batch")) if n.op == "dot" else None


def form_of(dtype: DType, x: Sizes, y: Sizes, contract: Axes, batch: Axes) -> Form | None:
    """The form of a contraction of row-major operands of these shapes, or None where tiles do not fit it."""
    if dtype.kind != "f" or dtype.bits not in (32, 64) or len(contract[0]) != 1:
        return None
    step = strides(x)
    rows = [a for a in range(len(x)) if a not in contract[0] and a not in batch[0] and x[a] != 1]
    if any(step[a] != step[b] * x[b] for a, b in pairwise(rows)):
        return None
    free = [a for a in range(len(y)) if a not in contract[1] and a not in batch[1]]
    m, width = prod(x[a] for a in rows), prod(y[a] for a in free)
    depth = x[contract[0][0]]
    if depth < SMALLEST or width < SMALLEST or m < 2:
        return None
    return Form(tuple(x[a] for a in batch[0]), m, width, depth, tuple(step[a] for a in batch[0]),
                step[rows[-1]] if rows else 0, step[contract[0][0]])


def geometry(dtype: DType, vector_bytes: int) -> tuple[int, int]:
    """Rows and columns of the register tile: as many accumulators as there are registers for, beside the operands.

    12 x 2 vectors of 32 registers (AVX-512), 4 x 3 of 16 (AVX2), 8 x 2 of 32 (NEON).
    """
    lanes = vector_bytes // dtype.itemsize
    if vector_bytes >= 64:
        return 12, 2 * lanes
    return (4, 3 * lanes) if vector_bytes == 32 else (8, 2 * lanes)


def spreads(f: Form, dtype: DType, rows: int) -> bool:
    """Whether the rows of a tile would evict each other from the first-level cache, and are read often enough to copy.

    A set holds eight lines; a tile reads a line of each of its rows at once.
    """
    return (f.x_depth == 1 and f.x_row * dtype.itemsize % ALIAS == 0 and f.x_row > 0 and rows > 8 and f.m >= 4 * rows
            and f.n * dtype.itemsize >= 512)


def fits(g: Group) -> Member | None:
    """The contraction of a group that tiles can schedule: one, with only pointwise members beside it."""
    dots = [m for m in g.members if m.kind == REDUCE and m.value.node.op == "dot"]
    if len(dots) != 1 or any(m.kind not in (POINT, REDUCE) for m in g.members) or len(
            [m for m in g.members if m.kind == REDUCE]) != 1:
        return None
    return dots[0] if form(dots[0].value.node) is not None else None


class Tiled(Nest):
    """Schedules a group around one contraction."""

    def prepare(self, dot: Member, caps: Caps) -> Tiled:
        """Choose the tile and the blocks."""
        self.dot = dot.value
        found = form(self.dot.node)
        assert found is not None
        self.form = found
        mr, self.width = geometry(self.dot.dtype, caps.vector_bytes)
        lanes = caps.vector_bytes // self.dot.dtype.itemsize
        if found.n <= lanes:
            self.width = lanes
        self.rows = min(mr, found.m)
        self.spread = spreads(found, self.dot.dtype, self.rows)
        self.panels = -(-found.n // self.width)
        return self

    def build(self) -> list[Made]:
        """The packing kernel, a copy of rows that would evict each other, and the contraction."""
        return [self._pack(), *([self._spread()] if self.spread else []), self._contract()]

    # Packing

    def _pack(self) -> Made:
        """``panel[b, p, k, j] = y[b, k, p*width + j]``, zero beyond the last column."""
        f = self.form
        naming, ix = Naming(self.dtype), Indexer(self.dtype)
        self.naming = naming
        em = Emitter(ix, self.stored, self.users)
        packed = naming.scratch("scratch_panels", self.dot.dtype, prod(f.batch) * self.panels * f.depth * self.width)
        total = prod(f.batch) * self.panels
        chunks = max(min(total * f.depth * self.width // 65_536, MAX_CHUNKS, total), 1)
        size = -(-total // chunks)
        count = -(-total // size)
        em.open()
        g = ix.var("g", max(count, 2))
        em.define("g")
        start = em.let(ix.scale(g, size))
        stop = ix.offset(start, size) if total % size == 0 else L.expr("min", (ix.offset(start, size),
                                                                               ix.const(total)), ix.dtype)
        t = ix.var("t", total)
        em.open("t")
        panel, batch = ix.mod(t, self.panels), ix.div(t, self.panels)
        first = em.let(ix.scale(panel, self.width))
        base = em.let(ix.scale(t, f.depth * self.width))
        columns = self._columns()
        if columns is not None:
            self._pack_columns(em, packed, columns, (panel, batch, first, base))
        else:
            self._pack_rows(em, packed, (batch, first, base))
        em.loop("t", start, stop, L.SERIAL)
        em.loop("g", ix.const(0), ix.const(count), L.GRID)
        return naming.kernel(self.name, tuple(em.here), f"pack {f.depth} x {f.n} in panels of {self.width}")

    def _columns(self) -> int | None:
        """The stride between columns of a packed operand in storage whose columns lie along memory; else None."""
        y = self.dot.node.args[1]
        contract, batch = self.dot.node.attr("contract"), self.dot.node.attr("batch")
        shape = sizes(y)
        step = strides(shape)
        free = [a for a in range(len(shape)) if a not in contract[1] and a not in batch[1] and shape[a] != 1]
        if step[contract[1][0]] != 1 or not free or any(step[a] != step[b] * shape[b] for a, b in pairwise(free)):
            return None
        return step[free[-1]] if step[free[-1]] >= self.form.depth and self.stored(y) is not None else None

    def _pack_columns(self, em: Emitter, packed: str, step: int, at: tuple[Expr, Expr, Expr, Expr]) -> None:
        """A panel is the transpose of ``width`` lines of memory; the last one of what is left, and zeros."""
        panel, batch, first, base = at
        f, ix, y = self.form, em.ix, self.dot.node.args[1]
        source = self.stored(y)
        assert source is not None
        begin = em.let(ix.linear(self._y_index(ix, batch, ix.const(0), first), sizes(y)))
        rest = f.n % self.width

        def lines(count: int) -> None:
            em.here.append(L.Transpose(packed, base, self.width, source, begin, step, count, f.depth, self.dot.dtype))
            if count < self.width:
                k, j = ix.var("k", f.depth), ix.var("j", self.width)
                em.open("k")
                em.open("j")
                em.here.append(L.Store(packed, ix.add(base, ix.add(ix.scale(k, self.width), j)),
                                       L.const(0, self.dot.dtype)))
                em.loop("j", ix.const(count), ix.const(self.width), L.VECTOR)
                em.loop("k", ix.const(0), ix.const(f.depth), L.SERIAL)

        if rest == 0 or self.panels == 1:
            lines(rest or self.width)
            return
        em.open()
        lines(self.width)
        full = em.close()
        em.open()
        lines(rest)
        last = em.close()
        em.here.append(L.If(L.less(panel, ix.const(self.panels - 1)), full, last))

    def _pack_rows(self, em: Emitter, packed: str, at: tuple[Expr, Expr, Expr]) -> None:
        """A line of a panel for each depth: computed, cast, or copied."""
        batch, first, base = at
        f, ix, y = self.form, em.ix, self.dot.node.args[1]
        k = ix.var("k", f.depth)
        em.open("k")

        def column(span: Expr, zero_from: Expr | None) -> None:
            j = ix.var("j", self.width)
            at = ix.add(base, ix.add(ix.scale(k, self.width), j))
            em.open("j")
            e = em.value(y, self._y_index(ix, batch, k, ix.add(first, j)))
            em.here.append(L.Store(packed, at, e))
            em.loop("j", ix.const(0), span, L.VECTOR)
            if zero_from is not None:
                em.open("j")
                em.here.append(L.Store(packed, at, L.const(0, self.dot.dtype)))
                em.loop("j", zero_from, ix.const(self.width), L.VECTOR)

        if f.n % self.width:
            span = em.let(L.expr("min", (ix.const(self.width), L.expr("sub", (ix.const(f.n), first), ix.dtype)),
                                 ix.dtype))
            column(span, span)
        else:
            column(ix.const(self.width), None)
        em.loop("k", ix.const(0), ix.const(f.depth), L.SERIAL)

    def _y_index(self, ix: Indexer, batch: Expr, k: Expr, column: Expr) -> tuple[Expr, ...]:
        n = self.dot.node
        contract, batch_axes, shape = n.attr("contract"), n.attr("batch"), sizes(n.args[1])
        free = [a for a in range(len(shape)) if a not in contract[1] and a not in batch_axes[1]]
        at: dict[int, Expr] = {contract[1][0]: k}
        at |= dict(zip(free, ix.split(column, tuple(shape[a] for a in free)), strict=True))
        at |= dict(zip(batch_axes[1], ix.split(batch, self.form.batch), strict=True))
        return tuple([at[a] for a in range(len(shape))])

    def _rows_scratch(self) -> str:
        f = self.form
        return self.naming.scratch("scratch_rows", self.dot.dtype, prod(f.batch) * f.m * (f.depth + GAP))

    def _spread(self) -> Made:
        """Copy the rows of the unpacked operand to a stride that is no power of two."""
        f = self.form
        naming, ix = Naming(self.dtype), Indexer(self.dtype)
        self.naming = naming
        em = Emitter(ix, self.stored, self.users)
        x, target = self.stored(self.dot.node.args[0]), self._rows_scratch()
        assert x is not None
        total = prod(f.batch) * f.m
        chunks = max(min(total * f.depth // 65_536, MAX_CHUNKS, total), 1)
        size = -(-total // chunks)
        count = -(-total // size)
        em.open()
        g = ix.var("g", max(count, 2))
        em.define("g")
        start = em.let(ix.scale(g, size))
        stop = ix.offset(start, size) if total % size == 0 else L.expr("min", (ix.offset(start, size),
                                                                               ix.const(total)), ix.dtype)
        r, k = ix.var("r", total), ix.var("k", f.depth)
        em.open("r")
        at = ix.scale(ix.mod(r, f.m), f.x_row)
        if f.batch:
            for b, s in zip(ix.split(ix.div(r, f.m), f.batch), f.x_batch, strict=True):
                at = ix.add(at, ix.scale(b, s))
        at, to = em.let(at), em.let(ix.scale(r, f.depth + GAP))
        em.open("k")
        em.here.append(L.Store(target, ix.add(to, k), L.load(x, ix.add(at, k), self.dot.dtype)))
        em.loop("k", ix.const(0), ix.const(f.depth), L.VECTOR)
        em.loop("r", start, stop, L.SERIAL)
        em.loop("g", ix.const(0), ix.const(count), L.GRID)
        return naming.kernel(self.name, tuple(em.here), f"spread {f.m} rows of {f.depth}")

    # Contraction

    def _contract(self) -> Made:
        f = self.form
        naming = Naming(self.dtype)
        self.naming, self.ix = naming, Indexer(self.dtype)
        ix = self.ix
        em = self.em = Emitter(ix, self.stored, self.users)
        em.overwritten = self.overwritten
        blocks = -(-f.m // BLOCK_ROWS)
        block = min(-(-f.m // (blocks * self.rows)) * self.rows, f.m)
        blocks = -(-f.m // block)
        flops = prod(f.batch) * f.m * f.n * f.depth
        wanted = max(min(flops // CHUNK_FLOPS, MAX_CHUNKS), 1)
        splits = max(min(-(-wanted // (blocks * prod(f.batch))), self.panels), 1)
        group = -(-self.panels // splits)
        splits = -(-self.panels // group)
        total = prod(f.batch) * blocks * splits
        em.open()
        g = ix.var("g", max(total, 2))
        em.define("g")
        first_panel = em.let(ix.scale(ix.mod(g, splits), group))
        rest = ix.div(g, splits)
        first_row = em.let(ix.scale(ix.mod(rest, blocks), block))
        batch = tuple(map(em.let, ix.split(ix.div(rest, blocks), f.batch))) if f.batch else ()
        last_panel = self._upto(first_panel, group, self.panels)
        last_row = self._upto(first_row, block, f.m)
        p = ix.var("p", self.panels)
        em.open("p")
        whole = f.m % self.rows == 0
        em.here.append(L.Array("tile", self.dot.dtype, self.rows * self.width, "local"))
        if whole:
            self._row_loop("r", first_row, last_row, self.rows, batch, p)
        else:
            # Full tiles first; the rows that are left over are a smaller tile of the last block.
            full = f.m // self.rows * self.rows
            end = em.let(L.expr("min", (last_row, ix.const(full)), ix.dtype))
            if full:
                self._row_loop("r", first_row, end, self.rows, batch, p)
            left = f.m - full
            if blocks == 1:
                self._tile(ix.const(full), left, batch, p)
            else:
                em.open()
                self._tile(ix.const(full), left, batch, p)
                body = em.close()
                em.here.append(L.If(L.expr("eq", (last_row, ix.const(f.m)), bool_), body))
        em.loop("p", first_panel, last_panel, L.SERIAL)
        em.loop("g", ix.const(0), ix.const(total), L.GRID)
        kinds = " ".join(m.value.node.op for m in self.g.members)
        return naming.kernel(f"{self.name}_tile", tuple(em.here),
                             f"{kinds} over {f.m} x {f.n}, depth {f.depth}, tiles of {self.rows} x {self.width}")

    def _upto(self, start: Expr, size: int, total: int) -> Expr:
        stop = self.ix.offset(start, size)
        if total % size == 0:
            return stop
        return self.em.let(L.expr("min", (stop, self.ix.const(total)), self.ix.dtype))

    def _row_loop(self, name: str, start: Expr, stop: Expr, step: int, batch: tuple[Expr, ...], panel: Expr) -> None:
        full = self.form.m // step * step
        row = self.ix.var(name, max(full - step + 1, 2)) if full > step else self.ix.const(0)
        self.em.open(name)
        self._tile(row, step, batch, panel)
        body = self.em.close()
        self.em.here.append(L.For(name, start, stop, step, L.SERIAL, body))

    def _tile(self, row: Expr, count: int, batch: tuple[Expr, ...], panel: Expr) -> None:
        """Contract one tile into local memory, then compute the members on it and store them."""
        f, ix, em = self.form, self.ix, self.em
        if self.spread:
            x, stride = self._rows_scratch(), (f.depth + GAP, 1)
            a_index = ix.scale(row, f.depth + GAP)
            if batch:
                a_index = ix.add(a_index, ix.scale(ix.linear(batch, f.batch), f.m * (f.depth + GAP)))
        else:
            found = self.stored(self.dot.node.args[0])
            assert found is not None
            x, stride = found, (f.x_row, f.x_depth)
            a_index = ix.scale(row, f.x_row)
            for b, s in zip(batch, f.x_batch, strict=True):
                a_index = ix.add(a_index, ix.scale(b, s))
        packed = self.naming.scratch("scratch_panels", self.dot.dtype,
                                     prod(f.batch) * self.panels * f.depth * self.width)
        number = ix.add(ix.scale(ix.linear(batch, f.batch), self.panels) if batch else ix.const(0), panel)
        b_index = ix.scale(number, f.depth * self.width)
        em.here.append(L.Contract("tile", x, em.let(a_index), stride, packed, em.let(b_index), count,
                                  self.width, f.depth, self.dot.dtype))
        first = em.let(ix.scale(panel, self.width))
        span = ix.const(self.width) if f.n % self.width == 0 else em.let(
            L.expr("min", (ix.const(self.width), L.expr("sub", (ix.const(f.n), first), ix.dtype)), ix.dtype))
        step = em.name("i")
        i = ix.var(step, count)
        if count > 1:
            em.open(step)
        name = em.name("j")
        em.open(name)
        j = ix.var(name, self.width)
        self._finish(ix.add(row, i), ix.add(first, j), batch, ix.add(ix.scale(i, self.width), j))
        em.loop(name, ix.const(0), span, L.VECTOR)
        if count > 1:
            em.loop(step, ix.const(0), ix.const(count), L.SERIAL)

    def _finish(self, row: Expr, column: Expr, batch: tuple[Expr, ...], at: Expr) -> None:
        """The members at one element; stores last."""
        em = self.em
        outer = self._index(row, column, batch)
        self._keep(self.dot, outer, L.load("tile", at, self.dot.dtype))
        for m in self.g.members:
            if m.kind == POINT:
                self._keep(m.value, outer, self._compute(m.value, outer))
        here = list(em.here)
        em.here.clear()
        em.here.extend(self._sorted(here))

    @staticmethod
    def _sorted(stmts: list[Stmt]) -> list[Stmt]:
        return [s for s in stmts if not isinstance(s, L.Store)] + [s for s in stmts if isinstance(s, L.Store)]

    def _index(self, row: Expr, column: Expr, batch: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """The group's outer index of one element: batch axes, the row split over its axes, the column over its."""
        k = len(self.form.batch)
        n = self.dot.node
        x_free = len(n.args[0].shape) - k - 1
        shape = self.g.outer
        rows, columns = shape[k:k + x_free], shape[k + x_free:]
        return (*batch, *self.ix.split(row, rows), *self.ix.split(column, columns))


def operands(n: Node) -> tuple[Value, ...]:
    """Operands of a contraction that tiles read from storage: the unpacked one."""
    return n.args[:1] if form(n) is not None else ()
