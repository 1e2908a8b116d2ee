"""One GPU: rlx against CuPy, PyTorch and JAX. ``python -m bench.gpu_suite [FOLDER]`` writes gpu.json and gpu.md.

Bytes are those that the work must move; ``share`` is their rate over the measured rate of a large copy.
"""

from __future__ import annotations

import inspect
import json
import platform
import statistics
import sys
import traceback
from collections.abc import Callable
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

import rlx
from rlx import device as devices

N = 1 << 28
ROW = 1024
Work = Callable[[], Any]
ROWS: list[dict[str, Any]] = []


def sync() -> None:
    import cupy
    cupy.cuda.runtime.deviceSynchronize()


def timed(f: Work, repeat: int = 15, inner: int = 1) -> tuple[float, float, float]:
    """Median, least and largest seconds of one call, the device's work included."""
    for _ in range(3):
        f()
    sync()
    out = []
    for _ in range(repeat):
        start = perf_counter()
        for _ in range(inner):
            f()
        sync()
        out.append((perf_counter() - start) / inner)
    return statistics.median(out), min(out), max(out)


def report(case: str, peers: dict[str, Work], nbytes: float, copy: float, units: float = 1.0, inner: int = 1) -> None:
    """Time each peer and keep its row; one that fails is told and left out."""
    first = None
    for peer, f in peers.items():
        try:
            median, low, high = (t / units for t in timed(f, inner=inner))
        except Exception as e:
            traceback.print_exc()
            ROWS.append({"case": case, "peer": peer, "failed": f"{type(e).__name__}: {str(e)[:150]}"})
            continue
        first = first or median
        ROWS.append({"case": case, "peer": peer, "seconds": median, "least": low, "largest": high,
                     "of rlx": median / first, "share": nbytes / units / median / copy if nbytes else None})
        print(line(ROWS[-1]), flush=True)


def line(r: dict[str, Any]) -> str:
    """One row of the table."""
    if "failed" in r:
        return f"| {r['case']} | {r['peer']} | failed: {r['failed']} | | |"
    share = f"{r['share']:.0%}" if r["share"] else ""
    return f"| {r['case']} | {r['peer']} | {r['seconds'] * 1e6:.1f} us | {r['of rlx']:.2f} | {share} |"


def chain(xp: Any, x: Any) -> Any:
    """Ten operations on each element."""
    y = xp.tanh(x * 0.5 + 1.0)
    return xp.exp(-(y * y)) * xp.sqrt(xp.abs(x) + 1.0) - y


def elementwise(copy: float) -> None:
    import cupy as cp
    import jax
    import jax.numpy as jnp
    import torch
    host = np.random.default_rng(0).standard_normal(N, np.float32)
    a, t, c = rlx.asarray(host, device="cuda"), torch.from_numpy(host).cuda(), cp.asarray(host)
    j = jax.device_put(host)
    fused, compiled, jitted = rlx.jit(lambda x: chain(rlx, x)), torch.compile(lambda x: chain(torch, x)), jax.jit(
        lambda x: chain(jnp, x))
    small = slice(0, 1000)
    np.testing.assert_allclose(np.asarray(fused(a)[small]), chain(np, host[small]), rtol=2e-5, atol=2e-5)
    report("chain of 10, 2^28 f32", {
        "rlx": lambda: fused(a), "torch eager": lambda: chain(torch, t), "torch.compile": lambda: compiled(t),
        "jax": lambda: jitted(j).block_until_ready(), "cupy": lambda: chain(cp, c)}, 8 * N, copy)
    rows(copy, a.reshape((-1, ROW)), t.reshape(-1, ROW), j.reshape(-1, ROW))


