"""Patterns on the host: checks of index arrays, and which entry of a result comes from which entries of its parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlx.array.array import Array
from rlx.core.errors import DTypeError, IndexOutOfBounds, ShapeError, TraceError

Index = NDArray[Any]
Pair = tuple[Index, Index]


def host(x: Any, what: str = "the pattern of a sparse matrix") -> Index:
    """Indices on the host; they must not be traced."""
    if isinstance(x, Array) and x.is_traced:
        raise TraceError(f"{what} is traced", why="which entries a result has is decided before a program is compiled",
                         do="close over the matrix and pass its values: A.with_data(values)")
    return np.asarray(x)


def integers(x: Any, what: str) -> Index:
    """A list of integers on the host, checked."""
    values = host(x, what)
    if values.ndim != 1:
        raise ShapeError(f"{what} of shape {values.shape}", why="it is a list of integers", do="flatten it")
    if values.size == 0:
        return values.astype(np.int64)
    if values.dtype.kind not in "iu":
        raise DTypeError(f"{what} of {values.dtype}", why="positions are integers",
                         do=f"cast {what.split()[-1]} to int64")
    return values


def bounded(rows: int, entries: int) -> None:
    """A row pointer takes 4 to 8 bytes a row: a huge declared shape over a few entries is refused."""
    if rows > 1 << 28 and rows > 64 * max(entries, 1):
        raise ShapeError(f"a matrix of {rows} rows with {entries} entries", why="the row pointer alone would take "
                         f"{rows * 8 / 2**30:.1f} GiB", do="check the shape; number only the rows that are used")


def check_inside(name: str, index: Index, size: int, shape: tuple[int, ...]) -> None:
    """Refuse an index outside of 0 to ``size - 1``."""
    if len(index) and (index.min() < 0 or index.max() >= size):
        bad = int(index.min() if index.min() < 0 else index.max())
        raise IndexOutOfBounds(f"{name} {bad} is outside a matrix of shape {shape}",
                               why=f"{name}s go from 0 to {size - 1}" if size else f"it has no {name}s",
                               do="check the index, or its base (0, not 1)")


def check(indices: Index, indptr: Index, shape: tuple[int, int], entries: int, major: str = "row",
          minor: str = "column") -> None:
    """Refuse arrays that do not describe a compressed matrix of ``shape`` (rows first)."""
    n, m = shape if major == "row" else shape[::-1]
    if len(indptr) != n + 1:
        raise ShapeError(f"indptr of length {len(indptr)} for {n} {major}s",
                         why=f"it has one entry more than there are {major}s",
                         do=f"pass the {major} starts, and the number of entries last")
    if len(indices) != entries:
        raise ShapeError(f"{len(indices)} {minor} indices for {entries} values", why="each entry has one of each",
                         do="pass arrays of equal length")
    if indptr[0] != 0 or indptr[-1] != entries or np.any(np.diff(indptr.astype(np.int64)) < 0):
        raise ShapeError(f"indptr does not divide the entries into {major}s",
                         why=f"it must rise from 0 to {entries}, and goes from {indptr[0]} to {indptr[-1]}",
                         do=f"build it as the running sum of the entries in each {major}")
    check_inside(minor, indices, m, shape)


def is_canonical(indices: Index, indptr: Index) -> bool:
    """Whether the columns of each row strictly rise."""
    if len(indices) < 2:
        return True
    rising = np.diff(indices.astype(np.int64)) > 0
    starts = indptr[1:-1]
    starts = starts[(starts > 0) & (starts < len(indices))]
    rising[starts - 1] = True
    return bool(rising.all())


def rows_of(indptr: Index) -> Index:
    """The row of each entry."""
    return np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))


def pointer(rows: Index, n: int) -> Index:
    """Row starts of entries that are sorted by row."""
    return np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=n)[:n])]).astype(np.int64)


def compress(rows: Index, cols: Index, shape: tuple[int, int]) -> tuple[Index, Index, Index, Index]:
    """(order, starts, indices, indptr): entries in row-major order, and where each distinct one starts in it."""
    order = np.lexsort((cols, rows))
    r, c = rows[order], cols[order]
    new = np.ones(len(r), bool)
    new[1:] = (r[1:] != r[:-1]) | (c[1:] != c[:-1])
    first = np.flatnonzero(new)
    return order, np.append(first, len(r)), c[first], pointer(r[first], shape[0])


def union(a: Pair, b: Pair, shape: tuple[int, int]) -> tuple[Index, Index, Index, Index]:
    """(indices, indptr, from a, from b) of the entries of either; the source is the number of entries where absent."""
    ka, kb = (_keys(p, shape) for p in (a, b))
    keys = np.union1d(ka, kb)
    return (*_unkeyed(keys, shape), _find(ka, keys), _find(kb, keys))


def intersection(a: Pair, b: Pair, shape: tuple[int, int]) -> tuple[Index, Index, Index, Index]:
    """(indices, indptr, from a, from b) of the entries of both."""
    keys, from_a, from_b = np.intersect1d(_keys(a, shape), _keys(b, shape), assume_unique=True, return_indices=True)
    return (*_unkeyed(keys, shape), from_a, from_b)


def product(a: Pair, b: Pair, shape: tuple[int, int]) -> tuple[Index, Index, Index, Index, Index]:
    """(indices, indptr, from a, from b, starts): entry e of a product sums ``a[from a] * b[from b]`` over its run."""
    count = np.diff(b[1])[a[0]]
    from_a = np.repeat(np.arange(len(a[0])), count)
    from_b = np.arange(len(from_a)) - np.repeat(np.cumsum(count) - count, count) + np.repeat(b[1][:-1][a[0]], count)
    order, starts, indices, indptr = compress(rows_of(a[1])[from_a], b[0][from_b], shape)
    return indices, indptr, from_a[order], from_b[order], starts


def rearranged(parts: Sequence[tuple[Index, Index, tuple[int, int]]],
               f: Callable[[list[Any]], Any]) -> tuple[Index, Index, Index, tuple[int, int]]:
    """(indices, indptr, source, shape) of what ``f`` makes of scipy.sparse matrices with these patterns.

    ``source`` is the entry that each entry of the result comes from, numbered through all the parts.
    """
    import scipy.sparse
    start, made = 1, []
    for indices, indptr, shape in parts:
        entries = np.arange(start, start + len(indices), dtype=np.int64)  # from 1: a 0 would be no entry
        made.append(scipy.sparse.csr_array((entries, indices, indptr), shape=shape))
        start += len(indices)
    out = scipy.sparse.csr_array(f(made))
    out.sort_indices()
    return out.indices, out.indptr, out.data - 1, out.shape


def _keys(p: Pair, shape: tuple[int, int]) -> Index:
    return rows_of(p[1]) * np.int64(max(shape[1], 1)) + p[0]


def _unkeyed(keys: Index, shape: tuple[int, int]) -> Pair:
    rows, cols = np.divmod(keys, np.int64(max(shape[1], 1)))
    return cols, pointer(rows, shape[0])


def _find(have: Index, keys: Index) -> Index:
    at = np.searchsorted(have, keys)
    hit = at < len(have)
    hit[hit] = have[at[hit]] == keys[hit]
    return np.where(hit, at, len(have))
