"""Reduction of an angle to [-pi/4, pi/4] and a quadrant, as an unevaluated sum of two floats.

Moderate arguments: three-term Cody-Waite with fused products (Boldo, Daumas and Li, "Formally
verified argument reduction with a fused multiply-add", IEEE Trans. Comput. 58, 2009). Huge
arguments: Payne and Hanek (ACM SIGNUM 18(1), 1983), x times the bits of 2/pi that matter, in integers.
"""

from __future__ import annotations

import math

from rlx.core.dtype import DType, float32, float64
from rlx.ir.expand.build import (
    E,
    Wide,
    bits,
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
    q, turns = _turns(x)
    p = split("halfpi", x.dtype)
    r = wide_mul(turns, Wide(x.like(p[0]), x.like(p[1])))
    return q, Wide(r.hi, where(abs(x) < math.inf, r.lo, math.nan))


def _turns(x: E) -> tuple[E, Wide]:
    """x * 2/pi as a quadrant and a fraction in [-1/2, 1/2], in fixed point of two words.

    With x = m 2**e the window starts at the bit of 2/pi whose product with m has weight 2. The bits
    stored begin where x = moderate_limit needs them.
    """
    f, word = layout(x), layout(x).unsigned.bits
    u = bits(x)
    first = f.bias + int(math.log2(moderate_limit(x.dtype)))
    start = ((u >> f.mant) & (2 * f.bias + 1)) - first
    m = (u & ((1 << f.mant) - 1)) | (1 << f.mant)
    table = [m.like(t) for t in TWO_OVER_PI[x.dtype.short]]
    w = _window(start >> (word.bit_length() - 1), table, 4)
    s = start & (word - 1)
    # two shifts, because a shift by the whole word is not the same everywhere
    h = [(w[i] << s) | ((w[i + 1] >> 1) >> (s ^ (word - 1))) for i in range(3)]
    high, low = _product(m, h[1])
    p1 = low + _product(m, h[2])[0]
    p0 = m * h[0] + high + where(p1 < low, m.like(1), 0)
    # p0, p1 hold the product modulo 4 with word - 2 bits after the point; round to the quadrant
    shifted = p0 + (1 << (word - 3))
    q = shifted >> (word - 2)
    turns = _to_float(shifted & ((1 << (word - 2)) - 1), p1, x)
    sign = signbit(x)
    q = where(sign.ne(0), 0 - q, q) & 3
    return q, Wide(with_sign(turns.hi, sign), with_sign(turns.lo, sign))


def _product(a: E, b: E) -> tuple[E, E]:
    """(high, low) words of an unsigned product.

    64 bits go by halves, which vector units can multiply; they have no 64-bit ``mulhi``.
    """
    if a.dtype.bits == 32:
        return mulhi(a, b), a * b
    half = (1 << 32) - 1
    a0, a1, b0, b1 = a & half, a >> 32, b & half, b >> 32
    low, cross = a0 * b0, a0 * b1
    # below 2**64, because a has at most 53 bits
    middle = (low >> 32) + (cross & half) + a1 * b0
    return a1 * b1 + (cross >> 32) + (middle >> 32), (middle << 32) | (low & half)


def _to_float(high: E, low: E, x: E) -> Wide:
    """(high - 2**(word - 3) + low / 2**word) / 2**(word - 2): four exact halves, then summed."""
    word = layout(x).unsigned.bits
    half = word // 2
    mask = (1 << half) - 1
    a = (_small(high >> half) - 2.0 ** (half - 3)) * 2.0 ** (2 - half)
    b = _small(high & mask) * 2.0 ** (2 - word)
    c = _small(low >> half) * 2.0 ** (2 - word - half)
    d = _small(low & mask) * 2.0 ** (2 - 2 * word)
    s = fast_two_sum(a, b)
    s = fast_two_sum(s.hi, s.lo + c)
    return fast_two_sum(s.hi, s.lo + d)


def _small(u: E) -> E:
    """An unsigned integer of at most half a word as a float: planted below the bits of 2**mant."""
    f = layout(float32 if u.dtype.bits == 32 else float64)
    return from_bits(u | ((f.bias + f.mant) << f.mant)) - 2.0**f.mant


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
