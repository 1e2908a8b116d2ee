"""Derivatives and batches of loops and branches, alone and nested."""

from __future__ import annotations

import numpy as np
import pytest

import rlx
import rlx.transform.control
from rlx.array.tree import flatten
from rlx.core.errors import DTypeError, NotDifferentiableError, ShapeError
from rlx.testing import check_grad

RNG = np.random.default_rng(11)
X = np.array([0.3, 0.7, 1.2])
M = RNG.standard_normal((3, 3)) * 0.5


def close(a, b, rtol=1e-11):
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=rtol, atol=1e-13)


def recur(x, us, m):
    def step(c, u):
        c = rlx.tanh(m @ c + u)
        return c, (c * c).sum()
    return rlx.scan(step, x, us)


def power(a, x):
    return rlx.while_loop(lambda v: v[0] < 10, lambda v: (v[0] * a, v[1] + v[0] * x), (1.0, 0.0 * x), max_steps=40)[1]


def branches(k, x):
    return rlx.switch(k, [lambda x: x * x, lambda x: rlx.sin(x) * 3, lambda x: x * 0 + 1.5], x)


def pick(x):
    return rlx.cond(x.sum() > 1, lambda x: (x**2).sum(), lambda x: (x**3).sum(), x)


CASES = {
    "scan": (lambda x, us, m: recur(x, us, m), (X, RNG.standard_normal((5, 3)), M)),
    "scan back": (lambda x, us: rlx.scan(lambda c, u: (c * u, c + u), x, us, reverse=True), (X,
                                                                                             RNG.standard_normal((5,
                                                                                                                  3)))),
    "fori": (lambda x, m: rlx.fori_loop(1, 6, lambda i, c: rlx.sin(m @ c) * i + x, x), (X, M)),
    "fori in fori": (lambda x: rlx.fori_loop(0, 3, lambda i, c: rlx.fori_loop(0, i + 1, lambda j, d: rlx.cos(d) + x, c,
                                                                              max_steps=3), x), (X,)),
    "while": (power, (np.array(1.5), np.array(2.0))),
    "cond": (pick, (X,)),
    "cond other": (pick, (X - 1,)),
    "switch": (lambda x: branches(rlx.asarray(1), x), (X,)),
    "in place": (lambda x: rlx.fori_loop(0, 3, lambda i, c: c.at[i].multiply(c[(i + 1) % 3]), x), (X,)),
    "map": (lambda x, m: rlx.map(lambda r: rlx.tanh(m @ r), x), (RNG.standard_normal((4, 3)), M)),
    "cond in scan": (lambda x, us: rlx.scan(lambda c, u: (rlx.cond(u > 0, rlx.sin, lambda c: c * c * u, c), c.sum()),
                                            x, us),
                     (X, np.array([1.0, -0.5, 2.0, -1.0]))),
    "nothing to carry": (lambda us: rlx.scan(lambda c, u: (c, rlx.exp(u)), None, us)[1], (X,)),
}


@pytest.mark.parametrize("name", CASES)
def test_derivatives(name):
    f, args = CASES[name]
    check_grad(f, *args, order=2, rtol=1e-6, atol=1e-7)


def total(f):
    def g(*args):
        outs, _ = flatten(f(*args))
        return sum((o * o).sum() for o in outs)
    return g


@pytest.mark.parametrize("target", ["cpu", "python"])
@pytest.mark.parametrize("name", CASES)
def test_batches_of_gradients(name, target):
    f, args = CASES[name]
    n = tuple(range(len(args)))
    many = [np.stack([a, a * 1.1 + 0.05, a * 0.9]) for a in args]
    with rlx.flags(device=target):
        got = rlx.vmap(rlx.grad(total(f), n))(*[rlx.asarray(m) for m in many])
        for k in range(3):
            want = rlx.grad(total(f), n)(*[rlx.asarray(m[k]) for m in many])
            for a, b in zip(got, want, strict=True):
                close(np.asarray(a)[k], b)
        whole = rlx.grad(lambda *a: rlx.vmap(total(f))(*a).sum(), n)(*[rlx.asarray(m) for m in many])
        for a, b in zip(got, whole, strict=True):
            close(a, b)
        _, compiled = rlx.jit(rlx.value_and_grad(lambda *a: rlx.vmap(total(f))(*a).sum(), n))(*many)
        for a, b in zip(compiled, whole, strict=True):
            close(a, b)


