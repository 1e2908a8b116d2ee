"""Schedule groups as loop nests for cores with vector units: chunks over a grid, vector loops inside.

A group becomes ``for chunk in grid: for o in chunk: ...``; the chunks do not depend on the number of threads, so
results are the same on every core count. Totals leave one partial a chunk; a second kernel combines them in order.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from rlx.compile.emit import Emitter, Index
from rlx.compile.group import POINT, RAGGED, REDUCE, ROW, TOTAL, Group, Member, stages
from rlx.compile.index import Indexer, Sizes, divides, sizes
from rlx.compile.naming import Made, Naming
from rlx.compile.reduction import identity, reduce_index, reduce_kind
from rlx.compile.strided import block_strided
from rlx.core.dtype import DType, int64
from rlx.ir import loop as L
from rlx.ir.graph import Value
from rlx.ir.loop import Expr, Stmt
from rlx.ir.prim import COMBINE

#: Element operations in one chunk: about 20 us of work, so that waking a thread pays.
CHUNK_WORK = 32_768
#: The same inside a loop, where the threads are awake: about 4 us.
HOT_WORK = 16_384
#: Most chunks of one kernel: enough to balance 16 cores.
MAX_CHUNKS = 64
#: Lanes a column reduction accumulates at once in local memory: whole rows where they fit, since shorter pieces of
#: rows, a page apart, defeat the prefetcher.
COLUMN_TILE = 4096
#: Values of a row kept in local memory between two inner loops, at most (bytes).
ROW_LOCAL = 16_384
#: Iterations without a test from which a loop is worth splitting.
SPLIT = 64
#: Mean length of a segment from which its loop is a vector loop.
LONG_SEGMENT = 32


class Nest:
    """Schedules one group."""

    def __init__(self, name: str, g: Group, plan_stored: set[Value], views: dict[Value, Value], users: dict[int, int],
                 kept: set[Value], overwritten: set[Value], index_dtype: DType = int64) -> None:
        self.overwritten = overwritten
        self.chunk_work = CHUNK_WORK
        self.name, self.g, self.views, self.users, self.kept = name, g, views, users, kept
        self.plan_stored = plan_stored
        self.dtype = index_dtype
        self.naming = Naming(index_dtype)
        self.need = stages(g)
        self.local: dict[Value, str] = {}

    def stored(self, v: Value) -> str | None:
        """The parameter that holds ``v``, unless this group computes it into a register only."""
        v = self.views.get(v, v)
        if v in self.plan_stored and (self.g.member(v) is None or v in self.kept):
            return self.naming.of(v)
        return None

    # Whole kernels

    def build(self) -> list[Made]:
        """The kernel of the group, and the one that combines its totals."""
        plain = self.g.inner is None and not any(m.kind == RAGGED for m in self.g.members)
        totals = [m for m in self.g.members if m.kind == TOTAL]
        shapes = self._collapsed() if plain else [self.g.outer]
        for loops in shapes:
            made = self._kernel(loops, plain, totals, strict=loops is not shapes[-1])
            if made is not None:
                return made
        raise AssertionError("the last shape is always taken")

    def _collapsed(self) -> list[Sizes]:
        """Loop shapes to try: fewer, longer loops first; the domain as it is last."""
        outer = self.g.outer
        out = [(*outer[:k], prod(outer[k:])) for k in range(len(outer) - 1)]
        return [*out, outer]

    def _kernel(self, loops: Sizes, plain: bool, totals: list[Member], strict: bool) -> list[Made] | None:
        self.naming = Naming(self.dtype)
        self.ix = Indexer(self.dtype)
        em = self.em = Emitter(self.ix, self.stored, self.users)
        em.overwritten = self.overwritten
        chunks = self._chunks(loops)
        registers = self._totals(totals) if chunks == 1 else {}
        body = self._loops(loops, plain, totals, chunks, registers)
        if strict and divides(body):
            return None
        if plain and not totals:
            body = block_strided(body, self.ix)
        finish: list[Stmt] = []
        after: list[Made] = []
        if chunks == 1:
            finish = [L.Store(self.naming.of(m.value), self.ix.const(0), registers[m.value]) for m in totals]
        elif totals:
            after.append(self._combine(totals, chunks))
        notes = f"{' '.join(m.kind + ':' + m.value.node.op for m in self.g.members)} over {list(self.g.outer)}" + (
            f" x {list(self.g.inner)}" if self.g.inner else "")
        return [self.naming.kernel(self.name, (*em.here, *body, *finish), notes), *after]

    def _chunks(self, loops: Sizes) -> int:
        per = prod(self.g.inner or ()) * max(len(self.g.members), 1)
        for m in self.g.members:
            if m.kind == RAGGED:
                nnz = int(m.value.node.args[0].shape[0])  # type: ignore[arg-type]
                per += max(nnz // max(int(m.value.shape[0]), 1), 1) * 2  # type: ignore[arg-type]
        work = prod(loops) * max(per, 1)
        return max(min(work // self.chunk_work, MAX_CHUNKS, prod(loops)), 1) if loops else 1

    def _totals(self, totals: list[Member]) -> dict[Value, Expr]:
        return {m.value: self.em.register(identity(reduce_kind(m.value.node), m.value.dtype), "s") for m in totals}

    def _loops(self, loops: Sizes, plain: bool, totals: list[Member], chunks: int,
               registers: dict[Value, Expr]) -> tuple[Stmt, ...]:
        em, ix = self.em, self.ix
        if not loops:
            return self._body((), plain, totals, registers)
        if chunks == 1:
            return self._nest(loops, (), plain, totals, registers)
        lead = 1
        while prod(loops[:lead]) < chunks and lead < len(loops):
            lead += 1
        # The axes before the chunked one are fixed in a chunk, so that no inner index divides.
        fixed: Sizes = loops[:-1] if lead == len(loops) else ()
        span = loops[-1] if fixed else prod(loops[:lead])
        per = -(-chunks // prod(fixed))
        size = -(-span // per)
        if lead == len(loops):
            size = -(-size // 64) * 64
        per = -(-span // size)
        count = per * prod(fixed)
        em.open()
        g = ix.var("g", max(count, 2))
        em.define("g")
        registers = self._totals(totals)
        start = em.let(ix.scale(ix.mod(g, per) if fixed else g, size))
        stop = ix.offset(start, size)
        if span % size:
            stop = L.expr("min", (stop, ix.const(span)), ix.dtype)
        head = tuple(map(em.let, ix.split(ix.div(g, per), fixed))) if fixed else ()
        # With the ranges of the names known, a reshape of the result meets the index again.
        ix.extent.update({str(h.value): n for h, n in zip(head, fixed, strict=True) if h.op == "var"})
        t = ix.var("t", span)
        vector = plain and lead == len(loops)

        def chunk() -> tuple[Stmt, ...]:
            em.open("t")
            index = (*head, t) if fixed else ix.split(t, loops[:lead]) if lead > 1 else (t,)
            inner = self._nest(loops[lead:], index, plain, totals, registers)
            return em.close() + inner

        em.here.extend(self._split("t", em.let(start), em.let(stop), L.VECTOR if vector else L.SERIAL, chunk))
        for m in totals:
            partial = self.naming.scratch(f"partial{totals.index(m)}", m.value.dtype, count)
            em.here.append(L.Store(partial, g, registers[m.value]))
        self.count = count
        return (L.For("g", ix.const(0), ix.const(count), 1, L.GRID, em.close()),)

    def _nest(self, loops: Sizes, index: Index, plain: bool, totals: list[Member],
              registers: dict[Value, Expr]) -> tuple[Stmt, ...]:
        em, ix = self.em, self.ix
        if not loops:
            return self._body(index, plain, totals, registers)
        name = f"o{len(index)}"
        v = ix.var(name, loops[0])
        if loops[0] == 1:
            return self._nest(loops[1:], (*index, v), plain, totals, registers)
        last = all(d == 1 for d in loops[1:])

        def once() -> tuple[Stmt, ...]:
            em.open(name)
            inner = self._nest(loops[1:], (*index, v), plain, totals, registers)
            return em.close() + inner

        kind = L.VECTOR if plain and last else L.SERIAL
        return self._split(name, ix.const(0), ix.const(loops[0]), kind, once)

    def _split(self, name: str, start: Expr, stop: Expr, kind: str,
               body: Callable[[], tuple[Stmt, ...]]) -> tuple[Stmt, ...]:
        """One vector loop, or three: before, inside, and after the part where every test on its variable is decided.

        ``pad(x)[t + 1]`` loads only where ``t + 1`` is inside; the middle loop, nearly all of a stencil, has no test
        and loads vectors from consecutive places.
        """
        em, ix = self.em, self.ix
        em.margins.pop(name, None)
        outside = body()
        whole = L.For(name, start, stop, 1, kind, outside)
        low, high = em.margins.pop(name, (0, 0))
        extent = ix.extent.get(name, 0)
        if kind != L.VECTOR or high - low < max(extent // 2, SPLIT) or (low, high) == (0, extent):
            return (whole,)
        ix.low[name], ix.extent[name] = low, high
        inside = body()
        ix.low.pop(name)
        ix.extent[name] = extent
        em.margins.pop(name, None)
        parts = []
        for a, b, stmts in ((0, low, outside), (low, high, inside), (high, extent, outside)):
            if a < b:
                first = start if a == 0 else L.expr("max", (start, ix.const(a)), ix.dtype)
                last = stop if b == extent else L.expr("min", (stop, ix.const(b)), ix.dtype)
                parts.append(L.For(name, _fold(first), _fold(last), 1, kind, stmts))
        return tuple(parts)

    def _combine(self, totals: list[Member], chunks: int) -> Made:
        """``for c in chunks: total = combine(total, partial[c])``."""
        naming = Naming(self.dtype)
        ix = Indexer(self.dtype)
        em = Emitter(ix, lambda v: None, {})
        accs = [em.register(identity(reduce_kind(m.value.node), m.value.dtype), "s") for m in totals]
        em.open("c")
        c = ix.var("c", max(self.count, 2))
        for k, (m, acc) in enumerate(zip(totals, accs, strict=True)):
            part = L.load(naming.scratch(f"partial{k}", m.value.dtype, self.count), c, m.value.dtype)
            em.here.append(L.Assign(acc.value, L.expr(COMBINE[reduce_kind(m.value.node)], (acc, part), acc.dtype)))
        loop = L.For("c", ix.const(0), ix.const(self.count), 1, L.SERIAL, em.close())
        stores = [L.Store(naming.of(m.value), ix.const(0), acc) for m, acc in zip(totals, accs, strict=True)]
        return naming.kernel(f"{self.name}_total", (*em.here, loop, *stores), "combine partial totals in order")

    # One outer index

    def _body(self, index: Index, plain: bool, totals: list[Member], registers: dict[Value, Expr]) -> tuple[Stmt, ...]:
        """Emit into the open block; returns statements to append (none: everything is already in the block)."""
        outer = self._outer(index)
        for stage in range(max(self.need.values(), default=0) + 1):
            self._points(outer, stage)
            self._inner(outer, stage)
            self._ragged(outer, stage)
        for m in totals:
            self._accumulate(m, outer, (), registers[m.value])
        return self._taken()

    def _taken(self) -> tuple[Stmt, ...]:
        """The statements of the open block, stores last: nothing is overwritten before it is read."""
        here = self.em.here
        out = (*[s for s in here if not isinstance(s, L.Store)], *[s for s in here if isinstance(s, L.Store)])
        here.clear()
        return out

    def _outer(self, index: Index) -> Index:
        """The group's outer index from the (possibly collapsed) loop index."""
        k = len(index) - 1
        if len(index) == len(self.g.outer):
            return index
        return (*index[:k], *self.ix.split(index[k], self.g.outer[k:]))

    def _points(self, outer: Index, stage: int) -> None:
        for m in self.g.members:
            if m.kind == POINT and self.need[m.value] == stage:
                self._keep(m.value, outer, self._compute(m.value, outer))

    def _compute(self, v: Value, index: Index) -> Expr:
        """The value itself, not a load of it from storage."""
        return self.em._inline(v.node, v, index) if v.node.op != "input" else self.em.value(v, index)

    def _keep(self, v: Value, index: Index, e: Expr) -> None:
        """Hold a computed value in a register, and store it when others need it."""
        e = self.em.let(e) if self.users.get(id(v.node), 1) > 1 or v not in self.kept else e
        if v in self.kept:
            self.em.here.append(L.Store(self.naming.of(v), self.ix.linear(index, sizes(v)), e))
        self.em.held[v] = (index, e)

    def _inner(self, outer: Index, stage: int) -> None:
        rows = [m for m in self.g.members if m.kind == ROW and self.need[m.value] == stage]
        reduces = [m for m in self.g.members if m.kind == REDUCE and self.need[m.value] == stage]
        if not rows and not reduces:
            return
        assert self.g.inner is not None
        em = self.em
        accs = {m.value: em.register(identity(reduce_kind(m.value.node), m.value.dtype), "a") for m in reduces}
        self._row_locals(rows, stage)
        self.depth = len(em.blocks)
        em.here.extend(self._inner_loops(self.g.inner, outer, (), rows, reduces, accs))
        for m in reduces:
            self._keep(m.value, outer, accs[m.value])

    def _row_locals(self, rows: list[Member], stage: int) -> None:
        """Local arrays for row values that only later stages of this group read."""
        for m in rows:
            later = any(self.need[c.value] > stage and any(u is m.value for u, _ in c.reads) for c in self.g.members)
            if later and m.value not in self.kept:
                n = prod(self.g.inner or ())
                name = self.em.name("row")
                self.em.here.append(L.Array(name, m.value.dtype, n, "local"))
                self.local[m.value] = name
                self.em.placed[m.value] = self._local_load(name, m.value)

    def _local_load(self, name: str, v: Value) -> Callable[[Index], Expr]:
        k = len(self.g.outer)
        return lambda index: L.load(name, self.ix.linear(index[k:], self.g.inner or ()), v.dtype)

    def _inner_loops(self, loops: Sizes, outer: Index, inner: Index, rows: list[Member], reduces: list[Member],
                     accs: dict[Value, Expr]) -> tuple[Stmt, ...]:
        em, ix = self.em, self.ix
        if not loops:
            for m in rows:
                self._row(m, outer, inner)
            for m in reduces:
                self._accumulate(m, outer, inner, accs[m.value])
            return self._taken() if len(em.blocks) > self.depth else ()
        name = f"i{len(inner)}"
        v = ix.var(name, loops[0])
        if loops[0] == 1:
            return self._inner_loops(loops[1:], outer, (*inner, v), rows, reduces, accs)
        em.open(name)
        body = self._inner_loops(loops[1:], outer, (*inner, v), rows, reduces, accs)
        body = em.close() + body
        last = all(d == 1 for d in loops[1:])
        return (L.For(name, ix.const(0), ix.const(loops[0]), 1, L.VECTOR if last else L.SERIAL, body),)

    def _row(self, m: Member, outer: Index, inner: Index) -> None:
        index = (*outer, *inner)
        e = self._compute(m.value, index)
        self._keep(m.value, index, e)
        if m.value in self.local:
            at = self.ix.linear(inner, self.g.inner or ())
            self.em.here.append(L.Store(self.local[m.value], at, self.em.held[m.value][1]))

    def _accumulate(self, m: Member, outer: Index, inner: Index, acc: Expr) -> None:
        """``acc = combine(acc, value)`` for a reduction, contraction, or total."""
        parts = self._terms(m, outer, inner)
        e = parts[0] if len(parts) == 1 else L.expr("mul", tuple(parts), m.value.dtype)
        self.em.here.append(L.Assign(acc.value, L.expr(COMBINE[reduce_kind(m.value.node)], (acc, e), acc.dtype), True))

    def _terms(self, m: Member, outer: Index, inner: Index) -> list[Expr]:
        """What a reduction, or a total over the outer domain, combines at one step; the factors of a contraction."""
        domains: tuple[Index, Index] = ((), outer) if m.kind == TOTAL else (outer, inner)
        return [self.em.value(x, index) for x, index in reduce_index(m.value.node, *domains)]

    def _ragged(self, outer: Index, stage: int) -> None:
        for m in self.g.members:
            if m.kind == RAGGED and self.need[m.value] == stage:
                self._segment(m, outer)

    def _segment(self, m: Member, outer: Index) -> None:
        """``for k in offsets[o] .. offsets[o+1]: acc = combine(acc, values[k])``."""
        em, ix = self.em, self.ix
        values, offsets = m.value.node.args
        kind = reduce_kind(m.value.node)
        acc = em.register(identity(kind, m.value.dtype), "a")
        # Short segments run in order: a vector loop would spend its time on what is left over.
        long = int(values.shape[0]) >= LONG_SEGMENT * max(int(m.value.shape[0]), 1)  # type: ignore[arg-type]
        start = em.let(em.as_index(em.value(offsets, (outer[0],))))
        stop = em.let(em.as_index(em.value(offsets, (ix.offset(outer[0], 1),))))
        name = em.name("k")
        em.open(name)
        k = ix.var(name, max(int(values.shape[0]), 2))  # type: ignore[arg-type]
        e = em.value(values, (k, *outer[1:]))
        em.here.append(L.Assign(acc.value, L.expr(COMBINE[kind], (acc, e), acc.dtype), long))
        body = em.close()
        em.here.append(L.For(name, start, stop, 1, L.VECTOR if long else L.SERIAL, body))
        self._keep(m.value, outer, acc)


def _fold(e: Expr) -> Expr:
    """``min`` and ``max`` of two constants."""
    if e.op in ("min", "max") and all(a.op == "const" for a in e.args):
        a, b = (int(x.value) for x in e.args)
        return L.const(min(a, b) if e.op == "min" else max(a, b), e.dtype)
    return e
