"""What the factorizations share: batches as one axis, panels at positions known only on the device, masks.

Everything here works on ``(batch, rows, columns)``. A panel is ``PANEL`` columns (or rows) wide; loops over
panels keep programs as small for n = 4000 as for n = 40.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

import rlx
from rlx.array.array import Array
from rlx.array.build import cast, constant
from rlx.core import dtype as dt
from rlx.ops.index import gather
from rlx.ops.movement import iota, pad_with

#: Columns of a panel: wide enough that the products between panels carry the work, narrow enough that the
#: column-by-column part stays in cache.
PANEL = 32
#: Matrices up to this size are written out in full, so that whole batches become straight-line code.
UNROLL = 4


def flat(a: Array) -> tuple[Array, tuple[Any, ...]]:
    """``a`` with its leading axes as one, and what they were."""
    lead = a.shape[:-2]
    return a.reshape((prod(lead), *a.shape[-2:])), lead


def eps(dtype: dt.DType) -> float:
    """The spacing of numbers near 1 in the dtype's real part."""
    return float(np.finfo(dtype.real.numpy).eps)


def tiny(dtype: dt.DType) -> float:
    """The smallest normal number of the dtype's real part."""
    return float(np.finfo(dtype.real.numpy).tiny)


def adjoint(a: Array) -> Array:
    """The conjugate transpose of the last two axes."""
    return rlx.conj(rlx.matrix_transpose(a))


def counter(n: int, like: Array, *axes: int) -> Array:
    """``0 .. n-1`` shaped to broadcast: ``axes`` are the sizes with -1 where the numbers run."""
    return iota(n, dt.int64, like._value.node.device).reshape(tuple(n if s == -1 else s for s in axes) or (n,))


def rows_of(n: int, like: Array) -> Array:
    """Row numbers of an n-row matrix, shape (1, n, 1)."""
    return counter(n, like, 1, -1, 1)


def cols_of(n: int, like: Array) -> Array:
    """Column numbers of an n-column matrix, shape (1, 1, n)."""
    return counter(n, like, 1, 1, -1)


def eye_like(a: Array, n: int, m: int | None = None) -> Array:
    """The n by m identity in the dtype of ``a``, with a batch axis of one."""
    return cast(rlx.equal(rows_of(n, a), cols_of(n if m is None else m, a)), a.dtype)


def filled(a: Array, shape: Sequence[int], value: Any = 0, dtype: dt.DType | None = None) -> Array:
    """An array of one value on the device of ``a``."""
    return rlx.broadcast_to(constant(value, dtype or a.dtype, a._value.node.device), tuple(shape))


def take_rows(a: Array, index: Array) -> Array:
    """Rows ``index`` of every matrix: (b, n, m) -> (b, k, m)."""
    return gather(a.transpose(1, 0, 2), index, mode="promise").transpose(1, 0, 2)


def take_cols(a: Array, index: Array) -> Array:
    """Columns ``index`` of every matrix: (b, n, m) -> (b, n, k)."""
    return gather(a.transpose(2, 0, 1), index, mode="promise").transpose(1, 2, 0)


def take_row(a: Array, index: Array) -> Array:
    """One row of every matrix: (b, n, m) -> (b, m)."""
    return gather(a.transpose(1, 0, 2), index, mode="promise")


def take_col(a: Array, index: Array) -> Array:
    """One column of every matrix: (b, n, m) -> (b, n)."""
    return gather(a.transpose(2, 0, 1), index, mode="promise")


def put_rows(a: Array, new: Array, start: Array) -> Array:
    """``a`` with rows ``start ..`` replaced by those of ``new``."""
    k = new.shape[1]
    at = counter(a.shape[1], a) - start
    moved = take_rows(new, rlx.clip(at, 0, k - 1))
    inside = rlx.logical_and(at >= 0, at < k).reshape((1, -1, 1))
    return rlx.where(inside, moved, a)


