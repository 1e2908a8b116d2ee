"""Claims of the cuda device: every sample of every claimed op, and sizes where they are used; loops that steer."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import rlx
import rlx.linalg
from rlx import splat
from rlx.compile.report import NATIVE
from rlx.device._splats import Frame
from rlx.device.cuda import build, driver, native, splats, text
from rlx.device.cuda.native import _matrices, cublas_gemm, cufft, line_scan, radix_sort, thrust_sort
from rlx.device.cuda.rotate import rotate
from rlx.ir import loop as L
from rlx.ir.op import REGISTRY
from rlx.ops.scan import scan as running
from rlx.runtime.execute import PROGRAMS
from rlx.tools import cases as C
from tests.conformance.test_values import run, wrong
from tests.splat.scenes import random_scene, view

needs_gpu = pytest.mark.skipif(driver.absent() is not None, reason=f"no CUDA here: {driver.absent()}")
needs_nvrtc = pytest.mark.skipif(importlib.util.find_spec("cuda") is None or
                                 importlib.util.find_spec("cuda.bindings") is None, reason="no cuda-bindings here")
CLAIMED = sorted(op for op in native.claims() if REGISTRY[op].sample_makers)
RNG = np.random.default_rng(11)


@pytest.fixture
def whatever_the_size(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Claims take the smallest inputs too."""
    for module in (_matrices, cublas_gemm, cufft, line_scan, radix_sort, thrust_sort):
        monkeypatch.setattr(module, "SMALL", 1)
    PROGRAMS.clear()
    yield
    PROGRAMS.clear()


@needs_gpu
@pytest.mark.parametrize("op", CLAIMED)
def test_claims_answer_every_sample(op: str, whatever_the_size: None) -> None:
    cases = C.cases(REGISTRY[op])
    ran = run(cases, "cuda")
    program = ran.f.lower([c.arrays("cuda") for c in cases])
    assert any(row.path == NATIVE for row in program.report), "no sample was taken by a claim"
    bad = [line for c, outs in zip(cases, ran.outputs, strict=True) for line in wrong(c, outs)]
    assert not bad, "\n".join(bad)


def both(f: Callable[..., Any], *arrays: np.ndarray[Any, Any]) -> tuple[list[np.ndarray[Any, Any]], ...]:
    """What the claims and the generated code give on the device; the claims must have been used."""
    given = [rlx.asarray(x, device="cuda") for x in arrays]
    assert "native" in rlx.explain(f, *given, device="cuda").paths()
    found = [rlx.jit(f, device="cuda", dispatch=d)(*given) for d in (None, "common")]
    return tuple([np.asarray(y) for y in (r if isinstance(r, tuple | list) else (r,))] for r in found)


def matrix(n: int, m: int, *lead: int) -> np.ndarray[Any, Any]:
    return RNG.standard_normal((*lead, n, m))


