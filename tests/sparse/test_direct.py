"""Sparse LU and Cholesky: agreement with SciPy, reuse of the analysis, derivatives, batches, and bad input."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.linalg

import rlx
import rlx.sparse
from rlx.core.errors import DTypeError, ShapeError, ValueIssue
from rlx.linalg.errors import LinAlgError
from rlx.sparse.direct_oracle import system, triangles
from tests.test_readme import execute

KINDS = ("lu", "cholesky")


def poisson(n: int) -> Any:
    """The five-point Laplacian on an n x n grid."""
    e = np.ones(n)
    t = scipy.sparse.diags([-e[1:], 2 * e, -e[1:]], [-1, 0, 1])
    return (scipy.sparse.kron(scipy.sparse.eye(n), t) + scipy.sparse.kron(t, scipy.sparse.eye(n))).tocsr()


def unsymmetric(n: int, seed: int = 0) -> Any:
    """A matrix without a diagonal to pivot on, with values over six decades, as of a chemical process."""
    rng = np.random.default_rng(seed)
    a = scipy.sparse.random(n, n, 3.0 / n, "csr", random_state=rng)
    a.data = rng.standard_normal(a.nnz) * 10.0 ** rng.uniform(-3, 3, a.nnz)
    shuffled = scipy.sparse.csr_matrix((rng.choice([-1.0, 1.0], n) * 10.0 ** rng.uniform(-2, 2, n),
                                        (np.arange(n), rng.permutation(n))), shape=(n, n))
    return (a + shuffled).tocsr()


def right_side(n: int, dtype: str, k: int | None = None) -> Any:
    rng = np.random.default_rng(7)
    shape = (n,) if k is None else (n, k)
    b = rng.standard_normal(shape)
    return (b + 1j * rng.standard_normal(shape) if "complex" in dtype else b).astype(dtype)


def backward_error(a: Any, x: Any, b: Any) -> float:
    """The largest ``|b - A x| / (|A| |x| + |b|)``, row by row, in units of rounding."""
    x = np.asarray(x)
    scale = abs(a) @ abs(x) + abs(b)
    return float(np.max(abs(b - a @ x) / scale) / np.finfo(b.real.dtype).eps)


def factor(kind: str, a: Any, **kw: Any) -> Any:
    return getattr(rlx.sparse, kind)(a, **kw)


@pytest.mark.parametrize(("kind", "dtype", "where", "policy"), [
    *[(k, d, "cpu", "prefer_native") for k in KINDS for d in ("float32", "float64", "complex128")],
    ("lu", "float64", "cpu", "common"), ("cholesky", "float64", "cpu", "common"),
    *[(k, d, "python", "common") for k in KINDS for d in ("float32", "float64", "complex64", "complex128")]])
def test_solves_as_scipy_does(kind: str, dtype: str, where: str, policy: str) -> None:
    a = system(45, kind, dtype)
    b = right_side(45, dtype)
    with rlx.flags(kernel_dispatch=policy):
        f = factor(kind, a, device=where)
        x, info = f.solve(b, errors="info")
    assert (x.dtype.name, x.device, f.dtype.name) == (dtype, where, dtype)
    assert info == 0 and info.converged and info.residual <= info.target
    assert backward_error(a, x, b) < 32
    wide = a.astype("complex128" if "complex" in dtype else "float64")
    expected = scipy.sparse.linalg.spsolve(wide.tocsc(), b)
    np.testing.assert_allclose(np.asarray(x), expected, rtol=0,
                               atol=2e3 * np.finfo(b.real.dtype).eps * abs(expected).max())


@pytest.mark.parametrize("trans", [0, 1, 2])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_columns_and_transposes(kind: str, dtype: str, trans: int) -> None:
    a = system(20, kind, dtype, 3)
    f = factor(kind, a, device="python" if "complex" in dtype else "cpu")
    b = right_side(20, dtype, 3)
    op = (a, a.T, a.conj().T)[trans]
    x = f.solve(b, trans)
    assert x.shape == (20, 3)
    assert backward_error(op.tocsr(), x, b) < 32
    if "complex" in dtype:
        np.testing.assert_allclose(np.asarray(f.solve(b[:, 0], "NTH"[trans])), np.asarray(x)[:, 0], rtol=1e-12)
    assert f.solve(np.zeros((20, 0)), trans).shape == (20, 0)


def test_complex_right_sides_of_a_real_matrix() -> None:
    a, b = system(20, "lu", "float64"), right_side(20, "complex128")
    assert backward_error(a, rlx.sparse.lu(a).solve(b), b) < 32


@pytest.mark.parametrize("kind", KINDS)
def test_wide_fronts(kind: str) -> None:
    """A grid has fronts of all sizes; a dense matrix is one front."""
    for a in (poisson(40), scipy.sparse.csr_matrix(poisson(9).toarray() + 1e-3)):
        b = right_side(a.shape[0], "float64")
        f = factor(kind, a)
        assert backward_error(a, f.solve(b), b) < 32
        assert f.growth < 3 and f.replaced == 0


@pytest.mark.parametrize("seed", range(3))
def test_matrices_without_a_diagonal(seed: int) -> None:
    a = unsymmetric(150, seed)
    b = right_side(150, "float64")
    f = rlx.sparse.lu(a)
    x, info = f.solve(b, errors="info")
    assert info.converged, info
    assert backward_error(a, x, b) < 32
    assert backward_error(a.T.tocsr(), f.solve(b, "T"), b) < 32


def test_galleries() -> None:
    gallery = pytest.importorskip("pyamg.gallery", reason="pyamg is not installed")
    for kind, a in (("cholesky", gallery.poisson((6, 6, 6), format="csr")),
                    ("cholesky", gallery.linear_elasticity((8, 8))[0].tocsr()),
                    ("lu", gallery.stencil_grid(gallery.diffusion_stencil_2d(epsilon=0.01, theta=0.5), (20, 20),
                                                format="csr"))):
        b = right_side(a.shape[0], "float64")
        assert backward_error(a, factor(kind, a).solve(b), b) < 32, (kind, a.shape)


def collection() -> Path | None:
    folder = os.environ.get("RLX_TEST_MATRICES")
    return Path(folder) if folder and Path(folder).is_dir() else None


@pytest.mark.skipif(collection() is None, reason="RLX_TEST_MATRICES names no folder with west0479.mtx, ...")
@pytest.mark.parametrize("name", ["494_bus.mtx", "bcsstk16.mtx.gz", "west0479.mtx"])
def test_the_collection(name: str) -> None:
    A = rlx.sparse.CSR.from_mtx(collection() / name)  # type: ignore[operator]
    a, b = A.to_scipy(), right_side(A.shape[0], "float64")
    for kind in KINDS[:1 if "west" in name else 2]:
        x, info = factor(kind, A).solve(b, errors="info")
        assert info.converged and backward_error(a, x, b) < 32, (kind, info)
    if "west" not in name:
        return
    expected = scipy.sparse.linalg.spsolve(a.tocsc(), b)
    assert np.linalg.norm(np.asarray(x) - expected) < 1e-6 * np.linalg.norm(expected)  # its condition is 1e12


# Reuse

@pytest.mark.parametrize("kind", KINDS)
def test_an_analysis_serves_new_values(kind: str) -> None:
    a = system(40, kind, "float64")
    A = rlx.sparse.CSR.from_scipy(a)
    plan = rlx.sparse.analyze(A, kind=kind)
    f = factor(kind, A, plan=plan)
    b = right_side(40, "float64")
    scale = np.linspace(1, 3, 40)
    other = (scipy.sparse.diags(scale) @ a @ scipy.sparse.diags(scale)).tocsr()
    for g in (f.refactor(other), f.refactor(other.data), factor(kind, rlx.sparse.CSR.from_scipy(other), plan=plan)):
        assert g.plan is plan
        assert backward_error(other, g.solve(b), b) < 32
    assert backward_error(a, f.solve(b), b) < 32


def test_a_plan_is_for_one_pattern_and_kind() -> None:
    A = rlx.sparse.CSR.from_dense([[4.0, 1.0, 0.0], [1.0, 3.0, 0.0], [0.0, 0.0, 1.0]])
    plan = rlx.sparse.analyze(A)
    with pytest.raises(ValueIssue, match="with a plan for lu"):
        rlx.sparse.cholesky(A, plan=plan)
    with pytest.raises(ShapeError, match="with 5 entries"):
        rlx.sparse.lu(np.ones((3, 3)), plan=plan)
    moved = rlx.sparse.CSR.from_dense([[4.0, 0.0, 1.0], [0.0, 3.0, 0.0], [1.0, 0.0, 1.0]])
    with pytest.raises(ShapeError, match="entries in other places"):
        rlx.sparse.lu(moved, plan=plan)
    with pytest.raises(ShapeError):
        rlx.sparse.lu(A, plan=plan).refactor(np.ones(4))


def test_factors_multiply_to_the_matrix() -> None:
    for kind in KINDS:
        a = system(30, kind, "float64", 5)
        f = factor(kind, a)
        t = f.plan._tables
        l, u = triangles(np.asarray(f._panels), t["nodes"], t["members"], kind)
        scaled = np.outer(f.plan.row_scale, f.plan.col_scale) * a.toarray()
        np.testing.assert_allclose(l @ u, scaled[f.plan.rows][:, f.plan.cols], atol=1e-13)
        assert np.count_nonzero(u) <= f.nnz


@pytest.mark.parametrize("ordering", ["amd", "natural", "given"])
def test_orderings(ordering: str) -> None:
    a = poisson(12)
    order: Any = np.random.default_rng(0).permutation(144) if ordering == "given" else ordering
    plan = rlx.sparse.analyze(a, ordering=order)
    assert sorted(plan.cols) == sorted(plan.rows) == list(range(144))
    b = right_side(144, "float64")
    assert backward_error(a, rlx.sparse.lu(a, plan=plan).solve(b), b) < 32


# Derivatives, batches, compiled functions

@pytest.mark.parametrize("trans", [0, 1])
def test_gradient_of_lu(trans: int) -> None:
    a = system(8, "lu", "float64")
    A = rlx.sparse.CSR.from_scipy(a)
    plan = rlx.sparse.analyze(A)
    solve = lambda v, b: rlx.sparse.lu(A.with_data(v), plan=plan).solve(b, trans)
    rlx.testing.check_grad(solve, a.data, right_side(8, "float64"), order=2 - trans, projections=1, rtol=1e-7)


def test_gradient_of_cholesky() -> None:
    """By every entry, along changes that keep the matrix symmetric."""
    a = system(8, "cholesky", "float64")
    A = rlx.sparse.CSR.from_scipy(a)
    plan = rlx.sparse.analyze(A, kind="cholesky")
    mirror = np.asarray(A._transpose_pattern()[0])
    solve = lambda v, b: rlx.sparse.cholesky(A.with_data((v + v[mirror]) / 2), plan=plan).solve(b)
    rlx.testing.check_grad(solve, a.data, right_side(8, "float64"), projections=1, rtol=1e-7)


def test_gradient_of_complex_values() -> None:
    a = system(6, "lu", "complex128")
    A = rlx.sparse.CSR.from_scipy(a, device="python")
    plan = rlx.sparse.analyze(A)
    with rlx.flags(device="python"):
        solve = lambda v, b: rlx.sparse.lu(A.with_data(v), plan=plan).solve(b)
        rlx.testing.check_grad(solve, a.data, right_side(6, "complex128"), projections=1, rtol=1e-7)


def test_gradient_reuses_the_factors() -> None:
    """The backward pass factors nothing: one factorization, two substitutions (and those of refinement)."""
    A = rlx.sparse.CSR.from_scipy(system(8, "lu", "float64"))
    plan = rlx.sparse.analyze(A)
    f = lambda v, b: (rlx.sparse.lu(A.with_data(v), plan=plan).solve(b) ** 2).sum()
    text = str(rlx.explain(rlx.grad(f), A.data, rlx.ones(8)))
    assert text.count("sparse.front_factor") == 1
    assert text.count("\nsparse.direct_solve") == 2


def test_batches_of_one_pattern() -> None:
    a = system(12, "lu", "float64")
    A = rlx.sparse.CSR.from_scipy(a)
    plan = rlx.sparse.analyze(A)
    rng = np.random.default_rng(0)
    values, bs = a.data * rng.uniform(0.9, 1.1, (4, a.nnz)), rng.standard_normal((4, 12))
    dense = []
    for v in values:
        m = a.copy()
        m.data = v
        dense.append(m.toarray())
    expected = np.linalg.solve(np.stack(dense), bs[..., None])[..., 0]
    solve = lambda v, b: rlx.sparse.lu(A.with_data(v), plan=plan).solve(b)
    got = rlx.vmap(solve)(values, bs)
    np.testing.assert_allclose(np.asarray(got), expected, rtol=1e-11)
    assert "native  sparse_fronts" in str(rlx.explain(rlx.vmap(solve), rlx.asarray(values), rlx.asarray(bs)))
    f = rlx.sparse.lu(A, plan=plan)
    shared = rlx.vmap(f.solve)(bs)
    np.testing.assert_allclose(np.asarray(shared), np.linalg.solve(a.toarray(), bs.T).T, rtol=1e-11)
    total = lambda vs: (rlx.vmap(solve)(vs, rlx.asarray(bs)) ** 2).sum()
    each = rlx.stack([rlx.grad(lambda v, b=b: (solve(v, b) ** 2).sum())(rlx.asarray(v))
                      for v, b in zip(values, map(rlx.asarray, bs), strict=True)])
    np.testing.assert_allclose(np.asarray(rlx.grad(total)(rlx.asarray(values))), np.asarray(each), rtol=1e-10)


def test_inside_a_compiled_function() -> None:
    a = system(12, "lu", "float64")
    A = rlx.sparse.CSR.from_scipy(a)
    plan = rlx.sparse.analyze(A)
    b = right_side(12, "float64")
    run = rlx.jit(lambda A, b: rlx.sparse.lu(A, plan=plan).solve(b, errors="info"))
    x, info = run(A, b)
    assert backward_error(a, x, b) < 32
    assert rlx.sparse.SolverInfo.from_traced(info).converged
    f = rlx.sparse.lu(A, plan=plan)
    y = rlx.jit(lambda f, b: f.solve(b))(f, b)     # factors are a pytree
    np.testing.assert_array_equal(np.asarray(y), np.asarray(f.solve(b)))
    singular = rlx.jit(lambda v: rlx.sparse.lu(A.with_data(v), plan=plan).solve(b))(a.data * 0)
    assert np.isnan(np.asarray(singular)).all()
    with pytest.raises(ValueIssue, match="without a plan"):
        rlx.jit(lambda A: rlx.sparse.lu(A).solve(b))(A)


# Bad input

@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("where", ["cpu", "python"])
def test_singular(dtype: str, where: str) -> None:
    a = np.array([[1, 1, 0], [1, 1, 0], [0, 1, 2]], dtype)
    with pytest.raises(LinAlgError, match="singular to working precision") as e:
        rlx.sparse.lu(a, device=where)
    assert "column" in str(e.value) and "backward error" in str(e.value)
    f = rlx.sparse.lu(a, errors="info", device=where)
    assert int(f.info) == 1
    b = np.array([1, 2, 3], dtype)
    _, info = f.solve(b, errors="info")
    assert info != 0 and info.reason == "stagnated"
    assert np.isnan(np.asarray(f.solve(b, errors="nan"))).all()
    with pytest.raises(LinAlgError, match="no accurate solution"):
        f.solve(b)


def test_a_vanishing_pivot_of_a_regular_matrix_is_made_up_for() -> None:
    a = scipy.sparse.csr_matrix(np.array([[1.0, 1, 0], [1, 1, 1], [0, 1, 1]]))
    f = rlx.sparse.lu(a, plan=rlx.sparse.analyze(a, ordering="natural"))
    assert f.replaced == 1
    b = np.array([2.0, 3.5, 2.0])
    assert backward_error(a, f.solve(b), b) < 32


def test_structurally_singular() -> None:
    for a in ([[1.0, 1.0], [0.0, 0.0]], np.zeros((3, 3)), [[0.0, 1, 0], [0, 2, 0], [1, 1, 1]]):
        with pytest.raises(ValueIssue, match="structurally singular"):
            rlx.sparse.lu(a)


def test_not_positive_definite_names_the_row() -> None:
    a = np.diag(np.arange(6.0, 0, -1))
    a[3, 3] = -1
    with pytest.raises(LinAlgError, match="not positive definite") as e:
        rlx.sparse.cholesky(a)
    assert "the pivot of row 3" in str(e.value)
    f = rlx.sparse.cholesky(a, errors="info")
    assert int(f.info) == 4
    assert np.isnan(np.asarray(f.solve(np.ones(6), errors="nan"))).all()
    with pytest.raises(LinAlgError, match="not positive definite"):
        rlx.sparse.cholesky(np.zeros((2, 2)))


def test_not_symmetric() -> None:
    with pytest.raises(ValueIssue, match="not symmetric") as e:
        rlx.sparse.cholesky([[2.0, 1.0], [0.5, 2.0]])
    assert "up to 0.5" in str(e.value)
    with pytest.raises(ValueIssue, match="not symmetric"):
        rlx.sparse.cholesky([[2.0, 1.0], [0.0, 2.0]])
    with pytest.raises(ValueIssue, match="not symmetric"):
        rlx.sparse.cholesky(np.array([[2.0, 1j], [1j, 2.0]]))


@pytest.mark.parametrize("kind", KINDS)
def test_values_that_are_not_finite(kind: str) -> None:
    for bad in (np.nan, np.inf):
        a = np.array([[2.0, 1.0], [1.0, bad]])
        with pytest.raises(ValueIssue, match=r"at \(1, 1\)"):
            factor(kind, a)
    f = factor(kind, [[2.0, 1.0], [1.0, 2.0]])
    with pytest.raises(ValueIssue, match=r"nan at \(0, 0\)"):
        f.refactor([np.nan, 1.0, 1.0, 2.0])
    with pytest.raises(LinAlgError, match="no finite solution"):
        f.solve([1.0, np.nan])


def test_shapes_and_types() -> None:
    with pytest.raises(ShapeError, match="must be square"):
        rlx.sparse.lu(np.ones((2, 3)))
    f = rlx.sparse.lu([[2.0, 1.0], [1.0, 2.0]])
    for b in (np.ones(3), np.ones((3, 2)), np.ones((2, 2, 2))):
        with pytest.raises(ShapeError, match="2 equations"):
            f.solve(b)
    with pytest.raises(ValueIssue, match="trans=3"):
        f.solve([1.0, 1.0], 3)
    with pytest.raises(ValueIssue, match="errors='ignore'"):
        f.solve([1.0, 1.0], errors="ignore")
    with pytest.raises(ValueIssue, match="kind 'qr'"):
        rlx.sparse.analyze(np.eye(2), kind="qr")
    with pytest.raises(ValueIssue, match="permutation of 2"):
        rlx.sparse.analyze(np.eye(2), ordering=[0, 0])
    single = rlx.sparse.lu(np.eye(2, dtype=np.float32))
    with pytest.raises(DTypeError, match="fewer digits"):
        single.solve(rlx.asarray([1.0, 2.0]))


def test_small_and_repeated() -> None:
    for kind in KINDS:
        assert factor(kind, scipy.sparse.csr_matrix((0, 0))).solve(np.zeros(0)).shape == (0,)
        assert factor(kind, [[4.0]]).solve([2.0]).tolist() == [0.5]
        x = factor(kind, scipy.sparse.diags([1.0, 2.0, 4.0])).solve([1.0, 1.0, 1.0])
        np.testing.assert_allclose(np.asarray(x), [1.0, 0.5, 0.25], rtol=1e-15)
    twice = rlx.sparse.CSR.from_arrays([0, 0, 1], [0, 0, 1], [1.0, 1.0, 4.0], (2, 2))
    assert rlx.sparse.spsolve(twice, [2.0, 4.0]).tolist() == [1.0, 1.0]


def test_the_page_runs() -> None:
    page = Path(__file__).parents[2] / "docs" / "direct.md"
    assert execute(page.read_text(encoding="utf-8"), "docs/direct.md") == 4


def test_vmapped_constants_stay_constant() -> None:
    """Factors are constants to differentiation, also in a batch."""
    g = rlx.grad(lambda v: rlx.vmap(lambda x: rlx.stop_gradient(x) * x)(v).sum())(rlx.asarray([2.0, 3.0]))
    assert g.tolist() == [2.0, 3.0]
