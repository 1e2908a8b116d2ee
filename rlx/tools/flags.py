"""``python -m rlx flags``: the table of flags with their values now."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from rlx.core import flags


def main(argv: Sequence[str]) -> int:
    """Print name, value and meaning of every flag."""
    argparse.ArgumentParser(prog="python -m rlx flags", description=__doc__).parse_args(argv)
    for f in flags.TABLE.values():
        print(f"{f.env:22} {flags.get(f.name)!s:16} {f.help}" + (f" ({', '.join(f.choices)})" if f.choices else ""))
    return 0
