"""Reduction of an angle to [-pi/4, pi/4] and a quadrant, as an unevaluated sum of two floats.

Moderate arguments: three-term Cody-Waite with fused products (Boldo, Daumas and Li, "Formally verified argument
reduction with a fused multiply-add", IEEE Trans. Comput. 58, 2009). Huge arguments: Payne and Hanek (ACM SIGNUM
18(1), 1983) in floating point: x times the chunks of 2/pi that matter, those that give multiples of 4 left out.
Integer products of 64 bits have no vector form on common machines; fused products do.
"""

from __future__ import annotations

import math

from rlx.core.dtype import DType
from rlx.ir.expand.build import (
    E, Wide, bits, fast_two_sum, fma, from_bits, layout, nearest, two_prod, two_sum, where, wide_mul,
)
from rlx.ir.expand.coefficients import split


def moderate_limit(dtype: DType) -> float:
    """Below this magnitude :func:`moderate` holds: n * (a piece of pi/2) keeps enough exact bits."""
    return 2.0**15 if dtype.bits == 32 else 2.0**28


def moderate(x: E) -> tuple[E, Wide]:
    """(n, r) with x = n pi/2 + r.hi + r.lo, for |x| below :func:`moderate_limit`."""
    p1, p2, p3 = split("halfpi", x.dtype)
    n = nearest(x * split("twooverpi", x.dtype)[0])
    a = fma(n, -p1, x)                     # exact: both terms are multiples of ulp(p1), the result is below pi/4 + tiny
    b = two_prod(n, n.like(-p2))
    s = two_sum(a, b.hi)
    low = s.lo + fma(n, -p3, b.lo)
    return n, fast_two_sum(s.hi, low)


def _mod4(x: E) -> E:
    """x minus the nearest multiple of 4, exactly."""
    return x - 4.0 * nearest(x * 0.25)


def huge(x: E) -> tuple[E, Wide]:
    """(n mod 4 up to sign, r) for finite |x| >= 1; NaN parts for others."""
    f = layout(x)
    chunks = split("chunks", x.dtype)
    width = 24 if f.mant == 23 else 48
    # x = significand * 2**e with an integral significand; chunk j matters when width (j + 1) > e - 3
    e = ((bits(x) >> f.mant) & (2 * f.bias + 1)) - (f.bias + f.mant)
    negative = e > (1 << 16)               # wrapped: |x| < 2**(mant + 1)
    e = where(negative | (e < 3), 0, e - 3)
    factor, shift = (171, 12) if width == 24 else (1366, 16)
    k = (e * factor) >> shift              # e // width
    c = _window(k, chunks, 5)
    # X = x 2**(-width k), built by lowering the exponent field
    head = from_bits(bits(x) - ((k * width) << f.mant))
    terms: list[E] = []
    for i, chunk in enumerate(c):
        p = two_prod(head * 2.0 ** (-width * i), chunk)
        terms += [p.hi, p.lo]
    return _collect(terms, x)


def _window(k: E, table: tuple[float, ...], count: int) -> list[E]:
    """table[k .. k+count-1] by a barrel shifter: one stage of selects for each bit of k."""
    # ((table length - count) is the largest k)
    largest = len(table) - count
    row: list[float | E] = list(table)
    stage = 1 << (largest.bit_length() - 1)
    kind = from_bits(k)
    while stage:
        keep = count + stage - 1
        bit = (k & stage).ne(0)
        row = [_pick(bit, row[i + stage] if i + stage < len(row) else 0.0, row[i], kind)
               for i in range(min(keep, len(row)))]
        stage >>= 1
    return [kind.like(v) for v in row]


def _pick(bit: E, a: float | E, b: float | E, kind: E) -> E:
    return where(bit, kind.like(a), kind.like(b))


def _collect(terms: list[E], x: E) -> tuple[E, Wide]:
    """Sum the products modulo 4, exactly where it matters, take out the integer, and multiply by pi/2."""
    terms = [_mod4(t) for t in terms[:4]] + terms[4:]
    n = nearest(terms[0] + (terms[1] + (terms[2] + (terms[3] + terms[4]))))
    total, low, rest = terms[0] - n, x.like(0.0), x.like(0.0)
    for t in terms[1:]:
        s = two_sum(total, t)
        u = two_sum(low, s.lo)
        total, low, rest = s.hi, u.hi, rest + u.lo
    s = fast_two_sum(total, low)
    s = fast_two_sum(s.hi, s.lo + rest)
    p = split("halfpi", x.dtype)
    r = wide_mul(s, Wide(x.like(p[0]), x.like(p[1])))
    return n, Wide(r.hi, where(abs(x) < math.inf, r.lo, math.nan))


def quadrant(n: E) -> E:
    """The two low bits of an integral float, as an unsigned integer."""
    return bits(n + layout(n).magic) & 3


