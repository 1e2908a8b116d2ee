"""Layers: linear maps, embeddings, normalization, dropout, convolution, pooling, attention.

``create`` draws initial weights (``rng``: a NumPy generator, or a seed); the plain constructor takes arrays. Shapes and
initial distributions are PyTorch's, so that weights move between the two unchanged.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

import rlx
from rlx.array.array import Array
from rlx.array.build import as_array
from rlx.core.errors import DTypeError, ShapeError, ValueIssue
from rlx.nn.initial import initial
from rlx.nn.module import Module, static
from rlx.nn.ops import attention, avg_pool2d, conv2d, layer_norm, max_pool2d, rms_norm
from rlx.nn.ops.conv import Pair, pair
from rlx.ops.index import gather
from rlx.ops.linear import dot
from rlx.random import uniform

Rng = np.random.Generator | int


def _generator(rng: Rng) -> np.random.Generator:
    return rng if isinstance(rng, np.random.Generator) else np.random.default_rng(rng)


@dataclass(frozen=True)
class Linear(Module):
    """``x weight^T + bias``. Shapes: x (..., I), weight (O, I), bias (O,) or None, result (..., O)."""

    weight: Array
    bias: Array | None

    @classmethod
    def create(cls, inputs: int, outputs: int, *, rng: Rng, bias: bool = True, dtype: Any = None,
               device: str | None = None) -> Linear:
        """Weights and bias uniform within ``1 / sqrt(inputs)``."""
        if inputs < 1 or outputs < 1:
            raise ValueIssue(f"Linear with {inputs} inputs and {outputs} outputs", why="there is nothing to map",
                             do="pass sizes of at least 1")
        rng, bound = _generator(rng), 1 / math.sqrt(inputs)
        weight = initial(rng, (outputs, inputs), bound, dtype=dtype, device=device)
        return cls(weight, initial(rng, (outputs,), bound, dtype=dtype, device=device) if bias else None)

    def __call__(self, x: Array, *, key: Array | None = None) -> Array:
        """The affine map of the last axis."""
        x = as_array(x)
        if x.ndim == 0 or x.shape[-1] != self.weight.shape[1]:
            raise ShapeError(f"Linear of {self.weight.shape[1]} inputs on an array of shape {x.shape}",
                             why="the last axis is mapped", do="check the sizes of the layers")
        out = dot(x, self.weight, ((x.ndim - 1,), (1,)))
        return out if self.bias is None else out + self.bias


@dataclass(frozen=True)
class Embedding(Module):
    """Row ``weight[i]`` for each integer i. Shapes: x (...), weight (V, D), result (..., D).

    Indices outside 0 to V - 1 are clamped: check them where they come from.
    """

    weight: Array

    @classmethod
    def create(cls, count: int, size: int, *, rng: Rng, dtype: Any = None, device: str | None = None) -> Embedding:
        """Standard normal rows."""
        return cls(initial(rng, (count, size), 1.0, normal=True, dtype=dtype, device=device))

    def __call__(self, x: Array, *, key: Array | None = None) -> Array:
        """The rows."""
        x = as_array(x)
        if not x.dtype.is_integer:
            raise DTypeError(f"Embedding of {x.dtype.name} numbers", why="rows are chosen by integers",
                             do="cast them to int32")
        low = rlx.where(x < 0, 0, x) if x.dtype.kind == "i" else x
        return gather(self.weight, low)


@dataclass(frozen=True)
class LayerNorm(Module):
    """Mean 0 and variance 1 along the last axis, then scaled and shifted. Shapes: weight and bias (N,)."""

    weight: Array
    bias: Array
    eps: float = static(default=1e-5)

    @classmethod
    def create(cls, size: int, *, eps: float = 1e-5, dtype: Any = None, device: str | None = None) -> LayerNorm:
        """Scale 1, shift 0."""
        kind = dtype if dtype is not None else rlx.float32
        return cls(rlx.ones(size, dtype=kind, device=device), rlx.zeros(size, dtype=kind, device=device), eps)

    def __call__(self, x: Array, *, key: Array | None = None) -> Array:
        """The normalized rows."""
        out: Array = layer_norm(x, self.weight, self.bias, eps=self.eps)
        return out


@dataclass(frozen=True)
class RMSNorm(Module):
    """Root mean square 1 along the last axis, then scaled. Shape: weight (N,)."""

    weight: Array
    eps: float = static(default=1e-6)

    @classmethod
    def create(cls, size: int, *, eps: float = 1e-6, dtype: Any = None, device: str | None = None) -> RMSNorm:
        """Scale 1."""
        return cls(rlx.ones(size, dtype=dtype if dtype is not None else rlx.float32, device=device), eps)

    def __call__(self, x: Array, *, key: Array | None = None) -> Array:
        """The normalized rows."""
        out: Array = rms_norm(x, self.weight, eps=self.eps)
        return out


@dataclass(frozen=True)
class Dropout(Module):
    """With a key, each element is 0 with probability ``rate``, and the others are divided by ``1 - rate``."""

    rate: float = static()

    def __post_init__(self) -> None:
        if not 0 <= self.rate < 1:
            raise ValueIssue(f"Dropout of rate {self.rate}", why="it is a probability below 1", do="pass 0 to 0.99")

    def __call__(self, x: Array, *, key: Array | None = None) -> Array:
        """``x`` itself without a key."""
        if key is None or self.rate == 0:
            return x
        return rlx.where(uniform(key, x.shape, dtype=rlx.float32) >= self.rate, x / (1 - self.rate), 0)


@dataclass(frozen=True)
class Flatten(Module):
    """All axes but the first as one."""

    def __call__(self, x: Array, *, key: Array | None = None) -> Array:
        """Shape (N, everything else)."""
        x = as_array(x)
        return rlx.reshape(x, (x.shape[0], -1))


@dataclass(frozen=True)
class Conv2d(Module):
    """Convolution of pictures: see :func:`rlx.nn.conv2d`. Shapes: weight (O, C / groups, K, L), bias (O,) or None."""

    weight: Array
    bias: Array | None
    stride: Pair = static(default=(1, 1))
    padding: Any = static(default=0)
    dilation: Pair = static(default=(1, 1))
    groups: int = static(default=1)

    @classmethod
    def create(cls, inputs: int, outputs: int, size: int | Pair, *, rng: Rng, stride: int | Pair = 1,
               padding: Any = 0, dilation: int | Pair = 1, groups: int = 1, bias: bool = True, dtype: Any = None,
               device: str | None = None) -> Conv2d:
        """Weights and bias uniform within ``1 / sqrt(C / groups K L)``."""
        rng, window = _generator(rng), pair(size, "size")
        if groups < 1 or inputs % groups or outputs % groups:
            raise ShapeError(f"Conv2d of {inputs} to {outputs} channels in {groups} groups",
                             why="groups divide both", do="pass another number of groups")
        bound = 1 / math.sqrt(inputs // groups * window[0] * window[1])
        weight = initial(rng, (outputs, inputs // groups, *window), bound, dtype=dtype, device=device)
        shift = initial(rng, (outputs,), bound, dtype=dtype, device=device) if bias else None
        return cls(weight, shift, pair(stride, "stride"), padding, pair(dilation, "dilation"), groups)

    def __call__(self, x: Array, *, key: Array | None = None) -> Array:
        """Shape (N, O, H', W')."""
        return conv2d(x, self.weight, self.bias, stride=self.stride, padding=self.padding, dilation=self.dilation,
                      groups=self.groups)


@dataclass(frozen=True)
class MaxPool2d(Module):
    """The largest element of windows: see :func:`rlx.nn.max_pool2d`."""

    size: int | Pair = static()
    stride: int | Pair | None = static(default=None)
    padding: Any = static(default=0)

    def __call__(self, x: Array, *, key: Array | None = None) -> Array:
        """Shape (N, C, H', W')."""
        return max_pool2d(x, self.size, stride=self.stride, padding=self.padding)


@dataclass(frozen=True)
class AvgPool2d(Module):
    """The mean of windows: see :func:`rlx.nn.avg_pool2d`."""

    size: int | Pair = static()
    stride: int | Pair | None = static(default=None)
    padding: Any = static(default=0)

    def __call__(self, x: Array, *, key: Array | None = None) -> Array:
        """Shape (N, C, H', W')."""
        return avg_pool2d(x, self.size, stride=self.stride, padding=self.padding)


@dataclass(frozen=True)
class Attention(Module):
    """Multi-head self attention: project, attend in each head, project back. Shapes: x and result (N, S, D)."""

    query: Linear
    key: Linear
    value: Linear
    out: Linear
    heads: int = static()
    causal: bool = static(default=False)

    @classmethod
    def create(cls, size: int, heads: int, *, rng: Rng, bias: bool = True, causal: bool = False, dtype: Any = None,
               device: str | None = None) -> Attention:
        """Heads of ``size / heads`` each."""
        if heads < 1 or size % heads:
            raise ShapeError(f"Attention of size {size} in {heads} heads", why="heads divide the size",
                             do="pass another number of heads")
        rng = _generator(rng)
        parts = [Linear.create(size, size, rng=rng, bias=bias, dtype=dtype, device=device) for _ in range(4)]
        query, key, value, out = parts
        return cls(query, key, value, out, heads, causal)

    def __call__(self, x: Array, *, mask: Array | None = None, key: Array | None = None) -> Array:
        """``mask``: (N, S) boolean, true at the tokens that may be looked at."""
        n, s, _ = x.shape

        def split(y: Array) -> Array:
            return rlx.permute_dims(rlx.reshape(y, (n, s, self.heads, -1)), (0, 2, 1, 3))

        look = None if mask is None else rlx.reshape(mask, (n, 1, 1, s))
        heads = [split(layer(x)) for layer in (self.query, self.key, self.value)]
        seen = attention(*heads, look, causal=self.causal)
        return self.out(rlx.reshape(rlx.permute_dims(seen, (0, 2, 1, 3)), (n, s, -1)))
