"""Arrays from nothing: filled, ranged, copied from NumPy, and moved between devices."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Any

import numpy as np

from rlx.array.array import FUNCTIONS, Array
from rlx.array.build import as_array, broadcast, cast, constant, is_scalar, literal
from rlx.array.define import public
from rlx.array.hooks import default_device, default_float
from rlx.core import dtype as dt
from rlx.core.errors import ShapeError, TraceError, ValueIssue
from rlx.core.shape import broadcast_shapes
from rlx.ops.movement import iota


def _shape(shape: int | Sequence[int]) -> tuple[int, ...]:
    sizes = (shape,) if isinstance(shape, int) else tuple(s if not hasattr(s, "__index__") else int(s) for s in shape)
    if any(isinstance(s, int) and s < 0 for s in sizes):
        raise ShapeError(f"negative size in shape {sizes}", why="sizes count elements", do="pass sizes of at least 0")
    return sizes


@public
def asarray(obj: Any, /, dtype: Any = None, *, device: str | None = None, copy: bool | None = None) -> Array:
    """An Array with the values of ``obj``: an Array, NumPy array, number, or nested sequence.

    >>> import rlx
    >>> rlx.asarray([1.0, 2.0]) * 3
    Array([3., 6.], float64[2] on cpu)
    """
    d = None if dtype is None else dt.as_dtype(dtype)
    if isinstance(obj, Array):
        out = obj if device is None or device == obj.device else to_device(obj, device)
        return out if d is None else cast(out, d)
    if is_scalar(obj):
        where = device or default_device()
        return constant(obj, d or dt.default_of(obj, default_float(where)), device)
    return as_array(obj, d, device)


array = asarray


@public
def full(shape: int | Sequence[int], fill_value: Any, dtype: Any = None, *, device: str | None = None) -> Array:
    """An array of this shape filled with one value."""
    where = device or default_device()
    d = dt.as_dtype(dtype) if dtype is not None else (
        dt.default_of(fill_value, default_float(where)) if is_scalar(fill_value) else as_array(fill_value).dtype)
    if not is_scalar(fill_value):
        return broadcast(cast(as_array(fill_value), d), _shape(shape))
    return broadcast(literal(fill_value, d, where), _shape(shape))


@public
def zeros(shape: int | Sequence[int], dtype: Any = None, *, device: str | None = None) -> Array:
    """An array of zeros; the default float when no dtype is given."""
    return full(shape, 0, dtype=dtype or default_float(device), device=device)


@public
def ones(shape: int | Sequence[int], dtype: Any = None, *, device: str | None = None) -> Array:
    """An array of ones; the default float when no dtype is given."""
    return full(shape, 1, dtype=dtype or default_float(device), device=device)


@public
def empty(shape: int | Sequence[int], dtype: Any = None, *, device: str | None = None) -> Array:
    """An array whose values do not matter (they are zero)."""
    return zeros(shape, dtype=dtype, device=device)


@public
def zeros_like(x: Array, /, dtype: Any = None, *, device: str | None = None) -> Array:
    """Zeros with the shape and dtype of ``x``."""
    return zeros(x.shape, dtype=dtype or x.dtype, device=device or x.device)


@public
def ones_like(x: Array, /, dtype: Any = None, *, device: str | None = None) -> Array:
    """Ones with the shape and dtype of ``x``."""
    return ones(x.shape, dtype=dtype or x.dtype, device=device or x.device)


@public
def full_like(x: Array, /, fill_value: Any, dtype: Any = None, *, device: str | None = None) -> Array:
    """One value in the shape and dtype of ``x``."""
    return full(x.shape, fill_value, dtype=dtype or x.dtype, device=device or x.device)


@public
def empty_like(x: Array, /, dtype: Any = None, *, device: str | None = None) -> Array:
    """An array like ``x`` whose values do not matter."""
    return zeros_like(x, dtype=dtype, device=device)


@public
def arange(start: Any, /, stop: Any = None, step: Any = 1, dtype: Any = None, *, device: str | None = None) -> Array:
    """``start, start + step, ...`` below ``stop`` (``0 .. start`` with one argument)."""
    if stop is None:
        start, stop = 0, start
    if step == 0:
        raise ValueIssue("arange with step 0", why="it would never end", do="pass a step other than 0")
    where = device or default_device()
    if dtype is not None:
        d = dt.as_dtype(dtype)
    else:
        d = default_float(where) if any(isinstance(v, (float, np.floating)) for v in (start, stop, step)) else dt.int64
    n = max(ceil((stop - start) / step), 0)
    i = cast(iota(n, dt.int64, where), d)
    if step != 1:
        i = i * literal(step, d, where)
    return i + literal(start, d, where) if start != 0 else i


@public
def linspace(start: Any, stop: Any, /, num: int = 50, endpoint: bool = True, retstep: bool = False,
             dtype: Any = None, *, device: str | None = None, axis: int = 0) -> Any:
    """``num`` evenly spaced values from ``start`` to ``stop``; with ``retstep`` also the step between them.

    Where the ends are arrays, the values between each two lie along ``axis``.

    >>> import rlx
    >>> rlx.linspace(0.0, 1.0, 3)
    Array([0. , 0.5, 1. ], float64[3] on cpu)
    """
    if num < 0:
        raise ValueIssue(f"linspace of {num} values", why="a count is not negative", do="pass num of at least 0")
    where = device or default_device()
    d = _spaced(start, stop, dtype, where)
    work = d if d.is_inexact else default_float(where)
    steps = num - 1 if endpoint else num
    if is_scalar(start) and is_scalar(stop):
        delta: Any = (stop - start) / steps if steps > 0 else float("nan")
        out = _spread(literal(start, work, where), literal(stop, work, where),
                      literal(delta if steps > 0 else 0.0, work, where), num, endpoint, where)
    else:
        a, b = (literal(v, work, where) if is_scalar(v) else cast(as_array(v), work) for v in (start, stop))
        shape: Any = broadcast_shapes(a.shape, b.shape)
        a, b = broadcast(a, shape), broadcast(b, shape)
        delta = (b - a) / (steps if steps > 0 else float("nan"))
        out = _spread(a, b, (b - a) / max(steps, 1), num, endpoint, where)
        out = out if axis == 0 else FUNCTIONS["moveaxis"](out, 0, axis)
    out = cast(FUNCTIONS["floor"](out), d) if d.is_integer else cast(out, d)
    return (out, delta) if retstep else out


def _spaced(start: Any, stop: Any, dtype: Any, where: str) -> dt.DType:
    """The dtype of values between two ends: at least the default float."""
    if dtype is not None:
        return dt.as_dtype(dtype)
    d = default_float(where)
    for v in (start, stop):
        if is_scalar(v):
            d = d.complex if isinstance(v, complex) else d
        else:
            d = dt.common_type(d, as_array(v).dtype)
    return d


def _spread(a: Array, b: Array, delta: Array, num: int, endpoint: bool, where: str) -> Array:
    """``a + i delta`` along a new first axis, the last value exactly ``b`` when it is an end."""
    i = iota(num, dt.int64, where).reshape((num, *(1,) * a.ndim))
    out = cast(i, a.dtype) * delta + a
    return FUNCTIONS["where"](i == num - 1, b, out) if endpoint and num > 1 else out


@public
def eye(n_rows: int, n_cols: int | None = None, /, k: int = 0, dtype: Any = None, *,
        device: str | None = None) -> Array:
    """Ones on the ``k``-th diagonal, zeros elsewhere."""
    where = device or default_device()
    m = n_rows if n_cols is None else n_cols
    rows, cols = iota(n_rows, dt.int64, where), iota(m, dt.int64, where)
    return cast(rows.reshape((n_rows, 1)) + k == cols.reshape((1, m)), dt.as_dtype(dtype or default_float(where)))


@public
def tril(x: Array, /, k: int = 0) -> Array:
    """``x`` with zeros above the ``k``-th diagonal of its last two axes."""
    return _triangle(x, k, True)


@public
def triu(x: Array, /, k: int = 0) -> Array:
    """``x`` with zeros below the ``k``-th diagonal of its last two axes."""
    return _triangle(x, k, False)


def _triangle(x: Array, k: int, lower: bool) -> Array:
    from rlx.ops.elementwise import where as choose
    n, m = x.shape[-2:]
    rows = iota(n, dt.int64, x._value.node.device).reshape((n, 1))
    cols = iota(m, dt.int64, x._value.node.device).reshape((1, m))
    keep = cols <= rows + k if lower else cols >= rows + k
    out: Array = choose(keep, x, literal(0, x.dtype, x._value.node.device))
    return out


@public
def to_device(x: Array, device: str, /) -> Array:
    """The same values on another device."""
    if x.device == device and x._value.node.device is not None:
        return x
    if x.is_traced:
        raise TraceError(f"to_device({device!r}) inside a traced function", where=x._value.node.where,
                         why="a program runs on one device", do="move the array before or after the traced function")
    return as_array(np.asarray(x), x.dtype, device)
