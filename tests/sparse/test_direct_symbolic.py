"""The analysis of direct solvers: orderings that are permutations with little fill, and fronts that hold all of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.linalg
from hypothesis import given, settings
from hypothesis import strategies as st

import rlx.sparse
from rlx.sparse.ordering import amd
from rlx.sparse.symbolic import fronts


def pattern(n: int, density: float, seed: int) -> Any:
    """A random symmetric pattern without its diagonal."""
    a = scipy.sparse.random(n, n, density, "csr", random_state=np.random.default_rng(seed))
    s = scipy.sparse.csr_matrix(((a + a.T) != 0).astype(np.int8))
    s.setdiag(0)
    s.eliminate_zeros()
    return s


def grid(n: int) -> Any:
    t = scipy.sparse.diags([1.0, 1.0], [-1, 1], (n, n))
    s = (scipy.sparse.kron(scipy.sparse.eye(n), t) + scipy.sparse.kron(t, scipy.sparse.eye(n))).tocsr()
    s.eliminate_zeros()
    return s


def eliminated(s: Any, order: Any) -> np.ndarray:
    """The filled pattern (lower triangle) of elimination in this order, densely."""
    p = s.toarray()[np.ix_(order, order)] != 0
    for k in range(len(order)):
        below = np.nonzero(p[k + 1:, k])[0] + k + 1
        p[np.ix_(below, below)] = True
    np.fill_diagonal(p, True)
    return np.tril(p)


@settings(max_examples=40, deadline=None)
@given(n=st.integers(1, 60), density=st.floats(0, 0.4), seed=st.integers(0, 10**6))
def test_every_order_is_a_permutation_and_fronts_hold_the_fill(n: int, density: float, seed: int) -> None:
    s = pattern(n, density, seed)
    order = amd(s.indptr, s.indices)
    assert sorted(order) == list(range(n))
    f = fronts(s.indptr, s.indices, order)
    assert sorted(f.order) == list(range(n))
    full = eliminated(s, f.order)
    assert full.sum() == eliminated(s, order).sum()    # a postorder has the same fill
    held = np.zeros((n, n), bool)
    for k, (a, b) in enumerate(zip(f.first[:-1], f.first[1:], strict=True)):
        rows = f.rows[f.above[k]:f.above[k + 1]]
        assert np.all(np.diff(rows) > 0) and np.all(rows >= b)
        held[a:b, a:b] = True
        held[np.ix_(rows, np.arange(a, b))] = True
        p = f.parent[k]
        assert (p < 0) == (len(rows) == 0)
        if p >= 0:
            assert p > k and f.level[p] > f.level[k]
            mine = np.concatenate([np.arange(f.first[p], f.first[p + 1]), f.rows[f.above[p]:f.above[p + 1]]])
            np.testing.assert_array_equal(mine[f.into[f.above[k]:f.above[k + 1]]], rows)
    assert np.all(held[full])
    assert f.first[-1] == n


@pytest.mark.parametrize("n", [20, 45])
def test_fill_of_a_grid_is_that_of_minimum_degree(n: int) -> None:
    s = grid(n)
    order = amd(s.indptr, s.indices)
    fill = int(eliminated(s, order).sum()) if n < 30 else None
    a = (s * -1.0 + 4.1 * scipy.sparse.eye(n * n)).tocsc()
    options = {"SymmetricMode": True}
    known = scipy.sparse.linalg.splu(a, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options=options).L.nnz
    ours = scipy.sparse.linalg.splu(a[order][:, order].tocsc(), permc_spec="NATURAL", diag_pivot_thresh=0.0,
                                    options=options).L.nnz
    assert fill is None or fill == ours
    assert ours < 1.25 * known
    assert ours < 0.7 * scipy.sparse.linalg.splu(a, permc_spec="NATURAL", diag_pivot_thresh=0.0, options=options).L.nnz


def test_a_dense_row_is_ordered_last() -> None:
    n = 400
    rows = np.concatenate([np.zeros(n - 1, int), np.arange(1, n)])
    cols = np.concatenate([np.arange(1, n), np.zeros(n - 1, int)])
    s = scipy.sparse.csr_matrix((np.ones(len(rows)), (rows, cols)), shape=(n, n))
    assert amd(s.indptr, s.indices)[-1] == 0


def test_levels_and_flops() -> None:
    plan = rlx.sparse.analyze(grid(20) + 5 * scipy.sparse.eye(400))
    f = fronts(*_pattern(grid(20)), plan.cols)
    w, size = f.widths, f.sizes
    by_hand = sum((s - k - 1) + 2 * (s - k - 1) ** 2 for w_, s in zip(w, size, strict=True) for k in range(w_))
    assert f.flops == by_hand
    assert plan.nnz >= 2 * eliminated(grid(20), plan.cols).sum() - 400


def _pattern(s: Any) -> tuple[Any, Any]:
    return s.indptr, s.indices
