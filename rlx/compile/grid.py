"""Schedule groups for workgroups of lanes: ``for g in grid: for l in block: ...``.

``y = f(x)`` -> one lane an element; ``s = sum(x, last)`` -> a *team* of lanes a row, which adds its lanes'
parts in a tree in shared memory; ``s = sum(x)`` -> one partial a workgroup, and a second kernel of one
workgroup that adds the partials. The shapes depend on sizes and capabilities alone, so results are the same in
every run.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from rlx.compile.emit import Emitter, Index
from rlx.compile.grid_form import MAX_GROUPS, GridForm, accumulator, floor_power, lanes_of
from rlx.compile.grid_points import several
from rlx.compile.grid_tile import Tile, find_tile
from rlx.compile.group import POINT, RAGGED, REDUCE, ROW, TOTAL, Member
from rlx.compile.index import Indexer, sizes
from rlx.compile.naming import Made, Naming
from rlx.compile.nest import Nest
from rlx.compile.reduction import identity, reduce_kind
from rlx.core.caps import Caps
from rlx.core.dtype import DType, bool_, float32, float64
from rlx.ir import loop as L
from rlx.ir.graph import Value
from rlx.ir.loop import Expr, Stmt
from rlx.ir.prim import COMBINE

#: Workgroups of a kernel that leaves partial totals: enough to fill a large GPU, few enough for one to add up.
TOTAL_GROUPS = 512
#: Elements of a row from which a team of lanes shares it.
TEAM_ROW = 32
#: Mean length of a segment from which a team of lanes shares it.
TEAM_SEGMENT = 12
#: Largest team for segments: they differ in length, so lanes of a wide team would mostly wait.
SEGMENT_LANES = 64
#: Values of a workgroup's segments that each of its lanes stages in shared memory at a time, at most.
STAGE = 8
#: Elements that each lane of a long pointwise kernel computes side by side, so that its loads overlap.
POINTS = 4
#: Elements of a row that each lane of a team keeps in registers, where lanes exchange values directly: 32 for a row
#: of 1024 in one subgroup.
ROW_SLOTS = 32


class Grid(Nest):
    """Schedules one group for a device of workgroups."""

    def __init__(self, *args: Any, caps: Caps) -> None:
        super().__init__(*args)
        self.caps = caps

    def build(self) -> list[Made]:
        """The kernel of the group, and the one that combines its totals."""
        self.naming = Naming(self.dtype)
        self.ix = Indexer(self.dtype)
        self.em = Emitter(self.ix, self.stored, self.users)
        self.em.overwritten = self.overwritten
        self.form = GridForm(self.em, self.ix, self.caps)
        self.late: list[Stmt] = []
        self.valid: Expr = L.const(True, bool_)
        self.team, self.lane = 1, self.ix.const(0)
        self.stage, self.together = 0, False
        notes = f"{' '.join(m.kind + ':' + m.value.node.op for m in self.g.members)} over {list(self.g.outer)}" + (
            f" x {list(self.g.inner)}" if self.g.inner else ""
        )
        tile = find_tile(self.g, self.caps)
        if tile is not None:
            body = Tile(self.form, tile, self._epilogue).build()
            return [self.naming.kernel(self.name, body, f"{notes}, tiles of {tile.rows} x {tile.columns}")]
        totals = [m for m in self.g.members if m.kind == TOTAL]
        self.team = self._team_size()
        self.stage = self._stage_size()
        #: Whether lanes work together, so that all of them run every pass.
        self.together = self.team > 1 or self.stage > 0
        return self._rows(totals, notes)

    # The domain over the grid

    def _rows(self, totals: list[Member], notes: str) -> list[Made]:
        span = prod(self.g.outer)
        lanes = lanes_of(self.caps, max(span * self.team, 1))
        if totals:
            lanes = min(lanes, self._tree_lanes())
        per = lanes // self.team
        limit = max(TOTAL_GROUPS, 8 * self.caps.cores) if totals else MAX_GROUPS
        self.groups = max(min(-(-span // per), limit), 1)
        with self.form.kernel(self.groups, lanes) as (g, lane):
            self.lane = self.ix.mod(lane, self.team)
            registers = {
                m.value: self.em.register(identity(reduce_kind(m.value.node), accumulator(m.value)), "s")
                for m in totals
            }
            visit = self._team_rows if self.together else self._lane_rows
            visit(g, lane, span, per, lambda outer: self._body(outer, False, totals, registers))
            for k, m in enumerate(totals):
                self._leave_total(k, m, g, lane, lanes, registers[m.value])
        made = [self.naming.kernel(self.name, self.form.body, notes)]
        return [*made, self._combine(totals, self.groups)] if totals and self.groups > 1 else made

    def _lane_rows(self, g: Expr, lane: Expr, span: int, per: int, body: Callable[[Index], tuple[Stmt, ...]]) -> None:
        """One lane an outer index: a guard when the grid covers the domain, else a strided loop."""
        em, ix = self.em, self.ix
        at = ix.add(ix.scale(g, per), lane)
        em.open()
        em.define("o")
        o = ix.var("o", span) if span != 1 else L.var("o", ix.dtype)
        ix.extent["o"] = span
        stmts = body(ix.split(o, self.g.outer))
        inner = em.close() + stmts
        if self._side_by_side(span, per) and all(isinstance(s, L.Let | L.Store) for s in inner):
            self.groups = min(self.groups, span // (per * POINTS))
            at = ix.add(ix.scale(g, per * POINTS), lane)
            step, inner = self.groups * per * POINTS, several(inner, POINTS, per, ix)
            em.here.append(L.For("o", at, ix.const(span), step, L.SERIAL, inner))
            return
        if self.groups * per < span:
            em.here.append(L.For("o", at, ix.const(span), self.groups * per, L.SERIAL, inner))
        elif self.groups * per == span:
            em.here.extend((L.Let("o", at), *inner))
        else:
            em.here.append(L.If(L.less(at, ix.const(span)), (L.Let("o", at), *inner)))

    def _side_by_side(self, span: int, per: int) -> bool:
        """Whether each lane computes several points at once: for long kernels of points alone, in whole pieces, on
        devices that hide the time of a load behind other loads.
        """
        hides = not self.caps.features.isdisjoint(("exchange", "overlap"))
        return (hides and all(m.kind == POINT for m in self.g.members)
                and span % (per * POINTS) == 0 and span >= per * POINTS * self.caps.cores * 8)

    def _team_rows(self, g: Expr, lane: Expr, span: int, per: int, body: Callable[[Index], tuple[Stmt, ...]]) -> None:
        """One team an outer index. All lanes of a workgroup run the same passes, so barriers are met by all; a
        team past the end repeats the last row and stores nothing.
        """
        em, ix = self.em, self.ix
        em.open()
        for name in ("r", "o"):
            em.define(name)
        first: Expr = L.var("r", ix.dtype)
        row = ix.add(first, ix.div(lane, self.team))
        full = span % per == 0
        ix.extent["o"] = span
        o = L.var("o", ix.dtype)
        em.here.append(L.Let("o", row if full else L.expr("min", (row, ix.const(span - 1)), ix.dtype)))
        self.valid = L.const(True, bool_) if full else em.let(L.less(row, ix.const(span)))
        stmts = body(ix.split(o, self.g.outer) if self.g.outer else ())
        inner = em.close() + stmts
        start = ix.scale(g, per)
        if self.groups * per < span:
            em.here.append(L.For("r", start, ix.const(span), self.groups * per, L.SERIAL, inner))
        else:
            em.here.extend((L.Let("r", start), *inner))

    def _team_size(self) -> int:
        """Lanes that share one outer index: 1, or a power of two."""
        want = 1
        for m in self.g.members:
            if m.kind == RAGGED:
                shape = sizes(m.value.node.args[0])
                mean = shape[0] // max(sizes(m.value)[0], 1)
                if mean >= TEAM_SEGMENT and prod(shape[1:]) < 16:
                    want = max(want, min(floor_power(mean // 2), SEGMENT_LANES))
            elif m.kind in (REDUCE, ROW):
                n = prod(self.g.inner or ())
                if n >= TEAM_ROW and not (m.kind == REDUCE and self._walks_columns(m)):
                    want = max(want, self._row_team(n))
        size = max([accumulator(m.value).itemsize for m in self.g.members] or [1])
        kinds = len({accumulator(m.value) for m in self.g.members})
        most = lanes_of(self.caps, 1 << 30)
        if prod(self.g.outer) == 0 or most * size * kinds > self.caps.shared_bytes:
            return 1
        return min(want, most)

    def _row_team(self, n: int) -> int:
        """Lanes for a row of ``n``: few with long registers when there are rows enough to fill the device."""
        narrow = floor_power(self.caps.subgroup)
        if "exchange" not in self.caps.features or prod(self.g.outer) < 16 * self.caps.cores:
            return floor_power(n // 2)
        return max(min(floor_power(n // 2), narrow), floor_power(-(-n // ROW_SLOTS)))

    def _tree_lanes(self) -> int:
        """Lanes whose parts fit in shared memory, one array for each dtype; 1 where there is none."""
        each = sum({accumulator(m.value): accumulator(m.value).itemsize for m in self.g.members}.values())
        return floor_power(self.caps.shared_bytes // each)

    def _walks_columns(self, m: Member) -> bool:
        """Whether neighbouring results of a contraction read neighbouring elements: then one lane a result is
        better.
        """
        n = m.value.node
        if n.op != "dot" or prod(self.g.outer) < 256:
            return False
        k = 0 if len(n.args[0].shape) > len(n.args[1].shape) else 1
        return len(n.args[k].shape) - 1 not in n.attr("contract")[k]

    # What one outer index does

    def _taken(self) -> tuple[Stmt, ...]:
        """The statements of the open block; in a team, stores of the row come last, from its first lane."""
        if not self.together:
            return super()._taken()
        here = self.em.here
        out = tuple(here)
        here.clear()
        if len(self.em.blocks) != self.form.depth + 1 or not self.late:
            return out
        first = L.both(self.valid, self._first())
        fence: tuple[Stmt, ...] = (L.Barrier(),) if self.overwritten else ()
        out = (*out, *fence, L.If(first, tuple(self.late)))
        self.late = []
        return out

    def _keep(self, v: Value, index: Index, e: Expr) -> None:
        m = self.g.member(v)
        if not self.together or m is None or m.kind == ROW:
            super()._keep(v, index, e)
            return
        e = self._name(e)
        if v in self.kept:
            self.late.append(L.Store(self.naming.of(v), self.ix.linear(index, sizes(v)), e))
        self.em.held[v] = (index, e)

    def _first(self) -> Expr:
        """Whether this lane is the first of its team."""
        return L.const(True, bool_) if self.team == 1 else L.expr("eq", (self.lane, self.ix.const(0)), bool_)

    def _name(self, e: Expr) -> Expr:
        return e if e.op in ("var", "const") else self.em.let(e)

    def _inner(self, outer: Index, stage: int) -> None:
        rows = [m for m in self.g.members if m.kind == ROW and self.need[m.value] == stage]
        reduces = [m for m in self.g.members if m.kind == REDUCE and self.need[m.value] == stage]
        if not rows and not reduces:
            return
        assert self.g.inner is not None
        em, n = self.em, prod(self.g.inner)
        accs = {m.value: em.register(identity(reduce_kind(m.value.node), accumulator(m.value)), "a") for m in reduces}
        self._row_locals(rows, stage)
        self.depth = len(em.blocks)
        if self.team == 1:
            em.here.extend(self._inner_loops(self.g.inner, outer, (), rows, reduces, accs))
        else:
            self._strided(n, outer, rows, reduces, accs)
        for m in reduces:
            acc = accs[m.value]
            if self.team > 1:
                acc = self.form.tree(acc, reduce_kind(m.value.node), self.team)
            self._keep(m.value, outer, em.cast(acc, m.value.dtype))

    def _strided(
        self, n: int, outer: Index, rows: list[Member], reduces: list[Member], accs: dict[Value, Expr]
    ) -> None:
        """``for i in lane, lane + team, ..``: the team's lanes walk a row side by side."""
        em, ix = self.em, self.ix
        assert self.g.inner is not None
        whole = "exchange" in self.caps.features and n % self.team == 0 and n // self.team <= ROW_SLOTS
        name = em.name("i")
        em.open(name)
        ix.extent[name] = n // self.team if whole else n
        i: Expr = L.var(name, ix.dtype)
        if whole:
            i = ix.add(ix.scale(i, self.team), self.lane)
        inner = ix.split(i, self.g.inner)
        self.position = i
        for m in rows:
            self._row(m, outer, inner)
        for m in reduces:
            self._accumulate(m, outer, inner, accs[m.value])
        body = em.close()
        if whole:
            turns = L.For(name, ix.const(0), ix.const(n // self.team), 1, L.UNROLL, body)
            em.here.append(turns if self.valid.op == "const" else L.If(self.valid, (turns,)))
            return
        stop = L.select(self.valid, ix.const(n), ix.const(0))
        em.here.append(L.For(name, self.lane, stop, self.team, L.SERIAL, body))

    def _row_locals(self, rows: list[Member], stage: int) -> None:
        """Local arrays for row values that later stages read; in a team each lane keeps the elements it computed."""
        if self.team == 1:
            super()._row_locals(rows, stage)
            return
        for m in rows:
            later = any(self.need[c.value] > stage and any(u is m.value for u, _ in c.reads) for c in self.g.members)
            if later and m.value not in self.kept:
                name = self.em.name("row")
                self.em.here.append(L.Array(name, m.value.dtype, -(-prod(self.g.inner or ()) // self.team), "local"))
                self.local[m.value] = name
                self.em.placed[m.value] = self._lane_load(name, m.value)

    def _lane_load(self, name: str, v: Value) -> Callable[[Index], Expr]:
        return lambda index: L.load(name, self._slot(index[len(self.g.outer) :]), v.dtype)

    def _slot(self, inner: Index) -> Expr:
        return self.ix.div(self.ix.linear(inner, self.g.inner or ()), self.team)

    def _row(self, m: Member, outer: Index, inner: Index) -> None:
        if self.team == 1:
            super()._row(m, outer, inner)
            return
        index = (*outer, *inner)
        self._keep(m.value, index, self._compute(m.value, index))
        if m.value in self.local:
            self.em.here.append(L.Store(self.local[m.value], self._slot(inner), self.em.held[m.value][1]))

    def _accumulate(self, m: Member, outer: Index, inner: Index, acc: Expr) -> None:
        """``acc = combine(acc, value)``; products of floats are added with one rounding."""
        kind = reduce_kind(m.value.node)
        parts = [self.em.cast(p, acc.dtype) for p in self._terms(m, outer, inner)]
        if m.kind == TOTAL and self.together:
            mine = L.both(self.valid, self._first())
            parts[0] = L.select(mine, parts[0], identity(kind, acc.dtype))
            if len(parts) > 1:
                parts[1] = L.select(mine, parts[1], identity(kind, acc.dtype))
        self.em.here.append(L.Assign(acc.value, combine(kind, acc, parts), True))

    def _segment(self, m: Member, outer: Index) -> None:
        """``for k in offsets[o] .. offsets[o+1]: acc = combine(acc, values[k])``, strided over the team."""
        if self.stage:
            self._staged(m, outer)
            return
        em, ix = self.em, self.ix
        values, offsets = m.value.node.args
        kind = reduce_kind(m.value.node)
        acc = em.register(identity(kind, accumulator(m.value)), "a")
        start = em.let(em.as_index(em.value(offsets, (outer[0],))))
        stop = em.let(em.as_index(em.value(offsets, (ix.offset(outer[0], 1),))))
        name = em.name("k")
        em.open(name)
        ix.extent[name] = max(sizes(values)[0], 1)
        e = em.cast(em.value(values, (L.var(name, ix.dtype), *outer[1:])), acc.dtype)
        em.here.append(L.Assign(acc.value, L.expr(COMBINE[kind], (acc, e), acc.dtype), True))
        body = em.close()
        if self.team > 1:
            start, stop = ix.add(start, self.lane), L.select(self.valid, stop, ix.const(0))
        em.here.append(L.For(name, start, stop, self.team, L.SERIAL, body))
        total = self.form.tree(acc, kind, self.team) if self.team > 1 else acc
        self._keep(m.value, outer, em.cast(total, m.value.dtype))

    def _stage_size(self) -> int:
        """Values that each lane stages: where segments are short, neighbouring lanes would load far apart."""
        raggeds = [m for m in self.g.members if m.kind == RAGGED]
        if self.team > 1 or not raggeds or "exchange" not in self.caps.features or self.g.inner is not None:
            return 0
        values = [sizes(m.value.node.args[0]) for m in raggeds]
        if len(self.g.outer) != 1 or any(len(shape) != 1 for shape in values):
            return 0
        mean = -(-max(shape[0] for shape in values) // max(self.g.outer[0], 1))
        return min(max(mean, 1), STAGE) if self.g.outer[0] >= 64 * self.caps.cores else 0

    def _staged(self, m: Member, outer: Index) -> None:
        """``for c in the workgroup's values: all lanes stage a block; each adds what is its own``, in order."""
        em, ix = self.em, self.ix
        values, offsets = m.value.node.args
        kind, dtype = reduce_kind(m.value.node), accumulator(m.value)
        lanes, count = self.form.lanes, self.g.outer[0]
        acc = em.register(identity(kind, dtype), "a")
        first: Expr = L.var("r", ix.dtype)
        after = L.expr("min", (ix.offset(first, lanes), ix.const(count)), ix.dtype)
        begin, end = (em.let(em.as_index(em.value(offsets, (i,)))) for i in (first, after))
        start = em.let(em.as_index(em.value(offsets, (outer[0],))))
        stop = em.let(em.as_index(em.value(offsets, (ix.offset(outer[0], 1),))))
        size = lanes * self.stage
        buffer = self.form.shared(f"stage_{dtype.short}", dtype, size)
        block = em.name("c")
        em.open(block)
        c = L.var(block, ix.dtype)
        self._fill_stage(values, buffer, c, L.expr("sub", (end, ix.const(1)), ix.dtype), dtype)
        self.form.barrier()
        name = em.name("k")
        k = L.var(name, ix.dtype)
        own = L.load(buffer, L.expr("sub", (k, c), ix.dtype), dtype)
        low = em.let(L.expr("max", (start, c), ix.dtype))
        high = em.let(L.expr("min", (stop, L.expr("add", (c, ix.const(size)), ix.dtype)), ix.dtype))
        step = L.Assign(acc.value, L.expr(COMBINE[kind], (acc, own), dtype), True)
        em.here.append(L.For(name, low, high, 1, L.SERIAL, (step,)))
        self.form.barrier()
        body = em.close()
        em.here.append(L.For(block, begin, end, size, L.SERIAL, body))
        self._keep(m.value, outer, em.cast(acc, m.value.dtype))

    def _fill_stage(self, values: Value, buffer: str, c: Expr, last: Expr, dtype: DType) -> None:
        """Lanes side by side; past the end the last value once more, which nobody reads: no branch between loads."""
        em, ix = self.em, self.ix
        turn = em.name("j")
        em.open(turn)
        at = ix.add(ix.scale(ix.var(turn, self.stage), self.form.lanes), self.form.lane)
        k = em.let(L.expr("min", (L.expr("add", (c, at), ix.dtype), last), ix.dtype))
        ix.extent[k.value] = max(sizes(values)[0], 1)
        e = em.cast(em.value(values, (k,)), dtype)
        em.here.append(L.Store(buffer, at, e))
        fill = em.close()
        em.here.append(L.For(turn, ix.const(0), ix.const(self.stage), 1, L.UNROLL, fill))

    def _epilogue(self, member: Member, outer: Index, acc: Expr) -> tuple[Stmt, ...]:
        """What follows a contraction at one result: its store and the points computed from it."""
        self._keep(member.value, outer, self.em.cast(acc, member.value.dtype))
        for stage in range(max(self.need.values(), default=0) + 1):
            for m in self.g.members:
                if m.kind == POINT and self.need[m.value] == stage:
                    self._keep(m.value, outer, self._compute(m.value, outer))
        return self._taken()

    # Totals

    def _leave_total(self, k: int, m: Member, g: Expr, lane: Expr, lanes: int, acc: Expr) -> None:
        """The workgroup's total, stored as the result or as one partial."""
        em, ix = self.em, self.ix
        total = self.form.tree(acc, reduce_kind(m.value.node), lanes) if lanes > 1 else acc
        if self.groups == 1:
            store = L.Store(self.naming.of(m.value), ix.const(0), em.cast(total, m.value.dtype))
        else:
            store = L.Store(self.naming.scratch(f"partial{k}", acc.dtype, self.groups), g, total)
        em.here.append(L.If(L.expr("eq", (lane, ix.const(0)), bool_), (store,)) if lanes > 1 else store)

    def _combine(self, totals: list[Member], chunks: int) -> Made:
        """One workgroup adds up the partials of every total."""
        naming, ix = Naming(self.dtype), Indexer(self.dtype)
        em = Emitter(ix, lambda v: None, {})
        form = GridForm(em, ix, self.caps)
        lanes = min(lanes_of(self.caps, chunks), self._tree_lanes())
        with form.kernel(1, lanes) as (_, lane):
            for k, m in enumerate(totals):
                kind, dtype = reduce_kind(m.value.node), accumulator(m.value)
                acc = em.register(identity(kind, dtype), "s")
                name = em.name("c")
                part = L.load(naming.scratch(f"partial{k}", dtype, chunks), L.var(name, ix.dtype), dtype)
                step = L.Assign(acc.value, L.expr(COMBINE[kind], (acc, part), dtype), True)
                em.here.append(L.For(name, lane, ix.const(chunks), lanes, L.SERIAL, (step,)))
                total = em.cast(form.tree(acc, kind, lanes) if lanes > 1 else acc, m.value.dtype)
                store = L.Store(naming.of(m.value), ix.const(0), total)
                em.here.append(L.If(L.expr("eq", (lane, ix.const(0)), bool_), (store,)) if lanes > 1 else store)
        return naming.kernel(f"{self.name}_total", form.body, "combine partial totals")


def combine(kind: str, acc: Expr, parts: list[Expr]) -> Expr:
    """``acc`` combined with a value, or with the product of two."""
    if len(parts) == 1:
        return L.expr(COMBINE[kind], (acc, parts[0]), acc.dtype)
    if acc.dtype in (float32, float64):
        return L.expr("fma", (parts[0], parts[1], acc), acc.dtype)
    return L.expr("add", (acc, L.expr("mul", tuple(parts), acc.dtype)), acc.dtype)
