"""Fourier transforms against SciPy (with its threads), NumPy and JAX."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import scipy.fft

import rlx
import rlx.fft
from bench.harness import Case, Report, new_report

#: (kind, dtype, shape); the transform is along the last axis, or over both axes of fft2.
ROWS = (
    *[("fft", "complex64", (n,)) for n in (256, 4096, 65_536, 1 << 20)],
    ("fft", "complex128", (65_536,)),
    ("fft", "complex64", (1024, 256)), ("fft", "complex64", (1024, 1000)), ("fft", "complex64", (64, 1009)),
    ("rfft", "float32", (1024, 1024)), ("irfft", "complex64", (1024, 513)),
    ("fft2", "complex64", (1024, 1024)),
)


def case(kind: str, dtype: str, shape: tuple[int, ...]) -> Case:
    """One row."""
    rng = np.random.default_rng(0)
    host = rng.standard_normal(shape).astype(dtype)
    if dtype.startswith("complex"):
        host = (host + 1j * rng.standard_normal(shape)).astype(dtype)
    own, compiled = rlx.asarray(host), rlx.jit(getattr(rlx.fft, kind))
    threads = len(os.sched_getaffinity(0))
    runs: dict[str, Callable[[], Any]] = {
        "rlx": lambda: compiled(own),
        "scipy": lambda: getattr(scipy.fft, kind)(host, workers=threads),
        "numpy": lambda: getattr(np.fft, kind)(host),
    }
    if find_spec("jax") is not None and dtype != "complex128":
        import jax
        import jax.numpy as jnp
        g, theirs = jax.jit(getattr(jnp.fft, kind)), jnp.asarray(host)
        runs["jax"] = lambda: g(theirs).block_until_ready()
    length = math.prod(shape) if kind == "fft2" else shape[-1]
    flops = 5.0 * math.prod(shape) * math.log2(max(length, 2)) * (0.5 if kind.endswith("rfft") else 1.0)
    return Case(f"{kind}, {dtype}, {'x'.join(map(str, shape))}", runs, flops=flops, goal="scipy", compare=_agree)


def _agree(want: Any, got: Any) -> None:
    want, got = np.asarray(want), np.asarray(got)
    assert np.abs(got - want).max() <= 2e-5 * np.abs(want).max()


def main(command: str, seconds: float = 1.0) -> Report:
    """All rows."""
    report = new_report("Fourier transforms", command, ("jax",))
    for row in ROWS:
        report.add(case(*row), seconds)
    return report
