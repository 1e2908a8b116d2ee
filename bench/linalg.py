"""Dense linear algebra against NumPy and SciPy: batches of small matrices, and one matrix of a thousand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.linalg

import rlx
from bench.harness import Case, Report, new_report

#: Goal of the batches of small matrices, of the large ones.
SMALL_GOAL, LARGE_GOAL = "5x numpy", "1x numpy"


def run(f: Callable[..., Any], *arrays: Any) -> Callable[[], Any]:
    """A compiled function on arrays that are already on the device, run to its end."""
    compiled = rlx.jit(f)
    args = [rlx.asarray(a) for a in arrays]

    def call() -> Any:
        out = compiled(*args)
        rlx.eval(out)
        return out
    return call


def small(report: Report, count: int, n: int, seconds: float) -> None:
    """``count`` matrices of size n, float64: Cholesky, one right side, eigenvalues and vectors."""
    rng = np.random.default_rng(n)
    x = rng.standard_normal((count, n, n))
    s, b = x @ x.swapaxes(-1, -2) + n * np.eye(n), rng.standard_normal((count, n, 1))
    report.add(Case(f"cholesky, {count} of {n}x{n}", {"numpy": lambda: np.linalg.cholesky(s),
                                                      "rlx": run(rlx.linalg.cholesky, s)}, goal=SMALL_GOAL), seconds)
    report.add(Case(f"solve, {count} of {n}x{n}", {"numpy": lambda: np.linalg.solve(x, b),
                                                   "rlx": run(rlx.linalg.solve, x, b)}, goal=SMALL_GOAL), seconds)
    report.add(Case(f"eigh, {count} of {n}x{n}", {"numpy": lambda: np.linalg.eigh(s), "rlx": run(rlx.linalg.eigh, s)},
                    goal=SMALL_GOAL, compare=same_eigenvalues), seconds)


def same_eigenvalues(a: Any, b: Any) -> None:
    """Vectors are unique only up to sign."""
    np.testing.assert_allclose(np.asarray(b[0]), np.asarray(a[0]), rtol=1e-8, atol=1e-8)


def same_products(a: Any, b: Any) -> None:
    """Factors whose product is the same matrix."""
    np.testing.assert_allclose(np.asarray(b[0]) @ np.asarray(b[1]), np.asarray(a[0]) @ np.asarray(a[1]), atol=1e-8)


def same_packed(a: Any, b: Any) -> None:
    """Packed factors."""
    np.testing.assert_allclose(np.asarray(b[0]), np.asarray(a[0]), atol=1e-6)


def large(report: Report, n: int, seconds: float) -> None:
    """One float64 matrix of size n."""
    a = np.random.default_rng(0).standard_normal((n, n))
    s, b = a @ a.T + n * np.eye(n), np.ones((n, 1))
    flops = 2 * n**3 / 3
    report.add(Case(f"lu, {n}", {"scipy": lambda: scipy.linalg.lu_factor(a), "rlx": run(rlx.linalg.lu_factor, a)},
                    flops=flops, goal=LARGE_GOAL, compare=same_packed), seconds)
    report.add(Case(f"solve, {n}", {"numpy": lambda: np.linalg.solve(a, b), "rlx": run(rlx.linalg.solve, a, b)},
                    flops=flops, goal=LARGE_GOAL), seconds)
    report.add(Case(f"cholesky, {n}", {"numpy": lambda: np.linalg.cholesky(s), "rlx": run(rlx.linalg.cholesky, s)},
                    flops=flops / 2, goal=LARGE_GOAL), seconds)
    report.add(Case(f"qr, {n}", {"numpy": lambda: np.linalg.qr(a), "rlx": run(rlx.linalg.qr, a)}, flops=4 * flops,
                    goal=LARGE_GOAL, compare=same_products), seconds)
    report.add(Case(f"eigh, {n}", {"numpy": lambda: np.linalg.eigh(s), "rlx": run(rlx.linalg.eigh, s)},
                    goal=LARGE_GOAL, compare=same_eigenvalues), seconds)


def main(command: str, seconds: float = 2.0) -> Report:
    """All of it."""
    report = new_report("Dense linear algebra", command, ("numpy", "scipy", "scipy-openblas64"))
    for n in (4, 8, 16, 32):
        small(report, 10_000, n, seconds)
    large(report, 1000, seconds)
    return report
