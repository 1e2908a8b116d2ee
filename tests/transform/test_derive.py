"""grad, jvp, vjp, linearize, jacobian, hessian: on trees, nested in each other, eager and compiled."""

from __future__ import annotations

import dataclasses
from itertools import pairwise

import numpy as np
import pytest

import rlx
from rlx.core.errors import DTypeError, NotDifferentiableError, ShapeError, ValueIssue
from rlx.testing import check_grad

X = np.array([0.3, 0.7, 1.2])


def close(a, b, rtol=1e-12):
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=rtol, atol=1e-13)


@dataclasses.dataclass(frozen=True)
class Layer:
    w: rlx.Array
    b: rlx.Array


def test_trees():
    p = {"layers": [Layer(rlx.ones((3, 2)), rlx.zeros(2)), Layer(rlx.ones((2, 1)), rlx.zeros(1))], "scale": 2.0}

    def loss(p, x):
        for layer in p["layers"]:
            x = rlx.tanh(x @ layer.w + layer.b)
        return (x * p["scale"]).sum()
    value, g = rlx.value_and_grad(loss)(p, rlx.asarray(X))
    assert isinstance(g["layers"][0], Layer) and g["layers"][0].w.shape == (3, 2)
    close(g["scale"], value / 2.0)
    check_grad(lambda w: loss({"layers": [Layer(w, rlx.zeros(2)), p["layers"][1]], "scale": 2.0}, rlx.asarray(X)),
               np.ones((3, 2)))


def test_argnums_and_aux():
    def f(x, y, k=2.0):
        return (x * x * y * k).sum(), {"product": x * y}
    (value, aux), (gx, gy) = rlx.value_and_grad(f, (0, 1), has_aux=True)(X, X + 1, k=3.0)
    close(gx, 6 * X * (X + 1))
    close(gy, 3 * X * X)
    close(aux["product"], X * (X + 1))
    close(value, (3 * X * X * (X + 1)).sum())
    g, aux = rlx.grad(f, 1, has_aux=True)(X, X + 1)
    close(g, 2 * X * X)


@pytest.mark.parametrize("wrap", [lambda f: f, rlx.jit], ids=["eager", "jit"])
@pytest.mark.parametrize("target", ["cpu", "python"])
def test_orders(wrap, target):
    with rlx.flags(device=target):
        d = rlx.sin
        for k in range(1, 5):
            d = rlx.grad(d)
            close(wrap(d)(rlx.asarray(0.4)), np.sin(0.4 + k * np.pi / 2))


@pytest.mark.parametrize("target", ["cpu", "python"])
def test_each_mode_in_each_other(target):
    def f(x):
        return rlx.softmax(x * x) @ rlx.asarray([1.0, 2.0, 3.0]) + rlx.prod(x)
    with rlx.flags(device=target):
        x, v = rlx.asarray(X), rlx.asarray([1.0, -0.5, 2.0])
        h = rlx.hessian(f)(x)
        close(h, h.T)
        close(rlx.hvp(f, x, v), h @ v)
        close(rlx.jvp(lambda x: rlx.vjp(f, x)[1](rlx.asarray(1.0))[0], (x,), (v,))[1], h @ v)
        close(rlx.grad(lambda x: rlx.jvp(f, (x,), (v,))[1])(x), h @ v)
        close(rlx.jvp(lambda x: rlx.jvp(f, (x,), (v,))[1], (x,), (v,))[1], v @ h @ v)
        close(rlx.linearize(rlx.grad(f), x)[1](v), h @ v)
        close(rlx.jacobian(rlx.grad(f), mode="reverse")(x), h)
        close(rlx.vmap(lambda v: rlx.hvp(f, x, v))(rlx.eye(3)), h)
        close(rlx.jit(rlx.hessian(f))(x), h)
        close(rlx.hessian(rlx.jit(f))(x), h)


def test_jacobians():
    def f(p):
        return {"a": p["x"] * p["y"].sum(), "b": p["x"] @ p["x"]}
    p = {"x": rlx.asarray(X), "y": rlx.ones((2, 2))}
    for mode in ("forward", "reverse", "auto"):
        j = rlx.jacobian(f, mode=mode)(p)
        close(j["a"]["x"], 4 * np.eye(3))
        close(j["a"]["y"], np.broadcast_to(X[:, None, None], (3, 2, 2)))
        close(j["b"]["x"], 2 * X)
        assert j["b"]["y"].shape == (2, 2)
    with pytest.raises(ValueIssue, match="mode"):
        rlx.jacobian(f, mode="sideways")


