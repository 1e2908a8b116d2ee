"""Arithmetic of CSR matrices: the pattern of a result is found on the host, its values by one program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rlx.array.array import Array
from rlx.array.build import as_array, is_scalar
from rlx.core import dtype as dt
from rlx.core.errors import DTypeError, ShapeError, TraceError, ValueIssue
from rlx.ops.creation import zeros
from rlx.ops.elementwise import astype, maximum, minimum, where
from rlx.ops.index import gather, scatter
from rlx.ops.movement import concat
from rlx.ops.reduce import sum as total
from rlx.ops.segments import segment_of, segment_reduce
from rlx.sparse import pattern
from rlx.sparse.base import OPERATIONS
from rlx.sparse.csr import CSR, as_csr
from rlx.sparse.pattern import host


def made(data: Array, indices: Any, indptr: Any, shape: tuple[int, int]) -> CSR:
    """A CSR from values and a checked pattern on the host."""
    new: CSR = CSR._from_pattern(data, indices, indptr, shape)
    return new


def pair(a: CSR) -> tuple[Any, Any]:
    """The pattern on the host."""
    return host(a.indices), host(a.indptr)


def picked(data: Array, index: Any) -> Array:
    """``data[index]`` for a checked index of the host."""
    return gather(data, as_array(np.ascontiguousarray(index), device=data._value.node.device), mode="promise")


def _matching(what: str, a: CSR, b: Any) -> CSR:
    other = as_csr(b, a.device)
    if other.shape != a.shape:
        raise ShapeError(f"{what} of matrices of shapes {a.shape} and {other.shape}", why="the shapes differ",
                         do="pass matrices of one shape")
    return other


def add(a: CSR, b: Any, sign: int = 1) -> CSR:
    """``a + sign * b``: the entries of either."""
    other = _matching("a sum", a, b)
    common = dt.common_type(a.dtype, other.dtype)
    x, y = astype(a.data, common), astype(other.data, common)
    indices, indptr, from_a, from_b = pattern.union(pair(a), pair(other), a.shape)
    none = zeros((1,), dtype=common, device=a.device)
    x, y = picked(concat((x, none)), from_a), picked(concat((y, none)), from_b)
    return made(x + y if sign > 0 else x - y, indices, indptr, a.shape)


def multiply(a: CSR, b: Any) -> CSR:
    """Entry by entry, with a number, an array that broadcasts to the shape, or a sparse matrix (entries of both)."""
    if is_scalar(b) or (isinstance(b, Array) and b.ndim == 0):
        return a.with_data(_inexact(a.data * b))
    if hasattr(b, "tocsr"):
        other = _matching("a product by entries", a, b)
        indices, indptr, from_a, from_b = pattern.intersection(pair(a), pair(other), a.shape)
        return made(picked(a.data, from_a) * picked(other.data, from_b), indices, indptr, a.shape)
    v = as_array(b, device=a.device)
    if v.ndim > 2 or any(n not in (1, m) for n, m in zip(v.shape[::-1], a.shape[::-1], strict=False)):
        raise ShapeError(f"a matrix of shape {a.shape} times an array of shape {v.shape} by entries",
                         why="the array does not broadcast to the matrix", do="pass one that does")
    v = v.reshape((*(1,) * (2 - v.ndim), *v.shape))
    places = (segment_of(a.indptr, a.nnz), a.indices)
    index = [p if n > 1 else p * 0 for p, n in zip(places, v.shape, strict=True)]
    return a.with_data(_inexact(a.data * gather(v, *[astype(i, dt.int64) for i in index], mode="promise")))


def _inexact(x: Array) -> Array:
    return x if x.dtype.is_inexact else astype(x, dt.float64)


def matmul(a: CSR, b: Any) -> CSR:
    """``a @ b`` of two sparse matrices: the pattern once, and a segmented sum of products."""
    other = as_csr(b, a.device)
    if a.shape[1] != other.shape[0]:
        raise ShapeError(f"a matrix of shape {a.shape} times one of shape {other.shape}",
                         why=f"{a.shape[1]} columns meet {other.shape[0]} rows", do="pass matrices that fit")
    common = dt.common_type(a.dtype, other.dtype)
    shape = (a.shape[0], other.shape[1])
    indices, indptr, from_a, from_b, starts = pattern.product(pair(a), pair(other), shape)
    x, y = (picked(astype(m.data, common), f) for m, f in ((a, from_a), (other, from_b)))
    return made(segment_reduce(x * y, as_array(starts, device=a.device)), indices, indptr, shape)


def rearrange(parts: list[CSR], f: Callable[[list[Any]], Any]) -> CSR:
    """What ``f`` makes of scipy.sparse matrices, done to these: entries only move."""
    common = parts[0].dtype
    for p in parts[1:]:
        common = dt.common_type(common, p.dtype)
    indices, indptr, source, shape = pattern.rearranged([(*pair(p), p.shape) for p in parts], f)
    data = [astype(p.data, common) for p in parts]
    whole = data[0] if len(data) == 1 else concat(data)
    return made(picked(whole, source), indices, indptr, (int(shape[0]), int(shape[1])))


def select(a: CSR, key: Any) -> Any:
    """``a[key]``: rows, or rows and columns, as in SciPy; one row and one column give an element."""
    if any(isinstance(k, Array) and k.is_traced for k in (key if isinstance(key, tuple) else (key,))):
        raise TraceError("a sparse matrix indexed by a traced array", why="the pattern of the result would be unknown",
                         do="index with integers of the host")
    keys = tuple(np.asarray(k) if isinstance(k, Array) else k for k in (key if isinstance(key, tuple) else (key,)))
    if len(keys) > 2 or any(k is None or k is Ellipsis for k in keys):
        raise ShapeError(f"a sparse matrix indexed by {len(keys)} axes", why="it has two, and gains none",
                         do="pass rows, or rows and columns")
    whole = [_axis(k, n, axis) for axis, (k, n) in enumerate(zip(keys, a.shape, strict=False))]
    numbers = [isinstance(k, (int, np.integer)) for k in keys]
    if len(keys) == 2 and all(numbers):
        at = rearrange([a], lambda m: m[0][whole[0]][:, whole[1]])
        return total(at.data)
    return rearrange([a], lambda m: m[0][whole[0]] if len(keys) == 1 else m[0][whole[0]][:, whole[1]])


def _axis(k: Any, size: int, axis: int) -> Any:
    """A slice, or a list of checked indices."""
    if isinstance(k, slice):
        return k
    index = np.atleast_1d(np.asarray(k))
    if index.dtype == bool and index.shape == (size,):
        return np.flatnonzero(index)
    if index.dtype.kind not in "iu" or index.ndim != 1:
        raise DTypeError(f"axis {axis} of a sparse matrix indexed by {index.dtype}{list(index.shape)}",
                         why="an axis takes a slice, an integer, a list of them, or a mask of its length",
                         do="pass one of these")
    at = np.where(index < 0, index + size, index)
    pattern.check_inside("column" if axis else "row", at, size, (size,))
    return at


def reduce(a: CSR, kind: str, axis: int | None) -> Array:
    """The sum, largest or smallest element along an axis, or of all; elements that are not stored are 0."""
    if axis not in (None, 0, 1, -1, -2):
        raise ValueIssue(f"a reduction of a matrix along axis {axis!r}", why="its axes are 0 and 1",
                         do="pass axis=0, axis=1 or None")
    if kind == "sum":
        if axis is None:
            return total(a.data)
        if axis in (1, -1):
            return segment_reduce(a.data, a.indptr)
        return scatter(zeros((a.shape[1],), dtype=a.dtype, device=a.device), a.data, (a.indices,), "add")
    if a.dtype.is_complex or 0 in a.shape:
        raise DTypeError(f"the {kind} of a {a.dtype.name} matrix of shape {a.shape}",
                         why="complex numbers have no order, and nothing has no largest element",
                         do="take the real part, or check the shape first")
    m = a if axis != 0 and axis != -2 else a.T
    rows = segment_reduce(m.data, m.indptr, kind)
    full = m.indptr[1:] - m.indptr[:-1] == m.shape[1]
    rows = where(full, rows, (maximum if kind == "max" else minimum)(rows, 0))
    out: Array = rows if axis is not None else (rows.max() if kind == "max" else rows.min())
    return out


OPERATIONS.update(add=add, multiply=multiply, matmul=matmul, select=select, reduce=reduce)
