"""Convolutions, over any number of axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlx.array.array import Array
from rlx.core import dtype as dt
from rlx.formats.onnx.table import Call, Value, X, operator
from rlx.ops.conv import Margins, conv_transpose
from rlx.ops.conv import conv as convolve


def margins(c: Call, size: Sequence[int], window: Sequence[int], stride: Sequence[int],
            dilation: Sequence[int]) -> Margins:
    """Elements to add before and after each axis: explicit, or by one of the ways the standard names."""
    way = c.attr("auto_pad", "NOTSET")
    if way in ("NOTSET", ""):
        pads = c.attr("pads", (0,) * (2 * len(window)))
        return tuple(zip(pads[:len(window)], pads[len(window):], strict=True))
    if way == "VALID":
        return ((0, 0),) * len(window)
    out = []
    for n, k, s, d in zip(size, window, stride, dilation, strict=True):
        total = max((-(-n // s) - 1) * s + (k - 1) * d + 1 - n, 0)
        less = total // 2
        out.append((less, total - less) if way == "SAME_UPPER" else (total - less, less))
    return tuple(out)


def settings(c: Call, x: Array, window: Sequence[int]) -> dict[str, Any]:
    """Stride, padding and dilation of a node with windows."""
    d = len(window)
    stride = tuple(c.attr("strides", (1,) * d))
    dilation = tuple(c.attr("dilations", (1,) * d))
    return {"stride": stride, "dilation": dilation, "padding": margins(c, x.shape[2:], window, stride, dilation)}


def _biased(out: Array, bias: Array | None) -> Array:
    return out if bias is None else out + X.reshape(bias, (-1, *(1,) * (out.ndim - 2)))


@operator("Conv")
def conv(c: Call, x: Array, weight: Array, bias: Array | None = None) -> Value:
    return _biased(_conv(c, x, weight), bias)


def _conv(c: Call, x: Array, weight: Array) -> Array:
    groups = c.attr("group", 1)
    if x.ndim != weight.ndim or x.shape[1] != weight.shape[1] * groups or weight.shape[0] % groups:
        raise c.refuse(f"inputs of shape {x.shape} and filters {weight.shape} in {groups} groups",
                       "channels and groups do not agree", "check the model's input")
    out: Array = convolve(x, weight, groups=groups, **settings(c, x, weight.shape[2:]))
    return out


@operator("ConvTranspose")
def transposed(c: Call, x: Array, weight: Array, bias: Array | None = None) -> Value:
    """The adjoint of a convolution; the size of the result is given, or as small as can be plus output_padding."""
    d, window = x.ndim - 2, weight.shape[2:]
    stride, dilation = tuple(c.attr("strides", (1,) * d)), tuple(c.attr("dilations", (1,) * d))
    more = tuple(c.attr("output_padding", (0,) * d))
    reach = [(n - 1) * s + (k - 1) * h + 1 + m
             for n, s, k, h, m in zip(x.shape[2:], stride, window, dilation, more, strict=True)]
    way, said = c.attr("auto_pad", "NOTSET"), c.attr("output_shape")
    if way in ("SAME_UPPER", "SAME_LOWER") and said is None:
        said = [n * s for n, s in zip(x.shape[2:], stride, strict=True)]
    if said is not None:
        spare = [r - n for r, n in zip(reach, said[-d:], strict=True)]
        # What cannot be halved is cut off at the end for SAME_UPPER, at the start otherwise.
        lows = [v // 2 if way == "SAME_UPPER" else v - v // 2 for v in spare]
        padding = tuple([(low, v - low) for low, v in zip(lows, spare, strict=True)])
    else:
        padding = margins(c, x.shape[2:], window, stride, dilation)
    size = [r - low - high for r, (low, high) in zip(reach, padding, strict=True)]
    out = conv_transpose(x, weight, stride=stride, padding=padding, dilation=dilation, groups=c.attr("group", 1),
                         size=size)
    return _biased(out, bias)


@operator("ConvInteger")
def conv_integer(c: Call, x: Array, weight: Array, x_zero: Array | None = None, w_zero: Array | None = None) -> Value:
    x, weight = X.astype(x, dt.int32), X.astype(weight, dt.int32)
    if x_zero is not None:
        x = x - X.astype(x_zero, dt.int32)
    if w_zero is not None:
        zero = X.astype(w_zero, dt.int32)
        weight = weight - (X.reshape(zero, (-1, *(1,) * (weight.ndim - 1))) if zero.ndim else zero)
    return _conv(c, x, weight)


@operator("Col2Im", static=(1, 2))
def col2im(c: Call, x: Array, image: Value, block: Value) -> Value:
    """The sum of overlapping blocks: the adjoint of taking windows, which is a convolution with one-hot filters."""
    size, window = c.ints(image, "the image's shape"), c.ints(block, "the block's shape")
    d = len(size)
    stride, dilation = tuple(c.attr("strides", (1,) * d)), tuple(c.attr("dilations", (1,) * d))
    pads = c.attr("pads", (0,) * (2 * d))
    padding = tuple(zip(pads[:d], pads[d:], strict=True))
    places = [(n + low + high - (k - 1) * h - 1) // s + 1
              for n, (low, high), k, h, s in zip(size, padding, window, dilation, stride, strict=True)]
    taps = 1
    for k in window:
        taps *= k
    channels = x.shape[1] // taps
    columns = X.reshape(x, (x.shape[0] * channels, taps, *places))
    one_hot = X.reshape(X.eye(taps, dtype=x.dtype, device=x.device), (taps, 1, *window))
    out = conv_transpose(columns, one_hot, stride=stride, padding=padding, dilation=dilation, groups=1, size=size)
    return X.reshape(out, (x.shape[0], channels, *size))
