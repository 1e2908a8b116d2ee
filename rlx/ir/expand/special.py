"""erf, erfc, erfinv.

erfc(x) = exp(-x^2) g(t)/(1 + 2x) with t = (x - k)/(x + k), which maps [0, infinity] to [-1, 1]
(Shepherd and Laframboise, Math. Comp. 36, 1981, with k = 3.75); x^2 is carried in two words into
the exponential. erfinv(x) = x P(w) with w = -log(1 - x^2) (Giles, GPU Computing Gems, 2011, ch.
10), the polynomials refitted for each dtype.
"""

from __future__ import annotations

import math

from rlx.ir.expand.build import (
    E,
    Wide,
    above,
    below,
    fast_two_sum,
    fma,
    horner,
    layout,
    nearest,
    poly,
    power2,
    scale2,
    signbit,
    sqrt,
    two_prod,
    two_sum,
    where,
    with_sign,
)
from rlx.ir.expand.coefficients import polynomial
from rlx.ir.expand.exp import exp_core, exp_fast, reduce_ln2
from rlx.ir.expand.log import log1p_wide

_K = 3.75


def _erfc_positive(a: E) -> E:
    """erfc(a) for a >= 0, 0 where it underflows."""
    a = below(a, 10.6 if a.dtype.bits == 32 else 28.0)
    d, e = two_sum(a, a.like(_K)), two_sum(a.like(1.0), 2.0 * a)
    inverse = 1.0 / (d.hi * e.hi)
    t = _quotient(a - _K, d, e.hi * inverse)
    q = _quotient(horner(t, polynomial("erfcx", a.dtype)), e, d.hi * inverse)
    square = two_prod(a, a)
    n, r = reduce_ln2(-square.hi)
    s = fast_two_sum(r.hi, r.lo - square.lo)
    return scale2(exp_core(s.hi, s.lo) * q, n)


def _quotient(a: E, d: Wide, inverse: E) -> E:
    """a/d from an approximate 1/d.hi, with one Newton step."""
    q = a * inverse
    return fma(fma(-q, d.lo, fma(-q, d.hi, a)), inverse, q)


def erfc(x: E) -> E:
    """The complementary error function, 1 - erf(x), without cancellation."""
    a = abs(x)
    v = _erfc_positive(a)
    # erf is below 1/2 there, so the subtraction adds little
    return where(a < 0.47, 1.0 - _erf_small(x), where(x < 0.0, 2.0 - v, v))


def _erf_small(x: E) -> E:
    """erf for |x| <= 1."""
    return fma(x, poly(x * x, polynomial("erf", x.dtype)), x)


def erf(x: E) -> E:
    """The error function: an odd polynomial up to 1, 1 - erfc beyond; in float32 that is 1 - 2^p(|x|)."""
    a = abs(x)
    if x.dtype.bits == 32:
        q = poly(below(a, 4.0), polynomial("erf_tail", x.dtype))
        n = nearest(q)
        f = q - n
        large = fma(-fma(f, poly(f, polynomial("exp2", x.dtype)), 1.0), power2(n), 1.0)
        return where(a < 1.0, _erf_small(x), with_sign(large, signbit(x)))
    return where(a < 1.0, _erf_small(x), with_sign(1.0 - _erfc_positive(a), signbit(x)))


def erf_fast(x: E) -> E:
    """The error function within 16 ulp: shorter polynomials, one-word exponential."""
    a = below(abs(x), 4.0 if x.dtype.bits == 32 else 6.0)
    z = a * a
    small = fma(x, poly(z, polynomial("erf_fast", x.dtype)), x)
    inverse = 1.0 / (a + _K)
    g = poly((a - _K) * inverse, polynomial("erfcx_fast", x.dtype)) * inverse
    return where(a < 1.0, small, with_sign(fma(-exp_fast(-z), g, 1.0), signbit(x)))


def erfinv(x: E) -> E:
    """The inverse error function; infinite at +-1, NaN beyond. Up to 3/4 a polynomial in x^2."""
    a = abs(x)
    middle = fma(x, horner(x * x, polynomial("erfinv_middle", x.dtype)), x)
    square = two_prod(a, a)
    inside = where(a < 1.0, -square.hi, -0.5)
    w = -log1p_wide(inside, where(a < 1.0, -square.lo, 0.0))
    root = sqrt(above(w, 1.0))
    # erfinv(x)/x as 3/2, 3 or 5 (exact) and a small remainder
    near, tail = w < 6.0, horner(root - 3.0, polynomial("erfinv_tail", x.dtype))
    offset = where(near, x.like(1.5), 3.0)
    if x.dtype.bits == 64:  # w is at most 17.4 in float32
        far = root > 4.18
        tail = where(far, horner(root - 5.0, polynomial("erfinv_far", x.dtype)), tail)
        offset = where(far, 5.0, offset)
    rest = where(near, horner(w - 3.0, polynomial("erfinv", x.dtype)), tail)
    value = fma(x, offset, x * rest)
    value = where(a < 0.75, middle, value)
    value = where(a < layout(x).eps, x * (math.sqrt(math.pi) / 2.0), value)
    return where(
        a < 1.0, value, where(a.eq(1.0), with_sign(x.like(math.inf), signbit(x)), math.nan)
    )
