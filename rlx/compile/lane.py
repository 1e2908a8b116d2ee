"""What a lane of a loop is: candidate lane shapes, stacks that a body writes, and the values one lane can compute."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

from rlx.compile.emit import Emitter, Index
from rlx.compile.index import Indexer, sizes
from rlx.compile.reduction import identity, reduce_index, reduce_kind
from rlx.ir import loop as L
from rlx.ir.graph import Graph, Node, Value, postorder
from rlx.ir.loop import Expr
from rlx.ir.prim import COMBINE

#: Longest reduction that is unrolled in a lane.
MAX_UNROLL = 16
#: Most statements of a body, to bound compile time.
MAX_STATEMENTS = 4000


class OtherLane(Exception):
    """The body needs what a lane does not have."""


class LaneEmitter(Emitter):
    """Emits the values of one lane; small reductions are unrolled, anything else that is not inline is refused."""

    #: The outermost block that statements may move to: inside a branch, its own.
    floor = 0
    #: Numbers of what is known to be true here, see :meth:`number`.
    facts: frozenset[int] = frozenset()

    def __init__(self, ix: Indexer, stored: Callable[[Value], str | None], shared: Mapping[int, int]) -> None:
        super().__init__(ix, stored, shared)
        self._meaning: dict[str, Expr] = {}
        self._numbers: dict[Any, int] = {}
        self._known: dict[Expr, int] = {}

    def let(self, e: Expr) -> Expr:
        """A name for ``e``; what it stands for is remembered."""
        named = super().let(e)
        if named is not e:
            self._meaning[named.value] = e
        return named

    @contextmanager
    def aside(self) -> Iterator[None]:
        """What is emitted inside is forgotten: the conditions of an iteration are asked again of its new values."""
        before = [(len(b.stmts), dict(b.memo), dict(b.names)) for b in self.blocks]
        yield
        for block, (count, memo, names) in zip(self.blocks, before, strict=True):
            del block.stmts[count:]
            block.memo, block.names = memo, names

    def number(self, e: Expr) -> int:
        """A number that two expressions share when they mean the same, whichever of their parts have names."""
        stack = [e]
        while e not in self._known:
            x = stack[-1]
            parts = (self._meaning[x.value],) if x.op == "var" and x.value in self._meaning else x.args
            missing = [a for a in parts if a not in self._known]
            if missing:
                stack.extend(missing)
                continue
            stack.pop()
            numbers = tuple(self._known[a] for a in parts)
            if x.op == "var" and parts:
                self._known[x] = numbers[0]
            else:
                key = (x.op, numbers, x.dtype.name, repr(x.value))
                self._known[x] = self._numbers.setdefault(key, len(self._numbers))
        return self._known[e]

    @contextmanager
    def no_further(self) -> Iterator[None]:
        """Statements made in here stay in the block that is innermost now: a branch not taken computes nothing."""
        before, self.floor = self.floor, len(self.blocks) - 1
        yield
        self.floor = before

    def depth(self, e: Expr) -> int:
        """The shallowest block that may hold ``e``."""
        return max(super().depth(e), self.floor)

    def _inline(self, n: Node, v: Value, index: Index) -> Expr:
        if len(self.here) > MAX_STATEMENTS:
            raise OtherLane("the body is long")
        if n.op in ("reduce", "dot"):
            return self._unrolled(n, v, index)
        if n.op == "select" and self.facts and self.number(self.value(n.args[0], index)) in self.facts:
            return self.value(n.args[1], index)
        if n.op == "concat" and index[n.attr("axis")].op == "const":
            return self._piece(n, index)
        try:
            return super()._inline(n, v, index)
        except AssertionError:
            raise OtherLane(f"{n.op} is not computed in a lane") from None

    def _unrolled(self, n: Node, v: Value, index: Index) -> Expr:
        x = sizes(n.args[0])
        axes = n.attr("axes") if n.op == "reduce" else n.attr("contract")[0]
        extents = [x[a] for a in axes]
        if prod(extents) > MAX_UNROLL:
            raise OtherLane(f"{n.op} over {prod(extents)} elements")
        kind = reduce_kind(n)
        total: Expr | None = None
        for at in product(*map(range, extents)):
            parts = [self.value(a, i) for a, i in reduce_index(n, index, [self.ix.const(k) for k in at])]
            e = parts[0] if len(parts) == 1 else L.expr("mul", tuple(parts), v.dtype)
            total = e if total is None else L.expr(COMBINE[kind], (total, e), v.dtype)
        return identity(kind, v.dtype) if total is None else total

    def _piece(self, n: Node, index: Index) -> Expr:
        """The part of a concatenation that a constant index lies in."""
        axis, at = n.attr("axis"), int(index[n.attr("axis")].value)
        for x in n.args:
            if at < sizes(x)[axis]:
                return self.value(x, (*index[:axis], self.ix.const(at), *index[axis + 1:]))
            at -= sizes(x)[axis]
        raise OtherLane("an index past the end of a concatenation")


@dataclass(frozen=True, slots=True)
class Stacked:
    """A carried array that the body writes one slice of: ``out = scatter(in, update, index)``, perhaps permuted."""

    scatter: Node
    order: tuple[int, ...]


def candidates(n: Node) -> list[tuple[int, ...]]:
    """Lane shapes to try: the longest common leading axes of the carried arrays first."""
    if is_each(n):
        return [sizes(condition(n.graphs[0]))]
    carry = n.attr("carry")
    body = n.graphs[-1]
    inputs = body.inputs[lead(n):lead(n) + carry]
    moving = [sizes(v) for v, o in zip(inputs, body.outputs, strict=True)
              if v is not o and v.shape != () and stacked(o, v, body) is None]
    updates = [s for v, o in zip(inputs, body.outputs, strict=True) if (s := stacked(o, v, body)) is not None]
    moving = moving or [sizes(s.scatter.args[1]) for s in updates]
    shapes: list[tuple[int, ...]] = []
    if moving:
        k = 0
        while all(len(s) > k and s[k] == moving[0][k] for s in moving):
            k += 1
        shapes = [moving[0][:j] for j in range(k, 0, -1)]
    return [*shapes, ()]


def is_each(n: Node) -> bool:
    """Whether a ``while`` goes on while any element does, and leaves finished elements as they are."""
    return n.op == "while" and bool(n.attr("each", False))


def condition(head: Graph) -> Value:
    """The condition of each element, under ``any``."""
    v = head.outputs[0]
    while v.node.op == "reshape" or (v.node.op == "reduce" and v.node.attr("kind") == "or"):
        v = v.node.args[0]
    return v


def lead(n: Node) -> int:
    """How many operands stand before the carried values."""
    return 1 if n.op == "loop" else 0


def stacked(out: Value, given: Value, body: Graph) -> Stacked | None:
    """How the body writes a slice of a carried array that it does not read."""
    o, order = out, tuple(range(len(out.shape)))
    while o.node.op == "permute":
        axes = o.node.attr("axes")
        order = tuple(axes[a] for a in order)
        o = o.node.args[0]
    s = o.node
    if s.op != "scatter" or s.attr("kind") not in ("set", "add") or any(i.shape != () for i in s.args[2:]):
        return None
    base, back = s.args[0], tuple(range(len(out.shape)))
    while base.node.op == "permute":
        axes = base.node.attr("axes")
        back = tuple(axes[a] for a in back)
        base = base.node.args[0]
    if base is not given or tuple(back[a] for a in order) != tuple(range(len(order))):
        return None
    users = sum(a is given for m in postorder(body.outputs) for a in m.args)
    return Stacked(s, back) if users == 1 and not any(v is given for v in body.outputs) else None


def unravel(j: int, shape: Sequence[int]) -> tuple[int, ...]:
    """The index of element ``j`` in row-major order."""
    out: list[int] = []
    for d in reversed(shape):
        out.append(j % d)
        j //= d
    return tuple(reversed(out))


def ravel(index: Sequence[int], shape: Sequence[int]) -> int:
    """The row-major place of an index."""
    j = 0
    for k, d in zip(index, shape, strict=True):
        j = j * d + k
    return j
