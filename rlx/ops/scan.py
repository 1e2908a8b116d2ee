"""Running reductions along an axis (scans), and the cumulative sums and products made of them."""

from __future__ import annotations

from typing import Any

from rlx.array.array import FUNCTIONS, Array
from rlx.array.build import as_array, broadcast, constant, emit1
from rlx.array.define import primitive, public
from rlx.core.errors import ShapeError
from rlx.core.shape import axis_index
from rlx.ir.graph import Type
from rlx.ops.movement import coordinates, pad_with, positions
from rlx.ops.reduce import accumulator

_scan = primitive("scan")


@_scan.infer
def _(x: Type, *, kind: str, axis: int, reverse: bool) -> Type:
    return x


@_scan.grad
def _(ct: Array, out: Array, x: Array, *, kind: str, axis: int, reverse: bool) -> tuple[Array | None]:
    if kind == "add":
        return (scan(ct, "add", axis, not reverse),)
    if kind == "mul":
        safe = FUNCTIONS["where"](FUNCTIONS["equal"](x, 0), 1, x)
        conj = FUNCTIONS["conj"]
        return (scan(ct * conj(out), "add", axis, not reverse) / conj(safe),)
    fresh = FUNCTIONS["equal"](x, out)
    last = FUNCTIONS["where"](fresh, positions(x, axis), x.shape[axis] if reverse else -1)
    places = coordinates(x.shape, x._value.node.device)
    places[axis] = scan(last, "min" if reverse else "max", axis, reverse)
    zero = broadcast(constant(0, x.dtype, x._value.node.device), x.shape)
    return (emit1("scatter", zero, ct, *places, kind="add"),)


def scan(x: Array, kind: str, axis: int, reverse: bool = False) -> Array:
    """Running ``kind`` (add mul min max) along an axis, inclusive."""
    return emit1("scan", x, kind=kind, axis=axis, reverse=reverse)


@public
def cumulative_sum(x: Any, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False) -> Array:
    """Running sum along an axis; with ``include_initial`` it starts with a 0."""
    return _cumulative(as_array(x), "add", axis, dtype, include_initial)


@public
def cumulative_prod(x: Any, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False) -> Array:
    """Running product along an axis; with ``include_initial`` it starts with a 1."""
    return _cumulative(as_array(x), "mul", axis, dtype, include_initial)


def _cumulative(x: Array, kind: str, axis: int | None, dtype: Any, initial: bool) -> Array:
    if axis is None:
        if x.ndim != 1:
            raise ShapeError(f"cumulative operation on an array of shape {x.shape} without an axis",
                             why="the axis is ambiguous", do="pass axis=")
        axis = 0
    a = axis_index(axis, x.ndim)
    out = scan(accumulator(x, dtype), kind, a)
    if initial:
        low = [1 if i == a else 0 for i in range(x.ndim)]
        out = pad_with(out, low, [0] * x.ndim, 0 if kind == "add" else 1)
    return out
