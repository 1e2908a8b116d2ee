"""Statistics: order statistics, weighted means, covariance, and reductions that ignore NaN."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlx.array.array import FUNCTIONS, Array
from rlx.array.build import as_array, broadcast, cast
from rlx.array.define import public
from rlx.core import dtype as dt
from rlx.core.errors import DTypeError, ShapeError, ValueIssue
from rlx.core.shape import axes_tuple, axis_index
from rlx.ops.floating import floating
from rlx.ops.movement import permute_dims, reshape

Axis = int | Sequence[int] | None


@public
def ptp(x: Any, /, axis: Axis = None, *, keepdims: bool = False) -> Array:
    """The range, ``max - min``, over axes."""
    return FUNCTIONS["max"](x, axis=axis, keepdims=keepdims) - FUNCTIONS["min"](x, axis=axis, keepdims=keepdims)


@public
def average(x: Any, /, axis: Axis = None, weights: Any = None, *, returned: bool = False,
            keepdims: bool = False) -> Any:
    """The weighted mean ``sum(w x) / sum(w)`` over axes; with ``returned`` also the sum of the weights."""
    a = floating(x)
    if weights is None:
        w = FUNCTIONS["ones_like"](a)
    else:
        w = as_array(weights)
        if w.shape != a.shape:
            if not isinstance(axis, int) or w.ndim != 1 or w.shape[0] != a.shape[axis]:
                raise ShapeError(f"average of shape {a.shape} with weights of shape {w.shape}",
                                 why="weights have the shape of the array, or of one axis",
                                 do="pass axis= for a vector of weights")
            k = axis_index(axis, a.ndim)
            w = broadcast(reshape(w, tuple(-1 if i == k else 1 for i in range(a.ndim))), a.shape)
    total = FUNCTIONS["sum"](w, axis=axis, keepdims=keepdims)
    mean = FUNCTIONS["sum"](a * w, axis=axis, keepdims=keepdims) / total
    return (mean, broadcast(cast(total, mean.dtype), mean.shape)) if returned else mean


#: Position of quantile q among n sorted values, from 0, as (alpha, beta): n q + alpha + q (1 - alpha - beta) - 1
#: (Hyndman and Fan, Sample Quantiles in Statistical Packages, 1996, definitions 4 to 9).
_CONTINUOUS: dict[str, tuple[float, float]] = {
    "linear": (1.0, 1.0), "interpolated_inverted_cdf": (0.0, 1.0), "hazen": (0.5, 0.5), "weibull": (0.0, 0.0),
    "median_unbiased": (1 / 3, 1 / 3), "normal_unbiased": (3 / 8, 3 / 8),
}
_METHODS = (*_CONTINUOUS, "lower", "higher", "midpoint", "nearest", "inverted_cdf", "averaged_inverted_cdf")


def _position(q: Array, n: Any, method: str) -> tuple[Array, Array, Array]:
    """(lower index, upper index, weight of the upper) of quantile q among n sorted values."""
    floor, ceil, where = FUNCTIONS["floor"], FUNCTIONS["ceil"], FUNCTIONS["where"]
    if method in ("inverted_cdf", "averaged_inverted_cdf"):
        h = q * n
        low = ceil(h) - 1
        high = where(FUNCTIONS["logical_and"](floor(h) == h, method[0] == "a"), low + 1, low)
        return low, high, where(high == low, q * 0, q * 0 + 0.5)
    alpha, beta = _CONTINUOUS.get(method, (1.0, 1.0))
    h = q * n + (alpha - 1 + q * (1 - alpha - beta))
    if method == "lower":
        return floor(h), floor(h), q * 0
    if method == "higher":
        return ceil(h), ceil(h), q * 0
    if method == "nearest":
        return FUNCTIONS["round"](h), FUNCTIONS["round"](h), q * 0
    low = floor(h)
    weight = h - low
    return low, low + 1, where(weight == 0, weight, 0.5) if method == "midpoint" else weight


def _front(x: Array, axis: Axis) -> tuple[Array, tuple[int, ...], int]:
    """The reduced axes flattened into a last one; the axes, and their number of elements."""
    axes = axes_tuple(axis, x.ndim)
    rest = tuple(i for i in range(x.ndim) if i not in axes)
    n = 1
    for a in axes:
        n *= x.shape[a]
    return reshape(permute_dims(x, (*rest, *axes)), (*[x.shape[i] for i in rest], n)), axes, n


def _quantile(x: Any, q: Any, axis: Axis, method: str, keepdims: bool, skip_nan: bool) -> Array:
    a = floating(x)
    if a.dtype.is_complex:
        raise DTypeError(f"quantile of {a.dtype.name}", why="complex numbers have no order", do="take rlx.abs(x) first")
    if method not in _METHODS:
        raise ValueIssue(f"quantile with method {method!r}", why="methods are a fixed set",
                         do=f"use one of {', '.join(_METHODS)}")
    qs = cast(as_array(q, device=a._value.node.device), a.dtype)
    _check_q(q)
    flat, axes, n = _front(a, axis)
    if n == 0:
        raise ShapeError(f"quantile of an array of shape {a.shape}", why="there is no value", do="check the size first")
    values = FUNCTIONS["sort"](flat, axis=-1)
    bad = FUNCTIONS["isnan"](values)
    lead = values.shape[:-1]
    grid = reshape(qs, (-1, *(1,) * len(lead)))
    m: Any = FUNCTIONS["sum"](cast(FUNCTIONS["logical_not"](bad), a.dtype), axis=-1) if skip_nan else float(n)
    low, high, weight = _position(grid, m, method)
    top = FUNCTIONS["maximum"](m - 1, 0.0)
    pick = [FUNCTIONS["moveaxis"](broadcast(FUNCTIONS["clip"](FUNCTIONS["minimum"](i, top), 0.0, None),
                                            (grid.shape[0], *lead)), 0, -1) for i in (low, high)]
    lo, hi = (FUNCTIONS["moveaxis"](FUNCTIONS["take_along_axis"](values, cast(i, dt.int64), axis=-1), -1,
                                    0) for i in pick)
    # Where both are the same (perhaps infinite) value, no arithmetic is done on it.
    out = FUNCTIONS["where"](FUNCTIONS["logical_or"](lo == hi, weight == 0), lo, lo + (hi - lo) * weight)
    poison = bad[..., 0] if skip_nan else bad[..., -1]
    out = FUNCTIONS["where"](poison, float("nan"), out)
    shape = tuple(1 if i in axes else s for i, s in enumerate(a.shape)) if keepdims else lead
    return reshape(out, (*qs.shape, *shape))


def _check_q(q: Any) -> None:
    """Raise for a known fraction outside [0, 1]; one that is pending or traced is not looked at."""
    if isinstance(q, Array) and not q.is_evaluated:
        return
    host = np.asarray(q)
    if host.size and not bool(((host >= 0) & (host <= 1)).all()):
        raise ValueIssue("quantile outside [0, 1]", why="it is a fraction of the values",
                         do="pass a fraction, or use rlx.percentile for percents")


@public
def quantile(x: Any, q: Any, /, axis: Axis = None, *, method: str = "linear", keepdims: bool = False) -> Array:
    """The value below which the fraction ``q`` of the values lies; the axes of ``q`` come first in the result.

    ``method`` names how values between two elements are chosen, with NumPy's names. NaN if any value is NaN.
    """
    return _quantile(x, q, axis, method, keepdims, False)


@public
def percentile(x: Any, q: Any, /, axis: Axis = None, *, method: str = "linear", keepdims: bool = False) -> Array:
    """:func:`quantile` of ``q / 100``."""
    return _quantile(x, _hundredth(q), axis, method, keepdims, False)


@public
def median(x: Any, /, axis: Axis = None, *, keepdims: bool = False) -> Array:
    """The middle value, or the mean of the two middle ones, over axes."""
    return _quantile(x, 0.5, axis, "linear", keepdims, False)


def _hundredth(q: Any) -> Any:
    return q / 100.0 if isinstance(q, (int, float)) else as_array(q) / 100.0


@public
def nanquantile(x: Any, q: Any, /, axis: Axis = None, *, method: str = "linear", keepdims: bool = False) -> Array:
    """:func:`quantile` of the values that are not NaN; NaN where all are."""
    return _quantile(x, q, axis, method, keepdims, True)


@public
def nanpercentile(x: Any, q: Any, /, axis: Axis = None, *, method: str = "linear", keepdims: bool = False) -> Array:
    """:func:`percentile` of the values that are not NaN."""
    return _quantile(x, _hundredth(q), axis, method, keepdims, True)


@public
def nanmedian(x: Any, /, axis: Axis = None, *, keepdims: bool = False) -> Array:
    """:func:`median` of the values that are not NaN."""
    return _quantile(x, 0.5, axis, "linear", keepdims, True)


# Reductions that ignore NaN

def _filled(x: Any, value: Any) -> Array:
    a = as_array(x)
    return FUNCTIONS["where"](FUNCTIONS["isnan"](a), value, a) if a.dtype.is_inexact else a


def _present(x: Array, axis: Axis, keepdims: bool) -> Array:
    return FUNCTIONS["count_nonzero"](FUNCTIONS["logical_not"](FUNCTIONS["isnan"](x)), axis=axis, keepdims=keepdims)


@public
def nansum(x: Any, /, axis: Axis = None, *, dtype: Any = None, keepdims: bool = False) -> Array:
    """The sum, with NaN counted as 0."""
    return FUNCTIONS["sum"](_filled(x, 0), axis=axis, dtype=dtype, keepdims=keepdims)


@public
def nanprod(x: Any, /, axis: Axis = None, *, dtype: Any = None, keepdims: bool = False) -> Array:
    """The product, with NaN counted as 1."""
    return FUNCTIONS["prod"](_filled(x, 1), axis=axis, dtype=dtype, keepdims=keepdims)


@public
def nancumsum(x: Any, /, axis: int | None = None) -> Array:
    """The running sum, with NaN counted as 0."""
    return FUNCTIONS["cumulative_sum"](_filled(x, 0), axis=axis)


@public
def nancumprod(x: Any, /, axis: int | None = None) -> Array:
    """The running product, with NaN counted as 1."""
    return FUNCTIONS["cumulative_prod"](_filled(x, 1), axis=axis)


@public
def nanmean(x: Any, /, axis: Axis = None, *, keepdims: bool = False) -> Array:
    """The mean of the values that are not NaN; NaN where there are none."""
    a = floating(x)
    return nansum(a, axis=axis, keepdims=keepdims) / cast(_present(a, axis, keepdims), a.dtype.real)


@public
def nanvar(x: Any, /, axis: Axis = None, *, correction: float = 0.0, keepdims: bool = False,
           ddof: float | None = None) -> Array:
    """The variance of the values that are not NaN; NaN where there are no more than ``correction`` (or ``ddof``)."""
    correction = correction if ddof is None else ddof
    a = floating(x)
    d = _filled(FUNCTIONS["abs"](a - nanmean(a, axis=axis, keepdims=True)), 0)
    n = cast(_present(a, axis, keepdims), d.dtype) - correction
    total = FUNCTIONS["sum"](d * d, axis=axis, keepdims=keepdims)
    return FUNCTIONS["where"](n > 0, total / n, float("nan"))


@public
def nanstd(x: Any, /, axis: Axis = None, *, correction: float = 0.0, keepdims: bool = False,
           ddof: float | None = None) -> Array:
    """The standard deviation of the values that are not NaN."""
    return FUNCTIONS["sqrt"](nanvar(x, axis=axis, correction=correction, keepdims=keepdims, ddof=ddof))


def _nan_extremum(kind: str, fill: float) -> Callable[..., Array]:
    def f(x: Any, /, axis: Axis = None, *, keepdims: bool = False) -> Array:
        a = as_array(x)
        if not a.dtype.is_float:
            return FUNCTIONS[kind](a, axis=axis, keepdims=keepdims)
        best = FUNCTIONS[kind](_filled(a, fill), axis=axis, keepdims=keepdims)
        return FUNCTIONS["where"](_present(a, axis, keepdims) == 0, float("nan"), best)
    f.__name__ = f.__qualname__ = f"nan{kind}"
    f.__doc__ = f"The {kind}imum of the values that are not NaN; NaN where all are."
    return public(f)


nanmin, nanmax = _nan_extremum("min", float("inf")), _nan_extremum("max", float("-inf"))


def _nan_arg(kind: str, fill: float) -> Callable[..., Array]:
    def f(x: Any, /, axis: int | None = None, *, keepdims: bool = False) -> Array:
        return FUNCTIONS[f"arg{kind}"](_filled(x, fill), axis=axis, keepdims=keepdims)
    f.__name__ = f.__qualname__ = f"nanarg{kind}"
    f.__doc__ = f"The index of the first {kind}imum of the values that are not NaN (0 where all are)."
    return public(f)


nanargmin, nanargmax = _nan_arg("min", float("inf")), _nan_arg("max", float("-inf"))


# Covariance

@public
def cov(m: Any, y: Any = None, /, *, rowvar: bool = True, bias: bool = False, ddof: int | None = None,
        fweights: Any = None, aweights: Any = None) -> Array:
    """The covariance matrix of variables in rows (or columns); ``ddof`` is subtracted from the number of samples.

    ``fweights`` count how often each observation occurs, ``aweights`` weigh them.
    """
    x = floating(m)
    rows = _variables(x, rowvar)
    if y is not None:
        rows = FUNCTIONS["concat"]([rows, _variables(floating(y), rowvar)], axis=0)
    off: Any = ddof if ddof is not None else (0 if bias else 1)
    n = rows.shape[1]
    w = None
    for v in (fweights, aweights):
        if v is not None:
            v = cast(as_array(v), rows.dtype.real)
            w = v if w is None else w * v
    if w is None:
        mean, factor = FUNCTIONS["mean"](rows, axis=1, keepdims=True), builtins.max(n - off, 0)
        d = rows - mean
        scaled: Array = d
    else:
        total = FUNCTIONS["sum"](w)
        d = rows - FUNCTIONS["sum"](rows * w, axis=1, keepdims=True) / total
        share = total if aweights is None else FUNCTIONS["sum"](w * cast(as_array(aweights), w.dtype)) / total
        factor, scaled = total - off * (share if aweights is not None else 1), d * w
    out = FUNCTIONS["matmul"](scaled, FUNCTIONS["conj"](FUNCTIONS["matrix_transpose"](d))) / factor
    return FUNCTIONS["squeeze"](out)


def _variables(x: Array, rowvar: bool) -> Array:
    if x.ndim > 2:
        raise ShapeError(f"covariance of an array of shape {x.shape}", why="variables and observations are two axes",
                         do="reshape it to a matrix")
    x = FUNCTIONS["atleast_2d"](x)
    return x if rowvar or x.shape[0] == 1 else FUNCTIONS["matrix_transpose"](x)


@public
def corrcoef(x: Any, y: Any = None, /, *, rowvar: bool = True) -> Array:
    """Pearson's correlation coefficients: the covariances over the standard deviations, within [-1, 1]."""
    c = cov(x, y, rowvar=rowvar)
    if c.ndim == 0:
        return c / c
    d = FUNCTIONS["sqrt"](FUNCTIONS["real"](FUNCTIONS["diagonal"](c)))
    out = c / reshape(d, (-1, 1)) / reshape(d, (1, -1))
    return out if out.dtype.is_complex else FUNCTIONS["clip"](out, -1.0, 1.0)