def rows(copy: float, a: Any, t: Any, j: Any) -> None:
    import jax
    import torch

    def norm(x: Any) -> Any:
        m = x.mean(axis=-1, keepdims=True)
        d = x - m
        return d * rlx.rsqrt((d * d).mean(axis=-1, keepdims=True) + 1e-5) if hasattr(rlx, "rsqrt") else (
            d / rlx.sqrt((d * d).mean(axis=-1, keepdims=True) + 1e-5))

    def jnorm(x: Any) -> Any:
        d = x - x.mean(-1, keepdims=True)
        return d * jax.lax.rsqrt((d * d).mean(-1, keepdims=True) + 1e-5)

    functional = torch.nn.functional
    cases = {
        f"softmax, rows of {ROW}, 2^28 f32": (
            lambda x: rlx.softmax(x, axis=-1), lambda x: torch.softmax(x, -1), lambda x: jax.nn.softmax(x, -1)),
        f"layernorm, rows of {ROW}, 2^28 f32": (norm, lambda x: functional.layer_norm(x, (ROW,)), jnorm)}
    for name, (mine, theirs, jaxs) in cases.items():
        f, compiled, jitted = rlx.jit(mine), torch.compile(theirs), jax.jit(jaxs)
        np.testing.assert_allclose(np.asarray(f(a)[:3]), theirs(t[:3]).cpu().numpy(), rtol=1e-4, atol=1e-5)
        report(name, {"rlx": lambda f=f: f(a), "torch eager": lambda e=theirs: e(t),
                      "torch.compile": lambda c=compiled: c(t),
                      "jax": lambda g=jitted: g(j).block_until_ready()}, 8 * N, copy)


def poisson(n: int) -> Any:
    """The 5-point Laplacian on an n x n grid."""
    import scipy.sparse as sp
    t = sp.diags([-1.0, 4.0, -1.0], [-1, 0, 1], shape=(n, n))
    off = sp.diags([-1.0, -1.0], [-1, 1], shape=(n, n))
    return (sp.kron(sp.eye(n), t) + sp.kron(off, sp.eye(n))).tocsr()


def sparse(copy: float, iterations: int = 200) -> None:
    import cupy as cp
    import cupyx.scipy.sparse as cs
    import cupyx.scipy.sparse.linalg as cl
    m = poisson(1000)
    n = m.shape[0]
    with rlx.flags(device="cuda"):
        A = rlx.sparse.CSR.from_scipy(m)
        b = rlx.asarray(np.ones(n))
    B, d = cs.csr_matrix(m), cp.ones(n)
    f = rlx.jit(lambda A, x: A @ x)
    np.testing.assert_allclose(np.asarray(f(A, b)), m @ np.ones(n), atol=1e-12)
    moved = m.nnz * 12 + 4 * n
    report("A @ x, Poisson 1M, f64", {"rlx": lambda: f(A, b), "cupy": lambda: B @ d}, moved + 16 * n, copy, inner=10)
    little = poisson(100)
    with rlx.flags(device="cuda"):
        A_, b_ = rlx.sparse.CSR.from_scipy(little), rlx.asarray(np.ones(little.shape[0]))
    report("cg, Poisson 10k, f64, an iteration", {
        "rlx": lambda: rlx.sparse.cg(A_, b_, rtol=0.0, maxiter=2000)[0]}, 0, copy, 2000)
    zero = {"rtol" if "rtol" in inspect.signature(cl.cg).parameters else "tol": 0.0}
    for k in (iterations,):
        report("cg, Poisson 1M, f64, an iteration", {
            "rlx": lambda k=k: rlx.sparse.cg(A, b, rtol=0.0, maxiter=k)[0],
            "cupy": lambda k=k: cl.cg(B, d, maxiter=k, atol=0.0, **zero)[0]}, k * (moved + 80 * n), copy, k)


