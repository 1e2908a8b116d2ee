"""Forward mode: every value carries its tangent, None standing for zero.

``y = sin(x) * x``, tangent ``t`` of x -> ``t_s = t * cos(x)``, ``t_y = t_s * x + s * t``.

An op's ``jvp`` rule is used first, then its partials; then its gradient rule, transposed (a gradient is linear in the
cotangent, and the transpose of the transpose is the tangent map); else the decomposition.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rlx.array.array import Array
from rlx.array.build import cast, tracing
from rlx.ir.graph import Graph, Node, Value, parameter
from rlx.ir.op import REGISTRY, NotDifferentiable
from rlx.ops.derivative import zeros_as
from rlx.ops.elementwise import isfinite, where
from rlx.transform.reverse import SINGULAR, Cotangents, many_outputs, pull_by_rule, record, refuse
from rlx.transform.sweep import Sweep, call_rule, decomposition, reclone, substitute


@dataclass(frozen=True, slots=True)
class Dual:
    """A value and its tangent."""

    array: Array
    tangent: Array | None = None


class Pusher:
    """Walks graphs with tangents."""

    def __init__(self) -> None:
        self.sweep: Sweep[Dual] = Sweep(self.visit, lambda v: Dual(Array(v)))

    def graph(self, g: Graph, args: Sequence[Dual]) -> list[Dual]:
        """The duals of a closed graph's outputs."""
        return self.sweep.graph(g, args)

    def visit(self, n: Node, args: list[Dual]) -> list[Dual]:
        """One node."""
        arrays = [a.array for a in args]
        if all(a.tangent is None for a in args):
            return [Dual(o) for o in reclone(n, arrays)]
        special = SPECIAL.get(n.op)
        if special is not None:
            return special(self, n, args)
        tangents = [a.tangent for a in args]
        rules = REGISTRY[n.op].rules
        if "jvp" in rules:
            outs = reclone(n, arrays)
            got = call_jvp(n, rules["jvp"], tangents, outs, arrays)
            if got is not NotImplemented:
                return _duals(outs, got if isinstance(got, (tuple, list)) else [got])
        if "partials" in rules:
            outs = reclone(n, arrays)
            return _duals(outs, [_by_partials(n, rules["partials"], tangents, outs[0], arrays)])
        grad = rules.get("grad")
        if isinstance(grad, NotDifferentiable):
            return self._refused(n, arrays, grad.why)
        if grad is not None:
            outs = reclone(n, arrays)
            return _duals(outs, transposed(n, grad, tangents, outs, arrays))
        body = decomposition(n, arrays)
        if body is None:
            return self._refused(n, arrays, "it has no derivative rule")
        return self.graph(body, args)

    @staticmethod
    def _refused(n: Node, arrays: list[Array], why: str) -> list[Dual]:
        outs = reclone(n, arrays)
        if any(o.dtype.is_inexact for o in outs):
            raise refuse(n, why)
        return [Dual(o) for o in outs]


def call_jvp(n: Node, rule: Callable[..., Any], tangents: list[Array | None], outs: list[Array],
             arrays: list[Array]) -> Any:
    """The op's forward rule."""
    return call_rule(rule, n, (tangents, outs if many_outputs(n, arrays) else outs[0]), arrays)


def _duals(outs: Sequence[Array], tangents: Sequence[Array | None]) -> list[Dual]:
    return [Dual(o, t if o.dtype.is_inexact else None) for o, t in zip(outs, tangents, strict=True)]


def _by_partials(n: Node, partials: Callable[..., Sequence[Any]], tangents: list[Array | None], out: Array,
                 arrays: list[Array]) -> Array | None:
    if not out.dtype.is_inexact:
        return None
    total: Array | None = None
    for t, p in zip(tangents, partials(out, *arrays), strict=True):
        part = None if t is None else push_scale(t, p, n.op in SINGULAR)
        if part is not None:
            total = part if total is None else total + part
    return total


def push_scale(t: Array, partial: Any, guard: bool) -> Array | None:
    """``t * partial``; with ``guard`` a partial that is not finite is 0 where ``t`` is."""
    if not isinstance(partial, Array):
        if partial == 0:
            return None
        return t if partial == 1 else -t if partial == -1 else t * partial
    p = cast(partial, t.dtype)
    out: Array = t * (where(isfinite(p) | (t != 0), p, 0) if guard else p)
    return out


def transposed(n: Node, grad: Callable[..., Any], tangents: list[Array | None], outs: list[Array],
               arrays: list[Array]) -> list[Array | None]:
    """The tangents of a node's outputs by its gradient rule."""
    return transposed_function(lambda cts: pull_by_rule(n, grad, cts, outs, arrays), tangents, outs)


def transposed_function(pull: Callable[[Cotangents], Sequence[Array | None]], tangents: Sequence[Array | None],
                        outs: Sequence[Array]) -> list[Array | None]:
    """Tangents of results from the function that pulls cotangents: the derivative of ``<pull(u), t>`` by ``u``."""
    with tracing() as depth:
        live = [o for o in outs if o.dtype.is_inexact]
        params = [parameter(o._value.type, depth, device=o._value.node.device) for o in live]
        it = iter(params)
        pulled = pull([Array(next(it)) if o.dtype.is_inexact else None for o in outs])
        pairs = [(p, t) for p, t in zip(pulled, tangents, strict=True) if p is not None and t is not None]
        recorder, inputs, ends = record([p._value for p, _ in pairs], params, depth)
        moved = recorder.tape.pull([(e, t) for e, (_, t) in zip(ends, pairs, strict=True)], inputs)
        # Linear in u: what is left of u stands beside nothing but zeros.
        zeros = {p: zeros_as(Array(p))._value for p in params}
        clean = iter(substitute([m._value for m in moved if m is not None], zeros, depth))
    found = iter([None if m is None else Array(next(clean)) for m in moved])
    return [next(found) if o.dtype.is_inexact else None for o in outs]


#: Operations with sub-graphs or rules of their own; filled by the modules that know them.
SPECIAL: dict[str, Callable[[Pusher, Node, list[Dual]], list[Dual]]] = {}


def push(outputs: Sequence[Value], params: Sequence[Value], tangents: Sequence[Array | None],
         level_: int) -> list[Dual]:
    """The duals of traced results."""
    env = {p: Dual(Array(p), t) for p, t in zip(params, tangents, strict=True)}
    return Pusher().sweep.walk(outputs, env, level_)
