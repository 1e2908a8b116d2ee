"""Preconditioners: cheap approximate inverses, applied as functions on arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx.array.array import Array
from rlx.array.build import as_array
from rlx.core.errors import ShapeError, ValueIssue
from rlx.linalg.solvers import inv
from rlx.ops.creation import full
from rlx.ops.elementwise import conj, reciprocal
from rlx.ops.index import gather, scatter
from rlx.ops.movement import concat, permute_dims
from rlx.ops.reduce import sum as total
from rlx.sparse.csr import as_csr
from rlx.sparse.pattern import host, rows_of


@dataclass(frozen=True)
class Jacobi:
    """``M r = r / diag(A)``; a pytree that is called."""

    inverse: Array

    @property
    def H(self) -> Jacobi:
        """The conjugate transpose."""
        return Jacobi(conj(self.inverse))

    def __call__(self, r: Array) -> Array:
        """``M r``."""
        return self.inverse * r


def jacobi(A: Any, *, device: str | None = None) -> Jacobi:
    """The Jacobi preconditioner ``M = diag(A)^-1`` of a sparse matrix.

    Raises ValueIssue where the diagonal has a zero or a value that is not finite.

    >>> import rlx.sparse
    >>> A = rlx.sparse.CSR.from_arrays([0, 1], [0, 1], [2.0, 4.0], (2, 2))
    >>> rlx.sparse.jacobi(A)(rlx.asarray([1.0, 1.0])).tolist()
    [0.5, 0.25]
    """
    d = as_csr(A, device).diagonal()
    if d.is_traced:
        return Jacobi(reciprocal(d))
    known = np.asarray(d)
    bad = np.nonzero((known == 0) | ~np.isfinite(known))[0]
    if len(bad):
        raise ValueIssue(f"the Jacobi preconditioner of a matrix with {known[bad[0]]} at {int(bad[0])} of its diagonal",
                         why=f"it divides by the diagonal; {len(bad)} of {len(known)} elements are zero or not finite",
                         do="reorder the matrix, shift its diagonal, or use another preconditioner")
    return Jacobi(reciprocal(d))


@dataclass(frozen=True)
class BlockJacobi:
    """``M r``: the inverse of each diagonal block times its part of r; a pytree that is called."""

    inverses: Array

    @property
    def H(self) -> BlockJacobi:
        """The conjugate transpose."""
        return BlockJacobi(permute_dims(conj(self.inverses), (0, 2, 1)))

    def __call__(self, r: Array) -> Array:
        """``M r`` (n,)."""
        count, size, _ = self.inverses.shape
        n = r.shape[0]
        whole = r if n == count * size else concat((r, full((count * size - n,), 0, dtype=r.dtype,
                                                            device=r._value.node.device)))
        out: Array = total(self.inverses * whole.reshape((count, 1, size)), axis=2).reshape((-1,))
        return out if n == count * size else out[:n]


def block_jacobi(A: Any, blocksize: int = 4, *, device: str | None = None) -> BlockJacobi:
    """The block Jacobi preconditioner: the inverses of the dense blocks of ``blocksize`` along the diagonal.

    Where the size does not divide n the last block is filled up with the identity. Values may be traced. Raises
    ValueIssue where a block is singular.

    >>> import rlx.sparse
    >>> A = rlx.sparse.CSR.from_dense([[2.0, 1.0, 0.0], [1.0, 2.0, 0.0], [0.0, 0.0, 4.0]])
    >>> [round(v, 6) for v in rlx.sparse.block_jacobi(A, 2)(rlx.asarray([3.0, 3.0, 4.0])).tolist()]
    [1.0, 1.0, 1.0]
    """
    a = as_csr(A, device)
    if a.shape[0] != a.shape[1]:
        raise ShapeError(f"block_jacobi of a matrix of shape {a.shape}", why="it must be square",
                         do="pass the matrix of the system")
    if isinstance(blocksize, bool) or not hasattr(blocksize, "__index__") or int(blocksize) < 1:
        raise ValueIssue(f"block_jacobi with blocksize={blocksize!r}", why="it is the size of a block",
                         do="pass an integer of at least 1")
    n, size = a.shape[0], int(blocksize)
    count = -(-n // size)
    rows, cols = rows_of(host(a.indptr)), host(a.indices)
    at = np.flatnonzero(rows // size == cols // size)
    where = a.data._value.node.device

    def placed(index: Any) -> Array:
        return as_array(np.ascontiguousarray(index, np.int64), device=where)
    blocks = np.zeros((count, size, size), a.dtype.numpy)
    rest = np.arange(n, count * size)
    blocks[rest // size, rest % size, rest % size] = 1
    places = (placed(rows[at] // size), placed(rows[at] % size), placed(cols[at] % size))
    filled = scatter(as_array(blocks, device=where), gather(a.data, placed(at), mode="promise"), places, "set")
    inverses: Array = inv(filled, errors="nan")
    if not inverses.is_traced:
        bad = np.flatnonzero(~np.isfinite(np.asarray(inverses)).all(axis=(1, 2)))
        if len(bad):
            raise ValueIssue(f"block_jacobi of a matrix whose diagonal block {int(bad[0])} is singular",
                             why=f"it holds rows {int(bad[0]) * size} to {min(int(bad[0] + 1) * size, n) - 1}",
                             do="choose another blocksize, reorder the matrix, or use another preconditioner")
    return BlockJacobi(inverses)
