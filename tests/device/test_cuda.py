"""The cuda device: programs against the interpreter, loops as graph nodes, replay, claims, memory, errors."""

from __future__ import annotations

import gc
import importlib.util
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.core.errors import CompileError
from rlx.device.cuda import build, driver
from rlx.device.cuda.native.cublas_gemm import _form
from rlx.device.cuda.program import _HELPERS
from rlx.runtime.execute import PROGRAMS, compile_traced

needs_gpu = pytest.mark.skipif(driver.absent() is not None, reason=f"no CUDA here: {driver.absent()}")
needs_nvrtc = pytest.mark.skipif(importlib.util.find_spec("cuda") is None or
                                 importlib.util.find_spec("cuda.bindings") is None, reason="no cuda-bindings here")
RNG = np.random.default_rng(7)


def both(f: Callable[..., Any], *arrays: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """What the device and the interpreter give for the same program."""
    found = [np.asarray(f(*[rlx.asarray(x, device=d) for x in arrays])) for d in ("cuda", "python")]
    return found[0], found[1]


def normal(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.standard_normal(shape).astype(np.float32)


SHAPES: dict[str, tuple[Callable[..., Any], tuple[np.ndarray[Any, Any], ...]]] = {
    "points": (lambda x: rlx.tanh(x) * 2 + 1, (normal(37, 5),)),
    "points of nothing": (lambda x: x + 1, (normal(0, 3),)),
    "many points": (lambda x: rlx.exp(-x * x) + 1, (normal(1_000_003),)),
    "points that broadcast": (lambda x, y: x * y + 1, (normal(64, 128), normal(128))),
    "total of one workgroup": (lambda x: (x * x).sum(), (normal(100),)),
    "total of many": (lambda x: (x * x).sum() + x.max(), (normal(300_000),)),
    "total of an odd number": (lambda x: (x * x).sum(), (normal(100_001),)),
    "total of nothing": (lambda x: x.sum(), (normal(0),)),
    "short rows": (lambda x: x / x.sum(axis=-1, keepdims=True), (np.abs(normal(203, 7)),)),
    "rows by teams": (lambda x: rlx.softmax(x, axis=-1), (normal(101, 200),)),
    "odd rows by teams": (lambda x: rlx.softmax(x, axis=-1), (normal(101, 201),)),
    "rows by workgroups": (lambda x: rlx.softmax(x, axis=-1), (normal(3, 5003),)),
    "long rows": (lambda x: rlx.softmax(x, axis=-1), (normal(5, 4096),)),
    "rows that end in the middle": (lambda x: rlx.softmax(x * 2, axis=-1), (normal(33, 1028),)),
    "float64 rows": (lambda x: rlx.softmax(x, axis=-1), (normal(33, 1028).astype(np.float64),)),
    "normalized rows": (lambda x: (x - x.mean(axis=-1, keepdims=True)) / rlx.sqrt(x.var(axis=-1, keepdims=True) + 1e-5),
                        (normal(50, 1024),)),
    "more rows than workgroups": (lambda x: x.sum(axis=-1), (normal(70_001, 40),)),
    "columns": (lambda x: x.sum(axis=0), (normal(50, 33),)),
    "long columns": (lambda x: x.max(axis=0), (normal(5000, 3),)),
    "matrix product": (lambda x, y: rlx.tanh(x @ y), (normal(70, 33), normal(33, 65))),
    "transposed product": (lambda x, y: x.T @ y.T, (normal(33, 70), normal(65, 33))),
    "batched product": (lambda x, y: x @ y, (normal(3, 40, 50), normal(3, 50, 33))),
    "matrix times vector": (lambda x, y: x @ y, (normal(70, 333), normal(333))),
    "vector times matrix": (lambda x, y: x @ y, (normal(333), normal(333, 270))),
    "long line scanned": (lambda x: rlx.cumulative_sum(x), (normal(5001),)),
    "sorted": (lambda x: rlx.sort(x), (normal(3000),)),
    "padded": (lambda x: rlx.concat([x, x[::-1]])[1:-3], (normal(50),)),
    "halves": (lambda x: rlx.softmax(x, axis=-1), (normal(17, 256).astype(np.float16),)),
}


@needs_gpu
@pytest.mark.parametrize("name", SHAPES)
def test_schedules_agree_with_the_interpreter(name: str) -> None:
    f, arrays = SHAPES[name]
    got, want = both(f, *arrays)
    assert got.dtype == want.dtype and got.shape == want.shape
    tol = 2e-3 if got.dtype == np.float16 else 2e-4
    np.testing.assert_allclose(got, want, rtol=tol, atol=tol)


LOOPS: dict[str, Callable[..., Any]] = {
    "while": lambda x: rlx.while_loop(lambda s: s.sum() < 1e6, lambda s: s * 2.0, rlx.abs(x)),
    "while that never runs": lambda x: rlx.while_loop(lambda s: s.sum() > 1e9, lambda s: s * 2.0, x),
    "cond": lambda x: rlx.cond(x.sum() > 0.0, lambda v: v + 1, lambda v: v - 1, x),
    "cond in while": lambda x: rlx.while_loop(
        lambda s: s[0] < 50.0, lambda s: rlx.cond(s[1] > 0.0, lambda v: v + 1, lambda v: v + 2, s), x),
    "while in while": lambda x: rlx.while_loop(
        lambda s: s[0] < 100.0, lambda s: rlx.while_loop(lambda t: t[1] < s[0] + 3.0, lambda t: t + 1.0, s), x),
    "few turns": lambda x: rlx.fori_loop(0, 5, lambda i, s: s + i.astype(rlx.float32), x),
    "many turns": lambda x: rlx.fori_loop(0, 1000, lambda i, s: s + i.astype(rlx.float32), x),
}


@needs_gpu
@pytest.mark.parametrize("name", LOOPS)
def test_loops_run_on_the_device(name: str) -> None:
    for _ in range(2):
        f = LOOPS[name]
        x = normal(100)
        got, want = [np.asarray(rlx.jit(f, device=d)(rlx.asarray(x, device=d))) for d in ("cuda", "python")]
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@needs_gpu
def test_graphs_follow_their_buffers() -> None:
    """The same program over changing buffers: launched, recorded, replayed, and recorded anew."""
    f = rlx.jit(lambda a: rlx.cumulative_sum(rlx.cumulative_sum(rlx.sort(a)) * 0.5), device="cuda")
    kept = []
    for k in range(40):
        x = normal(257)
        y = f(rlx.asarray(x, device="cuda"))
        if k % 3 == 0:
            kept.append(y)
        np.testing.assert_allclose(np.asarray(y), np.cumsum(np.cumsum(np.sort(x)) * 0.5), rtol=1e-3, atol=1e-3)


@needs_gpu
def test_threads_share_a_program() -> None:
    f = rlx.jit(lambda a: rlx.softmax(rlx.cumulative_sum(a, axis=-1), axis=-1), device="cuda")
    x = normal(5, 333)
    want = np.asarray(f(rlx.asarray(x, device="cuda")))
    wrong: list[Any] = []

    def work() -> None:
        for _ in range(20):
            if not np.array_equal(np.asarray(f(rlx.asarray(x, device="cuda"))), want):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


@needs_gpu
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "complex64", "complex128"])
def test_products_are_claimed_and_right(dtype: str) -> None:
    d = getattr(rlx, dtype)
    x, y = normal(96, 70), normal(70, 50)
    if "complex" in dtype:
        x, y = x + 1j * normal(96, 70), y - 1j * normal(70, 50)
    a, b = rlx.asarray(x, device="cuda").astype(d), rlx.asarray(y, device="cuda").astype(d)
    assert "native" in rlx.explain(lambda a, b: a @ b, a, b, device="cuda").paths()
    got = np.asarray((a @ b).astype(rlx.complex128 if "complex" in dtype else rlx.float64))
    tol = {"float16": 1e-1, "bfloat16": 1.0, "float32": 1e-4, "complex64": 1e-4}.get(dtype, 1e-12)
    np.testing.assert_allclose(got, x.astype(got.dtype) @ y.astype(got.dtype), atol=tol)


