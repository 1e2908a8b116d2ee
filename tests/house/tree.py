"""The files of this checkout: what git tracks or would track, or, without git, all but build products."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
_PRODUCTS = {".git", ".venv", "build", "dist", "out", "__pycache__", ".pytest_cache", ".ruff_cache",
             ".mypy_cache", ".hypothesis"}


@cache
def files() -> tuple[Path, ...]:
    """Absolute paths, sorted."""
    git = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(git, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        found = [ROOT / name for name in listed.split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        found = [p for p in ROOT.rglob("*") if not _PRODUCTS & set(p.relative_to(ROOT).parts)
                 and not any(part.endswith(".egg-info") for part in p.parts)]
    return tuple(sorted(p for p in found if p.is_file()))
