"""Contractions as register tiles: every size class, layout and batch form against NumPy, fused ends, text, verifier."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.compile.legalize import Policy
from rlx.compile.pipeline import compile_graph
from rlx.core.dtype import as_dtype
from rlx.core.errors import VerifyError
from rlx.device.cpu.device import CpuDevice
from rlx.ir import loop as L
from rlx.ir.text import parse_program, print_program
from rlx.ir.verify import verify_program
from tests.test_readme import execute

SIZES = [(64, 96, 64), (13, 17, 29), (2, 8, 8), (97, 40, 33), (300, 200, 100), (12, 8, 500), (5, 100, 10),
         (200, 9, 1030)]


def _arrays(m: int, k: int, n: int, dtype: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(m * 7 + k * 3 + n)
    return (rng.standard_normal((m, k)).astype(dtype), rng.standard_normal((k, n)).astype(dtype),
            rng.standard_normal(n).astype(dtype))


def _tolerance(dtype: str, k: int) -> float:
    return float(np.finfo(dtype).eps) * 4 * k


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_layouts_and_ends(size: tuple[int, int, int], dtype: str) -> None:
    x, w, b = _arrays(*size, dtype)
    exact = x.astype(np.longdouble) @ w.astype(np.longdouble)
    tol = _tolerance(dtype, size[1])

    def close(got: Any, want: Any) -> None:
        np.testing.assert_allclose(np.asarray(got), want.astype(dtype), rtol=tol, atol=tol * 4)

    with rlx.flags(kernel_dispatch="common"):
        X, W, B = map(rlx.asarray, (x, w, b))
        XT, WT = (rlx.asarray(np.ascontiguousarray(a.T)) for a in (x, w))
        close(X @ W, exact)
        close(rlx.maximum(X @ W + B, 0.0) * 2, np.maximum(exact + b, 0) * 2)
        close(XT.T @ W, exact)
        close(X @ WT.T, exact)
        close((X * 2) @ (W + 1), (x * 2).astype(np.longdouble) @ (w + np.array(1, dtype)).astype(np.longdouble))
        two = rlx.stack([X, X * 2]) @ rlx.stack([W, W * 3])
        close(two, np.stack([exact, exact * 6]))


def _program(f: Any, *args: Any) -> Any:
    return rlx.jit(f, dispatch="common").lower(*args).lowered.program


def _tiles(program: Any) -> list[L.Kernel]:
    return [k for k in program.kernels() if "contract" in print_program(program) and "tiles of" in k.notes]


@pytest.mark.parametrize("vector_bytes", [16, 32, 64])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_tiles_of_every_vector_width_are_right(vector_bytes: int, dtype: str) -> None:
    """LLVM splits vectors wider than the machine's, so every width runs on every machine."""
    rng = np.random.default_rng(vector_bytes)
    x, w, b = (rng.integers(-9, 9, s).astype(dtype) for s in ((29, 70), (70, 83), (83,)))
    graph = rlx.jit(lambda x, w, b: x @ w + b, dispatch="common").lower(*map(rlx.asarray, (x, w, b))).lowered.hir
    target = CpuDevice()
    target.caps = replace(target.caps, vector_bytes=vector_bytes)
    program = compile_graph(graph, target, Policy("common")).program
    assert program is not None and _tiles(program)
    out = target.empty(as_dtype(dtype), (29, 83))
    target.load(program).run([target.upload(a) for a in (x, w, b)], [out])
    np.testing.assert_array_equal(out.array, x @ w + b)


def test_the_end_of_a_layer_is_in_the_tile() -> None:
    x, w, b = map(rlx.asarray, _arrays(64, 96, 64, "float32"))
    program = _program(lambda x, w, b: rlx.tanh(x @ w + b) * x[:, :64], x, w, b)
    assert len(program.kernels()) == 2  # packing, and the contraction with everything after it
    assert len(_tiles(program)) == 1


def test_a_cast_happens_while_packing() -> None:
    x, w, _ = _arrays(32, 64, 32, "float32")
    half = w.astype(np.float16)
    program = _program(lambda x, w: x @ w.astype("float32"), rlx.asarray(x), rlx.asarray(half))
    assert len(program.kernels()) == 2
    with rlx.flags(kernel_dispatch="common"):
        got = rlx.asarray(x) @ rlx.asarray(half).astype("float32")
        np.testing.assert_allclose(np.asarray(got), x @ half.astype(np.float32), rtol=1e-4, atol=1e-4)


def test_tile_programs_print_parse_and_verify() -> None:
    x, w, b = map(rlx.asarray, _arrays(97, 40, 33, "float64"))
    program = _program(lambda x, w, b: x @ w + b, x, w, b)
    verify_program(program)
    text = print_program(program)
    assert "contract" in text and print_program(parse_program(text)) == text


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_that_would_evict_each_other_are_copied_apart(dtype: str) -> None:
    depth = 4096 // np.dtype(dtype).itemsize
    rng = np.random.default_rng(5)
    x, w = (rng.standard_normal(s).astype(dtype) for s in ((2, 61, depth), (2, depth, 130)))
    X, W = map(rlx.asarray, (x, w))
    program = _program(lambda x, w: x @ w + 1, X, W)
    if any("tiles of 12" in k.notes for k in program.kernels()):
        assert any("spread 61 rows" in k.notes for k in program.kernels())
    with rlx.flags(kernel_dispatch="common"):
        np.testing.assert_allclose(np.asarray(X @ W + 1), x @ w + 1, rtol=0, atol=_tolerance(dtype, depth) * 8)


