"""Reductions over axes, and the statistics made of them."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlx.array.array import FUNCTIONS, Array
from rlx.array.build import as_array, cast, emit1
from rlx.array.define import op, primitive, public
from rlx.core import dtype as dt
from rlx.core.errors import DTypeError, ShapeError
from rlx.core.shape import axes_tuple, axis_index
from rlx.ir.graph import Type
from rlx.ir.op import Sample
from rlx.ops.floating import floating
from rlx.ops.movement import positions, reshape

Axis = int | Sequence[int] | None
_reduce = primitive("reduce")


@_reduce.infer
def _(x: Type, *, kind: str, axes: tuple[int, ...]) -> Type:
    return Type(x.dtype, tuple(n for i, n in enumerate(x.shape) if i not in axes))


def _restore(y: Array, x: Array, axes: tuple[int, ...]) -> Array:
    """``y`` with the reduced axes back as size 1, broadcast to ``x``."""
    kept = tuple(1 if i in axes else n for i, n in enumerate(x.shape))
    return FUNCTIONS["broadcast_to"](reshape(y, kept), x.shape)


@_reduce.grad
def _(ct: Array, out: Array, x: Array, *, kind: str, axes: tuple[int, ...]) -> tuple[Array | None]:
    if kind == "sum":
        return (_restore(ct, x, axes),)
    if kind in ("min", "max"):
        hit = FUNCTIONS["equal"](x, _restore(out, x, axes))
        n = _restore(sum(cast(hit, x.dtype), axis=axes), x, axes)
        return (FUNCTIONS["where"](hit, _restore(ct, x, axes) / n, 0),)
    if kind == "prod":
        return (_restore(ct, x, axes) * FUNCTIONS["conj"](_products_of_others(x, axes)),)
    return (None,)


def _products_of_others(x: Array, axes: tuple[int, ...]) -> Array:
    """For each element, the product of the others along the axes; right where elements are zero."""
    where, equal = FUNCTIONS["where"], FUNCTIONS["equal"]
    zero = equal(x, 0)
    zeros = _restore(sum(cast(zero, dt.int64), axis=axes), x, axes)
    nonzero = _restore(prod(where(zero, 1, x), axis=axes), x, axes)
    alone = where(zero, where(equal(zeros, 1), nonzero, 0), where(equal(zeros, 0), nonzero / where(zero, 1, x), 0))
    return cast(alone, x.dtype)


def _reduced(x: Array, kind: str, axis: Axis, keepdims: bool) -> Array:
    axes = axes_tuple(axis, x.ndim)
    out = emit1("reduce", x, kind=kind, axes=axes) if axes else x
    return reshape(out, tuple(1 if i in axes else n for i, n in enumerate(x.shape))) if keepdims else out


def accumulator(x: Array, dtype: Any) -> Array:
    """Small integers and booleans are summed in 64 bits, as in NumPy."""
    if dtype is not None:
        return FUNCTIONS["astype"](x, dtype)
    if x.dtype.kind == "u":
        return cast(x, dt.uint64)
    return cast(x, dt.int64) if x.dtype.kind in "bi" else x


@public
def sum(x: Array, /, axis: Axis = None, dtype: Any = None, *, keepdims: bool = False) -> Array:
    """The sum over axes (all by default); integers are summed in 64 bits."""
    return _reduced(accumulator(as_array(x), dtype), "sum", axis, keepdims)


@public
def prod(x: Array, /, axis: Axis = None, dtype: Any = None, *, keepdims: bool = False) -> Array:
    """The product over axes (all by default); integers are multiplied in 64 bits."""
    return _reduced(accumulator(as_array(x), dtype), "prod", axis, keepdims)


def _extremum(kind: str) -> Callable[..., Array]:
    def f(x: Array, /, axis: Axis = None, *, keepdims: bool = False) -> Array:
        x = as_array(x)
        if x.dtype.is_complex:
            raise DTypeError(f"{kind}() of a {x.dtype.name} array of shape {x.shape}",
                             why="complex numbers have no order", do="take rlx.abs(x) or rlx.real(x) first")
        axes = axes_tuple(axis, x.ndim)
        if builtins.any(x.shape[a] == 0 for a in axes):
            raise ShapeError(f"{kind}() of an array of shape {x.shape}", why="an empty axis has no extremum",
                             do="check the size first")
        return _reduced(x, kind, axis, keepdims)
    f.__name__ = kind
    f.__doc__ = f"The {kind}imum over axes (all by default); NaN if any is NaN."
    return public(f)


min, max = _extremum("min"), _extremum("max")


@public
def any(x: Array, /, axis: Axis = None, *, keepdims: bool = False) -> Array:
    """Whether any element is true (nonzero)."""
    return _reduced(_truth(as_array(x)), "or", axis, keepdims)


@public
def all(x: Array, /, axis: Axis = None, *, keepdims: bool = False) -> Array:
    """Whether all elements are true (nonzero)."""
    return _reduced(_truth(as_array(x)), "and", axis, keepdims)


def _truth(x: Array) -> Array:
    return x if x.dtype == dt.bool_ else FUNCTIONS["not_equal"](x, 0)


def _size(x: Array, axes: tuple[int, ...]) -> int:
    n = 1
    for a in axes:
        n = n * x.shape[a]
    return n


@public
def mean(x: Array, /, axis: Axis = None, dtype: Any = None, *, keepdims: bool = False) -> Array:
    """The arithmetic mean over axes (all by default), computed in ``dtype`` if one is given."""
    x = floating(as_array(x)) if dtype is None else FUNCTIONS["astype"](as_array(x), dtype)
    return sum(x, axis=axis, keepdims=keepdims) / _size(x, axes_tuple(axis, x.ndim))


@public
def var(x: Array, /, axis: Axis = None, *, correction: float = 0.0, keepdims: bool = False,
        ddof: float | None = None) -> Array:
    """The variance ``sum(|x - mean|^2) / (n - correction)`` over axes; ``ddof`` is NumPy's name of ``correction``."""
    correction = correction if ddof is None else ddof
    x = floating(as_array(x))
    axes = axes_tuple(axis, x.ndim)
    d = FUNCTIONS["abs"](x - mean(x, axis=axes, keepdims=True))
    return sum(d * d, axis=axes, keepdims=keepdims) / (_size(x, axes) - correction)


