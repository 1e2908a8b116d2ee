"""Dense factorizations of four kinds of matrices, each measured by the ratio that LAPACK's own tests use.

The ratio of a factorization is its error in units of rounding: ``|A - product| / (n |A| eps)``, 1-norms. LAPACK's tests
pass below 30.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import rlx
import rlx.linalg
from rlx.core.files import replacing
from rlx.tools.demo.setting import Setting

#: LAPACK's threshold of its test ratios.
THRESHOLD = 30.0
SIZE = 96
Wide = np.ndarray[Any, Any]


def matrices(n: int, seed: int = 0) -> dict[str, Wide]:
    """Random, graded over 12 orders, near singular (condition 1e14), and symmetric positive definite."""
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((n, n))
    q, _ = np.linalg.qr(rng.standard_normal((n, n)))
    grade = np.logspace(0, -12, n)
    return {
        "random": a,
        "graded": grade[:, None] * a,
        "near singular": (q * np.logspace(0, -14, n)) @ np.linalg.qr(a)[0],
        "positive definite": a @ a.T / n + np.eye(n),
    }


def main(setting: Setting) -> bool:
    """Factorize, print the table and keep it: true when every ratio is below LAPACK's threshold."""
    n, eps = SIZE, float(rlx.finfo(setting.dtype).eps)
    lines = [f"| {'matrix':17} | {' | '.join(f'{k:>8}' for k in KINDS)} |", f"|---|{'---|' * len(KINDS)}"]
    worst = 0.0
    for name, a in matrices(n).items():
        cells = []
        for kind in KINDS:
            if kind == "cholesky" and name != "positive definite":
                cells.append(f"{'':>8}")
                continue
            ratio = measure(kind, a + a.T if kind == "eigh" else a, setting, eps)
            worst = max(worst, ratio)
            cells.append(f"{ratio:8.2g}")
        lines.append(f"| {name:17} | {' | '.join(cells)} |")
    text = "\n".join(lines)
    print(f"{text}\n|A - product| / (n |A| eps) of {n} x {n} {setting.dtype.name} matrices; LAPACK's tests pass below "
          f"{THRESHOLD:.0f}")
    with replacing(setting.out / "factorizations.md") as file:
        file.write(f"Test ratios of {n} x {n} {setting.dtype.name} matrices on {setting.device}\n\n{text}\n".encode())
    setting.show(rlx.explain(KINDS["svd"][0], rlx.zeros((n, n), dtype=setting.dtype, device=setting.device),
                             device=setting.device), "the program of svd")
    return worst < THRESHOLD


def measure(kind: str, a: Wide, setting: Setting, eps: float) -> float:
    """The test ratio of one factorization, its product taken in float64."""
    factorize, product = KINDS[kind]
    x = rlx.asarray(a, dtype=setting.dtype, device=setting.device)
    held = np.asarray(x).astype(np.float64)
    parts = [np.asarray(p).astype(np.float64) for p in factorize(x)]
    found = np.abs(held - product(*parts)).sum(axis=0).max()
    return float(found / (len(a) * np.abs(held).sum(axis=0).max() * eps))


def _cholesky(x: rlx.Array) -> tuple[rlx.Array, ...]:
    return (rlx.linalg.cholesky(x),)


#: kind -> (the factors, their product)
KINDS: dict[str, tuple[Callable[[Any], Any], Callable[..., Wide]]] = {
    "cholesky": (_cholesky, lambda c: c @ c.T),
    "lu": (lambda x: rlx.linalg.lu(x), lambda p, lower, upper: p @ lower @ upper),
    "qr": (lambda x: rlx.linalg.qr(x), lambda q, r: q @ r),
    "svd": (lambda x: rlx.linalg.svd(x), lambda u, s, vh: (u * s) @ vh),
    "eigh": (lambda x: rlx.linalg.eigh(x), lambda w, v: (v * w) @ v.T),
}
