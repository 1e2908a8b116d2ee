"""Sorting, sorted places, and running sums against NumPy, JAX and PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np

import rlx
from bench.harness import Case, Report, bandwidth, new_report

#: name -> (function of a namespace and an array, in each library's spelling)
WORKS: dict[str, Callable[[Any, Any], Any]] = {
    "sort": lambda m, x: m.sort(x)[0] if m.__name__ == "torch" else m.sort(x),
    "stable argsort": lambda m, x: m.argsort(x, stable=True) if m.__name__ in ("torch", "jax.numpy", "rlx")
    else m.argsort(x, kind="stable"),
    "cumulative sum": lambda m, x: m.cumsum(x, 0) if m.__name__ == "torch" else m.cumsum(x),
}
SIZES = ((1_000,), (100_000,), (4_000_000,), (2_000, 1_000))


def case(name: str, dtype: str, shape: tuple[int, ...]) -> Case:
    """One row; matrices are sorted by rows."""
    f = WORKS[name]
    host = (np.random.default_rng(0).standard_normal(shape) * 1e6).astype(dtype)
    own, compiled = rlx.asarray(host), rlx.jit(lambda x: f(rlx, x))
    runs: dict[str, Callable[[], Any]] = {"rlx": lambda: compiled(own), "numpy": lambda: f(np, host)}
    if find_spec("jax") is not None and dtype not in ("float64", "int64"):
        import jax
        import jax.numpy as jnp
        g, theirs = jax.jit(lambda x: f(jnp, x)), jnp.asarray(host)
        runs["jax"] = lambda: g(theirs).block_until_ready()
    if find_spec("torch") is not None:
        import torch
        tensor = torch.from_numpy(host)
        runs["torch eager"] = lambda: f(torch, tensor)
    moved = host.nbytes * 2.0 if name == "cumulative sum" else 0.0
    return Case(f"{name}, {dtype}, {'x'.join(map(str, shape))}", runs, bytes=moved, rtol=1e-2 if moved else 0.0,
                goal="the fastest", compare=_near if moved else None)


def _near(want: Any, got: Any) -> None:
    """Running sums agree within the rounding of the largest partial sum."""
    want, got = np.asarray(want, np.float64), np.asarray(got, np.float64)
    assert np.abs(want - got).max() <= 1e-3 * np.abs(want).max()


def main(command: str, seconds: float = 1.0) -> Report:
    """All rows."""
    report = new_report("Sorting and running sums", command, ("jax", "torch"))
    report.limits["bandwidth GB/s"] = bandwidth()
    for name in ("sort", "stable argsort"):
        for dtype in ("float32", "float64", "int32", "int64"):
            for shape in SIZES:
                report.add(case(name, dtype, shape), seconds)
    for dtype in ("float32", "float64"):
        for shape in SIZES[:3]:
            report.add(case("cumulative sum", dtype, shape), seconds)
    return report
