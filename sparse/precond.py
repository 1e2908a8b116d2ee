"""Preconditioners: cheap approximate inverses, applied as functions on arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx.array.array import Array
from rlx.core.errors import ValueIssue
from rlx.ops.elementwise import reciprocal
from rlx.sparse.csr import as_csr


@dataclass(frozen=True)
class Jacobi:
    """``M r = r / diag(A)``; a pytree that is called."""

    inverse: Array

    def __call__(self, r: Array) -> Array:
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
    host = np.asarray(d)
    bad = np.nonzero((host == 0) | ~np.isfinite(host))[0]
    if len(bad):
        raise ValueIssue(f"the Jacobi preconditioner of a matrix with {host[bad[0]]} at {int(bad[0])} of its diagonal",
                         why=f"it divides by the diagonal; {len(bad)} of {len(host)} elements are zero or not finite",
                         do="reorder the matrix, shift its diagonal, or use another preconditioner")
    return Jacobi(reciprocal(d))
