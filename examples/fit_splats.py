"""Recover a scene of 3D Gaussians from posed pictures of it: ``python examples/fit_splats.py -o fitted.ply``.

The pictures are made here, from a procedural scene, by the same renderer; the fit starts from noise and knows only the
pictures and cameras. One step is one compiled program: render, loss, gradient, Adam.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import rlx
from rlx import splat
from rlx.splat.scenes import torus

Raw = tuple[rlx.Array, ...]
#: Steps of Adam for means, log scales, rotations, opacity logits and harmonics, as shares of the scene's size.
RATES = (4e-3, 1.5e-2, 1e-2, 5e-2, 2e-2)


def noise(count: int, seed: int) -> splat.Gaussians:
    """Where a fit starts: grey Gaussians, anywhere in the box."""
    rng = np.random.default_rng(seed)
    turns = rng.standard_normal((count, 4))
    return splat.Gaussians.create(
        rng.uniform([-1, -0.6, -1], [1, 0.4, 1], (count, 3)),
        np.full((count, 3), 0.08),
        turns,
        np.full(count, 0.3),
        rng.standard_normal((count, 1, 3)) * 0.1,
    )


class Adam(NamedTuple):
    """Parameters, first and second moments, and the step count."""

    raw: Raw
    first: Raw
    second: Raw
    step: rlx.Array


def start(g: splat.Gaussians) -> Adam:
    """The state before the first step."""
    raw = g.to_raw()
    zeros = tuple([x * 0 for x in raw])
    return Adam(raw, zeros, zeros, rlx.asarray(0.0, dtype=rlx.float32))


def make_step(settings: splat.RenderSettings) -> Any:
    """The compiled step: ``state, camera, picture -> state, loss``."""
    def loss(raw: Raw, camera: splat.Camera, picture: rlx.Array) -> rlx.Array:
        rgb = splat.render(splat.Gaussians.from_raw(*raw), camera, settings).rgb
        return 0.8 * rlx.abs(rgb - picture).mean() + 0.2 * (1 - splat.ssim(rgb, picture))

    def step(s: Adam, camera: splat.Camera, picture: rlx.Array, decay: rlx.Array) -> tuple[Adam, rlx.Array]:
        value, grads = rlx.value_and_grad(loss)(s.raw, camera, picture)
        t = s.step + 1
        first = tuple([0.9 * m + 0.1 * g for m, g in zip(s.first, grads, strict=True)])
        second = tuple([0.999 * v + 0.001 * g * g for v, g in zip(s.second, grads, strict=True)])
        one, two = 1 - 0.9 ** t, 1 - 0.999 ** t
        raw = tuple([x - rate * decay * (m / one) / (rlx.sqrt(v / two) + 1e-12)
                     for x, m, v, rate in zip(s.raw, first, second, RATES, strict=True)])
        return Adam(raw, first, second, t), value

    return rlx.jit(step)


def quality(g: splat.Gaussians, cameras: Sequence[splat.Camera], pictures: Sequence[rlx.Array]) -> tuple[float, float]:
    """Mean PSNR and SSIM over views."""
    found = [splat.render(g, c).rgb for c in cameras]
    return (float(np.mean([float(splat.psnr(a, b)) for a, b in zip(found, pictures, strict=True)])),
            float(np.mean([float(splat.ssim(a, b)) for a, b in zip(found, pictures, strict=True)])))


def fit(
    steps: int, count: int, size: int, views: int, seed: int = 0, report: Any = print
) -> tuple[splat.Gaussians, list[float]]:
    """Fit ``count`` Gaussians to ``views`` pictures of ``size`` pixels a side; the Gaussians, and PSNR on unseen
    views.
    """
    target = torus()
    turn = lambda n, lift: splat.Camera.orbit(n, center=(0, 0, 0), radius=2.6, elevation=lift, width=size, height=size)
    cameras, unseen = [*turn(views - views // 3, 20), *turn(views // 3, 50)], turn(5, 33)
    pictures, hidden = ([splat.render(target, c).rgb for c in cs] for cs in (cameras, unseen))
    g = noise(count, seed)
    room = splat.bucket(3 * max(splat.capacity(g, c) for c in cameras))
    step, state = make_step(splat.RenderSettings(capacity=room)), start(g)
    found = [quality(g, unseen, hidden)[0]]
    order = np.random.default_rng(seed)
    for i in range(steps):
        k = int(order.integers(len(cameras)))
        state, value = step(state, cameras[k], pictures[k], float(0.1 ** (i / steps)))
        if (i + 1) % max(steps // 10, 1) == 0:
            psnr, ssim = quality(splat.Gaussians.from_raw(*state.raw), unseen, hidden)
            found.append(psnr)
            report(f"step {i + 1:5d}  loss {float(value):.4f}  unseen views: PSNR {psnr:.2f} dB, SSIM {ssim:.4f}")
    return splat.Gaussians.from_raw(*state.raw), found


def main(argv: Sequence[str] | None = None) -> int:
    """Fit and save."""
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("-o", "--output", type=Path, default=Path("fitted.ply"))
    p.add_argument("--steps", type=int, default=600)
    p.add_argument("--gaussians", type=int, default=600)
    p.add_argument("--size", type=int, default=96, help="of the pictures, in pixels")
    p.add_argument("--views", type=int, default=18)
    args = p.parse_args(argv)
    g, _ = fit(args.steps, args.gaussians, args.size, args.views)
    splat.save(args.output, g)
    print(args.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
