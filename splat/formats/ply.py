"""Scenes in the PLY layout of the original 3D Gaussian splatting: log scales, opacity logits, planar harmonics."""

from __future__ import annotations

import re

import numpy as np

from rlx.core.errors import FormatError
from rlx.splat.formats.files import Cloud
from rlx.splat.formats.header import columns, header

_POSITION, _SCALES = ["x", "y", "z"], ["scale_0", "scale_1", "scale_2"]
_ROTATION, _DC = ["rot_0", "rot_1", "rot_2", "rot_3"], ["f_dc_0", "f_dc_1", "f_dc_2"]
#: Numbers of f_rest properties of degree 0 to 3.
REST = (0, 9, 24, 45)
#: Opacities are kept this far off 0 and 1, so that their logits are finite and come back within a float's rounding.
EDGE = 2.0 ** -24


def rest_names(table: np.ndarray, what: str) -> list[str]:
    """The ``f_rest_i`` properties in their order."""
    found = [n for n in table.dtype.names or () if re.fullmatch(r"f_rest_\d{1,3}", n)]
    if len(found) not in REST or set(found) != {f"f_rest_{i}" for i in range(len(found))}:
        raise FormatError(f"{what}: {len(found)} f_rest properties", why="degrees 0 to 3 have 0, 9, 24 or 45",
                          do="save the scene with spherical harmonics to degree 3")
    return [f"f_rest_{i}" for i in range(len(found))]


def harmonics(dc: np.ndarray, rest: np.ndarray) -> np.ndarray:
    """sh (N, K, 3) of constant terms (N, 3) and planar higher ones (N, 3 * (K - 1))."""
    n, k = len(dc), rest.shape[1] // 3
    return np.concatenate([dc[:, None, :], rest.reshape(n, 3, k).transpose(0, 2, 1)], axis=1)


def decode(tables: dict[str, np.ndarray], what: str) -> Cloud:
    """The Gaussians of a ``vertex`` table."""
    v = tables["vertex"]
    rest = columns(v, rest_names(v, what), what)
    with np.errstate(over="ignore"):
        scales = np.exp(columns(v, _SCALES, what))
        opacities = 1 / (1 + np.exp(-columns(v, ["opacity"], what)[:, 0].astype(np.float64)))
    return Cloud(columns(v, _POSITION, what), scales, columns(v, _ROTATION, what), opacities,
                 harmonics(columns(v, _DC, what), rest))


def logit(p: np.ndarray) -> np.ndarray:
    """``log(p / (1 - p))`` with p kept off 0 and 1."""
    q = np.clip(p.astype(np.float64), EDGE, 1 - EDGE)
    return np.log(q / (1 - q))


def encode(c: Cloud) -> list[bytes]:
    """The parts of a file."""
    n, k = len(c.means), c.sh.shape[1] - 1
    rest = [f"f_rest_{i}" for i in range(3 * k)]
    names = [*_POSITION, "nx", "ny", "nz", *_DC, *rest, "opacity", *_SCALES, *_ROTATION]
    planar = c.sh[:, 1:].transpose(0, 2, 1).reshape(n, 3 * k)
    scales = np.log(np.maximum(c.scales.astype(np.float64), 1e-30))
    body = np.concatenate(
        [c.means, np.zeros((n, 3)), c.sh[:, 0], planar, logit(c.opacities)[:, None], scales, c.rotations], axis=1
    ).astype("<f4")
    return [header([("vertex", n, [(name, "float") for name in names])]), body.tobytes()]
