"""Loops inside kernels and the price of a gradient: Lorenz trajectories, Mandelbrot, and a three-layer perceptron.

The peers of the Lorenz ensemble are NumPy, vectorized over trajectories, and ``jax.jit`` of ``lax.scan``; those of the
picture NumPy and a numba ``prange`` kernel. One unit of work is one step of all trajectories, or one picture. The price
of a gradient is not timed but counted: generated kernels and native calls, and the bytes that they read and write.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

import rlx
from bench.harness import Case, Report, new_report
from rlx import nn
from rlx.ir import loop as L

SIGMA, RHO, BETA, STEP = 10.0, 28.0, 8 / 3, 0.005
#: 9 operations a derivative, four of them a step; 3 x 3 numbers of 2 operations between, 3 sums of 8 at the end.
FLOPS = 4 * 9 + 3 * 3 * 2 + 3 * 8
LIMIT = 200
State = tuple[Any, Any, Any]


# Lorenz

def slope(s: Sequence[Any], f: Callable[[float], Any] = float) -> State:
    """The Lorenz system."""
    x, y, z = s
    return f(SIGMA) * (y - x), x * (f(RHO) - z) - y, x * y - f(BETA) * z


def rk4(s: Sequence[Any], f: Callable[[float], Any] = float) -> State:
    """One step of the classical Runge-Kutta method."""
    def along(k: Sequence[Any], h: float) -> list[Any]:
        return [a + f(h) * b for a, b in zip(s, k, strict=True)]
    a = slope(s, f)
    b = slope(along(a, STEP / 2), f)
    c = slope(along(b, STEP / 2), f)
    d = slope(along(c, STEP), f)
    x, y, z = (v + f(STEP / 6) * (p + f(2.0) * q + f(2.0) * r + t) for v, p, q, r, t in zip(s, a, b, c, d, strict=True))
    return x, y, z


def first_states(count: int) -> State:
    """Starting points, float32."""
    rng = np.random.default_rng(2)
    x, y, z = rng.standard_normal((3, count)).astype(np.float32)
    return x, y, z


def lorenz_rlx(states: State, steps: int) -> Callable[[], Any]:
    """``vmap`` of a ``scan`` over one trajectory."""
    run = rlx.jit(rlx.vmap(lambda *s: rlx.scan(lambda s, _: (rk4(s), None), s, None, length=steps)[0]))
    arrays = [rlx.asarray(s) for s in states]

    def work() -> Any:
        out = run(*arrays)
        rlx.eval(out)
        return np.stack([np.asarray(o) for o in out])
    return work


def lorenz_numpy(states: State, steps: int) -> Callable[[], Any]:
    """A Python loop over steps of whole arrays."""
    def work() -> Any:
        s: State = states
        for _ in range(steps):
            s = rk4(s, np.float32)
        return np.stack(s)
    return work


def lorenz_jax(states: State, steps: int) -> Callable[[], Any]:
    """``jax.jit`` of a ``lax.scan`` over whole arrays."""
    import jax
    arrays = tuple(map(jax.numpy.asarray, states))
    run = jax.jit(lambda s: jax.lax.scan(lambda s, _: (rk4(s), None), s, None, length=steps)[0])
    return lambda: np.stack([np.asarray(o) for o in jax.block_until_ready(run(arrays))])


def lorenz(count: int = 100_000, steps: int = 1000) -> Case:
    """An ensemble; the attractor doubles differences every 0.8 time units, so that peers are compared loosely."""
    states = first_states(count)
    runs = {"rlx": lorenz_rlx(states, steps), "numpy": lorenz_numpy(states, steps)}
    if importlib.util.find_spec("jax"):
        runs["jax"] = lorenz_jax(states, steps)

    def compare(a: Any, b: Any) -> None:
        # Single trajectories part after some time; what the ensemble does as a whole stays.
        np.testing.assert_allclose(a.mean(1), b.mean(1), atol=0.3)
        np.testing.assert_allclose(a.std(1), b.std(1), rtol=0.02)
    return Case(f"Lorenz, {count} trajectories, a step", runs, steps, flops=count * FLOPS, compare=compare,
                goal="numpy at least 10, jax at least 1.5")


# Mandelbrot

def corners(n: int, dtype: Any) -> tuple[Any, Any]:
    """Real and imaginary parts along the sides of the picture."""
    return np.linspace(-2, 0.6, n).astype(dtype), np.linspace(-1.3, 1.3, n).astype(dtype)


def escape(re: Any, im: Any) -> Any:
    """Iterations until one point escapes."""
    def go(s: Any) -> Any:
        return (s[0] * s[0] + s[1] * s[1] < 4) & (s[2] < LIMIT)

    def step(s: Any) -> Any:
        return s[0] * s[0] - s[1] * s[1] + re, 2 * s[0] * s[1] + im, s[2] + 1
    return rlx.while_loop(go, step, (re * 0, im * 0, rlx.asarray(0, dtype=rlx.int32)))[2]


def mandelbrot_rlx(re: Any, im: Any) -> Callable[[], Any]:
    """``vmap`` twice of one point's loop."""
    run = rlx.jit(rlx.vmap(rlx.vmap(escape, (0, None)), (None, 0)))
    a, b = rlx.asarray(re), rlx.asarray(im)
    return lambda: np.asarray(run(a, b))