def test_batched_index_and_count():
    k = np.array([2, 0, 1, 1])
    x = RNG.standard_normal((4, 3))
    got = rlx.vmap(branches)(k, x)
    close(got, np.stack([np.asarray(branches(rlx.asarray(int(i)), rlx.asarray(r))) for i, r in zip(k, x, strict=True)]))

    def f(n, x):
        return rlx.fori_loop(0, n, lambda i, c: c * 2 + i, x)
    got = rlx.vmap(f)(k, x)
    close(got, np.stack([np.asarray(f(rlx.asarray(int(i)), rlx.asarray(r))) for i, r in zip(k, x, strict=True)]))
    grown = rlx.grad(lambda x, n: rlx.fori_loop(0, n, lambda i, c: c * x, x, max_steps=4))
    g = rlx.vmap(grown)(rlx.asarray(X), np.array([0, 1, 3]))
    close(g, [1.0, 2 * X[1], 4 * X[2] ** 3])


def test_a_loop_without_a_bound_says_so():
    def f(x):
        return rlx.while_loop(lambda v: v < 10, lambda v: v * x, x)
    close(rlx.jvp(f, (3.0,), (1.0,))[1], 3 * 3.0**2)
    with pytest.raises(NotDifferentiableError, match="while") as e:
        rlx.grad(f)(3.0)
    assert "max_steps" in str(e.value) and "test_control.py" in e.value.where


def test_a_bound_ends_the_loop():
    assert rlx.while_loop(lambda v: v < 100, lambda v: v + 1, 0, max_steps=7).item() == 7


@pytest.mark.parametrize("n", [16, 17, 23])
def test_long_loops_are_cut(n, monkeypatch):
    def f(x, m):
        return (rlx.fori_loop(0, n, lambda i, c: rlx.tanh(m @ c) + x * i, x) ** 2).sum()
    want = rlx.grad(f, (0, 1))(X, M)
    monkeypatch.setattr(rlx.transform.control, "KEEP_LIMIT", 8 * 3 * 6)
    got = rlx.grad(f, (0, 1))(X, M)
    for a, b in zip(got, want, strict=True):
        close(a, b)
    close(rlx.hessian(f)(X, M), rlx.jacobian(rlx.grad(f), mode="reverse")(X, M), rtol=1e-9)

    def kept(limit):
        monkeypatch.setattr(rlx.transform.control, "KEEP_LIMIT", limit)
        program = rlx.jit(rlx.grad(lambda x, m: f(x, m) + limit * 0)).lower(X, M).lowered.program
        return max(b.size for b in program.buffers if b.role == "temp")
    assert kept(8 * 3 * 6) < kept(1 << 29)


def test_the_way_back_of_a_scan_is_linear_in_its_length():
    """No step of the backward loop touches a whole stack."""
    def cost(n):
        f = rlx.jit(rlx.grad(lambda us: rlx.scan(lambda c, u: (rlx.sin(c) * u, c), 1.0, us)[0]))
        program = f.lower(np.ones(n)).lowered.program

        def touched(steps):
            kernels = [t.kernel for s in steps for t in getattr(s, "body", ()) if hasattr(t, "kernel")]
            return sum("over" in k.notes and f"[{n}]" in k.notes for k in kernels)
        return touched(program.steps)
    assert cost(1000) == 0


def test_shapes_that_do_not_fit_batches():
    with pytest.raises(ShapeError, match="sizes"):
        rlx.vmap(lambda x, y: x + y)(np.ones(3), np.ones(4))
    with pytest.raises(ShapeError, match="without a mapped"):
        rlx.vmap(lambda x: x, None)(np.ones(3))
    with pytest.raises(ShapeError, match="out_axes"):
        rlx.vmap(lambda x: x, out_axes=None)(np.ones(3))