def test_linear_maps_are_evaluated_once():
    y, back = rlx.vjp(lambda x: rlx.exp(x) * x, rlx.asarray(X))
    close(back(rlx.ones(3))[0], np.exp(X) * (X + 1))
    close(back(2 * rlx.ones(3))[0], 2 * np.exp(X) * (X + 1))
    close(y, np.exp(X) * X)
    with pytest.raises(ShapeError):
        back(rlx.ones(4))
    y, push = rlx.linearize(lambda x, z: x * z, rlx.asarray(X), rlx.asarray(2.0))
    close(push(rlx.ones(3), rlx.asarray(1.0)), 2 + X)


@pytest.mark.parametrize(("f", "x", "g"), [
    (lambda x: rlx.where(x > 0, rlx.sqrt(x), 0), [0.0, 4.0], [0.0, 0.25]),
    (lambda x: rlx.where(x > 0, rlx.log(x), 0), [0.0, 4.0], [0.0, 0.25]),
    (lambda x: rlx.where(x < 100, rlx.exp(x), 0), [1e5, 0.0], [0.0, 1.0]),
    (lambda x: rlx.where(x != 0, rlx.sin(x) / x, 1), [0.0], [0.0]),
    (lambda x: rlx.where(x > 0, x ** 0.3, x * 2), [0.0], [2.0]),
    (lambda x: rlx.hypot(x, x * 0), [0.0, 2.0], [0.0, 1.0]),
    (lambda x: rlx.abs(x), [0.0, -2.0], [0.0, -1.0]),
    (lambda x: rlx.maximum(x, 1.0), [1.0, 2.0], [0.5, 1.0]),
])
def test_gradients_stay_finite(f, x, g):
    close(rlx.grad(lambda x: f(x).sum())(rlx.asarray(x)), g)
    close(rlx.jvp(f, (rlx.asarray(x),), (rlx.ones(len(x)),))[1], g)


def test_a_zero_cotangent_has_a_second_derivative():
    close(rlx.hessian(lambda x: (rlx.sqrt(x) - 1.0) ** 2)(1.0), 0.5)
    close(rlx.hessian(lambda x: (x / 2.0 - 1.0) ** 2)(2.0), 0.5)


def test_complex_convention():
    z = rlx.asarray(np.array([1 + 2j, -0.5 + 1j]))
    g = rlx.grad(lambda z: (rlx.abs(z) ** 2).sum())(z)
    close(g, 2 * z.numpy())
    holomorphic = rlx.jvp(lambda z: z ** 3, (z,), (z * 0 + 1,))[1]
    close(holomorphic, 3 * z.numpy() ** 2)
    close(rlx.vjp(lambda z: z ** 3, z)[1](z * 0 + 1)[0], np.conj(3 * z.numpy() ** 2))
    step = z - 0.1 * g
    assert float((rlx.abs(step) ** 2).sum()) < float((rlx.abs(z) ** 2).sum())


def test_stop_gradient():
    close(rlx.grad(lambda x: (rlx.stop_gradient(x) * x).sum())(X), X)
    close(rlx.jvp(lambda x: rlx.stop_gradient(x) * x, (X,), (X,))[1], X * X)


def test_refusals():
    with pytest.raises(NotDifferentiableError, match="nextafter") as e:
        rlx.grad(lambda x: rlx.nextafter(x, 2.0))(1.0)
    assert "test_derive.py" in e.value.where
    with pytest.raises(NotDifferentiableError, match="nextafter"):
        rlx.jvp(lambda x: rlx.nextafter(x, 2.0), (1.0,), (1.0,))
    with pytest.raises(ShapeError, match="returns shape"):
        rlx.grad(lambda x: x)(X)
    with pytest.raises(DTypeError, match="int64"):
        rlx.grad(lambda x: x.sum())(rlx.arange(3))
    with pytest.raises(DTypeError, match="complex"):
        rlx.grad(lambda x: x)(1j)
    with pytest.raises(ValueIssue, match="argnums"):
        rlx.grad(rlx.sin, 3)(1.0)
    with pytest.raises(ShapeError, match="structure"):
        rlx.jvp(lambda x: x, (1.0,), ([1.0],))


def test_new_numbers_compile_nothing():
    from rlx.runtime.execute import PROGRAMS
    g = rlx.grad(lambda x: (rlx.sin(x) * x).sum())
    g(rlx.asarray(X)).numpy()
    before = PROGRAMS.compiles
    g(rlx.asarray(X + 1)).numpy()
    assert PROGRAMS.compiles == before


def test_gradient_of_an_mlp_is_cheap():
    """The reverse of three layers reads and writes little more than twice what the layers do."""
    sizes = [64, 64, 64, 64]
    rng = np.random.default_rng(0)
    ws = [rng.standard_normal((a, b)) / 8 for a, b in pairwise(sizes)]
    x = rng.standard_normal((32, 64))

    def loss(ws, x):
        for w in ws:
            x = rlx.tanh(x @ w)
        return (x * x).sum()

    def launches(f):
        return len(rlx.jit(f).lower(ws, x).lowered.program.steps)
    assert launches(rlx.value_and_grad(loss)) <= 3 * launches(loss) + 2