@needs_gpu
def test_float32_products_are_not_tf32() -> None:
    x = (1 + RNG.random((128, 128)) * 2.0**-12).astype(np.float32)
    got = np.asarray(rlx.asarray(x, device="cuda") @ rlx.eye(128, dtype=rlx.float32, device="cuda"))
    np.testing.assert_array_equal(got, x)


def test_operands_that_lie_transposed_are_matrices() -> None:
    plain = {"contract": ((1,), (0,)), "batch": ((), ())}
    crossed = {"contract": ((0,), (1,)), "batch": ((), ())}
    form = _form((30, 20), (20, 10), plain)
    assert form is not None and form.lhs.place() == (False, 20, 600) and form.rhs.place() == (False, 10, 200)
    form = _form((20, 30), (10, 20), crossed)
    assert form is not None and form.lhs.place()[:2] == (True, 30) and form.rhs.place()[:2] == (True, 20)
    assert _form((4, 30, 5, 20), (20, 10), {"contract": ((1, 3), (0, 1)), "batch": ((), ())}) is None


@needs_gpu
def test_claims_inside_loops_are_recorded() -> None:
    x = normal(40, 40) / 10
    f = rlx.jit(lambda a: rlx.while_loop(lambda s: s[0, 0] < 1e-3, lambda s: s @ s + 1e-3, a * 0), device="cuda")
    g = rlx.jit(lambda a: rlx.while_loop(lambda s: s[0, 0] < 1e-3, lambda s: s @ s + 1e-3, a * 0), device="python")
    np.testing.assert_allclose(np.asarray(f(rlx.asarray(x, device="cuda"))),
                               np.asarray(g(rlx.asarray(x, device="python"))), rtol=1e-5)


