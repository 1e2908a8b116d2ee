"""The notation in which expansions are written: floating-point formulas over
:class:`~rlx.ir.loop.Expr`.

``E`` wraps an expression and gives it operators, so that a formula reads like mathematics;
:func:`trace` runs such a formula once on variables and returns a :class:`Function` in which every
shared subexpression has a name.

**What a renderer owes these formulas.** ``fma`` rounds once, ``a*b + c`` rounds twice: no
contraction, no reassociation and no "fast math" inside an expansion. Where an algorithm wants a
fused operation it says ``fma``. The error-free transforms below are those of Dekker (Numer. Math.
18, 1971) and Knuth (TAOCP vol. 2, 4.2.2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rlx.core.dtype import DType, bool_, float32, float64, int32, int64, uint32, uint64
from rlx.ir.loop import Expr, const, expr


@dataclass(frozen=True, slots=True, eq=False)
class E:
    """An expression with operators. Python numbers on either side take its dtype, rounded to it."""

    x: Expr

    @property
    def dtype(self) -> DType:
        return self.x.dtype

    def like(self, value: E | float) -> E:
        """``value`` as an expression of this dtype; an expression is returned unchanged."""
        return value if isinstance(value, E) else number(value, self.dtype)

    def __add__(self, o: E | float) -> E:
        return _op("add", self, self.like(o))

    def __radd__(self, o: float) -> E:
        return self.like(o) + self

    def __sub__(self, o: E | float) -> E:
        return _op("sub", self, self.like(o))

    def __rsub__(self, o: float) -> E:
        return self.like(o) - self

    def __mul__(self, o: E | float) -> E:
        return _op("mul", self, self.like(o))

    def __rmul__(self, o: float) -> E:
        return self.like(o) * self

    def __truediv__(self, o: E | float) -> E:
        return _op("div", self, self.like(o))

    def __rtruediv__(self, o: float) -> E:
        return self.like(o) / self

    def __neg__(self) -> E:
        return _op("neg", self)

    def __abs__(self) -> E:
        return _op("abs", self)

    def __lt__(self, o: E | float) -> E:
        return _test("lt", self, self.like(o))

    def __le__(self, o: E | float) -> E:
        return _test("le", self, self.like(o))

    def __gt__(self, o: E | float) -> E:
        return _test("gt", self, self.like(o))

    def __ge__(self, o: E | float) -> E:
        return _test("ge", self, self.like(o))

    def eq(self, o: E | float) -> E:
        """``self == o``, a bool expression (the operator itself is left to Python)."""
        return _test("eq", self, self.like(o))

    def ne(self, o: E | float) -> E:
        """``self != o``, a bool expression; true for NaN."""
        return _test("ne", self, self.like(o))

    def __and__(self, o: E | int) -> E:
        return _op("and", self, self.like(o))

    def __or__(self, o: E | int) -> E:
        return _op("or", self, self.like(o))

    def __xor__(self, o: E | int) -> E:
        return _op("xor", self, self.like(o))

    def __invert__(self) -> E:
        return _op("not", self)

    def __lshift__(self, o: E | int) -> E:
        return _op("shl", self, self.like(o))

    def __rshift__(self, o: E | int) -> E:
        return _op("shr", self, self.like(o))


def _op(op: str, *args: E) -> E:
    return E(expr(op, tuple(a.x for a in args), args[0].dtype))


def _test(op: str, a: E, b: E) -> E:
    return E(expr(op, (a.x, b.x), bool_))


def number(value: float, dtype: DType) -> E:
    """A constant; a float is first rounded to ``dtype``."""
    return E(const(float(dtype.numpy.type(value)) if dtype.is_float else value, dtype))


def fma(a: E, b: E | float, c: E | float) -> E:
    """``a*b + c``, rounded once."""
    return _op("fma", a, a.like(b), a.like(c))


def where(c: E, a: E | float, b: E | float) -> E:
    """``a`` where ``c`` holds, else ``b``; one of the two is an expression."""
    kind = a if isinstance(a, E) else b
    assert isinstance(kind, E)
    a, b = kind.like(a), kind.like(b)
    return E(expr("select", (c.x, a.x, b.x), a.dtype))


def nearest(x: E) -> E:
    """The nearest integer, ties to even."""
    return _op("round", x)


def floor(x: E) -> E:
    return _op("floor", x)


def sqrt(x: E) -> E:
    return _op("sqrt", x)


def isnan(x: E) -> E:
    return E(expr("isnan", (x.x,), bool_))


def below(x: E, bound: float) -> E:
    """min(x, bound) that keeps NaN: compare and select, one instruction on most machines."""
    return where(x > bound, bound, x)


def above(x: E, bound: float) -> E:
    """max(x, bound) that keeps NaN."""
    return where(x < bound, bound, x)


# Bits of a float. Exponents are moved by integer shifts of the representation, never through a
# float-to-integer
# cast: those saturate in rlx and have no vector form for 64 bits on common machines.


@dataclass(frozen=True, slots=True)
class Layout:
    """IEEE-754 numbers of one dtype: ``mant`` stored fraction bits, exponent ``bias``."""

    dtype: DType
    unsigned: DType
    signed: DType
    mant: int
    bias: int

    @property
    def magic(self) -> float:
        return 1.5 * 2.0**self.mant

    @property
    def sign(self) -> int:
        return 1 << (self.unsigned.bits - 1)

    @property
    def one(self) -> int:
        """The bits of 1.0."""
        return self.bias << self.mant

    @property
    def eps(self) -> float:
        """Spacing of the numbers just above 1."""
        return 2.0**-self.mant

    @property
    def tiny(self) -> float:
        """The smallest normal number."""
        return 2.0 ** (1 - self.bias)

    @property
    def largest(self) -> float:
        return float(np.finfo(self.dtype.numpy).max)


_F32 = Layout(float32, uint32, int32, 23, 127)


def layout(x: E | DType) -> Layout:
    """The representation of a float32 or float64 expression."""
    d = x.dtype if isinstance(x, E) else x
    return _F32 if d is float32 or d == float32 else Layout(d, uint64, int64, 52, 1023)


def bits(x: E) -> E:
    """The representation as an unsigned integer."""
    return E(expr("bitcast", (x.x,), layout(x).unsigned))


def sbits(x: E) -> E:
    """The representation as a signed integer."""
    return E(expr("bitcast", (x.x,), layout(x).signed))


def from_bits(b: E) -> E:
    """The float with these bits."""
    return E(expr("bitcast", (b.x,), float32 if b.dtype.bits == 32 else float64))


def signbit(x: E) -> E:
    """The sign bit alone, as an unsigned integer."""
    return bits(x) & layout(x).sign


def with_sign(x: E, s: E) -> E:
    """``x`` with its sign flipped where the bits ``s`` (from :func:`signbit`) say so."""
    return from_bits(bits(x) ^ s)


def power2(n: E) -> E:
    """2**n for an integral float n with -bias < n <= bias: n + magic holds n in its low bits."""
    f = layout(n)
    return from_bits((bits(n + f.magic) << f.mant) + f.one)


def scale2(x: E, n: E) -> E:
    """x * 2**n for x near 1 and n from -1.1 bias - 16 to bias + 1, rounded once, denormals included."""
    f = layout(x)
    low = n < 8.0 - f.bias
    lift = 64.0 if f.mant == 23 else 128.0
    factor = power2(n + where(low, n.like(lift - 1.0), -1.0))
    return x * factor * where(low, n.like(2.0 ** (1.0 - lift)), 2.0)


def mulhi(a: E, b: E | int) -> E:
    """The upper half of the product of two unsigned integers."""
    return _op("mulhi", a, a.like(b))


def integer(i: E) -> E:
    """A small signed integer as a float, exactly (the inverse of the trick in :func:`power2`)."""
    d = float32 if i.dtype.bits == 32 else float64
    f = layout(d)
    magic = int(np.array(f.magic, d.numpy).view(f.signed.numpy))
    return from_bits(i + magic) - f.magic


# Polynomials and double-width arithmetic.


def poly(z: E, coefficients: Sequence[float]) -> E:
    """sum c[i] z**i by Horner's rule; long ones as two chains in z**2, which run in parallel."""
    if len(coefficients) > 8:
        z2 = z * z
        return fma(horner(z2, coefficients[1::2]), z, horner(z2, coefficients[0::2]))
    return horner(z, coefficients)


