"""Gradients against differences, for real and complex matrices, through what does not depend on arbitrary choices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx
from rlx import linalg as la

Cases = dict[str, tuple[Callable[[Any], Any], Any]]


def adjoint(x: Any) -> Any:
    return rlx.conj(rlx.matrix_transpose(x))


def loss(*xs: Any) -> Any:
    """A fixed real combination of all elements."""
    total: Any = 0
    for i, x in enumerate(xs):
        w = np.random.default_rng(i + 5).standard_normal(x.shape)
        total = total + rlx.sum(rlx.real(x) * w)
        if x.dtype.is_complex:
            total = total + rlx.sum(rlx.imag(x) * (w[::-1] if x.ndim else 0.3))
    return total


def cases(kind: str) -> Cases:
    rng = np.random.default_rng(1)

    def normal(*shape: int) -> Any:
        x = rng.standard_normal(shape)
        return x + 1j * rng.standard_normal(shape) if kind == "complex" else x
    a = normal(4, 4) + (2j if kind == "complex" else 2) * np.eye(4)
    s = normal(2, 4, 4)
    s = s @ s.conj().swapaxes(-1, -2) + 4 * np.eye(4)
    tall, wide, b, b5 = normal(5, 3), normal(3, 5), normal(4, 2), normal(5, 2)
    sym = lambda x: (x + adjoint(x)) / 2
    rebuilt = lambda r: loss(rlx.abs(r[0]) ** 2, r[1], rlx.abs(r[2]) ** 2,
                             (r[0] * rlx.exp(r[1])[None, :].astype(r[0].dtype)) @ r[2])
    return {
        "cholesky": (lambda x: loss(la.cholesky(sym(x))), s),
        "cholesky upper": (lambda x: loss(la.cholesky(sym(x), upper=True)), s),
        "solve, matrix": (lambda x: loss(la.solve(x, b)), a), "solve, right side": (lambda x: loss(la.solve(a, x)), b),
        "inv": (lambda x: loss(la.inv(x)), a), "det": (lambda x: loss(la.det(x)), a),
        "slogdet": (lambda x: loss(*la.slogdet(x)), a),
        **{f"lu {n}": (lambda x: loss(*la.lu(x)[1:]), m) for n, m in (("square", a), ("tall", tall), ("wide", wide))},
        **{f"qr {n}": (lambda x: loss(*la.qr(x)), m) for n, m in (("square", a), ("tall", tall), ("wide", wide))},
        **{f"svd {n}": (lambda x: rebuilt(la.svd(x, full_matrices=False)), m)
           for n, m in (("tall", tall), ("wide", wide))},
        **{f"triangular {t} {lo} {un}": (lambda x, t=t, lo=lo, un=un: loss(
            la.solve_triangular(x, b, trans=t, lower=lo, unit_diagonal=un)), a)
            for t, lo, un in ((0, True, True), (1, True, False), (2, False, False))},
        "lu_solve": (lambda x: loss(la.lu_solve(la.lu_factor(x), b, trans=2)), a),
        "eigh": (lambda x: (lambda r: loss(r[0], rlx.abs(r[1]) ** 2))(la.eigh(sym(x))), s),
        "eigvalsh": (lambda x: loss(la.eigvalsh(sym(x))), s),
        "svdvals": (lambda x: loss(la.svdvals(x)), tall), "pinv": (lambda x: loss(la.pinv(x)), tall),
        "lstsq": (lambda x: loss(la.lstsq(x, b5)[0]), tall),
        "eigvals": (lambda x: (lambda w: loss(rlx.sum(w**3), rlx.sum(rlx.abs(w))))(la.eigvals(x)), a),
        "eig": (lambda x: (lambda r: loss(rlx.sum(r[0] * rlx.sum(rlx.abs(r[1]) ** 4, axis=0))))(la.eig(x)), a),
        "expm": (lambda x: loss(la.expm(x)), a), "norm": (lambda x: loss(la.norm(x)), a),
        "nuclear norm": (lambda x: loss(la.norm(x, "nuc")), a), "cond": (lambda x: loss(la.cond(x)), a),
        "matrix_power": (lambda x: loss(la.matrix_power(x, -2)), a),
    }


ALL = {kind: cases(kind) for kind in ("real", "complex")}


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("name", ALL["real"])
def test_gradient(name: str, kind: str) -> None:
    f, x = ALL[kind][name]
    g = np.asarray(rlx.grad(f)(rlx.asarray(x)))
    assert g.shape == x.shape and g.dtype == x.dtype
    rng, h = np.random.default_rng(2), 1e-6
    for _ in range(2):
        d = rng.standard_normal(x.shape) + (1j * rng.standard_normal(x.shape) if kind == "complex" else 0)
        slope = (f(rlx.asarray(x + h * d)).item() - f(rlx.asarray(x - h * d)).item()) / (2 * h)
        assert abs(slope - np.sum(g.conj() * d).real) < 2e-6 * max(1, abs(slope))


def test_equal_eigenvalues_leave_the_gradient_finite_and_right_for_their_subspace() -> None:
    a = np.diag([1.0, 1.0, 3.0])
    b = np.random.default_rng(3).standard_normal((3, 3))

    def projected(x: Any) -> Any:
        v = la.eigh((x + x.mT) / 2).eigenvectors[:, :2]
        return rlx.sum((v @ v.mT) * b)
    g = np.asarray(rlx.grad(projected)(rlx.asarray(a)))
    d = np.random.default_rng(4).standard_normal((3, 3))
    h = 1e-6
    slope = (projected(rlx.asarray(a + h * d)).item() - projected(rlx.asarray(a - h * d)).item()) / (2 * h)
    assert np.isfinite(g).all() and abs(slope - (g * d).sum()) < 1e-6


@pytest.mark.parametrize("kind", ["real", "complex"])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_a_determinant_has_a_gradient_where_it_is_zero(rank: int, kind: str) -> None:
    """The cofactors: of rank one for a matrix of rank n - 1, zero below; beside a regular matrix of the batch."""
    whole = np.array([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [1.0, 0.0, 1.0]])
    a = np.stack([{1: np.ones((3, 3)), 2: whole, 3: whole + np.eye(3)}[rank], np.diag([1.0, 2.0, 3.0])])
    a = a * (1 + 0.5j) if kind == "complex" else a
    g = np.asarray(rlx.grad(lambda x: loss(la.det(x)))(rlx.asarray(a)))
    rng, h = np.random.default_rng(2), 1e-5
    d = rng.standard_normal(a.shape) + (1j * rng.standard_normal(a.shape) if kind == "complex" else 0)
    slope = (loss(la.det(rlx.asarray(a + h * d))).item() - loss(la.det(rlx.asarray(a - h * d))).item()) / (2 * h)
    assert abs(slope - np.sum(g.conj() * d).real) < 1e-7


def test_equal_and_zero_singular_values_leave_gradients_finite_and_right() -> None:
    """The orthogonal factor at a rotation, a truncated product at rank two, a nuclear norm of full rank."""
    rng, h = np.random.default_rng(0), 1e-6
    w = rng.standard_normal((3, 3))
    rotation = np.linalg.qr(rng.standard_normal((3, 3)))[0]
    rank_two = np.array([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [1.0, 0.0, 1.0]])

    def polar(x: Any) -> Any:
        u, _, vh = la.svd(x)
        return rlx.sum((u @ vh) * w)

    def largest_two(x: Any) -> Any:
        u, s, vh = la.svd(x)
        return rlx.sum(((u[:, :2] * s[:2]) @ vh[:2]) * w)

    for f, a in ((polar, rotation), (polar, 2 * np.eye(3)), (largest_two, rank_two),
                 (lambda x: la.norm(x, "nuc"), rotation), (lambda x: rlx.sum(la.svdvals(x) ** 2), rank_two)):
        g = np.asarray(rlx.grad(f)(rlx.asarray(a)))
        d = rng.standard_normal((3, 3))
        slope = (f(rlx.asarray(a + h * d)).item() - f(rlx.asarray(a - h * d)).item()) / (2 * h)
        assert abs(slope - (g * d).sum()) < 1e-6


def test_a_norm_at_zero_has_a_zero_gradient() -> None:
    assert np.array_equal(np.asarray(rlx.grad(lambda x: la.norm(x))(rlx.zeros((3,)))), np.zeros(3))


def test_a_factorization_maps_over_new_axes() -> None:
    a = np.random.default_rng(5).standard_normal((4, 3, 3)) + 3 * np.eye(3)
    b = np.random.default_rng(6).standard_normal((3, 2))
    got = rlx.vmap(la.solve, in_axes=(0, None))(rlx.asarray(a), rlx.asarray(b))
    np.testing.assert_allclose(np.asarray(got), np.linalg.solve(a, b), atol=1e-12)
