"""One GPU: rlx against CuPy, PyTorch and JAX. ``python -m bench.gpu_suite [FOLDER]`` writes gpu.json and gpu.md.

Bytes are those that the work must move; ``share`` is their rate over the measured rate of a large copy.
"""

from __future__ import annotations

import importlib.util
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
import rlx.fft
import rlx.linalg
from bench import mlp
from rlx import device as devices
from rlx import nn, splat

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
    micro = r["seconds"] * 1e6
    shown = f"{micro:.1f}" if micro >= 10 else f"{micro:.3g}"
    return f"| {r['case']} | {r['peer']} | {shown} us | {r['of rlx']:.2f} | {share} |"


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
        for _ in range(1000):
            sync()
            start = perf_counter()
            g()
            times.append(perf_counter() - start)
        sync()
        median = statistics.median(times)
        ROWS.append({"case": f"host cost, program of {launches} kernels", "peer": f"rlx {what}", "seconds": median,
                     "least": min(times), "largest": max(times), "of rlx": 1.0, "share": None})
        print(line(ROWS[-1]), flush=True)


def torch_epoch(x: Any, y: Any, w: list[Any], batch: int) -> Work:
    """An epoch of the same steps as one CUDA graph of PyTorch: one launch."""
    import torch
    xs, ys = torch.from_numpy(x).cuda(), torch.from_numpy(y).long().cuda()
    first = [torch.from_numpy(v).cuda() for v in w]
    weights = [v.clone().requires_grad_() for v in first]
    order = [torch.from_numpy(rows.astype(np.int64)).cuda() for rows in nn.batches(len(x), batch)]
    losses = torch.zeros(len(order), device="cuda")

    def steps(count: int) -> None:
        with torch.no_grad():
            for a, b in zip(weights, first, strict=True):
                a.copy_(b)
        for k, rows in enumerate(order[:count]):
            h = torch.relu(torch.nn.functional.linear(xs[rows], weights[0], weights[1]))
            value = torch.nn.functional.cross_entropy(torch.nn.functional.linear(h, *weights[2:]), ys[rows])
            grads = torch.autograd.grad(value, weights)
            with torch.no_grad():
                torch._foreach_add_(weights, grads, alpha=-mlp.RATE)
                losses[k].copy_(value)

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        steps(3)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        steps(len(order))

    def epoch() -> Any:
        graph.replay()
        return losses.mean().item()
    return epoch


def training(copy: float, count: int = 65536, batch: int = 512) -> None:
    """A picture of an epoch of training a 784-128-10 network; peers must reach the same mean loss."""
    import jax
    jax.config.update("jax_default_matmul_precision", "highest")  # float32 products, as everywhere here
    x, y, w = mlp.problem(count)
    peers = {"rlx": mlp.with_rlx(x, y, w, batch), "torch, one CUDA graph": torch_epoch(x, y, w, batch),
             "jax": mlp.with_jax(x, y, w, batch)}
    losses = {name: float(f()) for name, f in peers.items()}
    print(losses, flush=True)
    assert max(losses.values()) - min(losses.values()) < 1e-3, losses
    report(f"training, batch {batch}, a picture", peers, 0, copy, count)


def scene(n: int, degree: int = 3) -> Any:
    """Gaussians in a cube, small enough that a million of them overlap about 4 tiles each."""
    rng = np.random.default_rng(0)
    f = lambda *shape: rng.uniform(-1, 1, shape).astype(np.float32)
    scales = np.exp(rng.uniform(-6, -4.5, (n, 3))).astype(np.float32)
    return splat.Gaussians.create(f(n, 3), scales, rng.standard_normal((n, 4)).astype(np.float32),
                                  rng.uniform(0.1, 0.9, n).astype(np.float32), f(n, (degree + 1)**2, 3))


def splats(copy: float, n: int = 1_000_000, width: int = 1920, height: int = 1080) -> None:
    """A picture of a million Gaussians, and its gradient."""
    g = scene(n).to_device("cuda")
    camera = splat.Camera.look_at((0, 0, -3), width=width, height=height).to_device("cuda")
    settings = splat.RenderSettings(capacity=splat.bucket(splat.capacity(g, camera)))
    picture = rlx.jit(lambda g: splat.render(g, camera, settings).rgb)
    gradient = rlx.jit(rlx.grad(lambda g: splat.render(g, camera, settings).rgb.sum()))
    theirs = gsplat_pictures(g, camera) if importlib.util.find_spec("gsplat") else {}
    for what, mine in (("", lambda: picture(g)), (", picture and gradient", lambda: gradient(g))):
        peers = {"rlx": mine} | ({"gsplat": theirs[what]} if theirs else {})
        report(f"{n} splats, {width}x{height}{what}", peers, 0, copy)


