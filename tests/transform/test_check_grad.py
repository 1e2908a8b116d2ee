"""Every differentiable op of the registry: forward and reverse mode against differences of its values, in float64."""

from __future__ import annotations

import numpy as np
import pytest

import rlx
from rlx.array.array import Array
from rlx.array.build import as_array, emit
from rlx.array.define import OpFunction
from rlx.ir.op import REGISTRY, NotDifferentiable, Op, Sample
from rlx.testing import check_grad
from rlx.tools import cases as registry  # loads every op's samples, those of the domain packages too

#: Ops that must be run under something these tests do not set up.
APART = {
    "call": "a traced function: its rules are tested where it is made",
    "linalg.solve": "its factors and pivots are outputs beside the solution: tests/linalg/test_grad.py",
    "linalg.eig": "eigenvectors are free in phase and order: tests/linalg/test_grad.py takes functions that are not",
    "linalg.eigh": "eigenvectors are free in phase: tests/linalg/test_grad.py takes functions that are not",
}


def call(op: Op, args: tuple, attrs: dict) -> object:
    if isinstance(op, OpFunction):
        return op(*args, **attrs)
    outs = emit(op.name, [as_array(a) for a in args], attrs)
    return outs[0] if len(outs) == 1 else list(outs)


def cases() -> list:
    found = []
    assert registry.cases
    for op in REGISTRY:
        if op.name in APART or any(isinstance(op.rules.get(k), NotDifferentiable) for k in ("grad",)):
            continue
        for s in op.all_samples():
            if s.grad and any(_inexact(a) for a in _flat(s.args)):
                found.append(pytest.param(op, s, id=f"{op.name}-{s.name or 'sample'}"))
    return found


def _flat(args: object) -> list:
    return [b for a in args for b in _flat(a)] if isinstance(args, (tuple, list)) else [args]


def _inexact(a: object) -> bool:
    return isinstance(a, (float, complex)) or (hasattr(a, "dtype") and np.dtype(a.dtype).kind in "fc")


@pytest.mark.parametrize(("op", "sample"), cases())
def test_derivatives(op: Op, sample: Sample):
    def f(*args: object) -> object:
        return call(op, args, sample.attrs)
    args = [tuple(a) if isinstance(a, list) else a for a in sample.args]
    check_grad(f, *args, rtol=2e-6 * sample.tolerance, atol=1e-7)


def test_a_wrong_gradient_is_found():
    @rlx.custom_gradient
    def wrong(x: Array) -> tuple:
        return rlx.sin(x), lambda ct: ct * rlx.sin(x)
    with pytest.raises(AssertionError, match="reverse"):
        check_grad(wrong, np.array([0.3, 1.0]), modes=("reverse",))


def test_a_wrong_second_derivative_is_found():
    @rlx.custom_gradient
    def wrong(x: Array) -> tuple:
        return rlx.sin(x), lambda ct: ct * rlx.stop_gradient(rlx.cos(x))
    check_grad(wrong, np.array([0.3, 1.0]))
    with pytest.raises(AssertionError):
        check_grad(wrong, np.array([0.3, 1.0]), order=2)


def test_the_error_it_returns_is_small_and_orders_work():
    assert check_grad(lambda x, y: rlx.tanh(x @ y), np.ones((2, 3)) * 0.1, np.full(3, 0.2), order=3) < 1e-5
