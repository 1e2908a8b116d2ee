"""Loops that run inside one kernel: recognised where lanes are independent, left alone where they are not."""

from __future__ import annotations

import numpy as np
import pytest

import rlx
from rlx.ir import loop as L

RNG = np.random.default_rng(5)


def steps(f, *args) -> list[str]:
    """Kinds of the program's steps, in order."""
    program = rlx.jit(f).lower(*args).lowered.program
    return [type(s).__name__ for s in program.steps]


def same(f, *args, one_kernel: bool = True, rtol: float = 1e-12) -> None:
    """The loop is one kernel (or is not), and agrees with the interpreter."""
    kinds = steps(f, *args)
    loops = [k for k in kinds if k in ("While", "Repeat")]
    assert (not loops) == one_kernel, kinds
    got = rlx.jit(f)(*args)
    want = rlx.jit(f, device="python")(*args)
    for g, w in zip(_leaves(got), _leaves(want), strict=True):
        np.testing.assert_allclose(np.asarray(g), np.asarray(w), rtol=rtol, atol=1e-13)


def _leaves(tree):
    return list(tree) if isinstance(tree, (tuple, list)) else [tree]


@pytest.mark.parametrize("n", [1, 2, 7, 64, 96, 100, 1000, 1537])
def test_elementwise_loop(n):
    same(lambda x: rlx.fori_loop(0, 10, lambda i, c: c * 0.5 + rlx.sin(c) + i, x), RNG.standard_normal(n))


@pytest.mark.parametrize("shape", [(3, 5), (4, 64), (5, 100), (2, 3, 64), (130, 3)])
def test_two_axes_and_shared_operands(shape):
    def f(x, row, column):
        return rlx.fori_loop(0, 7, lambda i, c: c * row + column[..., None] * rlx.cos(c), x)
    same(f, RNG.standard_normal(shape), RNG.standard_normal(shape[-1]), RNG.standard_normal(shape[:-1]))


@pytest.mark.parametrize("n", [0, 1, 5])
def test_number_of_iterations(n):
    same(lambda x: rlx.fori_loop(0, n, lambda i, c: c * 2 + 1, x), RNG.standard_normal(70))
    same(lambda x, k: rlx.fori_loop(0, k, lambda i, c: c * 2 + i, x), RNG.standard_normal(70), n)


def test_several_values_change_places():
    same(lambda a, b: rlx.fori_loop(0, 7, lambda i, s: (s[1], s[0] + s[1]), (a, b)), RNG.standard_normal(90),
         RNG.standard_normal(90))


def test_scalars_beside_lanes():
    def f(x, t):
        return rlx.fori_loop(0, 9, lambda i, s: (s[0] + rlx.sin(s[1]) * s[0], s[1] + 0.1), (x, t))
    same(f, RNG.standard_normal(200), 0.5)


def test_loop_of_scalars():
    same(lambda a: rlx.while_loop(lambda s: rlx.abs(s * s - a) > 1e-12, lambda s: 0.5 * (s + a / s), a), 7.0)
    same(lambda n: rlx.while_loop(lambda s: s[0] + 1 < 10, lambda s: (s[0] + 1, s[1] + s[0]), (n * 0, n)), 3)


def test_small_vectors_are_unrolled():
    def f(x, m):
        return rlx.fori_loop(0, 6, lambda i, v: (m @ v) / rlx.sqrt((v * v).sum()), x)
    same(f, RNG.standard_normal(3), RNG.standard_normal((3, 3)))


def test_batch_of_small_vectors():
    def f(m):
        return rlx.vmap(lambda x: rlx.fori_loop(0, 6, lambda i, v: rlx.stack([v[1], v[2] * v[0], v.sum()]) / 3.0, x))(m)
    same(f, RNG.standard_normal((150, 3)))


def test_condition_of_scalars():
    def f(x):
        return rlx.while_loop(lambda s: s[1] < 3.0, lambda s: (s[0] * 1.5, s[1] * 1.25), (x, 1.0))
    same(f, RNG.standard_normal(130))


