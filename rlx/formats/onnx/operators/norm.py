"""Normalizations."""

from __future__ import annotations

from typing import Any

from rlx.array.array import Array
from rlx.core import dtype as dt
from rlx.formats.onnx.table import Call, Value, X, operator


def _channels(v: Array, x: Array) -> Array:
    """A vector along the second axis."""
    out: Array = X.reshape(v, (-1, *(1,) * (x.ndim - 2)))
    return out


@operator("BatchNormalization")
def batch_norm(c: Call, x: Array, scale: Array, bias: Array, mean: Array, var: Array) -> Value:
    """By the statistics given; in training mode by the batch's, and the running statistics are outputs."""
    if not c.attr("training_mode", 0):
        return _scaled(x, mean, var, scale, bias, c.attr("epsilon", 1e-5))
    axes = (0, *range(2, x.ndim))
    keep = c.attr("momentum", 0.9)
    now = x.mean(axis=axes)
    spread = X.square(x - _channels(now, x)).mean(axis=axes)
    return (_scaled(x, now, spread, scale, bias, c.attr("epsilon", 1e-5)), mean * keep + now * (1 - keep),
            var * keep + spread * (1 - keep))


def _scaled(x: Array, mean: Array, var: Array, scale: Array, bias: Array, eps: float) -> Array:
    factor = X.astype(scale, var.dtype) / X.sqrt(var + eps)
    return X.astype((x - _channels(mean, x)) * _channels(factor, x) + _channels(bias, x), x.dtype)  # type: ignore[no-any-return]


def _normal(x: Array, axes: tuple[int, ...], eps: float) -> Array:
    d = x - x.mean(axis=axes, keepdims=True)
    return d / X.sqrt((d * d).mean(axis=axes, keepdims=True) + eps)  # type: ignore[no-any-return]


@operator("InstanceNormalization")
def instance_norm(c: Call, x: Array, scale: Array, bias: Array) -> Value:
    out = _normal(x, tuple(range(2, x.ndim)), c.attr("epsilon", 1e-5))
    return out * _channels(scale, x) + _channels(bias, x)


@operator("GroupNormalization")
def group_norm(c: Call, x: Array, scale: Array, bias: Array) -> Value:
    """Scale and bias are of groups before version 21, of channels from then on."""
    n, channels, groups = x.shape[0], x.shape[1], c.attr("num_groups")
    rows = X.reshape(X.astype(x, dt.float32) if x.dtype.bits < 32 else x, (n, groups, -1))
    out = X.reshape(X.astype(_normal(rows, (2,), c.attr("epsilon", 1e-5)), x.dtype), x.shape)
    if scale.shape[0] != channels:
        scale, bias = (X.repeat(v, channels // groups) for v in (scale, bias))
    return out * _channels(scale, x) + _channels(bias, x)


@operator("LayerNormalization")
def layer_norm(c: Call, x: Array, scale: Array, bias: Array | None = None) -> Value:
    """Also gives the mean and the reciprocal of the deviation."""
    axes = tuple(range(c.axis(c.attr("axis", -1), x.ndim), x.ndim))
    wide = X.astype(x, dt.float32) if x.dtype.bits < 32 else x
    mean = wide.mean(axis=axes, keepdims=True)
    d = wide - mean
    inverse = 1 / X.sqrt((d * d).mean(axis=axes, keepdims=True) + c.attr("epsilon", 1e-5))
    out = X.astype(d * inverse, x.dtype) * scale
    return (out if bias is None else out + bias), mean, inverse


@operator("LpNormalization")
def lp_norm(c: Call, x: Array) -> Value:
    axis = c.axis(c.attr("axis", -1), x.ndim)
    if c.attr("p", 2) == 1:
        size = X.abs(x).sum(axis=axis, keepdims=True)
    else:
        size = X.sqrt((x * x).sum(axis=axis, keepdims=True))
    return X.where(size == 0, 0, x / X.where(size == 0, 1, size))


@operator("LRN")
def local_response(c: Call, x: Array) -> Value:
    size: int = c.attr("size")
    low, high = (size - 1) // 2, size // 2
    width: list[Any] = [(low, high) if i == 1 else (0, 0) for i in range(x.ndim)]
    padded, total = X.pad(x * x, width), 0
    for k in range(size):
        total = total + padded[:, k:k + x.shape[1]]
    scale = c.attr("bias", 1.0) + c.attr("alpha", 1e-4) / size * total
    return x / X.power(scale, c.attr("beta", 0.75))


@operator("MeanVarianceNormalization")
def mean_variance(c: Call, x: Array) -> Value:
    axes = tuple(c.attr("axes", (0, 2, 3)))
    d = x - x.mean(axis=axes, keepdims=True)
    # The standard adds this to the deviation, not to the variance.
    return d / (X.sqrt((d * d).mean(axis=axes, keepdims=True)) + 1e-9)
