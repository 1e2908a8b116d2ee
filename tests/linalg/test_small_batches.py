"""Batches of small matrices in vector lanes: residuals, failures, and batches that do not fill their last block."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from rlx import linalg as la
from rlx.core import dtype as dt
from rlx.device.cpu.native import lanes_getrf, lanes_potrf
from rlx.ir.claim import Call
from tests.linalg.ratios import THRESHOLD, adjoint, matrices, ratio, unitarity

REAL = ("float32", "float64")
#: One row, a square of lanes and its neighbours, no multiple of the rows taken together, the largest.
SIZES = (1, 2, 4, 7, 8, 13, 32)
COUNT = 19


@pytest.fixture(params=(True, False), ids=("native", "common"))
def taken(request: pytest.FixtureRequest) -> Any:
    """Lanes of the cpu device, or the common path: one contract."""
    with rlx.flags(kernel_dispatch="prefer_native" if request.param else "common"):
        yield request.param


def batch(n: int, dtype: str) -> Any:
    """Matrices of every kind, each in a batch of its own sizes: (COUNT, n, n)."""
    found = [x for x in matrices(n, n, dtype).values() if x.ndim == 2]
    rng = np.random.default_rng(n)
    more = rng.standard_normal((COUNT - len(found), n, n)).astype(dtype)
    return np.concatenate([np.stack(found), more])


def host(xs: Any) -> list[Any]:
    rlx.eval(*xs)
    return [np.asarray(x) for x in xs]


def positive(x: Any) -> Any:
    """Positive definite matrices near the squares of ``x``."""
    x = x / np.abs(x).max(axis=(-2, -1), keepdims=True)
    a = x @ adjoint(x)
    return a + np.eye(x.shape[-1], dtype=x.dtype) * np.abs(a).max(axis=(-2, -1), keepdims=True) / 50


def each(residual: Any, a: Any) -> float:
    """The largest ratio over the batch."""
    return max(ratio(r, x) for r, x in zip(residual, a, strict=True))


@pytest.mark.parametrize("dtype", REAL)
@pytest.mark.parametrize("n", SIZES)
def test_cholesky(n: int, dtype: str) -> None:
    a = positive(batch(n, dtype))
    l, u = host([la.cholesky(np.tril(a)), la.cholesky(np.triu(a), upper=True)])
    assert each(l @ adjoint(l) - a, a) <= THRESHOLD and each(adjoint(u) @ u - a, a) <= THRESHOLD
    assert not np.triu(l, 1).any() and not np.tril(u, -1).any()


@pytest.mark.parametrize("dtype", REAL)
@pytest.mark.parametrize("n", SIZES)
def test_lu(n: int, dtype: str) -> None:
    a = batch(n, dtype)
    packed, pivots = host(la.lu_factor(a))
    p, l, u = host(la.lu(a))
    assert each(p @ l @ u - a, a) <= THRESHOLD
    assert np.abs(l).max() <= 1
    order = np.asarray(la.permutation_of(rlx.asarray(pivots), n))
    assert each((np.tril(packed, -1) + np.eye(n, dtype=dtype)) @ np.triu(packed)
                - np.take_along_axis(a, order[..., None].astype(int), axis=-2), a) <= THRESHOLD


@pytest.mark.parametrize("dtype", REAL)
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("right", [1, 3, 8])
def test_solve(n: int, right: int, dtype: str) -> None:
    a = batch(n, dtype)
    b = np.random.default_rng(1).standard_normal((COUNT, n, right)).astype(dtype)
    x, info = host(la.solve(a, b, errors="info"))
    size = np.abs(a).sum(-2).max(-1) * np.abs(x).sum(-2).max(-1) * n * np.finfo(dtype).eps
    fine = info == 0
    assert fine.sum() >= COUNT - 2 and np.isnan(x[~fine]).all()
    assert (np.abs(a @ x - b).sum(-2).max(-1) <= THRESHOLD * size)[fine].all()


@pytest.mark.parametrize("dtype", REAL)
@pytest.mark.parametrize("n", SIZES)
def test_eigh(n: int, dtype: str) -> None:
    x = batch(n, dtype)
    a = (x + adjoint(x)) / 2
    w, v = host(la.eigh(np.tril(a)))
    assert each((v * w[..., None, :]) @ adjoint(v) - a, a) <= THRESHOLD
    assert max(map(unitarity, v)) <= THRESHOLD
    assert (np.diff(w) >= 0).all()
    upper, = host([la.eigvalsh(np.triu(a), UPLO="U")])
    scale = np.abs(w).max(-1, keepdims=True)
    assert (np.abs(upper - w) <= THRESHOLD * n * np.finfo(dtype).eps * scale).all()


@pytest.mark.parametrize("dtype", REAL)
def test_eigenvalues_that_are_equal_zero_or_far_apart(dtype: str) -> None:
    n, rng = 9, np.random.default_rng(3)
    q = np.linalg.qr(rng.standard_normal((n, n)))[0]
    tiny, big = float(np.finfo(dtype).tiny), float(np.finfo(dtype).max)
    values = [np.zeros(n), np.ones(n), np.repeat([1.0, 2.0, 5.0], 3), np.logspace(0, -30, n), np.eye(n)[0],
              np.arange(n) * tiny / 8, np.arange(1, n + 1) / n * (big / 100), np.linspace(-1, 1, n)]
    with np.errstate(under="ignore"):
        a = np.stack([(q * w) @ q.T for w in values] * 3).astype(dtype)
    a = np.tril(a) + adjoint(np.tril(a, -1))
    w, v = host(la.eigh(a))
    for k in range(len(a)):
        scale = np.abs(a[k]).max() or 1
        s = float(scale) if scale > tiny else 1.0
        m = a[k].astype(np.float64) / s
        if scale > tiny:  # of subnormal numbers there are no few rounding errors
            gap = (v[k] * (w[k] / np.asarray(s, dtype))) @ v[k].T - m
            assert ratio(gap, m.astype(dtype)) <= THRESHOLD, k
        assert unitarity(v[k]) <= THRESHOLD, k
    diagonal = np.stack([np.diag([3.0, 1.0, 2.0])] * COUNT).astype(dtype)
    w, v = host(la.eigh(diagonal))
    np.testing.assert_array_equal(w, np.tile(np.asarray([1, 2, 3], dtype), (COUNT, 1)))
    np.testing.assert_array_equal(np.abs(v[0]), np.eye(3)[:, [1, 2, 0]])


@pytest.mark.parametrize("dtype", REAL)
@pytest.mark.parametrize("n", [3, 8, 18])
def test_failures_stay_in_their_lane(n: int, dtype: str, taken: bool) -> None:
    """One matrix of many fails: its result is NaN, its number is named, and the others are as without it."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((COUNT, n, n)).astype(dtype)
    a = positive(x)
    good = np.arange(COUNT) != 17
    bad = a.copy()
    bad[17, 1, 1] = -1
    l, info = host(la.cholesky(bad, errors="info"))
    assert info[17] == 2 and not info[good].any() and np.isnan(l[17]).all()
    np.testing.assert_allclose(l[good], np.linalg.cholesky(a[good]), rtol=1e-4, atol=1e-5)
    with pytest.raises(la.LinAlgError, match="matrix 17 of the batch"):
        rlx.eval(la.cholesky(bad))
    nan = a.copy()
    nan[17, n - 1, 0] = np.nan
    w, v, info = host(la.eigh(nan, errors="info"))
    assert info[17] == 1 and not info[good].any() and np.isnan(w[17]).all() and np.isnan(v[17]).all()
    np.testing.assert_allclose(w[good], np.linalg.eigvalsh(a[good]), rtol=1e-3, atol=1e-5)
    singular = x.copy()
    singular[17, :, 2] = 0
    y, info = host(la.solve(singular, np.ones((COUNT, n, 1), dtype), errors="info"))
    assert info[17] > 0 and not info[good].any() and np.isnan(y[17]).all() and np.isfinite(y[good]).all()
    with pytest.raises(la.LinAlgError, match="matrix 17 of the batch"):
        rlx.eval(la.inv(singular))


