"""What people write by mistake is an error that says what to do, at the line that did it."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.core.errors import DTypeError, IndexOutOfBounds, ShapeError, ValueIssue


@dataclasses.dataclass
class Scale:
    by: Any

    @rlx.jit
    def method(self, x):
        return x * self.by

    @rlx.jit
    def __call__(self, x):
        return x - self.by


class Plain:
    by = 3.0

    @rlx.jit
    def method(self, x):
        return x * self.by

    @functools.partial(rlx.jit, static_argnums=0)
    def static(self, x):
        return x * self.by


def test_a_compiled_function_in_a_class_is_a_method():
    scale = Scale(2.0)
    assert [scale.method(k).item() for k in (1.0, 2.0, 3.0)] == [2.0, 4.0, 6.0]
    scale.by = 5.0                                          # a field is an argument: its new value is seen
    assert scale.method(1.0).item() == 5.0 and scale(1.0).item() == -4.0
    assert Scale.method(scale, 1.0).item() == 5.0
    assert Plain().static(2.0).item() == 6.0


def test_an_instance_that_is_no_pytree_is_named():
    with pytest.raises(ValueIssue, match=r"method\(\) was given an argument.*of type Plain"):
        Plain().method(1.0)


def test_arguments_and_results_of_a_compiled_function():
    f = rlx.jit(lambda x, s=0.0: x)
    with pytest.raises(ValueIssue, match="of type str") as e:
        f(1.0, "a")
    assert "static_argnames" in e.value.do
    with pytest.raises(DTypeError, match="has no rlx type") as e:
        f(np.array(["a"]))
    assert str(e.value).count("where:") == 1                # one error, not an error in an error
    with pytest.raises(ValueIssue, match="static argument that is not hashable"):
        rlx.jit(lambda x, s: x, static_argnums=1)(1.0, [1])
    with pytest.raises(DTypeError, match="returns a str"):
        rlx.jit(lambda x: (x, "s"))(1.0)


@pytest.mark.parametrize("f", [rlx.sort, rlx.argsort, rlx.argmax, rlx.argmin])
def test_complex_numbers_have_no_order(f):
    with pytest.raises(DTypeError) as e:
        f(rlx.asarray([1j, 2.0]))
    assert e.value.why == "complex numbers have no order"


def test_custom_gradient_without_a_backward_function():
    f = rlx.custom_gradient(lambda x: x * 2)
    for g in (f, rlx.grad(f)):
        with pytest.raises(ValueIssue, match="custom_gradient returns Array"):
            g(rlx.asarray(1.0))


def test_shapes_of_random_arrays():
    key = rlx.random.key(0)
    assert rlx.random.uniform(key, np.int64(3)).shape == (3,)
    assert rlx.random.uniform(key, np.array([2, 3])).shape == (2, 3)
    for shape in (3.0, (2.5,), "ab"):
        with pytest.raises(ShapeError, match="a random array of shape"):
            rlx.random.uniform(key, shape)


@pytest.mark.parametrize("key", [1.0, "a", 2j, object()])
def test_what_is_no_index(key):
    x = rlx.zeros(3)
    with pytest.raises(IndexOutOfBounds, match="an array indexed by"):
        x[key]
    with pytest.raises(IndexOutOfBounds, match="an array indexed by"):
        x[key] = 1.0
    assert x[np.int8(1)].item() == 0.0


@pytest.mark.parametrize("key", [slice(None), np.array([True, False]), np.array([0, 1])])
def test_an_imaginary_part_is_not_dropped_by_assignment(key):
    x = rlx.zeros(2)
    with pytest.raises(DTypeError, match="complex128 values put into a float64 array"):
        x[key] = rlx.asarray([1j]) if isinstance(key, slice) else [2j, 1.0]
    assert x.tolist() == [0.0, 0.0]


def test_assignment_drops_leading_axes_of_size_one():
    x = rlx.zeros((2, 3))
    x[:, 1:] = np.ones((1, 1, 2, 2))
    assert x.tolist() == [[0.0, 1.0, 1.0]] * 2
    with pytest.raises(ShapeError):
        x[0] = np.ones((2, 3))
