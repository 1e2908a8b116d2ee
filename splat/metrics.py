"""Image quality: PSNR and SSIM, as differentiable array programs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rlx.array.array import Array
from rlx.array.build import as_array
from rlx.core.errors import ShapeError
from rlx.ops.elementwise import log
from rlx.ops.movement import slice_of
from rlx.ops.reduce import mean
from rlx.splat.sizes import length

#: Standard deviation and width of the window, and the two stabilizers: Wang et al., IEEE TIP 13(4), 2004, section
#: III-B.
SIGMA, WINDOW, K1, K2 = 1.5, 11, 0.01, 0.03


def _pair(x: Any, y: Any) -> tuple[Array, Array]:
    a, b = as_array(x), as_array(y)
    if a.shape != b.shape:
        raise ShapeError(f"images of shapes {a.shape} and {b.shape}", why="they are compared pixel by pixel",
                         do="render both at one size")
    return a, b


def psnr(image: Any, reference: Any, /, *, peak: float = 1.0) -> Array:
    """Peak signal-to-noise ratio in decibels, ``10 log10(peak^2 / mean((x - y)^2))``; infinite for equal images."""
    x, y = _pair(image, reference)
    d = x - y
    out: Array = (-10 / math.log(10)) * log(mean(d * d)) + 20 * math.log10(peak)
    return out


def ssim(image: Any, reference: Any, /, *, peak: float = 1.0) -> Array:
    """Mean structural similarity of images (height, width) or (height, width, channels), at most 1.

    Windows are 11 x 11 Gaussians of standard deviation 1.5, only where they lie inside of the image (as in the
    publication's reference). Images must be at least 11 pixels a side.
    """
    x, y = _pair(image, reference)
    if x.ndim not in (2, 3) or min(length(x), length(x, 1)) < WINDOW:
        raise ShapeError(f"ssim() of images of shape {x.shape}", why=f"windows are {WINDOW} pixels a side",
                         do="pass (height, width) or (height, width, channels) images of at least that size")
    c1, c2 = (K1 * peak) ** 2, (K2 * peak) ** 2
    mx, my = _smooth(x), _smooth(y)
    vx, vy, vxy = _smooth(x * x) - mx * mx, _smooth(y * y) - my * my, _smooth(x * y) - mx * my
    out: Array = mean((2 * mx * my + c1) * (2 * vxy + c2) / ((mx * mx + my * my + c1) * (vx + vy + c2)))
    return out


def _smooth(x: Array) -> Array:
    """Convolution with the window along the first two axes, as a sum of shifted slices."""
    at = np.arange(WINDOW) - WINDOW // 2
    w = np.exp(-(at / SIGMA) ** 2 / 2)
    w /= w.sum()
    for axis in (0, 1):
        size = tuple(n - WINDOW + 1 if i == axis else n for i, n in enumerate(x.shape))
        parts = [
            slice_of(x, tuple(k if i == axis else 0 for i in range(x.ndim)), size) * float(w[k]) for k in range(WINDOW)
        ]
        x = parts[0]
        for p in parts[1:]:
            x = x + p
    return x
