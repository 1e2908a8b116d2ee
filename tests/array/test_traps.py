"""The traps of array libraries, one test each, named for the trap."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import rlx
from rlx.core.errors import DTypeError, IndexOutOfBounds, RlxError, ShapeError, TraceError


def test_float64_asked_is_float64_given():
    for x in (rlx.asarray([1.0], dtype=rlx.float64), rlx.zeros(3, dtype="float64"), rlx.arange(3, dtype=np.float64)):
        assert x.dtype == rlx.float64
        assert np.asarray(x + 1).dtype == np.float64


def test_a_device_without_float64_refuses_it():
    from rlx.array.hooks import hooks
    assert hooks.default_float("cpu") == rlx.float64
    third = np.float64(1) / 3
    assert float(rlx.asarray(third, dtype=rlx.float64)) == third


def test_there_is_no_global_precision_switch():
    from rlx.core import flags
    assert not [f for f in flags.TABLE if "precision" in f or "x64" in f or "dtype" in f]


def test_float32_matmul_is_ieee_float32():
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((64, 64)).astype(np.float32) for _ in range(2))
    exact = a.astype(np.float64) @ b.astype(np.float64)
    error = np.abs(np.asarray(rlx.asarray(a) @ rlx.asarray(b)) - exact) / (np.abs(a).astype(np.float64) @ np.abs(b))
    # 24 bits of significand and 64 terms; 11 bits (tf32) or 8 (bf16) would be 1e-4 and more.
    assert error.max() < 64 * 2.0**-24


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64", "uint64"])
def test_integer_overflow_wraps_as_numpys(dtype):
    info = np.iinfo(dtype)
    x = np.array([info.max, info.min, info.max // 2 + 1], dtype)
    one = np.array(1, dtype)
    with np.errstate(over="ignore"):
        for f in (lambda v, o: v + o, lambda v, o: v - o - o, lambda v, o: v * (o + o), lambda v, o: -v):
            np.testing.assert_array_equal(f(rlx.asarray(x), rlx.asarray(one)), f(x, one))


def test_a_python_number_that_does_not_fit_raises():
    with pytest.raises(DTypeError, match="does not fit"):
        rlx.asarray([1], dtype=rlx.int8) + 300


@pytest.mark.parametrize("key", [5, -6, (slice(None), 3), [0, 5], np.array([-6])])
def test_out_of_bounds_raises_eagerly(key):
    x = rlx.zeros((5, 3))
    with pytest.raises(IndexOutOfBounds):
        x[key]
    with pytest.raises(IndexOutOfBounds):
        x[key] = 1.0


def test_out_of_bounds_raises_for_an_index_still_pending():
    i = rlx.asarray([1, 4])
    with pytest.raises(IndexOutOfBounds):
        np.asarray(rlx.zeros(5)[i + 1])


def test_out_of_bounds_raises_from_a_compiled_function():
    f = rlx.jit(lambda x, i: x[i] * 2)
    x = rlx.arange(5.0)
    np.testing.assert_array_equal(f(x, rlx.asarray([0, -5, 4])), [0.0, 0.0, 8.0])
    for bad in (rlx.asarray([0, 5]), rlx.asarray([-6]), 7):
        with pytest.raises(IndexOutOfBounds, match="axis 0 of size 5"):
            np.asarray(f(x, bad))


def test_out_of_bounds_assignment_raises_from_a_compiled_function():
    def put(x, i):
        x[i] = 1.0
        return x
    with pytest.raises(IndexOutOfBounds):
        np.asarray(rlx.jit(put)(rlx.zeros(3), rlx.asarray([3])))


@pytest.mark.parametrize("index", [lambda x, i: rlx.argsort(x), lambda x, i: rlx.clip(i, 0, 4), lambda x, i: i % 5,
                                   lambda x, i: rlx.arange(5)[::-1], lambda x, i: rlx.where(i > 2, 1, -5)])
def test_an_index_proven_in_bounds_costs_no_check(index):
    f = rlx.jit(lambda x, i: x[index(x, i)])
    program = f.lower(rlx.arange(5.0), rlx.asarray([1, 9]))
    assert len(program.outputs) == 1


@pytest.mark.parametrize("mask",
                         [np.ones(3, bool), np.zeros(6, bool), np.ones((5, 2), bool), np.zeros((5, 3, 1), bool)])
def test_a_wrong_length_mask_raises(mask):
    x = rlx.zeros((5, 3))
    with pytest.raises(IndexOutOfBounds):
        x[mask]
    with pytest.raises(IndexOutOfBounds):
        x[mask] = 1.0
    with pytest.raises(IndexOutOfBounds):
        x[:, mask] if mask.ndim == 1 and mask.size != 3 else x[mask]


def test_a_mask_gets_as_many_values_as_it_has_true_elements():
    x = rlx.arange(5.0)
    with pytest.raises(ShapeError, match="3 values where a mask selects 2"):
        x[x > 2] = rlx.ones(3)

    def put(x, v):
        x[x > 2] = v
        return x
    np.testing.assert_array_equal(rlx.jit(put)(x, rlx.asarray([7.0, 8.0])), [0, 1, 2, 7, 8])
    with pytest.raises(ShapeError, match="3 values"):
        np.asarray(rlx.jit(put)(x, rlx.ones(3)))


def test_promotion_is_the_standards_and_numbers_are_weak():
    assert (rlx.ones(2, dtype="float32") * 2.5).dtype == rlx.float32
    assert (rlx.ones(2, dtype="int8") + 1).dtype == rlx.int8
    assert (rlx.ones(2, dtype="float32") + rlx.ones(2, dtype="float64")).dtype == rlx.float64
    f = rlx.jit(lambda x, s: x * s)
    assert f(rlx.ones(2, dtype="float32"), 2.5).dtype == rlx.float32


def test_in_place_never_changes_the_dtype():
    x = rlx.ones(2, dtype="int32")
    with pytest.raises(DTypeError, match="in place"):
        x += 1.5
    with pytest.raises(ShapeError, match="in place"):
        x += rlx.ones((3, 2), dtype="int32")
    assert x.dtype == rlx.int32 and x.shape == (2,)


def test_import_takes_no_memory_and_opens_no_device():
    code = "import sys, rlx; from rlx import device; assert not device._opened; assert 'llvmlite' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_repr_is_short_and_says_dtype_shape_and_device():
    text = repr(rlx.zeros((1000, 1000), dtype="float32"))
    assert len(text) < 500 and "float32[1000, 1000] on cpu" in text


@pytest.mark.parametrize("f", [lambda x: x @ x, lambda x: x + rlx.ones(7), lambda x: x.reshape(5), lambda x: x << 1,
                               lambda x: x[9]])
def test_errors_tell_shapes_and_dtypes_never_contents(f):
    x = rlx.full((2, 3), 123456.75)
    with pytest.raises(RlxError) as e:
        f(x)
    assert ("123456" not in str(e.value) and "(2, 3)" in str(e.value)) or "size 2" in str(e.value)
    assert "test_traps.py" in str(e.value) and "do:" in str(e.value)


@pytest.mark.parametrize(("name", "want"), [("maximum", [0.0, 0.0, -0.0, 0.0]), ("minimum", [-0.0, -0.0, -0.0, 0.0])])
def test_the_sign_of_a_zero_is_the_same_eager_and_compiled(name, want, device):
    f, x, y = getattr(rlx, name), [-0.0, 0.0, -0.0, 0.0], [0.0, -0.0, -0.0, 0.0]
    with rlx.flags(device=device):
        a, b = rlx.asarray(x), rlx.asarray(y)
        one = np.asarray([float(f(p, q)) for p, q in zip(x, y, strict=True)])
        number = [np.asarray(v) for v in (f(a, 0.0), rlx.jit(f)(a, 0.0), rlx.jit(lambda v: f(v, 0.0))(a))]
        for got in (f(a, b), rlx.jit(f)(a, b), one):
            np.testing.assert_array_equal(np.signbit(got), np.signbit(want))
        for got in number:
            np.testing.assert_array_equal(np.signbit(got), np.signbit(f(a, rlx.zeros(4))))


def test_a_mask_among_other_keys_is_written_through_in_a_compiled_function():
    base = np.arange(60.0).reshape(3, 4, 5)
    rows, columns = np.array([True, False, True]), np.array([True, False, False, True])
    for key, value in (((rows, 2), np.ones((2, 5))), ((slice(None), columns, 0), np.arange(6.0).reshape(3, 2)),
                       ((rows, slice(1, 3), 4), 7.0), ((..., columns, slice(None)), -1.0),
                       ((1, slice(None), np.array([True, False, False, True, False])), np.ones((2, 4)))):
        want, at = base.copy(), next(i for i, k in enumerate(key) if isinstance(k, np.ndarray))
        want[key] = value

        def put(x, mask, key=key, at=at, value=value):
            x[(*key[:at], mask, *key[at + 1:])] = value
            return x
        np.testing.assert_array_equal(rlx.jit(put)(rlx.asarray(base), rlx.asarray(key[at])), want)
    with pytest.raises(TraceError, match=r"rlx\.where"):
        rlx.jit(lambda x, m: x[m, 2])(rlx.asarray(base), rlx.asarray(rows))


def test_a_traced_value_is_not_looked_at():
    with pytest.raises(TraceError, match=r"rlx\.where"):
        rlx.jit(lambda x: x if x.sum() > 0 else -x)(rlx.ones(2))


def test_no_second_compile_for_new_numbers_and_new_data():
    from rlx.runtime.execute import PROGRAMS
    x, y = rlx.asarray(np.arange(1000.0)), rlx.asarray(np.ones(1000))
    float((x + y * 2).sum())
    before = PROGRAMS.compiles
    for k in (3.5, 0.25, -1.0):
        assert float((rlx.asarray(np.full(1000, k)) + y * k).sum()) == 2000 * k
    float((x + y * 7.0).sum())
    assert PROGRAMS.compiles - before <= 1   # the integer 2 and a float are two programs


def test_a_count_that_depends_on_data_makes_no_new_program():
    from rlx.runtime.execute import PROGRAMS
    base = np.zeros(64)
    rlx.nonzero(rlx.asarray(base))
    before = PROGRAMS.compiles
    for k in (1, 5, 17):
        x = base.copy()
        x[:k] = 1
        assert rlx.nonzero(rlx.asarray(x))[0].shape == (k,)
        assert rlx.asarray(x)[rlx.asarray(x) > 0].shape == (k,)
    assert PROGRAMS.compiles - before <= 2   # the masked read is a program of its own, made once
