"""Print what ``import rlx`` costs, as information: the median of five new processes."""

from __future__ import annotations

import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def seconds(prelude: str) -> float:
    """Time of ``import rlx`` after ``prelude``, in a process of its own."""
    code = (f"{prelude}\nimport time\nt = time.perf_counter()\nimport rlx\nprint(time.perf_counter() - t)")
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return float(run.stdout)


def main() -> None:
    """One line: with NumPy to be imported too, and with NumPy there already."""
    whole, own = (statistics.median(seconds(p) for _ in range(5)) for p in ("", "import numpy"))
    print(f"import rlx: {whole * 1e3:.0f} ms, of which rlx itself {own * 1e3:.0f} ms")


if __name__ == "__main__":
    main()
