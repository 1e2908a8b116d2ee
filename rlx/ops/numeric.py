"""Numerical work on arrays: differences, integrals, interpolation, convolution, comparison."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

from rlx.array.array import FUNCTIONS, Array
from rlx.array.build import as_array, broadcast, cast, is_scalar, promote
from rlx.array.define import public
from rlx.core import dtype as dt
from rlx.core.errors import ShapeError, ValueIssue
from rlx.core.shape import axis_index, broadcast_shapes
from rlx.ops.floating import floating
from rlx.ops.index import gather
from rlx.ops.linear import dot
from rlx.ops.movement import as_axis, concat, coordinates, flip, iota, pad_with, slice_of, windows


def _cut(x: Array, axis: int, start: int, stop: int) -> Array:
    """``x[start:stop]`` along an axis, with both in range."""
    return slice_of(x, [start if i == axis else 0 for i in range(x.ndim)],
                    [stop - start if i == axis else n for i, n in enumerate(x.shape)])


@public
def diff(x: Any, /, n: int = 1, axis: int = -1, *, prepend: Any = None, append: Any = None) -> Array:
    """The ``n``-th differences ``x[i+1] - x[i]`` along an axis (exclusive or, for booleans)."""
    x = as_array(x)
    a = axis_index(axis, x.ndim)
    if n < 0:
        raise ValueIssue(f"differences of order {n}", why="an order is not negative", do="pass n of at least 0")
    parts = [p if p is x else _edge(p, x, a) for p in (prepend, x, append) if p is not None]
    x = concat(parts, axis=a) if len(parts) > 1 else x
    for _ in range(builtins.min(n, x.shape[a])):
        m = x.shape[a]
        after, before = _cut(x, a, 1, m), _cut(x, a, 0, m - 1)
        x = FUNCTIONS["not_equal" if x.dtype == dt.bool_ else "subtract"](after, before)
    out: Array = x
    return out


def _edge(value: Any, x: Array, axis: int) -> Array:
    v = as_array(value, x.dtype if is_scalar(value) else None, x._value.node.device)
    return broadcast(v, tuple(1 if i == axis else s for i, s in enumerate(x.shape))) if v.ndim == 0 else v


@public
def trapezoid(y: Any, x: Any = None, /, dx: float = 1.0, axis: int = -1) -> Array:
    """The integral along an axis by trapezoids, over points ``x`` or with spacing ``dx``."""
    y = floating(y)
    a = axis_index(axis, y.ndim)
    n = y.shape[a]
    step: Any = dx
    if x is not None:
        step = diff(as_array(x), axis=-1 if as_array(x).ndim == 1 else a)
        if step.ndim == 1:
            step = as_axis(step, a, y.ndim)
    return FUNCTIONS["sum"]((_cut(y, a, 1, n) + _cut(y, a, 0, n - 1)) * step, axis=a) / 2 if n > 1 else \
        FUNCTIONS["sum"](y * 0, axis=a)


@public
def gradient(f: Any, /, *varargs: Any, axis: int | Sequence[int] | None = None, edge_order: int = 1) -> Any:
    """Derivatives by central differences, second order inside and of ``edge_order`` (1 or 2) at the ends.

    Spacings are numbers or coordinates, one for each axis or one for all. An array for one axis, else a tuple.
    """
    y = floating(f)
    axes = tuple(range(y.ndim)) if axis is None else tuple(
        axis_index(int(i), y.ndim) for i in ((axis,) if isinstance(axis, int) else axis))
    steps = varargs or (1.0,)
    if len(steps) == 1:
        steps = steps * len(axes)
    if len(steps) != len(axes):
        raise ShapeError(f"gradient along {len(axes)} axes with {len(steps)} spacings", why="each axis has one spacing",
                         do="pass one spacing, or one for each axis")
    if edge_order not in (1, 2):
        raise ValueIssue(f"gradient with edge_order {edge_order}", why="it is 1 or 2", do="pass one of them")
    outs = tuple([_gradient(y, h, a, edge_order) for a, h in zip(axes, steps, strict=True)])
    return outs[0] if len(outs) == 1 else outs


def _gradient(y: Array, spacing: Any, a: int, edge_order: int) -> Array:
    n = y.shape[a]
    if n < edge_order + 1:
        raise ShapeError(f"gradient along axis {a} of shape {y.shape}",
                         why=f"it needs at least {edge_order + 1} points",
                         do="pass more points, or a lower edge_order")
    s = spacing if is_scalar(spacing) else as_array(spacing)
    if is_scalar(s) or s.ndim == 0:
        h: Any = broadcast(cast(as_array(s), y.dtype), (n - 1,))
    elif s.ndim == 1 and s.shape[0] == n:
        h = cast(diff(s), y.dtype)
    else:
        raise ShapeError(f"gradient along axis {a} of size {n} with coordinates of shape {s.shape}",
                         why="each point has one coordinate", do="pass a number, or a vector of that size")
    h = as_axis(h, a, y.ndim)

    def at(k: int) -> Array:
        return _cut(y, a, k % n, k % n + 1)

    def step(k: int) -> Array:
        m = n - 1
        return _cut(h, a, k % m, k % m + 1)

    if edge_order == 1:
        first, last = (at(1) - at(0)) / step(0), (at(-1) - at(-2)) / step(-1)
    else:
        u, v = step(0), step(1 % (n - 1))
        first = -(2 * u + v) / (u * (u + v)) * at(0) + (u + v) / (u * v) * at(1) - u / (v * (u + v)) * at(2)
        u, v = step(-2), step(-1)
        last = v / (u * (u + v)) * at(-3) - (v + u) / (u * v) * at(-2) + (2 * v + u) / (v * (u + v)) * at(-1)
    if n == 2:
        return concat([first, last], axis=a)
    left, right = _cut(h, a, 0, n - 2), _cut(h, a, 1, n - 1)
    before, here, after = _cut(y, a, 0, n - 2), _cut(y, a, 1, n - 1), _cut(y, a, 2, n)
    inside = (left * left * after + (right * right - left * left) * here - right * right * before) / (
        left * right * (left + right))
    return concat([first, inside, last], axis=a)


@public
def interp(x: Any, xp: Any, fp: Any, /, left: Any = None, right: Any = None, period: float | None = None) -> Array:
    """Linear interpolation of the points ``(xp, fp)`` at ``x``; ``xp`` increases.

    Beyond the ends the value is ``left`` and ``right`` (the first and last of ``fp`` by default).
    """
    at, points = floating(x), floating(xp)
    f = floating(fp)
    if points.ndim != 1 or f.shape != points.shape:
        raise ShapeError(f"interp through points of shapes {points.shape} and {f.shape}",
                         why="both are vectors of one length",
                         do="pass as many values as points")
    if points.shape[0] == 0:
        raise ShapeError("interp through no points", why="there is nothing to interpolate",
                         do="pass at least one point")
    at, points = promote(at, points)
    if period is not None:
        at, points = at % period, points % period
        order = FUNCTIONS["argsort"](points)
        points, f = gather(points, order), gather(f, order)
        points = concat([points[-1:] - period, points, points[:1] + period])
        f = concat([f[-1:], f, f[:1]])
    n = points.shape[0]
    hi = FUNCTIONS["clip"](FUNCTIONS["searchsorted"](points, at, side="right"), 1, builtins.max(n - 1, 1))
    x0, x1, f0, f1 = gather(points, hi - 1), gather(points, hi), gather(f, hi - 1), gather(f, hi)
    inside = FUNCTIONS["where"](at == x0, f0, f0 + (at - x0) * ((f1 - f0) / (x1 - x0)))
    inside = FUNCTIONS["where"](at == x1, f1, inside)
    out = FUNCTIONS["where"](at < points[0], f[0] if left is None else left, inside)
    return FUNCTIONS["where"](at > points[-1], f[-1] if right is None else right, out)


# Convolution

@public
def convolve(x: Any, kernel: Any, /, mode: str = "full") -> Array:
    """``out[k] = sum_i x[i] kernel[k - i]`` of vectors; ``mode``: ``full``, ``same`` or ``valid``.

    A product with sliding windows: exact sums of products in the arrays' dtype.
    """
    a, v = promote(x, kernel)
    if a.ndim != 1 or v.ndim != 1 or not a.shape[0] or not v.shape[0]:
        raise ShapeError(f"convolve shapes {a.shape} and {v.shape}", why="both are vectors with at least one element",
                         do="use one axis at a time")
    if mode not in ("full", "same", "valid"):
        raise ValueIssue(f"convolve with mode {mode!r}", why="it is 'full', 'same' or 'valid'", do="pass one of them")
    if v.shape[0] > a.shape[0]:
        a, v = v, a
    m = v.shape[0]
    if mode == "full":
        a = pad_with(a, (m - 1,), (m - 1,), 0)
    elif mode == "same":
        a = pad_with(a, (m // 2,), (m - 1 - m // 2,), 0)
    sliding = windows(a, (0,), (m,), (1,), (1,))
    return dot(sliding, flip(v), ((1,), (0,)))


@public
def correlate(x: Any, kernel: Any, /, mode: str = "valid") -> Array:
    """``out[k] = sum_i x[i + k] conj(kernel[i])`` of vectors; ``mode`` as in :func:`convolve`."""
    a, v = promote(x, kernel)
    if a.ndim == 1 and v.ndim == 1 and a.shape[0] < v.shape[0]:
        return flip(FUNCTIONS["conj"](correlate(v, a, mode)))
    return convolve(a, flip(FUNCTIONS["conj"](v)), mode)


# Comparison of arrays

@public
def isclose(x1: Any, x2: Any, /, rtol: float = 1e-5, atol: float = 1e-8, *, equal_nan: bool = False) -> Array:
    """Whether ``|x1 - x2| <= atol + rtol |x2|``; infinities are close to themselves."""
    a, b = promote(x1, x2)
    if not a.dtype.is_inexact:
        a, b = floating(a), floating(b)
    near = FUNCTIONS["abs"](a - b) <= atol + rtol * FUNCTIONS["abs"](b)
    out = FUNCTIONS["logical_or"](FUNCTIONS["logical_and"](near, FUNCTIONS["isfinite"](b)), a == b)
    if equal_nan:
        out = FUNCTIONS["logical_or"](out, FUNCTIONS["logical_and"](FUNCTIONS["isnan"](a), FUNCTIONS["isnan"](b)))
    return out


@public
def allclose(x1: Any, x2: Any, /, rtol: float = 1e-5, atol: float = 1e-8, *, equal_nan: bool = False) -> Array:
    """Whether all elements are close: see :func:`isclose`."""
    return FUNCTIONS["all"](isclose(x1, x2, rtol=rtol, atol=atol, equal_nan=equal_nan))


@public
def array_equal(x1: Any, x2: Any, /, equal_nan: bool = False) -> Array:
    """Whether shapes and all elements are equal."""
    a, b = as_array(x1), as_array(x2)
    if a.shape != b.shape:
        return FUNCTIONS["asarray"](False)
    return FUNCTIONS["all"](_same(a, b, equal_nan))


@public
def array_equiv(x1: Any, x2: Any, /) -> Array:
    """Whether shapes broadcast and all elements are equal."""
    a, b = as_array(x1), as_array(x2)
    try:
        broadcast_shapes(a.shape, b.shape)
    except ShapeError:
        return FUNCTIONS["asarray"](False)
    return FUNCTIONS["all"](a == b)


def _same(a: Array, b: Array, equal_nan: bool) -> Array:
    out = FUNCTIONS["equal"](a, b)
    if equal_nan:
        out = FUNCTIONS["logical_or"](out, FUNCTIONS["logical_and"](FUNCTIONS["isnan"](a), FUNCTIONS["isnan"](b)))
    return out


@public
def nan_to_num(x: Any, /, *, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None) -> Array:
    """``x`` with NaN and infinities replaced by numbers (by default 0 and the largest of the dtype)."""
    a = as_array(x)
    if not a.dtype.is_inexact:
        return a
    if a.dtype.is_complex:
        parts = [nan_to_num(FUNCTIONS[p](a), nan=nan, posinf=posinf, neginf=neginf) for p in ("real", "imag")]
        return FUNCTIONS["_complex"](*parts)
    limits = FUNCTIONS["finfo"](a.dtype)
    high = limits.max if posinf is None else posinf
    low = limits.min if neginf is None else neginf
    out = FUNCTIONS["where"](FUNCTIONS["isnan"](a), nan, a)
    out = FUNCTIONS["where"](out == float("inf"), high, out)
    return FUNCTIONS["where"](out == float("-inf"), low, out)


@public
def unwrap(p: Any, /, *, axis: int = -1, period: float = 6.283185307179586) -> Array:
    """Angles with jumps of more than half a period removed by adding whole periods."""
    x = floating(p)
    a = axis_index(axis, x.ndim)
    d = diff(x, axis=a)
    wrapped = FUNCTIONS["remainder"](d + period / 2, period) - period / 2
    wrapped = FUNCTIONS["where"](FUNCTIONS["logical_and"](wrapped == -period / 2, d > 0), period / 2, wrapped)
    jump = FUNCTIONS["where"](FUNCTIONS["abs"](d) < period / 2, 0.0, wrapped - d)
    total = FUNCTIONS["cumulative_sum"](jump, axis=a)
    return x + pad_with(total, [1 if i == a else 0 for i in range(x.ndim)], [0] * x.ndim, 0)


# Spacings

@public
def logspace(start: Any, stop: Any, /, num: int = 50, endpoint: bool = True, base: float = 10.0,
             dtype: Any = None, *, device: str | None = None) -> Array:
    """``base ** linspace(start, stop)``."""
    y = FUNCTIONS["linspace"](start, stop, num, device=device, endpoint=endpoint)
    out = FUNCTIONS["pow"](FUNCTIONS["full_like"](y, base), y)
    return out if dtype is None else out.astype(dtype)


@public
def geomspace(start: float, stop: float, /, num: int = 50, endpoint: bool = True, dtype: Any = None, *,
              device: str | None = None) -> Array:
    """``num`` values from ``start`` to ``stop``, each the same multiple of the one before."""
    if start == 0 or stop == 0 or (start < 0) != (stop < 0):
        raise ValueIssue(f"geomspace from {start} to {stop}", why="a geometric sequence does not reach or cross 0",
                         do="pass two numbers of one sign")
    import math
    low, high = math.log10(abs(start)), math.log10(abs(stop))
    y = FUNCTIONS["linspace"](low, high, num, device=device, endpoint=endpoint)
    out = FUNCTIONS["pow"](FUNCTIONS["full_like"](y, 10.0), y) * (1.0 if start > 0 else -1.0)
    i = iota(num, dt.int64, out._value.node.device)
    out = FUNCTIONS["where"](i == 0, float(start), out)
    if endpoint and num > 1:
        out = FUNCTIONS["where"](i == num - 1, float(stop), out)
    return out if dtype is None else out.astype(dtype)


@public
def indices(dimensions: Sequence[int], /, dtype: Any = None, sparse: bool = False) -> Any:
    """The indices of a grid: ``out[k, i0, i1, ...] = i_k``; with ``sparse`` a tuple of arrays that broadcast to it."""
    shape = tuple(dimensions)
    if sparse:
        return tuple([as_axis(FUNCTIONS["arange"](n, dtype=dtype or dt.int64), i, len(shape))
                      for i, n in enumerate(shape)])
    out = FUNCTIONS["stack"](coordinates(shape))
    return out if dtype is None else out.astype(dtype)


