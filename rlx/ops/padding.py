"""``rlx.pad``: more elements before and after each axis, by NumPy's modes."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.array.array import FUNCTIONS, Array
from rlx.array.build import as_array, broadcast, cast
from rlx.array.define import public
from rlx.core import dtype as dt
from rlx.core.errors import ShapeError, ValueIssue
from rlx.ops.movement import as_axis, concat, iota, pad_with, slice_of

#: Modes that read other elements, through an index map.
_INDEXED = ("edge", "reflect", "symmetric", "wrap")
_STATISTICS = ("maximum", "minimum", "mean", "median")
_MODES = ("constant", *_INDEXED, "linear_ramp", *_STATISTICS, "empty")


def _pairs(width: Any, rank: int, what: str) -> list[tuple[Any, Any]]:
    """One (before, after) pair for each axis, by NumPy's broadcasting of the argument."""
    if isinstance(width, dict):
        given = {int(a) % rank: w if isinstance(w, (tuple, list)) else (w, w) for a, w in width.items()}
        return [tuple(given.get(i, (0, 0))) for i in range(rank)]
    host = np.asarray(width)
    try:
        wide = np.broadcast_to(host, (rank, 2))
    except ValueError:
        raise ShapeError(f"pad with {what} of shape {host.shape} for an array of {rank} dimensions",
                         why="it is one number, one pair, or a pair for each axis",
                         do="pass ((before, after), ...)") from None
    return [(a.item(), b.item()) for a, b in wide]


@public
def pad(x: Any, pad_width: Any, /, mode: str = "constant", *, constant_values: Any = 0, end_values: Any = 0) -> Array:
    """``x`` with more elements around it.

    ``mode``: ``constant``, ``edge``, ``reflect``, ``symmetric``, ``wrap``, ``linear_ramp``, ``maximum``, ``minimum``,
    ``mean``, ``median`` or ``empty``; ``pad_width``: one number, one pair, or a pair for each axis.
    """
    a = as_array(x)
    widths = [(int(low), int(high)) for low, high in _pairs(pad_width, a.ndim, "widths")]
    if any(low < 0 or high < 0 for low, high in widths):
        raise ShapeError(f"pad by {widths}", why="widths are not negative", do="slice the array to make it smaller")
    if mode not in _MODES:
        raise ValueIssue(f"pad with mode {mode!r}", why="modes are a fixed set", do=f"use one of {', '.join(_MODES)}")
    values = _pairs(end_values if mode == "linear_ramp" else constant_values, a.ndim, "values") \
        if mode in ("constant", "linear_ramp") and not isinstance(constant_values, Array) else [(0, 0)] * a.ndim
    for axis, (low, high) in enumerate(widths):
        if low or high:
            a = _pad_axis(a, axis, low, high, mode,
                          constant_values if isinstance(constant_values, Array) else values[axis])
    return a


def _pad_axis(a: Array, axis: int, low: int, high: int, mode: str, values: Any) -> Array:
    n = a.shape[axis]
    if mode in ("constant", "empty"):
        before, after = (values, values) if isinstance(values, Array) else values
        a = pad_with(a, _at(a, axis, low), [0] * a.ndim, _like(before, a))
        return pad_with(a, [0] * a.ndim, _at(a, axis, high), _like(after, a))
    if n == 0:
        raise ShapeError(f"pad axis {axis} of shape {a.shape} with mode {mode!r}", why="there is no element to repeat",
                         do="use mode='constant'")
    if mode in _INDEXED:
        host_pad: Any = np.pad  # its stub names modes one by one
        places = host_pad(np.arange(n), (low, high), mode)
        return FUNCTIONS["take"](a, as_array(places, device=a._value.node.device), axis=axis)
    if mode in _STATISTICS:
        name = {"maximum": "max", "minimum": "min"}.get(mode, mode)
        value = FUNCTIONS[name](a, axis=axis, keepdims=True)
        if value.dtype != a.dtype:
            value = cast(FUNCTIONS["round"](value), a.dtype)
        parts = [broadcast(value, _sized(a, axis, low)), a, broadcast(value, _sized(a, axis, high))]
    else:
        parts = [_ramp(a, axis, low, values[0], 0), a, _ramp(a, axis, high, values[1], n - 1)]
    return concat(parts, axis=axis)


def _at(a: Array, axis: int, n: int) -> list[int]:
    return [n if i == axis else 0 for i in range(a.ndim)]


def _sized(a: Array, axis: int, n: int) -> tuple[Any, ...]:
    return tuple(n if i == axis else s for i, s in enumerate(a.shape))


def _like(value: Any, a: Array) -> Any:
    if isinstance(value, Array):
        return value
    return a.dtype.numpy.type(value).item() if a.dtype != dt.bfloat16 else float(value)


def _ramp(a: Array, axis: int, n: int, end: Any, edge: int) -> Array:
    """``n`` values from ``end`` (the outermost) towards the edge element."""
    inner = slice_of(a, _at(a, axis, edge), _sized(a, axis, 1))
    work = inner if a.dtype.is_inexact else cast(inner, dt.float64)
    i = as_axis(iota(n, dt.int64, a._value.node.device), axis, a.ndim)
    steps = cast(i if edge == 0 else n - 1 - i, work.dtype.real)
    out = end + (work - end) * (steps / float(max(n, 1)))
    return out if a.dtype.is_inexact else cast(FUNCTIONS["trunc"](out), a.dtype)