def test_axes():
    x = RNG.standard_normal((2, 3, 4))
    close(rlx.vmap(lambda a: a * 2, 1, 2)(x), np.moveaxis(x, 1, 2) * 2)
    close(rlx.vmap(lambda a: a * 2, -1, -1)(x), x * 2)
    close(rlx.vmap(lambda p, k: p["a"] * k + p["b"], ({"a": 0, "b": None}, None))({"a": x, "b": x[0]}, 2.0),
          2 * x + x[0])
    y = rlx.vmap(lambda a: (a, rlx.asarray(1.0)), out_axes=(1, None))(x)
    close(y[0], np.moveaxis(x, 0, 1))
    assert y[1].shape == ()
    close(rlx.vmap(rlx.vmap(rlx.vmap(lambda a: rlx.sin(a))))(x), np.sin(x))
    c = rlx.asarray(x[0])
    close(rlx.vmap(lambda a: (a * c).sum())(x), (x * x[0]).sum((1, 2)))


def test_a_carry_of_python_numbers_takes_the_types_of_the_body():
    last, sums = rlx.scan(lambda c, u: (c + u, c), 0, np.arange(5.0))
    assert last.item() == 10.0 and sums.tolist() == [0.0, 0.0, 1.0, 3.0, 6.0] and sums.dtype == rlx.float64
    chain = rlx.scan(lambda c, u: ((c[0] + c[1], c[1] + c[2], c[2] + u), c[0]), (0, 0, 0), np.arange(4.0))
    assert [x.item() for x in chain[0]] == [1.0, 4.0, 6.0] and chain[1].dtype == rlx.float64
    moved = rlx.while_loop(lambda s: s[2] < 10, lambda s: (s[1], s[2], s[2] * 1.5), (0, 0, 1))
    assert [x.item() for x in moved] == [5.0625, 7.59375, 11.390625]


@pytest.mark.parametrize("run, match", [
    (lambda x: rlx.scan(lambda c, u: c + u, 0.0, x), "the body of scan returns Array"),
    (lambda x: rlx.scan(lambda c, u: ((c, c), u), 0.0, x), "another structure"),
    (lambda x: rlx.scan(lambda c, u: (x, u), 0.0, x), "changes the type of its value 0"),
    (lambda x: rlx.while_loop(lambda s: s[0] < 9, lambda s: (s[0] + 1,), (0, 1)), "another structure"),
    (lambda x: rlx.fori_loop(0, 3, lambda i, c: (c, c), 0), "another structure"),
    (lambda x: rlx.cond(x, lambda a: a, lambda a: a, x), "the condition of cond has shape"),
    (lambda x: rlx.switch(x, [rlx.sin, rlx.cos], x), "the index of switch has shape"),
])
def test_mistakes_with_shapes_and_structures(run, match):
    with pytest.raises(ShapeError, match=match):
        run(rlx.asarray([0.0, 1.0, 2.0]))


def test_structures_are_spelled_in_errors():
    with pytest.raises(ShapeError) as e:
        rlx.while_loop(lambda s: s["a"] < 9, lambda s: [s["a"], None], {"a": 0, "b": (1,)})
    assert e.value.why == "[*, None] against {'a': *, 'b': (*,)}, where * is an array or a number"


def test_iterations_and_branches_are_counted_by_integers():
    for lower, upper in ((0, 2.5), (0.0, 2), (0, rlx.ones(2, dtype=rlx.int64))):
        with pytest.raises(DTypeError, match="fori_loop with"):
            rlx.fori_loop(lower, upper, lambda i, c: c + i, 0)
    assert rlx.fori_loop(np.int32(1), np.int64(4), lambda i, c: c + i, 0).item() == 6
    with pytest.raises(DTypeError, match="the index of switch is float64"):
        rlx.switch(1.5, [rlx.sin, rlx.cos], 1.0)
