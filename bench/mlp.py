"""Training a 784-128-10 network with plain gradient descent, against NumPy, and JAX and PyTorch where installed.

Every run is one epoch: it starts from the same weights and takes the same batches in the same order; the mean loss of
the epoch is what peers must agree on. One unit of work is one picture.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np

import rlx
from bench.harness import Case, Report, new_report
from rlx import nn

SIZES = (784, 128, 10)
RATE = 0.1
#: Operations a picture: both layers forward, both weight gradients, and the gradient of the hidden layer.
FLOPS = 4 * SIZES[0] * SIZES[1] + 6 * SIZES[1] * SIZES[2]
Weights = list[np.ndarray]


def problem(count: int) -> tuple[np.ndarray, np.ndarray, Weights]:
    """Pictures, labels and first weights (out, in), float32."""
    rng = np.random.default_rng(1)
    x, y = rng.random((count, SIZES[0]), dtype=np.float32), rng.integers(0, SIZES[2], count).astype(np.int32)
    a, b = (rng.standard_normal((o, i), dtype=np.float32) * np.float32(np.sqrt(2 / i))
            for i, o in ((SIZES[0], SIZES[1]), (SIZES[1], SIZES[2])))
    return x, y, [a, np.zeros(SIZES[1], np.float32), b, np.zeros(SIZES[2], np.float32)]


def with_rlx(x: Any, y: Any, w: Weights, batch: int) -> Callable[[], Any]:
    """The loop is inside the program."""
    model = nn.Sequential.of(nn.Linear(rlx.asarray(w[0]), rlx.asarray(w[1])), nn.relu,
                             nn.Linear(rlx.asarray(w[2]), rlx.asarray(w[3])))
    opt = nn.SGD(RATE)
    run = nn.trainer(lambda model, x, y: nn.cross_entropy(model(x), y), opt)
    state, data, order = nn.start(model, opt), (rlx.asarray(x), rlx.asarray(y)), rlx.asarray(nn.batches(len(x), batch))
    rlx.eval(state, data, order)

    def epoch() -> Any:
        new, losses = run(state, data, order)
        rlx.eval(new)
        return np.asarray(losses).mean()
    return epoch


def with_numpy(x: Any, y: Any, w: Weights, batch: int) -> Callable[[], Any]:
    """The formulas by hand."""
    def epoch() -> Any:
        w1, b1, w2, b2 = (np.array(v.T, order="C") for v in w)
        losses = []
        for i in range(0, len(x) - batch + 1, batch):
            xb, yb = x[i:i + batch], y[i:i + batch]
            h = np.maximum(xb @ w1 + b1, 0)
            z = h @ w2 + b2
            z -= z.max(1, keepdims=True)
            p = np.exp(z)
            total = p.sum(1, keepdims=True)
            rows = np.arange(batch)
            losses.append((np.log(total[:, 0]) - z[rows, yb]).mean())
            p /= total
            p[rows, yb] -= 1
            p *= np.float32(RATE / batch)
            dh = (p @ w2.T) * (h > 0)
            w2 -= h.T @ p
            b2 -= p.sum(0)
            w1 -= xb.T @ dh
            b1 -= dh.sum(0)
        return np.mean(losses)
    return epoch


def with_jax(x: Any, y: Any, w: Weights, batch: int) -> Callable[[], Any]:
    """``jit`` of a ``lax.scan`` over the batches."""
    import jax
    import jax.numpy as jnp

    def loss(w: Any, x: Any, y: Any) -> Any:
        z = jax.nn.relu(x @ w[0].T + w[1]) @ w[2].T + w[3]
        return (jax.nn.logsumexp(z, -1) - jnp.take_along_axis(z, y[:, None], 1)[:, 0]).mean()

    def step(w: Any, rows: Any) -> Any:
        value, g = jax.value_and_grad(loss)(w, xs[rows], ys[rows])
        return jax.tree.map(lambda a, b: a - RATE * b, w, g), value
    xs, ys, first, order = (jax.tree.map(jnp.asarray, v) for v in (x, y, list(w), nn.batches(len(x), batch)))
    run = jax.jit(lambda w, order: jax.lax.scan(step, w, order))
    return lambda: np.asarray(jax.block_until_ready(run(first, order))[1]).mean()


def with_torch(x: Any, y: Any, w: Weights, batch: int) -> Callable[[], Any]:
    """Eager autograd and ``torch.optim.SGD``."""
    import torch
    xs, ys, first = torch.from_numpy(x), torch.from_numpy(y).long(), [torch.from_numpy(v) for v in w]

    def epoch() -> Any:
        weights = [v.clone().requires_grad_() for v in first]
        opt, losses = torch.optim.SGD(weights, RATE), []
        for i in range(0, len(x) - batch + 1, batch):
            h = torch.relu(torch.nn.functional.linear(xs[i:i + batch], weights[0], weights[1]))
            value = torch.nn.functional.cross_entropy(torch.nn.functional.linear(h, *weights[2:]), ys[i:i + batch])
            opt.zero_grad()
            value.backward()
            opt.step()
            losses.append(value.detach())
        return torch.stack(losses).mean().item()
    return epoch


def peers() -> dict[str, Callable[..., Callable[[], Any]]]:
    """rlx, NumPy, and what is installed."""
    found: dict[str, Any] = {"rlx": with_rlx, "numpy": with_numpy}
    found |= {n: f for n, f in (("jax", with_jax), ("torch", with_torch)) if importlib.util.find_spec(n)}
    return found


def gemm_rate(n: int = 1024) -> float:
    """float32 GFLOP/s of NumPy's matrix product: the best of ten."""
    a = np.ones((n, n), np.float32)
    best = 0.0
    for _ in range(10):
        start = perf_counter()
        a @ a
        best = max(best, 2 * n**3 / (perf_counter() - start) / 1e9)
    return best


def main(command: str, seconds: float = 2.0, count: int = 16384) -> Report:
    """Batches of 64, 128 and 512."""
    report = new_report("Training a 784-128-10 network", command, ("jax", "torch"))
    report.limits["GFLOP/s"] = gemm_rate()
    x, y, w = problem(count)
    for batch in (64, 128, 512):
        runs = {name: make(x, y, w, batch) for name, make in peers().items()}
        report.add(Case(f"a picture, batch {batch}", runs, units=count // batch * batch, flops=FLOPS, rtol=1e-4,
                        goal="at or below every peer"), seconds)
    return report
