"""The contracts of the primitives: what each needs of its operands and attributes beyond its type rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlx.core.dtype import DType, bool_, int32, int64
from rlx.core.shape import numel
from rlx.ir.graph import Graph, Node, Type, Value
from rlx.ir.prim import POINTWISE, REDUCE_KINDS, SCATTER_KINDS
from rlx.ir.text.types import type_text


class Broken(ValueError):
    """A rule that a node breaks, as a fragment: its reader adds the node."""


def need(holds: bool, why: str) -> None:
    """Raise unless the rule holds."""
    if not holds:
        raise Broken(why)


def _arity(n: Node, count: int, outs: int = 1) -> None:
    need(len(n.args) == count, f"it takes {count} operands, not {len(n.args)}")
    need(len(n.types) == outs, f"it has {outs} outputs, not {len(n.types)}")


def _axes(axes: Any, rank: int, what: str = "axes") -> None:
    valid = isinstance(axes, tuple) and all(type(a) is int and 0 <= a < rank for a in axes)
    need(valid and len(set(axes)) == len(axes), f"{what} {axes} are not distinct axes of an array of {rank} dimensions")


def _ints(values: Any, count: int, low: int, what: str) -> None:
    need(isinstance(values, tuple) and len(values) == count, f"{what} {values} needs {count} entries")
    need(all(not isinstance(v, int) or v >= low for v in values), f"{what} {values} has an entry below {low}")


def _integers(values: tuple[Value, ...], what: str) -> None:
    for v in values:
        need(v.dtype.is_integer, f"{what} of {v.dtype.name} are no integers")


def result(op: str, dtypes: tuple[DType, ...], attr: DType | None) -> DType:
    """The dtype of an elementwise primitive, after checking the dtypes of its operands."""
    row = POINTWISE[op]
    need(len(dtypes) == row.arity, f"{op} takes {row.arity} operands, not {len(dtypes)}")
    rest = dtypes
    if op == "select":
        need(dtypes[0] == bool_, f"the condition of select is {dtypes[0].name}, not bool")
        rest = dtypes[1:]
    need(all(d == rest[0] for d in rest), f"operands of {op} have dtypes {', '.join(d.name for d in dtypes)}")
    need(rest[0].kind in row.kinds, f"{op} does not take {rest[0].name}")
    if row.result == "attr":
        need(attr is not None, f"{op} needs a dtype")
        assert attr is not None
        same = attr.bits == rest[0].bits
        need(op != "bitcast" or same, f"a bitcast from {rest[0].name} to {attr.name} changes the width")
        return attr
    return {"same": rest[0], "bool": bool_, "real": rest[0].real, "complex": rest[0].complex}[row.result]


def pointwise(n: Node, attrs: dict[str, Any]) -> None:
    """Equal shapes and dtypes; the result dtype by the table."""
    _arity(n, POINTWISE[n.op].arity)
    shapes = {a.shape for a in n.args}
    need(len(shapes) == 1, f"operands have shapes {', '.join(type_text(a.type) for a in n.args)}")
    dtype = result(n.op, tuple([a.dtype for a in n.args]), attrs.get("dtype"))
    need(n.types[0] == Type(dtype, n.args[0].shape), f"its type must be {type_text(Type(dtype, n.args[0].shape))}")


def _const(n: Node, attrs: dict[str, Any]) -> None:
    _arity(n, 0)
    d, x = n.types[0].dtype, attrs.get("value")
    kind: Any = {"b": bool, "i": int, "u": int, "f": float, "c": complex}[d.kind]
    need(type(x) is kind, f"its value {x!r} is no {kind.__name__}")
    need(n.types[0].shape == (), "a constant is a scalar")
    need(fits(x, d), f"its value {x} does not fit {d.name}")


def fits(x: Any, d: DType) -> bool:
    """Whether a Python integer is within an integer dtype (true for other values)."""
    if not d.is_integer or not isinstance(x, int):
        return True
    low = -(1 << (d.bits - 1)) if d.kind == "i" else 0
    return low <= x < (1 << (d.bits - (d.kind == "i")))


def _iota(n: Node, attrs: dict[str, Any]) -> None:
    _arity(n, 0)
    need(len(n.types[0].shape) == 1, "an iota has one axis")
    need(n.types[0].dtype.kind in "iufc", f"an iota cannot be {n.types[0].dtype.name}")


def _reshape(n: Node, attrs: dict[str, Any]) -> None:
    _arity(n, 1)
    before, after = numel(n.args[0].shape), numel(n.types[0].shape)
    need(before == after, f"it turns {before} elements into {after}")


def _permute(n: Node, attrs: dict[str, Any]) -> None:
    _arity(n, 1)
    _axes(attrs["axes"], len(n.args[0].shape))
    need(len(attrs["axes"]) == len(n.args[0].shape), "a permutation names every axis")


def _broadcast(n: Node, attrs: dict[str, Any]) -> None:
    _arity(n, 1)
    x, y = n.args[0].shape, n.types[0].shape
    need(len(x) <= len(y), "a broadcast cannot drop an axis")


def _slice(n: Node, attrs: dict[str, Any]) -> None:
    _arity(n, 1)
    shape = n.args[0].shape
    for name, low in (("start", 0), ("size", 0), ("step", 1)):
        _ints(attrs[name], len(shape), low, name)
    for d, b, m, s in zip(shape, attrs["start"], attrs["size"], attrs["step"], strict=True):
        if isinstance(d, int) and isinstance(m, int) and isinstance(b, int) and m:
            need(b + (m - 1) * s < d, f"its last element {b + (m - 1) * s} is past the end of an axis of {d}")


def _pad(n: Node, attrs: dict[str, Any]) -> None:
    _arity(n, 2)
    x, fill = n.args
    need(fill.shape == () and fill.dtype == x.dtype, f"the fill of {type_text(x.type)} is {type_text(fill.type)}")
    _ints(attrs["low"], len(x.shape), 0, "low")
    _ints(attrs["high"], len(x.shape), 0, "high")


def _flip(n: Node, attrs: dict[str, Any]) -> None:
    _arity(n, 1)
    _axes(attrs["axes"], len(n.args[0].shape))


def _concat(n: Node, attrs: dict[str, Any]) -> None:
    need(bool(n.args), "a concatenation needs an operand")
    axis, first = attrs["axis"], n.args[0]
    _axes((axis,), len(first.shape))
    for x in n.args[1:]:
        need(x.dtype == first.dtype, f"it joins {first.dtype.name} with {x.dtype.name}")
        need(x.shape[:axis] + x.shape[axis + 1:] == first.shape[:axis] + first.shape[axis + 1:]
             and len(x.shape) == len(first.shape), f"it joins {type_text(first.type)} with {type_text(x.type)}")


def _window(n: Node, attrs: dict[str, Any]) -> None:
    _arity(n, 1)
    _axes(attrs["axes"], len(n.args[0].shape))
    for name in ("size", "step", "dilation"):
        _ints(attrs[name], len(attrs["axes"]), 1, name)


def _gather(n: Node, attrs: dict[str, Any]) -> None:
    x, picks = n.args[0], n.args[1:]
    need(1 <= len(picks) <= len(x.shape), f"it has {len(picks)} indices for {len(x.shape)} axes")
    _integers(picks, "indices")
    need(len({p.shape for p in picks}) == 1, "its indices have different shapes")
    need(attrs.get("mode", "clip") in ("clip", "promise"), f"there is no mode {attrs.get('mode')!r}")


def _scatter(n: Node, attrs: dict[str, Any]) -> None:
    x, update, picks = n.args[0], n.args[1], n.args[2:]
    need(1 <= len(picks) <= len(x.shape), f"it has {len(picks)} indices for {len(x.shape)} axes")
    _integers(picks, "indices")
    need(len({p.shape for p in picks}) == 1, "its indices have different shapes")
    want = Type(x.dtype, (*picks[0].shape, *x.shape[len(picks):]))
    need(update.type == want, f"its update is {type_text(update.type)}, not {type_text(want)}")
    need(attrs["kind"] in SCATTER_KINDS, f"there is no scatter kind {attrs['kind']!r}")


def _dot(n: Node, attrs: dict[str, Any]) -> None:
    _arity(n, 2)
    need(n.args[0].dtype == n.args[1].dtype, f"it contracts {n.args[0].dtype.name} with {n.args[1].dtype.name}")
    for k in (0, 1):
        _axes((*attrs["contract"][k], *attrs["batch"][k]), len(n.args[k].shape), "contracted and batch axes")


def _reduce(n: Node, attrs: dict[str, Any]) -> None:
    _arity(n, 1)
    _axes(attrs["axes"], len(n.args[0].shape))
    need(bool(attrs["axes"]) and attrs["axes"] == tuple(sorted(attrs["axes"])), "its axes must be some, in order")
    kind, d = attrs["kind"], n.args[0].dtype
    need(kind in REDUCE_KINDS, f"there is no reduction {kind!r}")
    kinds = "iufc" if kind in ("sum", "prod") else "biuf" if kind in ("min", "max") else "biu"
    need(d.kind in kinds, f"{kind} does not take {d.name}")


def _segment(n: Node, attrs: dict[str, Any]) -> None:
    _arity(n, 2)
    _integers((n.args[1],), "offsets")
    need(len(n.args[1].shape) == 1 and len(n.args[0].shape) >= 1, "offsets are one-dimensional, values have an axis")
    need(attrs["kind"] in ("sum", "prod", "min", "max"), f"there is no segment reduction {attrs['kind']!r}")


def _scan(n: Node, attrs: dict[str, Any]) -> None:
    _arity(n, 1)
    _axes((attrs["axis"],), len(n.args[0].shape), "axis")
    need(attrs["kind"] in ("add", "mul", "min", "max"), f"there is no scan {attrs['kind']!r}")


def _sort(n: Node, attrs: dict[str, Any]) -> None:
    need(bool(n.args), "a sort needs keys")
    _axes((attrs["axis"],), len(n.args[0].shape), "axis")
    need(not n.args[0].dtype.is_complex, "complex keys have no order")
    need(len({a.shape for a in n.args}) == 1, "keys and payloads have different shapes")


# Control

def _signature(g: Graph, inputs: tuple[Type, ...], outputs: tuple[Type, ...]) -> None:
    got, want = tuple([v.type for v in g.inputs]), ", ".join(map(type_text, inputs))
    need(got == inputs, f"graph {g.name} takes ({', '.join(map(type_text, got))}), its operands are ({want})")
    got, want = tuple([v.type for v in g.outputs]), ", ".join(map(type_text, outputs))
    need(got == outputs, f"graph {g.name} gives ({', '.join(map(type_text, got))}), it must give ({want})")


def _carry(n: Node, attrs: dict[str, Any], skip: int) -> tuple[tuple[Type, ...], tuple[Type, ...]]:
    types = tuple([a.type for a in n.args])[skip:]
    carry = attrs["carry"]
    need(type(carry) is int and 0 < carry <= len(types), f"it carries {carry} of {len(types)} operands")
    return types, types[:carry]


def _while(n: Node, attrs: dict[str, Any]) -> None:
    types, carried = _carry(n, attrs, 0)
    need(len(n.graphs) == 2, "it has a condition and a body")
    _signature(n.graphs[0], types, (Type(bool_, ()),))
    _signature(n.graphs[1], types, carried)


def _loop(n: Node, attrs: dict[str, Any]) -> None:
    types, carried = _carry(n, attrs, 1)
    count = n.args[0]
    need(count.type == Type(int64, ()), f"its count is {type_text(count.type)}, not i64[]")
    need(len(n.graphs) == 1, "it has one body")
    _signature(n.graphs[0], (Type(int64, ()), *types), carried)


def _cond(n: Node, attrs: dict[str, Any]) -> None:
    need(bool(n.graphs), "it has no branch")
    need(n.args[0].type == Type(int32, ()), f"its index is {type_text(n.args[0].type)}, not i32[]")
    for g in n.graphs:
        _signature(g, tuple([a.type for a in n.args[1:]]), n.types)


def _native(n: Node, attrs: dict[str, Any]) -> None:
    for name in ("claim", "op"):
        need(isinstance(attrs.get(name), str), f"a native call names its {name}")
    need(isinstance(attrs.get("attrs", ()), tuple), "the attributes of the op claimed are a tuple")


def _collective(n: Node, attrs: dict[str, Any]) -> None:
    need(not n.graphs, "a collective has no sub-graph")


CHECKS: dict[str, Callable[[Node, dict[str, Any]], None]] = {
    "const": _const, "iota": _iota, "reshape": _reshape, "permute": _permute, "broadcast": _broadcast, "slice": _slice,
    "pad": _pad, "flip": _flip, "concat": _concat, "window": _window, "gather": _gather, "scatter": _scatter,
    "dot": _dot, "reduce": _reduce, "segment_reduce": _segment, "scan": _scan, "sort": _sort,
    "while": _while, "loop": _loop, "cond": _cond, "native": _native,
    **dict.fromkeys(("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "shift", "axis_index"), _collective),
}
__all__ = ["CHECKS", "Broken", "fits", "need", "pointwise", "result"]
