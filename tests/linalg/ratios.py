"""Residuals as LAPACK's own test suite measures them: norms over ``n * eps * |A|``, which a good code keeps small."""

from __future__ import annotations

from typing import Any

import numpy as np

DTYPES = ("float32", "float64", "complex64", "complex128")
#: The threshold of LAPACK's tests (the THRESH of its input files is 30 for most of them).
THRESHOLD = 30.0


def adjoint(x: Any) -> Any:
    return np.swapaxes(x, -1, -2).conj()


def ratio(residual: Any, a: Any) -> float:
    """The largest ``|residual|_1 / (n |A|_1 eps)`` over the batch."""
    size = np.maximum(np.abs(a).sum(-2).max(-1), np.finfo(a.dtype).tiny / np.finfo(a.dtype).eps)
    n = max(a.shape[-2:])
    return float(np.max(np.abs(residual).sum(-2).max(-1) / (n * size * np.finfo(a.dtype).eps)))


def unitarity(q: Any) -> float:
    """``|I - Q^H Q|_1 / (n eps)``."""
    n = q.shape[-2]
    gap = adjoint(q) @ q - np.eye(q.shape[-1])
    return float(np.max(np.abs(gap).sum(-2).max(-1)) / (n * np.finfo(q.dtype).eps))


def matrices(m: int, n: int, dtype: str) -> dict[str, Any]:
    """Matrices with a name: random, graded, near-singular, structured."""
    rng = np.random.default_rng(m * 100 + n)

    def normal(*shape: int) -> Any:
        x = rng.standard_normal(shape)
        return (x + 1j * rng.standard_normal(shape) if np.dtype(dtype).kind == "c" else x).astype(dtype)
    k = min(m, n)
    q, p = np.linalg.qr(normal(m, k))[0], np.linalg.qr(normal(n, k))[0]
    eps = np.finfo(dtype).eps
    spread = np.logspace(0, np.log10(eps), k)
    i = np.arange(max(m, n), dtype=float)
    return {
        "random batch": normal(3, m, n),
        "graded rows": normal(m, n) * np.logspace(0, -6, m).astype(dtype)[:, None],
        "graded columns": normal(m, n) * np.logspace(0, -6, n).astype(dtype),
        "near-singular": ((q * spread.astype(dtype)) @ adjoint(p)).astype(dtype),
        "hilbert": (1 / (i[:m, None] + i[:n] + 1)).astype(dtype),
        "banded": np.triu(np.tril(normal(m, n), 1), -1),
        "large": normal(m, n) * np.sqrt(np.finfo(dtype).max).astype(dtype) / 10,
        "small": normal(m, n) * np.sqrt(np.finfo(dtype).tiny).astype(dtype) * 10,
    }
