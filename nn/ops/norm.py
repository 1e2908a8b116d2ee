"""Normalization over the last axis."""

from __future__ import annotations

from typing import Any

import numpy as np

import rlx
from rlx.array.array import Array
from rlx.array.define import op_named
from rlx.core.errors import ShapeError
from rlx.ir.op import Sample


@op_named("nn.layer_norm")
def layer_norm(x: Array, weight: Array, bias: Array, /, *, eps: float = 1e-5) -> Array:
    """``(x - mean(x)) / sqrt(var(x) + eps) * weight + bias`` along the last axis.

    Shapes: x (..., N), weight and bias (N,). The variance is the mean of squares (no correction).
    """
    _check("layer_norm", x, weight, bias)
    d = x - x.mean(axis=-1, keepdims=True)
    return d / rlx.sqrt((d * d).mean(axis=-1, keepdims=True) + eps) * weight + bias


@op_named("nn.rms_norm")
def rms_norm(x: Array, weight: Array, /, *, eps: float = 1e-6) -> Array:
    """``x / sqrt(mean(x^2) + eps) * weight`` along the last axis. Shapes: x (..., N), weight (N,)."""
    _check("rms_norm", x, weight)
    return x / rlx.sqrt((x * x).mean(axis=-1, keepdims=True) + eps) * weight


def _check(what: str, x: Array, *scales: Array) -> None:
    for s in scales:
        if x.ndim == 0 or s.shape != x.shape[-1:]:
            raise ShapeError(f"{what} of shape {x.shape} with a scale of shape {s.shape}",
                             why="scales are vectors over the last axis", do="pass arrays of shape (N,)")


@layer_norm.ref
def _(x: Any, weight: Any, bias: Any, *, eps: float = 1e-5) -> Any:
    wide = x.astype(np.float64)
    z = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + eps)
    return (z * weight + bias).astype(x.dtype)


@rms_norm.ref
def _(x: Any, weight: Any, *, eps: float = 1e-6) -> Any:
    wide = x.astype(np.float64)
    return (wide * (np.square(wide).mean(-1, keepdims=True) + eps) ** -0.5 * weight).astype(x.dtype)


@layer_norm.samples
def _() -> list[Sample]:
    rng = np.random.default_rng(0)
    x, w, b = rng.standard_normal((3, 2, 8)), rng.standard_normal(8), rng.standard_normal(8)
    return [Sample((x, w, b), name="batch"),
            Sample((x.astype(np.float32), w.astype(np.float32), b.astype(np.float32)), {"eps": 1e-12}, name="float32"),
            Sample((np.ones((2, 8)), w, b), name="constant rows", edge=True, grad=False)]


@rms_norm.samples
def _() -> list[Sample]:
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((3, 8)), rng.standard_normal(8)
    return [Sample((x, w), name="rows"), Sample((x.astype(np.float32), w.astype(np.float32)), name="float32"),
            Sample((np.zeros((2, 8)), w), name="zero rows", edge=True, grad=False)]