def horner(z: E, coefficients: Sequence[float]) -> E:
    """sum c[i] z**i, from the last coefficient down."""
    p = z.like(coefficients[-1])
    for c in reversed(coefficients[:-1]):
        p = fma(p, z, c)
    return p


@dataclass(frozen=True, slots=True)
class Wide:
    """An unevaluated sum hi + lo with |lo| at most half an ulp of hi (up to a small factor)."""

    hi: E
    lo: E


def two_sum(a: E, b: E) -> Wide:
    """a + b exactly (Knuth)."""
    s = a + b
    t = s - a
    return Wide(s, (a - (s - t)) + (b - t))


def fast_two_sum(a: E, b: E) -> Wide:
    """a + b exactly when |a| >= |b| or a is 0 (Dekker)."""
    s = a + b
    return Wide(s, b - (s - a))


def two_prod(a: E, b: E) -> Wide:
    """a * b exactly, barring underflow."""
    p = a * b
    return Wide(p, fma(a, b, -p))


def wide_mul(a: Wide, b: Wide) -> Wide:
    """(a.hi + a.lo) * (b.hi + b.lo) with a relative error of about 2**-2p."""
    p = two_prod(a.hi, b.hi)
    return fast_two_sum(p.hi, p.lo + fma(a.hi, b.lo, a.lo * b.hi))
