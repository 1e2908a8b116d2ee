"""The solvers beside cg: agreement with SciPy, honest endings, extreme sizes, derivatives, batches, bad input."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.linalg

import rlx
import rlx.sparse
from rlx.core.errors import DTypeError, ShapeError, TraceError, ValueIssue
from rlx.testing import check_grad

SQUARE = {"bicgstab": rlx.sparse.bicgstab, "gmres": rlx.sparse.gmres, "minres": rlx.sparse.minres}
TALL = {"lsqr": rlx.sparse.lsqr, "lsmr": rlx.sparse.lsmr}
DTYPES = ("float32", "float64", "complex64", "complex128")


def general(n: int = 60, dtype: str = "float64", seed: int = 0, symmetric: bool = False) -> Any:
    """A well conditioned sparse matrix; symmetric (Hermitian) ones are indefinite."""
    rng = np.random.default_rng(seed)
    a = scipy.sparse.random(n, n, 0.08, "csr", random_state=rng)
    if "complex" in dtype:
        a = a + 1j * scipy.sparse.random(n, n, 0.08, "csr", random_state=rng)
    if symmetric:
        return (a + a.conj().T + scipy.sparse.diags(np.where(np.arange(n) % 2, 4.0, -5.0))).tocsr().astype(dtype)
    return (a + 4 * scipy.sparse.eye(n)).tocsr().astype(dtype)


def vector(n: int, dtype: str = "float64", seed: int = 1) -> Any:
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(n) + (1j * rng.standard_normal(n) if "complex" in dtype else 0)).astype(dtype)


def residual(a: Any, x: Any, b: Any) -> float:
    wide = np.complex128 if np.iscomplexobj(a) else np.float64
    return float(np.linalg.norm(b.astype(wide) - a.astype(wide) @ np.asarray(x).astype(wide)))


def tall(shape: tuple[int, int], dtype: str = "float64", seed: int = 2) -> Any:
    rng = np.random.default_rng(seed)
    a = scipy.sparse.random(*shape, 0.15, "csr", random_state=rng) + 2 * scipy.sparse.eye(*shape)
    if "complex" in dtype:
        a = a + 1j * scipy.sparse.random(*shape, 0.15, "csr", random_state=rng)
    return a.tocsr().astype(dtype)


@pytest.mark.parametrize("where", ["cpu", "python"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", SQUARE)
def test_square_systems_agree_with_scipy(name: str, dtype: str, where: str) -> None:
    a, b = general(dtype=dtype, symmetric=name == "minres"), vector(60, dtype)
    rtol = 1e-4 if dtype in ("float32", "complex64") else 1e-10
    x, info = SQUARE[name](a, b, rtol=rtol, device=where)
    assert info == 0 and info.converged and x.dtype.name == dtype and x.device == where
    assert residual(a, x, b) <= rtol * np.linalg.norm(b) * (1 + 1e-3)
    assert info.residual == pytest.approx(residual(a, x, b), rel=2e-2)
    exact = scipy.sparse.linalg.spsolve(a.astype("complex128").tocsc(), b)
    np.testing.assert_allclose(np.asarray(x), exact, rtol=0, atol=10 * rtol * np.linalg.norm(exact))


@pytest.mark.parametrize("name", ["bicgstab", "gmres"])
def test_iterations_match_scipy(name: str) -> None:
    a, b = general(300), vector(300)
    seen: list[Any] = []
    more = {"callback_type": "pr_norm"} if name == "gmres" else {}
    getattr(scipy.sparse.linalg, name)(a, b, rtol=1e-9, callback=seen.append, **more)
    _, info = SQUARE[name](a, b, rtol=1e-9)
    assert abs(info.iterations - len(seen)) <= 2
    assert len(info.history) == info.iterations + 1 and np.isfinite(info.history).all()
    assert (np.diff(info.history) <= 1e-12 * info.history[0]).all() or name != "gmres"


def test_minres_history_is_the_true_residual_with_and_without_a_preconditioner() -> None:
    a, b = general(symmetric=True), vector(60)
    M = scipy.sparse.diags(1 / np.abs(a.diagonal()))
    for more in ({}, {"M": M}):
        seen: list[float] = []
        _, info = rlx.sparse.minres(a, b, rtol=1e-8, callback=lambda x, s=seen: s.append(residual(a, x, b)), **more)
        np.testing.assert_allclose(info.history[1:len(seen) + 1], seen, rtol=1e-4)
        assert len(seen) >= info.iterations - 1 > 3


@pytest.mark.parametrize("damp", [0.0, 0.7])
@pytest.mark.parametrize("shape", [(50, 20), (20, 50), (30, 30)])
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("name", TALL)
def test_least_squares_agree_with_numpy(name: str, dtype: str, shape: tuple[int, int], damp: float) -> None:
    a, b = tall(shape, dtype), vector(shape[0], dtype)
    x, info = TALL[name](a, b, rtol=1e-11, damp=damp)
    n = shape[1]
    stacked = np.vstack([a.toarray(), damp * np.eye(n)]) if damp else a.toarray()
    want = np.linalg.lstsq(stacked, np.concatenate([b, np.zeros(n)]) if damp else b, rcond=None)[0]
    assert info == 0
    np.testing.assert_allclose(np.asarray(x), want, rtol=0, atol=1e-9)
    if damp or shape[0] >= shape[1]:
        again, _ = TALL[name](a, b, vector(n, dtype), rtol=1e-11, damp=damp)
        np.testing.assert_allclose(np.asarray(again), want, rtol=0, atol=1e-9)


def test_lsmr_and_lsqr_steps_match_scipy() -> None:
    a, b = tall((80, 40)), vector(80)
    for name in TALL:
        for k in (1, 3, 7):
            x, info = TALL[name](a, b, rtol=0.0, maxiter=k)
            args = {"atol": 0, "btol": 0, "conlim": 0}
            limit = {"iter_lim": k} if name == "lsqr" else {"maxiter": k}
            want = getattr(scipy.sparse.linalg, name)(a, b, **args, **limit)[0]
            assert info.iterations == k and info.reason == "maxiter"
            np.testing.assert_allclose(np.asarray(x), want, rtol=1e-8, atol=1e-12)


def test_least_squares_by_a_function_finds_its_transpose() -> None:
    a, b = tall((50, 20)), vector(50)
    m = rlx.asarray(a.toarray())
    x, info = rlx.sparse.lsqr(lambda v: m @ v, rlx.asarray(b), np.zeros(20), rtol=1e-11)
    want, _ = rlx.sparse.lsqr(a, b, rtol=1e-11)
    assert info == 0
    np.testing.assert_allclose(np.asarray(x), np.asarray(want), atol=1e-9)


@pytest.mark.parametrize("size", [1e-300, 1e-200, 1e200, 1e300])
@pytest.mark.parametrize("name", [*SQUARE, *TALL])
def test_the_size_of_b_does_not_matter(name: str, size: float) -> None:
    solve = (SQUARE | TALL)[name]
    a, b = general(symmetric=name == "minres"), vector(60)
    plain, _ = solve(a, b, rtol=1e-9)
    x, info = solve(a, b * size, rtol=1e-9)
    assert info == 0
    np.testing.assert_allclose(np.asarray(x) / size, np.asarray(plain), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", [*SQUARE, *TALL])
def test_common_behaviour(name: str) -> None:
    solve = (SQUARE | TALL)[name]
    a, b = general(symmetric=name == "minres"), vector(60)
    x, info = solve(a, b, rtol=1e-11)
    again, warm = solve(a, b, x, rtol=1e-8)
    assert warm.iterations == 0 and warm == 0
    np.testing.assert_array_equal(np.asarray(again), np.asarray(x))
    zero, none = solve(a, np.zeros(60), np.ones(60))
    assert none == 0 and none.iterations == 0 and not np.asarray(zero).any()
    _, short = solve(a, b, rtol=1e-12, maxiter=3)
    assert short == 3 and short.reason == "maxiter"
    assert solve(a, b, maxiter=0)[1].reason == "maxiter"
    seen: list[Any] = []
    y, stepped = solve(a, b, rtol=1e-11, callback=lambda x: seen.append(np.array(x)))
    assert seen and stepped.iterations == info.iterations
    np.testing.assert_allclose(np.asarray(y), np.asarray(x), rtol=1e-12, atol=1e-14)
    copy = pickle.loads(pickle.dumps(info))
    assert copy.solver == name and copy.message == info.message
    assert solve(a, b, rtol=0.0, maxiter=2000)[1].reason in ("stagnated", "maxiter")


@pytest.mark.parametrize("name", ["bicgstab", "gmres"])
def test_preconditioned_from_the_right(name: str) -> None:
    a = (general(200) + scipy.sparse.diags(np.logspace(0, 5, 200))).tocsr()
    b = vector(200)
    _, plain = SQUARE[name](a, b, rtol=1e-8)
    for M in (rlx.sparse.jacobi(a), scipy.sparse.diags(1 / a.diagonal())):
        x, info = SQUARE[name](a, b, rtol=1e-8, M=M)
        assert info == 0 and info.iterations < plain.iterations / 2
        assert residual(a, x, b) <= 1e-8 * np.linalg.norm(b) * (1 + 1e-6)


# Honest endings

def test_gmres_stagnates_on_a_shift_and_solves_it_with_a_full_basis() -> None:
    shift = scipy.sparse.csr_matrix(np.roll(np.eye(30), 1, axis=0))
    b = np.eye(30)[0]
    x, info = rlx.sparse.gmres(shift, b, restart=10)
    assert info.reason == "stagnated" and info > 0 and info.residual == pytest.approx(1.0)
    x, info = rlx.sparse.gmres(shift, b, restart=30)
    assert info == 0 and info.iterations == 30
    np.testing.assert_allclose(np.asarray(x), np.eye(30)[-1], atol=1e-12)


@pytest.mark.parametrize("name", [*SQUARE, "cg"])
def test_a_singular_matrix_is_never_called_solved(name: str) -> None:
    a = scipy.sparse.diags([1.0, 2.0, 3.0, 0.0]).tocsr()
    solve = rlx.sparse.cg if name == "cg" else SQUARE[name]
    info = solve(a, np.ones(4), rtol=1e-10)[1]
    assert not info.converged and info != 0 and info.message
    assert info.reason in ("breakdown", "stagnated", "maxiter") or name == "cg"  # it grows x along the null space


def test_minres_ends_at_a_least_squares_solution_of_a_singular_system() -> None:
    rng = np.random.default_rng(0)
    q, _ = np.linalg.qr(rng.standard_normal((30, 30)))
    a = q @ np.diag([*np.linspace(-3, -1, 15), *np.linspace(1, 2, 14), 0.0]) @ q.T
    b = rng.standard_normal(30)
    x, info = rlx.sparse.minres(a, b, rtol=1e-10)
    assert info.reason == "stagnated" and info.iterations < 100
    assert np.linalg.norm(a @ (b - a @ np.asarray(x))) < 1e-6


def test_bicgstab_breaks_down_on_a_skew_matrix_and_says_so() -> None:
    _, info = rlx.sparse.bicgstab(np.array([[0.0, 1.0], [-1.0, 0.0]]), np.array([1.0, 0.0]))
    assert info < 0 and info.reason == "breakdown" and "restart" in info.message


def test_minres_with_an_indefinite_preconditioner_breaks_down() -> None:
    a = general(symmetric=True)
    _, info = rlx.sparse.minres(a, vector(60), M=-scipy.sparse.eye(60))
    assert info < 0 and info.reason == "breakdown" and "M is not positive" in info.message


def test_an_overflowing_answer_is_not_called_converged() -> None:
    for name, solve in (SQUARE | TALL).items():
        _, info = solve(scipy.sparse.eye(4).tocsr() * 1e-150, np.full(4, 1e200))
        assert not info.converged and info < 0, name


# Derivatives and batches

CASES = {"cg": (True, rlx.sparse.cg), "minres": (True, rlx.sparse.minres), "bicgstab": (False, rlx.sparse.bicgstab),
         "gmres": (False, rlx.sparse.gmres)}


@pytest.mark.parametrize("name", CASES)
def test_derivatives_with_respect_to_values_and_b(name: str) -> None:
    symmetric, solve = CASES[name]
    n = 10
    A = rlx.sparse.CSR.from_scipy(general(n, symmetric=symmetric) + (8 * scipy.sparse.eye(n) if name == "cg" else 0))

    def loss(values: Any, b: Any) -> Any:
        m = A.with_data(values)
        m = m.with_data((m.data + m.T.data) / 2) if symmetric else m
        x, _ = solve(m, b, rtol=1e-13)
        return (x * x).sum()
    check_grad(loss, A.data, rlx.asarray(vector(n)))


@pytest.mark.parametrize("damp", [0.0, 0.5])
def test_derivatives_of_least_squares(damp: float) -> None:
    A, b = rlx.sparse.CSR.from_scipy(tall((12, 5))), rlx.asarray(vector(12))
    check_grad(lambda v, b: (rlx.sparse.lsqr(A.with_data(v), b, rtol=1e-13, damp=damp)[0] ** 2).sum(), A.data, b,
               modes=("reverse",))


def test_complex_and_second_derivatives() -> None:
    A, b = rlx.sparse.CSR.from_scipy(general(8, "complex128")), rlx.asarray(vector(8, "complex128"))
    check_grad(lambda v, b: rlx.sparse.gmres(A.with_data(v), b, rtol=1e-13)[0], A.data, b, modes=("reverse",))
    small, c = rlx.sparse.CSR.from_scipy(general(5)), rlx.asarray(vector(5))
    check_grad(lambda v: (rlx.sparse.bicgstab(small.with_data(v), c, rtol=1e-14)[0] ** 2).sum(), small.data, order=2,
               modes=("reverse",), rtol=1e-5)


def test_the_transposed_solve_is_preconditioned_too() -> None:
    a = (general(100) + scipy.sparse.diags(np.logspace(0, 4, 100))).tocsr()
    A, b = rlx.sparse.CSR.from_scipy(a), rlx.asarray(vector(100))
    M = rlx.sparse.jacobi(A)
    got = rlx.grad(lambda b: rlx.sparse.gmres(A, b, rtol=1e-12, maxiter=60, M=M)[0].sum())(b)
    want = scipy.sparse.linalg.spsolve(a.T.tocsc(), np.ones(100))
    np.testing.assert_allclose(np.asarray(got), want, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("name", [*CASES, *TALL])
def test_vmap_over_b_and_over_values_of_one_pattern(name: str) -> None:
    solve = CASES[name][1] if name in CASES else TALL[name]
    a = general(20, symmetric=name == "minres") + (8 * scipy.sparse.eye(20) if name == "cg" else 0)
    a = a + a.T if name == "cg" else a
    A = rlx.sparse.CSR.from_scipy(a)
    bs = np.stack([vector(20, seed=k) for k in range(3)]) * np.array([[1.0], [1e3], [0.0]])
    xs, info = rlx.vmap(lambda b: solve(A, b, rtol=1e-10))(rlx.asarray(bs))
    assert np.asarray(info.status).tolist() == [1, 1, 1]
    for x, b in zip(np.asarray(xs), bs, strict=True):
        np.testing.assert_allclose(a @ x, b, rtol=0, atol=1e-7 * max(np.linalg.norm(b), 1e-3))
    values = rlx.asarray(np.stack([np.asarray(A.data) * s for s in (1.0, 2.0)]))
    pair, _ = rlx.vmap(lambda v: solve(A.with_data(v), rlx.asarray(bs[0]), rtol=1e-10))(values)
    np.testing.assert_allclose(np.asarray(pair)[0], 2 * np.asarray(pair)[1], rtol=1e-6, atol=1e-8)


def test_under_jit_the_report_is_arrays() -> None:
    A, b = rlx.sparse.CSR.from_scipy(general()), rlx.asarray(vector(60))
    x, info = rlx.jit(lambda A, b: rlx.sparse.gmres(A, b, rtol=1e-9))(A, b)
    y, plain = rlx.sparse.gmres(A, b, rtol=1e-9)
    assert int(info.status) == 1 and int(info.iterations) == plain.iterations
    np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=1e-12)


# Matrices of the collections

def collection() -> Path | None:
    """The folder of Matrix Market files that ``RLX_TEST_MATRICES`` names."""
    found = os.environ.get("RLX_TEST_MATRICES", "")
    return Path(found) if found else None


@pytest.mark.skipif(collection() is None, reason="RLX_TEST_MATRICES names no folder with west0479.mtx, ...")
@pytest.mark.parametrize("name", ["494_bus.mtx", "bcsstk16.mtx.gz", "west0479.mtx"])
def test_collection_matrices(name: str) -> None:
    folder = collection()
    assert folder is not None
    A = rlx.sparse.CSR.from_mtx(folder / name)
    a, n = A.to_scipy(), A.shape[0]
    b = a @ np.ones(n)
    if name.startswith("west"):
        # No zero-fill preconditioner exists (its diagonal has holes): reports must be honest, gmres as good as SciPy.
        for solve in (rlx.sparse.gmres, rlx.sparse.bicgstab, rlx.sparse.lsqr):
            x, info = solve(A, b, rtol=1e-8, maxiter=2000)
            left = residual(a, x, b) if solve is not rlx.sparse.lsqr else np.linalg.norm(a.T @ (b - a @ np.asarray(x)))
            assert info.residual == pytest.approx(left, rel=1e-3) and info.converged == (info.residual <= info.target)
        x, info = rlx.sparse.gmres(A, b, rtol=1e-8, restart=n, maxiter=n)
        y, _ = scipy.sparse.linalg.gmres(a, b, rtol=1e-8, restart=n, maxiter=1)
        assert residual(a, x, b) <= 1.1 * max(residual(a, y, b), 1e-8 * np.linalg.norm(b))
        return
    for M in (rlx.sparse.jacobi(A), rlx.sparse.ic0(A), rlx.sparse.smoothed_aggregation(A)):
        for solve in (rlx.sparse.cg, rlx.sparse.minres):
            x, info = solve(A, b, rtol=1e-8, M=M)
            assert info == 0 and residual(a, x, b) <= 1e-8 * np.linalg.norm(b) * (1 + 1e-6)


@pytest.mark.parametrize("stencil", ["poisson", "sdiff", "rotated"])
def test_gallery(stencil: str) -> None:
    gallery = pytest.importorskip("pyamg.gallery")
    if stencil == "poisson":
        a = gallery.poisson((40, 40), format="csr")
    else:
        kernel = gallery.diffusion_stencil_2d(epsilon=0.01, theta=0.6 if stencil == "rotated" else 0.0, type="FE")
        a = gallery.stencil_grid(kernel, (40, 40), format="csr")
    b = vector(1600)
    for solve in (rlx.sparse.cg, rlx.sparse.minres, rlx.sparse.bicgstab, rlx.sparse.gmres):
        x, info = solve(a, b, rtol=1e-8)
        assert info == 0 and residual(a, x, b) <= 1e-8 * np.linalg.norm(b) * (1 + 1e-6)


# Bad input

BAD: dict[str, tuple[type[Exception], Any]] = {
    "rectangular": (ShapeError, lambda f: f(tall((4, 5)), np.ones(4))),
    "b too long": (ShapeError, lambda f: f(general(), np.ones(61))),
    "b a matrix": (ShapeError, lambda f: f(general(), np.ones((60, 2)))),
    "NaN in b": (ValueIssue, lambda f: f(general(), np.full(60, np.nan))),
    "NaN in A": (ValueIssue, lambda f: f(general() * np.nan, np.ones(60))),
    "negative rtol": (ValueIssue, lambda f: f(general(), np.ones(60), rtol=-1.0)),
    "float maxiter": (ValueIssue, lambda f: f(general(), np.ones(60), maxiter=1.5)),
    "x0 too short": (ShapeError, lambda f: f(general(), np.ones(60), np.ones(59))),
    "a string for A": (DTypeError, lambda f: f("A", np.ones(60))),
    "a callback that is none": (DTypeError, lambda f: f(general(), np.ones(60), callback=3)),
    "a callback in a trace": (TraceError, lambda f: rlx.jit(lambda b: f(general(), b, callback=print)[0])(np.ones(60))),
}


@pytest.mark.parametrize("solver", [*SQUARE, *TALL])
@pytest.mark.parametrize("name", BAD)
def test_bad_input(name: str, solver: str) -> None:
    if name == "rectangular" and solver in TALL:
        kind, call = ShapeError, lambda f: f(tall((4, 5)), np.ones(5))
    else:
        kind, call = BAD[name]
    with pytest.raises(kind) as e:
        call((SQUARE | TALL)[solver])
    error: Any = e.value
    assert solver in error.what and error.why and error.do and "test_krylov.py" in error.where


def test_bad_options() -> None:
    with pytest.raises(ValueIssue, match="restart=0"):
        rlx.sparse.gmres(general(), np.ones(60), restart=0)
    for bad in (-1.0, float("nan"), "much"):
        with pytest.raises(ValueIssue, match="damp"):
            rlx.sparse.lsqr(tall((5, 3)), np.ones(5), damp=bad)  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match="no x0"):
        rlx.sparse.lsmr(lambda v: v, np.ones(5))
