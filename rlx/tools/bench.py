"""``python -m rlx bench [SUITE ...]``: the benchmarks of a checkout, against the peers installed.

The suites are in ``bench/`` of the source tree, not in an installed package.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

from rlx.core.errors import RlxError


def main(argv: Sequence[str]) -> int:
    """Find ``bench/`` beside this source tree or in the current directory, and run it."""
    for root in (Path(__file__).parents[2], Path.cwd()):
        if (root / "bench" / "harness.py").is_file():
            sys.path.insert(0, str(root))
            return int(importlib.import_module("bench.__main__").main(list(argv)) or 0)
    raise RlxError("there are no benchmarks here", why="they are part of the source tree, not of an installed package",
                   do="run it in a checkout of rlx")
