"""Preconditioners: what they are, what they save, their adjoints, batches over values, and bad input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import rlx
import rlx.sparse as rs
from rlx.core.errors import ShapeError, ValueIssue
from rlx.sparse.aggregate import aggregates, spectral_radius, strong
from rlx.sparse.schedule import eliminate, levels, steps_of


def general(n: int = 40, complex_: bool = False, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    a = sp.random(n, n, 0.12, random_state=rng) + 3 * sp.eye(n)
    return (a + 1j * sp.random(n, n, 0.12, random_state=rng) if complex_ else a).tocsr()


def hermitian(n: int = 40, complex_: bool = False) -> Any:
    a = general(n, complex_)
    return (a + a.conj().T + 4 * sp.eye(n)).tocsr()


def poisson(n: int) -> Any:
    e = np.ones(n)
    t = sp.diags([-e[1:], 2 * e, -e[1:]], [-1, 0, 1])
    return (sp.kron(sp.eye(n), t) + sp.kron(t, sp.eye(n))).tocsr()


def reference(a: Any) -> tuple[Any, Any]:
    """L and U of the incomplete factorization, by its definition: row by row on the dense pattern."""
    d, stored = a.toarray(), a.toarray() != 0
    for i in range(len(d)):
        for k in np.flatnonzero(stored[i, :i]):
            d[i, k] /= d[k, k]
            later = np.flatnonzero(stored[i, k + 1:]) + k + 1
            d[i, later] -= d[i, k] * d[k, later]
    return np.tril(d, -1) + np.eye(len(d)), np.triu(d)


@pytest.mark.parametrize("where", ["cpu", "python"])
@pytest.mark.parametrize("complex_", [False, True])
def test_factors_without_fill_are_those_of_the_definition(complex_: bool, where: str) -> None:
    r = np.arange(1.0, 41.0) + (1j if complex_ else 0)
    for make, a in ((rs.ilu0, general(complex_=complex_)), (rs.ic0, hermitian(complex_=complex_))):
        lower, upper = reference(a)
        M = make(a, device=where)
        got = M(rlx.asarray(r, device=where))
        assert got.device == where
        np.testing.assert_allclose(np.asarray(got), np.linalg.solve(upper, np.linalg.solve(lower, r)), rtol=1e-10)
        turned = np.linalg.solve(lower.conj().T, np.linalg.solve(upper.conj().T, r))
        np.testing.assert_allclose(np.asarray(M.H(rlx.asarray(r, device=where))), turned, rtol=1e-10)


@pytest.mark.parametrize("make", [rs.ilu0, rs.ic0])
def test_without_fill_to_drop_they_are_exact(make: Any) -> None:
    a = sp.diags([-1.0, 2.5, -1.0], [-1, 0, 1], shape=(300, 300)).tocsr()
    r = np.random.default_rng(0).standard_normal(300)
    np.testing.assert_allclose(np.asarray(make(a)(rlx.asarray(r))), np.linalg.solve(a.toarray(), r), rtol=1e-9)


def test_a_long_row_takes_several_steps() -> None:
    """An arrow: its last row depends on all others."""
    n = 200
    a = sp.eye(n).tolil() * 4
    a[n - 1, :] = 1.0
    a[:, n - 1] = 1.0
    a[n - 1, n - 1] = 100.0
    a = a.tocsr()
    r = np.random.default_rng(0).standard_normal(n)
    for make in (rs.ilu0, rs.ic0):
        np.testing.assert_allclose(np.asarray(make(a)(rlx.asarray(r))), np.linalg.solve(a.toarray(), r), rtol=1e-10)


def test_schedules_respect_their_dependencies() -> None:
    rng = np.random.default_rng(0)
    lower = sp.tril(sp.random(120, 120, 0.05, random_state=rng), -1).tocsr()
    level = levels(lower.indices, lower.indptr, 120)
    rows = np.repeat(np.arange(120), np.diff(lower.indptr))
    assert (level[rows] > level[lower.indices]).all() and (level[np.diff(lower.indptr) == 0] == 0).all()
    plan = steps_of(level, lower.indptr)
    done = np.full(121, -1)
    for s, row in enumerate(plan.rows):
        for w, t in enumerate(plan.terms[s]):
            used = lower.indices[t[t < lower.nnz]]
            assert (done[used] >= 0).all() and (done[used] < s).all()
            if plan.last[s, w]:
                assert done[row[w]] < 0
                done[row[w]] = s
    assert (done[:120] >= 0).all()
    np.testing.assert_array_equal(np.sort(plan.terms[plan.terms < lower.nnz]), np.arange(lower.nnz))
    with pytest.raises(ValueIssue, match="depends on itself"):
        levels(np.array([1, 0]), np.array([0, 1, 2]), 2)
    with pytest.raises(ValueIssue, match="depends on itself"):
        eliminate(np.array([0, 0]), np.zeros(0, int), np.zeros(0, int), None, np.array([0]),
                  (np.array([0]), np.array([0, 1])), rlx.asarray([1.0]))


def test_block_jacobi_inverts_the_blocks() -> None:
    a, r = general(10), np.arange(10.0)
    for size in (1, 3, 5, 10, 16):
        M = rs.block_jacobi(a, size)
        want = np.concatenate([np.linalg.solve(a.toarray()[i:i + size, i:i + size], r[i:i + size])
                               for i in range(0, 10, size)])
        np.testing.assert_allclose(np.asarray(M(rlx.asarray(r))), want, rtol=1e-10)
    z = general(10, True)
    turned = rs.block_jacobi(z, 5).H(rlx.asarray(r + 0j))
    want = np.concatenate([np.linalg.solve(z.toarray()[i:i + 5, i:i + 5].conj().T, r[i:i + 5]) for i in (0, 5)])
    np.testing.assert_allclose(np.asarray(turned), want, rtol=1e-10)


def test_each_saves_iterations_and_the_answer_is_right() -> None:
    a = poisson(40)
    b = np.random.default_rng(0).standard_normal(1600)
    _, plain = rs.cg(a, b, rtol=1e-9)
    kinds = {"block_jacobi": (rs.block_jacobi(a, 40), 0.9), "ic0": (rs.ic0(a), 0.45), "ilu0": (rs.ilu0(a), 0.45),
             "amg": (rs.smoothed_aggregation(a, coarsest=50), 0.25)}
    for name, (M, share) in kinds.items():
        x, info = rs.cg(a, b, rtol=1e-9, M=M)
        assert info == 0 and info.iterations < share * plain.iterations, name
        assert np.linalg.norm(b - a @ np.asarray(x)) <= 1e-9 * np.linalg.norm(b) * (1 + 1e-6)


# Multigrid

def test_multigrid_is_symmetric_positive_and_scales() -> None:
    a = poisson(12)
    M = rs.smoothed_aggregation(a, coarsest=10)
    dense = np.stack([np.asarray(M(rlx.asarray(e))) for e in np.eye(144)])
    np.testing.assert_allclose(dense, dense.T, atol=1e-12)
    assert np.linalg.eigvalsh(dense).min() > 0 and len(M.levels) >= 1 and "144 > " in repr(M)
    error = np.linalg.eigvals(np.eye(144) - dense @ a.toarray())
    assert np.abs(error).max() < 0.75
    counts = [rs.cg(poisson(n), np.ones(n * n), rtol=1e-8, M=rs.smoothed_aggregation(poisson(n)))[1].iterations
              for n in (30, 120)]
    assert counts[1] <= counts[0] + 10


def test_multigrid_of_a_singular_problem_and_in_single_precision() -> None:
    n = 900
    t = sp.diags([-1.0, 2.0, -1.0], [-1, 0, 1], shape=(n, n)).tolil()
    t[0, 0] = t[n - 1, n - 1] = 1.0  # Neumann: constants are in the null space
    b = np.random.default_rng(0).standard_normal(n)
    b -= b.mean()
    x, info = rs.cg(t.tocsr(), b, rtol=1e-8, M=rs.smoothed_aggregation(t.tocsr(), coarsest=100))
    assert info == 0 and np.linalg.norm(b - t @ np.asarray(x)) <= 1e-8 * np.linalg.norm(b) * (1 + 1e-5)
    a = poisson(40)
    _, single = rs.cg(a, np.ones(1600), rtol=1e-10, M=rs.smoothed_aggregation(a, coarsest=50, dtype="float32"))
    _, double = rs.cg(a, np.ones(1600), rtol=1e-10, M=rs.smoothed_aggregation(a, coarsest=50))
    assert single == 0 and single.iterations <= double.iterations + 3


def test_multigrid_of_a_hermitian_matrix() -> None:
    a = poisson(20).astype(complex)
    turn = sp.diags(np.exp(1j * np.random.default_rng(0).uniform(0, 1, 400)))
    h = (turn @ a @ turn.conj()).tocsr()
    _, info = rs.cg(h, np.ones(400), rtol=1e-8, M=rs.smoothed_aggregation(h, coarsest=50))
    assert info == 0


def test_aggregates_cover_the_graph_in_connected_groups() -> None:
    a = poisson(30)
    graph = strong(a, a.diagonal(), 0.0)
    group = aggregates(graph)
    assert group.min() == 0 and len(np.unique(group)) == group.max() + 1 < 900 / 3
    links = sp.csr_matrix((np.ones(len(graph[0])), *graph), shape=(900, 900))
    for g in range(group.max() + 1):
        at = np.flatnonzero(group == g)
        assert sp.csgraph.connected_components(links[at][:, at])[0] == 1
    alone = aggregates((np.zeros(0, np.int64), np.zeros(6, np.int64)))
    np.testing.assert_array_equal(alone, np.arange(5))
    d = a.diagonal()
    assert 0.98 < spectral_radius(a, d) / (np.linalg.eigvalsh(a.toarray()).max() / 4) < 1.05


# Derivatives and batches

def test_values_of_one_pattern_under_vmap_and_jit() -> None:
    a = poisson(8)
    A, b = rs.CSR.from_scipy(a), rlx.asarray(np.ones(64))

    def solve(v: Any) -> Any:
        m = A.with_data(v)
        return [rs.cg(m, b, rtol=1e-10, M=make(m))[0] for make in (rs.ic0, rs.ilu0, rs.jacobi,
                                                                   lambda m: rs.block_jacobi(m, 4))]
    values = rlx.asarray(np.stack([np.asarray(A.data), 2 * np.asarray(A.data)]))
    want = np.linalg.solve(a.toarray(), np.ones(64))
    for xs in rlx.vmap(solve)(values):
        np.testing.assert_allclose(np.asarray(xs), [want, want / 2], rtol=1e-7)
    for x in rlx.jit(solve)(A.data):
        np.testing.assert_allclose(np.asarray(x), want, rtol=1e-7)


def test_the_derivative_of_a_preconditioned_solve_is_that_of_the_solution() -> None:
    a = general(30)
    A, b = rs.CSR.from_scipy(a), rlx.asarray(np.ones(30))
    want = np.linalg.solve(a.toarray().T, np.ones(30))
    for M in (rs.ilu0(A), rs.block_jacobi(A, 5)):
        got = rlx.grad(lambda b, M=M: rs.bicgstab(A, b, rtol=1e-13, M=M)[0].sum())(b)
        np.testing.assert_allclose(np.asarray(got), want, rtol=1e-8, atol=1e-10)
    h = poisson(10)
    got = rlx.grad(lambda b: rs.cg(h, b, rtol=1e-13, M=rs.smoothed_aggregation(h, coarsest=20))[0].sum())(
        rlx.asarray(np.ones(100)))
    np.testing.assert_allclose(np.asarray(got), np.linalg.solve(h.toarray(), np.ones(100)), rtol=1e-8)


# Bad input

def test_bad_input() -> None:
    wide = sp.random(3, 4, 0.5)
    for make in (rs.ilu0, rs.ic0, rs.block_jacobi, rs.smoothed_aggregation):
        with pytest.raises(ShapeError, match="of a matrix of shape"):
            make(wide)
    hole = sp.csr_matrix(np.array([[1.0, 2.0], [3.0, 0.0]]))
    hole.eliminate_zeros()
    for make in (rs.ilu0, rs.ic0):
        with pytest.raises(ValueIssue, match="without an entry at 1"):
            make(hole)
    with pytest.raises(ValueIssue, match=r"pivot of -?0 at row 1"):
        rs.ilu0([[1.0, 1.0], [1.0, 1.0]])
    with pytest.raises(ValueIssue, match="pivot of -3"):
        rs.ic0([[1.0, 2.0], [2.0, 1.0]])
    assert rs.ilu0([[1.0, 1.0], [1.0, 1.0]], shift=0.1)(rlx.asarray([1.0, 1.0])).shape == (2,)
    with pytest.raises(ValueIssue, match="block 1 is singular"):
        rs.block_jacobi(sp.diags([1.0, 1.0, 0.0, 0.0]), 2)
    for bad in (0, 1.5, True):
        with pytest.raises(ValueIssue, match="blocksize"):
            rs.block_jacobi(sp.eye(4), bad)  # type: ignore[arg-type]
    with pytest.raises(ValueIssue, match="diagonal"):
        rs.smoothed_aggregation(-poisson(20))
    with pytest.raises(ValueIssue, match="coarsest level"):
        rs.smoothed_aggregation(sp.eye(5000))
