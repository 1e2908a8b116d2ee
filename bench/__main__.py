"""``python -m rlx bench [SUITE ...]`` (or ``python -m bench``): tables and plots into ``bench/results/``."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

from bench.harness import table

#: name -> module with ``main(command) -> Report``
SUITES = {"solvers": "bench.solvers", "direct": "bench.direct", "linalg": "bench.linalg",
          "compiling": "bench.compiling", "elementwise": "bench.elementwise", "mlp": "bench.mlp",
          "minilm": "bench.minilm", "gemm": "bench.gemm", "transforms": "bench.transforms", "sorting": "bench.sorting",
          "fourier": "bench.fourier", "splat": "bench.splat", "overhead": "bench.overhead"}
#: Set on some machines for old OpenBLAS builds; they slow a current one, so benchmarks run without them.
UNSET = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the named suites, or all."""
    parser = argparse.ArgumentParser(prog="python -m rlx bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="SUITE", help=f"{', '.join(SUITES)} (all by default)")
    parser.add_argument("--seconds", type=float, help="time of a row (each suite has its own by default)")
    args = parser.parse_args(argv)
    names, given = args.names, {} if args.seconds is None else {"seconds": args.seconds}
    if unknown := [n for n in names if n not in SUITES]:
        parser.error(f"there is no suite {unknown[0]!r}: choose from {', '.join(SUITES)}")
    if any(v in os.environ for v in UNSET):
        clean = {k: v for k, v in os.environ.items() if k not in UNSET}
        again = sys.argv[1:] if argv is None else list(argv)
        os.execve(sys.executable, [sys.executable, "-m", "rlx", "bench", *again], clean)
    for name in names or SUITES:
        command = f"python -m rlx bench {name}" + "".join(f" --{k} {v:g}" for k, v in given.items())
        report = importlib.import_module(SUITES[name]).main(command, **given)
        path = report.save(name)
        print(f"\n{report.title}\n{table(report.rows)}\nwritten to {path}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
