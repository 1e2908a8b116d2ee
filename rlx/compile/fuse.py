"""Fuse: decide which values are stored, and which of them one kernel computes together.

``m = max(x); e = exp(x - m); s = sum(e); y = e / s`` -> one group over rows: reduce, reduce, row map.
``q = A p; a = p.q`` -> one group over rows: a segmented reduction and a total.

A group has an outer domain. Its members are *points* (a value for each outer index), *reduces* and *raggeds* (an inner
loop for each outer index), *rows* (a value for each outer and inner index) and *totals* (a reduction over the whole
outer domain). Values between members at the same index stay in registers. Groups are built from the results backwards:
work runs as late as it can, next to what uses it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rlx.compile.emit import INLINE, Emitter, Index, reduce_index
from rlx.compile.index import Indexer
from rlx.core.dtype import DType
from rlx.ir.graph import Graph, Node, Value, postorder
from rlx.ir.loop import Expr
from rlx.ir.prim import POINTWISE, TRANSCENDENTAL

POINT, REDUCE, RAGGED, ROW, TOTAL = "point", "reduce", "ragged", "row", "total"
Sizes = tuple[int, ...]
#: Most buffers a fused kernel may touch; more would spill pointers and bind slots.
MAX_BUFFERS = 24
#: Cost of a value, in arithmetic operations, from which computing it twice is worse than storing it.
EXPENSIVE = 16
#: Nodes inlined into one kernel from which on a value is stored, to bound compile time.
MAX_INLINE = 400


@dataclass(eq=False)
class Member:
    """A stored value that a group computes."""

    value: Value
    kind: str
    reads: list[tuple[Value, Index]] = field(default_factory=list)


@dataclass(eq=False)
class Group:
    """Members computed by one kernel over an outer domain (and one inner domain where there are rows or reduces)."""

    outer: Sizes
    inner: Sizes | None = None
    members: list[Member] = field(default_factory=list)

    def member(self, v: Value) -> Member | None:
        return next((m for m in self.members if m.value is v), None)

    def values(self) -> list[Value]:
        return [m.value for m in self.members]

    def buffers(self) -> set[Value]:
        """Values read from or written to storage."""
        found = {v for m in self.members for v, _ in m.reads}
        return found | set(self.values())


@dataclass(eq=False)
class Opaque:
    """A node that is a step (or a kernel) of its own: native call, control flow, sort, scan, scatter, column sums.

    ``operand`` is what a column sum computes and stores on its way, for others to read.
    """

    node: Node
    reads: list[Value] = field(default_factory=list)
    operand: Value | None = None

    def values(self) -> list[Value]:
        return list(self.node.outs) if self.operand is None else [*self.node.outs, self.operand]


Piece = Group | Opaque


@dataclass(eq=False)
class Plan:
    """Pieces in execution order, the values that live in storage, and the views that are other names of them."""

    pieces: list[Piece]
    stored: set[Value]
    views: dict[Value, Value]
    users: dict[int, int]


def sizes(v: Value) -> Sizes:
    """The static shape of a value."""
    return tuple(int(s) for s in v.shape)  # type: ignore[arg-type]


def outer_vars(ix: Indexer, shape: Sizes) -> Index:
    return tuple([ix.var(f"o{k}", n) for k, n in enumerate(shape)])


def inner_vars(ix: Indexer, shape: Sizes) -> Index:
    return tuple([ix.var(f"i{k}", n) for k, n in enumerate(shape)])


def fuse(graph: Graph, index_dtype: DType, stored_operands: Callable[[Node], Sequence[Value]] = lambda n: (),
         tiled: Callable[[Node], bool] = lambda n: False, max_buffers: int = 0) -> Plan:
    """Plan the storage and the kernels of a legal graph.

    ``stored_operands(node)`` names the operands of a contraction that its schedule reads from storage; ``tiled(node)``
    says that it is scheduled in tiles, with nothing but points of its result beside it. No kernel grows beyond
    ``max_buffers`` buffers (0: what is good for any device).
    """
    limit = min(max_buffers or MAX_BUFFERS, MAX_BUFFERS)
    return _Fuser(graph, index_dtype, stored_operands, tiled, limit).plan()


OPAQUE = frozenset(("native", "while", "cond", "loop", "sort", "scan", "scatter"))
#: Opaque nodes that read all their operands from storage (the others inline some of them).
STORED_OPERANDS = frozenset(("native", "while", "cond", "loop", "sort"))


def is_column(n: Node) -> bool:
    """A reduction whose last axis is kept: its kernel walks memory along the kept axis."""
    if n.op != "reduce":
        return False
    shape, axes = [int(d) for d in n.args[0].shape], n.attr("axes")  # type: ignore[arg-type]
    live = [a for a in range(len(shape)) if shape[a] != 1]
    return bool(live) and any(a in axes for a in live) and live[-1] not in axes


class _Fuser:
    def __init__(self, graph: Graph, index_dtype: DType, stored_operands: Callable[[Node], Sequence[Value]],
                 tiled: Callable[[Node], bool], max_buffers: int) -> None:
        self.stored_operands, self.tiled = stored_operands, tiled
        self.max_buffers = max_buffers
        self.graph = graph
        self.dtype = index_dtype
        self.order = postorder(graph.outputs)
        self.given = set(graph.inputs)
        self.users: dict[int, int] = defaultdict(int)
        self.consumers: dict[Value, list[Node]] = defaultdict(list)
        for n in self.order:
            for a in n.args:
                self.users[id(a.node)] += 1
                self.consumers[a].append(n)
        self.cost = self._costs()
        self.views: dict[Value, Value] = {}
        self.roots = self._roots()

    # What is stored

    def _costs(self) -> dict[int, int]:
        """Operations to compute one element of each node from storage."""
        cost: dict[int, int] = {}
        for n in self.order:
            own = 20 if n.op in TRANSCENDENTAL else 4 if n.op in ("div", "sqrt", "floordiv", "rem", "gather") else 1
            if n.op not in INLINE or n.op in ("const", "iota"):
                cost[id(n)] = 0
                continue
            cost[id(n)] = min(own + sum(cost[id(a.node)] for a in n.args), 1 << 20)
        return cost

    def _roots(self) -> set[Value]:
        roots: set[Value] = set()
        weight: dict[int, int] = {}
        for n in self.order:
            if n.op not in INLINE and n.op != "input":
                roots.update(n.outs)
            if n.op in STORED_OPERANDS:
                roots.update(a for a in n.args)
            if n.op == "dot":
                roots.update(self.stored_operands(n))
            if n.op == "scatter":
                roots.add(n.args[0])
            if n.op == "gather" and self.cost[id(n.args[0].node)] > 4:
                roots.add(n.args[0])
            if n.op == "broadcast" and self.cost[id(n.args[0].node)] >= 8:
                roots.add(_under_reshapes(n.args[0]))
            if n.op in ("concat",) and len(n.args) > 4:
                roots.update(n.outs)
            v = n.outs[0]
            if n.op in INLINE and len({id(c) for c in self.consumers[v]}) > 1 and (
                    self._pricey(n) or self._ends_contraction(v)):
                roots.add(v)
            weight[id(n)] = 0 if v in roots else min(1 + sum(weight.get(id(a.node), 0) for a in n.args), 1 << 20)
            if weight[id(n)] > MAX_INLINE:
                roots.add(v)
                weight[id(n)] = 0
        roots.update(self.graph.outputs)
        roots -= self.given
        for v in list(roots):
            self._view(v, roots)
        return roots - set(self.views)

    def _pricey(self, n: Node) -> bool:
        """Worth storing when used twice: it holds a transcendental (or as much arithmetic) since the last storage."""
        return self.cost[id(n)] >= EXPENSIVE

    def _ends_contraction(self, v: Value) -> bool:
        """Whether ``v`` is what is wanted of a contraction: stored in its place, by its kernel, it costs no more."""
        u = v
        while u.node.op in POINTWISE:
            inner = [a for a in u.node.args if a.shape == v.shape and len(self.consumers[a]) == 1
                     and (a.node.op == "dot" or a.node.op in POINTWISE)]
            if not inner:
                return False
            u = next((a for a in inner if a.node.op == "dot"), inner[0])
        return u.node.op == "dot"

    def _view(self, v: Value, roots: set[Value]) -> None:
        """A stored reshape is another name for what it reshapes."""
        if v.node.op != "reshape" or v in self.views:
            return
        x = v.node.args[0]
        if x not in self.given:
            if x.node.op in ("const", "iota", "broadcast"):
                return
            roots.add(x)
            self._view(x, roots)
        self.views[v] = self.views.get(x, x)

    # What is computed together

    def plan(self) -> Plan:
        pieces: list[Piece] = []
        where: dict[Value, int] = {}
        for n in reversed(self.order):
            outs = [o for o in n.outs if o in self.roots]
            if not outs:
                continue
            if n.op in OPAQUE or is_column(n):
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
        return Plan(made, stored, self.views, dict(self.users))

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
        if kind == TOTAL and n.op == "reduce":
            em.value(n.args[0], outer)
        elif kind == TOTAL:
            for x, index in reduce_index(n, (), outer):
                em.value(x, index)
        elif kind == REDUCE:
            for x, index in reduce_index(n, outer, inner):
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
        g = self._shapes.get(n)
        if g is None:
            made = self._alone(n.outs[0])
            g = self._shapes[n] = (made.outer, made.inner)
        return g

    @property
    def _shapes(self) -> dict[Node, tuple[Sizes, Sizes | None]]:
        if not hasattr(self, "_shape_memo"):
            self._shape_memo: dict[Node, tuple[Sizes, Sizes | None]] = {}
        return self._shape_memo

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


def _under_reshapes(v: Value) -> Value:
    """What a reshape is another name of."""
    while v.node.op == "reshape":
        v = v.node.args[0]
    return v


def stages(g: Group) -> dict[Value, int]:
    """For each member, how many inner loops must be complete before it can be computed."""
    need: dict[Value, int] = {}
    for m in g.members:
        level = 0
        for u, _ in m.reads:
            dep = g.member(u)
            if dep is not None:
                level = max(level, need[u] + (1 if dep.kind in (REDUCE, RAGGED) else 0))
        need[m.value] = level
    return need


Stored = Callable[[Value], str | None]
__all__ = ["Expr", "Group", "Member", "Opaque", "Plan", "fuse", "stages"]
