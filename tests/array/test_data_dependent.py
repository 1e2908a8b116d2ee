"""Results whose size depends on the data: eager, under jit with ``size=``, and the error without it."""

from __future__ import annotations

import numpy as np
import pytest

import rlx
from rlx.core.errors import TraceError

X = np.array([3, 0, 2, 3, 0, 7])
FORMS = {
    "nonzero": (lambda x, **k: rlx.nonzero(x, **k)[0], np.nonzero(X)[0]),
    "flatnonzero": (rlx.flatnonzero, np.flatnonzero(X)),
    "argwhere": (rlx.argwhere, np.argwhere(X)),
    "extract": (lambda x, **k: rlx.extract(x > 0, x, **k), X[X > 0]),
    "unique_values": (rlx.unique_values, np.unique(X)),
    "unique_counts": (lambda x, **k: rlx.unique_counts(x, **k).counts, np.unique(X, return_counts=True)[1]),
    "unique_inverse": (lambda x, **k: rlx.unique_inverse(x, **k).values, np.unique(X)),
    "unique_all": (lambda x, **k: rlx.unique_all(x, **k).indices, np.unique(X, return_index=True)[1]),
    "union1d": (lambda x, **k: rlx.union1d(x, x, **k), np.unique(X)),
    "intersect1d": (lambda x, **k: rlx.intersect1d(x, x, **k), np.unique(X)),
    "setdiff1d": (lambda x, **k: rlx.setdiff1d(x, rlx.asarray([3]), **k), np.setdiff1d(X, [3])),
    "setxor1d": (lambda x, **k: rlx.setxor1d(x, rlx.asarray([3, 8]), **k), np.setxor1d(X, [3, 8])),
    "repeat": (lambda x, **k: rlx.repeat(x, x, **k), np.repeat(X, X)),
}


@pytest.mark.parametrize("name", FORMS)
def test_eager(name):
    f, want = FORMS[name]
    np.testing.assert_array_equal(f(rlx.asarray(X)), want)


@pytest.mark.parametrize("name", FORMS)
def test_compiled_with_size(name):
    f, want = FORMS[name]
    got = rlx.jit(lambda x: f(x, size=len(want)))(rlx.asarray(X))
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name", [n for n in FORMS if n != "repeat"])
def test_size_pads_and_cuts(name):
    f, want = FORMS[name]
    padded, cut = f(rlx.asarray(X), size=len(want) + 3), f(rlx.asarray(X), size=2)
    np.testing.assert_array_equal(padded[:len(want)], want)
    np.testing.assert_array_equal(padded[len(want):], np.zeros_like(np.asarray(padded)[len(want):]))
    np.testing.assert_array_equal(cut, want[:2])


@pytest.mark.parametrize("name", FORMS)
def test_compiled_without_size_says_so(name):
    f, _ = FORMS[name]
    with pytest.raises(TraceError, match="size="):
        rlx.jit(f)(rlx.asarray(X))


def test_a_mask_in_a_compiled_function_says_what_to_do():
    with pytest.raises(TraceError, match=r"rlx\.where") as e:
        rlx.jit(lambda x: x[x > 0])(rlx.asarray(X))
    assert "size=n" in str(e.value)


def test_bincount_compiled_needs_a_length():
    np.testing.assert_array_equal(rlx.jit(lambda x: rlx.bincount(x, length=9))(rlx.asarray(X)),
                                  np.bincount(X, minlength=9))
    with pytest.raises(TraceError):
        rlx.jit(rlx.bincount)(rlx.asarray(X))


@pytest.mark.parametrize("x", [np.zeros((0,), np.int64), np.zeros((3, 0)), np.zeros(4), np.ones((2, 3))])
def test_empty_and_full(x):
    for got, want in zip(rlx.nonzero(rlx.asarray(x)), np.nonzero(x), strict=True):
        np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(rlx.unique_values(rlx.asarray(x)), np.unique(x))
