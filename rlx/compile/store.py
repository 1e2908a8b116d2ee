"""Store: decide which values live in storage, and which of them are other names of the same storage.

Stored are the results of reductions and other nodes that are no expression, what calls and control flow read, and what
is dear and used twice: ``t = exp(x); y = t + 1; z = t * 2`` stores ``t``. A stored reshape is another name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rlx.compile.attend_form import Attend
from rlx.compile.emit import INLINE
from rlx.ir.graph import Graph, Node, Value
from rlx.ir.prim import POINTWISE, TRANSCENDENTAL

#: Cost of a value, in arithmetic operations, from which computing it twice is worse than storing it.
EXPENSIVE = 16
#: Nodes inlined into one kernel from which on a value is stored, to bound compile time.
MAX_INLINE = 400
#: Nodes that are a step of their own.
OPAQUE = frozenset(("native", "while", "cond", "loop", "sort", "scan", "scatter"))
#: Opaque nodes that read all their operands from storage (the others inline some of them).
STORED_OPERANDS = frozenset(("native", "while", "cond", "loop", "sort"))


def store(graph: Graph, order: Sequence[Node], consumers: Mapping[Value, Sequence[Node]],
          stored_operands: Callable[[Node], Sequence[Value]],
          attends: Mapping[Node, Attend]) -> tuple[set[Value], dict[Value, Value]]:
    """(values that kernels and calls store, views: values that are other names of a stored or a given one).

    ``order`` is the graph in postorder, ``consumers`` its users of each value; ``stored_operands(node)`` names the
    operands of a contraction that its schedule reads from storage; ``attends`` are attentions by their last node.
    """
    s = _Store(graph, order, consumers, stored_operands, attends)
    roots = s.roots()
    return roots, s.views


class _Store:
    def __init__(self, graph: Graph, order: Sequence[Node], consumers: Mapping[Value, Sequence[Node]],
                 stored_operands: Callable[[Node], Sequence[Value]], attends: Mapping[Node, Attend]) -> None:
        self.attends = attends
        self.graph, self.order, self.consumers, self.stored_operands = graph, order, consumers, stored_operands
        self.given = set(graph.inputs)
        self.cost = self._costs()
        self.views: dict[Value, Value] = {}

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

    def roots(self) -> set[Value]:
        """What kernels and calls store; what is a view is noted on the way."""
        roots: set[Value] = set()
        weight: dict[int, int] = {}
        inner = {v for a in self.attends.values() for v in a.inner}
        for n in self.order:
            if n.outs[0] in inner:
                weight[id(n)] = 0
                continue
            if n.op not in INLINE and n.op != "input":
                roots.update(n.outs)
            if n.op in STORED_OPERANDS:
                roots.update(n.args)
            if n in self.attends:
                # Blocks of queries read them again and again.
                roots.update(v for v in self.attends[n].operands if self._pricey(v.node))
            elif n.op == "dot":
                roots.update(self.stored_operands(n))
            if n.op == "scatter":
                roots.add(n.args[0])
            if n.op == "gather" and self.cost[id(n.args[0].node)] > 4:
                roots.add(n.args[0])
            if n.op == "broadcast" and self.cost[id(n.args[0].node)] >= 8:
                roots.add(_under_reshapes(n.args[0]))
            if n.op == "concat" and len(n.args) > 4:
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


def _under_reshapes(v: Value) -> Value:
    """What a reshape is another name of."""
    while v.node.op == "reshape":
        v = v.node.args[0]
    return v
