"""Sort lines with one lane an element: blocks by counting, then merges by binary search.

``rank(i) = own place in its run + elements of the sibling run that stand before it``; the left run wins ties,
so equal elements keep their order.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Protocol

from rlx.compile.emit import Emitter
from rlx.compile.index import Indexer, sizes
from rlx.compile.naming import Made, Naming
from rlx.core.dtype import bool_
from rlx.ir import loop as L
from rlx.ir.graph import Node, Value
from rlx.ir.loop import Expr

#: Elements of the first sorted blocks: each element counts those before it.
BLOCK = 16


class Work(Protocol):
    """What builds one kernel of one lane for each element."""

    naming: Naming
    ix: Indexer
    em: Emitter
    views: dict[Value, Value]

    def spread(self, span: int, body: Callable[[Expr], None], notes: str, label: str = "") -> Made:
        """A kernel of one lane for each of ``span`` positions."""

    def named(self, e: Expr, extent: int) -> Expr:
        """``e`` under a name that is known to lie in ``[0, extent)``."""

    def over(self, prefix: str, start: Expr, stop: Expr, extent: int, body: Callable[[Expr], None]) -> None:
        """``for v in range(start, stop)`` around what ``body`` emits."""


class Sorter:
    """Builds the kernels of one sort; ``work`` gives a fresh builder for each."""

    def __init__(self, node: Node, work: Callable[[], Work]) -> None:
        self.node, self.work = node, work
        self.axis, self.shape = node.attr("axis"), sizes(node.args[0])
        self.length = self.shape[self.axis]
        self.stride = prod(self.shape[self.axis + 1 :])
        self.down = bool(node.attr("descending"))

    def build(self) -> list[Made]:
        """One kernel for the blocks, one for each doubling of the runs; the last one writes the outputs."""
        widths = []
        w = BLOCK
        while w < self.length:
            widths.append(w)
            w *= 2
        passes: list[int | None] = [None, *widths]
        made = []
        for k, width in enumerate(passes):
            last = len(passes) - 1 - k
            made.append(self._pass(width, "in" if k == 0 else self._side(last + 1), self._side(last)))
        return made

    @staticmethod
    def _side(left: int) -> str:
        """Where a pass with ``left`` passes after it writes: results alternate and end in the outputs."""
        return "out" if left % 2 == 0 else "temp"

    def _pass(self, width: int | None, src: str, dst: str) -> Made:
        work = self.work()
        n, ix, em = self.node, work.ix, work.em

        def name(side: str, k: int) -> str:
            if side == "temp":
                return work.naming.scratch(f"scratch{k}", n.outs[k].dtype, prod(self.shape))
            return work.naming.of(work.views.get(n.args[k], n.args[k]) if side == "in" else n.outs[k])

        def element(o: Expr) -> None:
            inner = ix.mod(o, self.stride)
            i = work.named(ix.mod(ix.div(o, self.stride), self.length), self.length)
            base = em.let(ix.add(ix.scale(ix.div(o, self.stride * self.length), self.stride * self.length), inner))

            def at(j: Expr) -> Expr:
                return ix.add(base, ix.scale(j, self.stride))

            def key(j: Expr) -> Expr:
                return L.load(name(src, 0), at(j), n.args[0].dtype)

            own = em.let(key(i))
            rank = self._count(work, key, own, i) if width is None else self._search(work, key, own, i, width)
            for k, x in enumerate(n.args):
                moved = own if k == 0 else L.load(name(src, k), at(i), x.dtype)
                em.here.append(L.Store(name(dst, k), at(rank), moved))

        label = "_blocks" if width is None else f"_merge{width}"
        return work.spread(prod(self.shape), element, f"sort along axis {self.axis} of {list(self.shape)}", label)

    def _count(self, work: Work, key: Callable[[Expr], Expr], own: Expr, i: Expr) -> Expr:
        """The place of element ``i`` in its sorted block: elements before it, plus earlier ones equal to it."""
        ix, em = work.ix, work.em
        start = em.let(ix.scale(ix.div(i, BLOCK), BLOCK))
        rank = em.register(start, "k")
        em.mutable.add(rank.value)
        stop = L.expr("min", (ix.offset(start, BLOCK), ix.const(self.length)), ix.dtype)

        def step(j: Expr) -> None:
            other = em.let(key(j))
            stays = self._may_precede(other, own)
            before = L.select(L.less(j, i), stays, L.expr("not", (self._may_precede(own, other),), bool_))
            one = L.select(before, ix.const(1), ix.const(0))
            em.here.append(L.Assign(rank.value, L.expr("add", (rank, one), ix.dtype)))

        work.over("j", start, stop, self.length, step)
        return self._settled(work, rank)

    def _search(self, work: Work, key: Callable[[Expr], Expr], own: Expr, i: Expr, width: int) -> Expr:
        """``lo + (i - own start) + count`` where a binary search counts the sibling's elements that stand before."""
        ix, em = work.ix, work.em
        lo = em.let(ix.scale(ix.div(i, 2 * width), 2 * width))
        mid = em.let(L.expr("min", (ix.offset(lo, width), ix.const(self.length)), ix.dtype))
        end = em.let(L.expr("min", (ix.offset(lo, 2 * width), ix.const(self.length)), ix.dtype))
        left = em.let(L.less(i, mid))
        a = em.register(L.select(left, mid, lo), "a")
        b = em.register(L.select(left, end, mid), "b")
        start = em.let(L.select(left, mid, lo))
        em.mutable |= {a.value, b.value}
        em.open()
        half = em.name("h")
        em.here.append(L.Let(half, L.expr("floordiv", (L.expr("add", (a, b), ix.dtype), ix.const(2)), ix.dtype)))
        em.define(half)
        h = L.var(half, ix.dtype)
        safe = L.expr("max", (L.expr("min", (h, ix.const(self.length - 1)), ix.dtype), ix.const(0)), ix.dtype)
        other = em.name("y")
        em.here.append(L.Let(other, key(safe)))
        em.define(other)
        y = L.var(other, own.dtype)
        # From the left run: pass over what must stand before; from the right run: over what may.
        strictly = L.expr("not", (self._may_precede(own, y),), bool_)
        over = L.select(left, strictly, self._may_precede(y, own))
        took = em.name("p")
        em.here.append(L.Let(took, over))
        em.define(took)
        p = L.var(took, bool_)
        em.here.append(L.Assign(a.value, L.select(p, L.expr("add", (h, ix.const(1)), ix.dtype), a)))
        em.here.append(L.Assign(b.value, L.select(p, b, h)))
        body = em.close()
        em.here.append(L.Loop(L.less(a, b), body))
        # Elements passed over, plus the own place: for the left run i + (a - mid), for the right run i - (mid -
        # lo) + ..
        rank = L.expr("add", (i, L.expr("sub", (a, start), ix.dtype)), ix.dtype)
        own_start = L.select(left, ix.const(0), L.expr("sub", (mid, lo), ix.dtype))
        return self._settled(work, L.expr("sub", (rank, own_start), ix.dtype))

    def _settled(self, work: Work, e: Expr) -> Expr:
        """The finished rank under a name of its own."""
        name = work.em.name("n")
        work.em.here.append(L.Let(name, e))
        work.em.define(name)
        work.ix.extent[name] = self.length
        return L.var(name, e.dtype)

    def _may_precede(self, a: Expr, b: Expr) -> Expr:
        """Whether ``a`` may stand before ``b``: ordered or equal; NaN stands after everything."""
        ordered = L.expr("ge" if self.down else "le", (a, b), bool_)
        if a.dtype.is_float:
            return L.expr("or", (ordered, L.expr("isnan", (b,), bool_)), bool_)
        return ordered
