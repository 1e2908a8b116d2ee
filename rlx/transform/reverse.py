"""Reverse mode: replay a graph while noting how to pull cotangents back, then pull them from the results.

``y = sin(x) * x`` -> tape ``[s = sin(x), y = s * x]`` -> ``ct_s = ct_y * x``, ``ct_x = ct_y * s + ct_s * cos(x)``.

A rule that a node's op owns is used; else the node is replaced by its decomposition. A partial derivative that is not
finite counts as 0 where the cotangent is 0, so that a function is differentiable wherever it is smooth:
``where(x > 0, sqrt(x), 0)`` has gradient 0 at 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlx.array.array import Array
from rlx.array.build import cast, emit1
from rlx.core.errors import NotDifferentiableError
from rlx.ir.graph import Graph, Node, Value
from rlx.ir.op import REGISTRY, NotDifferentiable
from rlx.ops.derivative import zeros_as
from rlx.ops.elementwise import conj, isfinite, where
from rlx.transform.sweep import Sweep, call_rule, decomposition, reclone

Cotangents = list[Array | None]
Pull = Callable[[Cotangents], Sequence[Array | None]]

#: Elementwise primitives whose partials can be infinite or NaN where the function's use is smooth (behind a select).
SINGULAR = frozenset((
    "div", "rem", "pow", "sqrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "tan", "asin", "acos",
    "sinh", "cosh", "asinh", "acosh", "atanh", "atan2", "erfinv", "lgamma"))


@dataclass(frozen=True, slots=True)
class Noted:
    """An array and its place on the tape (None: it does not depend on the inputs)."""

    array: Array
    slot: int | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One operation on the tape."""

    args: tuple[int | None, ...]
    outs: tuple[int | None, ...]
    arrays: tuple[Array, ...]
    pull: Pull


@dataclass(slots=True)
class Tape:
    """Operations in the order they ran."""

    steps: list[Step] = field(default_factory=list)
    slots: int = 0

    def slot(self) -> int:
        """A new place."""
        self.slots += 1
        return self.slots - 1

    def note(self, args: Sequence[Noted], outs: Sequence[Array], pull: Pull,
             active: Sequence[bool] | None = None) -> list[Noted]:
        """Add an operation; returns its outputs with their places."""
        live = [o.dtype.is_inexact and (active is None or active[k]) for k, o in enumerate(outs)]
        noted = [Noted(o, self.slot() if on else None) for o, on in zip(outs, live, strict=True)]
        self.steps.append(Step(tuple([a.slot for a in args]), tuple([n.slot for n in noted]), tuple(outs), pull))
        return noted

    def pull(self, seeds: Sequence[tuple[Noted, Array | None]], inputs: Sequence[Noted]) -> Cotangents:
        """Cotangents of the inputs, given those of results."""
        cts: dict[int, Array] = {}
        for noted, ct in seeds:
            if noted.slot is not None and ct is not None:
                cts[noted.slot] = accumulate(cts.get(noted.slot), ct)
        for step in reversed(self.steps):
            got: Cotangents = [None if s is None else cts.pop(s, None) for s in step.outs]
            if all(c is None for c in got):
                continue
            for slot, ct in zip(step.args, step.pull(got), strict=True):
                if slot is not None and ct is not None:
                    cts[slot] = accumulate(cts.get(slot), ct)
        return [None if n.slot is None else cts.get(n.slot) for n in inputs]


def accumulate(total: Array | None, ct: Array) -> Array:
    """``total + ct``; a scatter into zeros goes into the total itself, so that a loop can do it in place."""
    if total is None:
        return ct
    if _sparse(total) and not _sparse(ct):
        total, ct = ct, total
    if _sparse(ct):
        n = ct._value.node
        return emit1("scatter", total, *[Array(a) for a in n.args[1:]], kind="add")
    out: Array = total + ct
    return out


def _sparse(x: Array) -> bool:
    n = x._value.node
    return n.op == "scatter" and n.attr("kind") == "add" and is_zero(n.args[0])


def is_zero(v: Value) -> bool:
    """Whether a value is the constant 0 in some shape."""
    n = v.node
    while n.op in ("broadcast", "reshape"):
        n = n.args[0].node
    return n.op == "const" and n.attr("value") == 0


