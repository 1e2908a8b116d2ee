"""custom_gradient, checkpoint, and implicit differentiation: first and second order, batched, in loops and compiled."""

from __future__ import annotations

import numpy as np
import pytest

import rlx
from rlx.core.errors import NotDifferentiableError, ShapeError
from rlx.testing import check_grad

X = np.array([0.3, 0.7, 1.2])
A = np.array([[4.0, 1.0, 0.5], [2.0, 3.0, -1.0], [0.3, 0.2, 5.0]])
B = np.array([1.0, -2.0, 0.5])


def close(a, b, rtol=1e-10):
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=rtol, atol=1e-12)


@rlx.custom_gradient
def ten(x, y):
    z = rlx.sin(x)
    return z * y, lambda ct: (10 * ct * y * rlx.cos(x), (ct * z).sum() if y.ndim == 0 else ct * z)


def test_custom_gradient():
    x, y = rlx.asarray(X), rlx.asarray(2.0)
    close(ten(x, y), np.sin(X) * 2)
    gx, gy = rlx.grad(lambda x, y: ten(x, y).sum(), (0, 1))(x, y)
    close(gx, 20 * np.cos(X))
    close(gy, np.sin(X).sum())
    close(rlx.jit(rlx.grad(lambda x, y: ten(x, y).sum()))(x, y), gx)
    close(rlx.vmap(rlx.grad(ten), (0, None))(x, y), gx)
    close(rlx.grad(lambda x: rlx.vmap(ten, (0, None))(x, y).sum())(x), gx)
    close(rlx.grad(lambda y: rlx.vmap(ten, (0, None))(x, y).sum())(y), gy)
    close(rlx.jvp(lambda x: ten(x, y), (x,), (rlx.ones(3),))[1], gx)
    close(rlx.grad(lambda x: rlx.grad(lambda x: ten(x, y).sum())(x).sum())(x), -20 * np.sin(X))
    close(rlx.grad(lambda x: rlx.fori_loop(0, 2, lambda i, c: ten(c, y), x).sum())(x),
          20 * np.cos(2 * np.sin(X)) * 20 * np.cos(X))


def test_custom_gradient_uses_what_is_around_it():
    def f(w):
        @rlx.custom_gradient
        def g(x):
            return x * w, lambda ct: ct * w * 3
        return g(rlx.asarray(2.0)) * w
    close(rlx.grad(f)(5.0), 10.0)
    w = rlx.asarray(4.0)

    @rlx.custom_gradient
    def tree(p):
        return {"s": p["a"] + p["b"]}, lambda ct: {"a": ct["s"] * w, "b": ct["s"]}
    g = rlx.grad(lambda p: tree(p)["s"])({"a": 1.0, "b": 2.0})
    close(g["a"], 4.0)
    close(g["b"], 1.0)


def test_a_custom_gradient_must_fit():
    wrong = rlx.custom_gradient(lambda x, y: (x * y, lambda ct: (ct,)))
    with pytest.raises(NotDifferentiableError, match="1 cotangents for 2"):
        rlx.grad(wrong)(1.0, 2.0)
    wrong = rlx.custom_gradient(lambda x: (x.sum(), lambda ct: ct))
    with pytest.raises(ShapeError, match="cotangent of shape"):
        rlx.grad(wrong)(X)
    none = rlx.custom_gradient(lambda x, y: (x * y, lambda ct: (ct, None)))
    close(rlx.grad(none, 1)(1.0, 2.0), 0.0)


def test_checkpoint_gives_the_same_derivatives():
    def f(x, k=2.0):
        return rlx.sin(rlx.exp(x) * k)
    g = rlx.checkpoint(f)
    x = rlx.asarray(X)
    close(g(x), f(x))
    for t in (lambda f: rlx.grad(lambda x: f(x).sum()), lambda f: rlx.hessian(lambda x: f(x).sum()), rlx.jacobian,
              lambda f: rlx.vmap(rlx.grad(f)), lambda f: rlx.grad(lambda x: rlx.vmap(f)(x).sum()),
              lambda f: rlx.grad(lambda x: rlx.fori_loop(0, 3, lambda i, c: f(c), x).sum())):
        close(t(g)(x), t(f)(x))
        close(rlx.jit(t(g))(x), t(f)(x))


def test_checkpoint_computes_again_instead_of_keeping():
    w = np.random.default_rng(0).standard_normal((64, 64)) / 8

    def layer(x):
        for _ in range(6):
            x = rlx.tanh(x @ w)
        return x

    def dots(f):
        program = rlx.jit(rlx.grad(lambda x: (f(f(x)) ** 2).sum())).lower(np.ones((32, 64))).lowered
        return sum(_dots(program.mir))
    assert dots(rlx.checkpoint(layer)) == dots(layer) + 2 * 6


def _dots(g):
    inside = [d for n in g.nodes() for s in n.graphs for d in _dots(s)]
    return [1 for n in g.nodes() if "dot" in (n.op, n.attr("op"))] + inside


# Implicit

