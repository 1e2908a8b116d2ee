"""Simplify: movement meets storage, and shared expressions are done once."""

from __future__ import annotations

import numpy as np

import rlx


def test_a_reshape_of_a_shared_expression_is_linear_in_its_size() -> None:
    """Every level uses the one below twice: done a path at a time it would be 2**64 steps."""
    def f(x: rlx.Array) -> rlx.Array:
        for _ in range(64):
            x = x * 0.5 + x * 0.25
        return rlx.reshape(x, (6,))
    x = np.arange(6.0).reshape(2, 3)
    np.testing.assert_allclose(np.asarray(rlx.jit(f)(rlx.asarray(x))), x.ravel() * 0.75**64)


def test_a_reshape_sinks_through_a_long_chain() -> None:
    """Deeper than Python's recursion limit would let a recursive walk go."""
    def f(x: rlx.Array) -> rlx.Array:
        for _ in range(1500):
            x = x + 1
        return rlx.reshape(x, (2, 2))
    out = np.asarray(rlx.jit(f, device="python")(rlx.asarray(np.zeros(4), device="python")))
    np.testing.assert_array_equal(out, np.full((2, 2), 1500.0))
