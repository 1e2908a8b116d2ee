"""Operators along axes: reductions, softmax, extremes, cumulative sums."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.array.array import Array
from rlx.core import dtype as dt
from rlx.formats.onnx.table import TABLE, Call, Operator, Value, X, cast, dtype_of, is_float, operator


def _reduction(f: Any) -> Operator:
    def run(c: Call, x: Value, axes: Value | None = None) -> Value:
        found = c.axes(axes, x.ndim)
        if not found:
            if c.attr("noop_with_empty_axes", 0):
                return f(c, x, (), {"axis": ()}) if f in (_l1, _l2, _sum_square, _log_sum, _log_sum_exp) else x
            found = tuple(range(x.ndim))
        return cast(f(c, x, found, {"axis": found, "keepdims": bool(c.attr("keepdims", 1))}), dtype_of(x))
    return Operator(run, static=(1,), host=True)


def _sum(c: Call, x: Value, axes: Any, at: dict[str, Any]) -> Value:
    return c.x.sum(x, dtype=x.dtype, **at)


def _mean(c: Call, x: Value, axes: Any, at: dict[str, Any]) -> Value:
    return c.x.mean(x, **at)


def _prod(c: Call, x: Value, axes: Any, at: dict[str, Any]) -> Value:
    return c.x.prod(x, dtype=x.dtype, **at)


def _l1(c: Call, x: Value, axes: Any, at: dict[str, Any]) -> Value:
    return c.x.sum(c.x.abs(x), dtype=x.dtype, **at) if at["axis"] else c.x.abs(x)


def _sum_square(c: Call, x: Value, axes: Any, at: dict[str, Any]) -> Value:
    return c.x.sum(x * x, dtype=x.dtype, **at) if at["axis"] else x * x


def _l2(c: Call, x: Value, axes: Any, at: dict[str, Any]) -> Value:
    wide = x if is_float(x) else cast(x, dt.float64)
    return cast(c.x.sqrt(c.x.sum(wide * wide, **at)), dtype_of(x)) if at["axis"] else c.x.abs(x)


def _log_sum(c: Call, x: Value, axes: Any, at: dict[str, Any]) -> Value:
    return c.x.log(c.x.sum(x, **at)) if at["axis"] else c.x.log(x)


def _log_sum_exp(c: Call, x: Value, axes: Any, at: dict[str, Any]) -> Value:
    """The largest is taken out first, so that nothing overflows."""
    if not at["axis"]:
        return x
    top = _max(c, x, axes, at | {"keepdims": True})
    top = c.x.where(c.x.isfinite(top), top, c.x.zeros_like(top))
    total = c.x.log(c.x.sum(c.x.exp(x - top), **at | {"keepdims": True})) + top
    return total if at["keepdims"] else c.x.squeeze(total, axis=axes)


def _max(c: Call, x: Value, axes: Any, at: dict[str, Any]) -> Value:
    return _extreme(c, x, axes, at, "max", "any", -1)


def _min(c: Call, x: Value, axes: Any, at: dict[str, Any]) -> Value:
    return _extreme(c, x, axes, at, "min", "all", 1)


def _extreme(c: Call, x: Value, axes: Any, at: dict[str, Any], name: str, logical: str, sign: int) -> Value:
    kind = dtype_of(x)
    if kind is dt.bool_:
        return getattr(c.x, logical)(x, **at)
    if all(x.shape[a] for a in axes):
        return getattr(c.x, name)(x, **at)
    # Of no elements: what every element would replace.
    fill = sign * np.inf if is_float(x) else np.iinfo(kind.numpy).max if sign > 0 else np.iinfo(kind.numpy).min
    shape = [1 if i in axes else n for i, n in enumerate(x.shape) if at.get("keepdims") or i not in axes]
    return c.full(shape, fill, kind)


TABLE.update({("", f"Reduce{name}"): _reduction(f) for name, f in {
    "Sum": _sum, "Mean": _mean, "Prod": _prod, "Max": _max, "Min": _min, "L1": _l1, "L2": _l2,
    "SumSquare": _sum_square, "LogSum": _log_sum, "LogSumExp": _log_sum_exp}.items()})


def _by_rows(c: Call, x: Array, f: Any) -> Array:
    """``f(x, axis)``; before version 13 the axis began the columns of a matrix."""
    axis = c.axis(c.attr("axis", -1 if c.version >= 13 else 1), x.ndim)
    if c.version >= 13:
        out: Array = f(x, axis)
        return out
    rows = 1
    for n in x.shape[:axis]:
        rows *= n
    return X.reshape(f(X.reshape(x, (rows, -1)), 1), x.shape)  # type: ignore[no-any-return]


@operator("Softmax")
def softmax(c: Call, x: Array) -> Value:
    return _by_rows(c, x, lambda x, axis: X.softmax(x, axis=axis))


@operator("LogSoftmax")
def log_softmax(c: Call, x: Array) -> Value:
    return _by_rows(c, x, lambda x, axis: x - X.logsumexp(x, axis=axis, keepdims=True))


@operator("Hardmax")
def hardmax(c: Call, x: Array) -> Value:
    def f(x: Array, axis: int) -> Array:
        places = X.reshape(X.arange(x.shape[axis], device=x.device), (-1, *(1,) * (x.ndim - 1 - axis)))
        return X.astype(places == X.argmax(x, axis=axis, keepdims=True), x.dtype)  # type: ignore[no-any-return]
    return _by_rows(c, x, f)


@operator("ArgMax", "ArgMin")
def arg_extreme(c: Call, x: Array) -> Value:
    axis = c.axis(c.attr("axis", 0), x.ndim)
    f = X.argmax if c.node.op == "ArgMax" else X.argmin
    last = bool(c.attr("select_last_index", 0))
    found = f(X.flip(x, axis=axis) if last else x, axis=axis, keepdims=bool(c.attr("keepdims", 1)))
    found = X.astype(found, dt.int64)
    return x.shape[axis] - 1 - found if last else found


@operator("CumSum", "CumProd", static=(1,), host=False)
def cumulative(c: Call, x: Array, axis: Value) -> Value:
    at = c.axis(c.ints(axis, "the axis")[0], x.ndim)
    f, first = (X.cumsum, 0) if c.node.op == "CumSum" else (X.cumprod, 1)
    back = bool(c.attr("reverse", 0))
    x = X.flip(x, axis=at) if back else x
    out = f(x, axis=at, dtype=x.dtype)
    if c.attr("exclusive", 0):
        start = [slice(None)] * x.ndim
        start[at] = slice(0, x.shape[at] - 1)
        width = [(1, 0) if i == at else (0, 0) for i in range(x.ndim)]
        out = X.pad(out[tuple(start)], width, constant_values=first)
    return X.flip(out, axis=at) if back else out


@operator("TopK", static=(1,))
def top_k(c: Call, x: Array, k: Value | None = None) -> Value:
    """Of equal values the first come first."""
    count = c.attr("k") if k is None else c.ints(k, "k")[0]
    axis = c.axis(c.attr("axis", -1), x.ndim)
    if c.version < 11 or c.attr("largest", 1):
        values, places = X.top_k(x, count, axis=axis)
    else:
        order = X.argsort(x, axis=axis, stable=True)
        places = order[tuple([slice(0, count) if i == axis else slice(None) for i in range(x.ndim)])]
        values = X.take_along_axis(x, places, axis=axis)
    return values, X.astype(places, dt.int64)
