"""Matrix products in f32 at the shapes of MiniLM and of a small network, against NumPy, PyTorch and JAX.

Rows name m x n x k: ``x (m, k) @ w (k, n)``, with the weight as (n, k) in "x @ w.T", and with a bias and GELU after it.
The roofline is rlx's own multiply-add peak, measured on a product whose operands stay in the first-level cache.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from time import perf_counter
from typing import Any

import numpy as np

import rlx
from bench.harness import Case, Report, new_report
from rlx import nn

#: (m, n, k): MiniLM's layers at 16, 128 and 1024 tokens, and the two layers of an MNIST-sized network.
SHAPES = ((16, 384, 384), (16, 1536, 384), (128, 384, 384), (128, 1536, 384), (128, 384, 1536), (1024, 1536, 384),
          (64, 128, 784), (128, 128, 784), (512, 128, 784), (512, 512, 512), (2, 512, 512), (64, 64, 64))
FORMS = ("x @ w", "x @ w.T", "gelu(x @ w.T + b)")


def peak() -> float:
    """GFlop/s of multiply-adds: the best of many small products, repeated inside one program."""
    a = rlx.asarray(np.full((96, 256), 1e-3, np.float32))
    w = rlx.asarray(np.full((256, 256), 1e-3, np.float32))
    steps = 200
    f = rlx.jit(lambda a, w: rlx.scan(lambda x, _: (x @ w, x[0, 0]), a, rlx.arange(steps))[0], dispatch="common")
    best = 0.0
    for _ in range(10):
        start = perf_counter()
        np.asarray(f(a, w))
        best = max(best, 2 * 96 * 256 * 256 * steps / (perf_counter() - start) / 1e9)
    return best


def _rlx(form: str, x: np.ndarray, w: np.ndarray, b: np.ndarray) -> Callable[[], Any]:
    f = rlx.jit({"x @ w": lambda x, w, b: x @ w, "x @ w.T": lambda x, w, b: x @ w.T,
                 "gelu(x @ w.T + b)": lambda x, w, b: nn.gelu(x @ w.T + b)}[form])
    args = tuple(map(rlx.asarray, (x, w, b)))
    return lambda: np.asarray(f(*args))


def _numpy(form: str, x: np.ndarray, w: np.ndarray, b: np.ndarray) -> Callable[[], Any]:
    from scipy.special import erf
    half = np.float32(np.sqrt(0.5))

    def gelu(z: np.ndarray) -> Any:
        return 0.5 * z * (1 + erf(z * half))
    return {"x @ w": lambda: x @ w, "x @ w.T": lambda: x @ w.T, "gelu(x @ w.T + b)": lambda: gelu(x @ w.T + b)}[form]


def _torch(form: str, x: np.ndarray, w: np.ndarray, b: np.ndarray) -> Callable[[], Any]:
    import torch
    a, v, c = map(torch.from_numpy, (x, w, b))
    linear, gelu = torch.nn.functional.linear, torch.nn.functional.gelu
    return {"x @ w": lambda: (a @ v).numpy(), "x @ w.T": lambda: linear(a, v).numpy(),
            "gelu(x @ w.T + b)": lambda: gelu(linear(a, v, c)).numpy()}[form]


def _jax(form: str, x: np.ndarray, w: np.ndarray, b: np.ndarray) -> Callable[[], Any]:
    import jax
    args = tuple(map(jax.numpy.asarray, (x, w, b)))
    f = jax.jit({"x @ w": lambda x, w, b: x @ w, "x @ w.T": lambda x, w, b: x @ w.T,
                 "gelu(x @ w.T + b)": lambda x, w, b: jax.nn.gelu(x @ w.T + b, approximate=False)}[form])
    return lambda: np.asarray(f(*args))


def main(command: str, seconds: float = 0.6) -> Report:
    """Every shape in every form."""
    report = new_report("Matrix products", command, ("torch", "jax", "scipy-openblas64"))
    report.limits["GFLOP/s"] = peak()
    peers = {"rlx": _rlx, "numpy": _numpy} | {n: f for n, f in (("torch", _torch), ("jax", _jax)) if find_spec(n)}
    rng = np.random.default_rng(0)
    for form in FORMS:
        for m, n, k in SHAPES:
            x = rng.standard_normal((m, k), dtype=np.float32)
            w = rng.standard_normal((k, n) if form == "x @ w" else (n, k), dtype=np.float32) / np.float32(k**0.5)
            b = rng.standard_normal(n, dtype=np.float32)
            runs = {name: make(form, x, w, b) for name, make in peers.items()}
            report.add(Case(f"{form}, {m} x {n} x {k}", runs, flops=2.0 * m * n * k, rtol=1e-4,
                            goal="92 % of the peak, below every peer"), seconds)
    return report
