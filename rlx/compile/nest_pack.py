"""Kernels that lay the operands of a contraction out for register tiles: panels of one, rows apart of the other."""

from __future__ import annotations

from itertools import pairwise
from math import prod

from rlx.compile.emit import Emitter
from rlx.compile.index import Indexer, sizes
from rlx.compile.naming import Made, Naming
from rlx.compile.nest import MAX_CHUNKS, Nest
from rlx.compile.nest_form import Form
from rlx.core.shape import strides
from rlx.ir import loop as L
from rlx.ir.graph import Value
from rlx.ir.loop import Expr

#: Elements between rows that are copied apart: a cache line or two.
GAP = 16
#: Elements in one chunk of a packing kernel.
CHUNK = 65_536


class Packed(Nest):
    """The packing half of a schedule around the contraction ``dot``, whose operands are ``x`` (rows) and ``y``."""

    dot: Value
    x: Value
    y: Value
    form: Form
    y_contract: int
    y_batch: tuple[int, ...]
    width: int
    panels: int

    # Packing

    def _pack(self) -> Made:
        """``panel[b, p, k, j] = y[b, k, p*width + j]``, zero beyond the last column."""
        f = self.form
        naming, ix = Naming(self.dtype), Indexer(self.dtype)
        self.naming = naming
        em = Emitter(ix, self.stored, self.users)
        packed = naming.scratch("scratch_panels", self.dot.dtype, prod(f.batch) * self.panels * f.depth * self.width)
        total = prod(f.batch) * self.panels
        chunks = max(min(total * f.depth * self.width // CHUNK, MAX_CHUNKS, total), 1)
        count, start, stop = _open_chunks(em, ix, total, chunks)
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
        y, shape = self.y, sizes(self.y)
        step = strides(shape)
        free = [a for a in range(len(shape)) if a != self.y_contract and a not in self.y_batch and shape[a] != 1]
        if step[self.y_contract] != 1 or not free or any(step[a] != step[b] * shape[b] for a, b in pairwise(free)):
            return None
        return step[free[-1]] if step[free[-1]] >= self.form.depth and self.stored(y) is not None else None

    def _pack_columns(self, em: Emitter, packed: str, step: int, at: tuple[Expr, Expr, Expr, Expr]) -> None:
        """A panel is the transpose of ``width`` lines of memory; the last one of what is left, and zeros."""
        panel, batch, first, base = at
        f, ix, y = self.form, em.ix, self.y
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
        f, ix, y = self.form, em.ix, self.y
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
        shape = sizes(self.y)
        free = [a for a in range(len(shape)) if a != self.y_contract and a not in self.y_batch]
        at: dict[int, Expr] = {self.y_contract: k}
        at |= dict(zip(free, ix.split(column, tuple(shape[a] for a in free)), strict=True))
        at |= dict(zip(self.y_batch, ix.split(batch, self.form.batch), strict=True))
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
        x, target = self.stored(self.x), self._rows_scratch()
        assert x is not None
        total = prod(f.batch) * f.m
        chunks = max(min(total * f.depth // CHUNK, MAX_CHUNKS, total), 1)
        count, start, stop = _open_chunks(em, ix, total, chunks)
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


def _open_chunks(em: Emitter, ix: Indexer, total: int, chunks: int) -> tuple[int, Expr, Expr]:
    """Open the body of a loop ``g`` over the chunks of ``range(total)``: how many there are, and this one's bounds."""
    size = -(-total // chunks)
    count = -(-total // size)
    em.open()
    g = ix.var("g", max(count, 2))
    em.define("g")
    start = em.let(ix.scale(g, size))
    stop = ix.offset(start, size)
    return count, start, stop if total % size == 0 else L.expr("min", (stop, ix.const(total)), ix.dtype)
