"""Pooling, over any number of axes."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.array.array import Array
from rlx.core import dtype as dt
from rlx.formats.onnx.operators.conv import settings
from rlx.formats.onnx.table import Call, Value, X, operator
from rlx.ops.index import gather as gather_at
from rlx.ops.index import scatter as scatter_at
from rlx.ops.movement import pad_with, windows


def _windows(c: Call, x: Array, fill: float) -> tuple[Array, tuple[int, ...], dict[str, Any]]:
    """The windows, their axes, and the settings; with ceil_mode a last window may reach past the padding."""
    window = tuple(c.attr("kernel_shape"))
    s = settings(c, x, window)
    padding = [list(p) for p in s["padding"]]
    if c.attr("ceil_mode", 0):
        for a, (n, k, step, hole) in enumerate(zip(x.shape[2:], window, s["stride"], s["dilation"], strict=True)):
            span, low, high = (k - 1) * hole + 1, *padding[a]
            count = -(-(n + low + high - span) // step) + 1
            # A window that would begin in the padding at the end is left out.
            count -= (count - 1) * step >= n + low
            padding[a][1] = max(high, (count - 1) * step + span - n - low)
    s["reach"] = tuple(map(tuple, padding))
    below, above = ([0, 0, *[p[i] for p in padding]] for i in (0, 1))
    axes = tuple(range(2, x.ndim))
    seen = windows(pad_with(x, below, above, fill), axes, window, s["stride"], s["dilation"])
    return seen, tuple(range(x.ndim, x.ndim + len(window))), s


@operator("MaxPool")
def max_pool(c: Call, x: Array) -> Value:
    low = -np.inf if x.dtype.is_float else np.iinfo(x.dtype.numpy).min
    seen, axes, s = _windows(c, x, low)
    out = seen.max(axis=axes)
    if len(c.node.outputs) < 2 or not c.node.outputs[1]:
        return out
    return out, _argmax_places(c, x, seen, axes, s)


def _argmax_places(c: Call, x: Array, seen: Array, axes: tuple[int, ...], s: dict[str, Any]) -> Array:
    """Where each largest element is in the flattened input."""
    d = len(axes)
    places = seen.shape[2:2 + d]
    tap = X.argmax(X.reshape(seen, (*seen.shape[:2 + d], -1)), axis=-1)
    strides = np.cumprod([1, *x.shape[:1:-1]])[:-1][::-1] if not c.attr("storage_order", 0) else \
        np.cumprod([1, *x.shape[2:]])[:-1]
    total: Any = 0
    for a in reversed(range(d)):
        k = c.attr("kernel_shape")[a]
        tap, offset = tap // k, tap % k
        start = X.reshape(X.arange(places[a], device=x.device), tuple([-1 if i == a else 1 for i in range(d)]))
        at = start * s["stride"][a] - s["padding"][a][0] + offset * s["dilation"][a]
        total = total + at * int(strides[a])
    size = int(np.prod(x.shape[2:]))
    picture = X.reshape(X.arange(x.shape[0] * x.shape[1], device=x.device) * size, (*x.shape[:2], *(1,) * d))
    return X.astype(total + picture, dt.int64)  # type: ignore[no-any-return]


@operator("AveragePool")
def average_pool(c: Call, x: Array) -> Value:
    """Padding counts only with count_include_pad; what ceil_mode adds never does."""
    seen, axes, s = _windows(c, x, 0.0)
    ones = X.ones(x.shape[2:], dtype=x.dtype, device=x.device)
    explicit = s["padding"] if c.attr("count_include_pad", 0) else ((0, 0),) * len(axes)
    counted = pad_with(ones, [p[0] for p in explicit], [p[1] for p in explicit], 1)
    rest = [(r[0] - e[0], r[1] - e[1]) for r, e in zip(s["reach"], explicit, strict=True)]
    counted = pad_with(counted, [max(r[0], 0) for r in rest], [max(r[1], 0) for r in rest], 0)
    d = len(axes)
    count = windows(counted, tuple(range(d)), c.attr("kernel_shape"), s["stride"], s["dilation"])
    return seen.sum(axis=axes) / count.sum(axis=tuple(range(d, 2 * d)))


@operator("LpPool")
def lp_pool(c: Call, x: Array) -> Value:
    p = c.attr("p", 2)
    seen, axes, _ = _windows(c, X.power(X.abs(x), p), 0.0)
    return X.power(seen.sum(axis=axes), 1 / p)


@operator("GlobalAveragePool")
def global_average(c: Call, x: Array) -> Value:
    return x.mean(axis=tuple(range(2, x.ndim)), keepdims=True)


@operator("GlobalMaxPool")
def global_max(c: Call, x: Array) -> Value:
    return x.max(axis=tuple(range(2, x.ndim)), keepdims=True)


@operator("GlobalLpPool")
def global_lp(c: Call, x: Array) -> Value:
    p = c.attr("p", 2)
    return X.power(X.power(X.abs(x), p).sum(axis=tuple(range(2, x.ndim)), keepdims=True), 1 / p)


@operator("MaxUnpool", static=(2,))
def max_unpool(c: Call, x: Array, places: Array, shape: Value | None = None) -> Value:
    """Elements back where they were, zeros elsewhere; the places are of the smallest size that has them."""
    window = c.attr("kernel_shape")
    d = len(window)
    stride, pads = c.attr("strides", (1,) * d), c.attr("pads", (0,) * (2 * d))
    small = [(n - 1) * s - pads[i] - pads[i + d] + window[i]
             for i, (n, s) in enumerate(zip(x.shape[2:], stride, strict=True))]
    full = (*x.shape[:2], *small)
    zeros = X.zeros((int(np.prod(full)),), dtype=x.dtype, device=x.device)
    out = X.reshape(scatter_at(zeros, X.reshape(x, (-1,)), (X.reshape(places, (-1,)),), "set"), full)
    if shape is None:
        return out
    wanted = c.ints(shape, "the output's shape")
    return X.pad(out, [(0, n - m) for n, m in zip(wanted, full, strict=True)])


def _sampled(x: Array, at: list[Array], mode: str, padding: str, corners: bool, batch: Array) -> Array:
    """Elements of x (N, C, *S) at real positions (each of one shape), interpolated axis by axis."""
    taps = {"nearest": 1, "linear": 2, "cubic": 4}[mode]
    total: Any = 0
    for offsets in np.ndindex(*(taps,) * len(at)):
        weight: Any = 1.0
        index, inside = [], None
        for p, o, n in zip(at, offsets, x.shape[2:], strict=True):
            first = X.rint(p) if taps == 1 else X.floor(p) - (taps // 2 - 1)
            i = first + o
            weight = weight if taps == 1 else weight * _kernel(p - i, mode)
            if padding == "zeros":
                ok = (i >= 0) & (i <= n - 1)
                inside = ok if inside is None else inside & ok
            else:
                i = _reflected(i, n, corners) if padding == "reflection" else i
            index.append(X.astype(X.clip(i, 0, n - 1), dt.int64))
        found = gather_at(X.moveaxis(x, 1, -1), X.broadcast_to(batch, index[0].shape), *index)
        scale = weight if inside is None else weight * X.astype(inside, x.dtype)
        total = total + (found if isinstance(scale, float) else found * scale[..., None])
    return X.moveaxis(X.astype(total, x.dtype), -1, 1)  # type: ignore[no-any-return]


def _kernel(d: Array, mode: str) -> Array:
    """Weights at a distance: a triangle, or Keys' cubic with -0.75, as the standard's reference has it."""
    d = X.abs(d)
    if mode == "linear":
        return 1 - d
    near = (1.25 * d - 2.25) * d * d + 1
    far = ((-0.75 * d + 3.75) * d - 6) * d + 3
    return X.where(d <= 1, near, far)  # type: ignore[no-any-return]


def _reflected(i: Array, n: int, corners: bool) -> Array:
    """Positions mirrored at the ends: at the outer elements' centers, or at their outer edges."""
    low, high = (0.0, n - 1.0) if corners else (-0.5, n - 0.5)
    span = high - low
    if span == 0:
        return X.zeros_like(i)  # type: ignore[no-any-return]
    d = X.remainder(X.abs(i - low), 2 * span)
    return X.minimum(d, 2 * span - d) + low  # type: ignore[no-any-return]


