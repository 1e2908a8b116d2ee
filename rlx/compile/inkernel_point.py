"""In-kernel loops for workgroups of lanes: each lane runs the loop of one point, on values in registers.

``at = g*lanes + l; s = init[at]; while goes_on(s): s = step(s); out[at] = s``. A point that is done stops by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import final

from rlx.compile.grid_form import MAX_GROUPS, GridForm, lanes_of
from rlx.compile.inkernel import InKernel, LoopKernel, Read
from rlx.compile.lane import OtherLane, candidates, condition
from rlx.compile.loop_level import Level
from rlx.core.caps import Caps
from rlx.core.dtype import DType, bool_
from rlx.ir import loop as L
from rlx.ir.graph import Node, Value
from rlx.ir.loop import Stmt

#: Most lanes of a workgroup: points end at different times, and a workgroup stays until its last one does.
LANES = 64


def in_points(n: Node, views: dict[Value, Value], index_dtype: DType, caps: Caps) -> InKernel | None:
    """The loop as one kernel, or None where its lanes depend on each other or it needs more buffers than bind."""
    for lanes in candidates(n):
        try:
            made = PointLoop(n, lanes, views, index_dtype, caps).build()
        except (OtherLane, RecursionError):
            continue
        if not caps.max_buffers or len(made.made.kernel.params) <= caps.max_buffers:
            return made
    return None


@final
class PointLoop(LoopKernel):
    """A loop over one point of each lane."""

    def __init__(self, n: Node, lanes: tuple[int, ...], views: dict[Value, Value], index_dtype: DType,
                 caps: Caps) -> None:
        self.caps = caps
        super().__init__(n, lanes, views, index_dtype)

    def suit(self, level: Level) -> Level:
        """Everything in registers."""
        level.scalars += level.arrays
        level.arrays = []
        return level

    def build(self) -> InKernel:
        """One lane a point; a strided loop where the grid is smaller than the points."""
        em, ix = self.em, self.ix
        span = max(prod(self.lanes), 1)
        lanes = min(lanes_of(self.caps, span), LANES)
        groups = min(-(-span // lanes), MAX_GROUPS)
        form = GridForm(em, ix, self.caps)
        with form.kernel(groups, lanes) as (g, lane):
            at = ix.add(ix.scale(g, lanes), lane)
            em.open("o")
            self.lane = ix.split(ix.var("o", span), self.lanes) if self.lanes else ()
            self._point()
            inner = em.close()
            em.here.extend(self._framed(at, inner, span, groups * lanes))
        return self.made(form.body)

    def _framed(self, at: L.Expr, inner: tuple[Stmt, ...], span: int, width: int) -> tuple[Stmt, ...]:
        """The points of one lane: those at ``at``, ``at + width``, ..."""
        ix = self.ix
        if width < span:
            return (L.For("o", at, ix.const(span), width, L.SERIAL, inner),)
        body = (L.Let("o", at), *inner)
        return body if width == span else (L.If(L.less(at, ix.const(span)), body),)

    def _point(self) -> None:
        self.first(self.outer)
        self.loop(self.outer)
        shared = []
        for at, r in self.outer.registers.items():
            store = L.Store(*self.result(at), r)
            if at[0] in self.outer.owned:
                self.em.here.append(store)
            else:
                shared.append(store)
        if shared:
            # Every lane has the same scalars; that of the first point stores them.
            first = [L.expr("eq", (i, self.ix.const(0)), bool_) for i in self.lane if i.op != "const"]
            ok = L.const(True, bool_)
            for e in first:
                ok = L.both(ok, e)
            self.em.here.extend([L.If(ok, tuple(shared))] if first else shared)

    def over_lanes(self, work: Callable[[], None]) -> None:
        work()

    def note_facts(self, level: Level) -> None:
        """A point that runs an iteration goes on: ``where(goes_on, new, old)`` is ``new``."""
        if level.each:
            em = self.em
            with em.aside():
                self._place(level, level.head.inputs[:len(level.inits)], level.now)
                fact = em.number(em.value(condition(level.head), self.lane))
            em.facts |= {fact}

    def keep(self, v: Value) -> Read:
        """Where it is read, its computation moves out of the loops that it does not depend on."""
        return lambda index: self.em.value(v, index)
