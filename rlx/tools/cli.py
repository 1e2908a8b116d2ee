"""The command line: ``python -m rlx doctor | demo | explain | coverage | flags | ...``, one module a command."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from rlx.core.errors import RlxError

#: command -> (module with ``main(argv) -> int | None``, what it does)
COMMANDS: dict[str, tuple[str, str]] = {
    "demo": ("rlx.tools.demo", "solve, factorize, render and learn on one device, and show where the programs went"),
    "doctor": ("rlx.tools.doctor", "devices found here, and why the others are absent"),
    "explain": ("rlx.tools.explain", "the dispatch report of an expression, without running it"),
    "viz": ("rlx.tools.viz", "the graph of an expression as an HTML page"),
    "coverage": ("rlx.tools.coverage", "op by device: native, common, rewritten, refused"),
    "bench": ("rlx.tools.bench", "the benchmarks of a checkout, against the peers installed"),
    "flags": ("rlx.tools.flags", "every flag, its environment variable and its value"),
    "ulp": ("rlx.tools.ulp", "measured accuracy of the elementwise functions"),
}


def usage() -> str:
    """The list of commands."""
    rows = [f"  {name:10} {what}" for name, (_, what) in COMMANDS.items()]
    return "\n".join(["usage: python -m rlx COMMAND [ARG ...]\n", *rows, "\npython -m rlx COMMAND --help tells more."])


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; an error of rlx, of a file or of an expression is printed and gives exit status 1."""
    args = list(sys.argv[1:] if argv is None else argv)
    if not args or args[0] in ("-h", "--help", "help"):
        print(usage())
        return 0
    if args[0] not in COMMANDS:
        print(f"there is no command {args[0]!r}\n\n{usage()}", file=sys.stderr)
        return 2
    module = importlib.import_module(COMMANDS[args[0]][0])
    try:
        return int(module.main(args[1:]) or 0)
    except (RlxError, OSError, SyntaxError, NameError) as e:
        print(f"{type(e).__name__}: {e}", file=sys.stderr)
        return 1
