"""Scenes made by formula, for demonstrations and tests of fits."""

from __future__ import annotations

import numpy as np

from rlx.splat.types import Gaussians

#: The constant spherical harmonic: a colour c is the coefficient (c - 1/2) / Y00.
_Y00 = 0.28209479177387814


def torus(count: int = 400, *, device: str | None = None) -> Gaussians:
    """A torus of colour over a striped floor: about ``count`` flat Gaussians along the surfaces.

    The torus has radii 0.7 and 0.22 about the y axis; the floor is the square [-1, 1]^2 at y = -0.45.

    >>> torus(400).means.shape
    (396, 3)
    """
    n = count // 2
    i = np.arange(n)
    turns = 13 if n < 2000 else round(0.9 * np.sqrt(n))
    u, v = 2 * np.pi * i / n * turns, 2 * np.pi * i / n
    ring = np.stack([(0.7 + 0.22 * np.cos(u)) * np.cos(v), 0.22 * np.sin(u), (0.7 + 0.22 * np.cos(u)) * np.sin(v)], 1)
    side = int(np.sqrt(count - n))
    x, z = np.meshgrid(np.linspace(-1, 1, side), np.linspace(-1, 1, side))
    floor = np.stack([x.ravel(), np.full(side * side, -0.45), z.ravel()], 1)
    hue = np.stack([v, v + 2.1, v + 4.2], 1)
    stripes = np.where((np.arange(side) * 7 // side % 2)[None, :, None], [0.9, 0.85, 0.7], [0.25, 0.3, 0.45])
    colors = np.concatenate([0.5 + 0.45 * np.cos(hue), np.broadcast_to(stripes, (side, side, 3)).reshape(-1, 3)])
    means = np.concatenate([ring, floor])
    # A Gaussian reaches its neighbours: the radius is the square root of the area that one covers, and 0.07 at most.
    reach = min(0.07, 1.1 * float(np.sqrt(4 * np.pi**2 * 0.7 * 0.22 / n)))
    scales = np.concatenate([np.full((n, 3), reach), np.tile([1.3 / side, 0.01, 1.3 / side], (side * side, 1))])
    return Gaussians.create(means, scales, np.tile([1.0, 0, 0, 0], (len(means), 1)), np.full(len(means), 0.9),
                            ((colors - 0.5) / _Y00)[:, None, :], device=device)
