"""Scene files: PLY, compressed PLY, .splat and .spz."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from rlx.core.errors import FormatError
from rlx.splat.formats import compressed, ply, splat, spz
from rlx.splat.formats.files import Cloud, finite, read_bytes, write_atomic
from rlx.splat.formats.header import read_tables
from rlx.splat.types import Gaussians

KINDS = (".compressed.ply", ".ply", ".splat", ".spz")


def load(path: Any, *, device: str | None = None) -> Gaussians:
    """Read Gaussians from a .ply (original layout or PlayCanvas's compressed one), .splat or .spz (versions 1 to 4)
    file.

    All are given in one convention: x right, y down, z forward (as trained scenes in .ply have it); .spz keeps other
    axes
    and is converted. Sizes that a header declares are checked against the file before memory is asked for; a damaged or
    truncated file is a FormatError. Reading .spz version 4 needs the package ``zstandard`` (or Python 3.14).
    """
    data, what = read_bytes(path), Path(path).name
    cloud = finite(decode(data, what), what)
    return Gaussians.create(*cloud, device=device)


def decode(data: bytes, what: str) -> Cloud:
    """The Gaussians of a file's content; the name ``what`` decides where content alone cannot."""
    if data[:3] == b"ply":
        tables = read_tables(data, what)
        if "vertex" not in tables:
            raise FormatError(
                f"{what}: a PLY file without vertices",
                why=f"it has {', '.join(tables) or 'no elements'}",
                do="pass a file of Gaussians",
            )
        return compressed.decode(tables, what) if compressed.is_compressed(tables) else ply.decode(tables, what)
    if data[:4] == spz.MAGIC or data[:2] == b"\x1f\x8b":
        return spz.decode(data, what)
    if what.lower().endswith(".splat"):
        return splat.decode(data, what)
    raise FormatError(
        f"{what}: not a scene file", why=f"it starts with {data[:4]!r}", do=f"pass one of {', '.join(KINDS)}"
    )


def save(path: Any, gaussians: Gaussians, *, version: int = 4) -> None:
    """Write Gaussians to a file of the kind that its name ends in: .ply, .compressed.ply, .splat or .spz.

    ``version`` is that of .spz: 2, 3 or 4 (which needs ``zstandard``). The other kinds but .ply are lossy, and .splat
    keeps only the constant colour. The file appears complete or not at all.
    """
    name = Path(path).name.lower()
    gaussians.check()
    cloud = finite(Cloud(*[np.asarray(x) for x in (gaussians.means, gaussians.scales, gaussians.rotations,
                                                   gaussians.opacities, gaussians.sh)]), "the Gaussians to save")
    if name.endswith(".compressed.ply"):
        parts = compressed.encode(cloud)
    elif name.endswith(".ply"):
        parts = ply.encode(cloud)
    elif name.endswith(".splat"):
        parts = splat.encode(cloud)
    elif name.endswith(".spz"):
        parts = spz.encode(cloud, version)
    else:
        raise FormatError(f"cannot save Gaussians as {Path(path).name!r}", why="the ending names no kind of scene file",
                          do=f"use one of {', '.join(KINDS)}")
    write_atomic(path, parts)
