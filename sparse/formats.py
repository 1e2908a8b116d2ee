"""The formats beside CSR: compressed columns, a list of entries, and dense blocks."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.array.array import Array
from rlx.array.build import as_array
from rlx.array.tree import register_pytree
from rlx.core import dtype as dt
from rlx.core.errors import ShapeError, ValueIssue
from rlx.ops.creation import zeros
from rlx.ops.elementwise import astype
from rlx.ops.index import gather
from rlx.ops.movement import concat, permute_dims
from rlx.sparse import pattern
from rlx.sparse.base import FORMATS, SparseMatrix
from rlx.sparse.csr import CSR, as_csr, length_of, values_of
from rlx.sparse.products import bsr_matvec


class CSC(SparseMatrix):
    """Compressed columns: column ``j`` holds ``data[k]`` in row ``indices[k]`` for ``indptr[j] <= k < indptr[j+1]``.

    Sorted within columns, without duplicates; a pytree. Products go by rows, which are found once.

    >>> import rlx.sparse
    >>> A = rlx.sparse.CSC([2.0, 1.0, 3.0], [0, 0, 1], [0, 1, 3], (2, 2))
    >>> A.todense().tolist()
    [[2.0, 1.0], [0.0, 3.0]]
    """

    __slots__ = ("_turned",)
    format = "csc"

    def __init__(self, data: Any, indices: Any, indptr: Any, shape: tuple[int, int], *,
                 device: str | None = None) -> None:
        """From the three arrays; they are checked, and sorted and summed where needed."""
        rows, starts = pattern.integers(indices, "CSC indices"), pattern.integers(indptr, "CSC indptr")
        pattern.check(rows, starts, shape, length_of(data), "column", "row")
        self._turned = CSR(data, rows, starts, (shape[1], shape[0]), device=device)

    @classmethod
    def of_transposed(cls, turned: CSR) -> CSC:
        """The matrix whose transpose is ``turned``: nothing is moved."""
        new = object.__new__(cls)
        new._turned = turned
        return new

    @classmethod
    def from_scipy(cls, matrix: Any, *, device: str | None = None) -> CSC:
        """From any scipy.sparse matrix or array."""
        return cls.of_transposed(CSR.from_scipy(matrix.T, device=device))

    @property
    def data(self) -> Array:  # type: ignore[override]
        """The values, column after column."""
        return self._turned.data

    @property
    def indices(self) -> Array:
        """The row of each value."""
        return self._turned.indices

    @property
    def indptr(self) -> Array:
        """Where each column starts."""
        return self._turned.indptr

    @property
    def shape(self) -> tuple[int, int]:  # type: ignore[override]
        """Rows and columns."""
        return self._turned.shape[1], self._turned.shape[0]

    @property
    def T(self) -> CSR:
        """The transpose, in CSR form: the same arrays."""
        return self._turned

    def tocsr(self) -> CSR:
        """The same matrix in CSR form."""
        return self._turned.T

    def with_data(self, data: Array) -> CSC:
        """The same pattern with other values."""
        return CSC.of_transposed(self._turned.with_data(data))

    def to_scipy(self) -> Any:
        """A ``scipy.sparse.csc_array`` with a copy of the values."""
        return self._turned.to_scipy().T


class COO(SparseMatrix):
    """A list of entries: ``data[k]`` at ``(row[k], col[k])``, in any order; equal positions count as their sum.

    >>> import rlx.sparse
    >>> A = rlx.sparse.COO([2.0, 1.0, 3.0], [0, 1, 0], [0, 1, 0], (2, 2))
    >>> A.nnz, A.sum_duplicates().nnz, A.todense().tolist()
    (3, 2, [[5.0, 0.0], [0.0, 1.0]])
    """

    __slots__ = ("col", "data", "row", "shape")
    format = "coo"

    def __init__(self, data: Any, row: Any, col: Any, shape: tuple[int, int], *, device: str | None = None) -> None:
        """From values and positions, which are checked; the positions stay on the host."""
        r, c = pattern.integers(row, "COO row"), pattern.integers(col, "COO col")
        if not len(r) == len(c) == length_of(data):
            raise ShapeError(f"{len(r)} rows, {len(c)} columns and {length_of(data)} values",
                             why="each entry has one of each", do="pass arrays of equal length")
        pattern.check_inside("row", r, shape[0], shape)
        pattern.check_inside("column", c, shape[1], shape)
        self.data, self.shape = values_of(data, device), (int(shape[0]), int(shape[1]))
        self.row, self.col = np.array(r, np.int64), np.array(c, np.int64)

    @classmethod
    def from_scipy(cls, matrix: Any, *, device: str | None = None) -> COO:
        """From any scipy.sparse matrix or array."""
        m = matrix.tocoo()
        row, col = m.coords if hasattr(m, "coords") else (m.row, m.col)
        return cls(m.data, row, col, m.shape, device=device)

    @classmethod
    def _of(cls, a: CSR) -> COO:
        return cls(a.data, pattern.rows_of(pattern.host(a.indptr)), pattern.host(a.indices), a.shape)

    @property
    def T(self) -> COO:
        """The transpose: rows and columns change places."""
        return COO(self.data, self.col, self.row, (self.shape[1], self.shape[0]))

    def tocsr(self) -> CSR:
        """In CSR form; equal positions are summed."""
        return CSR.from_arrays(self.row, self.col, self.data, self.shape)

    def sum_duplicates(self) -> COO:
        """The entries in order of rows and columns, one for each position."""
        return COO._of(self.tocsr())

    def with_data(self, data: Array) -> COO:
        """The same positions with other values."""
        return COO(data, self.row, self.col, self.shape)

    def to_scipy(self) -> Any:
        """A ``scipy.sparse.coo_array`` with a copy of the values."""
        import scipy.sparse
        return scipy.sparse.coo_array((np.array(self.data), (self.row, self.col)), shape=self.shape)


class BSR(SparseMatrix):
    """Dense blocks: block row ``i`` holds the block ``data[k]`` in block column ``indices[k]`` for
    ``indptr[i] <= k < indptr[i+1]``. Its product reads one index for each block.

    >>> import rlx.sparse
    >>> A = rlx.sparse.BSR([[[1.0, 2.0], [3.0, 4.0]]], [1], [0, 1], (2, 4))
    >>> A.blocksize, (A @ rlx.asarray([9.0, 9.0, 1.0, 1.0])).tolist()
    ((2, 2), [3.0, 7.0])
    """

    __slots__ = ("data", "indices", "indptr", "shape")
    format = "bsr"

    def __init__(self, data: Any, indices: Any, indptr: Any, shape: tuple[int, int], *,
                 device: str | None = None) -> None:
        """From blocks (k, r, c) and the pattern of blocks, which must be sorted and without duplicates."""
        size = data.shape if hasattr(data, "shape") else np.shape(data)
        if len(size) != 3 or 0 in size[1:]:
            raise ShapeError(f"BSR data of shape {tuple(size)}", why="it is a list of blocks", do="pass (k, r, c)")
        if shape[0] % size[1] or shape[1] % size[2]:
            raise ShapeError(f"a matrix of shape {tuple(shape)} in blocks of {tuple(size[1:])}",
                             why="blocks must tile it", do="pad the matrix, or choose a size that divides it")
        cols, starts = pattern.integers(indices, "BSR indices"), pattern.integers(indptr, "BSR indptr")
        pattern.check(cols, starts, (shape[0] // size[1], shape[1] // size[2]), int(size[0]))
        if not pattern.is_canonical(cols, starts):
            raise ValueIssue("BSR blocks that are unsorted or duplicate", why="the pattern must rise within block rows",
                             do="sum and sort them first: COO(...).tobsr(blocksize)")
        values = values_of(data, device)
        where, kind = values._value.node.device, np.int32 if max(*shape, len(cols)) < 2**31 else np.int64
        self._set(values, as_array(cols.astype(kind), device=where), as_array(starts.astype(kind), device=where), shape)

    def _set(self, data: Array, indices: Array, indptr: Array, shape: tuple[int, int]) -> BSR:
        self.data, self.indices, self.indptr, self.shape = data, indices, indptr, (int(shape[0]), int(shape[1]))
        return self

    @classmethod
    def _from_parts(cls, data: Array, indices: Array, indptr: Array, shape: tuple[int, int]) -> BSR:
        new: BSR = object.__new__(cls)
        return new._set(data, indices, indptr, shape)

    @classmethod
    def from_scipy(cls, matrix: Any, blocksize: tuple[int, int] | None = None, *, device: str | None = None) -> BSR:
        """From any scipy.sparse matrix or array."""
        size = blocksize or (matrix.blocksize if hasattr(matrix, "blocksize") else None)
        return bsr_of(CSR.from_scipy(matrix, device=device), size)

    @property
    def blocksize(self) -> tuple[int, int]:
        """Rows and columns of a block."""
        return int(self.data.shape[1]), int(self.data.shape[2])

    def __matmul__(self, x: Any) -> Any:
        """``A @ x``: an array for a vector or a block of columns, a CSR for a sparse matrix."""
        if hasattr(x, "tocsr"):
            return self.tocsr() @ x
        v = as_array(x, device=self.data._value.node.device)
        if v.ndim not in (1, 2) or v.shape[0] != self.shape[1]:
            raise ShapeError(f"a matrix of shape {self.shape} times an array of shape {v.shape}",
                             why=f"the array must have {self.shape[1]} rows", do="pass a vector or a block that fits")
        common = dt.common_type(self.dtype, v.dtype)
        return bsr_matvec(astype(self.data, common), self.indices, self.indptr, astype(v, common))

    @property
    def T(self) -> BSR:
        """The transpose: the blocks' pattern and each block."""
        n, m = (s // b for s, b in zip(self.shape, self.blocksize, strict=True))
        indices, indptr, source, _ = pattern.rearranged(
            [(pattern.host(self.indices), pattern.host(self.indptr), (n, m))], lambda p: p[0].T)
        where = self.data._value.node.device
        moved = gather(self.data, as_array(source, device=where), mode="promise")
        return BSR(permute_dims(moved, (0, 2, 1)), indices, indptr, (self.shape[1], self.shape[0]))

    def tocsr(self) -> CSR:
        """In CSR form; every element of a block is an entry."""
        r, c = self.blocksize
        rows = pattern.rows_of(pattern.host(self.indptr))[:, None, None] * r + np.arange(r)[:, None]
        cols = pattern.host(self.indices)[:, None, None].astype(np.int64) * c + np.arange(c)
        size = (self.data.shape[0], r, c)
        return CSR.from_arrays(np.broadcast_to(rows, size).ravel(), np.broadcast_to(cols, size).ravel(),
                               self.data.reshape((-1,)), self.shape)

    def with_data(self, data: Array) -> BSR:
        """The same pattern with other blocks."""
        if data.shape != self.data.shape:
            raise ShapeError(f"blocks of shape {data.shape} for {self.data.shape}", why="the pattern stays as it is",
                             do="pass one block for each stored block")
        return BSR._from_parts(data, self.indices, self.indptr, self.shape)

    def to_device(self, device: str) -> BSR:
        """The same matrix on another device."""
        moved = [x.to_device(device) for x in (self.data, self.indices, self.indptr)]
        return BSR._from_parts(moved[0], moved[1], moved[2], self.shape)

    def astype(self, dtype: Any) -> BSR:
        """The same matrix in another element type."""
        return BSR._from_parts(astype(self.data, dtype), self.indices, self.indptr, self.shape)

    def conj(self) -> BSR:
        """The same blocks with conjugate values."""
        return self.with_data(self.data.conj())

    def to_scipy(self) -> Any:
        """A ``scipy.sparse.bsr_array`` with a copy of the values."""
        import scipy.sparse
        return scipy.sparse.bsr_array((np.array(self.data), np.array(self.indices), np.array(self.indptr)),
                                      shape=self.shape)


def bsr_of(a: Any, blocksize: tuple[int, int] | None = None) -> BSR:
    """A matrix in dense blocks; by default of the largest square size of at most 8 that is 70 % full (else 1)."""
    m = as_csr(a)
    rows, cols = pattern.rows_of(pattern.host(m.indptr)), pattern.host(m.indices)
    r, c = blocksize or _fitting(rows, cols, m.shape)
    if m.shape[0] % r or m.shape[1] % c:
        raise ShapeError(f"a matrix of shape {m.shape} in blocks of {(r, c)}", why="blocks must tile it",
                         do="pad the matrix, or choose a size that divides it")
    order, starts, indices, indptr = pattern.compress(rows // r, cols // c, (m.shape[0] // r, m.shape[1] // c))
    block = np.empty(len(order), np.int64)
    block[order] = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    # Where each element of a block comes from; the last place is a zero.
    source = np.full((len(starts) - 1, r, c), m.nnz, np.int64)
    source[block, rows % r, cols % c] = np.arange(m.nnz)
    data = concat((m.data, zeros((1,), dtype=m.dtype, device=m.data._value.node.device)))
    return BSR(gather(data, as_array(source, device=m.data._value.node.device), mode="promise"), indices, indptr,
               m.shape)


def _fitting(rows: Any, cols: Any, shape: tuple[int, int]) -> tuple[int, int]:
    for size in range(8, 1, -1):
        if shape[0] % size == 0 and shape[1] % size == 0 and len(rows):
            blocks = len(np.unique(rows // size * np.int64(shape[1]) + cols // size))
            if len(rows) >= 0.7 * blocks * size * size:
                return size, size
    return 1, 1


FORMATS.update(csc=lambda a: CSC.of_transposed(a.T), coo=COO._of, bsr=bsr_of)
register_pytree(CSC, lambda a: ((a._turned,), None), lambda _, parts: CSC.of_transposed(parts[0]))
register_pytree(BSR, lambda a: ((a.data, a.indices, a.indptr), a.shape),
                lambda shape, parts: BSR._from_parts(parts[0], parts[1], parts[2], shape))
