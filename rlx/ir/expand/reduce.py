"""Reduction of an angle to [-pi/4, pi/4] and a quadrant, as an unevaluated sum of two floats.

Moderate arguments: three-term Cody-Waite with fused products (Boldo, Daumas and Li, "Formally
verified argument reduction with a fused multiply-add", IEEE Trans. Comput. 58, 2009). Huge
arguments: Payne and Hanek (ACM SIGNUM 18(1), 1983), x times the bits of 2/pi that matter. float32
multiplies integers of 32 bits; float64 multiplies floats with fused products, because products of
64-bit integers have no vector form on common machines.
"""

from __future__ import annotations

import math

from rlx.core.dtype import DType, int32
from rlx.ir.expand.build import (
    E,
    Wide,
    bits,
    cast,
    fast_two_sum,
    fma,
    from_bits,
    layout,
    mulhi,
    nearest,
    signbit,
    two_prod,
    two_sum,
    where,
    wide_mul,
    with_sign,
)
from rlx.ir.expand.coefficients import TWO_OVER_PI, split
from rlx.ir.loop import Expr, expr


def moderate_limit(dtype: DType) -> float:
    """Below this magnitude :func:`moderate` holds: n * (a piece of pi/2) keeps enough exact bits."""
    return 2.0**15 if dtype.bits == 32 else 2.0**28


def moderate(x: E) -> tuple[E, Wide]:
    """(q, r) with x = n pi/2 + r.hi + r.lo and q = n mod 4, for |x| below :func:`moderate_limit`."""
    p1, p2, p3 = split("halfpi", x.dtype)
    n = nearest(x * split("twooverpi", x.dtype)[0])
    # exact: both terms are multiples of ulp(p1), and the result is not much above pi/4
    a = fma(n, -p1, x)
    b = two_prod(n, n.like(-p2))
    s = two_sum(a, b.hi)
    low = s.lo + fma(n, -p3, b.lo)
    return quadrant(n), fast_two_sum(s.hi, low)


def quadrant(n: E) -> E:
    """An integral float modulo 4, as an unsigned integer."""
    return bits(n + layout(n).magic) & 3


def huge(x: E) -> tuple[E, Wide]:
    """(q, r) as :func:`moderate`, for finite |x| above its limit; NaN for infinities and NaN."""
    q, turns = _turns32(x) if x.dtype.bits == 32 else _turns64(x)
    p = split("halfpi", x.dtype)
    r = wide_mul(turns, Wide(x.like(p[0]), x.like(p[1])))
    return q, Wide(r.hi, where(abs(x) < math.inf, r.lo, math.nan))


def _turns32(x: E) -> tuple[E, Wide]:
    """x * 2/pi as a quadrant and a fraction in [-1/2, 1/2], in 32-bit fixed point.

    With x = m 2**e the window starts at the bit of 2/pi whose product with m has weight 2.
    TWO_OVER_PI begins at the bit that x = 2**15 needs.
    """
    u = bits(x)
    start = ((u >> 23) & 255) - (127 + 15)
    m = (u & 0x7FFFFF) | 0x800000
    w = _window(start >> 5, [m.like(t) for t in TWO_OVER_PI], 4)
    s = start & 31
    # two shifts, because a shift by 32 is not a shift by 31 and one more everywhere
    h = [(w[i] << s) | ((w[i + 1] >> 1) >> (s ^ 31)) for i in range(3)]
    low = m * h[1]
    p1 = low + mulhi(m, h[2])
    p0 = m * h[0] + mulhi(m, h[1]) + where(p1 < low, m.like(1), 0)
    q = (p0 + (1 << 29)) >> 30
    f = E(_signed(p0 - (q << 30)))
    top, rest = cast(f >> 16, x.dtype) * 2.0**-14, cast(f & 0xFFFF, x.dtype) * 2.0**-30
    c, d = cast(p1 >> 16, x.dtype) * 2.0**-46, cast(p1 & 0xFFFF, x.dtype) * 2.0**-62
    a = fast_two_sum(top, rest)
    b = fast_two_sum(a.hi, a.lo + c)
    r = fast_two_sum(b.hi, b.lo + d)
    sign = signbit(x)
    q = where(sign.ne(0), 0 - q, q) & 3
    return q, Wide(with_sign(r.hi, sign), with_sign(r.lo, sign))


def _signed(u: E) -> Expr:
    """The same 32 bits as a signed integer."""
    return expr("bitcast", (u.x,), int32)


def _turns64(x: E) -> tuple[E, Wide]:
    """x * 2/pi as a quadrant and a fraction in [-1/2, 1/2], in floating point.

    2/pi is cut into chunks of 48 bits; those whose products with x are multiples of 4 are left out.
    """
    f = layout(x)
    # x = m 2**e with an integral m; chunk j matters when 48 (j + 1) > e - 3
    e = ((bits(x) >> f.mant) & (2 * f.bias + 1)) - (f.bias + f.mant)
    small = (e > (1 << 16)) | (e < 3)  # the first: e is negative and has wrapped
    e = where(small, 0, e - 3)
    k = (e * 1366) >> 16  # e // 48 for e below 1024
    c = _window(k, [x.like(t) for t in split("chunks", x.dtype)], 5)
    # x 2**(-48 k), by lowering the exponent field
    head = from_bits(bits(x) - ((k * 48) << f.mant))
    terms: list[E] = []
    for i, chunk in enumerate(c):
        p = two_prod(head * 2.0 ** (-48 * i), chunk)
        terms += [p.hi, p.lo]
    # the last three are below 2**-89, where one rounding does no harm
    return _fraction([*terms[:7], terms[7] + (terms[8] + terms[9])])


def _mod4(x: E) -> E:
    """x minus the nearest multiple of 4, exactly."""
    return x - 4.0 * nearest(x * 0.25)


def _fraction(terms: list[E]) -> tuple[E, Wide]:
    """The sum of the products as a quadrant and a fraction: exact modulo 4 as far as it matters."""
    terms = [_mod4(t) for t in terms[:4]] + terms[4:]
    n = nearest(terms[0] + (terms[1] + (terms[2] + (terms[3] + terms[4]))))
    total, low = terms[0] - n, terms[0].like(0.0)
    rest = low
    for t in terms[1:]:
        s = two_sum(total, t)
        u = two_sum(low, s.lo)
        total, low, rest = s.hi, u.hi, rest + u.lo
    s = fast_two_sum(total, low)
    return quadrant(n), fast_two_sum(s.hi, s.lo + rest)


def _window(k: E, table: list[E], count: int) -> list[E]:
    """table[k .. k+count-1] by a barrel shifter: one stage of selects for each bit of k."""
    stage = 1 << ((len(table) - count).bit_length() - 1)
    row = table
    while stage:
        bit = (k & stage).ne(0)
        keep = min(count + stage - 1, len(row))
        row = [
            where(bit, row[i + stage], row[i]) if i + stage < len(row) else row[i]
            for i in range(keep)
        ]
        stage >>= 1
    return row