def escape(re, im):
    def go(s):
        return (s[0] * s[0] + s[1] * s[1] < 4) & (s[2] < 50)

    def step(s):
        return s[0] * s[0] - s[1] * s[1] + re, 2 * s[0] * s[1] + im, s[2] + 1
    return rlx.while_loop(go, step, (re * 0, im * 0, 0))[2]


def test_each_element_stops_by_itself():
    picture = rlx.vmap(rlx.vmap(escape, (0, None)), (None, 0))
    re, im = np.linspace(-2, 0.6, 67), np.linspace(-1.3, 1.3, 45)
    same(picture, re, im)
    one = [[int(escape(rlx.asarray(a), rlx.asarray(b))) for a in re[::13]] for b in im[::13]]
    assert rlx.jit(picture)(re, im).numpy()[::13, ::13].tolist() == one


def test_tangents_of_elements_that_stop_by_themselves():
    def newton(a):
        return rlx.while_loop(lambda s: rlx.abs(s * s - a) > 1e-10, lambda s: 0.5 * (s + a / s), a)
    a = np.linspace(0.5, 9.0, 150)
    same(lambda a: rlx.jvp(rlx.vmap(newton), (a,), (a * 0 + 1,)), a)
    same(lambda a: rlx.vmap(lambda a: rlx.jvp(newton, (a,), (rlx.ones_like(a),)))(a), a)
    np.testing.assert_allclose(np.asarray(rlx.jvp(rlx.vmap(newton), (a,), (a * 0 + 1,))[1]), 0.5 / np.sqrt(a),
                               rtol=1e-4)


def test_scan_writes_its_results_through():
    def f(x, u):
        return rlx.scan(lambda c, a: (c * 0.9 + a, rlx.sin(c)), x, u)
    same(f, RNG.standard_normal(80), RNG.standard_normal((6, 80)))
    same(lambda x, u: rlx.scan(lambda c, a: (c * 0.9 + a, rlx.sin(c)), x, u, reverse=True), RNG.standard_normal(80),
         RNG.standard_normal((6, 80)))
    same(rlx.vmap(lambda x, u: rlx.scan(lambda c, a: (c * 0.9 + a, (c, c * a)), x, u)[1]), RNG.standard_normal(80),
         RNG.standard_normal((80, 6)))


def test_a_partly_written_stack_keeps_its_first_values():
    def f(x, y):
        return rlx.fori_loop(0, 3, lambda i, s: (s[0] * 2, s[1].at[2 * i].set(s[0])), (x, y))[1]
    same(f, RNG.standard_normal(80), RNG.standard_normal((9, 80)))


def test_gradient_of_a_scan():
    def f(x, u):
        return rlx.scan(lambda c, a: (rlx.tanh(c + a), None), x, u)[0].sum()
    same(rlx.grad(f, (0, 1)), RNG.standard_normal(80), RNG.standard_normal((6, 80)))


@pytest.mark.parametrize("f", [
    lambda x: rlx.fori_loop(0, 5, lambda i, c: c + rlx.roll(c, 1) if hasattr(rlx, "roll") else c + c[::-1], x),
    lambda x: rlx.fori_loop(0, 5, lambda i, c: c / c.sum(), x),
    lambda x: rlx.while_loop(lambda c: (c * c).sum() > 1.0, lambda c: c * 0.5, x),
    lambda x: rlx.fori_loop(0, 5, lambda i, c: rlx.sort(c) * 0.9, x),
    lambda x: rlx.fori_loop(0, 5, lambda i, c: c[rlx.cumulative_sum(c.astype(rlx.int64) * 0)] + c, x),
    lambda x: rlx.fori_loop(0, 5, lambda i, c: c.at[i].set(c[i + 1] * 2), x),
], ids=["neighbours", "norm", "while norm", "sort", "gather", "scatter"])
def test_lanes_that_depend_on_each_other(f):
    same(f, RNG.standard_normal(100), one_kernel=False)


def test_the_kernel_holds_the_loop():
    program = rlx.jit(lambda x: rlx.fori_loop(0, 10, lambda i, c: c * 0.5 + 1,
                                              x)).lower(RNG.standard_normal(256)).lowered.program
    kernels = [s.kernel for s in program.steps if isinstance(s, L.Launch)]
    assert any("in the kernel" in k.notes for k in kernels)
