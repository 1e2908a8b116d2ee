"""PSNR and SSIM against their formulas in NumPy and SciPy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

import rlx
from rlx import splat
from rlx.core.errors import ShapeError


def images() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = gaussian_filter(rng.uniform(0, 1, (40, 33, 3)), (2, 2, 0))
    return x, np.clip(x + 0.05 * rng.standard_normal(x.shape), 0, 1)


def test_psnr() -> None:
    x, y = images()
    assert float(splat.psnr(x, y)) == pytest.approx(-10 * np.log10(np.mean((x - y) ** 2)))
    assert float(splat.psnr(x * 255, y * 255, peak=255.0)) == pytest.approx(float(splat.psnr(x, y)))
    assert float(splat.psnr(x, x)) == np.inf


def test_ssim() -> None:
    x, y = images()
    smooth = lambda a: gaussian_filter(a, (1.5, 1.5, 0), truncate=5 / 1.5)[5:-5, 5:-5]
    mx, my = smooth(x), smooth(y)
    vx, vy, vxy = smooth(x * x) - mx ** 2, smooth(y * y) - my ** 2, smooth(x * y) - mx * my
    c1, c2 = 1e-4, 9e-4
    want = ((2 * mx * my + c1) * (2 * vxy + c2) / ((mx ** 2 + my ** 2 + c1) * (vx + vy + c2))).mean()
    assert float(splat.ssim(x, y)) == pytest.approx(want, rel=1e-9)
    assert float(splat.ssim(x, x)) == pytest.approx(1)
    assert float(splat.ssim(x[..., 0], y[..., 0])) < 0.99


def test_ssim_has_a_gradient() -> None:
    x, y = (rlx.asarray(a) for a in images())
    g = rlx.grad(lambda a: splat.ssim(a, y))(x)
    assert float(splat.ssim(x + 1e-3 * g / rlx.sqrt((g * g).sum()), y)) > float(splat.ssim(x, y))


def test_shapes_must_fit() -> None:
    with pytest.raises(ShapeError):
        splat.psnr(np.zeros((4, 4)), np.zeros((4, 5)))
    with pytest.raises(ShapeError, match="ssim"):
        splat.ssim(np.zeros((8, 20)), np.zeros((8, 20)))
