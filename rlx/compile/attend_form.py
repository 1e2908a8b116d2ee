"""Attention in a graph: ``softmax(scores(q k^T)) v``, whose scores need not be stored.

``dot -> (scale, mask) -> softmax -> dot`` -> one kernel over blocks of queries and keys (see ``nest_attend``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rlx.ir.graph import Graph, Node, Value
from rlx.ir.prim import POINTWISE

#: Queries, keys, and elements of a key or value, from which blocks pay.
FEWEST = 8
#: Elements of a key or value up to which a block of them stays in the first two caches.
LONGEST = 256
#: What only renames elements.
_MOVES = ("reshape", "broadcast")


@dataclass(frozen=True, eq=False)
class Attend:
    """``out = softmax(scores) v``: ``first`` is the product of queries and keys that ``scores`` are computed from.

    Leading axes of ``scores`` are batches; the last two are queries and keys. ``inner`` is what nobody else reads.
    """

    out: Value
    first: Value
    scores: Value
    inner: frozenset[Value]

    @property
    def operands(self) -> tuple[Value, Value, Value]:
        """Queries, keys, and the values that are averaged."""
        return (*self.first.node.args, self.out.node.args[1])  # type: ignore[return-value]


def products(g: Graph) -> set[Node]:
    """Contractions around a softmax in a graph of ops, which claims should leave to a kernel that joins them."""
    found: set[Node] = set()
    for n in g.nodes():
        if n.op == "dot" and n.args[0].node.op == "softmax" and _plain(n):
            soft = n.args[0].node
            rank = len(soft.args[0].shape)
            first = _product(soft.args[0])
            if first is not None and soft.attr("axis") in (-1, rank - 1) and _fits(n, first):
                found |= {n, first.node}
    return found


def attends(order: Sequence[Node], consumers: Mapping[Value, Sequence[Node]],
            outputs: Sequence[Value]) -> dict[Node, Attend]:
    """The attentions of a graph of primitives, by the contraction that each ends in."""
    found = {n: _find(n, consumers, set(outputs)) for n in order if n.op == "dot"}
    return {n: a for n, a in found.items() if a is not None}


def _find(n: Node, consumers: Mapping[Value, Sequence[Node]], outputs: set[Value]) -> Attend | None:
    """The attention that ends in the contraction ``n`` of a graph of primitives, or None."""
    if n.op != "dot" or not _plain(n) or n.args[0].node.op != "div":
        return None
    p = n.args[0]
    e, total = p.node.args[0], _under(p.node.args[1])
    if e.node.op != "exp" or e.node.args[0].node.op != "sub" or not _is_reduce(total, "sum", e):
        return None
    scores, top = e.node.args[0].node.args[0], _under(e.node.args[0].node.args[1])
    first = _product(scores)
    if not _is_reduce(top, "max", scores) or first is None or not _fits(n, first):
        return None
    inner = _between(p, first)
    if any(v in outputs or any(c is not n and not inner.intersection(c.outs) for c in consumers[v]) for v in inner):
        return None
    return Attend(n.outs[0], first, scores, frozenset(inner))


def _plain(n: Node) -> bool:
    """Whether lhs is (batch, query, key) with the last axis summed, and rhs has one axis of its own."""
    (left, right), (contract, other) = n.attr("batch"), n.attr("contract")
    nb, rank = len(left), len(n.args[0].shape)
    return (rank == nb + 2 and tuple(left) == tuple(range(nb)) and tuple(contract) == (nb + 1,)
            and len(n.args[1].shape) == nb + 2 and len(other) == 1 and len(right) == nb
            and n.types[0].dtype == n.args[0].dtype == n.args[1].dtype)


def _fits(n: Node, first: Value) -> bool:
    """Sizes and types for which blocks pay."""
    d = first.node
    nb = len(n.attr("batch")[0])
    dtype = n.types[0].dtype
    if dtype.kind != "f" or dtype.bits not in (32, 64) or len(d.attr("contract")[0]) != 1 or first.dtype != dtype:
        return False
    if len(d.attr("batch")[0]) != nb or any(len(x.shape) != nb + 2 or x.dtype != dtype for x in d.args):
        return False
    dims = (*first.shape[-2:], n.types[0].shape[-1], d.args[0].shape[d.attr("contract")[0][0]])
    if not all(isinstance(s, int) for s in (*first.shape, *dims)):
        return False
    queries, keys, width, depth = map(int, dims)
    return min(queries, keys, width, depth) >= FEWEST and max(width, depth) <= LONGEST and 0 not in first.shape


def _product(v: Value) -> Value | None:
    """The one contraction that ``v`` is computed from element by element."""
    stack, seen = [v], {v}
    found: list[Value] = []
    while stack:
        u = stack.pop()
        if u.node.op == "dot":
            found.append(u)
        elif u.node.op in POINTWISE or u is v:
            new = [a for a in u.node.args if a.shape == v.shape and a not in seen]
            seen.update(new)
            stack.extend(new)
    return found[0] if len(found) == 1 else None


def _under(v: Value) -> Value:
    while v.node.op in _MOVES:
        v = v.node.args[0]
    return v


def _is_reduce(v: Value, kind: str, of: Value) -> bool:
    n = v.node
    return (n.op == "reduce" and n.attr("kind") == kind and n.args[0] is of
            and tuple(n.attr("axes")) == (len(of.shape) - 1,))


def _between(end: Value, start: Value) -> set[Value]:
    """Values on the way from ``start`` to ``end``, both included."""
    reaches: dict[Value, bool] = {start: True}
    stack = [end]
    while stack:
        v = stack[-1]
        args = v.node.args if v.node.op in POINTWISE or v.node.op in (*_MOVES, "reduce") else ()
        new = [a for a in args if a not in reaches]
        if v not in reaches and new:
            stack.extend(new)
            continue
        stack.pop()
        if v not in reaches:
            reaches[v] = any(reaches[a] for a in args)
    return {v for v, yes in reaches.items() if yes}
