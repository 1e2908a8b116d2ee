"""Small procedural scenes for the tests."""

from __future__ import annotations

import numpy as np

import rlx
from rlx import splat


def random_scene(n: int = 60, degree: int = 2, seed: int = 0, dtype: object = rlx.float64) -> splat.Gaussians:
    """Gaussians in a ball of radius 1, of many sizes and opacities."""
    rng = np.random.default_rng(seed)
    means = rng.standard_normal((n, 3))
    means *= rng.uniform(0, 1, (n, 1)) / np.linalg.norm(means, axis=1, keepdims=True)
    return splat.Gaussians.create(
        means,
        np.exp(rng.uniform(-4, -1.2, (n, 3))),
        rng.standard_normal((n, 4)),
        rng.uniform(0.02, 0.99, n),
        rng.standard_normal((n, (degree + 1) ** 2, 3)) * 0.4,
        dtype=dtype,
    )


def view(width: int = 44, height: int = 30, dtype: object = rlx.float64) -> splat.Camera:
    """A camera that sees most of the scene, and is inside of the rest."""
    c = splat.Camera.look_at((0.4, 0.7, -2.2), (0.1, 0, 0), width=width, height=height)
    return splat.Camera(c.world_to_camera.astype(dtype), c.intrinsics.astype(dtype), width, height)


def arrays(g: splat.Gaussians) -> list[np.ndarray]:
    """The fields as NumPy arrays."""
    return [np.asarray(x) for x in (g.means, g.scales, g.rotations, g.opacities, g.sh)]