CASES: dict[str, tuple[Callable[..., Any], tuple[np.ndarray[Any, Any], ...]]] = {
    "fft of the last axis": (lambda x: rlx.fft.fft(x), (matrix(30, 1000) + 0j,)),
    "fft of the first axis": (lambda x: rlx.fft.ifft(x, axis=0), (matrix(500, 12) + 1j,)),
    "fft of a middle axis": (lambda x: rlx.fft.fft(x, axis=1), (matrix(121, 7, 5) + 0j,)),
    "fft of a prime": (lambda x: rlx.fft.fft(x), (matrix(3, 1009) + 0j,)),
    "real fft": (lambda x: rlx.fft.irfft(rlx.fft.rfft(x) * 2, n=771), (matrix(4, 771),)),
    "real fft of two axes": (lambda x: rlx.fft.irfft2(rlx.fft.rfft2(x) * 2, s=(30, 64)), (matrix(30, 64),)),
    "sorted": (lambda x: rlx.sort(x), (RNG.standard_normal(200_000),)),
    "sorted down, NaN last": (lambda x: rlx.sort(x, descending=True),
                              (np.where(RNG.random(100_000) < 0.1, np.nan, RNG.standard_normal(100_000)),)),
    "order of equal keys": (lambda x: rlx.argsort(x), (RNG.integers(0, 50, 300_000, np.int32),)),
    "order down of equal keys": (lambda x: rlx.argsort(x, descending=True), (RNG.integers(0, 50, 100_000, np.uint8),)),
    "sorted halves": (lambda x: rlx.sort(x), (RNG.standard_normal(50_000).astype(np.float16),)),
    "sorted words": (lambda x: rlx.sort(x, descending=True), (RNG.integers(-2**62, 2**62, 90_001),)),
    "sorted signs of zero and infinities": (lambda x: rlx.argsort(x), (
        RNG.choice(np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, 1, -1], np.float32), 40_000),)),
    "sorted columns": (lambda x: rlx.sort(x, axis=0), (matrix(70_000, 3).astype(np.float32),)),
    "running sum": (lambda x: rlx.cumulative_sum(x), (RNG.standard_normal(5_000_001),)),
    "running sums of rows": (lambda x: rlx.cumulative_sum(x, axis=1), (matrix(3, 70_000),)),
    "running sum of integers": (lambda x: rlx.cumulative_sum(x), (RNG.integers(-9, 9, 4_300_000, np.int32),)),
    "running product": (lambda x: rlx.cumulative_prod(x), (1 + RNG.standard_normal(50_000) / 1e4,)),
    "running maximum from behind": (lambda x: running(x, "max", 0, True), (RNG.standard_normal(100_000),)),
    "lu": (lambda x: rlx.linalg.lu_factor(x), (matrix(90, 90, 2),)),
    "solve": (lambda x, y: rlx.linalg.solve(x, y), (matrix(120, 120, 3), matrix(120, 7, 3))),
    "solve a vector": (lambda x, y: rlx.linalg.solve(x, y), (matrix(300, 300), RNG.standard_normal(300))),
    "triangular": (lambda x, y: rlx.linalg.solve_triangular(x, y, lower=True),
                   (np.tril(matrix(100, 100)) + 20 * np.eye(100), matrix(100, 5))),
}