@public
def std(x: Array, /, axis: Axis = None, *, correction: float = 0.0, keepdims: bool = False,
        ddof: float | None = None) -> Array:
    """The standard deviation: the square root of :func:`var`."""
    return FUNCTIONS["sqrt"](var(x, axis=axis, correction=correction, keepdims=keepdims, ddof=ddof))


def _arg(kind: str) -> Callable[..., Array]:
    def f(x: Array, /, axis: int | None = None, *, keepdims: bool = False) -> Array:
        x = as_array(x)
        rank = x.ndim
        if axis is None:
            x, a = reshape(x, (-1,)), 0
        else:
            a = axis_index(axis, rank)
        if x.shape[a] == 0:
            raise ShapeError(f"arg{kind}() of an array of shape {x.shape}", why="an empty axis has no extremum",
                             do="check the size first")
        if x.dtype.is_complex:
            raise DTypeError(f"arg{kind}() of a {x.dtype.name} array of shape {x.shape}",
                             why="complex numbers have no order", do="take rlx.abs(x) or rlx.real(x) first")
        best = _reduced(x, kind, a, True)
        hit = FUNCTIONS["equal"](x, best)
        if x.dtype.is_float:
            hit = FUNCTIONS["bitwise_or"](hit, FUNCTIONS["isnan"](x))
        out = _reduced(FUNCTIONS["where"](hit, positions(x, a), x.shape[a]), "min", a, axis is not None and keepdims)
        return reshape(out, (1,) * rank) if axis is None and keepdims else out
    f.__name__ = f"arg{kind}"
    f.__doc__ = f"The index of the first {kind}imum along an axis (of the flattened array by default)."
    return public(f)


argmin, argmax = _arg("min"), _arg("max")


@op
def softmax(x: Array, /, *, axis: int = -1) -> Array:
    """``exp(x - max(x)) / sum(exp(x - max(x)))`` along an axis."""
    e = FUNCTIONS["exp"](x - FUNCTIONS["stop_gradient"](max(x, axis=axis, keepdims=True)))
    return e / sum(e, axis=axis, keepdims=True)


@softmax.ref
def _(x: Any, *, axis: int = -1) -> Any:
    e = np.exp(x - np.max(x, axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


@softmax.samples
def _() -> list[Sample]:
    x = np.random.default_rng(0).standard_normal((4, 9))
    return [Sample((x,), name="rows"), Sample((x.astype(np.float32),), {"axis": 0}, name="columns"),
            Sample((np.array([[1e4, 1e4 - 1, -1e4]]),), name="large", edge=True)]


@op
def logsumexp(x: Array, /, *, axis: int = -1, keepdims: bool = False) -> Array:
    """``log(sum(exp(x)))`` along an axis, without overflow."""
    m = FUNCTIONS["stop_gradient"](max(x, axis=axis, keepdims=True))
    m = FUNCTIONS["where"](FUNCTIONS["isfinite"](m), m, 0)
    total = sum(FUNCTIONS["exp"](x - m), axis=axis, keepdims=keepdims)
    return FUNCTIONS["log"](total) + reshape(m, total.shape)


@logsumexp.ref
def _(x: Any, *, axis: int = -1, keepdims: bool = False) -> Any:
    from scipy.special import logsumexp as oracle
    return oracle(x, axis=axis, keepdims=keepdims)


@logsumexp.samples
def _() -> list[Sample]:
    x = np.random.default_rng(1).standard_normal((4, 9))
    return [Sample((x,), name="rows"), Sample((x,), {"axis": 0, "keepdims": True}, name="kept"),
            Sample((np.array([[1e4, 1e4], [-1e4, -1e4]]),), name="large", edge=True),
            Sample((np.array([[-np.inf, -np.inf], [-np.inf, 0.0]]),), name="empty", edge=True, grad=False)]
