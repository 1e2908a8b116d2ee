"""Resizing: along each axis a product with a matrix that is known while tracing, or a choice of elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.array.array import Array
from rlx.formats.onnx.table import Call, Value, X, operator


@operator("Upsample", static=(1,))
def upsample(c: Call, x: Array, scales: Value | None = None) -> Value:
    """Positions are those of version 10 of Resize: ``place / scale``."""
    found = c.attr("scales") if scales is None else c.static(scales, "the scales")
    factors = [float(s) for s in np.reshape(found, -1)]
    for a, s in enumerate(factors):
        n = int(np.floor(x.shape[a] * s))
        if s != 1:
            at = np.arange(n) / s
            x = _along(x, a, _linear(at, x.shape[a]) if c.attr("mode", "nearest") == "linear" else np.floor(at))
    return x


@operator("Resize", static=(1, 2, 3))
def resize(c: Call, x: Array, roi: Value | None = None, scales: Value | None = None,
           sizes: Value | None = None) -> Value:
    if c.version < 11:
        return upsample(c, x, roi)
    axes = c.axes(None, x.ndim, tuple(range(x.ndim))) or ()
    old = [x.shape[a] for a in axes]
    factors, new = _targets(c, old, scales, sizes)
    corners = np.zeros(0) if roi is None else c.static(roi, "the region").reshape(-1)
    for i, a in enumerate(axes):
        region = (corners[i], corners[i + len(axes)]) if corners.size else (0.0, 1.0)
        if new[i] == old[i] and factors[i] == 1 and c.attr("coordinate_transformation_mode") != "tf_crop_and_resize":
            continue
        x = _axis(c, x, a, new[i], factors[i], region)
    return x


def _targets(c: Call, old: Sequence[int], scales: Value | None, sizes: Value | None) -> tuple[list[float], list[int]]:
    """The factor and the new size of each axis."""
    if scales is not None and np.size(scales):
        factors = [float(s) for s in c.static(scales, "the scales").reshape(-1)]
        return factors, [int(np.floor(n * s)) for n, s in zip(old, factors, strict=True)]
    if sizes is None:
        raise c.refuse("no scales and no sizes", "one of them is needed")
    wanted = c.ints(sizes, "the sizes")
    factors = [m / n for m, n in zip(wanted, old, strict=True)]
    way = c.attr("keep_aspect_ratio_policy", "stretch")
    if way == "stretch":
        return factors, list(wanted)
    factor = min(factors) if way == "not_larger" else max(factors)
    return [factor] * len(old), [int(np.floor(n * factor + 0.5)) for n in old]


def _axis(c: Call, x: Array, axis: int, size: int, scale: float, region: tuple[float, float]) -> Array:
    n = x.shape[axis]
    at = _positions(c, n, size, scale, region)
    mode = c.attr("mode", "nearest")
    if mode == "nearest":
        chosen: Any = np.clip(_nearest(c, at), 0, n - 1)
    else:
        kernel = _triangle if mode == "linear" else _cubic(c.attr("cubic_coeff_a", -0.75))
        reach = 1 if mode == "linear" else 2
        stretch = max(1 / scale, 1.0) if c.attr("antialias", 0) else 1.0
        chosen = _matrix(at, n, kernel, reach, stretch, bool(c.attr("exclude_outside", 0)))
    out = _along(x, axis, chosen)
    if c.attr("coordinate_transformation_mode") != "tf_crop_and_resize":
        return out
    outside = ((at < 0) | (at > n - 1)).reshape([-1 if i == axis else 1 for i in range(x.ndim)])
    filled: Array = X.where(X.asarray(outside, device=x.device), c.attr("extrapolation_value", 0.0), out)
    return filled


def _positions(c: Call, n: int, size: int, scale: float, region: tuple[float, float]) -> np.ndarray:
    """Where each new element lies among the old."""
    i = np.arange(size, dtype=np.float64)
    mode = c.attr("coordinate_transformation_mode", "half_pixel")
    # The length before rounding to whole elements is what the scale maps.
    length = scale * n
    if mode == "half_pixel":
        return (i + 0.5) / scale - 0.5
    if mode == "half_pixel_symmetric":
        return n / 2 * (1 - size / length) + (i + 0.5) / scale - 0.5
    if mode == "pytorch_half_pixel":
        return (i + 0.5) / scale - 0.5 if size > 1 else np.zeros(size)
    if mode == "align_corners":
        return i * (n - 1) / (length - 1) if length != 1 else np.zeros(size)
    if mode == "asymmetric":
        return i / scale
    if mode == "tf_half_pixel_for_nn":
        return (i + 0.5) / scale
    if mode == "tf_crop_and_resize":
        low, high = region
        if size > 1:
            return low * (n - 1) + i * (high - low) * (n - 1) / (length - 1)
        return np.full(size, 0.5 * (low + high) * (n - 1))
    raise c.refuse(f"coordinate_transformation_mode {mode!r}")


def _nearest(c: Call, at: np.ndarray) -> np.ndarray:
    mode = c.attr("nearest_mode", "round_prefer_floor")
    ways: dict[str, Any] = {"round_prefer_floor": lambda v: np.ceil(v - 0.5),
                            "round_prefer_ceil": lambda v: np.floor(v + 0.5),
                            "floor": np.floor, "ceil": np.ceil}
    if mode not in ways:
        raise c.refuse(f"nearest_mode {mode!r}")
    return np.asarray(ways[mode](at))


def _triangle(d: np.ndarray) -> np.ndarray:
    return np.asarray(np.maximum(1 - np.abs(d), 0))


def _cubic(a: float) -> Any:
    """Keys' cubic kernel (1981, equation 4), with its free parameter."""
    def kernel(d: np.ndarray) -> np.ndarray:
        d = np.abs(d)
        near = ((a + 2) * d - (a + 3)) * d * d + 1
        far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
        return np.where(d <= 1, near, np.where(d < 2, far, 0))
    return kernel


def _linear(at: np.ndarray, n: int) -> np.ndarray:
    return _matrix(at, n, _triangle, 1, 1.0, False)


def _matrix(at: np.ndarray, n: int, kernel: Any, reach: int, stretch: float, inside: bool) -> np.ndarray:
    """Weights (new, old): of the kernel around each position, elements past an end being the last.

    ``inside``: those past an end have no weight. ``stretch`` widens the kernel, so that no element is skipped.
    """
    out = np.zeros((len(at), n))
    for row, p in zip(out, at, strict=True):
        width = int(np.ceil(reach * stretch))
        taps = np.arange(int(np.floor(p)) - width + 1, int(np.floor(p)) + width + 1)
        weights = kernel((taps - p) / stretch)
        if inside:
            weights = np.where((taps >= 0) & (taps < n), weights, 0)
        weights = weights / weights.sum()
        np.add.at(row, np.clip(taps, 0, n - 1), weights)
    return out


def _along(x: Array, axis: int, chosen: np.ndarray) -> Array:
    """Elements at indices, or combined by a matrix, along an axis."""
    if chosen.ndim == 1:
        return X.take(x, X.asarray(chosen.astype(np.int64), device=x.device), axis=axis)  # type: ignore[no-any-return]
    weights = X.astype(X.asarray(chosen.astype(np.float32), device=x.device), x.dtype)
    return X.moveaxis(X.tensordot(x, weights, axes=((axis,), (1,))), -1, axis)  # type: ignore[no-any-return]
