"""sin, cos, tan and their inverses.

The kernels on [-pi/4, pi/4] take the reduced argument as hi + lo. The inverses map their argument
to a short interval with one division (atan, atan2) or one square root (asin, acos).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from rlx.ir.expand import reduce
from rlx.ir.expand.build import (
    E,
    Wide,
    below,
    fast_two_sum,
    fma,
    layout,
    nearest,
    poly,
    signbit,
    sqrt,
    where,
    with_sign,
)
from rlx.ir.expand.coefficients import polynomial, split

Reduction = Callable[[E], tuple[E, Wide]]


def _sin_parts(r: Wide) -> tuple[E, E]:
    """sin(r.hi + r.lo) as x and x^3 P + lo (1 - x^2/2)."""
    x, z = r.hi, r.hi * r.hi
    return x, fma(x * z, poly(z, polynomial("sin", x.dtype)), fma(-0.5 * z, r.lo, r.lo))


def _cos_parts(r: Wide) -> tuple[E, E]:
    """cos(r.hi + r.lo) as 1 - x^2/2 rounded and what that lost + x^4 Q - x lo."""
    x, z = r.hi, r.hi * r.hi
    half = 0.5 * z
    w = 1.0 - half
    return w, ((1.0 - w) - half) + fma(z * z, poly(z, polynomial("cos", x.dtype)), -(x * r.lo))


def sin_kernel(r: Wide) -> E:
    """sin(r.hi + r.lo) for |r| <= pi/4."""
    a, b = _sin_parts(r)
    return a + b


def cos_kernel(r: Wide) -> E:
    """cos(r.hi + r.lo) for |r| <= pi/4."""
    a, b = _cos_parts(r)
    return a + b


def sin_wide(r: Wide) -> Wide:
    return fast_two_sum(*_sin_parts(r))


def cos_wide(r: Wide) -> Wide:
    return fast_two_sum(*_cos_parts(r))


def sin_with(reduction: Reduction) -> Callable[[E], E]:
    """sin by a given reduction."""

    def sin(x: E) -> E:
        q, r = reduction(x)
        value = where((q & 1).ne(0), cos_kernel(r), sin_kernel(r))
        value = with_sign(value, (q & 2) << (layout(x).unsigned.bits - 2))
        return where(abs(x) < _identity(x), x, value)

    return sin


def cos_with(reduction: Reduction) -> Callable[[E], E]:
    """cos by a given reduction."""

    def cos(x: E) -> E:
        q, r = reduction(x)
        q = q + 1
        value = where((q & 1).ne(0), cos_kernel(r), sin_kernel(r))
        return with_sign(value, (q & 2) << (layout(x).unsigned.bits - 2))

    return cos


def tan_with(reduction: Reduction) -> Callable[[E], E]:
    """tan by a given reduction: sin/cos, or -cos/sin in odd quadrants."""

    def tan(x: E) -> E:
        q, r = reduction(x)
        odd = (q & 1).ne(0)
        s, c = sin_wide(r), cos_wide(r)
        a = Wide(where(odd, -c.hi, s.hi), where(odd, -c.lo, s.lo))
        b = Wide(where(odd, s.hi, c.hi), where(odd, s.lo, c.lo))
        inverse = 1.0 / b.hi
        t = a.hi * inverse
        # Newton's correction of the quotient, with the low parts of both
        rest = fma(-t, b.hi, a.hi) + fma(-t, b.lo, a.lo)
        return where(abs(x) < _identity(x), x, fma(rest, inverse, t))

    return tan


def _identity(x: E) -> float:
    """Below this, sin x, tan x, atan x, ... round to x."""
    return float(math.sqrt(layout(x).eps) * 0.5)


sin, cos, tan = (f(reduce.moderate) for f in (sin_with, cos_with, tan_with))


def rare(
    kernel: Callable[[Reduction], Callable[[E], E]],
) -> Callable[[E], tuple[E, Callable[[E], E]]]:
    """The condition and the formula for arguments beyond the moderate range, infinities among them."""

    def split_off(x: E) -> tuple[E, Callable[[E], E]]:
        return abs(x) >= reduce.moderate_limit(x.dtype), kernel(reduce.huge)

    return split_off


def folded(kernel: Callable[[Reduction], Callable[[E], E]]) -> Callable[[E], E]:
    """One formula for every argument: both reductions, then one kernel."""

    def either(x: E) -> tuple[E, Wide]:
        big = abs(x) >= reduce.moderate_limit(x.dtype)
        n, r = reduce.moderate(x)
        m, s = reduce.huge(x)
        return where(big, m, n), Wide(where(big, s.hi, r.hi), where(big, s.lo, r.lo))

    return kernel(either)


def _fast_reduction(x: E) -> tuple[E, E]:
    """Cody-Waite without a low part; arguments beyond the moderate range count as 0."""
    x = where(abs(x) < reduce.moderate_limit(x.dtype), x, x - x)
    n, r = nearest(x * split("twooverpi", x.dtype)[0]), x
    for piece in split("halfpi", x.dtype):
        r = fma(n, -piece, r)
    return n, r


def _turned(x: E, turns: int) -> E:
    """sin(x + turns pi/2) with one-word kernels."""
    n, r = _fast_reduction(x)
    z = r * r
    sine = fma(r * z, poly(z, polynomial("sin", x.dtype)), r)
    cosine = fma(z * z, poly(z, polynomial("cos", x.dtype)), fma(z, -0.5, 1.0))
    q = reduce.quadrant(n) + turns
    value = where((q & 1).ne(0), cosine, sine)
    return with_sign(value, (q & 2) << (layout(x).unsigned.bits - 2))


def sin_fast(x: E) -> E:
    """sin within 16 ulp for |x| below the moderate limit."""
    return where(abs(x) < _identity(x), x, _turned(x, 0))


def cos_fast(x: E) -> E:
    """cos within 16 ulp for |x| below the moderate limit."""
    return _turned(x, 1)


def _atan_series(t: E) -> E:
    """(atan(t) - t)/t for |t| <= 1/2."""
    z = t * t
    return z * poly(z, polynomial("atan", t.dtype))


def _atan_ratio(a: E, b: E) -> E:
    """atan(a/b) in [0, pi/2] for a, b >= 0, with one division: of a/b, (a - b)/(a + b), or -b/a.

    Between 1/2 and 2, a - b is exact.
    """
    low, high = a < 0.5 * b, a > 2.0 * b
    t = where(low, a, where(high, -b, a - b)) / where(low, b, where(high, a, a + b))
    half, quarter = split("halfpi", a.dtype), split("quarterpi", a.dtype)
    base = where(low, a.like(0.0), where(high, a.like(half[0]), quarter[0]))
    tail = where(low, a.like(0.0), where(high, a.like(half[1]), quarter[1]))
    return base + (t + fma(t, _atan_series(t), tail))


def atan(x: E) -> E:
    """The inverse tangent, in [-pi/2, pi/2]."""
    a = below(abs(x), 2.0 / layout(x).eps ** 1.5)
    value = with_sign(_atan_ratio(a, a.like(1.0)), signbit(x))
    return where(a < _identity(x), x, value)


def atan2(y: E, x: E) -> E:
    """The angle of the point (x, y), in [-pi, pi]; zeros and infinities as in C."""
    f = layout(x)
    a, b = abs(y), abs(x)
    # infinite sides become 1 and the others 0; then a + b must not overflow and a quotient not
    # lose denormal bits
    endless = a.eq(math.inf) | b.eq(math.inf)
    p = where(endless, where(a.eq(math.inf), a.like(1.0), 0.0), a)
    q = where(endless, where(b.eq(math.inf), a.like(1.0), 0.0), b)
    most = where(p > q, p, q)
    scale = where(
        most > f.largest * 0.25,
        a.like(0.25),
        where(most < f.tiny / f.eps, a.like(1.0 / f.eps), 1.0),
    )
    angle = where(p.eq(0.0), 0.0, _atan_ratio(p * scale, q * scale))
    hi, lo = split("pi", x.dtype)
    left = signbit(x).ne(0)
    angle = where(left, hi - (angle - lo), angle)
    angle = where(a.ne(a) | b.ne(b), a + b, angle)
    return with_sign(angle, signbit(y))


def _asin_series(z: E) -> E:
    """(asin(t) - t)/t at z = t^2 <= 1/4."""
    return z * poly(z, polynomial("asin", z.dtype))


def asin(x: E) -> E:
    """The inverse sine; NaN outside [-1, 1]. Above 1/2: pi/2 - 2 asin(sqrt((1 - x)/2))."""
    a = abs(x)
    small = a <= 0.5
    z = where(small, a * a, fma(a, -0.5, 0.5))
    t = where(small, a, sqrt(z))
    series = t * _asin_series(z)
    p = t + series
    hi, lo, _ = split("halfpi", x.dtype)
    rest = fast_two_sum(x.like(hi), -2.0 * t)
    value = where(small, p, rest.hi + (rest.lo - (2.0 * series - lo)))
    return where(a < _identity(x), x, with_sign(value, signbit(x)))


def acos(x: E) -> E:
    """The inverse cosine; NaN outside [-1, 1]."""
    a = abs(x)
    small = a <= 0.5
    z = where(small, a * a, fma(a, -0.5, 0.5))
    t = where(small, x, sqrt(z))
    series = t * _asin_series(z)
    hi, lo, _ = split("halfpi", x.dtype)
    middle = hi - (t - (lo - series))
    right = 2.0 * (t + series)
    left = 2.0 * (hi - (t + (series - lo)))
    return where(small, middle, where(x > 0.0, right, left))
