"""A renderer in float64 NumPy, from the published equations and nothing else: no tiles, no early sorting tricks.

Projection: Zwicker et al., EWA splatting (2001), equations 24 to 31, with the low-pass of Kerbl et al. (ACM TOG 42(4),
2023, section 4 and appendix A). Harmonics: SciPy's. Compositing: front-to-back alpha blending at the pixel's centre.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.spatial.transform import Rotation
from scipy.special import sph_harm_y

MIN_ALPHA = 1 / 255


class Picture(NamedTuple):
    rgb: np.ndarray
    alpha: np.ndarray
    depth: np.ndarray


def harmonics(directions: np.ndarray, coefficients: np.ndarray) -> np.ndarray:
    """``sum_lm c_lm Y_lm(d)`` with real harmonics that keep the Condon-Shortley sign."""
    d = directions / np.linalg.norm(directions, axis=1, keepdims=True)
    theta, phi = np.arccos(d[:, 2]), np.arctan2(d[:, 1], d[:, 0])
    out = np.zeros((len(d), coefficients.shape[2]))
    pairs = [(l, m) for l in range(4) for m in range(-l, l + 1)]
    for k, (l, m) in enumerate(pairs[:coefficients.shape[1]]):
        y = sph_harm_y(l, abs(m), theta, phi)
        out += coefficients[:, k] * (y.real if m == 0 else np.sqrt(2) * (y.imag if m < 0 else y.real))[:, None]
    return out


def render(means: np.ndarray, scales: np.ndarray, rotations: np.ndarray, opacities: np.ndarray, sh: np.ndarray,
           view: np.ndarray, k: np.ndarray, width: int, height: int, *, background: tuple[float, ...] = (0, 0, 0),
           blur: float = 0.3, antialiased: bool = False, near: float = 0.01, max_alpha: float = 0.999,
           stop: float = 1e-4) -> Picture:
    """The picture of a scene; sizes must be small, every Gaussian is evaluated at every pixel."""
    eye = -view[:3, :3].T @ view[:3, 3]
    colors = np.maximum(harmonics(means - eye, sh) + 0.5, 0)
    points = means @ view[:3, :3].T + view[:3, 3]
    x, y = np.meshgrid(np.arange(width) + 0.5, np.arange(height) + 0.5)
    rgb, depth = np.zeros((height, width, 3)), np.zeros((height, width))
    rest, going = np.ones((height, width)), np.ones((height, width), bool)
    for i in np.argsort(points[:, 2], kind="stable"):
        p = points[i]
        if p[2] <= near:
            continue
        cov, centre = _covariance(p, scales[i], rotations[i], view, k, width, height)
        soft = cov + blur * np.eye(2)
        o = opacities[i]
        if antialiased:
            o = o * np.sqrt(max(np.linalg.det(cov) / np.linalg.det(soft), 0))
        d = np.stack([x - centre[0], y - centre[1]], -1)
        alpha = np.minimum(o * np.exp(-0.5 * np.einsum("hwi,ij,hwj->hw", d, np.linalg.inv(soft), d)), max_alpha)
        hit = going & (alpha >= MIN_ALPHA)
        ends = hit & (rest * (1 - alpha) <= stop)
        going &= ~ends
        weight = np.where(hit & ~ends, alpha * rest, 0)
        rgb += weight[..., None] * colors[i]
        depth += weight * p[2]
        rest -= weight
    return Picture(rgb + rest[..., None] * np.asarray(background, float), 1 - rest, depth)


def _covariance(p: np.ndarray, scale: np.ndarray, q: np.ndarray, view: np.ndarray, k: np.ndarray, width: int,
                height: int) -> tuple[np.ndarray, np.ndarray]:
    r = Rotation.from_quat(np.roll(q, -1)).as_matrix()
    cov = view[:3, :3] @ r @ np.diag(scale ** 2) @ r.T @ view[:3, :3].T
    f, c, size = np.diag(k)[:2], k[:2, 2], np.array([width, height])
    margin = 0.15 * size / f
    u = np.clip(p[:2] / p[2], -c / f - margin, (size - c) / f + margin)
    j = np.array([[f[0], 0, -f[0] * u[0]], [0, f[1], -f[1] * u[1]]]) / p[2]
    return j @ cov @ j.T, f * p[:2] / p[2] + c