@needs_gpu
def test_memory_is_used_again() -> None:
    pool = driver.cupy().get_default_memory_pool()
    gc.collect()
    np.asarray(rlx.asarray(normal(1000), device="cuda") + 1)
    before = pool.used_bytes()
    for _ in range(50):
        np.asarray(rlx.asarray(normal(1000), device="cuda") + 1)
    gc.collect()
    assert pool.used_bytes() <= before + 64_000


@needs_gpu
def test_the_text_is_the_same_every_time() -> None:
    def text() -> str:
        x = rlx.asarray(normal(30, 40), device="cuda")
        traced = rlx.jit(lambda a: rlx.softmax(a, axis=-1) * 2, device="cuda").trace(x)
        PROGRAMS.clear()
        return compile_traced(traced.graph, "cuda", None, {}, "p").executable.text

    assert text() == text()


@needs_nvrtc
def test_helpers_compile_to_machine_code() -> None:
    with rlx.flags(cache=False):
        assert build.cubin(_HELPERS, "sm_90")[:4] == b"\x7fELF"


@needs_nvrtc
def test_a_text_that_does_not_compile_has_the_log() -> None:
    with rlx.flags(cache=False), pytest.raises(CompileError, match="NVRTC") as e:
        build.cubin("int main( { wrong", "sm_90")
    assert "error" in str(e.value)


def test_an_absent_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver.importlib.util, "find_spec", lambda name: None)
    assert "pip install" in str(driver.absent())


@needs_gpu
def test_memory_is_shared_with_cupy_both_ways() -> None:
    cp = driver.cupy()
    theirs = cp.arange(12, dtype=cp.float32).reshape(3, 4)
    ours = rlx.from_dlpack(theirs)
    assert ours.device == "cuda" and ours.shape == (3, 4)
    theirs += 1
    np.testing.assert_array_equal(np.asarray(ours), np.arange(12).reshape(3, 4) + 1)
    made = ours * 2
    back, viewed = cp.from_dlpack(made), cp.asarray(made)
    assert back.data.ptr == viewed.data.ptr
    np.testing.assert_array_equal(back.get(), (np.arange(12).reshape(3, 4) + 1) * 2)


@needs_gpu
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="no torch here")
def test_memory_is_shared_with_torch_both_ways() -> None:
    import torch
    theirs = torch.arange(6, dtype=torch.float64, device="cuda")
    ours = rlx.from_dlpack(theirs)
    back = torch.from_dlpack(ours + 1)
    assert back.device.type == "cuda"
    np.testing.assert_array_equal(back.cpu().numpy(), np.arange(6) + 1)


def test_an_array_of_the_host_has_no_cuda_memory() -> None:
    assert not hasattr(rlx.asarray([1.0], device="cpu"), "__cuda_array_interface__")


@needs_gpu
@pytest.mark.parametrize("upper", [False, True])
def test_factorizations_are_claimed_and_right(upper: bool) -> None:
    import rlx.linalg
    x = RNG.standard_normal((2, 96, 96))
    s = x @ x.swapaxes(-1, -2) + 96 * np.eye(96)
    a = rlx.asarray(s, device="cuda")
    assert "native" in rlx.explain(lambda a: rlx.linalg.cholesky(a), a, device="cuda").paths()
    factor = np.asarray(rlx.linalg.cholesky(a, upper=upper))
    np.testing.assert_allclose(factor, np.linalg.cholesky(s, upper=upper), rtol=1e-10, atol=1e-10)
    w, v = (np.asarray(y) for y in rlx.linalg.eigh(a))
    np.testing.assert_allclose(v * w[:, None, :] @ v.swapaxes(-1, -2), s, atol=1e-9)
    u, d, vh = (np.asarray(y) for y in rlx.linalg.svd(rlx.asarray(x, device="cuda")))
    np.testing.assert_allclose(u * d[:, None, :] @ vh, x, atol=1e-10)


@needs_gpu
def test_a_matrix_that_is_not_positive_fails_at_its_number() -> None:
    import rlx.linalg
    s = np.eye(80)
    s[17, 17] = -1
    with pytest.raises(rlx.core.errors.RlxError):
        np.asarray(rlx.linalg.cholesky(rlx.asarray(s, device="cuda")))