class Recorder:
    """Replays graphs onto a tape."""

    def __init__(self) -> None:
        self.tape = Tape()
        self.sweep: Sweep[Noted] = Sweep(self.visit, lambda v: Noted(Array(v)))

    def input(self, x: Array) -> Noted:
        """An input that gradients are taken with respect to."""
        return Noted(x, self.tape.slot())

    def graph(self, g: Graph, args: Sequence[Noted]) -> list[Noted]:
        """Replay a closed graph."""
        return self.sweep.graph(g, args)

    def visit(self, n: Node, args: list[Noted]) -> list[Noted]:
        """Replay one node."""
        arrays = [a.array for a in args]
        if all(a.slot is None for a in args):
            return [Noted(o) for o in reclone(n, arrays)]
        special = SPECIAL.get(n.op)
        if special is not None:
            return special(self, n, args)
        rules = REGISTRY[n.op].rules
        grad = rules.get("grad")
        if isinstance(grad, NotDifferentiable):
            return self._refusing(n, args, grad.why)
        if grad is not None:
            return self._by_gradient(n, args, grad)
        if "partials" in rules:
            return self._by_partials(n, args, rules["partials"])
        body = decomposition(n, arrays)
        if body is None:
            return self._refusing(n, args, "it has no gradient rule")
        return self.graph(body, args)

    def _by_partials(self, n: Node, args: list[Noted], partials: Callable[..., Sequence[Any]]) -> list[Noted]:
        arrays = [a.array for a in args]
        outs = reclone(n, arrays)

        def pull(cts: Cotangents) -> Cotangents:
            (ct,) = cts
            assert ct is not None
            return [None if a.slot is None else scale(ct, p, n.op in SINGULAR)
                    for a, p in zip(args, partials(outs[0], *arrays), strict=True)]
        return self.tape.note(args, outs, pull)

    def _by_gradient(self, n: Node, args: list[Noted], grad: Callable[..., Any]) -> list[Noted]:
        arrays = [a.array for a in args]
        outs = reclone(n, arrays)

        def pull(cts: Cotangents) -> Cotangents:
            return pull_by_rule(n, grad, cts, outs, arrays)
        return self.tape.note(args, outs, pull)

    def _refusing(self, n: Node, args: list[Noted], why: str) -> list[Noted]:
        def pull(cts: Cotangents) -> Cotangents:
            raise refuse(n, why)
        return self.tape.note(args, reclone(n, [a.array for a in args]), pull)


def refuse(n: Node, why: str, do: str = "") -> NotDifferentiableError:
    """The error of a node that has no derivative."""
    return NotDifferentiableError(f"{n.op} is not differentiable ({', '.join(str(a.type) for a in n.args)})",
                                  where=n.where.short, why=why,
                                  do=do or "wrap it in rlx.stop_gradient, or give it a rule with rlx.custom_gradient")


def pull_by_rule(n: Node, grad: Callable[..., Any], cts: Cotangents, outs: Sequence[Array],
                 arrays: Sequence[Array]) -> Cotangents:
    """Cotangents of a node's arguments by the gradient rule its op owns."""
    if many_outputs(n, arrays):
        whole: Any = [c if c is not None or n.op == "sort" else zeros_as(o) for c, o in zip(cts, outs, strict=True)]
        got = call_rule(grad, n, (whole, list(outs)), arrays)
    else:
        got = call_rule(grad, n, (cts[0], outs[0]), arrays)
    return aligned(n, got, len(arrays))


def many_outputs(n: Node, arrays: Sequence[Array]) -> bool:
    """Whether the op gives its outputs as a list."""
    body = decomposition(n, arrays)
    return len(n.outs) > 1 or n.op == "sort" or (body is not None and body.name == "many")


def aligned(n: Node, got: Any, count: int) -> Cotangents:
    """A rule's result as one cotangent for each operand."""
    rows = list(got) if isinstance(got, (tuple, list)) else [got]
    layout = n.attr("layout")
    if layout is not None and len(rows) != count:
        operands = list(REGISTRY[n.op].operands)  # type: ignore[attr-defined]
        rows = [rows[operands.index(name)] for name, _ in layout]
    flat: Cotangents = []
    for r in rows:
        flat.extend(r) if isinstance(r, (tuple, list)) else flat.append(r)
    if len(flat) != count:
        raise refuse(n, f"its gradient rule gives {len(flat)} cotangents for {count} arguments", "correct the rule")
    return flat


def scale(ct: Array, partial: Any, guard: bool) -> Array | None:
    """``ct * conj(partial)``; with ``guard`` a partial that is not finite is 0 where ``ct`` is."""
    if not isinstance(partial, Array):
        if partial == 0:
            return None
        return ct if partial == 1 else -ct if partial == -1 else ct * partial
    p = cast(conj(partial), ct.dtype)
    out: Array = ct * (where(isfinite(p) | (ct != 0), p, 0) if guard else p)
    return out


#: Operations with sub-graphs or rules of their own; filled by the modules that know them.
SPECIAL: dict[str, Callable[[Recorder, Node, list[Noted]], list[Noted]]] = {}


def record(outputs: Sequence[Value], params: Sequence[Value], level: int) -> tuple[Recorder, list[Noted], list[Noted]]:
    """Replay traced results; returns the recorder, the inputs and the outputs."""
    recorder = Recorder()
    inputs = [recorder.input(Array(p)) for p in params]
    env = dict(zip(params, inputs, strict=True))
    return recorder, inputs, recorder.sweep.walk(outputs, env, level)
