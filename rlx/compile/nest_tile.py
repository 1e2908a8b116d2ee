"""Schedule contractions for cores with vector units: pack one operand in panels, then register tiles with fused ends.

``gelu(x @ w + b)`` -> pack ``w`` into panels of the tile's width; for blocks of rows, for panels: contract a tile, then
the group's pointwise members on it. What is cast or dequantized into the packed operand happens while packing.
"""

from __future__ import annotations

from collections.abc import Container
from math import prod

from rlx.compile.emit import Emitter
from rlx.compile.group import POINT, REDUCE, Group, Member
from rlx.compile.index import Indexer, sizes
from rlx.compile.naming import Made, Naming
from rlx.compile.nest import MAX_CHUNKS
from rlx.compile.nest_form import form, form_of, geometry, operands, spreads, turned
from rlx.compile.nest_pack import GAP, Packed
from rlx.core.caps import Caps
from rlx.core.dtype import bool_
from rlx.ir import loop as L
from rlx.ir.graph import Value
from rlx.ir.loop import Expr, Stmt

#: Rows of one block, so that a block of the unpacked operand stays in the second-level cache.
BLOCK_ROWS = 96
#: Multiply-adds in one chunk: about 20 us of one core.
CHUNK_FLOPS = 1_000_000


def fits(g: Group) -> Member | None:
    """The contraction of a group that tiles can schedule: one, with only pointwise members beside it."""
    dots = [m for m in g.members if m.kind == REDUCE and m.value.node.op == "dot"]
    if len(dots) != 1 or any(m.kind not in (POINT, REDUCE) for m in g.members) or len(
            [m for m in g.members if m.kind == REDUCE]) != 1:
        return None
    return dots[0] if form(dots[0].value.node) is not None else None


class Tiled(Packed):
    """Schedules a group around one contraction."""

    def prepare(self, dot: Member, caps: Caps, fixed: Container[Value] = ()) -> Tiled:
        """Choose the tile and the blocks; what is computed of ``fixed`` values alone is computed once."""
        self.dot = dot.value
        n = self.dot.node
        self.turned = n.args[1] not in fixed and turned(n, caps.vector_bytes)
        left, right = (1, 0) if self.turned else (0, 1)
        self.x, self.y = n.args[left], n.args[right]
        contract, batch = n.attr("contract"), n.attr("batch")
        self.y_contract, self.y_batch = contract[right][0], batch[right]
        found = form_of(self.dot.dtype, sizes(self.x), sizes(self.y), (contract[left], contract[right]),
                        (batch[left], batch[right]))
        assert found is not None
        self.form = found
        mr, self.width = geometry(self.dot.dtype, caps.vector_bytes)
        lanes = caps.vector_bytes // self.dot.dtype.itemsize
        if found.n <= lanes:
            self.width = lanes
        if self.turned:
            mr = lanes  # whole vectors of the result, along the tile's rows
        self.rows = min(mr, found.m)
        self.spread = spreads(found, self.dot.dtype, self.rows)
        self.panels = -(-found.n // self.width)
        return self

    def build(self) -> list[Made]:
        """The packing kernel, a copy of rows that would evict each other, and the contraction."""
        return [self._pack(), *([self._spread()] if self.spread else []), self._contract()]

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
            found = self.stored(self.x)
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
        step, name = em.name("i"), em.name("j")
        i, j = ix.var(step, count), ix.var(name, self.width)
        loops = [(step, ix.const(count)), (name, span)]
        if self.turned:
            loops.reverse()
        for loop, stop in loops:
            if stop != ix.const(1):
                em.open(loop)
        self._finish(ix.add(row, i), ix.add(first, j), batch, ix.add(ix.scale(i, self.width), j))
        for (loop, stop), kind in zip(reversed(loops), (L.VECTOR, L.SERIAL), strict=True):
            if stop != ix.const(1):
                em.loop(loop, ix.const(0), stop, kind)

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
        x_free = len(self.dot.node.args[0].shape) - k - 1
        shape = self.g.outer
        if self.turned:
            row, column = column, row
        rows, columns = shape[k:k + x_free], shape[k + x_free:]
        return (*batch, *self.ix.split(row, rows), *self.ix.split(column, columns))


__all__ = ["Tiled", "fits", "form", "operands"]
