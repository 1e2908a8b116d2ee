"""Activations: elementwise functions of arrays, with PyTorch's names."""

from __future__ import annotations

import math
from typing import Literal

import rlx
from rlx.array.array import Array
from rlx.core.errors import ValueIssue


def relu(x: Array) -> Array:
    """``max(x, 0)``; the gradient at 0 is 0."""
    return rlx.where(x > 0, x, 0)


def leaky_relu(x: Array, slope: float = 0.01) -> Array:
    """``x`` where positive, else ``slope x``."""
    return rlx.where(x > 0, x, slope * x)


def elu(x: Array, alpha: float = 1.0) -> Array:
    """``x`` where positive, else ``alpha (exp(x) - 1)``."""
    # The branch not taken must stay finite, or its gradient is 0 * inf.
    return rlx.where(x > 0, x, alpha * rlx.expm1(rlx.where(x > 0, 0, x)))


def sigmoid(x: Array) -> Array:
    """``1 / (1 + exp(-x))``, as ``(1 + tanh(x / 2)) / 2``: no overflow."""
    return 0.5 * rlx.tanh(0.5 * x) + 0.5


def silu(x: Array) -> Array:
    """``x sigmoid(x)``."""
    return x * sigmoid(x)


def gelu(x: Array, approximate: Literal["none", "tanh"] = "none") -> Array:
    """``x (1 + erf(x / sqrt 2)) / 2``, or with "tanh" ``x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2``.

    The constant of the approximation is from Hendrycks and Gimpel, arXiv 1606.08415, section 2.
    """
    if approximate == "none":
        return 0.5 * x * (1 + rlx.erf(x * math.sqrt(0.5)))
    if approximate == "tanh":
        return 0.5 * x * (1 + rlx.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x))))
    raise ValueIssue(f"gelu with approximate={approximate!r}", why='it is exact ("none") or by "tanh"',
                     do='pass "none" or "tanh"')


def softplus(x: Array) -> Array:
    """``log(1 + exp(x))`` without overflow."""
    return rlx.logaddexp(x, rlx.zeros_like(x))


def log_softmax(x: Array, axis: int = -1) -> Array:
    """``x - log(sum(exp(x)))`` along an axis."""
    return x - rlx.logsumexp(x, axis=axis, keepdims=True)
