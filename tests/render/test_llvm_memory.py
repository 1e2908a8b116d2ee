"""Memory through the LLVM renderer: loads that may not happen, atomics, local and shared arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlx.core.dtype import ALL, DType, bfloat16, bool_, complex64, float32, float64, int32, int64
from rlx.ir import loop
from rlx.ir.loop import Assign, Atomic, Kernel, Param, Register, Store, const, load, var
from rlx.render.llvm import module
from tests.render.build import I, J, K, loop_over, op
from tests.render.llvm_jit import Jitted, from_bf16, to_bf16


def _padded(n: int, pad: int, kind: str) -> Kernel:
    at = op("sub", I, const(pad))
    inside = op("and", op("ge", at, const(0), dtype=bool_), op("lt", at, const(n), dtype=bool_))
    value = op("select", inside, load("x", at, float32), const(-1, float32))
    return Kernel(
        "pad",
        (Param("x", float32, n, "r"), Param("y", float32, n + 2 * pad, "w")),
        (loop_over("i", n + 2 * pad, Store("y", I, value), kind=kind),),
    )


@pytest.mark.parametrize("kind", [loop.SERIAL, loop.VECTOR])
def test_select_does_not_load_outside_its_buffer(kind: str) -> None:
    """The pad is wider than a page, so an unguarded load would leave the mapping."""
    import mmap

    n, pad = mmap.PAGESIZE // 4, 64 * mmap.PAGESIZE
    area = mmap.mmap(-1, mmap.PAGESIZE)
    x = np.frombuffer(area, np.float32)
    x[:] = np.arange(n)
    y = np.zeros(n + 2 * pad, np.float32)
    kernel = _padded(n, pad, kind)
    Jitted([kernel])("pad", x, y)
    np.testing.assert_array_equal(y[pad:-pad], x)
    assert (y[:pad] == -1).all() and (y[-pad:] == -1).all()
    assert " phi float" in module([kernel])


def test_select_of_proven_loads_has_no_branch() -> None:
    choice = op(
        "select",
        op("lt", load("x", I, float32), const(0, float32), dtype=bool_),
        load("x", op("add", I, const(1)), float32),
        const(0, float32),
    )
    kernel = Kernel(
        "k",
        (Param("x", float32, 101, "r"), Param("y", float32, 100, "w")),
        (loop_over("i", 100, Store("y", I, choice), kind=loop.VECTOR),),
    )
    assert " phi float" not in module([kernel])


def test_logical_and_guards_its_right_side() -> None:
    both = op("and", op("lt", I, const(3), dtype=bool_), load("x", I, bool_))
    kernel = Kernel(
        "k",
        (Param("x", bool_, 3, "r"), Param("y", bool_, 9, "w")),
        (loop_over("i", 9, Store("y", I, both)),),
    )
    assert " phi i1" in module([kernel])
    x, y = np.array([True, False, True]), np.ones(9, bool)
    Jitted([kernel])("k", x, y)
    np.testing.assert_array_equal(y, [1, 0, 1, 0, 0, 0, 0, 0, 0])


@pytest.mark.parametrize("d", [d for d in ALL if d.kind in "iuf"], ids=lambda d: d.short)
@pytest.mark.parametrize("kind", ["add", "min", "max"])
def test_atomics(kind: str, d: DType) -> None:
    n = 120
    x = np.random.default_rng(4).integers(0, 7, n)
    where = np.arange(n) % 5
    kernel = Kernel(
        "k",
        (Param("i", int64, n, "r"), Param("x", d, n, "r"), Param("y", d, 5, "rw")),
        (loop_over("j", n, Atomic(kind, "y", load("i", J, int64), load("x", J, d))),),
    )
    stored = to_bf16(x.astype(np.float32)) if d == bfloat16 else x.astype(d.numpy)
    first = 3
    y = np.full(5, to_bf16(np.float32([first]))[0] if d == bfloat16 else first, d.numpy)
    Jitted([kernel], level=1)("k", where, stored, y)
    combine: Any = {"add": np.add, "min": np.minimum, "max": np.maximum}[kind]
    want = np.full(5, first)
    combine.at(want, where, x)
    np.testing.assert_array_equal((from_bf16(y) if d == bfloat16 else y).astype(np.int64), want)


@pytest.mark.parametrize("d", [float32, float64, bfloat16], ids=lambda d: d.short)
def test_atomic_extremes_keep_nan(d: DType) -> None:
    kernel = Kernel(
        "k",
        (Param("x", d, 2, "r"), Param("y", d, 1, "rw")),
        (loop_over("j", 2, Atomic("max", "y", const(0), load("x", J, d))),),
    )
    x, y = np.array([np.nan, 5.0], np.float32), np.zeros(1, np.float32)
    if d == bfloat16:
        x, y = to_bf16(x), to_bf16(y)
    else:
        x, y = x.astype(d.numpy), y.astype(d.numpy)
    Jitted([kernel], level=1)("k", x, y)
    assert np.isnan(from_bf16(y) if d == bfloat16 else y)[0]


def test_complex_registers_loads_and_atomics() -> None:
    d, n = complex64, 33
    rng = np.random.default_rng(5)
    x = (rng.normal(size=n) + 1j * rng.normal(size=n)).astype(np.complex64)
    square = op("mul", load("x", I, d), op("conj", load("x", I, d)))
    kernel = Kernel(
        "k",
        (Param("x", d, n, "r"), Param("out", d, 2, "rw")),
        (
            Register("acc", const(0, d)),
            loop_over(
                "i",
                n,
                Assign("acc", op("add", var("acc", d), square), True),
                Atomic("add", "out", const(1), load("x", I, d)),
            ),
            Store("out", const(0), var("acc", d)),
        ),
    )
    out = np.zeros(2, np.complex64)
    Jitted([kernel])("k", x, out)
    assert out[0].imag == 0
    np.testing.assert_allclose(out, [np.sum(np.abs(x) ** 2), x.sum()], rtol=1e-5)


def test_local_array_in_a_vector_loop_stays_private() -> None:
    """Each iteration writes its scratch before reading it, so its accesses are not marked parallel."""
    d, n = float64, 50
    scratch = (
        loop.Array("t", d, 4, "local"),
        loop_over("k", 4, Store("t", K, op("add", load("x", I, d), op("cast", K, dtype=d)))),
        Register("s", const(0, d)),
        loop_over("k", 4, Assign("s", op("add", var("s", d), load("t", K, d)))),
        Store("y", I, var("s", d)),
    )
    kernel = Kernel(
        "k",
        (Param("x", d, n, "r"), Param("y", d, n, "w")),
        (loop_over("i", n, *scratch, kind=loop.VECTOR),),
    )
    x, y = np.arange(n, dtype=np.float64), np.zeros(n)
    Jitted([kernel])("k", x, y)
    np.testing.assert_array_equal(y, 4 * x + 6)


def test_shared_array_and_barrier_are_those_of_one_lane() -> None:
    d = int32
    kernel = Kernel(
        "k",
        (Param("x", d, 8, "rw"),),
        (
            loop.Array("t", d, 8, "shared"),
            loop_over("i", 8, Store("t", I, load("x", I, d))),
            loop.Barrier(),
            loop_over("i", 8, Store("x", I, load("t", op("sub", const(7), I), d))),
        ),
    )
    x = np.arange(8, dtype=np.int32)
    Jitted([kernel])("k", x)
    np.testing.assert_array_equal(x, np.arange(8)[::-1])
