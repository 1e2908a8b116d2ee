"""The ``.splat`` layout: 32 bytes a Gaussian, without a header or view-dependent colour."""

from __future__ import annotations

import numpy as np

from rlx.core.errors import FormatError
from rlx.splat.formats.files import Cloud
from rlx.splat.ops.sh import C0

ROW = np.dtype([("mean", "<f4", 3), ("scale", "<f4", 3), ("rgba", "u1", 4), ("rotation", "u1", 4)])


def decode(data: bytes, what: str) -> Cloud:
    """The Gaussians of a file."""
    if len(data) % ROW.itemsize:
        raise FormatError(
            f"{what}: {len(data)} bytes",
            why=f"a .splat file has {ROW.itemsize} bytes for each Gaussian: it is truncated, or of another kind",
            do="get the file again",
        )
    t = np.frombuffer(data, ROW)
    color = t["rgba"].astype(np.float32) / 255
    sh = ((color[:, :3] - 0.5) / C0)[:, None, :]
    return Cloud(t["mean"], t["scale"], (t["rotation"].astype(np.float32) - 128) / 128, color[:, 3], sh)


def encode(c: Cloud) -> list[bytes]:
    """The parts of a file: the most visible Gaussians first, and only the constant term of the colour."""
    order = np.argsort(-c.scales.astype(np.float64).prod(axis=1) * c.opacities, kind="stable")
    t = np.zeros(len(c.means), ROW)
    t["mean"], t["scale"] = c.means[order], c.scales[order]
    rgba = np.concatenate([c.sh[:, 0] * C0 + 0.5, c.opacities[:, None]], axis=1)[order]
    t["rgba"] = np.rint(np.clip(rgba, 0, 1) * 255)
    q = c.rotations / np.maximum(np.linalg.norm(c.rotations, axis=1, keepdims=True), 1e-12)
    t["rotation"] = np.clip(np.rint(q[order] * 128 + 128), 0, 255)
    return [t.tobytes()]
