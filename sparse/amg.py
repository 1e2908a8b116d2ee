"""Smoothed aggregation: an algebraic multigrid preconditioner. Levels are made on the host, the cycle is a program."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rlx.array.array import Array
from rlx.array.build import as_array
from rlx.core.errors import ShapeError, ValueIssue
from rlx.ops.elementwise import astype
from rlx.sparse.aggregate import aggregates, spectral_radius, strong
from rlx.sparse.arguments import apply
from rlx.sparse.bands import bands_of
from rlx.sparse.csr import CSR, as_csr
from rlx.sparse.pattern import host

#: Weight of the damped Jacobi steps over the spectral radius of ``D^-1 A``: it damps the upper part of the spectrum
#: most (P. Vanek, J. Mandel, M. Brezina, Computing 56 (1996) 179).
WEIGHT = 4 / 3
#: Levels beyond which a matrix that does not shrink is taken as it is.
DEEPEST = 25


@dataclass(frozen=True)
class Level:
    """One grid: its matrix, the scaled inverse diagonal, and the way to the next grid and back."""

    A: Any
    smooth: Array
    down: CSR
    up: CSR


@dataclass(frozen=True)
class Multigrid:
    """A symmetric V-cycle as an approximate inverse; a pytree that is called.

    On each level: a damped Jacobi step from zero, the coarse correction, a damped Jacobi step. The coarsest system is
    solved by its inverse.
    """

    levels: tuple[Level, ...]
    coarse: Array
    #: Entries of all levels' matrices over those of the finest.
    complexity: float = field(default=1.0, metadata={"static": True})

    @property
    def H(self) -> Multigrid:
        """The cycle is Hermitian."""
        return self

    def __call__(self, r: Array) -> Array:
        """``M r`` in the dtype of r."""
        return astype(self._cycle(0, astype(r, self.coarse.dtype)), r.dtype)

    def _cycle(self, k: int, r: Array) -> Array:
        if k == len(self.levels):
            return self.coarse @ r
        g = self.levels[k]
        x = g.smooth * r
        x = x + g.up @ self._cycle(k + 1, g.down @ (r - apply(g.A, x)))
        out: Array = x + g.smooth * (r - apply(g.A, x))
        return out

    def __repr__(self) -> str:
        sizes = " > ".join(str(int(n)) for n in (*[g.smooth.shape[0] for g in self.levels], self.coarse.shape[0]))
        return f"Multigrid({sizes}, operator complexity {self.complexity:.2f})"


def smoothed_aggregation(A: Any, *, theta: float = 0.08, coarsest: int = 300, dtype: Any = None,
                         device: str | None = None) -> Multigrid:
    """A multigrid preconditioner of a symmetric (Hermitian) positive definite matrix by smoothed aggregation.

    Parameters
    ----------
    A : a square sparse matrix, as from a discretized elliptic equation with one unknown a point.
    theta : entries with ``|a_ij| <= theta sqrt(a_ii a_jj)`` do not count as connections; 0 counts all, 0.08 is
        that of Vanek et al.
    coarsest : unknowns at which the system is solved by its (dense) inverse.
    dtype : of the cycle; that of A by default. ``"float32"`` under an f64 solver halves what a cycle moves.
    device : that of A by default.

    Returns
    -------
    A :class:`Multigrid` to pass as ``M``. It is set up on the host; the cycle runs inside the solver's program. The
    near-null space is that of constants. Aggregates grow about a maximal independent set of the graph's square
    (N. Bell, S. Dalton, L. N. Olson, SIAM J. Sci. Comput. 34 (2012) C123). After P. Vanek, J. Mandel and M. Brezina,
    Computing 56 (1996) 179.

    Raises ValueIssue where the diagonal is not positive.

    >>> import numpy as np, rlx.sparse
    >>> A, one = rlx.sparse.diags([-1.0, 2.0, -1.0], [-1, 0, 1], (60, 60)), rlx.sparse.eye(60)
    >>> A = rlx.sparse.kron(one, A) + rlx.sparse.kron(A, one)
    >>> _, info = rlx.sparse.cg(A, np.ones(3600), rtol=1e-8, M=rlx.sparse.smoothed_aggregation(A))
    >>> info.reason, info.iterations < 30
    ('converged', True)
    """
    a = as_csr(A, device)
    if a.shape[0] != a.shape[1]:
        raise ShapeError(f"smoothed_aggregation of a matrix of shape {a.shape}", why="it must be square",
                         do="pass the matrix of the system")
    kind = a.dtype.numpy if dtype is None else np.result_type(np.dtype(dtype), np.complex64 if a.dtype.is_complex else
                                                              np.float32)
    import scipy.sparse
    m = scipy.sparse.csr_array((host(a.data, "the values of A"), host(a.indices), host(a.indptr)), shape=a.shape)
    levels: list[Level] = []
    first, entries = m.nnz, m.nnz
    fine: Any = bands_of(a) if kind == a.dtype.numpy else None
    while m.shape[0] > coarsest and len(levels) < DEEPEST:
        made = _coarsened(m, theta)
        if made is None:
            break
        weights, p, coarse = made
        matrix = fine or _placed(m, kind, a.device)
        levels.append(Level(matrix, as_array(weights.astype(kind), device=a.device),
                            _placed(p.conj().T.tocsr(), kind, a.device), _placed(p, kind, a.device)))
        m, fine = coarse, None
        entries += m.nnz
    inverse = _inverse(m, coarsest)
    return Multigrid(tuple(levels), as_array(inverse.astype(kind), device=a.device), entries / max(first, 1))


def _placed(m: Any, kind: Any, device: str) -> Any:
    a = CSR.from_scipy(m.astype(kind), device=device)
    return bands_of(a) or a if m.shape[0] == m.shape[1] else a


def _coarsened(m: Any, theta: float) -> tuple[Any, Any, Any] | None:
    """(scaled inverse diagonal, prolongation, next matrix), or None where aggregation does not shrink the matrix."""
    import scipy.sparse
    d = np.real(m.diagonal())
    bad = np.flatnonzero(~(d > 0) | ~np.isfinite(d))
    if len(bad):
        raise ValueIssue(f"smoothed aggregation of a matrix with {d[bad[0]]} at {int(bad[0])} of a level's diagonal",
                         why="it is meant for positive definite matrices", do="use ilu0 or another preconditioner")
    group = aggregates(strong(m, d, theta))
    count = int(group.max()) + 1 if len(group) else 0
    if count == 0 or count > 0.8 * m.shape[0]:
        return None
    size = np.bincount(group, minlength=count)
    n = m.shape[0]
    tentative = scipy.sparse.csr_array((1 / np.sqrt(size[group]), group, np.arange(n + 1)), shape=(n, count))
    weights = WEIGHT / spectral_radius(m, d) / d
    step = m @ tentative
    step.data *= np.repeat(weights, np.diff(step.indptr))
    p = scipy.sparse.csr_array(tentative - step)
    coarse = scipy.sparse.csr_array(p.conj().T.tocsr() @ (m @ p))
    coarse.sort_indices()
    return weights, p, coarse


def _inverse(m: Any, coarsest: int) -> Any:
    if m.shape[0] > max(8 * coarsest, 4000):
        raise ValueIssue(f"smoothed aggregation left {m.shape[0]} unknowns on its coarsest level",
                         why="the matrix has too few connections to be aggregated",
                         do="lower theta, or use ic0 or jacobi")
    # A singular coarsest system (pure Neumann) has a null space that a pseudo-inverse leaves alone.
    return np.linalg.pinv(m.toarray(), hermitian=True, rcond=1e-12)


__all__ = ["Level", "Multigrid", "smoothed_aggregation"]
