"""Convolution (correlation, as networks use the word) of pictures, channels first."""

from __future__ import annotations

from typing import Any

import numpy as np

import rlx
from rlx.array.array import Array
from rlx.array.define import op_named
from rlx.core.errors import ShapeError, ValueIssue
from rlx.ir.op import Sample
from rlx.ops.linear import dot
from rlx.ops.movement import pad_with, windows

Pair = tuple[int, int]


@op_named("nn.conv2d")
def conv(x: Array, weight: Array, /, *, stride: Pair = (1, 1), padding: tuple[Pair, Pair] = ((0, 0), (0, 0)),
         dilation: Pair = (1, 1), groups: int = 1) -> Array:
    """``out[n, o, i, j] = sum_{c, k, l} x[n, c, i s + k d - p, j s + l d - p] weight[o, c, k, l]``.

    Shapes: x (N, C, H, W), weight (O, C / groups, K, L), result (N, O, H', W').
    """
    columns, (n, h, w) = _columns(x, weight.shape, stride, padding, dilation, groups)
    o = weight.shape[0]
    out = _products(rlx.reshape(weight, (groups, o // groups, -1)), columns, 1)
    return rlx.permute_dims(rlx.reshape(out, (o, n, h, w)), (1, 0, 2, 3))


def _columns(x: Array, filters: tuple[int, ...], stride: Pair, padding: tuple[Pair, Pair], dilation: Pair,
             groups: int) -> tuple[Array, tuple[int, int, int]]:
    """What each filter sees, (G, C / G * K * L, N * H' * W'), and N, H', W'.

    Convolution is then one matrix product a group, the places of all pictures as columns: the form devices do best.
    """
    x = pad_with(x, (0, 0, padding[0][0], padding[1][0]), (0, 0, padding[0][1], padding[1][1]), 0)
    seen = windows(x, (2, 3), filters[2:], stride, dilation)  # (N, C, H', W', K, L)
    n, c, h, w, k, l = seen.shape
    columns = rlx.reshape(rlx.permute_dims(seen, (1, 4, 5, 0, 2, 3)), (groups, c // groups * k * l, n * h * w))
    return columns, (n, h, w)


def _products(a: Array, b: Array, axis: int) -> Array:
    """``a[g]`` times ``b[g]`` for each g, contracting the last axis of a with ``axis`` of b."""
    if a.shape[0] == 1:
        return dot(a[0], b[0], ((1,), (axis - 1,)))
    return dot(a, b, ((2,), (axis,)), ((0,), (0,)))


@conv.grad
def _(ct: Array, out: Array, x: Array, weight: Array, *, stride: Pair = (1, 1), padding: Any = ((0, 0), (0, 0)),
      dilation: Pair = (1, 1), groups: int = 1) -> tuple[Array, Array]:
    """The pictures' gradient is a convolution of the result's with the mirrored filters, spread out by the stride."""
    o, part, *size = weight.shape
    mirrored = rlx.reshape(rlx.flip(weight, axis=(2, 3)), (groups, o // groups, part, *size))
    mirrored = rlx.reshape(rlx.permute_dims(mirrored, (0, 2, 1, 3, 4)), (groups * part, o // groups, *size))
    spread = ct
    for a, (k, d, s, p) in enumerate(zip(size, dilation, stride, padding, strict=True)):
        spread = _dilate(spread, 2 + a, s) if s > 1 else spread
        low = (k - 1) * d - p[0]
        spread = _extend(spread, 2 + a, low, x.shape[2 + a] + (k - 1) * d - low - spread.shape[2 + a])
    gx: Array = conv(spread, mirrored, dilation=dilation, groups=groups)
    columns, _ = _columns(x, weight.shape, stride, padding, dilation, groups)
    rows = rlx.reshape(rlx.permute_dims(ct, (1, 0, 2, 3)), (groups, o // groups, -1))
    return gx, rlx.reshape(_products(rows, columns, 2), weight.shape)


def _extend(x: Array, axis: int, low: int, high: int) -> Array:
    """Zeros before and after along an axis; negative numbers cut off."""
    start, stop = max(-low, 0), x.shape[axis] - max(-high, 0)
    x = x[tuple([slice(start, stop) if i == axis else slice(None) for i in range(x.ndim)])]
    return pad_with(x, [max(low, 0) if i == axis else 0 for i in range(x.ndim)],
                    [max(high, 0) if i == axis else 0 for i in range(x.ndim)], 0)


def _dilate(x: Array, axis: int, step: int) -> Array:
    """``step - 1`` zeros between neighbours along an axis."""
    wide = rlx.expand_dims(x, axis=axis + 1)
    wide = pad_with(wide, [0] * wide.ndim, [step - 1 if i == axis + 1 else 0 for i in range(wide.ndim)], 0)
    wide = rlx.reshape(wide, (*x.shape[:axis], x.shape[axis] * step, *x.shape[axis + 1:]))
    return _extend(wide, axis, 0, 1 - step)


def conv2d(x: Array, weight: Array, bias: Array | None = None, *, stride: int | Pair = 1,
           padding: Any = 0, dilation: int | Pair = 1, groups: int = 1) -> Array:
    """The convolution of pictures with filters, plus a bias for each output channel.

    Shapes: x (N, C, H, W), weight (O, C / groups, K, L), bias (O,), result (N, O, H', W') with
    ``H' = (H + padding - dilation (K - 1) - 1) // stride + 1``. ``padding``: a number, a pair for height and width, two
    pairs (before, after), or "same" (stride 1: H' = H).

    >>> import rlx
    >>> from rlx import nn
    >>> nn.conv2d(rlx.ones((1, 1, 3, 3)), rlx.ones((1, 1, 2, 2))).tolist()
    [[[[4.0, 4.0], [4.0, 4.0]]]]
    """
    steps, holes = pair(stride, "stride"), pair(dilation, "dilation")
    _check(x, weight, bias, groups)
    margin = margins(padding, weight.shape[2:], steps, holes)
    room(x.shape[2:], weight.shape[2:], margin, holes)
    out: Array = conv(x, weight, stride=steps, padding=margin, dilation=holes, groups=groups)
    return out if bias is None else out + rlx.reshape(bias, (-1, 1, 1))


def pair(x: Any, what: str, least: int = 1) -> Pair:
    """One number for both axes, or two."""
    found = (x, x) if isinstance(x, int) else tuple(x)
    if len(found) != 2 or any(not isinstance(v, int) or v < least for v in found):
        raise ValueIssue(f"{what}={x!r}", why=f"it is one integer, or one for height and width, from {least} on",
                         do="pass a number or a pair")
    return found[0], found[1]


def margins(padding: Any, size: tuple[int, ...], stride: Pair, dilation: Pair) -> tuple[Pair, Pair]:
    """Rows and columns of zeros before and after."""
    if padding == "same":
        if stride != (1, 1):
            raise ValueIssue(f'padding="same" with stride {stride}', why="the result cannot have the size of the input",
                             do="pass numbers")
        reach = [(k - 1) * d for k, d in zip(size, dilation, strict=True)]
        return (reach[0] // 2, reach[0] - reach[0] // 2), (reach[1] // 2, reach[1] - reach[1] // 2)
    if not isinstance(padding, int) and len(padding) == 2 and not any(isinstance(p, int) for p in padding):
        return pair(padding[0], "padding", 0), pair(padding[1], "padding", 0)
    high, wide = pair(padding, "padding", 0)
    return (high, high), (wide, wide)


def room(size: tuple[int, ...], window: tuple[int, ...], margin: tuple[Pair, Pair], dilation: Pair) -> None:
    """Raise when a window does not fit the padded picture."""
    for n, k, (low, high), d in zip(size, window, margin, dilation, strict=True):
        if (k - 1) * d + 1 > n + low + high:
            raise ShapeError(f"windows {window} on pictures {size}",
                             why=f"{n + low + high} padded elements are fewer than "
                             f"the {(k - 1) * d + 1} that a window spans", do="pad more, or take a smaller window")


def _check(x: Array, weight: Array, bias: Array | None, groups: int) -> None:
    if x.ndim != 4 or weight.ndim != 4:
        raise ShapeError(f"conv2d of shapes {x.shape} and {weight.shape}",
                         why="pictures are (N, C, H, W) and filters (O, C / groups, K, L)", do="reshape them")
    if groups < 1 or x.shape[1] != weight.shape[1] * groups or weight.shape[0] % groups:
        raise ShapeError(f"conv2d of {x.shape[1]} channels with filters {weight.shape} in {groups} groups",
                         why="the filters' second axis is C / groups, and groups divide the filters",
                         do="check the channels and groups")
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ShapeError(f"a bias of shape {bias.shape} for {weight.shape[0]} filters", why="there is one for each",
                         do="pass shape (O,)")


@conv.ref
def _(x: Any, weight: Any, *, stride: Pair = (1, 1), padding: Any = ((0, 0), (0, 0)), dilation: Pair = (1, 1),
      groups: int = 1) -> Any:
    """Tap by tap."""
    x = np.pad(x, ((0, 0), (0, 0), *padding))
    (o, part, kh, kw), (n, _, h, w) = weight.shape, x.shape
    oh, ow = (h - (kh - 1) * dilation[0] - 1) // stride[0] + 1, (w - (kw - 1) * dilation[1] - 1) // stride[1] + 1
    out = np.zeros((n, o, oh, ow), x.dtype)
    for f in range(o):
        first = f // (o // groups) * part
        for c, i, j in np.ndindex(part, kh, kw):
            top, left = i * dilation[0], j * dilation[1]
            seen = x[:, first + c, top:top + oh * stride[0]:stride[0], left:left + ow * stride[1]:stride[1]]
            out[:, f] += weight[f, c, i, j] * seen[:, :oh, :ow]
    return out


@conv.samples
def _() -> list[Sample]:
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((2, 4, 6, 5)), rng.standard_normal((6, 4, 3, 2))
    return [Sample((x, w), name="plain"), Sample((x.astype(np.float32), w.astype(np.float32)), name="float32"),
            Sample((x, w), {"stride": (2, 1), "padding": ((1, 0), (2, 1))}, name="stride and padding"),
            Sample((x, w), {"dilation": (2, 2)}, name="dilation"),
            Sample((x, w[:, :2]), {"groups": 2, "padding": ((1, 1), (1, 1))}, name="groups"),
            Sample((x, w), {"padding": ((4, 3), (2, 5)), "stride": (2, 3)}, name="more padding than filter"),
            Sample((x[:, :, :3, :2], w), name="one place", edge=True)]