def dense(matvec, b):
    eye = rlx.eye(3)
    m = rlx.stack([matvec(eye[i]) for i in range(3)], axis=1)
    return rlx.stack([cramer(m, b, i) for i in range(3)]) / det(m)


def det(m):
    return (m[0, 0] * (m[1, 1] * m[2, 2] - m[1, 2] * m[2, 1]) - m[0, 1] * (m[1, 0] * m[2, 2] - m[1, 2] * m[2, 0])
            + m[0, 2] * (m[1, 0] * m[2, 1] - m[1, 1] * m[2, 0]))


def cramer(m, b, i):
    return det(rlx.stack([b if j == i else m[:, j] for j in range(3)], axis=1))


def implicit(a, b):
    return rlx.custom_linear_solve(lambda v: a @ v, b, dense, dense)


def test_linear_solve():
    close(implicit(rlx.asarray(A), rlx.asarray(B)), np.linalg.solve(A, B))
    check_grad(implicit, A, B, order=2, rtol=1e-6)
    close(rlx.jit(rlx.jacobian(implicit, 1))(A, B), np.linalg.inv(A))
    many = np.stack([A, A + 1, A.T])
    got = rlx.vmap(rlx.grad(lambda a, b: (implicit(a, b) ** 2).sum()), (0, None))(many, B)
    for k in range(3):
        close(got[k], rlx.grad(lambda a: (implicit(a, rlx.asarray(B)) ** 2).sum())(many[k]))
    close(rlx.grad(lambda a: (rlx.vmap(implicit, (0, None))(a, rlx.asarray(B)) ** 2).sum())(many), got)


def test_symmetric_solve_by_conjugate_gradients():
    s = A @ A.T

    def cg(matvec, b):
        def step(i, c):
            x, r, p, rho = c
            q = matvec(p)
            alpha = rho / (p @ q)
            r = r - alpha * q
            new = r @ r
            return x + alpha * p, r, r + new / rho * p, new
        return rlx.fori_loop(0, 3, step, (b * 0, b, b, b @ b))[0]

    def f(d, b):
        m = rlx.asarray(s) + d * rlx.eye(3)
        return rlx.custom_linear_solve(lambda v: m @ v, b, cg, symmetric=True)
    close(f(rlx.asarray(0.5), rlx.asarray(B)), np.linalg.solve(s + 0.5 * np.eye(3), B))
    check_grad(f, np.array(0.5), B, order=2, rtol=1e-5)


def test_forward_only_solve():
    def f(a):
        return rlx.custom_linear_solve(lambda v: a @ v, rlx.asarray(B), dense)
    close(rlx.jvp(f, (A,), (A,))[1], -np.linalg.solve(A, B))
    with pytest.raises(NotDifferentiableError, match="transpose"):
        rlx.grad(lambda a: f(a).sum())(A)


def newton_for_cubes(f, x):
    return rlx.fori_loop(0, 40, lambda i, x: x - f(x) / (3 * x * x), x)


def cube_root(a):
    return rlx.custom_root(lambda x: x**3 - a, rlx.ones(2), newton_for_cubes)


def test_root():
    a = np.array([8.0, 27.0])
    close(cube_root(rlx.asarray(a)), [2.0, 3.0])
    check_grad(cube_root, a, order=2, rtol=1e-5)
    close(rlx.jit(rlx.jacobian(cube_root))(a), np.diag([1 / 12, 1 / 27]))
    g = rlx.vmap(rlx.grad(lambda a: cube_root(a).sum()))(np.stack([a, a * 8]))
    close(g, [[1 / 12, 1 / 27], [1 / 48, 1 / 108]])


def test_fixed_point():
    def f(m, c):
        return rlx.fixed_point(lambda x: rlx.tanh(m @ x) + c, c)
    m = A / 12
    x = np.asarray(f(rlx.asarray(m), rlx.asarray(B)))
    close(x, np.tanh(m @ x) + B, rtol=1e-9)
    check_grad(f, m, B, order=2, rtol=1e-5, atol=1e-6)
    t = rlx.fixed_point(lambda s: {"a": 0.5 * s["b"] + 1, "b": 0.5 * s["a"]}, {"a": 0.0, "b": 0.0})
    close(t["a"], 4 / 3)


def test_a_linear_solve_gives_a_report_that_has_no_derivative() -> None:
    def solved(a):
        one = rlx.asarray(1.0)
        x, report = rlx.custom_linear_solve(lambda v: a * v, 6.0 * one, lambda mv, b: (b / mv(one), {"size": 2 * b}),
                                            symmetric=True, has_aux=True)
        return x + report["size"]
    assert solved(rlx.asarray(2.0)).item() == 15.0
    assert rlx.grad(solved)(2.0).item() == -1.5
    assert rlx.grad(rlx.grad(solved))(2.0).item() == 1.5
    assert rlx.jvp(solved, (rlx.asarray(2.0),), (rlx.asarray(1.0),))[1].item() == -1.5
    np.testing.assert_allclose(np.asarray(rlx.vmap(rlx.grad(solved))(rlx.asarray([2.0, 1.0]))), [-1.5, -6.0])
