"""Losses against SciPy and NumPy, their gradients, and the mistakes they catch."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special

import rlx
from rlx import nn
from rlx.core.errors import DTypeError, ShapeError, ValueIssue
from rlx.testing import check_grad

RNG = np.random.default_rng(0)
A, B = RNG.standard_normal((4, 5)), RNG.standard_normal((4, 5))
LABELS = np.array([0, 4, 2, 2])


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy(device, smoothing):
    target = (1 - smoothing) * np.eye(5)[LABELS] + smoothing / 5
    want = -(target * special.log_softmax(A, -1)).sum(-1)
    x, labels = rlx.asarray(A, device=device), rlx.asarray(LABELS, device=device)
    for reduction, f in (("mean", np.mean), ("sum", np.sum), ("none", np.asarray)):
        got = nn.cross_entropy(x, labels, label_smoothing=smoothing, reduction=reduction)
        np.testing.assert_allclose(np.asarray(got), f(want), rtol=1e-12)


def test_cross_entropy_of_large_logits():
    x = rlx.asarray([[1e4, 0.0], [-1e4, 0.0]])
    value, g = rlx.value_and_grad(lambda x: nn.cross_entropy(x, rlx.asarray([1, 1])))(x)
    assert float(value) == 5e3
    np.testing.assert_allclose(np.asarray(g), [[0.5, -0.5], [0, 0]], atol=1e-12)


OTHERS = {
    "mse": (nn.mse, lambda a, b: np.square(a - b)),
    "mae": (nn.mae, lambda a, b: np.abs(a - b)),
    "huber": (nn.huber, lambda a, b: special.huber(1.0, a - b)),
    "binary_cross_entropy": (lambda a, b, **k: nn.binary_cross_entropy(a, nn.sigmoid(b), **k),
                             lambda a, b: -special.expit(b) * special.log_expit(a)
                             - special.expit(-b) * special.log_expit(-a)),
}


@pytest.mark.parametrize("name", OTHERS)
def test_losses(device, name):
    f, ref = OTHERS[name]
    a, b = rlx.asarray(A, device=device), rlx.asarray(B, device=device)
    np.testing.assert_allclose(float(f(a, b)), ref(A, B).mean(), rtol=1e-12)
    np.testing.assert_allclose(np.asarray(f(a, b, reduction="none")), ref(A, B), rtol=1e-10)


@pytest.mark.parametrize("name", OTHERS)
def test_gradients(name):
    check_grad(OTHERS[name][0], A, B)


def test_gradient_of_cross_entropy_is_softmax_minus_target():
    g = rlx.grad(lambda x: nn.cross_entropy(x, rlx.asarray(LABELS)))(rlx.asarray(A))
    np.testing.assert_allclose(np.asarray(g), (special.softmax(A, -1) - np.eye(5)[LABELS]) / 4, rtol=1e-10, atol=1e-15)


def test_accuracy():
    assert float(nn.accuracy(rlx.asarray(A), rlx.asarray(A.argmax(-1)))) == 1
    assert float(nn.accuracy(rlx.asarray(A), rlx.asarray((A.argmax(-1) + [0, 1, 0, 1]) % 5))) == 0.5


@pytest.mark.parametrize(("call", "message"), [
    (lambda: nn.cross_entropy(rlx.ones((4, 5)), rlx.zeros(3, dtype=rlx.int32)), "without the last axis"),
    (lambda: nn.cross_entropy(rlx.ones((4, 5)), rlx.ones(4)), "float64 labels"),
    (lambda: nn.mse(rlx.ones((4, 1)), rlx.ones(4)), "a loss compares equal shapes"),
    (lambda: nn.mse(rlx.ones(4), rlx.ones(4), reduction="average"), "reduction='average'"),
])
def test_mistakes(call, message):
    with pytest.raises((ShapeError, DTypeError, ValueIssue), match=message):
        call()
