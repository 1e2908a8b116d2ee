"""Radix sorts: the stable order whatever the dtype, direction and shape; bytes that do not differ are not moved."""

from __future__ import annotations

import numpy as np
import pytest

import rlx
from rlx.compile.radix import SHORTEST
from rlx.ir import loop as L

RNG = np.random.default_rng(7)
#: Every dtype, short; the ways to cut the work, on some.
DTYPES = ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32",
          "float64")


def values(dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """Random values with ties; floats with both zeros, both infinities and NaN."""
    if dtype == "bool":
        return RNG.random(shape) > 0.5
    if dtype.startswith("float"):
        x = RNG.standard_normal(shape).astype(dtype)
        x.flat[::7], x.flat[1::5], x.flat[2::5], x.flat[3], x.flat[4] = np.nan, 0.0, -0.0, np.inf, -np.inf
        return x
    info = np.iinfo(dtype)
    x = RNG.integers(info.min, info.max, shape, dtype, endpoint=True)
    x.flat[::3] = x.flat[0]
    return x


def stable(x: np.ndarray, axis: int, descending: bool) -> np.ndarray:
    """The order by definition: by value, NaN last, then by place."""
    nan = np.isnan(x) if x.dtype.kind == "f" else np.zeros(x.shape, bool)
    order = np.empty(x.shape, np.int64)
    for at in np.ndindex(*[n for a, n in enumerate(x.shape) if a != axis]):
        line = (*at[:axis], slice(None), *at[axis:])
        _, rank = np.unique(x[line], return_inverse=True)
        rank = -rank if descending else rank
        order[line] = np.lexsort((np.arange(x.shape[axis]), rank, nan[line]))
    return order


CASES = [*[(d, (400,), 0, down) for d in DTYPES for down in (False, True)],
         ("float32", (40_000,), 0, True), ("int64", (40_000,), 0, False), ("float64", (3, 300), 1, False),
         ("int16", (300, 3), 0, True), ("float16", (2, 33_000), 1, False)]


@pytest.mark.parametrize(("dtype", "shape", "axis", "descending"), CASES)
def test_the_stable_order(dtype, shape, axis, descending):
    x = values(dtype, shape)
    want = stable(x, axis, descending)
    a = rlx.asarray(x)
    np.testing.assert_array_equal(np.asarray(rlx.argsort(a, axis=axis, descending=descending)), want)
    moved = np.asarray(rlx.sort(a, axis=axis, descending=descending))
    bits = f"u{moved.itemsize}"
    np.testing.assert_array_equal(moved.view(bits), np.take_along_axis(x, want, axis).view(bits))


def kernels(n: int) -> list[str]:
    program = rlx.jit(lambda x: rlx.argsort(x)).lower(rlx.asarray(np.zeros(n, np.float32))).lowered.program
    return [s.kernel.notes for s in program.steps if isinstance(s, L.Launch)]


def test_short_lines_merge_middle_ones_count_and_long_ones_share_the_work():
    assert any("merge" in k for k in kernels(SHORTEST[32] - 1))
    assert sum("radix" in k for k in kernels(SHORTEST[32])) == 1
    assert sum("radix" in k for k in kernels(40_000)) == 3 + 3 * 4


def test_keys_that_share_their_high_bytes_and_keys_that_are_all_equal():
    for x in (RNG.integers(5_000_000, 5_000_200, 50_000).astype(np.int64), np.full(50_000, -3.5), np.full(300, 2)):
        np.testing.assert_array_equal(np.asarray(rlx.argsort(rlx.asarray(x))), np.argsort(x, kind="stable"))


def test_the_result_does_not_depend_on_the_number_of_threads():
    x = RNG.integers(0, 50, 60_000).astype(np.float32)
    y = np.asarray(rlx.jit(lambda x: rlx.argsort(x * 2 + 1))(rlx.asarray(x)))
    np.testing.assert_array_equal(y, np.argsort(x, kind="stable"))
