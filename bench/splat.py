"""Rendering of 3D Gaussians: frames and gradients of a scene, no peer on processors.

``RLX_BENCH_SCENE`` names a scene file; without it the scene is made by formula.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import rlx
from bench.harness import Case, Report, new_report
from rlx import splat
from rlx.splat.scenes import torus

WIDTH, HEIGHT = 1280, 720


def scene() -> tuple[str, splat.Gaussians]:
    """A name and the Gaussians."""
    path = os.environ.get("RLX_BENCH_SCENE")
    return (Path(path).name, splat.load(path)) if path else ("torus", torus(150_000))


def view(g: splat.Gaussians) -> splat.Camera:
    """A camera that sees nine tenths of the scene."""
    low, high = np.percentile(np.asarray(g.means), [5, 95], axis=0)
    return splat.Camera.orbit(1, center=(low + high) / 2, radius=float(np.linalg.norm(high - low)), width=WIDTH,
                              height=HEIGHT)[0]


def main(command: str, seconds: float = 4.0) -> Report:
    """A frame as ``render`` does it, a frame of a fixed capacity, and a frame with its gradient."""
    report = new_report("Gaussian splatting", command)
    name, g = scene()
    camera = view(g)
    pairs = int(splat.render(g, camera).pairs)
    what = f"{name}, {len(g)} Gaussians, {pairs} pairs, {WIDTH}x{HEIGHT}"
    fixed = splat.RenderSettings(capacity=splat.bucket(pairs))

    def loss(raw: tuple[rlx.Array, ...], camera: splat.Camera) -> rlx.Array:
        return (splat.render(splat.Gaussians.from_raw(*raw), camera, fixed).rgb ** 2).mean()
    step, raw = rlx.jit(rlx.value_and_grad(loss)), g.to_raw()
    rows: dict[str, tuple[Callable[[], Any], str]] = {
        "a frame": (lambda: splat.render(g, camera).rgb, "0.2 s"),
        "a frame of fixed capacity": (lambda: splat.render(g, camera, fixed).rgb, ""),
        "a frame and its gradient": (lambda: step(raw, camera)[0], ""),
    }
    for row, (run, goal) in rows.items():
        report.add(Case(f"{row}: {what}", {"rlx": lambda run=run: np.asarray(run())}, goal=goal), seconds)
    return report