def mandelbrot_numpy(re: Any, im: Any) -> Callable[[], Any]:
    """Whole arrays, with a mask of the points that go on."""
    def work() -> Any:
        x, y = np.zeros((len(im), len(re)), re.dtype), np.zeros((len(im), len(re)), re.dtype)
        count = np.zeros(x.shape, np.int32)
        for _ in range(LIMIT):
            on = x * x + y * y < 4
            x, y = np.where(on, x * x - y * y + re, x), np.where(on, 2 * x * y + im[:, None], y)
            count += on
        return count
    return work


def mandelbrot_numba(re: Any, im: Any) -> Callable[[], Any]:
    """A loop for each point, rows in parallel."""
    import numba

    @numba.njit(parallel=True)
    def picture(re: Any, im: Any, out: Any, limit: int) -> None:
        for i in numba.prange(len(im)):
            for j in range(len(re)):
                x, y, n = re[j] * 0, im[i] * 0, 0
                while x * x + y * y < 4 and n < limit:
                    x, y, n = x * x - y * y + re[j], 2 * x * y + im[i], n + 1
                out[i, j] = n

    def work() -> Any:
        out = np.empty((len(im), len(re)), np.int32)
        picture(re, im, out, LIMIT)
        return out
    return work


def mandelbrot(n: int = 1024, dtype: Any = np.float64) -> Case:
    """A picture; where products round differently a few points count differently."""
    re, im = corners(n, dtype)
    runs = {"rlx": mandelbrot_rlx(re, im), "numpy": mandelbrot_numpy(re, im)}
    if importlib.util.find_spec("numba"):
        runs["numba"] = mandelbrot_numba(re, im)

    def compare(a: Any, b: Any) -> None:
        assert (a != b).mean() < 0.01, f"{(a != b).sum()} points differ"
    return Case(f"Mandelbrot {n} x {n}, {np.dtype(dtype).name}", runs, compare=compare,
                goal="numpy at least 20, numba at least 0.77")


# The price of a gradient

def traffic(program: L.Program) -> tuple[int, int]:
    """Kernels and calls of a program without loops, and the bytes that they read and write."""
    size = {b.name: b.nbytes for b in program.buffers}
    moved = 0
    for s in program.steps:
        match s:
            case L.Launch():
                moved += sum(size[b] * (2 if p.access == "rw" else 1)
                             for p, b in zip(s.kernel.params, s.buffers, strict=True))
            case L.Native():
                moved += sum(size[b] for b in s.buffers)
            case L.Copy():
                moved += 2 * size[s.dst]
            case _:
                raise AssertionError("a step that is a loop or a branch")
    return len(program.steps), moved


def perceptron(layers: Sequence[tuple[Any, Any]], x: Any, y: Any) -> Any:
    """The loss of a perceptron with rectified layers."""
    for w, b in layers[:-1]:
        x = nn.relu(x @ w + b)
    w, b = layers[-1]
    return nn.cross_entropy(x @ w + b, y)


def price(widths: Sequence[int] = (784, 256, 128, 10), batch: int = 128, device: str = "cpu") -> tuple[float, float]:
    """Kernels and bytes of the gradient, as multiples of the forward pass."""
    rng = np.random.default_rng(0)
    layers = [(rlx.asarray(rng.standard_normal((a, b), dtype=np.float32), device=device),
               rlx.asarray(np.zeros(b, np.float32), device=device)) for a, b in pairwise(widths)]
    x = rlx.asarray(rng.random((batch, widths[0]), dtype=np.float32), device=device)
    y = rlx.asarray(rng.integers(0, widths[-1], batch).astype(np.int32), device=device)
    forward, gradient = (traffic(rlx.jit(f, device=device).lower(layers, x, y).lowered.program)
                         for f in (perceptron, rlx.grad(perceptron)))
    return gradient[0] / forward[0], gradient[1] / forward[1]


def main(command: str, seconds: float = 2.0) -> Report:
    """Both loops; the price of a gradient is in the facts."""
    report = new_report("Loops in kernels, and the price of a gradient", command, ("jax", "numba"))
    for widths, batch in (((784, 256, 128, 10), 128), ((256, 256, 256, 10), 256)):
        kernels, moved = price(widths, batch)
        name = "-".join(map(str, widths))
        report.machine[f"gradient of {name}, batch {batch}"] = f"{kernels:.2f}x kernels, {moved:.2f}x bytes"
    report.add(lorenz(), seconds)
    for dtype in (np.float64, np.float32):
        report.add(mandelbrot(dtype=dtype), seconds)
    return report
