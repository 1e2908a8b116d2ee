"""Optimizers against the published formulas in NumPy (float64), schedules and clipping."""

from __future__ import annotations

import numpy as np
import pytest

import rlx
from rlx import nn
from rlx.core.errors import ValueIssue

START = {"a": np.array([1.0, -2.0, 3.0]), "b": np.array([[0.5, 0.25]])}


def gradient(p, t):
    """Any smooth vector field: the same for both sides."""
    return {k: np.cos(v * (t + 1)) + v for k, v in p.items()}


def sgd(p, g, s, t, rate, momentum=0.0, nesterov=False, decay=0.0):
    g = g + decay * p
    s["v"] = momentum * s.get("v", 0) + g
    return p - rate * (g + momentum * s["v"] if nesterov else s["v"])


def adam(p, g, s, t, rate, beta1=0.9, beta2=0.999, eps=1e-8, decay=0.0, decoupled=False):
    g = g if decoupled else g + decay * p
    s["m"] = beta1 * s.get("m", 0) + (1 - beta1) * g
    s["v"] = beta2 * s.get("v", 0) + (1 - beta2) * g * g
    step = (s["m"] / (1 - beta1**t)) / (np.sqrt(s["v"] / (1 - beta2**t)) + eps)
    return p - rate * (step + (decay * p if decoupled else 0))


CASES = {
    "sgd": (nn.SGD(0.1), lambda *a: sgd(*a, 0.1)),
    "decay": (nn.SGD(0.1, weight_decay=0.3), lambda *a: sgd(*a, 0.1, decay=0.3)),
    "momentum": (nn.SGD(0.1, momentum=0.9), lambda *a: sgd(*a, 0.1, 0.9)),
    "nesterov": (nn.SGD(0.1, momentum=0.9, nesterov=True), lambda *a: sgd(*a, 0.1, 0.9, True)),
    "adam": (nn.Adam(0.01), lambda *a: adam(*a, 0.01)),
    "adam with decay": (nn.Adam(0.01, weight_decay=0.1, beta1=0.0), lambda *a: adam(*a, 0.01, 0.0, decay=0.1)),
    "adamw": (nn.AdamW(0.01), lambda *a: adam(*a, 0.01, decay=0.01, decoupled=True)),
    "schedule": (nn.SGD(lambda t: 0.1 / (1 + rlx.astype(t, rlx.float64))), lambda p, g, s, t: sgd(p, g, s, t, 0.1 / t)),
}


@pytest.mark.parametrize("name", CASES)
def test_steps(device, name):
    opt, ref = CASES[name]
    update = rlx.jit(opt.update)
    want = dict(START)
    params = rlx.tree_map(lambda x: rlx.asarray(x, device=device), dict(START))
    state, kept = opt.init(params), {k: {} for k in START}
    for t in range(6):
        g = gradient(want, t)
        want = {k: ref(want[k], g[k], kept[k], t + 1) for k in want}
        params, state = update(rlx.tree_map(lambda x: rlx.asarray(x, device=device), g), state, params)
    assert int(state.step) == 6 and update.cache_size == 1
    for k in want:
        np.testing.assert_allclose(np.asarray(params[k]), want[k], rtol=1e-12)


def test_float32_stays_float32_and_is_corrected_exactly():
    opt = nn.Adam(1e-2)
    p = rlx.ones(1, dtype=rlx.float32)
    p, state = opt.update(p * 1e-3, opt.init(p), p)
    assert p.dtype == state.moments[1].dtype == rlx.float32
    # The first step is rate * sign(g), up to eps / g.
    np.testing.assert_allclose(np.asarray(p), 1 - 1e-2 / (1 + 1e-5), rtol=1e-7)


def test_clipping():
    tree = {"a": rlx.asarray([3.0]), "b": rlx.asarray([[4.0]])}
    assert float(nn.global_norm(tree)) == 5
    assert float(nn.clip_by_norm(tree, 1.0)["b"][0, 0]) == pytest.approx(0.8, rel=1e-14)
    assert float(nn.clip_by_norm(tree, 6.0)["a"][0]) == 3
    opt = nn.SGD(1.0, clip=0.5)
    p, _ = opt.update(rlx.asarray([30.0, 40.0]), opt.init(rlx.zeros(2)), rlx.zeros(2))
    np.testing.assert_allclose(np.asarray(p), [-0.3, -0.4], rtol=1e-14)


def test_schedules():
    at = lambda s: [round(float(s(rlx.asarray(i))), 4) for i in (0, 5, 10, 15, 20, 99)]
    assert at(nn.linear(1.0, 20, warmup=10, final=0.5)) == [0, 0.5, 1, 0.75, 0.5, 0.5]
    assert at(nn.cosine(1.0, 20, final=0.2)) == [1.0, 0.8828, 0.6, 0.3172, 0.2, 0.2]
    assert at(nn.exponential(1.0, 0.5, 10)) == [1.0, 0.7071, 0.5, 0.3536, 0.25, 0.001]
    assert at(nn.constant(0.3)) == [0.3] * 6


@pytest.mark.parametrize("make", [lambda: nn.SGD(0.1, momentum=1.0), lambda: nn.Adam(0.1, beta2=1.5),
                                  lambda: nn.AdamW(0.1, beta1=-0.1), lambda: nn.cosine(1.0, 5, warmup=5),
                                  lambda: nn.exponential(1.0, 0.0, 3)])
def test_settings_without_meaning(make):
    with pytest.raises(ValueIssue):
        make()
