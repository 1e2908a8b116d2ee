"""Graph work of algebraic multigrid on the host: strong connections, aggregates, a spectral radius."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Steps of the Lanczos process that estimates a spectral radius, and what its largest Ritz value may lack.
STEPS, MARGIN = 14, 1.02


def strong(m: Any, d: NDArray[Any], theta: float) -> Any:
    """The graph of entries off the diagonal with ``|a_ij| > theta sqrt(d_i d_j)``, as (indices, indptr)."""
    rows = np.repeat(np.arange(m.shape[0], dtype=m.indices.dtype), np.diff(m.indptr))
    keep = (rows != m.indices) & (m.data != 0)
    if theta > 0:
        root = np.sqrt(d)
        keep &= np.abs(m.data) > theta * root[rows] * root[m.indices]
    count = np.concatenate([[0], np.cumsum(keep)])
    return m.indices[keep], count[m.indptr]


def aggregates(graph: tuple[NDArray[Any], NDArray[Any]]) -> NDArray[Any]:
    """A group number for each vertex: groups grow from a maximal independent set of the graph's square.

    In rounds, a vertex joins the set if its key is the largest among the undecided within two edges; vertices within
    two edges of a member are out. Then members give their number to their neighbours, and those to theirs.
    """
    indices, indptr = graph
    n = len(indptr) - 1
    # Distinct keys in an order that neighbours in the numbering do not share: a fixed permutation of the numbers.
    key = np.random.default_rng(0).permutation(n).astype(np.int64) + 1
    state = key.copy()  # undecided: its key; in: n + 1; out: 0
    member = np.zeros(n, bool)
    while True:
        undecided = (state > 0) & ~member
        if not undecided.any():
            break
        best = _largest(_largest(state, indices, indptr), indices, indptr)
        new = undecided & (best == state)
        member |= new
        state[new] = n + 1
        state[undecided & ~new & (best > n)] = 0
        near = _largest(_largest(np.where(new, n + 1, 0), indices, indptr), indices, indptr) > 0
        state[near & ~member] = 0
    group = np.where(member, np.cumsum(member), 0)
    for _ in range(2):
        group = np.where(group > 0, group, _largest(group, indices, indptr))
    return group - 1


def _largest(x: NDArray[Any], indices: NDArray[Any], indptr: NDArray[Any]) -> NDArray[Any]:
    """The largest value of a vertex and its neighbours."""
    if not len(indices):
        return x
    full = np.flatnonzero(indptr[1:] > indptr[:-1])
    out = x.copy()
    out[full] = np.maximum(x[full], np.maximum.reduceat(x[indices], indptr[:-1][full]))
    return out


def spectral_radius(m: Any, d: NDArray[Any]) -> float:
    """The largest eigenvalue of ``D^-1 A`` for a Hermitian A, by Lanczos steps on ``D^-1/2 A D^-1/2``."""
    n = m.shape[0]
    root = 1 / np.sqrt(d)
    v = np.random.default_rng(0).standard_normal(n)
    v /= np.linalg.norm(v)
    before, beta = np.zeros(n), 0.0
    alphas: list[float] = []
    betas: list[float] = []
    for _ in range(min(STEPS, n)):
        w = root * (m @ (root * v)) - beta * before
        alphas.append(float(np.real(np.vdot(v, w))))
        w -= alphas[-1] * v
        beta = float(np.linalg.norm(w))
        if beta <= 1e-14 * abs(alphas[-1]):
            break
        betas.append(beta)
        before, v = v, w / beta
    off = betas[:len(alphas) - 1]
    return MARGIN * float(np.linalg.eigvalsh(np.diag(alphas) + np.diag(off, 1) + np.diag(off, -1)).max())


__all__ = ["aggregates", "spectral_radius", "strong"]