def test_a_contraction_in_tiles_shares_no_kernel_with_reductions() -> None:
    x, w, _ = map(rlx.asarray, _arrays(64, 64, 64, "float32"))

    def f(x: Any, w: Any) -> Any:
        y, z = x @ w, x @ (w * 2)
        return y, z, y.sum(), rlx.max(z, axis=1), (x * w).sum(axis=0)

    program = _program(f, x, w)
    assert len([s for s in program.steps if isinstance(s, L.Launch) and "tiles of" in s.kernel.notes]) == 2
    assert not any("reduce" in k.notes and "dot" in k.notes for k in program.kernels())
    X, W = np.asarray(x), np.asarray(w)
    with rlx.flags(kernel_dispatch="common"):
        _, _, total, most, _ = f(x, w)
        np.testing.assert_allclose(np.asarray(total), (X @ W).sum(), rtol=1e-3)
        np.testing.assert_allclose(np.asarray(most), (2 * X @ W).max(1), rtol=1e-4)


def test_columns_along_memory_are_packed_in_squares() -> None:
    x, w, _ = _arrays(40, 50, 37, "float32")
    program = _program(lambda x, w: x @ w.T, rlx.asarray(x), rlx.asarray(np.ascontiguousarray(w.T)))
    text = print_program(program)
    assert "transpose b0" in text and print_program(parse_program(text)) == text
    broken = re.sub(r"(transpose (b\d+)\[.* = )b\d+\[", r"\1\2[", text, count=1)
    assert broken != text
    with pytest.raises(VerifyError, match=r"write only|into itself"):
        verify_program(parse_program(broken))


@pytest.mark.parametrize(("m", "dtype"), [(16, "float32"), (13, "float32"), (8, "float64")])
def test_few_rows_times_a_large_matrix_are_the_transpose_in_tiles(m: int, dtype: str) -> None:
    x, w, b = _arrays(m, 100, 203, dtype)
    X, W, B, WT = map(rlx.asarray, (x, w, b, np.ascontiguousarray(w.T)))
    exact = x.astype(np.longdouble) @ w
    tol = _tolerance(dtype, 100) * 4
    program = _program(lambda x, w: x @ w, X, W)
    if any("tiles of 16 x" in k.notes or "tiles of 8 x" in k.notes for k in program.kernels()):
        assert any(f"pack 100 x {m} " in k.notes for k in program.kernels())
    with rlx.flags(kernel_dispatch="common"):
        np.testing.assert_allclose(np.asarray(rlx.jit(lambda x, w, b: rlx.tanh(x @ w + b))(X, W, B)),
                                   np.tanh(exact + b).astype(dtype), rtol=tol, atol=tol)
        np.testing.assert_allclose(np.asarray(rlx.jit(lambda x, w: (x @ w.T) * x[:, :1])(X, WT)),
                                   (exact * x[:, :1]).astype(dtype), rtol=tol, atol=tol)
        three = rlx.jit(lambda x, w: x.reshape((m, 1, 100)) @ w)(X, W)
        np.testing.assert_allclose(np.asarray(three)[:, 0], exact.astype(dtype), rtol=tol, atol=tol)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "uint32", "int64", "uint64"])
def test_products_of_integers_are_exact_and_wrap(dtype: str) -> None:
    rng = np.random.default_rng(3)
    info = np.iinfo(dtype)
    x, y = (rng.integers(info.min, info.max, s, dtype=dtype, endpoint=True) for s in ((37, 50), (50, 43)))
    X, Y = map(rlx.asarray, (x, y))
    assert _tiles(_program(lambda x, y: x @ y, X, Y))
    with rlx.flags(kernel_dispatch="common"):
        np.testing.assert_array_equal(np.asarray(X @ Y), x @ y)
        wide = np.asarray(X.astype("int64") @ Y.astype("int64"))
        np.testing.assert_array_equal(wide, x.astype(np.int64) @ y.astype(np.int64))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_sums_in_single_and_rounds_once(dtype: str) -> None:
    rng = np.random.default_rng(4)
    x, y = (rlx.asarray(rng.random(s, np.float32)).astype(dtype) for s in ((30, 600), (600, 20)))
    exact = np.asarray(x.astype("float64")).copy() @ np.asarray(y.astype("float64")).copy()
    one_rounding = 2.0 ** -(11 if dtype == "float16" else 8)
    for policy in ("common", "prefer_native"):
        with rlx.flags(kernel_dispatch=policy):
            got = np.asarray((x @ y).astype("float64"))
            np.testing.assert_allclose(got, exact, rtol=one_rounding * 1.01)
    report = rlx.jit(lambda x, y: x @ y).lower(x, y).lowered.report
    assert any(r.op == "dot" and r.by == "wide-accumulation" for r in report)


def test_a_small_product_is_a_reduction() -> None:
    small = _program(lambda x, y: x @ y, rlx.ones((3, 4)), rlx.ones((4, 3)))
    assert not _tiles(small)


def test_the_page_on_products_runs() -> None:
    page = Path(__file__).parents[2] / "docs" / "products.md"
    assert execute(page.read_text(encoding="utf-8"), "docs/products.md") == 2
