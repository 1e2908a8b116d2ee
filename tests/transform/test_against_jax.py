"""Nested transforms agree with JAX, where it is installed; both sides run the same Python functions in float64."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import rlx

jax = pytest.importorskip("jax", reason="JAX is not installed (pip install jax[cpu])")
jax.config.update("jax_enable_x64", True)
jnp = jax.numpy
lax = jax.lax

RNG = np.random.default_rng(12)
#: The same names on both sides.
OURS = SimpleNamespace(
    np=rlx, grad=rlx.grad, jvp=rlx.jvp, vjp=rlx.vjp, vmap=rlx.vmap, hessian=rlx.hessian, jit=rlx.jit,
    jacobian=rlx.jacobian, scan=rlx.scan, cond=rlx.cond, switch=rlx.switch, while_loop=rlx.while_loop,
    fori_loop=rlx.fori_loop, checkpoint=rlx.checkpoint, stop_gradient=rlx.stop_gradient,
    value_and_grad=rlx.value_and_grad, float=lambda x: rlx.astype(x, rlx.float64))
THEIRS = SimpleNamespace(
    np=jnp, grad=jax.grad, jvp=jax.jvp, vjp=jax.vjp, vmap=jax.vmap, hessian=jax.hessian, jit=jax.jit,
    jacobian=jax.jacobian, scan=lax.scan, cond=lax.cond, switch=lax.switch, while_loop=lax.while_loop,
    fori_loop=lax.fori_loop, checkpoint=jax.checkpoint, stop_gradient=lax.stop_gradient,
    value_and_grad=jax.value_and_grad, float=lambda x: x.astype(jnp.float64))

Make = Callable[[Any], Callable[..., Any]]
CASES: dict[str, tuple[Make, tuple[Any, ...]]] = {}


def case(*args: Any) -> Callable[[Make], Make]:
    """Note a function of the side (``OURS`` or ``THEIRS``) with its arguments."""
    def take(f: Make) -> Make:
        CASES[f.__name__] = f, args
        return f
    return take


def walk(m: Any) -> Callable[..., Any]:
    """A scan whose carry goes through its weights."""
    def f(w: Any, x: Any, u: Any) -> Any:
        def step(c: Any, a: Any) -> Any:
            new = m.np.tanh(w * c + a)
            return new, (new * a).sum()
        last, sums = m.scan(step, x, u)
        return (last**2).sum() + (sums * m.np.sin(sums)).sum()
    return f


X, U, M = RNG.standard_normal(5), RNG.standard_normal((7, 5)), RNG.standard_normal((4, 4))


@case(X, X[::-1].copy(), U)
def grad_of_scan(m: Any) -> Any:
    return m.grad(walk(m), (0, 1, 2))


@case(RNG.standard_normal((3, 5)), RNG.standard_normal((3, 5)), RNG.standard_normal((3, 7, 5)))
def vmap_of_grad_of_scan(m: Any) -> Any:
    return m.vmap(m.grad(walk(m), (0, 1, 2)))


@case(RNG.standard_normal((3, 5)), X, U)
def grad_of_vmap_of_scan(m: Any) -> Any:
    return m.grad(lambda w, x, u: m.vmap(walk(m), (0, None, None))(w, x, u).sum(), (0, 1, 2))


@case(X, X[::-1].copy(), U)
def hessian_of_scan(m: Any) -> Any:
    return m.hessian(walk(m))


@case(X, RNG.standard_normal(5))
def jvp_of_vjp(m: Any) -> Any:
    def pulled(x: Any) -> Any:
        out, back = m.vjp(lambda x: m.np.sin(x) * x.sum(), x)
        (g,) = back(out)
        return g
    return lambda x, t: m.jvp(pulled, (x,), (t,))


@case(X, RNG.standard_normal(5))
def vjp_of_jvp(m: Any) -> Any:
    def pushed(x: Any, t: Any) -> Any:
        return m.jvp(lambda x: m.np.exp(m.np.sin(x)) * x.sum(), (x,), (t,))[1]

    def f(x: Any, t: Any) -> Any:
        out, back = m.vjp(pushed, x, t)
        return back(out)
    return f


def by_sign(m: Any) -> Callable[..., Any]:
    return lambda x: m.cond(x.sum() > 0, lambda x: (m.np.sin(x) * x).sum(), lambda x: m.np.exp(-x * x).sum(), x)


@case(np.abs(X))
def grad_of_cond_true(m: Any) -> Any:
    return m.grad(by_sign(m))


@case(-np.abs(X))
def grad_of_cond_false(m: Any) -> Any:
    return m.grad(by_sign(m))


@case(RNG.standard_normal((6, 5)))
def vmap_of_grad_of_cond(m: Any) -> Any:
    return m.vmap(m.grad(by_sign(m)))


@case(RNG.standard_normal((6, 5)))
def hessian_of_cond_of_each(m: Any) -> Any:
    return m.vmap(m.hessian(by_sign(m)))


@case(np.int32(1), X)
def grad_of_switch(m: Any) -> Any:
    def f(i: Any, x: Any) -> Any:
        return m.switch(i, [lambda x: x.sum(), lambda x: (x**3).sum(), lambda x: m.np.cos(x).sum()], x)
    return m.grad(f, 1)


@case(np.array([0.5, 2.0, 9.0]))
def vmap_of_jvp_of_while(m: Any) -> Any:
    def newton(a: Any) -> Any:
        return m.while_loop(lambda s: m.np.abs(s * s - a) > 1e-10, lambda s: 0.5 * (s + a / s), a)
    return m.vmap(lambda a: m.jvp(newton, (a,), (a * 0 + 1,)))


@case(X)
def grad_of_a_loop_of_loops(m: Any) -> Any:
    def f(x: Any) -> Any:
        def inner(i: Any, c: Any) -> Any:
            return m.fori_loop(0, 3, lambda j, d: m.np.sin(d) * x + 0.1, c)
        return (m.fori_loop(0, 4, inner, x) ** 2).sum()
    return m.grad(f)


@case(X)
def hessian_of_a_function(m: Any) -> Any:
    return m.hessian(lambda x: m.np.exp(m.np.sin(x).sum()) / (1 + x @ x))


@case(X)
def third_derivative(m: Any) -> Any:
    return m.jacobian(m.hessian(lambda x: (x**4).sum() + m.np.prod(x)))


@case(M)
def grad_of_products(m: Any) -> Any:
    return m.grad(lambda a: m.np.sin(a @ a.T @ a).sum() + m.np.linalg.norm(a[0]))


@case(X, U)
def checkpointed(m: Any) -> Any:
    return m.grad(lambda x, u: m.checkpoint(walk(m))(x, x, u), (0, 1))


@case(X)
def stopped(m: Any) -> Any:
    return m.grad(lambda x: (x * m.stop_gradient(m.np.sin(x)) + x**2).sum())


@case(M, X[:4])
def of_trees(m: Any) -> Any:
    def loss(p: Any, x: Any) -> Any:
        return m.np.log(m.np.exp(p["w"] @ x + p["b"][0]).sum())
    return lambda w, x: list(m.value_and_grad(loss)({"w": w, "b": (x,)}, x)[1]["b"])


@case(np.array([-2.0, -0.5, 0.0, 0.5, 3.0]))
def where_is_safe(m: Any) -> Any:
    def f(x: Any) -> Any:
        safe = m.np.where(x > 0, x, 1.0)
        return m.np.where(x > 0, m.np.sqrt(safe) + m.np.log(safe), 0.0).sum()
    return m.grad(f)


@case(np.array([[3.0, 1.0, 2.0], [0.5, 4.0, -1.0]]))
def order_and_extremes(m: Any) -> Any:
    return m.grad(lambda x: (m.np.sort(x, axis=1) * m.np.arange(3.0)).sum() + x.max() * x.min()
                  + m.np.cumsum(x, axis=1).prod())


def leaves(tree: Any) -> list[np.ndarray]:
    if isinstance(tree, (tuple, list)):
        return [a for t in tree for a in leaves(t)]
    return [np.asarray(tree)]


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "jit"])
@pytest.mark.parametrize("name", list(CASES))
def test_nested_transforms(name: str, compiled: bool) -> None:
    make, args = CASES[name]
    ours = make(OURS)
    got = leaves((rlx.jit(ours) if compiled else ours)(*map(rlx.asarray, args)))
    want = leaves(jax.jit(make(THEIRS))(*map(jnp.asarray, args)))
    assert len(got) == len(want)
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("f", ["exp", "square", "modulus", "parts"])
def test_complex_gradients_are_the_conjugates_of_theirs(f: str) -> None:
    """Ours point along the steepest ascent, ``dL/dx + i dL/dy``; theirs are ``dL/dx - i dL/dy``."""
    def loss(m: Any) -> Callable[[Any], Any]:
        return {"exp": lambda z: m.real(m.exp(z) * (1 + 2j)).sum(), "square": lambda z: m.imag(z * z * z).sum(),
                "modulus": lambda z: (m.abs(z) ** 3).sum(), "parts": lambda z: (m.real(z) * m.imag(z) ** 2).sum()}[f]
    z = RNG.standard_normal(6) + 1j * RNG.standard_normal(6)
    got = np.asarray(rlx.grad(loss(rlx))(rlx.asarray(z)))
    np.testing.assert_allclose(got, np.conj(np.asarray(jax.grad(loss(jnp))(jnp.asarray(z)))), rtol=1e-10)


def test_complex_tangents_are_the_same() -> None:
    z, t = (RNG.standard_normal(6) + 1j * RNG.standard_normal(6) for _ in range(2))
    for f in ("exp", "sin", "sqrt", "log"):
        got = rlx.jvp(getattr(rlx, f), (rlx.asarray(z),), (rlx.asarray(t),))[1]
        want = jax.jvp(getattr(jnp, f), (jnp.asarray(z),), (jnp.asarray(t),))[1]
        np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-10)
