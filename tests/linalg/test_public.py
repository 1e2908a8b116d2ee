"""The public functions against NumPy and SciPy: spellings, batches, vectors, empty matrices, dtypes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.linalg as sl

import rlx
from rlx import linalg as la

RNG = np.random.default_rng(0)
A = RNG.standard_normal((3, 5, 5))
C = A + 1j * RNG.standard_normal((3, 5, 5))
S = A @ A.swapaxes(-1, -2) + np.eye(5)
B = RNG.standard_normal((3, 5, 2))
V = RNG.standard_normal(5)
NORMS = (None, "fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf)


def same(got: Any, want: Any, tol: float = 1e-10) -> None:
    got, want = np.asarray(got), np.asarray(want)
    assert got.shape == want.shape and got.dtype == want.dtype
    np.testing.assert_allclose(got, want, rtol=tol, atol=tol)


CASES: dict[str, tuple[Any, Any]] = {
    "cholesky": (lambda: la.cholesky(S), lambda: np.linalg.cholesky(S)),
    "solve": (lambda: la.solve(C, B), lambda: np.linalg.solve(C, B)),
    "solve one vector": (lambda: la.solve(A, V), lambda: np.linalg.solve(A, V)),
    "solve broadcast": (lambda: la.solve(A[0], B), lambda: np.linalg.solve(A[0], B)),
    "inv": (lambda: la.inv(C), lambda: np.linalg.inv(C)),
    "det": (lambda: la.det(C), lambda: np.linalg.det(C)),
    "pinv": (lambda: la.pinv(C[:, :3]), lambda: np.linalg.pinv(C[:, :3])),
    "pinv hermitian": (lambda: la.pinv(S, hermitian=True), lambda: np.linalg.pinv(S, hermitian=True)),
    "matrix_rank": (lambda: la.matrix_rank(A), lambda: np.linalg.matrix_rank(A)),
    "matrix_rank of one": (lambda: la.matrix_rank(np.ones((4, 3))), lambda: np.linalg.matrix_rank(np.ones((4, 3)))),
    "qr r": (lambda: la.qr(A, mode="r"), lambda: np.linalg.qr(A, "r")),
    "kron": (lambda: la.kron(A[0], B[0]), lambda: np.kron(A[0], B[0])),
    "cross": (lambda: la.cross(A[:, :3], B[:, :3, :1], axis=1), lambda: np.cross(A[:, :3], B[:, :3, :1], axis=1)),
    "diagonal": (lambda: la.diagonal(B, offset=-2), lambda: np.linalg.diagonal(B, offset=-2)),
    "trace": (lambda: la.trace(A, offset=1), lambda: np.linalg.trace(A, offset=1)),
    "outer": (lambda: la.outer(V, V), lambda: np.linalg.outer(V, V)),
    "multi_dot": (lambda: la.multi_dot([V, A[0], A[1], B[0]]), lambda: np.linalg.multi_dot([V, A[0], A[1], B[0]])),
    "matrix_power": (lambda: la.matrix_power(A, 5), lambda: np.linalg.matrix_power(A, 5)),
    "matrix_power of -2": (lambda: la.matrix_power(S, -2), lambda: np.linalg.matrix_power(S, -2)),
    "expm": (lambda: la.expm(C), lambda: sl.expm(C)),
    "eigvalsh": (lambda: la.eigvalsh(S, UPLO="U"), lambda: np.linalg.eigvalsh(S, UPLO="U")),
    "svdvals": (lambda: la.svdvals(C), lambda: np.linalg.svdvals(C)),
    "svd hermitian": (lambda: la.svd(S, hermitian=True).S, lambda: np.linalg.svd(S, hermitian=True).S),
    "integers": (lambda: la.inv([[1, 2], [3, 4]]), lambda: np.linalg.inv([[1, 2], [3, 4]])),
    "empty inv": (lambda: la.inv(np.zeros((2, 0, 0))), lambda: np.linalg.inv(np.zeros((2, 0, 0)))),
    "empty det": (lambda: la.det(np.zeros((0, 0))), lambda: np.linalg.det(np.zeros((0, 0)))),
    "empty batch": (lambda: la.solve(np.zeros((0, 2, 2)), np.zeros((0, 2, 1))), lambda: np.zeros((0, 2, 1))),
    "empty svd": (lambda: la.svdvals(np.zeros((0, 3))), lambda: np.linalg.svdvals(np.zeros((0, 3)))),
    "cho_solve": (lambda: la.cho_solve(la.cho_factor(S), B), lambda: np.linalg.solve(S, B)),
    "cho_solve lower": (lambda: la.cho_solve(la.cho_factor(S, lower=True), V), lambda: np.linalg.solve(S, V)),
    **{f"norm {o}": (lambda o=o: la.norm(C, o, axis=(1, 2)), lambda o=o: np.linalg.norm(C, o, axis=(1, 2)))
       for o in NORMS},
    **{f"vector norm {o}": (lambda o=o: la.norm(C, o, axis=1, keepdims=True),
                            lambda o=o: np.linalg.norm(C, o, axis=1, keepdims=True))
       for o in (None, 0, 1, 2.5, -1, np.inf)},
    **{f"cond {o}": (lambda o=o: la.cond(S, o), lambda o=o: np.linalg.cond(S, o)) for o in NORMS},
}


@pytest.mark.parametrize("name", CASES)
def test_value(name: str) -> None:
    got, want = CASES[name]
    same(got(), want())


def test_lu_in_scipys_three_forms() -> None:
    tall = A[0][:, :3]
    for options in ({}, {"permute_l": True}, {"p_indices": True}):
        for got, want in zip(la.lu(tall, **options), sl.lu(tall, **options), strict=True):
            np.testing.assert_allclose(np.asarray(got), want, atol=1e-13)


@pytest.mark.parametrize("trans", [0, 1, 2])
def test_a_factorization_is_solved_with_again(trans: int) -> None:
    want = np.stack([sl.lu_solve(sl.lu_factor(c), b, trans=trans) for c, b in zip(C, B, strict=True)])
    same(la.lu_solve(la.lu_factor(C), B, trans=trans), want)
    for lower in (False, True):
        want = sl.solve_triangular(C[0], B[0], trans=trans, lower=lower)
        same(la.solve_triangular(C[0], B[0], trans=trans, lower=lower), want)


def test_pivots_are_exchanges_and_the_permutation_is_their_product() -> None:
    packed, piv = la.lu_factor(A)
    want, pivots = sl.lu_factor(A[0])
    assert np.array_equal(np.asarray(piv)[0], pivots)
    np.testing.assert_allclose(np.asarray(packed)[0], want, atol=1e-14)
    perm = np.asarray(la.permutation_of(piv, 5))
    l = np.tril(np.asarray(packed), -1) + np.eye(5)
    np.testing.assert_allclose(l @ np.triu(packed), np.take_along_axis(A, perm[..., None], axis=1), atol=1e-13)


def test_lstsq_gives_numpys_four_results() -> None:
    for a, b in ((A[0][:, :3], B[0]), (A[0][:3], B[0][:3]), (np.ones((4, 2)), V[:4])):
        got, want = la.lstsq(a, b), np.linalg.lstsq(a, b, rcond=None)
        np.testing.assert_allclose(np.asarray(got.x), want[0], atol=1e-12)
        assert got.rank.item() == want[2]
        np.testing.assert_allclose(np.asarray(got.singular_values), want[3], atol=1e-12)
        if want[1].size:
            np.testing.assert_allclose(np.asarray(got.residuals).reshape(want[1].shape), want[1], atol=1e-12)


def test_slogdet_of_singular_and_huge() -> None:
    sign, log = la.slogdet(np.stack([np.zeros((3, 3)), 1e200 * np.eye(3), -np.eye(3)]))
    assert np.array_equal(np.asarray(sign), [0, 1, -1])
    np.testing.assert_allclose(np.asarray(log), [-np.inf, 600 * np.log(10), 0])


def test_only_the_named_triangle_is_read() -> None:
    dirty = np.tril(S) + np.triu(np.full((5, 5), np.nan), 1)
    for dispatch in ("prefer_native", "common"):
        with rlx.flags(kernel_dispatch=dispatch):
            same(la.eigvalsh(dirty), np.linalg.eigvalsh(S))
            same(la.cholesky(dirty), np.linalg.cholesky(S))
            same(la.cholesky(dirty.swapaxes(-1, -2), upper=True), np.linalg.cholesky(S).swapaxes(-1, -2))


def test_the_interpreter_gives_the_same() -> None:
    device = "python"
    a = rlx.asarray(S, device=device)
    same(la.cholesky(a), np.linalg.cholesky(S))
    same(la.solve(a, rlx.asarray(B, device=device)), np.linalg.solve(S, B))
    same(la.eigvalsh(a), np.linalg.eigvalsh(S))
    same(la.svdvals(a), np.linalg.svdvals(S))


def test_the_library_is_used_where_there_is_one() -> None:
    for f in (la.cholesky, la.inv, la.qr, la.eigh, la.eigvalsh, la.svd, la.svdvals, la.eig, la.eigvals, la.lu_factor):
        report = rlx.explain(lambda x, f=f: f(x), rlx.asarray(S))
        assert any(row.op.startswith("linalg.") and row.path == "native" for row in report), f.__name__
