"""Diagonals and triangles of matrices, and matrices made of vectors."""

from __future__ import annotations

import builtins
from typing import Any

from rlx.array.array import FUNCTIONS, Array
from rlx.array.build import as_array, cast, promote
from rlx.array.define import public
from rlx.core import dtype as dt
from rlx.core.errors import ShapeError
from rlx.ops.creation import eye
from rlx.ops.index import gather
from rlx.ops.manipulate import axes_pair
from rlx.ops.movement import iota, pad_with, permute_dims, reshape


@public
def diagonal(x: Any, /, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Array:
    """The elements ``x[i, i + offset]`` of two axes, as a new last axis."""
    x = as_array(x)
    a, b = axes_pair((axis1, axis2), x.ndim)
    x = permute_dims(x, (a, b, *(i for i in range(x.ndim) if i not in (a, b))))
    low, high = builtins.max(-offset, 0), builtins.max(offset, 0)
    n = builtins.max(builtins.min(x.shape[0] - low, x.shape[1] - high), 0)
    i = iota(n, dt.int64, x._value.node.device)
    out = gather(x, i + low if low else i, i + high if high else i, mode="promise")
    return permute_dims(out, (*range(1, out.ndim), 0))


@public
def diag(x: Any, /, k: int = 0) -> Array:
    """The ``k``-th diagonal of a matrix, or the matrix with a vector on its ``k``-th diagonal."""
    x = as_array(x)
    if x.ndim == 2:
        return diagonal(x, k)
    if x.ndim != 1:
        raise ShapeError(f"diag() of an array of shape {x.shape}", why="it takes a vector or a matrix",
                         do="use rlx.diagonal for more axes")
    n = x.shape[0]
    i = iota(n, dt.int64, x._value.node.device)
    square = FUNCTIONS["where"](reshape(i, (n, 1)) == reshape(i, (1, n)), reshape(x, (n, 1)), 0)
    low, high = builtins.max(-k, 0), builtins.max(k, 0)
    return pad_with(square, (low, high), (high, low), 0)


@public
def diagflat(x: Any, /, k: int = 0) -> Array:
    """The matrix with the flattened array on its ``k``-th diagonal."""
    return diag(FUNCTIONS["ravel"](x), k)


@public
def trace(x: Any, /, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None) -> Array:
    """The sum of a diagonal of two axes."""
    return FUNCTIONS["sum"](diagonal(x, offset, axis1, axis2), axis=-1, dtype=dtype)


@public
def identity(n: int, /, dtype: Any = None, *, device: str | None = None) -> Array:
    """The identity matrix of size ``n``."""
    return eye(n, dtype=dtype, device=device)


@public
def tri(n_rows: int, n_cols: int | None = None, /, k: int = 0, dtype: Any = None, *,
        device: str | None = None) -> Array:
    """Ones at and below the ``k``-th diagonal, zeros above."""
    m = n_rows if n_cols is None else n_cols
    return FUNCTIONS["tril"](FUNCTIONS["ones"]((n_rows, m), dtype=dtype, device=device), k=k)


@public
def tril_indices(n: int, /, k: int = 0, m: int | None = None) -> tuple[Array, Array]:
    """Row and column indices of the lower triangle of an ``n`` by ``m`` matrix."""
    return _triangle_indices(n, k, n if m is None else m, True)


@public
def triu_indices(n: int, /, k: int = 0, m: int | None = None) -> tuple[Array, Array]:
    """Row and column indices of the upper triangle of an ``n`` by ``m`` matrix."""
    return _triangle_indices(n, k, n if m is None else m, False)


def _triangle_indices(n: int, k: int, m: int, lower: bool) -> tuple[Array, Array]:
    full = FUNCTIONS["ones"]((n, m), dtype=dt.bool_)
    mask = FUNCTIONS["tril"](full, k=k) if lower else FUNCTIONS["triu"](full, k=k)
    inside = builtins.sum(builtins.min(builtins.max(i + k + 1, 0),
                                       m) if lower else
                          m - builtins.min(builtins.max(i + k, 0), m)
                          for i in range(n))
    rows, cols = FUNCTIONS["nonzero"](mask, size=inside)
    return rows, cols


@public
def vander(x: Any, /, N: int | None = None, increasing: bool = False) -> Array:
    """The matrix of powers of a vector: column ``j`` is ``x ** (N - 1 - j)``, or ``x ** j`` when increasing."""
    x = as_array(x)
    if x.ndim != 1:
        raise ShapeError(f"vander() of an array of shape {x.shape}", why="it takes a vector", do="flatten it first")
    n = x.shape[0] if N is None else N
    if n == 0:
        return FUNCTIONS["zeros"]((x.shape[0], 0), dtype=x.dtype, device=x._value.node.device)
    columns = [FUNCTIONS["ones_like"](x)]
    for _ in range(n - 1):
        columns.append(columns[-1] * x)
    return FUNCTIONS["stack"](columns if increasing else columns[::-1], axis=1)


@public
def kron(a: Any, b: Any, /) -> Array:
    """The Kronecker product: each element of ``a`` times the whole of ``b``.

    >>> import rlx
    >>> rlx.kron([1, 10], [1, 2])
    Array([ 1,  2, 10, 20], int64[4] on cpu)
    """
    x, y = promote(a, b)
    rank = builtins.max(x.ndim, y.ndim)
    xs, ys = (1,) * (rank - x.ndim) + x.shape, (1,) * (rank - y.ndim) + y.shape
    wide = reshape(x, [n for s in xs for n in (s, 1)]) * reshape(y, [n for s in ys for n in (1, s)])
    return reshape(wide, [m * n for m, n in zip(xs, ys, strict=True)])


@public
def inner(x1: Any, x2: Any, /) -> Array:
    """Sums of products over the last axes of both: ``out[..i, ..j] = sum_k x1[..i, k] x2[..j, k]``."""
    x, y = promote(x1, x2)
    if x.ndim == 0 or y.ndim == 0:
        return x * y
    return FUNCTIONS["tensordot"](x, y, axes=((x.ndim - 1,), (y.ndim - 1,)))


@public
def vdot(x1: Any, x2: Any, /) -> Array:
    """``sum(conj(x1) * x2)`` of the flattened arrays."""
    x, y = promote(x1, x2)
    return FUNCTIONS["sum"](FUNCTIONS["conj"](FUNCTIONS["ravel"](x)) * FUNCTIONS["ravel"](y))


@public
def cross(x1: Any, x2: Any, /, *, axis: int = -1) -> Array:
    """The cross product of vectors of three components along an axis."""
    x, y = promote(x1, x2)
    x, y = FUNCTIONS["moveaxis"](x, axis, -1), FUNCTIONS["moveaxis"](y, axis, -1)
    if x.shape[-1] != 3 or y.shape[-1] != 3:
        raise ShapeError(f"cross product along axis {axis} of shapes {x.shape} and {y.shape}",
                         why="vectors of three components have a cross product", do="name the axis of size 3")
    (a, b, c), (d, e, f) = ([v[..., i] for i in range(3)] for v in (x, y))
    out = FUNCTIONS["stack"]([b * f - c * e, c * d - a * f, a * e - b * d], axis=-1)
    return FUNCTIONS["moveaxis"](out, -1, axis)


def cast_like(x: Array, y: Array) -> Array:
    """``x`` in the dtype of ``y``."""
    return cast(x, y.dtype)
