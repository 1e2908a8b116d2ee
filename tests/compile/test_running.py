"""Running reductions in pieces: the same values as one after the other, for every length around the pieces' bounds."""

from __future__ import annotations

import numpy as np
import pytest

import rlx
from rlx.compile.running import PIECE, SIDE
from rlx.ops.scan import scan

RNG = np.random.default_rng(3)
WHOLE = SIDE * PIECE
NUMPY = {"add": np.cumsum, "max": np.maximum.accumulate, "min": np.minimum.accumulate}


@pytest.mark.parametrize("n", [WHOLE - 1, WHOLE, WHOLE + 1, 3 * WHOLE + 5, 70 * WHOLE + 77])
def test_sums_of_every_length_are_exact_in_integers(n):
    x = RNG.integers(-9, 9, n)
    np.testing.assert_array_equal(np.asarray(scan(rlx.asarray(x), "add", 0)), np.cumsum(x))


@pytest.mark.parametrize("kind", ["add", "max", "min"])
@pytest.mark.parametrize("reverse", [False, True])
def test_kinds_directions_axes_and_operands_computed_on_the_way(kind, reverse):
    x = RNG.standard_normal((3, 2 * WHOLE + 11))
    for axis, host in ((1, x), (0, np.ascontiguousarray(x.T))):
        turned = np.flip(host * 2 + 1, axis) if reverse else host * 2 + 1
        want = NUMPY[kind](turned, axis=axis)
        f = rlx.jit(lambda x, axis=axis: scan(x * 2 + 1, kind, axis, reverse))
        np.testing.assert_allclose(np.asarray(f(rlx.asarray(host))), np.flip(want, axis) if reverse else want,
                                   rtol=1e-12, atol=1e-11)


def test_nan_and_infinity_go_on_to_the_end():
    x = np.ones(2 * WHOLE)
    x[WHOLE + 7] = np.nan
    out = np.asarray(rlx.cumsum(rlx.asarray(x)))
    np.testing.assert_array_equal(out, np.cumsum(x))
    x[WHOLE + 7] = -np.inf
    np.testing.assert_array_equal(np.asarray(rlx.cumsum(rlx.asarray(x))), np.cumsum(x))
