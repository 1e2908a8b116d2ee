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


def small(report: Report, count: int, n: int, seconds: float, dtype: str = "float64") -> None:
    """``count`` matrices of size n: Cholesky, one right side, eigenvalues and vectors."""
    rng, name = np.random.default_rng(n), f"{count} of {n}x{n}{'' if dtype == 'float64' else f' {dtype}'}"
    x = rng.standard_normal((count, n, n))
    s = (x @ x.swapaxes(-1, -2) + n * np.eye(n)).astype(dtype)
    # The worst of so many random matrices has no correct digit in float32.
    a, b = x if dtype == "float64" else s, rng.standard_normal((count, n, 1)).astype(dtype)
    rtol = 1e-6 if dtype == "float64" else 1e-3
    report.add(Case(f"cholesky, {name}", {"numpy": lambda: np.linalg.cholesky(s), "rlx": run(rlx.linalg.cholesky, s)},
                    goal=SMALL_GOAL, rtol=rtol), seconds)
    report.add(Case(f"solve, {name}", {"numpy": lambda: np.linalg.solve(a, b), "rlx": run(rlx.linalg.solve, a, b)},
                    goal=SMALL_GOAL, rtol=rtol), seconds)
    report.add(Case(f"eigh, {name}", {"numpy": lambda: np.linalg.eigh(s), "rlx": run(rlx.linalg.eigh, s)},
                    goal=SMALL_GOAL, compare=same_eigenvalues), seconds)


def same_eigenvalues(a: Any, b: Any) -> None:
    """Vectors are unique only up to sign: both must be unitary and belong to the values."""
    w, v = (np.asarray(x) for x in b)
    tolerance = 1e-8 if w.dtype == np.float64 else 1e-4
    np.testing.assert_allclose(w, np.asarray(a[0]), rtol=tolerance, atol=tolerance)
    expected = (a[1] * a[0][..., None, :]) @ np.swapaxes(a[1], -1, -2)
    scale = np.abs(w).max() * tolerance
    np.testing.assert_allclose((v * w[..., None, :]) @ np.swapaxes(v, -1, -2), expected, rtol=0, atol=scale)


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
    report.add(Case(f"svd, {n}", {"numpy": lambda: np.linalg.svd(a), "rlx": run(rlx.linalg.svd, a)},
                    goal=LARGE_GOAL, compare=same_singular_values), seconds)


def same_singular_values(a: Any, b: Any) -> None:
    """Vectors are unique only up to sign: the matrix they make is compared."""
    first, second = ((np.asarray(u) * np.asarray(s)) @ np.asarray(vh) for u, s, vh in (a, b))
    np.testing.assert_allclose(np.asarray(b[1]), np.asarray(a[1]), rtol=0, atol=1e-8)
    np.testing.assert_allclose(second, first, rtol=0, atol=1e-8)


def main(command: str, seconds: float = 2.0) -> Report:
    """All of it."""
    report = new_report("Dense linear algebra", command, ("numpy", "scipy", "scipy-openblas64"))
    for n in (4, 8, 16, 32):
        for dtype in ("float64", "float32"):
            small(report, 10_000, n, seconds, dtype)
    large(report, 1000, seconds)
    return report
