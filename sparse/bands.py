"""Banded storage: a square matrix by its diagonals, for solvers that multiply by it many times.

A matrix whose entries lie on a few diagonals (a stencil on a grid) needs no column indices: its product is a sum of
shifted vectors, which streams. :func:`bands_of` finds such a matrix; solvers use it in place of the CSR they are given.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.array.array import Array
from rlx.array.build import as_array
from rlx.array.define import op
from rlx.array.tree import register_pytree
from rlx.ir.op import Sample
from rlx.ops.movement import pad_with, slice_of
from rlx.sparse.csr import CSR

#: Most diagonals of banded storage, and the least share of its places that entries must fill.
MOST, FILL = 16, 0.75
#: Unknowns below which a search for diagonals does not pay.
SMALLEST = 64


@op
def dia_matvec(bands: Array, x: Array, /, *, offsets: tuple[int, ...]) -> Array:
    """``y[i] = sum over d of bands[d, i] * x[i + offsets[d]]``, where x is 0 outside.

    Shapes: bands (k, n), x and y (n,). Rows of ``bands`` are diagonals aligned by row:
    ``bands[d, i] = A[i, i + offsets[d]]``.
    """
    n = x.shape[0]
    total: Array | None = None
    for d, offset in enumerate(offsets):
        row = slice_of(bands, (d, 0), (1, n)).reshape((n,))
        low, high = max(-offset, 0), max(offset, 0)
        moved = slice_of(pad_with(x, (low,), (high,), 0), (high,), (n,))
        total = row * moved if total is None else total + row * moved
    assert total is not None
    return total


@dia_matvec.ref
def _(bands: Any, x: Any, *, offsets: tuple[int, ...]) -> Any:
    y = np.zeros_like(x)
    for row, offset in zip(bands, offsets, strict=True):
        inside = slice(max(-offset, 0), len(x) - max(offset, 0))
        moved = slice(max(offset, 0), len(x) + min(offset, 0))
        y[inside] += row[inside] * x[moved]
    return y


@dia_matvec.samples
def _() -> list[Sample]:
    rng = np.random.default_rng(4)
    offsets = {"offsets": (-3, 0, 1)}
    return [Sample((rng.standard_normal((3, 9)).astype(d), rng.standard_normal(9).astype(d)), offsets, name=d)
            for d in ("float32", "float64", "complex128")]


class Banded:
    """A square matrix by its diagonals: the operator that :func:`dia_matvec` applies; a pytree."""

    __slots__ = ("bands", "offsets")

    def __init__(self, bands: Array, offsets: tuple[int, ...]) -> None:
        self.bands, self.offsets = bands, offsets

    def __call__(self, x: Array) -> Array:
        return dia_matvec(self.bands, x, offsets=self.offsets)


register_pytree(Banded, lambda a: ((a.bands,), a.offsets), lambda offsets, parts: Banded(parts[0], offsets))


def bands_of(a: CSR) -> Banded | None:
    """The matrix in banded storage, where its entries fill a few diagonals; None where they do not, or are traced.

    The search takes one pass over the pattern, and is remembered with the matrix.
    """
    n = a.shape[0]
    if a.shape[0] != a.shape[1] or n < SMALLEST or not a.nnz or a.data.is_traced or a.nnz > MOST * n:
        return None
    if a._bands is None:
        a._bands = (_search(a),)
    return a._bands[0]


def _search(a: CSR) -> Banded | None:
    n = a.shape[0]
    indptr, cols = np.asarray(a.indptr), np.asarray(a.indices)
    rows = np.repeat(np.arange(n, dtype=cols.dtype), np.diff(indptr))
    shift = cols - rows
    found = np.flatnonzero(np.bincount(shift + (n - 1), minlength=2 * n - 1)) - (n - 1)
    if len(found) > MOST or a.nnz < FILL * len(found) * n:
        return None
    place = np.zeros(2 * n - 1, np.int64)
    place[found + (n - 1)] = np.arange(len(found))
    bands = np.zeros((len(found), n), a.dtype.numpy)
    bands[place[shift + (n - 1)], rows] = np.asarray(a.data)
    return Banded(as_array(bands, device=a.device), tuple(int(d) for d in found))
