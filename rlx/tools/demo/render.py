"""A scene of 3D Gaussians, rendered: a torus over a striped floor."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from time import perf_counter

import numpy as np

import rlx
from rlx import splat
from rlx.core.files import replacing
from rlx.splat.scenes import torus
from rlx.tools.demo.setting import Setting

GAUSSIANS, WIDTH, HEIGHT = 20_000, 640, 360


def main(setting: Setting) -> bool:
    """Render two views and keep the first: true when both agree with their coverage."""
    scene = torus(GAUSSIANS, device=setting.device)
    cameras = splat.Camera.orbit(3, center=(0, -0.1, 0), radius=2.3, elevation=28, width=WIDTH, height=HEIGHT,
                                 fov=42, device=setting.device)
    look = splat.RenderSettings(background=(0.06, 0.07, 0.09))
    image = splat.render(scene, cameras[0], look)
    np.asarray(image.rgb)
    begin = perf_counter()
    for camera in cameras[1:]:
        np.asarray(splat.render(scene, camera, look).rgb)
    seconds = (perf_counter() - begin) / len(cameras[1:])
    alpha, rgb = np.asarray(image.alpha), np.asarray(image.rgb)
    path = write_png(setting.out / "scene.png", rgb)
    print(f"{len(scene)} Gaussians in {int(image.pairs)} tiles at {WIDTH} x {HEIGHT}: {seconds * 1e3:.0f} ms a view, "
          f"{(alpha > 0.5).mean():.0%} of the picture covered; {path}")
    fixed = splat.RenderSettings(capacity=splat.bucket(int(image.pairs)))
    setting.show(rlx.explain(lambda g, c: splat.render(g, c, fixed), scene, cameras[0], device=setting.device),
                 "the program of one view")
    return bool(np.isfinite(rgb).all() and 0.2 < (alpha > 0.5).mean() < 0.95)


def write_png(path: Path, rgb: np.ndarray) -> Path:
    """An (height, width, 3) picture in [0, 1] as an 8-bit PNG (RFC 2083: each row unfiltered)."""
    pixels = (np.clip(rgb, 0, 1) * 255 + 0.5).astype(np.uint8)
    rows = np.concatenate([np.zeros((len(pixels), 1), np.uint8), pixels.reshape(len(pixels), -1)], axis=1)
    head = struct.pack(">IIBBBBB", pixels.shape[1], pixels.shape[0], 8, 2, 0, 0, 0)
    with replacing(path) as file:
        file.write(b"\x89PNG\r\n\x1a\n")
        for kind, data in ((b"IHDR", head), (b"IDAT", zlib.compress(rows.tobytes(), 6)), (b"IEND", b"")):
            file.write(struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)))
    return path
