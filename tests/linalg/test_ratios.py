"""Factorizations by LAPACK-style residual ratios, through the device's library and on the common path."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.linalg

import rlx
from rlx import linalg as la
from tests.linalg.ratios import DTYPES, THRESHOLD, adjoint, matrices, ratio, unitarity

POLICIES = ("prefer_native", "common")
SIZES = ((6, 6), (7, 4), (4, 7), (37, 37))


@pytest.fixture(params=POLICIES, autouse=True)
def policy(request: pytest.FixtureRequest) -> Any:
    with rlx.flags(kernel_dispatch=request.param):
        yield request.param


def host(xs: Any) -> list[Any]:
    rlx.eval(*xs)
    return [np.asarray(x) for x in xs]


def check(name: str, **found: float) -> None:
    assert all(v <= THRESHOLD for v in found.values()), f"{name}: {found}"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SIZES, ids=str)
def test_lu(shape: tuple[int, int], dtype: str) -> None:
    for name, a in matrices(*shape, dtype).items():
        p, l, u = host(la.lu(a))
        check(name, residual=ratio(p @ l @ u - a, a))
        assert np.abs(l).max() <= 1.5, name  # |re| + |im| is what pivots are chosen by
        assert not np.triu(l, 1).any() and not np.tril(u, -1).any(), name


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SIZES, ids=str)
def test_qr(shape: tuple[int, int], dtype: str) -> None:
    for name, a in matrices(*shape, dtype).items():
        for mode in ("reduced", "complete"):
            q, r = host(la.qr(a, mode=mode))
            check(f"{name} {mode}", residual=ratio(q @ r - a, a), unitary=unitarity(q))
            assert not np.tril(r, -1).any(), name


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SIZES, ids=str)
def test_svd(shape: tuple[int, int], dtype: str) -> None:
    for name, a in matrices(*shape, dtype).items():
        u, s, vh = host(la.svd(a, full_matrices=False))
        check(name, residual=ratio((u * s[..., None, :]) @ vh - a, a), u=unitarity(u), v=unitarity(adjoint(vh)))
        assert (np.diff(s) <= 0).all() and (s >= 0).all(), name


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 6, 37])
def test_eigh(n: int, dtype: str) -> None:
    for name, x in matrices(n, n, dtype).items():
        a = (x + adjoint(x)) / 2
        w, v = host(la.eigh(a))
        check(name, residual=ratio((v * w[..., None, :]) @ adjoint(v) - a, a), unitary=unitarity(v))
        assert (np.diff(w) >= 0).all(), name


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 6, 21])
def test_eig(n: int, dtype: str) -> None:
    for name, a in matrices(n, n, dtype).items():
        w, v = host(la.eig(a))
        check(name, residual=ratio(a @ v - v * w[..., None, :], a))
        assert abs(np.linalg.norm(v, axis=-2) - 1).max() < 10 * np.finfo(dtype).eps, name


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [3, 37, 70])
def test_cholesky(n: int, dtype: str) -> None:
    for name, x in matrices(n, n, dtype).items():
        if name in ("large", "small"):
            continue  # their squares leave the range of the dtype
        a = x @ adjoint(x)
        a = a + np.eye(n, dtype=dtype) * np.abs(a).max(axis=(-2, -1), keepdims=True) / 50
        l, = host([la.cholesky(a)])
        u, = host([la.cholesky(a, upper=True)])
        check(name, lower=ratio(l @ adjoint(l) - a, a), upper=ratio(adjoint(u) @ u - a, a))
        assert not np.triu(l, 1).any() and not np.tril(u, -1).any(), name


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [3, 37, 70])
def test_solve(n: int, dtype: str) -> None:
    """Small residuals whatever the condition: ``|A x - b| <= c n eps |A| |x|``."""
    for name, a in matrices(n, n, dtype).items():
        b = np.ones((n, 2), dtype)
        x, info = host(la.solve(a, b, errors="info"))
        assert not info.any(), name
        size = np.abs(a).sum(-2).max(-1) * np.abs(x).sum(-2).max(-1) * n * np.finfo(dtype).eps
        assert (np.abs(a @ x - b).sum(-2).max(-1) <= THRESHOLD * size).all(), name


def test_structured_matrices_with_known_answers() -> None:
    n = 12
    a = np.diag(np.full(n, 2.0)) - np.eye(n, k=1) - np.eye(n, k=-1)
    known = 2 - 2 * np.cos(np.pi * np.arange(1, n + 1) / (n + 1))
    np.testing.assert_allclose(np.asarray(la.eigvalsh(a)), known, atol=1e-14 * n)
    np.testing.assert_allclose(np.asarray(la.svdvals(a)), known[::-1], atol=1e-14 * n)
    assert abs(la.det(a).item() - (n + 1)) < 1e-12 * n
    roots = np.asarray(la.eigvals(np.roll(np.eye(5), 1, axis=0)))
    np.testing.assert_allclose(np.sort_complex(roots**5), np.ones(5), atol=1e-13)
    h = scipy.linalg.invhilbert(4)
    np.testing.assert_allclose(np.asarray(la.inv(scipy.linalg.hilbert(4))), h, rtol=1e-9)


def test_the_common_svd_of_a_nearly_singular_matrix_converges():
    """Singular values evenly over 14 orders, in columns of one size: the triangle's rows are what is rotated."""
    rng = np.random.default_rng(5)
    n = 60
    q, p = (np.linalg.qr(rng.standard_normal((n, n)))[0] for _ in range(2))
    a = (q * np.logspace(0, -14, n)) @ p
    with rlx.flags(kernel_dispatch="common"):
        u, s, vh = map(np.asarray, rlx.linalg.svd(rlx.asarray(a)))
    np.testing.assert_allclose((u * s) @ vh, a, atol=1e-13)
    np.testing.assert_allclose(s, np.linalg.svd(a)[1], atol=1e-14)
    for x in (u, vh):
        np.testing.assert_allclose(x @ x.T, np.eye(n), atol=1e-12)


def test_parts_without_elements_are_left_out_of_what_is_joined():
    a, b = np.random.default_rng(0).standard_normal((2, 96, 96))

    def f(a, b):
        return rlx.concat([a @ b, rlx.zeros((96, 0))], axis=1) * 2 + a
    np.testing.assert_allclose(np.asarray(rlx.jit(f, dispatch="common")(a, b)), a @ b * 2 + a, rtol=1e-10, atol=1e-10)
