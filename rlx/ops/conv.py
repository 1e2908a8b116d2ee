"""Convolution (correlation, as networks use the word) over any number of axes, channels first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.array.array import Array
from rlx.array.define import op_named
from rlx.ir.op import Sample
from rlx.ops.linear import dot
from rlx.ops.movement import expand_dims, flip, pad_with, permute_dims, reshape, windows

#: Elements added before and after each axis.
Margins = tuple[tuple[int, int], ...]


@op_named("nn.conv")
def conv(x: Array, weight: Array, /, *, stride: tuple[int, ...], padding: Margins, dilation: tuple[int, ...],
         groups: int = 1) -> Array:
    """``out[n, o, i] = sum_{c, k} x[n, c, i stride + k dilation - padding] weight[o, c, k]``, i and k of D axes.

    Shapes: x (N, C, *S), weight (O, C / groups, *K), result (N, O, *S'); stride, padding, dilation have an entry for
    each of the D axes of S.
    """
    columns, (n, *places) = _columns(x, weight.shape, stride, padding, dilation, groups)
    o = weight.shape[0]
    out = _products(reshape(weight, (groups, o // groups, -1)), columns, 1)
    return permute_dims(reshape(out, (o, n, *places)), (1, 0, *range(2, x.ndim)))


def _columns(x: Array, filters: tuple[int, ...], stride: tuple[int, ...], padding: Margins, dilation: tuple[int, ...],
             groups: int) -> tuple[Array, tuple[int, ...]]:
    """What each filter sees, (G, C / G * prod(K), N * prod(S')), and (N, *S').

    Convolution is then one matrix product a group, the places of all pictures as columns: the form devices do best.
    """
    x = pad_with(x, (0, 0, *[p[0] for p in padding]), (0, 0, *[p[1] for p in padding]), 0)
    d = len(stride)
    seen = windows(x, tuple(range(2, 2 + d)), filters[2:], stride, dilation)  # (N, C, *S', *K)
    n, c, *rest = seen.shape
    inner, places = 1, n
    for k, s in zip(rest[d:], rest[:d], strict=True):
        inner, places = inner * k, places * s
    seen = permute_dims(seen, (1, *range(2 + d, 2 + 2 * d), 0, *range(2, 2 + d)))
    return reshape(seen, (groups, c // groups * inner, places)), (n, *rest[:d])


def _products(a: Array, b: Array, axis: int) -> Array:
    """``a[g]`` times ``b[g]`` for each g, contracting the last axis of a with ``axis`` of b."""
    if a.shape[0] == 1:
        return dot(a[0], b[0], ((1,), (axis - 1,)))
    return dot(a, b, ((2,), (axis,)), ((0,), (0,)))


def conv_transpose(x: Array, weight: Array, *, stride: tuple[int, ...], padding: Margins, dilation: tuple[int, ...],
                   groups: int, size: Sequence[int]) -> Array:
    """The adjoint of :func:`conv`: what its gradient does to the result's, for an input of spatial ``size``.

    Shapes: x (N, O, *S'), weight (O, C / groups, *K), result (N, C, *size). It is a convolution of x, spread out by the
    stride, with the mirrored filters.
    """
    o, part, *window = weight.shape
    mirrored = flip(weight, axis=tuple(range(2, weight.ndim)))
    mirrored = reshape(mirrored, (groups, o // groups, part, *window))
    mirrored = reshape(permute_dims(mirrored, (0, 2, 1, *range(3, 3 + len(window)))),
                       (groups * part, o // groups, *window))
    for a, (k, d, s, p) in enumerate(zip(window, dilation, stride, padding, strict=True)):
        x = _dilate(x, 2 + a, s) if s > 1 else x
        low = (k - 1) * d - p[0]
        x = _extend(x, 2 + a, low, size[a] + (k - 1) * d - low - x.shape[2 + a])
    out: Array = conv(x, mirrored, stride=(1,) * len(window), padding=((0, 0),) * len(window), dilation=dilation,
                      groups=groups)
    return out


@conv.grad
def _(ct: Array, out: Array, x: Array, weight: Array, *, stride: tuple[int, ...], padding: Any,
      dilation: tuple[int, ...], groups: int = 1) -> tuple[Array, Array]:
    gx = conv_transpose(ct, weight, stride=stride, padding=padding, dilation=dilation, groups=groups, size=x.shape[2:])
    columns, _ = _columns(x, weight.shape, stride, padding, dilation, groups)
    rows = reshape(permute_dims(ct, (1, 0, *range(2, ct.ndim))), (groups, weight.shape[0] // groups, -1))
    return gx, reshape(_products(rows, columns, 2), weight.shape)


def _extend(x: Array, axis: int, low: int, high: int) -> Array:
    """Zeros before and after along an axis; negative numbers cut off."""
    start, stop = max(-low, 0), x.shape[axis] - max(-high, 0)
    x = x[tuple([slice(start, stop) if i == axis else slice(None) for i in range(x.ndim)])]
    return pad_with(x, [max(low, 0) if i == axis else 0 for i in range(x.ndim)],
                    [max(high, 0) if i == axis else 0 for i in range(x.ndim)], 0)


def _dilate(x: Array, axis: int, step: int) -> Array:
    """``step - 1`` zeros between neighbours along an axis."""
    wide = expand_dims(x, axis=axis + 1)
    wide = pad_with(wide, [0] * wide.ndim, [step - 1 if i == axis + 1 else 0 for i in range(wide.ndim)], 0)
    wide = reshape(wide, (*x.shape[:axis], x.shape[axis] * step, *x.shape[axis + 1:]))
    return _extend(wide, axis, 0, 1 - step)


@conv.ref
def _(x: Any, weight: Any, *, stride: Any, padding: Any, dilation: Any, groups: int = 1) -> Any:
    """Tap by tap."""
    x = np.pad(x, ((0, 0), (0, 0), *padding))
    (o, part, *window), n = weight.shape, x.shape[0]
    size = [(m - (k - 1) * d - 1) // s + 1 for m, k, s, d in zip(x.shape[2:], window, stride, dilation, strict=True)]
    out = np.zeros((n, o, *size), x.dtype)
    for f in range(o):
        first = f // (o // groups) * part
        for c, *tap in np.ndindex(part, *window):
            at = [slice(t * d, t * d + (m - 1) * s + 1, s)
                  for t, d, m, s in zip(tap, dilation, size, stride, strict=True)]
            out[:, f] += weight[(f, c, *tap)].reshape(()) * x[(slice(None), first + c, *at)]
    return out


@conv.samples
def _() -> list[Sample]:
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((2, 4, 6, 5)), rng.standard_normal((6, 4, 3, 2))

    def sample(name: str, x: Any, w: Any, *, edge: bool = False, **settings: Any) -> Sample:
        d = x.ndim - 2
        usual = {"stride": (1,) * d, "padding": ((0, 0),) * d, "dilation": (1,) * d}
        return Sample((x, w), usual | settings, name=name, edge=edge)
    return [sample("plain", x, w), sample("float32", x.astype(np.float32), w.astype(np.float32)),
            sample("stride and padding", x, w, stride=(2, 1), padding=((1, 0), (2, 1))),
            sample("dilation", x, w, dilation=(2, 2)),
            sample("groups", x, w[:, :2], groups=2, padding=((1, 1), (1, 1))),
            sample("more padding than filter", x, w, padding=((4, 3), (2, 5)), stride=(2, 3)),
            sample("one axis", x[..., 0], w[..., 0], stride=(2,)),
            sample("three axes", x[..., None], w[..., None], padding=((0, 0), (1, 0), (0, 0))),
            sample("one place", x[:, :, :3, :2], w, edge=True)]
