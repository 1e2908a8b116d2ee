"""Loops on the device: the same numbers as step by step and as NumPy, one compilation, and models that learn."""

from __future__ import annotations

import numpy as np
import pytest

import rlx
from rlx import nn
from rlx.core.errors import ShapeError, ValueIssue


def loss(model, x, y):
    return nn.cross_entropy(model(x), y)


def mlp(device="cpu", dtype=None):
    rng = np.random.default_rng(0)
    make = lambda a, b: nn.Linear.create(a, b, rng=rng, dtype=dtype, device=device)
    return nn.Sequential.of(make(6, 8), nn.relu, make(8, 3))


def points(n=24, device="cpu", dtype=np.float32):
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((n, 6)).astype(dtype), rng.integers(0, 3, n).astype(np.int32)
    x[np.arange(n), y] += 2
    return rlx.asarray(x, device=device), rlx.asarray(y, device=device)


def by_hand(model, x, y, order, rate):
    """The same training in NumPy, float64: final weights and losses."""
    w1, b1, w2, b2 = (np.array(v) for v in nn.named(model).values())
    losses = []
    for rows in order:
        xb, yb = x[rows], y[rows]
        pre = xb @ w1.T + b1
        h = np.maximum(pre, 0)
        z = h @ w2.T + b2
        p = np.exp(z - z.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        losses.append(-np.log(p[np.arange(len(yb)), yb]).mean())
        p[np.arange(len(yb)), yb] -= 1
        p /= len(yb)
        dh = (p @ w2) * (pre > 0)
        w2, b2, w1, b1 = w2 - rate * p.T @ h, b2 - rate * p.sum(0), w1 - rate * dh.T @ xb, b1 - rate * dh.sum(0)
    return (w1, b1, w2, b2), losses


def test_training_is_the_one_done_by_hand(device):
    model, data = mlp(device, rlx.float64), points(device=device, dtype=np.float64)
    order = nn.batches(24, 5, rng=3, epochs=2)
    weights, want = by_hand(model, *(np.asarray(d) for d in data), order, 0.2)
    opt = nn.SGD(0.2)
    state, losses = nn.trainer(loss, opt)(nn.start(model, opt), data, rlx.asarray(order, device=device))
    np.testing.assert_allclose(np.asarray(losses), want, rtol=1e-10)
    for got, w in zip(nn.named(state.model).values(), weights, strict=True):
        np.testing.assert_allclose(np.asarray(got), w, rtol=1e-9, atol=1e-12)


def test_the_loop_takes_the_same_steps_as_a_loop_in_python():
    opt = nn.AdamW(0.05, clip=1.0)
    data, order = points(), nn.batches(24, 8, rng=0)
    run, step = nn.trainer(loss, opt), rlx.jit(nn.step_of(loss, opt))
    state, losses = run(nn.start(mlp(), opt), data, rlx.asarray(order))
    other, seen = nn.start(mlp(), opt), []
    for rows in order:
        other, value = step(other, *[d[rlx.asarray(rows)] for d in data])
        seen.append(float(value))
    np.testing.assert_allclose(np.asarray(losses), seen, rtol=1e-5)
    for a, b in zip(nn.named(state.model).values(), nn.named(other.model).values(), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-4, atol=1e-6)


def test_further_epochs_do_not_compile_and_learn():
    opt = nn.Adam(0.02)
    run, state, data = nn.trainer(loss, opt), nn.start(mlp(), opt), points(60)
    first = None
    for epoch in range(4):
        state, losses = run(state, data, nn.batches(60, 20, rng=epoch, epochs=20))
        first = first if first is not None else float(losses[0])
    assert run.cache_size == 1 and int(state.optimizer.step) == 240
    assert float(losses[-10:].mean()) < 0.25 * first
    assert float(nn.accuracy(state.model(data[0]), data[1])) > 0.9


def test_every_step_gets_its_own_key():
    def draws(model, x, *, key):
        return (model * 0).sum() + rlx.random.uniform(key, (1,), dtype=rlx.float32)[0]
    opt = nn.SGD(0.1)
    run = nn.trainer(draws, opt)
    state = nn.start(rlx.ones(2, dtype=rlx.float32), opt)
    order = nn.batches(6, 1)
    _, a = run(state, (rlx.ones(6),), order, rlx.random.key(0))
    assert len(set(a.tolist())) == 6
    assert a.tolist() != run(state, (rlx.ones(6),), order, rlx.random.key(1))[1].tolist()


def test_a_convolutional_network_learns_where_a_dot_is():
    rng = np.random.default_rng(0)
    y = np.arange(64, dtype=np.int32) % 4
    x = rng.standard_normal((64, 1, 8, 8)).astype(np.float32) * 0.1
    for i, c in enumerate(y):
        x[i, 0, 1 + 4 * (c // 2):3 + 4 * (c // 2), 1 + 4 * (c % 2):3 + 4 * (c % 2)] += 1
    model = nn.Sequential.of(nn.Conv2d.create(1, 4, 3, rng=rng, padding=1), nn.relu, nn.MaxPool2d(2), nn.Flatten(),
                             nn.Linear.create(64, 4, rng=rng))
    opt = nn.Adam(0.01)
    state, losses = nn.trainer(loss, opt)(nn.start(model, opt), (rlx.asarray(x), rlx.asarray(y)),
                                          nn.batches(64, 16, rng=0, epochs=15))
    assert float(losses[-1]) < 0.1
    assert float(nn.accuracy(state.model(rlx.asarray(x)), rlx.asarray(y))) == 1


def test_batches_are_permutations_of_each_epoch():
    rows = nn.batches(10, 3, rng=0, epochs=2)
    assert rows.shape == (6, 3) and rows.dtype == np.int32
    for epoch in rows.reshape(2, 9):
        assert len(set(epoch)) == 9 and set(epoch) <= set(range(10))
    assert (rows[:3] != rows[3:]).any()
    with pytest.raises(ValueIssue, match="batches of 11 from 10 rows"):
        nn.batches(10, 11)


def test_data_of_different_lengths_are_refused():
    opt = nn.SGD(0.1)
    x, y = points()
    with pytest.raises(ShapeError, match="one leading size"):
        nn.trainer(loss, opt)(nn.start(mlp(), opt), (x, y[:-1]), nn.batches(23, 4))
