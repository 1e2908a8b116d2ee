"""What builds one kernel of one opaque node: names of its buffers, index arithmetic, and loops around what it emits."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from rlx.compile.emit import Emitter, Index
from rlx.compile.index import Indexer, Sizes
from rlx.compile.naming import Naming
from rlx.compile.nest import MAX_CHUNKS
from rlx.core.dtype import DType
from rlx.ir import loop as L
from rlx.ir.graph import Node, Value
from rlx.ir.loop import Expr

Stored = Callable[[Value], bool]


class Builder:
    """One kernel under construction; operands that are not stored are computed inline."""

    def __init__(self, name: str, node: Node, is_stored: Stored, views: dict[Value, Value], users: dict[int, int],
                 index_dtype: DType) -> None:
        self.name, self.node, self.views = name, node, views
        self.naming = Naming(index_dtype)
        self.ix = Indexer(index_dtype)
        self.em = Emitter(self.ix, self._stored(is_stored), users)
        self.given = (name, node, is_stored, views, users, index_dtype)

    def more(self) -> Builder:
        """A builder for one more kernel of the same node."""
        return Builder(*self.given)

    def _stored(self, is_stored: Stored) -> Callable[[Value], str | None]:
        def name(v: Value) -> str | None:
            v = self.views.get(v, v)
            return self.naming.of(v) if is_stored(v) else None
        return name

    def named(self, e: Expr, extent: int = 0) -> Expr:
        """A name for a value now: what it reads may be overwritten later. With an extent it lies in ``[0, extent)``."""
        name = self.em.name("n")
        self.em.here.append(L.Let(name, e))
        self.em.define(name)
        if extent:
            self.ix.extent[name] = extent
        return L.var(name, e.dtype)

    def loop(self, name: str, n: int, kind: str, body: Callable[[Expr], None]) -> None:
        """``for name in range(n)`` around what ``body`` emits."""
        if n == 1:
            body(self.ix.const(0))
            return
        v = self.ix.var(name, n)
        self.em.open(name)
        body(v)
        self.em.loop(name, self.ix.const(0), self.ix.const(n), kind)

    def loops(self, prefix: str, shape: Sizes, kind: str, body: Callable[[Index], None], at: Index = (),
              last: str | None = None) -> None:
        """A nest over ``shape``; ``last`` is the kind of the innermost loop."""
        if not shape:
            body(at)
            return
        inner = last if last is not None and len(shape) == 1 else kind
        self.loop(f"{prefix}{len(at)}", shape[0], inner,
                   lambda v: self.loops(prefix, shape[1:], kind, body, (*at, v), last))

    def over_grid(self, shape: Sizes, body: Callable[[Index], None]) -> None:
        """Chunks of a flattened domain over the grid."""
        em, ix = self.em, self.ix
        span = prod(shape)
        size = -(-span // MAX_CHUNKS)
        count = -(-span // size)
        em.open()
        g = ix.var("g", max(count, 2))
        em.define("g")
        start = em.let(ix.scale(g, size))
        stop = L.expr("min", (ix.offset(start, size), ix.const(span)), ix.dtype)
        t = ix.var("t", span)
        em.open("t")
        body(ix.split(t, shape))
        em.loop("t", start, stop, L.SERIAL)
        em.loop("g", ix.const(0), ix.const(count), L.GRID)
