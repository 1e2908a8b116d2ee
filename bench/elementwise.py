"""Elementwise chains and reductions in f32, each against NumPy, numba's parallel loops, JAX and PyTorch eager."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np

import rlx
from bench.harness import Case, Report, bandwidth, new_report

#: Elements of an array: 64 MiB in f32, beyond the caches of any desktop.
N = 1 << 24
ROWS, COLUMNS = 8192, 1024


@dataclass(frozen=True)
class Work:
    """One row: the function over a namespace, how many arrays it takes, and the elements it writes per element read."""

    name: str
    f: Callable[..., Any]
    arrays: int
    matrix: bool = False
    writes: float = 1.0
    numba: Callable[..., Any] | None = None


def _gelu(np_: Any, x: Any) -> Any:
    return 0.5 * x * (1 + np_.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


def _softmax(np_: Any, x: Any) -> Any:
    e = np_.exp(x - _keep(np_, x, "max"))
    return e / _keep(np_, e, "sum")


def _layernorm(np_: Any, x: Any) -> Any:
    d = x - _keep(np_, x, "mean")
    return d / np_.sqrt(_keep(np_, d * d, "mean") + 1e-5)


def _keep(np_: Any, x: Any, kind: str) -> Any:
    """A reduction of rows that keeps the axis, in the spelling of each library."""
    if np_.__name__ == "torch":
        return getattr(np_, "amax" if kind == "max" else kind)(x, dim=1, keepdim=True)
    return getattr(np_, kind)(x, axis=1, keepdims=True)


def _axis(np_: Any, x: Any, kind: str, axis: int) -> Any:
    if np_.__name__ == "torch":
        return getattr(np_, "amax" if kind == "max" else kind)(x, dim=axis)
    return getattr(np_, kind)(x, axis=axis)


WORKS = (
    Work("x * 2 + y", lambda m, x, y: x * 2 + y, 2),
    Work("a * b + c * d - a / 3", lambda m, a, b, c, d: a * b + c * d - a / 3, 4),
    Work("exp", lambda m, x: m.exp(x), 1),
    Work("sin * cos", lambda m, x: m.sin(x) * m.cos(x), 1),
    Work("tanh gelu", _gelu, 1),
    Work("sqrt(x x + y y)", lambda m, x, y: m.sqrt(x * x + y * y), 2),
    Work("where(x > 0, x, 0.1 x)", lambda m, x: m.where(x > 0, x, x * 0.1), 1),
    Work("sum", lambda m, x: m.sum(x), 1, writes=0.0),
    Work("sum((x - y)^2)", lambda m, x, y: m.sum((x - y) * (x - y)), 2, writes=0.0),
    Work("sum of rows", lambda m, x: _axis(m, x, "sum", 1), 1, matrix=True, writes=0.0),
    Work("sum of columns", lambda m, x: _axis(m, x, "sum", 0), 1, matrix=True, writes=0.0),
    Work("max of rows", lambda m, x: _axis(m, x, "max", 1), 1, matrix=True, writes=0.0),
    Work("softmax of rows", _softmax, 1, matrix=True),
    Work("layernorm of rows", _layernorm, 1, matrix=True),
    Work("x + x.T", lambda m, x: x + x.T, 1, matrix=True),
)


def _numba(w: Work) -> Callable[..., Any] | None:
    """A parallel loop that numba compiles, written as one would by hand."""
    if find_spec("numba") is None:
        return None
    import numba
    from numba import njit, prange
    body = {
        "x * 2 + y": "out[i] = x[i] * two + y[i]",
        "a * b + c * d - a / 3": "out[i] = x[i] * y[i] + z[i] * w[i] - x[i] / three",
        "exp": "out[i] = math.exp(x[i])",
        "sin * cos": "out[i] = math.sin(x[i]) * math.cos(x[i])",
        "tanh gelu": "v = x[i]; out[i] = half * v * (one + math.tanh(c1 * (v + c2 * v * v * v)))",
        "sqrt(x x + y y)": "out[i] = math.sqrt(x[i] * x[i] + y[i] * y[i])",
        "where(x > 0, x, 0.1 x)": "out[i] = x[i] if x[i] > zero else x[i] * tenth",
        "sum": "total += x[i]",
        "sum((x - y)^2)": "d = x[i] - y[i]; total += d * d",
    }.get(w.name)
    if body is None:
        return None
    names = ("x", "y", "z", "w")[:w.arrays]
    total = "total" in body
    numbers = {"two": 2, "three": 3, "half": 0.5, "one": 1, "zero": 0, "tenth": 0.1, "c1": 0.7978845608,
               "c2": 0.044715}
    lines = [f"def f({', '.join(names)}, out):"]
    lines.append("    total = np.float32(0)" if total else "    n = out.size")
    lines.append(f"    for i in prange({'x.size' if total else 'n'}):")
    lines.extend(f"        {part.strip()}" for part in body.split(";"))
    lines.append("    return total" if total else "    return out")
    space: dict[str, Any] = {"np": np, "math": math, "prange": prange,
                             **{k: np.float32(v) for k, v in numbers.items()}}
    exec("\n".join(lines), space)
    made = njit(parallel=True, fastmath=total)(space["f"])
    numba.set_num_threads(min(numba.config.NUMBA_NUM_THREADS, len(os.sched_getaffinity(0))))
    return made


def case(w: Work) -> Case:
    """The row of one work."""
    rng = np.random.default_rng(0)
    shape: tuple[int, ...] = (ROWS, COLUMNS) if w.matrix else (N,)
    if w.name == "x + x.T":
        shape = (4096, 4096)
    hosts = [rng.uniform(-2, 2, shape).astype(np.float32) for _ in range(w.arrays)]
    runs: dict[str, Callable[[], Any]] = {}
    f = rlx.jit(lambda *a: w.f(rlx, *a))
    own = [rlx.asarray(h) for h in hosts]
    runs["rlx"] = lambda: f(*own)
    runs["numpy"] = lambda: w.f(np, *hosts)
    loop = _numba(w)
    if loop is not None:
        out = np.empty(shape, np.float32)
        runs["numba"] = lambda: loop(*hosts, out)
    if find_spec("jax") is not None:
        import jax
        import jax.numpy as jnp
        g = jax.jit(lambda *a: w.f(jnp, *a))
        theirs = [jnp.asarray(h) for h in hosts]
        runs["jax"] = lambda: g(*theirs).block_until_ready()
    if find_spec("torch") is not None:
        import torch
        tensors = [torch.from_numpy(h) for h in hosts]
        runs["torch eager"] = lambda: w.f(torch, *tensors)
    size = math.prod(shape) * 4
    return Case(f"{w.name}, {'x'.join(map(str, shape))}", runs, bytes=size * (w.arrays + w.writes), rtol=3e-4,
                goal="numba, jax; 2x torch eager", compare=_agree)


def _agree(want: Any, got: Any) -> None:
    want, got = np.asarray(want, np.float64), np.asarray(got, np.float64)
    scale = float(np.abs(want).max())
    assert np.abs(got - want).max() <= 3e-4 * scale, f"they differ by {np.abs(got - want).max():.2g} of {scale:.2g}"


def main(command: str, seconds: float = 1.5) -> Report:
    """All rows."""
    report = new_report("Elementwise functions and reductions, f32", command, ("numba", "jax", "torch"))
    report.limits["bandwidth GB/s"] = bandwidth()
    for w in WORKS:
        report.add(case(w), seconds)
    return report
