"""Pooling: the largest or the mean element of sliding windows."""

from __future__ import annotations

from typing import Any

import numpy as np

import rlx
from rlx.array.array import Array
from rlx.array.define import op_named
from rlx.core.errors import ShapeError
from rlx.ir.op import Sample
from rlx.nn.ops.conv import Pair, margins, pair, room
from rlx.ops.movement import pad_with, windows


@op_named("nn.max_pool2d")
def _max_pool(x: Array, /, *, size: Pair, stride: Pair, padding: tuple[Pair, Pair] = ((0, 0), (0, 0))) -> Array:
    """The largest element of each window; padding never wins. Equal largest elements share the gradient."""
    seen, axes = _seen(x, size, stride, padding, -float("inf"))
    return seen.max(axis=axes)


@op_named("nn.avg_pool2d")
def _avg_pool(x: Array, /, *, size: Pair, stride: Pair, padding: tuple[Pair, Pair] = ((0, 0), (0, 0))) -> Array:
    """The sum of each window divided by its size; padding counts as zeros."""
    seen, axes = _seen(x, size, stride, padding, 0.0)
    return seen.sum(axis=axes) / (size[0] * size[1])


def _seen(x: Array, size: Pair, stride: Pair, padding: tuple[Pair, Pair], fill: float) -> tuple[Array, Pair]:
    """The windows, and the axes their elements lie along."""
    x = pad_with(x, (0, 0, padding[0][0], padding[1][0]), (0, 0, padding[0][1], padding[1][1]), fill)
    if size != stride:
        return windows(x, (2, 3), size, stride, (1, 1)), (4, 5)
    # Windows that do not overlap are a reshape, whose gradient is one too.
    h, w = x.shape[2] // size[0], x.shape[3] // size[1]
    whole = x[:, :, :h * size[0], :w * size[1]]
    return rlx.reshape(whole, (*x.shape[:2], h, size[0], w, size[1])), (3, 5)


def max_pool2d(x: Array, size: int | Pair, *, stride: int | Pair | None = None, padding: Any = 0) -> Array:
    """The largest element of each window. Shapes: x (N, C, H, W); the stride is the window's size unless given.

    >>> import rlx
    >>> from rlx import nn
    >>> nn.max_pool2d(rlx.reshape(rlx.arange(16.0), (1, 1, 4, 4)), 2).tolist()
    [[[[5.0, 7.0], [13.0, 15.0]]]]
    """
    out: Array = _max_pool(x, **_settings("max_pool2d", x, size, stride, padding))
    return out


def avg_pool2d(x: Array, size: int | Pair, *, stride: int | Pair | None = None, padding: Any = 0) -> Array:
    """The mean of each window, padding counted as zeros. Shapes and stride as in :func:`max_pool2d`."""
    out: Array = _avg_pool(x, **_settings("avg_pool2d", x, size, stride, padding))
    return out


def _settings(what: str, x: Array, size: int | Pair, stride: int | Pair | None, padding: Any) -> dict[str, Any]:
    if x.ndim != 4:
        raise ShapeError(f"{what} of shape {x.shape}", why="pictures are (N, C, H, W)", do="reshape it")
    window = pair(size, "size")
    margin = margins(padding, window, (1, 1), (1, 1))
    room(x.shape[2:], window, margin, (1, 1))
    for k, m in zip(window, margin, strict=True):
        if max(m) >= k:
            raise ShapeError(f"{what} with padding {margin} and windows {window}",
                             why="a window would see padding only", do="pad less than the window's size")
    return {"size": window, "stride": window if stride is None else pair(stride, "stride"), "padding": margin}


def _ref(x: Any, size: Pair, stride: Pair, padding: Any, fill: float, f: Any) -> Any:
    x = np.pad(x, ((0, 0), (0, 0), *padding), constant_values=fill)
    h, w = ((n - k) // s + 1 for n, k, s in zip(x.shape[2:], size, stride, strict=True))
    out = np.zeros((*x.shape[:2], h, w), x.dtype)
    for i, j in np.ndindex(h, w):
        top, left = i * stride[0], j * stride[1]
        out[:, :, i, j] = f(x[:, :, top:top + size[0], left:left + size[1]], axis=(2, 3))
    return out


@_max_pool.ref
def _(x: Any, *, size: Pair, stride: Pair, padding: Any = ((0, 0), (0, 0))) -> Any:
    return _ref(x, size, stride, padding, -np.inf, np.max)


@_avg_pool.ref
def _(x: Any, *, size: Pair, stride: Pair, padding: Any = ((0, 0), (0, 0))) -> Any:
    return _ref(x, size, stride, padding, 0.0, np.mean)


def _samples() -> list[Sample]:
    x = np.random.default_rng(0).standard_normal((2, 3, 6, 5))
    return [Sample((x,), {"size": (2, 2), "stride": (2, 2)}, name="halves"),
            Sample((x.astype(np.float32),), {"size": (3, 2), "stride": (1, 2)}, name="overlapping"),
            Sample((x,), {"size": (3, 3), "stride": (2, 2), "padding": ((1, 1), (1, 0))}, name="padding"),
            Sample((x,), {"size": (6, 5), "stride": (1, 1)}, name="all of it", edge=True)]


_max_pool.samples(_samples)
_avg_pool.samples(_samples)
