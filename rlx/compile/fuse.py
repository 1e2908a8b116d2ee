"""Fuse: decide which stored values one kernel computes together.

``m = max(x); e = exp(x - m); s = sum(e); y = e / s`` -> one group over rows: reduce, reduce, row map.
``q = A p; a = p.q`` -> one group over rows: a segmented reduction and a total.

Values between members of a group at the same index stay in registers. Groups are built from the results backwards:
work runs as late as it can, next to what uses it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from rlx.compile.attend_form import attends
from rlx.compile.emit import INLINE, Emitter, Index
from rlx.compile.group import (
    POINT,
    RAGGED,
    REDUCE,
    ROW,
    TOTAL,
    Group,
    Member,
    Opaque,
    Piece,
    Plan,
    inner_vars,
    outer_vars,
)
from rlx.compile.index import Indexer, Sizes, sizes
from rlx.compile.reduction import reduce_index
from rlx.compile.store import OPAQUE, STORED_OPERANDS, store
from rlx.core.dtype import DType
from rlx.ir.graph import Graph, Node, Value, postorder

#: Most buffers a fused kernel may touch; more would spill pointers and bind slots.
MAX_BUFFERS = 24


def fuse(graph: Graph, index_dtype: DType, stored_operands: Callable[[Node], Sequence[Value]] = lambda n: (),
         tiled: Callable[[Node], bool] = lambda n: False, max_buffers: int = 0, *, attend: bool = False) -> Plan:
    """Plan the storage and the kernels of a legal graph.

    ``stored_operands(node)`` names the operands of a contraction that its schedule reads from storage; ``tiled(node)``
    says that it is scheduled in tiles, with nothing but points of its result beside it. No kernel grows beyond
    ``max_buffers`` buffers (0: what is good for any device). ``attend``: attention is one kernel, without its scores.
    """
    limit = min(max_buffers or MAX_BUFFERS, MAX_BUFFERS)
    return _Fuser(graph, index_dtype, stored_operands, tiled, limit, attend).plan()


def is_column(n: Node) -> bool:
    """A reduction whose last axis is kept: its kernel walks memory along the kept axis."""
    if n.op != "reduce":
        return False
    shape, axes = sizes(n.args[0]), n.attr("axes")
    live = [a for a in range(len(shape)) if shape[a] != 1]
    return bool(live) and any(a in axes for a in live) and live[-1] not in axes


class _Fuser:
    def __init__(self, graph: Graph, index_dtype: DType, stored_operands: Callable[[Node], Sequence[Value]],
                 tiled: Callable[[Node], bool], max_buffers: int, attend: bool) -> None:
        self.tiled, self.max_buffers, self.dtype = tiled, max_buffers, index_dtype
        self.order = postorder(graph.outputs)
        self.given = set(graph.inputs)
        self.users: dict[int, int] = defaultdict(int)
        self.consumers: dict[Value, list[Node]] = defaultdict(list)
        for n in self.order:
            for a in n.args:
                self.users[id(a.node)] += 1
                self.consumers[a].append(n)
        self.attends = attends(self.order, self.consumers, graph.outputs) if attend else {}
        self.roots, self.views = store(graph, self.order, self.consumers, stored_operands, self.attends)
        self._shapes: dict[Node, tuple[Sizes, Sizes | None]] = {}

    def plan(self) -> Plan:
        pieces: list[Piece] = []
        where: dict[Value, int] = {}
        for n in reversed(self.order):
            outs = [o for o in n.outs if o in self.roots]
            if not outs:
                continue
            if n.op in OPAQUE or is_column(n) or n in self.attends:
                opaque = Opaque(n)
                opaque.reads = self._opaque_reads(n)
                pieces.append(opaque)
                at = len(pieces) - 1
            else:
                at = self._place(n.outs[0], pieces, where)
            for o in n.outs:
                where[o] = at
        stored = (self.roots | self.given) - set(self.views)
        for p in pieces:
            if isinstance(p, Group):
                p.members.reverse()
        made = [p for p in pieces[::-1] if isinstance(p, Opaque) or p.members]
        return Plan(made, stored, self.views, dict(self.users), self.attends)

    def _opaque_reads(self, n: Node) -> list[Value]:
        if n.op in STORED_OPERANDS:
            return list(n.args)
        found: dict[Value, None] = {}
        stack = list(n.args)
        seen: set[Value] = set()
        while stack:
            v = stack.pop()
            if v in seen:
                continue
            seen.add(v)
            if v in self.roots or v in self.given or v in self.views:
                found[v] = None
            else:
                stack.extend(v.node.args)
        return list(found)

    def _place(self, v: Value, pieces: list[Piece], where: dict[Value, int]) -> int:
        """The group that computes ``v``: one it can join, or a new one before all others."""
        limit = max((where[u] for u in self._using(v) if u in where), default=0)
        best: tuple[int, int] | None = None
        for at in range(limit, len(pieces)):
            g = pieces[at]
            if isinstance(g, Group):
                score = self._joins(v, g)
                if score is not None and (best is None or score > best[1]):
                    best = (at, score)
        if best is not None:
            self._add(v, pieces[best[0]])  # type: ignore[arg-type]
            return best[0]
        if self._with_column(v, pieces, where):
            return len(pieces) - 1
        group = self._alone(v)
        pieces.append(group)
        return len(pieces) - 1

    def _with_column(self, v: Value, pieces: list[Piece], where: dict[Value, int]) -> bool:
        """Whether a column sum of ``v`` now computes it: ``s = sum(v, 0)`` stores ``v`` on its way, before all users.

        What the sum reads is placed later, so it may run as early as ``v``; an empty group stays in its place.
        """
        if v.node.op not in INLINE or self._continues(v):
            return False
        for n in self.consumers[v]:
            at = where.get(n.outs[0])
            p = None if at is None else pieces[at]
            if at is None or not isinstance(p, Opaque) or p.node is not n or not is_column(n) or p.operand is not None:
                continue
            pieces[at] = Group((0,))
            pieces.append(Opaque(n, self._opaque_reads(v.node), v))
            where[n.outs[0]] = len(pieces) - 1
            return True
        return False

    def _continues(self, v: Value) -> bool:
        """Whether ``v`` is better computed with what it is computed from: values of its rows, or a contraction."""
        return any(u not in self.given and (u.shape not in ((), v.shape) or
                                            (u.node.op == "dot" and self._using(u) == {v}))
                   for u in self._opaque_reads(v.node))

    def _using(self, v: Value) -> set[Value]:
        """Stored values computed from ``v`` without another stored value between."""
        found: set[Value] = set()
        stack, seen = [v], {v}
        while stack:
            u = stack.pop()
            for n in self.consumers[u]:
                for o in n.outs:
                    if o in self.roots or n.op in OPAQUE:
                        found.add(o)
                    elif o not in seen:
                        seen.add(o)
                        stack.append(o)
        return found

    def _alone(self, v: Value) -> Group:
        n, shape = v.node, sizes(v)
        if n.op == "reduce":
            axes = n.attr("axes")
            x = sizes(n.args[0])
            if len(axes) == len(x) and not all(d == 1 for d in x):
                g = Group(x)
                g.members.append(self._member(v, TOTAL, g))
                return g
            g = Group(shape, tuple(x[a] for a in axes))
            g.members.append(self._member(v, REDUCE, g))
            return g
        if n.op == "dot":
            x = sizes(n.args[0])
            contract = n.attr("contract")
            if not shape and len(contract[0]) == len(x):
                g = Group(tuple(x[a] for a in contract[0]))
                g.members.append(self._member(v, TOTAL, g))
                return g
            g = Group(shape, tuple(x[a] for a in contract[0]))
            g.members.append(self._member(v, REDUCE, g))
            return g
        g = Group(shape)
        g.members.append(self._member(v, RAGGED if n.op == "segment_reduce" else POINT, g))
        return g

    def _member(self, v: Value, kind: str, g: Group) -> Member:
        return Member(v, kind, self.reads(v, kind, g))

    def reads(self, v: Value, kind: str, g: Group) -> list[tuple[Value, Index]]:
        """What the member loads from storage (or registers), at which index of the group's loops."""
        ix = Indexer(self.dtype)
        em = Emitter(ix,
                     lambda u: "x" if u is not v and (u in self.roots or u in self.given or u in self.views) else None,
                     self.users)
        outer = outer_vars(ix, g.outer)
        inner = inner_vars(ix, g.inner or ())
        for name in ix.extent:
            em.define(name)
        n = v.node
        if kind in (TOTAL, REDUCE):
            domains: tuple[Index, Index] = ((), outer) if kind == TOTAL else (outer, inner)
            for x, index in reduce_index(n, *domains):
                em.value(x, index)
        elif kind == RAGGED:
            values, offsets = n.args
            k = ix.var("k", max(int(values.shape[0]), 2))  # type: ignore[arg-type]
            em.define("k")
            em.value(offsets, (outer[0],))
            em.value(offsets, (ix.offset(outer[0], 1),))
            em.value(values, (k, *outer[1:]))
        else:
            em.value(v, (*outer, *inner) if kind == ROW else outer)
        return [(u, i) for u, i in em.loads if u is not v]

    def _joins(self, v: Value, g: Group) -> int | None:
        """How much is gained when ``v`` joins the group; None when it cannot."""
        kind = self._kind_in(v, g)
        if kind is None:
            return None
        outer, inner, rows = kind[1], kind[2], kind[3]
        if not self._beside_tiles(v, kind[0], g):
            return None
        trial = Group(outer, inner, g.members)
        if rows and not self._to_rows_ok(g):
            return None
        ix = Indexer(self.dtype)
        o, i = outer_vars(ix, outer), inner_vars(ix, inner or ())
        expected: Index = (*o, *i) if kind[0] == ROW else o
        views = {v} | {u for u, x in self.views.items() if x is v}
        uses = 0
        for m in g.members:
            reads = self.reads(m.value, ROW, trial) if rows and m.kind == POINT else m.reads
            for u, index in reads:
                if u in views:
                    uses += 1
                    if u is not v or index != expected or kind[0] == TOTAL:
                        return None
                    if kind[0] == ROW and m.kind not in (ROW, REDUCE) and not (rows and m.kind == POINT):
                        return None
        reads = self.reads(v, kind[0], trial)
        mine = {u for u, _ in reads}
        buffers = g.buffers()
        if len(buffers | mine | {v}) > self.max_buffers:
            return None
        if any(u in mine for u in g.values()):
            return None
        shared = len(mine & buffers)
        if not uses and ((not shared and kind[0] != POINT) or (rows and kind[0] == POINT)):
            return None
        return 4 * uses + shared

    def _beside_tiles(self, v: Value, kind: str, g: Group) -> bool:
        """Whether a contraction in tiles, if there is one, would have nothing but points beside it."""
        def tiled(u: Value) -> bool:
            return u.node.op == "dot" and self.tiled(u.node)
        if tiled(v):
            return all(m.kind == POINT for m in g.members)
        return kind == POINT or not any(map(tiled, g.values()))

    def _kind_in(self, v: Value, g: Group) -> tuple[str, Sizes, Sizes | None, bool] | None:
        """(kind, outer, inner, whether the group's points become rows) of ``v`` in the group."""
        n, shape = v.node, sizes(v)
        if n.op in ("reduce", "dot"):
            alone = self._shape_of(n)
            if alone[1] is None:
                return (TOTAL, g.outer, g.inner, False) if alone[0] == g.outer else None
            if alone[0] == g.outer and g.inner in (None, alone[1]):
                return REDUCE, g.outer, alone[1], False
            if n.op == "reduce" and g.inner is None and alone[0] + alone[1] == g.outer and self._trailing(n):
                return REDUCE, alone[0], alone[1], True
            return None
        if n.op == "segment_reduce":
            return (RAGGED, g.outer, g.inner, False) if shape == g.outer else None
        if shape == g.outer:
            return POINT, g.outer, g.inner, False
        if g.inner is not None and shape == g.outer + g.inner:
            return ROW, g.outer, g.inner, False
        if g.inner is None and self._ends_reduction(n, g.outer):
            return POINT, shape, g.outer[len(shape):], True
        return None

    def _ends_reduction(self, n: Node, domain: Sizes) -> bool:
        """Whether ``n`` is computed for each row of the domain from a reduction of that row: ``sqrt(mean(x, -1))``."""
        shape = sizes(n.outs[0])
        if not shape or len(shape) >= len(domain) or shape != domain[:len(shape)]:
            return False
        rest = domain[len(shape):]
        return any(u.node.op == "reduce" and self._shape_of(u.node) == (shape, rest) and self._trailing(u.node)
                   for u in self._opaque_reads(n))

    def _shape_of(self, n: Node) -> tuple[Sizes, Sizes | None]:
        """The outer and inner domain of a reduction or contraction in a group of its own."""
        found = self._shapes.get(n)
        if found is None:
            made = self._alone(n.outs[0])
            found = self._shapes[n] = (made.outer, made.inner)
        return found

    @staticmethod
    def _trailing(n: Node) -> bool:
        axes, rank = n.attr("axes"), len(n.args[0].shape)
        return bool(axes == tuple(range(rank - len(axes), rank)))

    @staticmethod
    def _to_rows_ok(g: Group) -> bool:
        return all(m.kind == POINT for m in g.members)

    def _add(self, v: Value, g: Group) -> None:
        kind = self._kind_in(v, g)
        assert kind is not None
        g.outer, g.inner = kind[1], kind[2]
        if kind[3]:
            for m in g.members:
                m.kind = ROW
                m.reads = self.reads(m.value, ROW, g)
        g.members.append(self._member(v, kind[0], g))
