"""``python -m bench [NAME ...]``: run benchmarks and write their tables to ``bench/results/``."""

from __future__ import annotations

import argparse
import importlib
import os
import sys

from bench.harness import table

#: name -> module with ``main(command) -> Report``
SUITES = {"solvers": "bench.solvers", "linalg": "bench.linalg", "compiling": "bench.compiling",
          "mlp": "bench.mlp", "minilm": "bench.minilm"}
#: Set on some machines for old OpenBLAS builds; they slow a current one, so benchmarks run without them.
UNSET = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")


def main() -> int:
    """Run the named suites, or all."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*SUITES, []], help="suites (all by default)")
    args = parser.parse_args()
    if any(v in os.environ for v in UNSET):
        clean = {k: v for k, v in os.environ.items() if k not in UNSET}
        os.execve(sys.executable, [sys.executable, "-m", "bench", *sys.argv[1:]], clean)
    for name in args.names or SUITES:
        report = importlib.import_module(SUITES[name]).main(f"python -m bench {name}")
        path = report.save(name)
        print(f"\n{report.title}\n{table(report.rows)}\nwritten to {path}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
