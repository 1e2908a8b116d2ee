"""pow and hypot.

pow is exp(y log x) with the logarithm carried in two words: 2 atanh(s) with s = (m - 1)/(m + 1)
as hi + lo, its series summed in two words for the two leading terms. |y log x| is below 746, so
about 10 extra bits are needed and the logarithm has more (relative error about 2**-65 in float64,
2**-32 in float32).
"""

from __future__ import annotations

import math

from rlx.ir.expand.build import (
    E,
    Wide,
    above,
    below,
    fast_two_sum,
    floor,
    fma,
    horner,
    layout,
    scale2,
    signbit,
    sqrt,
    two_prod,
    two_sum,
    where,
    wide_mul,
    with_sign,
)
from rlx.ir.expand.coefficients import polynomial, split
from rlx.ir.expand.exp import exp_core, reduce_ln2
from rlx.ir.expand.log import normalise


def log_wide(x: E) -> Wide:
    """log(x) in two words for positive finite x."""
    k, m = normalise(x)
    f = m - 1.0
    d = two_sum(m, m.like(1.0))
    inverse = 1.0 / d.hi
    q = f * inverse
    s = Wide(q, (fma(-q, d.hi, f) - q * d.lo) * inverse)
    z = wide_mul(s, s)
    two_thirds = split("twothirds", x.dtype)
    c = fast_two_sum(x.like(two_thirds[0]), z.hi * horner(z.hi, polynomial("logtail", x.dtype)))
    u = wide_mul(wide_mul(s, z), Wide(c.hi, c.lo + two_thirds[1]))
    head = fast_two_sum(2.0 * s.hi, u.hi)
    hi, lo = split("ln2", x.dtype)
    total = two_sum(k * hi, head.hi)
    return fast_two_sum(total.hi, total.lo + fma(k, lo, head.lo + (2.0 * s.lo + u.lo)))


def exp_wide(p: Wide, low: float, high: float) -> tuple[E, E]:
    """(n, e) with exp(p.hi + p.lo) = 2**n e; p.hi is clamped to [low, high]."""
    inside = (p.hi > low) & (p.hi < high)
    n, r = reduce_ln2(above(below(p.hi, high), low))
    s = fast_two_sum(r.hi, r.lo + where(inside, p.lo, 0.0))
    return n, exp_core(s.hi, s.lo)


def pow_(x: E, y: E) -> E:
    """x**y with the special values of C: 1**y = x**0 = 1 even for NaN; x < 0 needs an integral y."""
    f = layout(x)
    a = abs(x)
    edge = a.eq(0.0) | a.eq(math.inf)
    bound = 2.0 ** (f.mant + 12)  # |log x| is at least about 2**-mant-1 unless x = 1
    log_a = log_wide(where(edge, 1.0, a))
    yc = above(below(y, bound), -bound)
    p = two_prod(yc, log_a.hi)
    p = fast_two_sum(p.hi, fma(yc, log_a.lo, p.lo))
    n, e = exp_wide(p, *((-104.0, 89.0) if f.mant == 23 else (-746.0, 710.0)))
    value = scale2(e, n)
    grows = a.eq(math.inf) ^ (y < 0.0)
    value = where(edge, where(grows, x.like(math.inf), 0.0), value)
    integral = floor(y).eq(y)
    odd = integral & floor(y * 0.5).ne(y * 0.5)
    value = with_sign(value, where(odd, signbit(x), 0))
    value = where((x < 0.0) & (x > -math.inf) & ~integral, math.nan, value)
    value = where(x.ne(x) | y.ne(y), x + y, value)
    return where(x.eq(1.0) | y.eq(0.0), 1.0, value)


def hypot(x: E, y: E) -> E:
    """sqrt(x^2 + y^2) without overflow on the way; infinite if either side is, even beside NaN."""
    f = layout(x)
    a, b = abs(x), abs(y)
    most, least = where(a > b, a, b), where(a > b, b, a)
    half = 2.0 ** (f.bias // 2 - 4)
    up, down = 2.0 ** (f.bias // 2 + f.mant + 4), 2.0 ** -(f.bias // 2 + 8)
    scale = where(most > half, x.like(down), where(most < 1.0 / half, x.like(up), 1.0))
    back = where(most > half, x.like(1.0 / down), where(most < 1.0 / half, x.like(1.0 / up), 1.0))
    p, q = most * scale, least * scale
    value = sqrt(fma(p, p, q * q)) * back
    return where(a.eq(math.inf) | b.eq(math.inf), math.inf, value)
