"""Norms and condition numbers."""

from __future__ import annotations

from math import inf
from typing import Any

import rlx
from rlx.array.array import Array
from rlx.array.build import as_array, cast
from rlx.core.errors import DTypeError, ShapeError, ValueIssue
from rlx.core.shape import axes_tuple, axis_index
from rlx.linalg.arguments import floats
from rlx.linalg.errors import MatrixShapeError, matrix, square
from rlx.linalg.solvers import inv
from rlx.linalg.spectral import svdvals
from rlx.ops.floating import floating


def vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Array:
    """``(sum |x|^ord)^(1/ord)`` over axes (all by default); inf and -inf the largest and smallest, 0 the nonzeros.

    The gradient of the 2-norm at zero is zero.
    """
    a = rlx.abs(floating(x))
    axes = axes_tuple(axis, a.ndim)
    if not axes:
        return cast(rlx.not_equal(a, 0), a.dtype) if ord == 0 else a
    if isinstance(ord, str):
        raise ValueIssue(f"a vector norm of order {ord!r}", why="vectors have numbers for orders",
                         do="pass a number, or take matrix_norm")
    if ord == inf:
        return rlx.max(a, axis=axes, keepdims=keepdims)
    if ord == -inf:
        return rlx.min(a, axis=axes, keepdims=keepdims)
    if ord == 0:
        return rlx.sum(cast(rlx.not_equal(a, 0), a.dtype), axis=axes, keepdims=keepdims)
    if ord == 1:
        return rlx.sum(a, axis=axes, keepdims=keepdims)
    if ord == 2:
        return _root(rlx.sum(a * a, axis=axes, keepdims=keepdims))
    return rlx.pow(rlx.sum(rlx.pow(a, float(ord)), axis=axes, keepdims=keepdims), 1.0 / ord)


def _root(s: Array) -> Array:
    """The square root, with a zero gradient at zero."""
    zero = rlx.equal(s, 0)
    return rlx.where(zero, 0.0, rlx.sqrt(rlx.where(zero, 1, s)))


def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Array:
    """The norm of ``(..., m, n)``: 'fro', 'nuc' (sum of singular values), 1/-1 (columns), inf/-inf (rows), 2/-2."""
    a = matrix(floating(x), "matrix_norm")
    if ord in ("fro", None):
        return vector_norm(a, axis=(-2, -1), keepdims=keepdims)
    if ord in (2, -2, "nuc"):
        s = svdvals(a)
        pick = {2: rlx.max, -2: rlx.min, "nuc": rlx.sum}[ord]
        out = pick(s, axis=-1)
    elif ord in (1, -1, inf, -inf):
        sums = rlx.sum(rlx.abs(a), axis=-2 if ord in (1, -1) else -1)
        out = (rlx.max if ord > 0 else rlx.min)(sums, axis=-1)
    else:
        raise ValueIssue(f"a matrix norm of order {ord!r}", why="the orders are 'fro', 'nuc', 1, -1, 2, -2, inf, -inf",
                         do="pass one of them")
    return out[..., None, None] if keepdims else out


def norm(x: Any, /, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Array:
    """NumPy's norm: of one axis a vector norm, of two a matrix norm, of none the 2-norm of all elements.

    >>> import rlx
    >>> rlx.linalg.norm([3.0, 4.0]).item()
    5.0
    """
    a = as_array(x)
    if a.dtype.kind not in "biufc":
        raise DTypeError(f"norm() of {a.dtype.name}", why="it is not a number", do="cast it")
    if axis is None and (ord is None or (ord in ("f", "fro") and a.ndim == 2) or (ord == 2 and a.ndim == 1)):
        return vector_norm(a, keepdims=keepdims)
    axes = axes_tuple(axis, a.ndim)
    if len(axes) == 1:
        return vector_norm(a, axis=axes, keepdims=keepdims, ord=2 if ord is None else ord)
    if len(axes) != 2:
        raise ShapeError(f"norm() over {len(axes)} axes of an array of shape {a.shape}",
                         why="there are norms of vectors and of matrices", do="name one or two axes")
    # Rows and columns as they were named: a matrix norm of order 1 is of columns.
    rows_columns = axes if axis is None else tuple(axis_index(int(i), a.ndim) for i in axis)
    order = (*(i for i in range(a.ndim) if i not in axes), *rows_columns)
    out = matrix_norm(rlx.permute_dims(a, order), ord="fro" if ord in (None, "f") else ord)
    if keepdims:
        out = out.reshape(tuple(1 if i in axes else n for i, n in enumerate(a.shape)))
    return out


def cond(x: Any, p: Any = None) -> Array:
    """The condition number ``|A| |A^-1|`` in a norm of :func:`norm`; by singular values for None, 2 and -2.

    A singular matrix has condition inf.
    """
    (a,) = floats("cond", x)
    if 0 in matrix(a, "cond").shape[-2:]:
        raise MatrixShapeError(f"cond() of an array of shape {a.shape}", why="an empty matrix has no condition",
                               do="check the shape first")
    if p in (None, 2, -2):
        s = svdvals(a)
        top, low = s[..., 0], s[..., -1]
        over, under = (low, top) if p == -2 else (top, low)
        out = rlx.where(rlx.equal(under, 0), inf, over / rlx.where(rlx.equal(under, 0), 1, under))
        return rlx.where(rlx.isnan(s[..., 0]), float("nan"), out)
    square(a, "cond")
    order = "fro" if p == "f" else p
    out = matrix_norm(a, ord=order) * matrix_norm(inv(a, errors="nan"), ord=order)
    lost = rlx.logical_and(rlx.isnan(out), rlx.logical_not(rlx.any(rlx.isnan(a), axis=(-2, -1))))
    return rlx.where(lost, inf, out)