def test_only_one_triangle_is_read(taken: bool) -> None:
    n = 8
    a = positive(np.random.default_rng(2).standard_normal((COUNT, n, n)))
    dirty = np.where(np.tri(n, dtype=bool), a, np.nan)
    np.testing.assert_allclose(np.asarray(la.cholesky(dirty)), np.linalg.cholesky(a), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(np.asarray(la.eigvalsh(dirty)), np.linalg.eigvalsh(a), rtol=1e-12)
    turned = np.swapaxes(dirty, -1, -2)
    np.testing.assert_allclose(np.asarray(la.eigvalsh(turned, UPLO="U")), np.linalg.eigvalsh(a), rtol=1e-12)


def test_what_lanes_take_and_what_is_left_to_a_library() -> None:
    def reason(dtype: Any, shape: tuple[int, ...], *more: Any) -> str | None:
        names = {0: lanes_potrf, 1: lanes_getrf}
        return names[len(more)].CLAIMS[-1].accepts(Call("op", ((dtype, shape), *more), ()))
    assert reason(dt.float64, (8, 32, 32)) is None and reason(dt.float32, (4, 4, 1, 1)) is None
    assert reason(dt.float64, (100, 33, 33)) == "needs square matrices of 1 to 32 rows, got 33x33"
    assert reason(dt.float32, (8, 4, 4)) == "needs 16 matrices to fill its lanes"
    assert "complex64" in str(reason(dt.complex64, (100, 4, 4)))
    assert "1 to 32" in str(reason(dt.float64, (100, 4, 5)))
    assert "1024 numbers of right sides" in str(reason(dt.float64, (100, 4, 4), (dt.float64, (100, 4, 300))))
    assert reason(dt.float64, (100, 32, 32), (dt.float64, (100, 32, 32))) is None


def test_inverse_and_determinant_of_a_batch(taken: bool) -> None:
    a = np.random.default_rng(5).standard_normal((5, 4, 6, 6)) + 3 * np.eye(6)
    np.testing.assert_allclose(np.asarray(la.inv(a)), np.linalg.inv(a), rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(np.asarray(la.det(a)), np.linalg.det(a), rtol=1e-10)
    sign, size = host(la.slogdet(a))
    np.testing.assert_allclose(sign * np.exp(size), np.linalg.det(a), rtol=1e-10)
