"""sinh, cosh, tanh and their inverses, from the kernels of exp, expm1 and log1p.

Each value near zero is an odd function computed without cancellation: a polynomial for sinh,
expm1 for tanh, log1p of an unevaluated sum for the inverses.
"""

from __future__ import annotations

import math

from rlx.ir.expand.build import (
    E,
    Wide,
    below,
    fma,
    layout,
    poly,
    scale2,
    signbit,
    sqrt,
    two_sum,
    where,
    with_sign,
)
from rlx.ir.expand.coefficients import polynomial, split
from rlx.ir.expand.exp import exp_core, expm1_scaled, reduce_ln2
from rlx.ir.expand.log import log1p_wide


def _half_exp(a: E) -> E:
    """exp(a)/2 for a >= 0; overflows only where cosh does."""
    n, r = reduce_ln2(below(a, 90.0 if a.dtype.bits == 32 else 711.0))
    return scale2(exp_core(r.hi, r.lo), n - 1.0)


def sinh(x: E) -> E:
    """Hyperbolic sine: a polynomial up to 1, (e^a - e^-a)/2 beyond."""
    a = abs(x)
    z = a * a
    small = fma(a * z, poly(z, polynomial("sinh", x.dtype)), a)
    h = _half_exp(a)
    return with_sign(where(a < 1.0, small, h - 0.25 / h), signbit(x))


def cosh(x: E) -> E:
    """Hyperbolic cosine, (e^a + e^-a)/2."""
    h = _half_exp(abs(x))
    return h + 0.25 / h


def tanh(x: E) -> E:
    """Hyperbolic tangent, t/(t + 2) with t = e^2a - 1: no cancellation anywhere, one division."""
    a = below(abs(x), 10.0 if x.dtype.bits == 32 else 20.0)
    t = expm1_scaled(a + a)
    d = two_sum(t, t.like(2.0))
    inverse = 1.0 / d.hi
    q = t * inverse
    value = fma(fma(-q, d.hi, t) - q * d.lo, inverse, q)
    return where(a < _identity(x), x, with_sign(value, signbit(x)))


def _identity(x: E) -> float:
    """Below this, sinh x, tanh x, asinh x, ... round to x."""
    return math.sqrt(layout(x).eps) * 0.5


def _vast(x: E) -> float:
    """Above this, sqrt(x^2 +- 1) and 1 + x round to x; its square does not overflow."""
    return 2.0**30 if x.dtype.bits == 32 else 2.0**60


def asinh(x: E) -> E:
    """Inverse hyperbolic sine, log1p(a + a^2/(1 + sqrt(1 + a^2)))."""
    a = abs(x)
    vast = a > _vast(x)
    c = where(vast, 1.0, a)
    s = two_sum(c, c * c / (1.0 + sqrt(fma(c, c, 1.0))))
    value = _log1p_or_log2x(a, s, vast)
    return where(a < _identity(x), x, with_sign(value, signbit(x)))


def acosh(x: E) -> E:
    """Inverse hyperbolic cosine, log1p(t + sqrt(2t + t^2)) with t = x - 1; NaN below 1."""
    vast = x > _vast(x)
    t = where(vast, x.like(1.0), x) - 1.0
    s = two_sum(t, sqrt(fma(t, t, t + t)))
    return where(x < 1.0, math.nan, _log1p_or_log2x(x, s, vast))


def _log1p_or_log2x(a: E, s: Wide, vast: E) -> E:
    """log(1 + s), or log(2a) where a is vast; infinity and NaN pass through."""
    hi, lo = split("ln2", a.dtype)
    finite = where(a < math.inf, a, 1.0)
    value = log1p_wide(where(vast, finite, s.hi), where(vast, 0.0, s.lo))
    value = where(vast, value + (hi + lo), value)
    return where(a < math.inf, value, a)


def atanh(x: E) -> E:
    """Inverse hyperbolic tangent, log1p(2a/(1 - a))/2; infinite at +-1, NaN beyond."""
    a = abs(x)
    d = 1.0 - a
    d_low = (1.0 - d) - a
    inverse = 1.0 / d
    q = (a + a) * inverse
    rest = fma(-q, d, a + a) - q * d_low
    value = 0.5 * log1p_wide(q, rest * inverse)
    value = where(a < 1.0, value, where(a.eq(1.0), x.like(math.inf), math.nan))
    return where(a < _identity(x), x, with_sign(value, signbit(x)))


def tanh_fast(x: E) -> E:
    """tanh within 16 ulp: as above without the low parts."""
    a = below(abs(x), 10.0 if x.dtype.bits == 32 else 20.0)
    t = expm1_scaled(a + a, low=False)
    return with_sign(t / (t + 2.0), signbit(x))