@operator("GridSample")
def grid_sample(c: Call, x: Array, grid: Array) -> Value:
    """Elements at places given by coordinates from -1 to 1, the last axis of the picture first."""
    corners = bool(c.attr("align_corners", 0))
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(found := c.attr("mode", "linear"), found)
    at = []
    for a, n in enumerate(x.shape[2:]):
        g = grid[..., grid.shape[-1] - 1 - a]
        at.append((g + 1) / 2 * (n - 1) if corners else ((g + 1) * n - 1) / 2)
    padding = c.attr("padding_mode", "zeros")
    if padding == "border":
        at = [X.clip(p, 0, n - 1) for p, n in zip(at, x.shape[2:], strict=True)]
    elif padding == "reflection":
        at = [_reflected(p, n, corners) for p, n in zip(at, x.shape[2:], strict=True)]
    batch = X.reshape(X.arange(x.shape[0], device=x.device), (-1, *(1,) * (grid.ndim - 2)))
    return _sampled(x, at, mode, padding, corners, batch)


@operator("RoiAlign")
def roi_align(c: Call, x: Array, rois: Array, batch: Array) -> Value:
    """Each region as a picture of fixed size: the mean of samples in each of its cells."""
    height, width, ratio = c.attr("output_height", 1), c.attr("output_width", 1), c.attr("sampling_ratio", 0)
    half = 0.5 if c.attr("coordinate_transformation_mode", "half_pixel" if c.version >= 16 else "x") == "half_pixel" \
        else 0.0
    if c.attr("mode", "avg") != "avg":
        raise c.refuse("mode 'max'", "the standard's largest is of weighted corners, not of samples")
    if ratio <= 0:
        raise c.refuse("sampling_ratio 0", "how many samples there are would depend on data")
    box = rois * c.attr("spatial_scale", 1.0) - half
    at = []
    for low, high, cells in ((box[:, 1], box[:, 3], height), (box[:, 0], box[:, 2], width)):
        size = high - low if half else X.maximum(high - low, 1.0)
        steps = (np.arange(cells * ratio, dtype=np.float32) + 0.5) / (cells * ratio)
        at.append(low[:, None] + size[:, None] * X.asarray(steps, device=x.device))
    rows, columns = at[0][:, :, None], at[1][:, None, :]
    shape = (rois.shape[0], height * ratio, width * ratio)
    # Samples up to one element outside count as being on the edge; beyond, as zeros.
    h, w = x.shape[2:]
    ok = (rows >= -1) & (rows <= h) & (columns >= -1) & (columns <= w)
    where = [X.broadcast_to(X.clip(v, 0, n - 1), shape) for v, n in ((rows, h), (columns, w))]
    seen = _sampled(x, where, "linear", "border", True, X.reshape(X.astype(batch, dt.int64), (-1, 1, 1)))
    seen = X.where(X.broadcast_to(ok, shape)[:, None], seen, 0)
    cells = X.reshape(seen, (rois.shape[0], x.shape[1], height, ratio, width, ratio))
    return cells.mean(axis=(3, 5))
