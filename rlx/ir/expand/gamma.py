"""lgamma and digamma.

Both shift their argument by a recurrence: to [1.5, 2.5], where lgamma(2 + y) = y P(y) and
digamma(2 + y) is a polynomial; arguments above 8 use Stirling's series, negative ones the
reflection formulas (NIST Handbook of Mathematical Functions, 5.5 and 5.11). Errors are a few ulp
of the largest term, which near the roots (1.4616... for digamma, the negative ones of both) is an
absolute bound.
"""

from __future__ import annotations

import math

from rlx.ir.expand.build import (
    E,
    Wide,
    fma,
    layout,
    nearest,
    poly,
    signbit,
    two_prod,
    where,
    with_sign,
)
from rlx.ir.expand.coefficients import polynomial, split
from rlx.ir.expand.log import log
from rlx.ir.expand.trig import cos_wide, sin_wide

_SHIFT = 8.0


def _sin_cos_pi(a: E) -> tuple[Wide, Wide, E]:
    """(|sin(pi a)|, |cos(pi a)|, f) with f = a - nearest(a), the signed distance to an integer."""
    f = a - nearest(a)
    g = abs(f)
    swap = g > 0.25
    h = where(swap, 0.5 - g, g)
    pi = split("pi", a.dtype)
    p = two_prod(h, a.like(pi[0]))
    r = Wide(p.hi, fma(h, pi[1], p.lo))
    s, c = sin_wide(r), cos_wide(r)
    return (
        Wide(where(swap, c.hi, s.hi), where(swap, c.lo, s.lo)),
        Wide(where(swap, s.hi, c.hi), where(swap, s.lo, c.lo)),
        f,
    )


def _shifted_product(a: E, n: E) -> E:
    """(a - 1)(a - 2)...(a - n) for n > 0, a for n = -1, a (a + 1) for n = -2."""
    product = where(n < -1.5, a * (a + 1.0), where(n < -0.5, a, 1.0))
    for i in range(1, 7):
        product = product * where(n > i - 0.5, a - float(i), 1.0)
    return product


def lgamma(x: E) -> E:
    """log |gamma(x)|; infinite at 0, -1, -2, ... and at both infinities."""
    f = layout(x)
    a = abs(x)
    near = a < _SHIFT
    whole = nearest(where(near, a, 2.0))
    y, n = where(near, a, 2.0) - whole, whole - 2.0
    logarithm = log(where(near, _shifted_product(a, n), a))
    small = fma(y, poly(y, polynomial("lgamma", x.dtype)), where(n < 0.0, -logarithm, logarithm))
    b = where(near, _SHIFT, a)
    inverse = 1.0 / b
    series = inverse * poly(inverse * inverse, polynomial("stirling", x.dtype))
    large = fma(b - 0.5, logarithm - 1.0, series + (split("logsqrt2pi", x.dtype)[0] - 0.5))
    value = where(near, small, large)
    s, _, fraction = _sin_cos_pi(a)
    reflected = where(fraction.eq(0.0), math.inf, -log(a * s.hi * (1.0 / math.pi)) - value)
    value = where((x < 0.0) & (a > f.eps), reflected, value)
    return where(a.eq(math.inf), math.inf, value)


def _harmonic(a: E, n: E, negative: E) -> tuple[E, E]:
    """digamma(a), or digamma(1 + a) where ``negative``, minus digamma(a - n), as a fraction."""
    one = a.like(1.0)
    both = a * (a + 1.0)
    top = where(
        n < -1.5,
        where(negative, -one, -1.0 - (a + a)),
        where(n < -0.5, where(negative, a.like(0.0), -1.0), where(negative, one, 0.0)),
    )
    bottom = where(n < -1.5, where(negative, a + 1.0, both), where(negative & (n < -0.5), 1.0, a))
    for i in range(1, 7):
        step, t = n > i - 0.5, a - float(i)
        top, bottom = where(step, fma(top, t, bottom), top), where(step, bottom * t, bottom)
    return top, bottom


def digamma(x: E) -> E:
    """The logarithmic derivative of gamma; NaN at -1, -2, ..., and -+infinity at +-0."""
    a = abs(x)
    negative = signbit(x).ne(0)
    near = a < _SHIFT
    inside = where(near, a, 2.0)
    whole = nearest(inside)
    y, n = inside - whole, whole - 2.0
    top, bottom = _harmonic(a, n, negative)
    small = poly(y, polynomial("digamma2", x.dtype)) + top / bottom
    b = where(near, _SHIFT, a)
    inverse = 1.0 / b
    z = inverse * inverse
    # psi(a) ends in -1/(2a), psi(1 + a) in +1/(2a)
    half = 0.5 * inverse
    half = where(negative, half, -half)
    large = log(b) + (half - z * poly(z, polynomial("digamma", x.dtype)))
    value = where(near, small, large)
    s, c, f = _sin_cos_pi(a)
    pi = split("pi", x.dtype)
    inverse = 1.0 / s.hi
    q = c.hi * inverse
    q = fma(fma(-q, s.lo, fma(-q, s.hi, c.hi) + c.lo), inverse, q)
    cotangent = with_sign(fma(q, pi[0], q * pi[1]), signbit(f))
    value = where(negative, value + cotangent, value)
    value = where(negative & f.eq(0.0) & (a > 0.5), math.nan, value)
    return where(a < layout(x).eps * 0.25, -1.0 / x, value)
