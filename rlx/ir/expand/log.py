"""log, log1p, log2, log10: x = 2**k m with m in [sqrt(1/2), sqrt(2)], then the series of atanh in
(m - 1)/(m + 1).

With f = m - 1, s = f/(2 + f):  log(1 + f) = f - f^2/2 + s (f^2/2 + R(s^2)),  R(z) = z (2/3 + 2/5
z + ...), the arrangement of Ng (as published in K. C. Ng, "log and friends", Sun Microsystems,
1986-93): f and f^2/2 carry the result, and the rounding errors of s and R are small beside them.
"""

from __future__ import annotations

import math

from rlx.ir.expand.build import (
    E,
    Layout,
    bits,
    fast_two_sum,
    fma,
    from_bits,
    integer,
    layout,
    poly,
    sbits,
    two_prod,
    two_sum,
    where,
)
from rlx.ir.expand.coefficients import polynomial, split


def _float_bits(value: float, f: Layout) -> int:
    from numpy import array

    return int(array(value, f.dtype.numpy).view(f.unsigned.numpy))


def normalise(x: E, denormals: bool = True) -> tuple[E, E]:
    """(k, m) with x = 2**k m, m in [sqrt(1/2), sqrt(2)), for a positive finite x; k is a float."""
    f = layout(x)
    small = x < f.tiny
    if denormals:
        x = where(small, x * 2.0**f.mant, x)
    root = _float_bits(math.sqrt(0.5), f)
    shifted = sbits(x) + (f.one - root)
    k = integer((shifted >> f.mant) - f.bias)
    if denormals:
        k = where(small, k - float(f.mant), k)
    m = from_bits((bits(x) + (f.one - root) & ((1 << f.mant) - 1)) + root)
    return k, m


def _series(f: E) -> tuple[E, E]:
    """(f^2/2, s (f^2/2 + R)) of the formula at the top."""
    s = f / (f + 2.0)
    z = s * s
    half = 0.5 * f * f
    return half, s * (half + z * poly(z, polynomial("log", f.dtype)))


def _ends(x: E, value: E) -> E:
    """log's values at 0, below 0, at infinity and NaN around ``value`` for ordinary x."""
    value = where(x < math.inf, value, x)
    return where(x > 0.0, value, where(x.eq(0.0), x.like(-math.inf), math.nan))


def log(x: E) -> E:
    """The natural logarithm. log(+-0) = -inf, log(x < 0) = NaN; exact at 1."""
    k, m = normalise(x)
    hi, lo = split("ln2", x.dtype)
    f = m - 1.0
    half, rest = _series(f)
    value = fma(k, hi, f - (half - fma(k, lo, rest)))
    return _ends(x, value)


def log_fast(x: E) -> E:
    """The natural logarithm of a normal number; 0 and positive denormals give -inf, x < 0 gives NaN."""
    f = layout(x)
    k, m = normalise(x, denormals=False)
    r = m - 1.0
    if f.mant == 23:
        p = r * poly(r, polynomial("log_fast", x.dtype))
    else:
        half, rest = _series(r)
        p = r - (half - rest)
    value = where(x < math.inf, fma(k, math.log(2.0), p), x)
    return where(x < f.tiny, where(x < 0.0, x.like(math.nan), -math.inf), value)


def log1p_wide(a: E, low: E | None = None) -> E:
    """log(1 + a + low) for 1 + a > 0 and low far below a; a may be large but finite."""
    u = two_sum(a, a.like(1.0))
    k, m = normalise(u.hi, denormals=False)
    c = u.lo if low is None else u.lo + low
    hi, lo = split("ln2", a.dtype)
    f = m - 1.0
    half, rest = _series(f)
    return fma(k, hi, f - (half - (rest + fma(k, lo, c / u.hi))))


def log1p(x: E) -> E:
    """log(1 + x) without cancellation; keeps the sign of zero and denormal arguments."""
    value = log1p_wide(where(x < math.inf, x, 1.0))
    value = where(abs(x) < layout(x).eps * 0.25, x, value)
    return _ends_at_minus_one(x, value)


def _ends_at_minus_one(x: E, value: E) -> E:
    value = where(x < math.inf, value, x)
    return where(x > -1.0, value, where(x.eq(-1.0), x.like(-math.inf), math.nan))


def _scaled(x: E, k_parts: tuple[float, float], base: tuple[float, float]) -> E:
    """k * (k_parts) + log(m) * (base), both constants as hi + lo."""
    k, m = normalise(x)
    f = m - 1.0
    _, rest = _series(f)
    # log(m) as hi + lo: f - f^2/2 rounded, and what that and the series left over
    square = two_prod(0.5 * f, f)
    head = fast_two_sum(f, -square.hi)
    low = head.lo - square.lo + rest
    p = two_prod(head.hi, f.like(base[0]))
    tail = p.lo + fma(head.hi, base[1], low * base[0])
    a = fast_two_sum(k * k_parts[0], p.hi)
    return _ends(x, a.hi + (a.lo + fma(k, k_parts[1], tail)))


def log2(x: E) -> E:
    """The logarithm to base 2; exact at powers of two."""
    hi, lo = split("log2e", x.dtype)
    return _scaled(x, (1.0, 0.0), (hi, lo))


def log10(x: E) -> E:
    """The logarithm to base 10."""
    two = split("log10_2", x.dtype)
    e = split("log10e", x.dtype)
    return _scaled(x, (two[0], two[1]), (e[0], e[1]))
