"""WGSL: golden text, determinism, guards, and every sample run on the adapter that is here."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from rlx import device
from rlx.core.dtype import float32, float64, int32, int64, uint32, uint64
from rlx.core.errors import CompileError
from rlx.ir import loop as L
from rlx.render.portable import make_portable
from rlx.render.wgsl import render_kernel
from rlx.render.wgsl.expression import literal
from tests.render import portable_samples as P

SAMPLES = P.samples()
SMALL = frozenset((int32, uint32, float32))
here = pytest.mark.skipif(device.available()["webgpu"] is not None, reason=str(device.available()["webgpu"]))


@pytest.mark.parametrize("name", ["axpy", "add_i64", "less_i64", "row_sums", "scatter_add", "sum_cancels"])
def test_golden(name: str, golden: Callable[[str, str], None]) -> None:
    golden(f"wgsl/{name}.wgsl", render_kernel(make_portable(SAMPLES[name].kernel, SMALL)).text)


def test_equal_kernels_have_equal_text() -> None:
    k = SAMPLES["mul_c64"].kernel
    assert render_kernel(make_portable(k, SMALL)).text == render_kernel(make_portable(k, SMALL)).text


@here
@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("on", ["webgpu", "gpu", "opengl"])
def test_runs(name: str, on: str) -> None:
    if (why := device.available()[on]) is not None:
        pytest.skip(why)
    P.check(device.find(on), SAMPLES[name])


def test_literals_are_exact() -> None:
    for x in (1.0, 0.1, 1e-20, 3.4e38, 16777217.0, -2.5e-7, 123456.78):
        text = literal(x, float32).strip("()")
        assert np.float32(text.rstrip("f")) == np.float32(x)
    assert literal(float("inf"), float32) == "bitcast<f32>(0x7f800000u ^ rlx_zero)"
    assert literal(-0.0, float32) == "bitcast<f32>(0x80000000u ^ rlx_zero)"
    assert literal(-2**31, int32) == "(-2147483647i - 1i)"
    assert literal(2**64 - 1, uint64) == "18446744073709551615lu"
    assert literal(0.5, float64) == "0.5lf"


def test_constants_are_converted_here() -> None:
    """naga refuses to convert a 64-bit literal; a shader that has one does not compile."""
    zero = L.const(0, int32)
    cast = L.expr("cast", (L.const(-3, int64),), int32)
    k = L.Kernel("k", (L.Param("b0", int32, 1, "w"),), (L.Store("b0", zero, cast),))
    assert "li" not in render_kernel(make_portable(k, SMALL | {int64, uint64})).text


def test_64_bits_are_native_where_the_device_has_them() -> None:
    k = SAMPLES["add_i64"].kernel
    assert "i64" not in render_kernel(make_portable(k, SMALL)).text
    assert "array<i64>" in render_kernel(make_portable(k, SMALL | {int64, uint64})).text


def test_a_long_grid_is_split() -> None:
    body = (L.For("g", P.i(0), P.i(100_000), 1, L.GRID, (L.Store("b0", L.var("g", int32), P.i(1)),)),)
    shader = render_kernel(make_portable(L.Kernel("long", (L.Param("b0", int32, 100_000, "w"),), body), SMALL))
    x, y, z = shader.groups
    assert (x * y >= 100_000, max(x, y) <= 65_535, z) == (True, True, 1)
    assert "if (rlx_flat >= 100000u) { return; }" in shader.text or x * y == 100_000


def test_an_atomic_without_words_is_refused() -> None:
    body = (L.Atomic("add", "b0", P.i(0), L.const(1, int64)),)
    with pytest.raises(CompileError, match="atomic add on int64"):
        make_portable(L.Kernel("k", (L.Param("b0", int64, 1, "rw"),), body), SMALL)
