"""Loops inside loops, branches and stopping lanes, in one kernel of every device that is here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx
from rlx import device as devices
from rlx.ir import loop as L

RNG = np.random.default_rng(8)
f32, i32 = rlx.float32, rlx.int32
HERE = ["cpu", *(d for d in ("opencl", "vulkan", "webgpu") if devices.available().get(d, "absent") is None)]


def march(x: rlx.Array, y: rlx.Array) -> Any:
    """Steps along a ray, each as long as a smooth bound that a loop of its own computes."""
    def bound(t: rlx.Array) -> rlx.Array:
        def go(s: Any) -> rlx.Array:
            return (s[0] > 0.3) & (s[1] < 9)
        first = 1 + t * t + y * y, rlx.asarray(0, dtype=i32)
        a, n = rlx.while_loop(go, lambda s: (s[0] * 0.5 + 0.1 * x, s[1] + 1), first)
        return 0.05 + 0.1 * rlx.abs(a) + 0.01 * n.astype(f32)

    def step(s: Any) -> Any:
        return s[0] + bound(s[0]), s[1] + 1
    return rlx.while_loop(lambda s: (s[0] < 2.0) & (s[1] < 40), step, (rlx.zeros_like(x), rlx.asarray(0, dtype=i32)))


def image(xs: rlx.Array, ys: rlx.Array) -> Any:
    return rlx.vmap(rlx.vmap(march, (0, None)), (None, 0))(xs, ys)


def nested_counts(x: rlx.Array) -> Any:
    def inner(i: rlx.Array, c: rlx.Array) -> rlx.Array:
        return rlx.fori_loop(0, 4, lambda j, d: d * 0.9 + c * (i + j).astype(f32) * 0.01, c) + 0.5
    return rlx.fori_loop(0, 5, inner, x)


def three_deep(x: rlx.Array) -> Any:
    def add(k: rlx.Array, c: rlx.Array) -> rlx.Array:
        return c * 0.99 + k.astype(f32) * 0.1
    return rlx.fori_loop(0, 3, lambda i, a: rlx.fori_loop(0, i, lambda j, b: rlx.fori_loop(0, j + 1, add, b) + a, a), x)


def branch_of_all(x: rlx.Array, k: rlx.Array) -> Any:
    def one(c: rlx.Array) -> rlx.Array:
        return rlx.fori_loop(0, 3, lambda j, d: d * 0.5 + 1, c)
    return rlx.fori_loop(0, 6, lambda i, c: rlx.cond((i + k) % 2 == 0, one, lambda c: rlx.sin(c) + c * 0.5, c), x)


def switch_of_three(x: rlx.Array, k: rlx.Array) -> Any:
    branches = [lambda c: c + 1, lambda c: c * 0.5, lambda c: rlx.cos(c)]
    return rlx.fori_loop(0, 7, lambda i, c: rlx.switch((i + k) % 3, branches, c), x)


def branch_of_each(x: rlx.Array) -> Any:
    def one(v: rlx.Array) -> Any:
        def hot(c: rlx.Array) -> rlx.Array:
            return rlx.stack([-c[0] * 0.5 - 0.1, c[1] + c[0], c[2]])
        return rlx.fori_loop(0, 6, lambda i, c: rlx.cond(c[0] > 0, hot, lambda c: rlx.sin(c) * 0.5 + 0.7, c), v)
    return rlx.vmap(one)(x)


def scalars_and_lanes(x: rlx.Array) -> Any:
    start = rlx.asarray(0.3, dtype=f32)

    def step(s: Any) -> Any:
        return s[0] * 1.5 + rlx.while_loop(lambda t: t < s[1], lambda t: t * 2.0, start), s[1] * 1.25
    return rlx.while_loop(lambda s: s[1] < 3.0, step, (x, rlx.asarray(1.0, dtype=f32)))


def counts_of_each(x: rlx.Array, n: rlx.Array) -> Any:
    def one(x: rlx.Array, n: rlx.Array) -> Any:
        return rlx.fori_loop(0, 3, lambda i, c: rlx.fori_loop(0, n, lambda j, d: d * 0.9 + 0.1, c) + 0.1, x)
    return rlx.vmap(one)(x, n)


def stacked(x: rlx.Array, u: rlx.Array) -> Any:
    """A scan whose step has a loop, and whose results are written through."""
    def step(c: rlx.Array, a: rlx.Array) -> Any:
        new = rlx.fori_loop(0, 3, lambda j, d: d * 0.7 + a, c)
        return new, new * a
    return rlx.scan(step, x, u)


def only_numbers(a: rlx.Array) -> Any:
    return rlx.while_loop(lambda s: rlx.abs(s * s - a) > 1e-3, lambda s: 0.5 * (s + a / s), a)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "image": (image, (np.linspace(-1, 1, 67, dtype=np.float32), np.linspace(-1, 1, 5, dtype=np.float32))),
    "whole tiles": (image, (np.linspace(-1, 1, 64, dtype=np.float32), np.linspace(-1, 1, 3, dtype=np.float32))),
    "counts": (nested_counts, (floats(200),)),
    "one lane": (nested_counts, (floats(1),)),
    "three deep": (three_deep, (floats(70),)),
    "branch of all": (branch_of_all, (floats(200), np.int32(3))),
    "switch": (switch_of_three, (floats(100), np.int32(1))),
    "branch of each": (branch_of_each, (floats(66, 3),)),
    "scalars": (scalars_and_lanes, (floats(200),)),
    "counts of each": (counts_of_each, (floats(150), (np.arange(150) % 5).astype(np.int32))),
    "stacked": (stacked, (floats(80), floats(6, 80))),
    "numbers": (only_numbers, (np.float32(7.0),)),
}


def leaves(tree: Any) -> list[Any]:
    return list(tree) if isinstance(tree, (tuple, list)) else [tree]


@pytest.mark.parametrize("on", HERE)
@pytest.mark.parametrize("case", list(CASES))
def test_one_kernel_that_agrees_with_the_interpreter(case: str, on: str) -> None:
    f, args = CASES[case]
    program = rlx.jit(f, device=on).lower(*args).lowered.program
    assert not [s for s in program.steps if isinstance(s, L.While | L.Repeat | L.Branch)]
    assert [k for k in program.kernels() if "in the kernel" in k.notes]
    want = leaves(rlx.jit(f, device="python")(*args))
    for g, w in zip(leaves(rlx.jit(f, device=on)(*args)), want, strict=True):
        np.testing.assert_allclose(np.asarray(g), np.asarray(w), rtol=2e-5, atol=2e-6)


def statements(body: tuple[L.Stmt, ...], inside: bool = False) -> list[tuple[bool, L.Stmt]]:
    """Every statement, and whether it stands in a branch."""
    found: list[tuple[bool, L.Stmt]] = []
    for s in body:
        found.append((inside, s))
        if isinstance(s, L.For | L.Loop):
            found += statements(s.body, inside)
        elif isinstance(s, L.If):
            found += statements(s.then, True) + statements(s.orelse, True)
    return found


@pytest.mark.parametrize("on", [d for d in HERE if d in ("cpu", "opencl")])
def test_a_branch_not_taken_computes_nothing(on: str) -> None:
    def f(x: rlx.Array, k: rlx.Array) -> Any:
        return rlx.fori_loop(0, 6, lambda i, c: rlx.cond(i == k, lambda c: rlx.sqrt(c), lambda c: c * 0.5, c), x)
    (kernel,) = [k for k in rlx.jit(f, device=on).lower(floats(100) ** 2, np.int32(3)).lowered.program.kernels()
                 if "in the kernel" in k.notes]
    roots = [inside for inside, s in statements(kernel.body) if "sqrt" in repr(getattr(s, "value", ""))]
    assert roots and all(roots)


@pytest.mark.skipif("opencl" not in HERE, reason="no OpenCL on this machine")
def test_a_point_keeps_its_values_in_registers() -> None:
    f, args = CASES["image"]
    (kernel,) = [k for k in rlx.jit(f, device="opencl").lower(*args).lowered.program.kernels()
                 if "in the kernel" in k.notes]
    found = [s for _, s in statements(kernel.body)]
    assert not [s for s in found if isinstance(s, L.Array)]
    assert len([s for s in found if isinstance(s, L.Loop)]) == 2


@pytest.mark.slow
@pytest.mark.skipif("opencl" not in HERE, reason="no OpenCL on this machine to schedule the kernels for")
def test_kernels_compile_for_cuda() -> None:
    nvrtc = pytest.importorskip("tests.render.nvrtc").load()
    if nvrtc is None:
        pytest.skip("no NVRTC on this machine (pip install nvidia-cuda-nvrtc)")
    from rlx.render.c import render
    kernels = {k.name: k for f, args in CASES.values()
               for k in rlx.jit(f, device="opencl").lower(*args).lowered.program.kernels()}
    assert nvrtc(render(list(kernels.values()), "cuda"), "sm_90").startswith(b"\x7fELF")


@pytest.mark.skipif("opencl" not in HERE, reason="no OpenCL on this machine")
def test_a_point_that_goes_on_does_not_ask_again() -> None:
    def newton(a: rlx.Array) -> Any:
        return rlx.while_loop(lambda s: rlx.abs(s * s - a) > 1e-3, lambda s: 0.5 * (s + a / s), a)
    a = np.linspace(0.5, 9.0, 150, dtype=np.float32)
    (kernel,) = [k for k in rlx.jit(rlx.vmap(newton), device="opencl").lower(a).lowered.program.kernels()
                 if "in the kernel" in k.notes]
    assert "select" not in repr(kernel.body)
    np.testing.assert_allclose(np.asarray(rlx.jit(rlx.vmap(newton), device="opencl")(a)), np.sqrt(a), rtol=1e-3)
