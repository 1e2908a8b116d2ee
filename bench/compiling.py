"""Compile time: a fused elementwise kernel cold, and from the disk cache in a new process."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile

from bench.harness import Report, Row, new_report

_PROGRAM = """
import time, numpy as np, rlx
from rlx import device
device.find("cpu")
x = rlx.asarray(np.ones(4096, np.float32))
rlx.eval(x + 1)                      # opens the device, the pool and the loader
f = rlx.jit(lambda x: rlx.tanh(x * 0.5 + 1.0) * x + rlx.exp(-x * x))
g = f.trace(x).graph
from rlx.compile.pipeline import compile_graph
start = time.perf_counter()
lowered = compile_graph(g, device.find("cpu"))
middle = time.perf_counter()
device.find("cpu").load(lowered.program)
print(middle - start, time.perf_counter() - middle)
"""


def _once(cache: str) -> tuple[float, float]:
    env = {**os.environ, "RLX_CACHE_DIR": cache}
    out = subprocess.run([sys.executable, "-c", _PROGRAM], env=env, capture_output=True, text=True, check=True)
    a, b = map(float, out.stdout.split())
    return a, b


def main(command: str, repeats: int = 7) -> Report:
    """Cold and warm, each in fresh processes."""
    report = new_report("Compile time", command)
    cold, warm, middle = [], [], []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as cache:
            a, b = _once(cache)
            cold.append(a + b)
            a, b = _once(cache)
            warm.append(a + b)
            middle.append(a)
    for name, ts, goal in (("fused elementwise kernel, cold", cold, "50 ms"),
                           ("fused elementwise kernel, from disk in a new process", warm, "3 ms"),
                           ("of which graph to program, in Python", middle, "")):
        ts.sort()
        report.rows.append(Row(name, "rlx", statistics.median(ts), ts[0], ts[-1], len(ts), 1.0, None, goal))
    return report
