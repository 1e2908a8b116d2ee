"""What expansions rely on, on every device: the rest of a product is exact. And a function that shows it."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import scipy.special

import rlx
from rlx import device as devices
from rlx.core.dtype import as_dtype
from rlx.ops.elementwise import fma


def needs(device: str, dtype: type) -> None:
    if not devices.find(device).caps.stores(as_dtype(dtype)):
        pytest.skip(f"{device} has no {dtype.__name__}")


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_rest_of_a_product_is_exact(device: str, dtype: type) -> None:
    """``fma(x, y, -(x*y))`` is what rounding took from the product, however the device comes by its fma."""
    needs(device, dtype)
    if device == "python" and dtype is np.float64:
        pytest.skip("the interpreter's fma of float64 goes through NumPy's long double, which has 11 bits more")
    rng = np.random.default_rng(3)
    x, y = ((rng.standard_normal(500) * 10.0 ** rng.integers(-3, 3, 500)).astype(dtype) for _ in range(2))
    p = x * y
    exact = [Fraction(float(a)) * Fraction(float(b)) for a, b in zip(x, y, strict=True)]
    want = [float(e - Fraction(float(c))) for e, c in zip(exact, p, strict=True)]
    args = [rlx.asarray(v, device=device) for v in (x, y, -p)]
    assert np.array_equal(np.asarray(rlx.jit(fma, device=device)(*args)), np.array(want, dtype))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_erfinv_near_its_end(device: str, dtype: type) -> None:
    """``1 - x**2`` loses nothing there: that takes the square in two words."""
    needs(device, dtype)
    x = (1 - np.logspace(-6 if dtype is np.float32 else -15, -1, 400)).astype(dtype)
    got = np.asarray(rlx.jit(rlx.erfinv, device=device)(rlx.asarray(x, device=device)))
    want = scipy.special.erfinv(x.astype(np.float64))
    assert (np.abs(got - want) <= 8 * np.finfo(dtype).eps * want).all()
