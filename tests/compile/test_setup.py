"""What depends only on captured arrays is computed once: at the first call, not in each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx

RNG = np.random.default_rng(0)
W = RNG.standard_normal((96, 64)).astype(np.float32)
B = RNG.standard_normal(64).astype(np.float32)


def notes(f: Any, *args: Any) -> list[str]:
    return [getattr(getattr(s, "kernel", None), "notes", "") for s in f.lower(*args).lowered.program.steps]


def layer() -> Any:
    w, b = rlx.asarray(W), rlx.asarray(B)
    return rlx.jit(lambda x: rlx.maximum(x @ w + b, 0), overrides={"dot": "common"})


@pytest.mark.parametrize("rows", [2, 16, 40])
def test_captured_weights_are_packed_before_the_calls(rows: int) -> None:
    x = RNG.standard_normal((rows, 96)).astype(np.float32)
    f = layer()
    want = np.maximum(x.astype(np.float64) @ W + B, 0)
    for _ in range(3):
        assert np.allclose(np.asarray(f(x)), want, rtol=1e-5, atol=1e-4)
    assert not any(n.startswith("pack") for n in notes(f, x))
    setup = f.lower(x).lowered.setup
    assert setup is not None and any(s.kernel.notes.startswith("pack") for s in setup.steps)


def test_weights_that_are_passed_are_packed_in_each_call() -> None:
    x = RNG.standard_normal((40, 96)).astype(np.float32)
    f = rlx.jit(lambda x, w: x @ w, overrides={"dot": "common"})
    assert np.allclose(np.asarray(f(x, W)), x @ W, atol=1e-4)
    assert np.allclose(np.asarray(f(x, W + 1)), x @ (W + 1), atol=1e-3)
    assert f.lower(x, W).lowered.setup is None


def test_two_functions_of_one_structure_keep_their_own_weights() -> None:
    x = RNG.standard_normal((40, 96)).astype(np.float32)
    one, two = (rlx.jit(lambda x, w=w: x @ w, static_argnames=("w",), overrides={"dot": "common"})
                for w in (rlx.asarray(W), rlx.asarray(W * 2)))
    first, second = (np.asarray(f(x)) for f in (one, two))
    assert np.array_equal(2 * first, second) and np.array_equal(np.asarray(one(x)), first)


def test_a_change_in_place_after_the_first_call_does_not_reach_what_was_captured() -> None:
    x = RNG.standard_normal((40, 96)).astype(np.float32)
    host = W.copy()
    w = rlx.asarray(host)
    kept = w
    f = rlx.jit(lambda x: x @ w, overrides={"dot": "common"})
    first = np.asarray(f(x))
    host[:] = 0
    kept[0] = 7
    assert np.array_equal(np.asarray(f(x)), first) and np.array_equal(first, np.asarray(f(x)))


def test_the_compiled_program_runs_without_the_setup_having_run() -> None:
    x = RNG.standard_normal((16, 96)).astype(np.float32)
    program = layer().lower(x)
    storages = [program.device.upload(a) for a in (x, W, B)]
    (out,) = program.run(storages)
    got = program.device.download(out, program.outputs[0].dtype, program.outputs[0].shape)
    assert np.allclose(got, np.maximum(x @ W + B, 0), rtol=1e-5, atol=1e-4)


def test_small_captured_values_are_not_spread_out() -> None:
    b = rlx.asarray(B)
    f = rlx.jit(lambda x: rlx.tanh(x) + b)
    x = np.zeros((1000, 64), np.float32)
    assert np.allclose(np.asarray(f(x)), B)
    assert [v.shape for v in f.lower(x).lowered.mir.inputs] == [(1000, 64), (64,)]


def test_what_would_grow_stays_in_the_calls() -> None:
    b = rlx.asarray(B)
    f = rlx.jit(lambda x: rlx.sort(rlx.exp(b)[:, None] * rlx.exp(b)[None, :], axis=1) @ x)
    x = RNG.standard_normal((64, 8)).astype(np.float32)
    want = np.sort(np.exp(B)[:, None] * np.exp(B)[None, :], axis=1) @ x
    assert np.allclose(np.asarray(f(x)), want, rtol=1e-4, atol=1e-3)
    setup = f.lower(x).lowered.setup
    assert setup is None or all(b.size <= 128 for b in setup.buffers if b.role == "output")


def test_captured_values_in_loops_and_gradients() -> None:
    w = rlx.asarray(W[:64] / 20)

    def f(x: Any) -> Any:
        return rlx.fori_loop(0, 3, lambda i, x: rlx.tanh(x @ w), x).sum()

    x = RNG.standard_normal((16, 64)).astype(np.float32)
    want = x.astype(np.float64)
    for _ in range(3):
        want = np.tanh(want @ (W[:64].astype(np.float64) / 20))
    g = rlx.jit(f)
    assert abs(float(g(x)) - want.sum()) < 1e-3 and abs(float(g(x)) - want.sum()) < 1e-3
    grad = rlx.jit(rlx.grad(lambda x: rlx.tanh(x @ w).sum()))
    z = np.tanh(x.astype(np.float64) @ (W[:64].astype(np.float64) / 20))
    assert np.allclose(np.asarray(grad(x)), (1 - z**2) @ (W[:64].T / 20), rtol=1e-4, atol=1e-5)
