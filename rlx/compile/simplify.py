"""Simplify: the same graph with less movement and no work that cancels.

``reshape(reshape(x))`` -> ``reshape(x)``; ``reshape(a + b)`` -> ``reshape(a) + reshape(b)``;
``dot(permute(x), y)`` -> ``dot(x, y)`` on other axes; ``x * 1`` -> ``x``; ``cast(cast(x))`` where the first is exact.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from math import isfinite
from typing import Any

import numpy as np

from rlx.core.dtype import DType
from rlx.core.shape import Shape
from rlx.ir.graph import UNIQUE, Graph, Node, Type, Value, clone, node, rebuild
from rlx.ir.prim import POINTWISE

Rule = Callable[[Node, tuple[Value, ...]], Value | None]


def simplify(graph: Graph) -> Graph:
    """Apply the rules from arguments to users until nothing changes; sub-graphs too."""
    def make(n: Node, args: tuple[Value, ...]) -> Sequence[Value]:
        if n.op in UNIQUE:
            return n.outs
        for rule in _RULES.get(n.op, ()):
            out = rule(n, args)
            if out is not None:
                return (_again(out),)
        graphs = tuple([simplify(g) for g in n.graphs]) if n.graphs else n.graphs
        return clone(n, args, graphs=graphs).outs

    outer, _sinking.done = _sinking.done, {}
    try:
        return Graph(graph.inputs, rebuild(graph.outputs, {v: v for v in graph.inputs}, make), graph.name)
    finally:
        _sinking.done = outer


def _again(v: Value) -> Value:
    """Apply the rules to a node that a rule has just made."""
    n = v.node
    for rule in _RULES.get(n.op, ()):
        out = rule(n, n.args)
        if out is not None and out is not v:
            return _again(out)
    return v


def _make(op: str, args: tuple[Value, ...], like: Node, type_: Type, **attrs: Any) -> Value:
    return node(op, args, (type_,), attrs=tuple(sorted(attrs.items())), where=like.where).outs[0]


# Movement

def join_reshapes(n: Node, args: tuple[Value, ...]) -> Value | None:
    """``reshape(reshape(x))`` -> ``reshape(x)``; a reshape to the same shape -> ``x``."""
    (x,) = args
    if x.shape == n.types[0].shape:
        return x
    if x.node.op == "reshape":
        return _reshape(x.node.args[0], n.types[0].shape, n)
    return None


def _reshape(x: Value, shape: Shape, like: Node) -> Value:
    if x.shape == shape:
        return x
    if x.node.op == "reshape":
        return _reshape(x.node.args[0], shape, like)
    return _make("reshape", (x,), like, Type(x.dtype, shape), shape=shape)


def _unit(a: Shape, b: Shape) -> bool:
    """Whether two shapes differ in axes of size 1 only."""
    return [d for d in a if d != 1] == [d for d in b if d != 1]


def raise_reshape(n: Node, args: tuple[Value, ...]) -> Value | None:
    """``f(reshape(a), 2)`` -> ``reshape(f(a, 2))`` where the reshape adds axes of size 1.

    Work on a reduction's result keeps the reduction's shape, so that both can be one kernel.
    """
    shape = n.types[0].shape
    inner = next((a.node.args[0].shape for a in args if a.node.op == "reshape"), shape)
    if len(inner) >= len(shape) or not _unit(inner, shape):
        return None
    moved: list[Value] = []
    for a in args:
        if a.node.op == "reshape" and a.node.args[0].shape == inner:
            moved.append(a.node.args[0])
        elif a.node.op == "broadcast" and a.node.args[0].shape == ():
            moved.append(_make("broadcast", a.node.args, a.node, Type(a.dtype, inner), shape=inner))
        else:
            return None
    out = node(n.op, tuple(moved), (Type(n.types[0].dtype, inner),), attrs=n.attrs, where=n.where).outs[0]
    return _reshape(out, shape, n)


def sink_reshape(n: Node, args: tuple[Value, ...]) -> Value | None:
    """``reshape(f(a, b))`` -> ``f(reshape(a), reshape(b))`` for pointwise f: it meets storage, where it is free."""
    (x,) = args
    shape = n.types[0].shape
    return _sunk(x, shape, n) if x.node.op in POINTWISE and not _unit(x.shape, shape) else None


def _sunk(x: Value, shape: Shape, like: Node) -> Value:
    """A pointwise expression with its leaves reshaped; each value once, as a path at a time would be exponential."""
    done: dict[Value, Value] = _sinking.done.setdefault(shape, {})
    stack = [x]
    while stack:
        v = stack[-1]
        if v in done:
            stack.pop()
        elif v.node.op not in POINTWISE:
            done[v] = _again(_reshape(v, shape, like))
        elif missing := [a for a in v.node.args if a not in done]:
            stack.extend(missing)
        else:
            moved = tuple([done[a] for a in v.node.args])
            done[v] = _again(node(v.node.op, moved, (Type(v.dtype, shape),), attrs=v.node.attrs,
                                  where=v.node.where).outs[0])
    return done[x]


class _Sinking(threading.local):
    """What the running call of :func:`simplify` has reshaped, by shape and value."""

    def __init__(self) -> None:
        self.done: dict[Shape, dict[Value, Value]] = {}


_sinking = _Sinking()


def reshape_of_broadcast(n: Node, args: tuple[Value, ...]) -> Value | None:
    """``reshape(broadcast(scalar))`` -> ``broadcast(scalar)``; size-1 axes move through a broadcast."""
    (x,) = args
    if x.node.op != "broadcast":
        return None
    inner, shape = x.node.args[0], n.types[0].shape
    if all(d == 1 for d in inner.shape):
        flat = _reshape(inner, (), n)
        return _make("broadcast", (flat,), n, Type(x.dtype, shape), shape=shape)
    lead = len(x.shape) - len(inner.shape)
    source = (1,) * lead + inner.shape
    kept = [(d, s) for d, s in zip(x.shape, source, strict=True) if d != 1]
    if [d for d in shape if d != 1] != [d for d, _ in kept]:
        return None
    it = iter(kept)
    new = tuple(1 if d == 1 else next(it)[1] for d in shape)
    return _make("broadcast", (_reshape(inner, new, n),), n, Type(x.dtype, shape), shape=shape)


def join_permutes(n: Node, args: tuple[Value, ...]) -> Value | None:
    """``permute(permute(x))`` -> ``permute(x)``; the identity order -> ``x``."""
    (x,) = args
    axes = n.attr("axes")
    if axes == tuple(range(len(axes))):
        return x
    if x.node.op == "permute":
        inner = x.node.attr("axes")
        return _make("permute", x.node.args, n, n.types[0], axes=tuple(inner[a] for a in axes))
    return None


def permute_to_reshape(n: Node, args: tuple[Value, ...]) -> Value | None:
    """A permutation that only moves size-1 axes -> ``reshape``."""
    (x,) = args
    axes = [a for a in n.attr("axes") if x.shape[a] != 1]
    return _reshape(x, n.types[0].shape, n) if axes == sorted(axes) else None


def join_broadcasts(n: Node, args: tuple[Value, ...]) -> Value | None:
    """``broadcast(broadcast(x))`` -> ``broadcast(x)``; to the same shape -> ``x``."""
    (x,) = args
    if x.shape == n.types[0].shape:
        return x
    if x.node.op == "broadcast":
        return _make("broadcast", x.node.args, n, n.types[0], shape=n.types[0].shape)
    return None


# Arithmetic

def drop_cast(n: Node, args: tuple[Value, ...]) -> Value | None:
    """A cast to the same dtype -> ``x``; ``cast(cast(x, wider))`` -> one cast."""
    (x,) = args
    if x.dtype == n.types[0].dtype:
        return x
    if x.node.op == "const":
        return _cast_constant(x, n)
    if x.node.op == "cast" and _exact(x.node.args[0].dtype, x.dtype) and n.types[0].dtype.kind != "b":
        inner = x.node.args[0]
        if inner.dtype == n.types[0].dtype:
            return inner
        return _make("cast", (inner,), n, n.types[0], dtype=n.types[0].dtype)
    return None


def _cast_constant(x: Value, n: Node) -> Value | None:
    """``cast(const)`` -> ``const`` where every device would give that number."""
    value, target = x.node.attr("value"), n.types[0].dtype
    if not isinstance(value, (bool, int, float)) or target.name in ("bfloat16", "float16"):
        return None
    if target.is_float:
        folded: bool | int | float = float(np.asarray(value, x.dtype.numpy).astype(target.numpy))
    elif target.is_integer and not isinstance(value, float) and (
            np.iinfo(target.numpy).min <= value <= np.iinfo(target.numpy).max):
        folded = int(value)
    else:
        return None
    made = node("const", (), (Type(target, ()),), attrs=(("value", folded),), where=n.where, device=x.node.device)
    return made.outs[0]


def _exact(a: DType, b: DType) -> bool:
    """Whether every value of ``a`` is a value of ``b``, with the same kind of rounding after."""
    return a.kind == b.kind and a.bits < b.bits and "bfloat16" not in (a.name, b.name)


def _is(v: Value, number: float) -> bool:
    n = v.node
    while n.op in ("broadcast", "reshape", "cast"):
        n = n.args[0].node
    return n.op == "const" and n.attr("value") == number and not (n.attr("value") == 0
                                                                  and str(n.attr("value"))[0] == "-")


def drop_one(n: Node, args: tuple[Value, ...]) -> Value | None:
    """``x * 1``, ``1 * x``, ``x / 1`` -> ``x``."""
    if _is(args[1], 1):
        return args[0]
    return args[1] if n.op == "mul" and _is(args[0], 1) else None


def drop_zero(n: Node, args: tuple[Value, ...]) -> Value | None:
    """``x - 0`` -> ``x``; ``x + 0`` -> ``x`` for integers (``-0.0 + 0`` is not ``-0.0``)."""
    if n.op == "sub" and _is(args[1], 0):
        return args[0]
    if n.op == "add" and n.types[0].dtype.is_integer:
        return args[0] if _is(args[1], 0) else args[1] if _is(args[0], 0) else None
    return None


def drop_select(n: Node, args: tuple[Value, ...]) -> Value | None:
    """``select(c, x, x)`` -> ``x``."""
    return args[1] if args[1] is args[2] else None


#: Arithmetic that every device rounds alike, and comparisons.
_FOLDED: dict[str, Callable[..., Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "neg": np.negative,
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "select": np.where,
}


def fold_constants(n: Node, args: tuple[Value, ...]) -> Value | None:
    """``2 * 3`` -> ``6``: no kernel computes one number that is known; also where the constants are broadcast."""
    numbers = [_number(a) for a in args]
    if any(x is None for x in numbers) or n.types[0].dtype.name not in _KNOWN:
        return None
    with np.errstate(all="ignore"):
        value = _FOLDED[n.op](*numbers).astype(n.types[0].dtype.numpy).item()
    if isinstance(value, float) and not isfinite(value):
        return None
    made = node("const", (), (Type(n.types[0].dtype, ()),), attrs=(("value", value),), where=n.where,
                device=_constant(args[0]).device).outs[0]
    shape = n.types[0].shape
    return made if shape == () else _make("broadcast", (made,), n, n.types[0], shape=shape)


_KNOWN = frozenset(("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32",
                    "float64"))


def _constant(v: Value) -> Node:
    """What a value broadcasts."""
    n = v.node
    while n.op in ("broadcast", "reshape"):
        n = n.args[0].node
    return n


def _number(v: Value) -> Any:
    """The number that a value holds everywhere, in its dtype; None where it is not known."""
    n = _constant(v)
    if n.op != "const" or v.dtype.name not in _KNOWN or not isinstance(n.attr("value"), (bool, int, float)):
        return None
    return np.asarray(n.attr("value"), v.dtype.numpy)


# Contraction

def fold_permute(n: Node, args: tuple[Value, ...]) -> Value | None:
    """``dot(permute(x), y)`` -> ``dot(x, y)`` on other axes, where the free axes keep their order."""
    contract, batch = n.attr("contract"), n.attr("batch")
    sides = list(args)
    new_contract, new_batch = list(contract), list(batch)
    changed = False
    for k in (0, 1):
        x = sides[k].node
        if x.op != "permute":
            continue
        axes = x.attr("axes")
        free = [axes[i] for i in range(len(axes)) if i not in contract[k] and i not in batch[k]]
        if free != sorted(free):
            continue
        sides[k] = x.args[0]
        new_contract[k] = tuple(axes[i] for i in contract[k])
        new_batch[k] = tuple(axes[i] for i in batch[k])
        changed = True
    if not changed:
        return None
    return _make("dot", tuple(sides), n, n.types[0], contract=tuple(new_contract), batch=tuple(new_batch))


def drop_stop(n: Node, args: tuple[Value, ...]) -> Value | None:
    """``slice`` of everything -> ``x``; ``flip`` of nothing -> ``x``."""
    if n.op == "slice" and n.attr("size") == args[0].shape and all(s == 1 for s in n.attr("step")):
        return args[0]
    return args[0] if n.op == "flip" and not n.attr("axes") else None


_RULES: dict[str, tuple[Rule, ...]] = {
    "reshape": (join_reshapes, reshape_of_broadcast, sink_reshape),
    "permute": (join_permutes, permute_to_reshape),
    "broadcast": (join_broadcasts,),
    "cast": (drop_cast,), "mul": (drop_one,), "div": (drop_one,), "sub": (drop_zero,), "add": (drop_zero,),
    "select": (drop_select,), "dot": (fold_permute,), "slice": (drop_stop,), "flip": (drop_stop,),
}
_RULES |= {op: (*_RULES.get(op, ()), raise_reshape) for op in POINTWISE}
_RULES |= {op: (fold_constants, *_RULES[op]) for op in _FOLDED}
