"""Call overhead: what a call costs when the work is next to nothing, against NumPy, numba and JAX where installed."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np

import rlx
from bench.harness import Case, Report, Work, new_report

#: Calls in one run: a clock read costs as much as a call.
CALLS = 100


def repeated(f: Any, *args: Any) -> Work:
    """``CALLS`` calls; gives the last result."""
    def run() -> Any:
        for _ in range(CALLS - 1):
            f(*args)
        return f(*args)
    for _ in range(3):
        run()
    return run


def compiled(report: Report, seconds: float) -> None:
    """A compiled sum of three 4 x 8 float32 arrays: guards and launch alone, and with a fresh output."""
    rng = np.random.default_rng(0)
    host = [rng.random((4, 8), np.float32) for _ in range(3)]
    mine = [rlx.asarray(a) for a in host]
    out = np.empty_like(host[0])
    f, nothing = rlx.jit(lambda a, b, c: a + b + c), rlx.jit(lambda a, b, c: ())
    report.add(Case("guards and launch, no output", {"rlx": repeated(nothing, *mine),
                                                     "rlx, numpy arrays": repeated(nothing, *host)},
                    units=CALLS, goal="150 ns", compare=lambda a, b: None), seconds)
    runs: dict[str, Work] = {"rlx": repeated(f, *mine), "rlx, numpy arrays": repeated(f, *host),
                             "numpy, two calls": repeated(lambda a, b, c: a + b + c, *host),
                             "numpy, one add with out=": repeated(np.add, host[0], host[1] + host[2], out)}
    if find_spec("numba") is not None:
        import numba
        runs["numba"] = repeated(numba.njit(lambda a, b, c: a + b + c), *host)
    if find_spec("jax") is not None:
        import jax
        runs["jax"] = repeated(jax.jit(lambda a, b, c: a + b + c), *map(jax.numpy.asarray, host))
        runs["jax, numpy arrays"] = repeated(jax.jit(lambda a, b, c: a + b + c), *host)
    report.add(Case("3 small arrays, fresh output", runs, units=CALLS, goal="400 ns"), seconds)
    tree = {"w": mine[0], "rest": (mine[1], [mine[2], 2.0])}
    g = rlx.jit(lambda p: {"a": p["w"] + p["rest"][0], "b": p["rest"][1][0] * p["rest"][1][1]})
    report.add(Case("a tree of 3 arrays and a number, two outputs", {"rlx": repeated(g, tree)}, units=CALLS), seconds)


def eager(report: Report, seconds: float, sizes: tuple[int, ...] = (10, 1000, 100_000)) -> None:
    """One-liners on float64 vectors, looked at each time."""
    rng = np.random.default_rng(1)
    for n in sizes:
        a, b = rng.random(n), rng.random(n)
        x, y = rlx.asarray(a), rlx.asarray(b)
        report.add(Case(f"float((x + y * 2).sum()), {n} elements",
                        {"rlx": repeated(lambda x=x, y=y: float((x + y * 2).sum())),
                         "numpy": repeated(lambda a=a, b=b: float((a + b * 2).sum()))},
                        units=CALLS, goal="3x the time of numpy" if n == 1000 else ""), seconds)
        report.add(Case(f"exp(x).mean().item(), {n} elements",
                        {"rlx": repeated(lambda x=x: rlx.exp(x).mean().item()),
                         "numpy": repeated(lambda a=a: np.exp(a).mean().item())}, units=CALLS), seconds)


def main(command: str, seconds: float = 2.0) -> Report:
    """Both."""
    report = new_report("Call overhead", command, ("numba", "jax"))
    compiled(report, seconds)
    eager(report, seconds)
    return report