def put_cols(a: Array, new: Array, start: Array) -> Array:
    """``a`` with columns ``start ..`` replaced by those of ``new``."""
    k = new.shape[2]
    at = counter(a.shape[2], a) - start
    moved = take_cols(new, rlx.clip(at, 0, k - 1))
    inside = rlx.logical_and(at >= 0, at < k).reshape((1, 1, -1))
    return rlx.where(inside, moved, a)


def batch_rows(a: Array, index: Array) -> Array:
    """Row ``index[b]`` of matrix b: (b, n, m), (b,) -> (b, m)."""
    return gather(a, counter(a.shape[0], a), cast(index, dt.int64), mode="promise")


def permute_rows(a: Array, perm: Array) -> Array:
    """``out[b, i] = a[b, perm[b, i]]`` for rows of matrices or elements of vectors."""
    which = rlx.broadcast_to(counter(a.shape[0], a, -1, 1), perm.shape)
    return gather(a, which, cast(perm, dt.int64), mode="promise")


def padded(a: Array, rows: int, cols: int, diagonal: bool = False) -> Array:
    """``a`` grown to rows by cols with zeros, or with ones on the new part of the diagonal."""
    n, m = a.shape[1:]
    if (n, m) == (rows, cols):
        return a
    out = pad_with(a, (0, 0, 0), (0, rows - n, cols - m), 0)
    if not diagonal:
        return out
    r, c = rows_of(rows, a), cols_of(cols, a)
    return rlx.where(rlx.logical_and(rlx.equal(r, c), r >= min(n, m)), constant(1, a.dtype, a._value.node.device), out)


def panels(n: int) -> int:
    """How many panels cover n."""
    return -(-n // PANEL)


def nan_where(bad: Array, x: Array) -> Array:
    """``x`` with the items of the batch that are ``bad`` replaced by NaN."""
    mask = bad.reshape((*bad.shape, *(1,) * (x.ndim - bad.ndim)))
    return rlx.where(mask, constant(float("nan"), x.dtype, x._value.node.device), x)


def scaled(a: Array) -> tuple[Array, Array]:
    """``a`` divided by its largest modulus (where that is finite and not 0), and that number, (b, 1, 1).

    Squares of the elements then neither overflow nor vanish.
    """
    size = rlx.max(rlx.abs(a), axis=(1, 2), keepdims=True)
    size = rlx.where(rlx.logical_and(size > 0, rlx.isfinite(size)), size, 1)
    return a / cast(size, a.dtype), size


def all_finite(a: Array) -> Array:
    """Whether every element of each matrix is finite: (b,) booleans."""
    return rlx.all(rlx.isfinite(a), axis=(1, 2))


def info_of(failed: Array) -> Array:
    """1 where the batch item failed, else 0, as int32."""
    return cast(failed, dt.int32)


def batch_first(op: Callable[..., Any], outputs: int) -> Callable[..., Any]:
    """The batching rule of an op that takes leading batch axes: the mapped axis becomes the first of them."""
    def rule(axes: Sequence[int | None], size: int, *args: Array, **attrs: Any) -> tuple[Any, Any]:
        moved = [_front(x, axis, size) for x, axis in zip(args, axes, strict=True)]
        out = op(*moved, **attrs)
        return out, (0 if outputs == 1 else (0,) * outputs)
    return rule


def _front(x: Array, axis: int | None, size: int) -> Array:
    if axis is None:
        return rlx.broadcast_to(x, (size, *x.shape))
    return rlx.permute_dims(x, (axis, *(i for i in range(x.ndim) if i != axis)))


def random(shape: Sequence[int], dtype: str = "float64", seed: int = 0) -> np.ndarray[Any, Any]:
    """Standard normal samples, for the ops' test inputs."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        x = x + 1j * rng.standard_normal(shape)
    return x.astype(dtype)


def graded(n: int, dtype: str = "float64", decades: float = 6.0) -> np.ndarray[Any, Any]:
    """A matrix whose rows and columns shrink over so many decades."""
    d = np.logspace(0, -decades / 2, n)
    return (random((n, n), dtype, 3) * d[:, None] * d).astype(dtype)
