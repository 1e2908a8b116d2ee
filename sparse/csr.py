"""Compressed sparse rows: the matrix format of the solvers."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from rlx.array.array import Array
from rlx.array.build import as_array
from rlx.array.tree import register_pytree
from rlx.core import dtype as dt
from rlx.core.errors import DTypeError, ShapeError, ValueIssue
from rlx.ops.creation import asarray, zeros
from rlx.ops.elementwise import astype
from rlx.ops.index import gather, scatter
from rlx.ops.segments import segment_of, segment_reduce
from rlx.sparse import pattern
from rlx.sparse.base import OPERATIONS, SparseMatrix
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
        host_indices, host_indptr = pattern.integers(indices, "CSR indices"), pattern.integers(indptr, "CSR indptr")
        pattern.check(host_indices, host_indptr, shape, length_of(data))
        if not pattern.is_canonical(host_indices, host_indptr):
            if isinstance(data, Array) and data.is_traced:
                raise ValueIssue("a traced CSR with unsorted or duplicate entries",
                                 why="entries would have to be moved",
                                 do="sort the pattern before the traced function")
            made = CSR.from_scipy(_scipy(np.asarray(data), host_indices, host_indptr, shape), device=device)
            data, host_indices, host_indptr = made.data, np.asarray(made.indices), np.asarray(made.indptr)
        self._set(values_of(data, device), host_indices, host_indptr, shape, device)

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
        r, c = pattern.integers(rows, "CSR rows"), pattern.integers(cols, "CSR cols")
        v = values if isinstance(values, Array) else np.asarray(values)
        if not len(r) == len(c) == length_of(v):
            raise ShapeError(f"{len(r)} rows, {len(c)} columns and {v.shape[0]} values",
                             why="each entry has one of each", do="pass arrays of equal length")
        n, m = shape
        pattern.check_inside("row", r, n, shape)
        pattern.check_inside("column", c, m, shape)
        pattern.bounded(n, len(r))
        if isinstance(v, Array):
            return cls._gathered(values_of(v, device), r, c, (int(n), int(m)))
        import scipy.sparse
        return cls.from_scipy(scipy.sparse.coo_matrix((v, (r, c)), shape=shape), device=device)

    @classmethod
    def _gathered(cls, data: Array, rows: np.ndarray, cols: np.ndarray, shape: tuple[int, int]) -> CSR:
        """From values on a device at checked positions: equal ones are summed there, with derivatives."""
        order, starts, indices, indptr = pattern.compress(rows, cols, shape)
        where = data._value.node.device
        sorted_ = gather(data, as_array(order, device=where), mode="promise")
        if len(starts) - 1 < len(order):
            sorted_ = segment_reduce(sorted_, as_array(starts, device=where))
        return cls._from_pattern(sorted_, indices, indptr, shape)

    @classmethod
    def _from_pattern(cls, data: Array, indices: np.ndarray, indptr: np.ndarray, shape: tuple[int, int]) -> CSR:
        """From values and a pattern that is known to be canonical."""
        new = object.__new__(cls)
        new._set(data, indices, indptr, shape, data._value.node.device)
        return new

    @classmethod
    def from_scipy(cls, matrix: Any, *, device: str | None = None) -> CSR:
        """From any scipy.sparse matrix or array; it is not changed."""
        source = matrix.tocsr()
        if not (source.has_canonical_format and source.has_sorted_indices):
            source = source.copy()
            source.sum_duplicates()
        data = values_of(source.data, device)
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

    def __matmul__(self, x: Any) -> Any:
        """``A @ x``: an array for a vector or a block of columns, a CSR for a sparse matrix."""
        if hasattr(x, "tocsr"):
            return OPERATIONS["matmul"](self, x)
        v = as_array(x, device=self.data._value.node.device)
        if v.ndim not in (1, 2) or v.shape[0] != self.shape[1]:
            raise ShapeError(f"a matrix of shape {self.shape} times an array of shape {v.shape}",
                             why=f"the array must have {self.shape[1]} rows", do="pass a vector or a block that fits")
        common = dt.common_type(self.dtype, v.dtype)
        return csr_matvec(astype(self.data, common), self.indices, self.indptr, astype(v, common))

    @property
    def T(self) -> CSR:
        """The transpose, in CSR form; values are moved on the device, the pattern is found once."""
        order, indices, indptr = self._transpose_pattern()
        return CSR._from_parts(gather(self.data, order, mode="promise"), indices, indptr,
                               (self.shape[1], self.shape[0]))

    def _transpose_pattern(self) -> tuple[Array, Array, Array]:
        if self._transposed is None:
            import scipy.sparse
            count = np.arange(self.nnz, dtype=np.int64)
            indices, indptr = pattern.host(self.indices), pattern.host(self.indptr)
            m = scipy.sparse.csr_matrix((count, indices, indptr), shape=self.shape)
            t = m.tocsc()
            kind = indices.dtype
            self._transposed = (as_array(t.data, device=self.device),
                                as_array(t.indices.astype(kind), device=self.device),
                                as_array(t.indptr.astype(kind), device=self.device))
        return self._transposed

    # Views and conversions

    def diagonal(self, k: int = 0) -> Array:
        """The diagonal ``A[i, i + k]`` (0 where no entry is stored)."""
        first, n = max(-k, 0), max(min(self.shape[0] + min(k, 0), self.shape[1] - max(k, 0)), 0)
        rows = pattern.rows_of(pattern.host(self.indptr))
        at = np.nonzero(rows + k == pattern.host(self.indices))[0]
        out = zeros((n,), dtype=self.dtype, device=self.device)
        places = as_array(rows[at] - first, device=self.device)
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


def values_of(data: Any, device: str | None) -> Array:
    """Values of a type that products take; integers become f64."""
    values = asarray(data, device=device) if isinstance(data, Array) else as_array(np.asarray(data), device=device)
    if values.dtype not in DTYPES:
        if values.dtype.kind in "biu":
            return astype(values, dt.float64)
        raise DTypeError(f"a sparse matrix of {values.dtype.name}", why="products take f32, f64, c64 or c128",
                         do="cast the values with .astype(rlx.float64)")
    return values


def length_of(data: Any) -> int:
    """How many values these are; they must be a list."""
    shape = data.shape if hasattr(data, "shape") else np.shape(data)
    if len(shape) != 1:
        raise ShapeError(f"sparse data of shape {tuple(shape)}", why="entries are a list of values",
                         do="flatten the data")
    return int(shape[0])


def _scipy(data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, shape: tuple[int, int]) -> Any:
    import scipy.sparse
    return scipy.sparse.csr_matrix((data, indices, indptr), shape=shape)


register_pytree(CSR, lambda a: ((a.data, a.indices, a.indptr), a.shape),
                lambda shape, parts: CSR._from_parts(parts[0], parts[1], parts[2], shape))
