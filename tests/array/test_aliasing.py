"""Who sees a write: the same object does, everything else never."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import rlx


def test_a_name_is_the_same_object():
    x = rlx.zeros(3)
    y = x
    x[0] = 1.0
    x += 1
    np.testing.assert_array_equal(y, [2, 1, 1])
    assert y is x


@pytest.mark.parametrize("view", [lambda x: x[:], lambda x: x[0:2], lambda x: x.reshape((3, 1)), lambda x: x.T,
                                  lambda x: x.copy(),
                                  lambda x: rlx.asarray(x, copy=True), copy.copy, copy.deepcopy,
                                  lambda x: x.astype("float64"),
                                  lambda x: rlx.reshape(x, (3,))],
                         ids=["slice", "part", "reshape", "T", "copy", "asarray", "copy.copy", "deepcopy", "astype",
                              "same-shape"])
def test_what_is_made_from_an_array_is_a_value_of_its_own(view):
    x = rlx.asarray([1.0, 2.0, 3.0])
    y = view(x)
    before = np.array(y)
    x[0] = 9.0
    np.testing.assert_array_equal(y, before)
    y[...] = 7.0
    np.testing.assert_array_equal(x, [9.0, 2.0, 3.0])


def test_an_expression_keeps_the_value_it_was_built_with():
    x = rlx.asarray([1.0, 2.0])
    y = x * 10
    x[0] = 5.0
    x -= 1
    np.testing.assert_array_equal(y, [10.0, 20.0])
    np.testing.assert_array_equal(x, [4.0, 1.0])


def test_numpy_data_is_copied_in_and_read_only_out():
    host = np.array([1.0, 2.0])
    x = rlx.asarray(host)
    host[0] = 9.0
    out = np.asarray(x)
    np.testing.assert_array_equal(out, [1.0, 2.0])
    with pytest.raises(ValueError, match="read-only"):
        out[0] = 5.0
    np.array(x)[0] = 5.0
    np.testing.assert_array_equal(x, [1.0, 2.0])


def test_a_compiled_function_writes_to_its_own_arguments():
    def f(x):
        x[0] = 9.0
        x += 1
        return x
    x = rlx.zeros(2)
    np.testing.assert_array_equal(rlx.jit(f)(x), [10.0, 1.0])
    np.testing.assert_array_equal(x, [0.0, 0.0])


@pytest.mark.parametrize(("op", "value"),
                         [("__iadd__", 3), ("__isub__", 3), ("__imul__", 3), ("__ifloordiv__", 3), ("__imod__", 3),
                                           ("__ipow__", 2), ("__iand__", 3), ("__ior__", 3), ("__ixor__", 3),
                                           ("__ilshift__", 2),
                                           ("__irshift__", 1)])
def test_in_place_operators_equal_numpys(op, value):
    host = np.array([1, 5, 7], np.int32)
    x = rlx.asarray(host)
    same = getattr(x, op)(value)
    getattr(host, op)(value)
    assert same is x and x.dtype == rlx.int32
    np.testing.assert_array_equal(x, host)


def test_in_place_division_and_product():
    x = rlx.asarray([1.0, 2.0])
    x /= 2
    np.testing.assert_array_equal(x, [0.5, 1.0])
    m = rlx.asarray([[1.0, 2.0], [3.0, 4.0]])
    m @= rlx.asarray([[0.0, 1.0], [1.0, 0.0]])
    np.testing.assert_array_equal(m, [[2.0, 1.0], [4.0, 3.0]])


def test_in_place_takes_the_dtype_of_the_left_side():
    x = rlx.ones(2, dtype="float32")
    x += np.ones(2)
    assert x.dtype == rlx.float32


def test_writes_in_a_loop_keep_the_last_value():
    x = rlx.zeros(4)
    for i in range(4):
        x[i] = x[i - 1] + 1
    np.testing.assert_array_equal(x, [1, 2, 3, 4])
