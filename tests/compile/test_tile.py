"""Contractions as register tiles: every size class, layout and batch form against NumPy, fused ends, text, verifier."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.core.errors import VerifyError
from rlx.ir import loop as L
from rlx.ir.text import parse_program, print_program
from rlx.ir.verify import verify_program

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


def test_a_small_or_integer_product_is_a_reduction() -> None:
    small = _program(lambda x, y: x @ y, rlx.ones((3, 4)), rlx.ones((4, 3)))
    assert not _tiles(small)
    ints = rlx.asarray(np.arange(400).reshape(20, 20))
    assert not _tiles(_program(lambda x: x @ x, ints))
    with rlx.flags(kernel_dispatch="common"):
        np.testing.assert_array_equal(np.asarray(ints @ ints), np.asarray(ints).copy() @ np.asarray(ints))
