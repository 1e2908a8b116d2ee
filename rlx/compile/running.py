"""Running reductions of long lines: totals of pieces, then all pieces at once from where each begins.

``out[i] = combine(out[i-1], x[i])`` waits for itself at every element. A line in pieces does not: one pass takes the
total of each piece, a short one adds those up, and the last runs through eight pieces side by side in each chunk. The
pieces follow from the length alone, so results are the same on every number of threads.

G. E. Blelloch, "Prefix sums and their applications", CMU-CS-90-190, 1990.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from rlx.compile.builder import Builder
from rlx.compile.emit import Index
from rlx.compile.index import sizes
from rlx.compile.naming import Made
from rlx.compile.reduction import identity
from rlx.ir import loop as L
from rlx.ir.graph import Node
from rlx.ir.loop import Expr
from rlx.ir.prim import COMBINE

#: Pieces that one chunk runs through side by side: an addition takes about four cycles, and two start in each.
SIDE = 8
#: Elements of a piece at least, and chunks at most.
PIECE, MOST_CHUNKS = 1024, 64
#: Lines from which each is one thread's work.
MANY_LINES = 8


def pays(n: Node) -> bool:
    """Whether the lines are few and long."""
    shape = sizes(n.args[0])
    length = shape[int(n.attr("axis"))]
    lines = prod(shape) // max(length, 1)
    return length >= SIDE * PIECE and lines < MANY_LINES


class Running:
    """The kernels of one running reduction; ``spawn`` makes the builder of one kernel."""

    def __init__(self, node: Node, spawn: Callable[[], Builder]) -> None:
        self.node, self.spawn = node, spawn
        self.axis, self.shape, self.kind = node.attr("axis"), sizes(node.args[0]), node.attr("kind")
        self.length = self.shape[self.axis]
        self.others = tuple([d for a, d in enumerate(self.shape) if a != self.axis])
        self.lines = prod(self.others)
        self.chunks = min(self.length // (SIDE * PIECE), MOST_CHUNKS)
        self.piece = -(-self.length // (self.chunks * SIDE))
        self.dtype = node.outs[0].dtype

    def build(self) -> list[Made]:
        """Totals, where each piece begins, and the pieces."""
        return [self._totals(), self._begins(), self._run()]

    def _index(self, s: Builder, line: Expr, i: Expr) -> Index:
        at = tuple(s.ix.split(line, self.others)) if self.others else ()
        j = s.ix.offset(s.ix.scale(i, -1), self.length - 1) if self.node.attr("reverse") else i
        return (*at[:self.axis], j, *at[self.axis:])

    def _pieces(self, s: Builder) -> str:
        return s.naming.scratch("pieces", self.dtype, self.lines * self.chunks * SIDE)

    def _combine(self, a: Expr, b: Expr) -> Expr:
        return L.expr(COMBINE[self.kind], (a, b), self.dtype)

    def _totals(self) -> Made:
        s = self.spawn()
        em, ix, count = s.em, s.ix, self.chunks * SIDE
        em.open()
        g = ix.var("g", max(self.lines * count, 2))
        em.define("g")
        line, first = em.let(ix.div(g, count)), em.let(ix.scale(ix.mod(g, count), self.piece))
        acc = em.register(identity(self.kind, self.dtype), "s")
        v = ix.var("i", self.length)
        em.open("i")
        em.here.append(L.Assign(str(acc.value), self._combine(acc, em.value(self.node.args[0],
                                                                            self._index(s, line, v))), True))
        em.loop("i", em.let(self._least(s, first)), em.let(self._least(s, ix.offset(first, self.piece))), L.VECTOR)
        em.here.append(L.Store(self._pieces(s), g, acc))
        body = em.close()
        loop = L.For("g", ix.const(0), ix.const(self.lines * count), 1, L.GRID, body)
        return s.naming.kernel(f"{s.name}_totals", (*em.here, loop), f"totals of {count} pieces of {self._what()}")

    def _least(self, s: Builder, e: Expr) -> Expr:
        return L.expr("min", (e, s.ix.const(self.length)), s.ix.dtype)

    def _begins(self) -> Made:
        """Each piece's total -> what comes before the piece."""
        s = self.spawn()
        em, ix = s.em, s.ix

        def line(number: Expr) -> None:
            run = em.register(identity(self.kind, self.dtype), "s")
            name = em.name("p")
            em.open(name)
            at = L.add(L.mul(number, ix.const(self.chunks * SIDE)), L.var(name, ix.dtype))
            total = s.named(L.load(self._pieces(s), at, self.dtype))
            em.here.append(L.Store(self._pieces(s), at, run))
            em.here.append(L.Assign(str(run.value), self._combine(run, total)))
            em.loop(name, ix.const(0), ix.const(self.chunks * SIDE), L.SERIAL)
        s.loop("o", self.lines, L.SERIAL, line)
        return s.naming.kernel(f"{s.name}_begins", tuple(em.here), "where each piece begins")

    def _run(self) -> Made:
        """``for chunk: for i: for the chunk's pieces: acc = combine(acc, x); out = acc``."""
        s = self.spawn()
        em, ix = s.em, s.ix
        em.open()
        g = ix.var("g", max(self.lines * self.chunks, 2))
        em.define("g")
        line, chunk = em.let(ix.div(g, self.chunks)), em.let(ix.mod(g, self.chunks))
        first = em.let(ix.scale(chunk, SIDE * self.piece))
        accs = [em.register(L.load(self._pieces(s), L.add(L.mul(g, ix.const(SIDE)), ix.const(u)), self.dtype), "s")
                for u in range(SIDE)]
        em.mutable |= {str(a.value) for a in accs}
        whole = em.let(L.expr("max", (L.expr("min", (L.expr("sub", (ix.const(self.length), ix.offset(
            first, (SIDE - 1) * self.piece)), ix.dtype), ix.const(self.piece)), ix.dtype), ix.const(0)), ix.dtype))
        self._steps(s, line, first, accs, list(range(SIDE)), ix.const(0), whole)
        if self.length % (self.chunks * SIDE):  # the last pieces may be short: each alone from there on
            for u in range(SIDE):
                left = L.expr("sub", (ix.const(self.length), ix.offset(first, u * self.piece)), ix.dtype)
                stop = em.let(L.expr("min", (left, ix.const(self.piece)), ix.dtype))
                self._steps(s, line, first, accs, [u], whole, stop)
        body = em.close()
        loop = L.For("g", ix.const(0), ix.const(self.lines * self.chunks), 1, L.GRID, body)
        return s.naming.kernel(s.name, (*em.here, loop), f"running {self.kind} along axis {self.axis} of "
                                                         f"{self._what()}, pieces of {self.piece}")

    def _steps(self, s: Builder, line: Expr, first: Expr, accs: list[Expr], pieces: list[int], start: Expr, stop: Expr
               ) -> None:
        em, ix = s.em, s.ix
        name = em.name("i")
        i = ix.var(name, self.piece)
        em.open(name)
        for u in pieces:
            index = self._index(s, line, ix.add(ix.offset(first, u * self.piece), i))
            em.here.append(L.Assign(str(accs[u].value), self._combine(accs[u], em.value(self.node.args[0], index))))
            em.here.append(L.Store(s.naming.of(self.node.outs[0]), ix.linear(index, self.shape), accs[u]))
        em.loop(name, start, stop, L.SERIAL)

    def _what(self) -> str:
        return str(list(self.shape))
