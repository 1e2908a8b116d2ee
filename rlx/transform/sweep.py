"""Walk a traced graph once, arguments before users, giving every value another meaning.

Reverse mode gives a value its array and a place on a tape, forward mode an array and a tangent, batching an array and
whether it has a batch axis. What a graph uses from a lower tracing level does not depend on its parameters: it is
lifted as it stands and never walked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from rlx.array.array import Array
from rlx.array.build import as_array, is_scalar
from rlx.array.hooks import default_device, default_float
from rlx.core import dtype as dt
from rlx.core.errors import DTypeError, ValueIssue
from rlx.core.where import here
from rlx.ir.graph import Graph, Node, Type, Value, clone, parameter, postorder
from rlx.ir.op import REGISTRY

M = TypeVar("M")


@dataclass(frozen=True, slots=True)
class Sweep(Generic[M]):
    """How to walk: ``visit(node, meanings of its arguments)`` gives the meanings of its outputs."""

    visit: Callable[[Node, list[M]], Sequence[M]]
    lift: Callable[[Value], M]

    def graph(self, g: Graph, args: Sequence[M]) -> list[M]:
        """The meanings of a closed graph's outputs on these arguments."""
        return self.walk(g.outputs, dict(zip(g.inputs, args, strict=True)), 0)

    def walk(self, outputs: Sequence[Value], env: dict[Value, M], level: int) -> list[M]:
        """The meanings of the outputs; values of a level below ``level`` are lifted."""
        for root in outputs:
            stack = [root]
            while stack:
                v = stack[-1]
                if v in env:
                    stack.pop()
                    continue
                if v.node.level < level or not v.node.args:
                    env[v] = self.lift(v)
                    stack.pop()
                    continue
                missing = [a for a in v.node.args if a not in env]
                if missing:
                    stack.extend(reversed(missing))
                    continue
                stack.pop()
                for o, m in zip(v.node.outs, self.visit(v.node, [env[a] for a in v.node.args]), strict=True):
                    env[o] = m
        return [env[v] for v in outputs]


def substitute(outputs: Sequence[Value], replace: Mapping[Value, Value], level: int) -> list[Value]:
    """The outputs with parameters of this level replaced by values of lower ones."""
    sweep: Sweep[Value] = Sweep(lambda n, args: n.outs if tuple(args) == n.args else clone(n, tuple(args)).outs,
                                lambda v: v)
    return sweep.walk(outputs, dict(replace), level)


def dependent(g: Graph, live: Sequence[bool]) -> list[bool]:
    """Which outputs depend, through real or complex values, on the live inputs."""
    found: set[Value] = {v for v, on in zip(g.inputs, live, strict=True) if on and v.dtype.is_inexact}
    for n in postorder(g.outputs):
        if any(a in found for a in n.args):
            found.update(o for o in n.outs if o.dtype.is_inexact)
    return [v in found for v in g.outputs]


def reclone(n: Node, arrays: Sequence[Array]) -> list[Array]:
    """The node's operation on these arrays."""
    args = tuple([a._value for a in arrays])
    return [Array(v) for v in (n.outs if args == n.args else clone(n, args).outs)]


def decomposition(n: Node, arrays: Sequence[Array]) -> Graph | None:
    """What a composite node is made of; None for a primitive."""
    op: Any = REGISTRY[n.op]
    if not hasattr(op, "graph"):
        return None
    found: Graph = op.graph(tuple([a._value.type for a in arrays]), dict(n.attrs), list(arrays))
    return found


def call_rule(rule: Callable[..., Any], n: Node, lead: Sequence[Any], arrays: Sequence[Array]) -> Any:
    """A rule that an op owns, on its arguments as its author wrote the signature."""
    op: Any = REGISTRY[n.op]
    if hasattr(op, "arguments"):
        positional, keyword = op.arguments(list(arrays), dict(n.attrs))
        return rule(*lead, *positional, **keyword)
    return rule(*lead, *arrays, **dict(n.attrs))


def leaf_type(x: Any) -> Type:
    """The type of an argument leaf."""
    if isinstance(x, Array):
        return x._value.type
    if is_scalar(x):
        return Type(dt.default_of(x, default_float(default_device())), ())
    return as_array(x)._value.type


def fresh(x: Any, level: int, type_: Type | None = None) -> Array:
    """A parameter that stands for an argument leaf."""
    device = x._value.node.device if isinstance(x, Array) else None
    return Array(parameter(type_ or leaf_type(x), level, here(2), device), weak=is_scalar(x))


def need_inexact(leaves: Sequence[Any], what: str) -> None:
    """Differentiation is with respect to real or complex numbers."""
    for i, x in enumerate(leaves):
        t = leaf_type(x)
        if not t.dtype.is_inexact and not (is_scalar(x) and not isinstance(x, bool)):
            raise DTypeError(f"{what} with respect to a {t.dtype.name} array of shape {t.shape} (leaf {i})",
                             why="derivatives are of real or complex numbers",
                             do="cast it with .astype(rlx.float64), or leave it out with argnums=")


def select_args(args: tuple[Any, ...], argnums: int | Sequence[int]) -> tuple[Any, list[int]]:
    """The chosen arguments (one, or a tuple of them), and their places."""
    places = [argnums] if isinstance(argnums, int) else list(argnums)
    for i in places:
        if not -len(args) <= i < len(args):
            raise ValueIssue(f"argnums={argnums} of a call with {len(args)} positional arguments",
                             why=f"there is no argument {i}",
                             do="pass the argument by position, or correct argnums")
    places = [i % len(args) for i in places]
    return (args[places[0]] if isinstance(argnums, int) else tuple(args[i] for i in places)), places


def with_args(args: tuple[Any, ...], places: Sequence[int], chosen: Any, one: bool) -> tuple[Any, ...]:
    """The arguments with the chosen ones replaced."""
    new = list(args)
    for i, v in zip(places, (chosen,) if one else chosen, strict=True):
        new[i] = v
    return tuple(new)