@needs_gpu
@pytest.mark.parametrize("name", CASES)
def test_claims_agree_with_generated_code(name: str) -> None:
    f, arrays = CASES[name]
    got, want = both(f, *arrays)
    for a, b in zip(got, want, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


@needs_gpu
@pytest.mark.parametrize("mode", ["reduced", "complete"])
@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_qr_gives_orthonormal_columns(mode: str, dtype: Any) -> None:
    x = matrix(150, 80, 2).astype(dtype) + (1j * matrix(150, 80, 2) if dtype is np.complex128 else 0)
    given = rlx.asarray(x, device="cuda")
    f = lambda a: rlx.linalg.qr(a, mode=mode)
    assert "native" in rlx.explain(f, given, device="cuda").paths()
    q, r = (np.asarray(y) for y in f(given))
    np.testing.assert_allclose(q @ r, x, atol=1e-12)
    np.testing.assert_allclose(q.conj().swapaxes(-1, -2) @ q - np.eye(q.shape[-1]), 0, atol=1e-12)
    assert not np.tril(r, -1).any() and not np.diagonal(r, axis1=-2, axis2=-1).imag.any()


@needs_gpu
def test_a_singular_system_is_told() -> None:
    with pytest.raises(rlx.core.errors.RlxError):
        np.asarray(rlx.linalg.solve(rlx.asarray(np.zeros((80, 80)), device="cuda"), rlx.ones((80,), device="cuda")))


@needs_gpu
@pytest.mark.parametrize("tile", [8, 16, 32])
def test_splats_agree_with_the_cpu(tile: int) -> None:
    """Pictures and gradients of the means, over tiles that the image cuts."""
    settings = splat.RenderSettings(tile=tile)
    weights = RNG.standard_normal((70, 100, 3)).astype(np.float32)
    found = {}
    for device in ("cpu", "cuda"):
        g = random_scene(400, 1, dtype=rlx.float32).to_device(device)
        camera = view(100, 70, rlx.float32).to_device(device)
        fixed = splat.RenderSettings(tile=tile, capacity=splat.capacity(g, camera, settings))
        w = rlx.asarray(weights, device=device)

        def loss(means: rlx.Array, g: Any = g, camera: Any = camera, fixed: Any = fixed, w: Any = w) -> rlx.Array:
            moved = splat.Gaussians(means, g.scales, g.rotations, g.opacities, g.sh)
            return (splat.render(moved, camera, fixed).rgb * w).sum()

        image = splat.render(g, camera, settings, device=device)
        found[device] = [np.asarray(image.rgb), np.asarray(image.alpha), np.asarray(rlx.grad(loss)(g.means))]
    for a, b in zip(found["cuda"], found["cpu"], strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-3 * np.abs(b).max())


@needs_nvrtc
@pytest.mark.parametrize("tile", [8, 16, 32])
def test_splat_kernels_compile_to_machine_code(tile: int) -> None:
    with rlx.flags(cache=False):
        source = splats.source(Frame(100, 70, tile, 8, 10, 0.999, 1e-4))
        assert build.cubin(source, "sm_90", fast=True)[:4] == b"\x7fELF"


def loop() -> L.Program:
    """``while (flag = x < 10) x += 1`` over one element, as kernels of one lane."""
    from rlx.core.dtype import bool_, float32
    zero = L.const(0, rlx.int32)
    x = L.load("b0", zero, float32)
    test = L.Kernel("test", (L.Param("b0", float32, 1, "r"), L.Param("b1", bool_, 1, "w")),
                    (L.Store("b1", zero, L.less(x, L.const(10.0, float32))),))
    add = L.Kernel("add", (L.Param("b0", float32, 1, "rw"),),
                   (L.Store("b0", zero, L.expr("add", (x, L.const(1.0, float32)), float32)),))
    body = L.While((L.Launch(test, ("x", "flag")),), "flag", (L.Launch(add, ("x",)),))
    return L.Program("p", (L.Buffer("x", float32, 1, "input", 0), L.Buffer("flag", bool_, 1, "temp", 0)), (body,))


CAPS = driver.caps(132, 1024, 48 << 10, 1 << 37)


def test_a_loop_tests_at_the_end_of_a_turn() -> None:
    first, turned = rotate(loop(), CAPS).steps
    assert isinstance(first, L.Launch) and first.kernel.name == "test"
    assert isinstance(turned, L.While) and turned.head == () and len(turned.body) == 1
    assert text.steers(turned)


def test_a_loop_whose_last_launch_is_wide_is_not_steered_by_it() -> None:
    wide = rotate(loop(), CAPS).steps[1]
    assert isinstance(wide, L.While)
    last = wide.body[-1]
    assert isinstance(last, L.Launch)
    many = L.For("g", L.const(0, rlx.int32), L.const(7, rlx.int32), 1, L.GRID, last.kernel.body)
    kernel = L.Kernel("k", last.kernel.params, (many,))
    assert not text.steers(L.While((), wide.pred, (L.Launch(kernel, last.buffers),)))


@needs_nvrtc
def test_the_kernel_that_steers_compiles_to_machine_code() -> None:
    from rlx.device.cuda.program import _HELPERS
    from rlx.render.c import render
    program = rotate(loop(), CAPS)
    loops = [s for s in program.steps if isinstance(s, L.While)]
    printed = text.overlapping(render(program.kernels(), "cuda"))
    assert printed.count("griddepcontrol") == 2 * len(program.kernels())
    with rlx.flags(cache=False):
        source = _HELPERS + printed + text.steering(printed, loops)
        assert source.count("cudaGraphSetConditional(handle,") == 4
        assert build.cubin(source, "sm_90")[:4] == b"\x7fELF"
