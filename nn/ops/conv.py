"""Convolution of pictures, channels first."""

from __future__ import annotations

from typing import Any

import rlx
from rlx.array.array import Array
from rlx.core.errors import ShapeError, ValueIssue
from rlx.ops.conv import conv

Pair = tuple[int, int]


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