def gsplat_pictures(g: Any, camera: Any) -> dict[str, Work]:
    """The same picture, and its gradient, by gsplat."""
    import torch
    from gsplat import rasterization
    means, scales, turns, opacities, sh, view, k = (
        torch.from_numpy(np.array(x, np.float32)).cuda()
        for x in (g.means, g.scales, g.rotations, g.opacities, g.sh, camera.world_to_camera, camera.intrinsics))
    leaves = [means, turns, scales, opacities, sh]

    def picture() -> Any:
        return rasterization(*leaves, view[None], k[None], camera.width, camera.height, sh_degree=3, packed=False)[0]

    def forward() -> Any:
        with torch.no_grad():
            return picture()

    def both() -> None:
        for x in leaves:
            x.requires_grad_()
            x.grad = None
        picture().sum().backward()
    return {"": forward, ", picture and gradient": both}


def libraries(copy: float) -> None:
    """What claims give over generated code."""
    import cupy as cp
    rng = np.random.default_rng(0)
    cases = {
        "fft of 4096 lines of 4096, c64": (lambda x: rlx.fft.fft(x), cp.fft.fft, (
            rng.standard_normal((4096, 4096)) + 0j).astype(np.complex64)),
        "sort of 2^24 f32": (lambda x: rlx.sort(x), cp.sort, rng.standard_normal(1 << 24, np.float32)),
        "argsort of 2^22 i32": (lambda x: rlx.argsort(x), lambda x: cp.argsort(x, kind="stable"),
                                rng.integers(0, 10_000, 1 << 22, np.int32)),
        "cumulative sum of 2^26 f32": (lambda x: rlx.cumulative_sum(x), cp.cumsum,
                                       rng.standard_normal(1 << 26, np.float32)),
        "sum of 2^28 f32": (lambda x: rlx.sum(x), cp.sum, rng.standard_normal(1 << 28, np.float32)),
        "solve of 2048, f64": (lambda x: rlx.linalg.solve(x, x[:, :8]),
                               lambda x: cp.linalg.solve(x, x[:, :8]), rng.standard_normal((2048, 2048))),
        "qr of 1024, f64": (lambda x: rlx.linalg.qr(x), cp.linalg.qr, rng.standard_normal((1024, 1024))),
    }
    for name, (f, theirs, host) in cases.items():
        a, b = rlx.asarray(host, device="cuda"), cp.asarray(host)
        peers = {f"rlx, {p}": lambda g=rlx.jit(f, dispatch=p): g(a) for p in ("prefer_native", "common")}
        report(name, {**peers, "cupy": lambda: theirs(b)}, 0, copy)


def other_devices(copy: float, n: int = 1 << 27) -> None:
    """The chain on this GPU by other ways to it."""
    host_ = np.random.default_rng(0).standard_normal(n, np.float32)
    for device in ("cuda", "vulkan", "opencl"):
        if (reason := devices.available()[device]) is not None:
            print(f"no {device} here: {reason}", flush=True)
            continue
        a = rlx.asarray(host_, device=device)
        for name, work in (("x * 2 + 1", lambda x: x * 2 + 1), ("chain of 10", lambda x: chain(rlx, x))):
            f = rlx.jit(work, device=device)

            def many(f: Any = f, a: Any = a) -> None:
                for _ in range(10):
                    y = f(a)
                y.block_until_ready()
            report(f"{name}, 2^{n.bit_length() - 1} f32, {device}", {"rlx": many}, 80 * n, copy, 10)


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
    for p in ("numpy", "cupy-cuda13x", "cuda-bindings", "torch", "jax", "gsplat"):
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
    parts = {"host": host, "sparse": sparse, "training": training, "splats": splats, "libraries": libraries,
             "other_devices": other_devices, "products": products, "elementwise": elementwise}
    wanted = sys.argv[2:] or list(parts)
    if (reason := devices.available()["cuda"]) is not None:
        print(f"no cuda here: {reason}")
        return 1
    copy = limit()
    print(f"copy {copy / 1e9:.0f} GB/s", flush=True)
    for name in wanted:
        try:
            with rlx.flags(device="cuda"):
                parts[name](copy)
        except Exception:
            traceback.print_exc()
        save(folder, copy, "python -m bench.gpu_suite")
    return 0


if __name__ == "__main__":
    sys.exit(main())
