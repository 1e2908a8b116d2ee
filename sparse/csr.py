"""Compressed sparse rows: the matrix format of the solvers."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from rlx.array.array import Array
from rlx.array.build import as_array
from rlx.array.tree import register_pytree
from rlx.core import dtype as dt
from rlx.core.errors import DTypeError, IndexOutOfBounds, ShapeError, ValueIssue
from rlx.ops.creation import asarray, zeros
from rlx.ops.elementwise import astype, conj
from rlx.ops.index import gather, scatter
from rlx.ops.linear import segment_of
from rlx.sparse.base import SparseMatrix
from rlx.sparse.mtx import read_mtx
from rlx.sparse.products import csr_matvec

#: Element types that products and solvers take.
DTYPES = (dt.float32, dt.float64, dt.complex64, dt.complex128)
_INT32_MAX = 2**31 - 1


class CSR(SparseMatrix):
    """A sparse matrix: row ``i`` holds ``data[k]`` in column ``indices[k]`` for ``indptr[i] <= k < indptr[i+1]``.

    ``data`` is an rlx array (f32, f64, c64 or c128) and may be traced: gradients flow to the values. The pattern
    (``indices``, ``indptr``) is concrete, sorted within rows and without duplicates. Instances are pytrees.

    >>> import rlx.sparse
    >>> A = rlx.sparse.CSR.from_arrays([0, 0, 1], [0, 1, 1], [2.0, 1.0, 3.0], (2, 2))
    >>> (A @ rlx.asarray([1.0, 1.0])).tolist()
    [3.0, 3.0]
    """

    __slots__ = ("_bands", "_transposed", "data", "indices", "indptr", "shape")
    data: Array
    indices: Array
    indptr: Array
    shape: tuple[int, int]
    format = "csr"

    def __init__(self, data: Any, indices: Any, indptr: Any, shape: tuple[int, int], *,
                 device: str | None = None) -> None:
        """From the three arrays; they are checked, and sorted and summed where needed.

        Raises ShapeError or IndexOutOfBounds for arrays that do not describe a matrix of this shape.
        """
        host_indices, host_indptr = _integers(indices, "indices"), _integers(indptr, "indptr")
        _check(host_indices, host_indptr, shape, _length(data))
        if not _is_canonical(host_indices, host_indptr):
            if isinstance(data, Array) and data.is_traced:
                raise ValueIssue("a traced CSR with unsorted or duplicate entries",
                                 why="entries would have to be moved",
                                 do="sort the pattern before the traced function")
            made = CSR.from_scipy(_scipy(np.asarray(data), host_indices, host_indptr, shape), device=device)
            data, host_indices, host_indptr = made.data, np.asarray(made.indices), np.asarray(made.indptr)
        self._set(_values(data, device), host_indices, host_indptr, shape, device)

    def _set(self, data: Array, indices: np.ndarray, indptr: np.ndarray, shape: tuple[int, int],
             device: str | None) -> None:
        where = device or data.device
        kind = np.int32 if max(len(indices), *shape) <= _INT32_MAX else np.int64
        self.data = data
        self.indices = as_array(np.ascontiguousarray(indices, kind), device=where)
        self.indptr = as_array(np.ascontiguousarray(indptr, kind), device=where)
        self.shape = (int(shape[0]), int(shape[1]))
        self._transposed: tuple[Array, Array, Array] | None = None
        #: The same matrix by diagonals, once a solver has looked (see rlx.sparse.bands).
        self._bands: tuple[Any] | None = None

    # Construction

    @classmethod
    def _from_parts(cls, data: Any, indices: Any, indptr: Any, shape: tuple[int, int]) -> CSR:
        """From parts that were checked before."""
        new = object.__new__(cls)
        new.data, new.indices, new.indptr, new.shape = data, indices, indptr, shape
        new._transposed = new._bands = None
        return new

    @classmethod
    def from_arrays(cls, rows: Any, cols: Any, values: Any, shape: tuple[int, int], *,
                    device: str | None = None) -> CSR:
        """From entries: ``values[k]`` at ``(rows[k], cols[k])``; equal positions are summed."""
        r, c, v = _integers(rows, "rows"), _integers(cols, "cols"), np.asarray(values)
        if not len(r) == len(c) == len(v):
            raise ShapeError(f"{len(r)} rows, {len(c)} columns and {len(v)} values", why="each entry has one of each",
                             do="pass arrays of equal length")
        n, m = shape
        for name, index, size in (("row", r, n), ("column", c, m)):
            if len(index) and (index.min() < 0 or index.max() >= size):
                bad = int(index.min() if index.min() < 0 else index.max())
                raise IndexOutOfBounds(f"{name} {bad} is outside a matrix of shape {shape}",
                                       why=f"{name}s go from 0 to {size - 1}",
                                       do="check the index, or its base (0, not 1)")
        _bounded(n, len(v))
        import scipy.sparse
        return cls.from_scipy(scipy.sparse.coo_matrix((v, (r, c)), shape=shape), device=device)

    @classmethod
    def from_scipy(cls, matrix: Any, *, device: str | None = None) -> CSR:
        """From any scipy.sparse matrix or array; it is not changed."""
        source = matrix.tocsr()
        if not (source.has_canonical_format and source.has_sorted_indices):
            source = source.copy()
            source.sum_duplicates()
        data = _values(source.data, device)
        new = object.__new__(cls)
        new._set(data, source.indices, source.indptr, source.shape, device)
        return new

    @classmethod
    def from_mtx(cls, path: str | os.PathLike[str], *, dtype: Any = None, device: str | None = None) -> CSR:
        """From a Matrix Market file (``.mtx``, ``.mtx.gz``, ``.mtx.bz2``)."""
        rows, cols, values, shape, _ = read_mtx(path)
        if dtype is not None:
            wanted = dt.as_dtype(dtype)
            if wanted not in DTYPES or (values.dtype.kind == "c" and not wanted.is_complex):
                raise DTypeError(f"a matrix of {values.dtype} from {os.fspath(path)} as {wanted.name}",
                                 why="the values would be cut; products take f32, f64, c64 and c128",
                                 do="read it in its own dtype, or ask for one that holds its values")
            values = values.astype(wanted.numpy)
        elif values.dtype.kind in "iu":
            values = values.astype(np.float64)
        return cls.from_arrays(rows, cols, values, shape, device=device)

    @classmethod
    def from_dense(cls, matrix: Any, *, device: str | None = None) -> CSR:
        """From the nonzero elements of a dense matrix."""
        host = np.asarray(matrix)
        if host.ndim != 2:
            raise ShapeError(f"a matrix of shape {host.shape}", why="a matrix has two axes", do="reshape it")
        rows, cols = np.nonzero(host)
        return cls.from_arrays(rows, cols, host[rows, cols], host.shape, device=device)

    # Products

    def __matmul__(self, x: Any) -> Array:
        """``A @ x`` for a vector or a block of columns."""
        v = as_array(x, device=self.data._value.node.device)
        if v.ndim not in (1, 2) or v.shape[0] != self.shape[1]:
            raise ShapeError(f"a matrix of shape {self.shape} times an array of shape {v.shape}",
                             why=f"the array must have {self.shape[1]} rows", do="pass a vector or a block that fits")
        common = dt.common_type(self.dtype, v.dtype)
        return csr_matvec(astype(self.data, common), self.indices, self.indptr, astype(v, common))

    def matvec(self, x: Any) -> Array:
        """``A @ x``."""
        return self.__matmul__(x)

    def rmatvec(self, x: Any) -> Array:
        """``A^H @ x``."""
        return self.H.__matmul__(x)

    @property
    def T(self) -> CSR:
        """The transpose, in CSR form; values are moved on the device, the pattern is found once."""
        order, indices, indptr = self._transpose_pattern()
        return CSR._from_parts(gather(self.data, order, mode="promise"), indices, indptr,
                               (self.shape[1], self.shape[0]))

    @property
    def H(self) -> CSR:
        """The conjugate transpose."""
        t = self.T
        return CSR._from_parts(conj(t.data), t.indices, t.indptr, t.shape)

    def transpose(self) -> CSR:
        """The transpose, in CSR form."""
        return self.T

    def _transpose_pattern(self) -> tuple[Array, Array, Array]:
        if self._transposed is None:
            import scipy.sparse
            count = np.arange(self.nnz, dtype=np.int64)
            m = scipy.sparse.csr_matrix((count, np.asarray(self.indices), np.asarray(self.indptr)), shape=self.shape)
            t = m.tocsc()
            kind = np.asarray(self.indices).dtype
            self._transposed = (as_array(t.data, device=self.device),
                                as_array(t.indices.astype(kind), device=self.device),
                                as_array(t.indptr.astype(kind), device=self.device))
        return self._transposed

    # Views and conversions

    def diagonal(self) -> Array:
        """The main diagonal (0 where no entry is stored)."""
        n = min(self.shape)
        rows = np.repeat(np.arange(self.shape[0]), np.diff(np.asarray(self.indptr)))
        at = np.nonzero(rows == np.asarray(self.indices))[0]
        out = zeros((n,), dtype=self.dtype, device=self.device)
        places = as_array(rows[at], device=self.device)
        return scatter(out, gather(self.data, as_array(at, device=self.device), mode="promise"), (places,), "set")

    def todense(self) -> Array:
        """The matrix as an array of shape ``(n, m)``."""
        rows = segment_of(self.indptr, self.nnz)
        out = zeros(self.shape, dtype=self.dtype, device=self.device)
        return scatter(out, self.data, (rows, self.indices), "set")

    def tocsr(self) -> CSR:
        """Itself."""
        return self

    def to_scipy(self) -> Any:
        """A ``scipy.sparse.csr_array`` with a copy of the values."""
        import scipy.sparse
        return scipy.sparse.csr_array((np.array(self.data), np.array(self.indices), np.array(self.indptr)),
                                      shape=self.shape)

    def astype(self, dtype: Any) -> CSR:
        """The same matrix in another element type."""
        return CSR._from_parts(astype(self.data, dtype), self.indices, self.indptr, self.shape)

    def with_data(self, data: Array) -> CSR:
        """The same pattern with other values."""
        if data.shape != self.data.shape:
            raise ShapeError(f"{data.shape} values for {self.nnz} entries", why="the pattern stays as it is",
                             do="pass one value for each stored entry")
        return CSR._from_parts(data, self.indices, self.indptr, self.shape)

    def to_device(self, device: str) -> CSR:
        """The same matrix on another device."""
        moved = [x.to_device(device) for x in (self.data, self.indices, self.indptr)]
        return CSR._from_parts(moved[0], moved[1], moved[2], self.shape)


def as_csr(a: Any, device: str | None = None) -> CSR:
    """A CSR from a CSR, a scipy.sparse matrix, or a dense 2-D array."""
    if isinstance(a, CSR):
        return a if device is None or a.device == device else a.to_device(device)
    if isinstance(a, SparseMatrix):
        return as_csr(a.tocsr(), device)
    if hasattr(a, "tocsr"):
        return CSR.from_scipy(a, device=device)
    return CSR.from_dense(a, device=device)


def _values(data: Any, device: str | None) -> Array:
    values = asarray(data, device=device) if isinstance(data, Array) else as_array(np.asarray(data), device=device)
    if values.dtype not in DTYPES:
        if values.dtype.kind in "biu":
            return astype(values, dt.float64)
        raise DTypeError(f"a sparse matrix of {values.dtype.name}", why="products take f32, f64, c64 or c128",
                         do="cast the values with .astype(rlx.float64)")
    return values


def _length(data: Any) -> int:
    shape = data.shape if hasattr(data, "shape") else np.shape(data)
    if len(shape) != 1:
        raise ShapeError(f"CSR data of shape {tuple(shape)}", why="entries are a list of values", do="flatten the data")
    return int(shape[0])


def _integers(x: Any, what: str) -> np.ndarray:
    host = np.asarray(x)
    if host.ndim != 1:
        raise ShapeError(f"CSR {what} of shape {host.shape}", why="it is a list of integers", do="flatten it")
    if host.size == 0:
        return host.astype(np.int64)
    if host.dtype.kind not in "iu":
        raise DTypeError(f"CSR {what} of {host.dtype}", why="positions are integers", do=f"cast {what} to int64")
    return host


def _bounded(rows: int, entries: int) -> None:
    """A row pointer takes 4 to 8 bytes a row: a huge declared shape over a few entries is refused."""
    if rows > 1 << 28 and rows > 64 * max(entries, 1):
        raise ShapeError(f"a matrix of {rows} rows with {entries} entries", why="the row pointer alone would take "
                         f"{rows * 8 / 2**30:.1f} GiB", do="check the shape; number only the rows that are used")


def _check(indices: np.ndarray, indptr: np.ndarray, shape: tuple[int, int], entries: int) -> None:
    n, m = shape
    if len(indptr) != n + 1:
        raise ShapeError(f"indptr of length {len(indptr)} for {n} rows",
                         why="it has one entry more than there are rows",
                         do="pass the row starts, and the number of entries last")
    if len(indices) != entries:
        raise ShapeError(f"{len(indices)} column indices for {entries} values", why="each entry has one of each",
                         do="pass arrays of equal length")
    if indptr[0] != 0 or indptr[-1] != entries or np.any(np.diff(indptr.astype(np.int64)) < 0):
        raise ShapeError("indptr does not divide the entries into rows",
                         why=f"it must rise from 0 to {entries}, and goes from {indptr[0]} to {indptr[-1]}",
                         do="build it as the running sum of the entries in each row")
    if entries and (indices.min() < 0 or indices.max() >= m):
        bad = int(indices.min() if indices.min() < 0 else indices.max())
        raise IndexOutOfBounds(f"column {bad} is outside a matrix of shape {shape}",
                               why=f"columns go from 0 to {m - 1}",
                               do="check the index, or its base (0, not 1)")


def _is_canonical(indices: np.ndarray, indptr: np.ndarray) -> bool:
    """Whether the columns of each row strictly rise."""
    if len(indices) < 2:
        return True
    rising = np.diff(indices.astype(np.int64)) > 0
    starts = indptr[1:-1]
    starts = starts[(starts > 0) & (starts < len(indices))]
    rising[starts - 1] = True
    return bool(rising.all())


def _scipy(data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, shape: tuple[int, int]) -> Any:
    import scipy.sparse
    return scipy.sparse.csr_matrix((data, indices, indptr), shape=shape)


register_pytree(CSR, lambda a: ((a.data, a.indices, a.indptr), a.shape),
                lambda shape, parts: CSR._from_parts(parts[0], parts[1], parts[2], shape))
