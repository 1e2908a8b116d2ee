"""exp, exp2, expm1: reduction by the nearest multiple of log 2, a polynomial, scaling by a power
of two.

x = n log 2 + r with |r| <= log(2)/2 (Cody and Waite, Software Manual for the Elementary
Functions, 1980, ch. 6). log 2 is split so that n * ln2_hi is exact, with or without a fused fma.
The result is scaled by two factors, so that denormal results are rounded once and 2**n never
overflows before the product does.
"""

from __future__ import annotations

import math

from rlx.ir.expand.build import (
    E,
    Wide,
    above,
    below,
    fma,
    layout,
    nearest,
    poly,
    power2,
    scale2,
    where,
)
from rlx.ir.expand.coefficients import polynomial, split


def _limits(x: E) -> tuple[float, float]:
    """Arguments clamped here give the same exp as any beyond: 0 below, infinity above."""
    return (-104.0, 89.0) if x.dtype.bits == 32 else (-746.0, 710.0)


def reduce_ln2(x: E) -> tuple[E, Wide]:
    """(n, r) with x = n log 2 + r.hi + r.lo, n integral, |r| <= log(2)/2, for |x| within the range of exp."""
    hi, lo = split("ln2", x.dtype)
    n = nearest(x * split("log2e", x.dtype)[0])
    a = fma(n, -hi, x)
    b = n * lo
    r = a - b
    return n, Wide(r, (a - r) - b)


def exp_core(r: E, low: E | None = None) -> E:
    """exp(r + low) for |r| <= log(2)/2 and a tiny low."""
    tail = r * r * poly(r, polynomial("exp", r.dtype))
    return 1.0 + (r + (tail if low is None else tail + low))


def exp(x: E) -> E:
    """e**x. Below 1 ulp, also where the result is denormal."""
    low, high = _limits(x)
    n, r = reduce_ln2(above(below(x, high), low))
    return scale2(exp_core(r.hi, r.lo), n)


def exp_weight(x: E) -> E:
    """e**x for x <= 0, within 2 ulp; 0 below the smallest normal number, NaN stays."""
    f = layout(x)
    hi, lo = split("ln2", x.dtype)
    n = nearest(x * split("log2e", x.dtype)[0])
    r = fma(n, -lo, fma(n, -hi, x))
    value = fma(r * r, poly(r, polynomial("exp", x.dtype)), r + 1.0) * power2(n)
    return where(x < -(f.bias - 1) * math.log(2.0), 0.0, value)


def exp_fast(x: E) -> E:
    """e**x scaled by one factor 2**n: 0 below about 2**-126.5 and infinity above 2**127.5 in float32."""
    f = layout(x)
    log2 = math.log(2.0)
    hi, lo = split("ln2", x.dtype)
    n = nearest(x * split("log2e", x.dtype)[0])
    r = fma(n, -lo, fma(n, -hi, x))
    value = fma(r * r, poly(r, polynomial("exp_fast", x.dtype)), r + 1.0) * power2(n)
    value = where(x < -(f.bias - 0.51) * log2, 0.0, value)
    return where(x > (f.bias + 0.49) * log2, math.inf, value)


def exp2(x: E) -> E:
    """2**x; exact for integers."""
    low, high = (-151.0, 129.0) if x.dtype.bits == 32 else (-1076.0, 1025.0)
    x = above(below(x, high), low)
    n = nearest(x)
    r = x - n
    return scale2(fma(r, poly(r, polynomial("exp2", x.dtype)), 1.0), n)


def expm1_wide(r: Wide) -> E:
    """exp(r) - 1 for |r| <= log(2)/2."""
    q = poly(r.hi, polynomial("expm1", r.hi.dtype))
    r2 = r.hi * r.hi
    tail = fma(r2, fma(r.hi, q, 0.5), fma(r.hi, r.lo, r.lo))
    return r.hi + tail


def expm1_scaled(x: E, low: bool = True) -> E:
    """exp(x) - 1 for ordinary x within the range of exp; without ``low``, a little less exact."""
    n, r = reduce_ln2(x)
    half = power2(n - 1.0)
    # 2**n may overflow while the result does not, so everything is halved and doubled at the end
    return fma(half, expm1_wide(r) if low else _expm1_narrow(r.hi), half - 0.5) * 2.0


def _expm1_narrow(r: E) -> E:
    return fma(r * r, fma(r, poly(r, polynomial("expm1", r.dtype)), 0.5), r)


def expm1(x: E) -> E:
    """e**x - 1 without cancellation; keeps the sign of zero and denormal arguments."""
    f = layout(x)
    bound = 18.0 if f.mant == 23 else 38.0
    value = expm1_scaled(above(below(x, _limits(x)[1]), -bound))
    return where(abs(x) < f.eps * 0.25, x, value)
