"""The frame of a kernel of workgroups: the grid and block loops, shared memory, and the tree that combines lanes.

``for g in grid: for l in block: <body>``; ``tree``: ``red[l] = x; for s = n/2, n/4, .. 1: red[l] += red[l + s]``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rlx.compile.emit import Emitter
from rlx.compile.index import Indexer
from rlx.core.caps import Caps
from rlx.core.dtype import DType, bfloat16, bool_, float16, float32
from rlx.ir import loop as L
from rlx.ir.graph import Value
from rlx.ir.loop import Expr, Stmt
from rlx.ir.prim import COMBINE

#: Lanes of a workgroup, where the device has as many: every API's smallest limit that hardware meets is 256.
LANES = 256
#: Workgroups in one dimension that every API can launch.
MAX_GROUPS = 65_535


def floor_power(n: int) -> int:
    """The largest power of two that is at most ``n``; 1 for less."""
    return 1 << max(n.bit_length() - 1, 0)


def lanes_of(caps: Caps, work: int) -> int:
    """Lanes of a workgroup for ``work`` elements: a power of two that the device takes, no larger than needed."""
    return min(floor_power(min(LANES, caps.max_workgroup)), 1 << max(work - 1, 0).bit_length())


def accumulator(v: Value) -> DType:
    """The dtype in which sums of ``v`` are kept: float32 for the 16-bit floats."""
    return float32 if v.dtype in (float16, bfloat16) else v.dtype


class GridForm:
    """Builds the loops around a kernel's body, and its shared memory."""

    def __init__(self, em: Emitter, ix: Indexer, caps: Caps) -> None:
        self.em, self.ix = em, ix
        #: Lanes that exchange values without shared memory; 1 where there are none.
        self.subgroup = floor_power(caps.subgroup) if "exchange" in caps.features else 1
        self.body: tuple[Stmt, ...] = ()
        self._shared: dict[str, L.Array] = {}

    @contextmanager
    def kernel(self, groups: int, lanes: int) -> Iterator[tuple[Expr, Expr]]:
        """``for g in groups: for l in lanes`` around what is emitted inside; afterwards ``body`` is the kernel's."""
        em, ix = self.em, self.ix
        self.lanes = lanes
        em.open("g")
        em.open("l")
        self.depth = len(em.blocks)
        self.lane = ix.var("l", lanes)
        yield ix.var("g", groups), self.lane
        inner = em.close()
        # What depends on no lane was placed outside; grid loops stand outermost and hold block loops directly.
        early = (*em.blocks[0].stmts, *em.blocks[1].stmts)
        em.close()
        em.here.clear()
        block = L.For("l", ix.const(0), ix.const(lanes), 1, L.BLOCK, (*self._shared.values(), *early, *inner))
        self.body = (L.For("g", ix.const(0), ix.const(groups), 1, L.GRID, (block,)),)

    def shared(self, name: str, dtype: DType, size: int) -> str:
        """An array in workgroup memory, declared once, large enough for every use of its name."""
        old = self._shared.get(name)
        self._shared[name] = L.Array(name, dtype, max(size, old.size if old else 0), "shared")
        return name

    def barrier(self) -> None:
        self.em.here.append(L.Barrier())

    def tree(self, x: Expr, kind: str, width: int) -> Expr:
        """The combination of ``x`` over each ``width`` neighbouring lanes, in every one of them.

        ``width`` is a power of two; all lanes of the workgroup must come here together.
        """
        em, ix, lane = self.em, self.ix, self.lane
        if self.subgroup > 1 and self.lanes % self.subgroup == 0:
            return self._exchanged(x, kind, width)
        red = self.shared(f"red_{x.dtype.short}", x.dtype, self.lanes)
        em.here.append(L.Store(red, lane, x))
        self.barrier()
        mine = ix.mod(lane, width)
        s = width // 2
        while s >= 1:
            both = (L.load(red, lane, x.dtype), L.load(red, ix.offset(lane, s), x.dtype))
            step = L.Store(red, lane, L.expr(COMBINE[kind], both, x.dtype))
            em.here.append(L.If(L.less(mine, ix.const(s)), (step,)))
            self.barrier()
            s //= 2
        name = em.name("w")
        base = ix.scale(ix.div(lane, width), width)
        em.here.append(L.Let(name, L.load(red, base, x.dtype)))
        em.define(name)
        self.barrier()
        return L.var(name, x.dtype)

    def _exchanged(self, x: Expr, kind: str, width: int) -> Expr:
        """A butterfly in each subgroup, then the subgroups' results through shared memory, in order."""
        em, ix, lane = self.em, self.ix, self.lane
        s = min(width, self.subgroup) // 2
        while s >= 1:
            name = em.name("w")
            em.here.append(L.Exchange(name, x, s))
            em.define(name)
            x = self._named(L.expr(COMBINE[kind], (x, L.var(name, x.dtype)), x.dtype))
            s //= 2
        if width <= self.subgroup:
            return x
        red = self.shared(f"red_{x.dtype.short}", x.dtype, self.lanes // self.subgroup)
        first = L.expr("eq", (ix.mod(lane, self.subgroup), ix.const(0)), bool_)
        em.here.append(L.If(first, (L.Store(red, ix.div(lane, self.subgroup), x),)))
        self.barrier()
        many = width // self.subgroup
        base = ix.scale(ix.div(lane, width), many)
        total = L.load(red, base, x.dtype)
        for k in range(1, many):
            total = L.expr(COMBINE[kind], (total, L.load(red, ix.offset(base, k), x.dtype)), x.dtype)
        total = self._named(total)
        self.barrier()
        return total

    def _named(self, x: Expr) -> Expr:
        name = self.em.name("w")
        self.em.here.append(L.Let(name, x))
        self.em.define(name)
        return L.var(name, x.dtype)