def products(copy: float) -> None:
    import cupy as cp
    import torch
    rng = np.random.default_rng(0)
    for name, k in (("float32", 4096), ("float64", 4096)):
        x, y = (rng.standard_normal((k, k)).astype(name) for _ in range(2))
        a, b, c, d = rlx.asarray(x, device="cuda"), rlx.asarray(y, device="cuda"), cp.asarray(x), cp.asarray(y)
        s, t = torch.from_numpy(x).cuda(), torch.from_numpy(y).cuda()
        f = rlx.jit(lambda a, b: a @ b)
        report(f"{name} product of {k}",
               {"rlx": lambda: f(a, b), "cupy": lambda: c @ d, "torch": lambda: s @ t}, 0, copy)


def host(copy: float) -> None:
    """What the host pays to run a cached program of 100 kernels."""
    x = rlx.asarray(np.ones(1000, np.float32), device="cuda")

    def long(a: Any) -> Any:
        for k in range(50):
            a = rlx.sqrt(rlx.cumulative_sum(a) * (0.5 + k)) + a[::-1]
        return a

    f = rlx.jit(long)
    for _ in range(5):
        f(x)
    program = f.lower(x)
    launches = sum(p.launches for p in program.executable.loaded._parts)
    y = program.device.empty(x.dtype, x.shape)
    storage = x._value.node.payload[0]
    kept = {"whole call": lambda: f(x), "program.run": lambda: program.run([storage]),
            "executable.run": lambda: program.executable.run([storage], [y])}
    for what, g in kept.items():
        times = []
        for _ in range(200):
            sync()
            start = perf_counter()
            g()
            times.append(perf_counter() - start)
        sync()
        median = statistics.median(times)
        ROWS.append({"case": f"host cost, program of {launches} kernels", "peer": f"rlx {what}", "seconds": median,
                     "least": min(times), "largest": max(times), "of rlx": 1.0, "share": None})
        print(line(ROWS[-1]), flush=True)


def limit() -> float:
    """Bytes a second of a device-to-device copy of 1 GiB, read and written."""
    import cupy as cp
    a = cp.ones(1 << 28, cp.float32)
    b = cp.empty_like(a)
    return 2 * a.nbytes / timed(lambda: cp.copyto(b, a))[0]


def facts() -> dict[str, Any]:
    """The GPU and the versions."""
    import cupy as cp
    found: dict[str, Any] = {"gpu": cp.cuda.runtime.getDeviceProperties(0)["name"].decode(),
                             "driver": cp.cuda.runtime.driverGetVersion(), "python": platform.python_version()}
    for p in ("numpy", "cupy-cuda13x", "cuda-bindings", "torch", "jax"):
        try:
            found[p] = version(p)
        except PackageNotFoundError:
            found[p] = "absent"
    return found


def save(folder: Path, copy: float, command: str) -> None:
    """Write the rows."""
    data = {"title": "One GPU", "date": date.today().isoformat(), "command": command, "machine": facts(),
            "copy GB/s": copy / 1e9, "rows": ROWS}
    (folder / "gpu.json").write_text(json.dumps(data, indent=1) + "\n")
    head = ["# One GPU", "", f"{data['date']}, `{command}`", "", "; ".join(f"{k} {v}" for k, v in facts().items()), "",
            f"Copy: {copy / 1e9:.0f} GB/s read and written.", "",
            "| case | peer | median | of rlx | share of copy |", "|---|---|---|---|---|"]
    (folder / "gpu.md").write_text("\n".join([*head, *map(line, ROWS), ""]))


def main() -> int:
    """Run all, or the parts that are named after the folder."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent / "results")
    wanted = sys.argv[2:] or ["host", "sparse", "products", "elementwise"]
    if (reason := devices.available()["cuda"]) is not None:
        print(f"no cuda here: {reason}")
        return 1
    copy = limit()
    print(f"copy {copy / 1e9:.0f} GB/s", flush=True)
    for name in wanted:
        try:
            with rlx.flags(device="cuda"):
                {"host": host, "sparse": sparse, "products": products, "elementwise": elementwise}[name](copy)
        except Exception:
            traceback.print_exc()
        save(folder, copy, "python -m bench.gpu_suite")
    return 0


if __name__ == "__main__":
    sys.exit(main())
