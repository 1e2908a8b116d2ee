"""Derivatives of ``digamma``: ``trigamma`` and all that follow."""

from __future__ import annotations

from fractions import Fraction
from importlib import import_module
from math import comb, factorial, pi
from typing import Any

import numpy as np

from rlx.array.array import FUNCTIONS, Array
from rlx.array.build import as_array, cast
from rlx.array.define import op, public
from rlx.array.hooks import default_float
from rlx.core.errors import DTypeError, ValueIssue
from rlx.ir.op import Sample

#: Terms of the series in ``1/y**2``: with ``y >= 10 + 2n`` what is left out is below 1e-16 of the result.
TERMS = 8


def _bernoulli(count: int) -> list[Fraction]:
    """``B_2, B_4, ..``."""
    b = [Fraction(1)]
    for m in range(1, 2 * count + 1):
        b.append(-sum((comb(m + 1, k) * b[k] for k in range(m)), Fraction(0)) / (m + 1))
    return b[2::2]


def _powers(x: Array, n: int) -> Array:
    """``x**n`` for a small ``n``, by multiplication."""
    out = None
    while n:
        if n & 1:
            out = x if out is None else out * x
        x, n = x * x, n >> 1
    assert out is not None
    return out


def _right(x: Array, n: int) -> Array:
    """For ``x > 0``: terms ``1/(x + k)**(n + 1)`` until the asymptotic series at ``y = x + 10 + 2n`` is exact.

    ``(-1)**(n+1) psi_n(y) = (n-1)!/y**n + n!/(2 y**(n+1)) + sum_k B_2k (2k+n-1)!/((2k)! y**(2k+n))``.
    """
    shift = 10 + 2 * n
    inverse = 1 / (x + shift)
    z = inverse * inverse
    series: Any = 0.0
    for k, b in reversed(list(enumerate(_bernoulli(TERMS), 1))):
        series = (series + float(b * factorial(2 * k + n - 1) / factorial(2 * k))) * z
    total = (series + float(factorial(n - 1)) + inverse * (factorial(n) / 2)) * _powers(inverse, n)
    for k in reversed(range(shift)):
        total = total + float(factorial(n)) * _powers(1 / (x + k), n + 1)
    out: Array = total if n % 2 else -total
    return out


def _cotangents(n: int) -> list[int]:
    """The n-th derivative of ``cot``, as a polynomial in ``cot``: lowest power first. ``cot' = -(1 + cot**2)``."""
    p = [0, 1]
    for _ in range(n):
        d = [k * c for k, c in enumerate(p)][1:]
        p = [0] * (len(d) + 2)
        for k, c in enumerate(d):
            p[k] -= c
            p[k + 2] -= c
    return p


@op
def _polygamma(x: Array, /, *, order: int) -> Array:
    """The derivative of that order of ``digamma``."""
    where = FUNCTIONS["where"]
    left = x < 0
    value = _right(where(left, 1 - x, x), order)
    # Reflection: (-1)**n psi_n(1 - x) - psi_n(x) = pi**(n+1) cot^(n)(pi x), with the period taken off first.
    turn = (x - FUNCTIONS["round"](x)) * pi
    pole = FUNCTIONS["equal"](turn, 0)
    cot = 1 / FUNCTIONS["tan"](where(pole, 1, turn))
    slope: Any = 0.0
    for c in reversed(_cotangents(order)):
        slope = slope * cot + float(c)
    mirrored = (value if order % 2 == 0 else -value) - slope * pi ** (order + 1)
    return where(left, where(pole, float("inf") if order % 2 else float("nan"), mirrored), value)


@_polygamma.ref
def _(x: Any, *, order: int) -> Any:
    right = import_module("scipy.special").polygamma
    x = np.asarray(x)
    with np.errstate(all="ignore"):
        # SciPy takes positive arguments only; the first two orders by their reflection formulas.
        t = np.pi * (x - np.round(x))
        mirrored = {1: (np.pi / np.sin(t)) ** 2 - right(1, 1 - x),
                    2: right(2, 1 - x) - 2 * np.pi**3 * np.cos(t) / np.sin(t) ** 3}.get(order, np.nan)
        return np.where(x < 0, mirrored, right(order, np.where(x < 0, 1, x))).astype(x.dtype)


@_polygamma.grad
def _(ct: Array, out: Array, x: Array, *, order: int) -> tuple[Array]:
    return (ct * _polygamma(x, order=order + 1),)


@_polygamma.jvp
def _(t: Any, out: Array, x: Array, *, order: int) -> Array:
    slope: Array = t[0] * _polygamma(x, order=order + 1)
    return slope


@_polygamma.samples
def _() -> list[Sample]:
    x = np.array([0.25, 0.5, 1.0, 1.4616, 2.0, 3.7, 8.0, 19.5, 300.0])
    return [Sample((x,), {"order": 1}, "trigamma"), Sample((x,), {"order": 2}, "second"),
            Sample((x,), {"order": 5}, "fifth", tolerance=4.0),
            Sample((np.array([-0.3, -1.5, -7.25]),), {"order": 1}, "left", tolerance=16.0),
            Sample((np.array([-0.3, -1.4, -7.25]),), {"order": 2}, "left second", tolerance=16.0),
            Sample((np.array([0.0, np.inf, np.nan, -2.0]),), {"order": 1}, "limits", edge=True, grad=False)]


@public
def polygamma(n: int, x: Any, /) -> Array:
    """The ``n``-th derivative of ``digamma(x)``; ``n = 0`` is ``digamma``, ``n = 1`` the trigamma function.

    >>> import rlx
    >>> print(round(float(rlx.polygamma(1, 1.0)), 6))
    1.644934
    """
    if not isinstance(n, int) or isinstance(n, bool) or n < 0:
        raise ValueIssue(f"polygamma of order {n!r}", why="orders are non-negative Python integers",
                         do="pass 0 for digamma, 1 for trigamma, and so on")
    a = as_array(x)
    if a.dtype.is_complex:
        raise DTypeError(f"polygamma of {a.dtype.name}", why="it is computed for real numbers", do="pass real numbers")
    a = a if a.dtype.is_float else cast(a, default_float(a.device))
    out: Array = FUNCTIONS["digamma"](a) if n == 0 else _polygamma(a, order=n)
    return out
