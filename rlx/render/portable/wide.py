"""64-bit integers as (low, high) words of 32 bits. Signed and unsigned share add, sub, mul and the bit operations."""

from __future__ import annotations

from collections.abc import Callable

from rlx.core.dtype import bool_, float32, uint32
from rlx.ir.loop import Assign, Expr, For, Let, Register, Stmt, const, expr, var
from rlx.render.portable.arith import ZERO, bits, cast, f, i, is_nan, op, pick, test, u
from rlx.render.portable.helper import Helper
from rlx.render.portable.integral import shift

Pair = tuple[Expr, Expr]
Name = Callable[[Expr], Expr]


def named(name: Name, a: Pair) -> Pair:
    """Both words under names."""
    return name(a[0]), name(a[1])


def words(value: int) -> Pair:
    """The two words of a constant."""
    return u(value), u(value >> 32)


def add(name: Name, a: Pair, b: Pair) -> Pair:
    """The carry is set where the low word wrapped."""
    low = name(op("add", a[0], b[0]))
    carry = cast(test("lt", low, a[0]), uint32)
    return low, op("add", op("add", a[1], b[1]), carry)


def sub(name: Name, a: Pair, b: Pair) -> Pair:
    borrow = cast(test("lt", a[0], b[0]), uint32)
    return op("sub", a[0], b[0]), op("sub", op("sub", a[1], b[1]), borrow)


def neg(name: Name, a: Pair) -> Pair:
    return sub(name, (ZERO, ZERO), a)


def mul(carried: Expr, a: Pair, b: Pair) -> Pair:
    """The low 64 bits; ``carried`` is the high word of the product of the low words."""
    high = op("add", op("mul", a[0], b[1]), op("mul", a[1], b[0]))
    return op("mul", a[0], b[0]), op("add", carried, high)


def each(primitive: str) -> Callable[..., Pair]:
    """A bit operation word by word."""
    def rule(name: Name, *args: Pair) -> Pair:
        return op(primitive, *[a[0] for a in args]), op(primitive, *[a[1] for a in args])
    return rule


def less(signed: bool, a: Pair, b: Pair, low: str = "lt") -> Expr:
    """``a < b`` (``low="le"``: ``a <= b``): the high words decide unless they are equal."""
    ah, bh = _top(signed, a), _top(signed, b)
    return pick(test("eq", ah, bh), test(low, a[0], b[0]), test("lt", ah, bh))


def _top(signed: bool, a: Pair) -> Expr:
    return expr("bitcast", (a[1],), i(0).dtype) if signed else a[1]


def equal(a: Pair, b: Pair) -> Expr:
    return expr("and", (test("eq", a[0], b[0]), test("eq", a[1], b[1])), bool_)


def choose(c: Expr, a: Pair, b: Pair) -> Pair:
    return pick(c, a[0], b[0]), pick(c, a[1], b[1])


def negative(a: Pair) -> Expr:
    return test("ne", op("shr", a[1], u(31)), ZERO)


def shl(name: Name, a: Pair, by: Expr) -> Pair:
    """``by`` is an unsigned word; 64 and more give 0, because :func:`shift` by 32 and more does."""
    far = test("ge", by, u(32))
    back = op("sub", u(32), by)
    near = op("or", shift("shl", a[1], by), shift("shr", a[0], back))
    high = pick(far, shift("shl", a[0], op("sub", by, u(32))), near)
    return shift("shl", a[0], by), high


def shr(name: Name, a: Pair, by: Expr, signed: bool) -> Pair:
    far = test("ge", by, u(32))
    back = op("sub", u(32), by)
    near = op("or", shift("shr", a[0], by), shift("shl", a[1], back))
    if not signed:
        return pick(far, shift("shr", a[1], op("sub", by, u(32))), near), shift("shr", a[1], by)
    top = bits(a[1], i(0).dtype)
    moved = _shift_signed(top, op("sub", by, u(32)))
    return pick(far, moved, near), _shift_signed(top, by)


def _shift_signed(x: Expr, by: Expr) -> Expr:
    capped = bits(expr("min", (by, u(31)), uint32), x.dtype)
    return bits(expr("shr", (x, capped), x.dtype))


def shift_count(name: Name, by: Pair) -> Expr:
    """A 64-bit count as one word, 64 where it is larger."""
    return name(pick(test("ne", by[1], ZERO), u(64), expr("min", (by[0], u(64)), uint32)))


def clz(a: Pair) -> Expr:
    """Leading zeros, 64 for zero."""
    low = op("add", expr("clz", (a[0],), uint32), u(32))
    return pick(test("eq", a[1], ZERO), low, expr("clz", (a[1],), uint32))


def absolute(name: Name, a: Pair) -> Pair:
    return choose(name(negative(a)), neg(name, a), a)


# Division, one bit of the quotient a step.


def divide(part: str) -> Helper:
    """``part`` of the unsigned division of two pairs: ``q0``, ``q1`` (quotient) or ``r0``, ``r1`` (remainder)."""
    n0, n1, d0, d1 = (var(k, uint32) for k in ("n0", "n1", "d0", "d1"))
    q0, q1, r0, r1 = (var(k, uint32) for k in ("q0", "q1", "r0", "r1"))
    step = var("step", u(0).dtype)
    place = op("sub", u(63), step)
    bit = op("and", pick(test("ge", place, u(32)), shift("shr", n1, op("sub", place, u(32))),
                         shift("shr", n0, place)), u(1))
    carried = var("carried", bool_)
    fits = var("fits", bool_)
    low = var("low", uint32)
    high = var("high", uint32)
    one = cast(fits, uint32)
    body: list[Stmt] = [
        Let("carried", test("ne", op("shr", r1, u(31)), ZERO)),
        Let("high", op("or", op("shl", r1, u(1)), op("shr", r0, u(31)))),
        Let("low", op("or", op("shl", r0, u(1)), bit)),
        Let("fits", expr("or", (carried, expr("not", (less(False, (low, high), (d0, d1)),), bool_)), bool_)),
        Assign("r1", pick(fits, op("sub", op("sub", high, d1), cast(test("lt", low, d0), uint32)), high)),
        Assign("r0", pick(fits, op("sub", low, d0), low)),
        Assign("q1", op("or", op("shl", q1, u(1)), op("shr", q0, u(31)))),
        Assign("q0", op("or", op("shl", q0, u(1)), one)),
    ]
    stmts: tuple[Stmt, ...] = (*[Register(k, ZERO) for k in ("q0", "q1", "r0", "r1")],
                               For("step", u(0), u(64), 1, "serial", tuple(body)))
    return Helper(f"rlx_divide_{part}", (n0, n1, d0, d1), stmts, var(part, uint32))


def division(name: Name, call: Callable[[Helper, tuple[Expr, ...]], Expr], primitive: str, signed: bool, a: Pair,
             b: Pair) -> Pair:
    """``floordiv`` or ``rem`` as Python's, 0 for a zero divisor."""
    x = named(name, absolute(name, a) if signed else a)
    y = named(name, absolute(name, b) if signed else b)
    zero = name(test("eq", op("or", b[0], b[1]), ZERO))

    def part(p: str) -> Expr:
        return name(call(divide(p), (*x, *y)))

    q = (part("q0"), part("q1"))
    r = (part("r0"), part("r1"))
    if signed:
        opposite = name(expr("xor", (negative(a), negative(b)), bool_))
        some = name(test("ne", op("or", r[0], r[1]), ZERO))
        if primitive == "floordiv":
            up = add(name, q, (cast(some, uint32), ZERO))
            up = named(name, up)
            q = choose(opposite, neg(name, up), q)
        else:
            other = named(name, sub(name, y, r))
            r = choose(expr("and", (opposite, some), bool_), other, r)
            r = named(name, r)
            r = choose(name(negative(b)), neg(name, r), r)
    return choose(zero, (ZERO, ZERO), q if primitive == "floordiv" else r)


# Conversions.


def to_float(name: Name, signed: bool, a: Pair) -> Expr:
    """The nearest float32: the 32 leading bits with a sticky last bit, rounded once, times a power of two."""
    below = name(negative(a)) if signed else const(False, bool_)
    m = named(name, choose(below, neg(name, a), a))
    lead = name(clz(m))
    low, high = shl(name, m, lead)
    top = op("or", high, cast(test("ne", low, ZERO), uint32))
    exponent = op("shl", op("sub", u(127 + 32), lead), u(23))
    magnitude = name(op("mul", cast(name(top), float32), bits(exponent, float32)))
    magnitude = pick(test("eq", lead, u(64)), f(0.0), magnitude)
    return pick(below, expr("neg", (magnitude,), float32), magnitude) if signed else magnitude


def from_float(name: Name, signed: bool, x: Expr) -> Pair:
    """Truncation, saturating at the ends; NaN gives 0."""
    b = name(bits(x))
    exponent = name(op("and", op("shr", b, u(23)), u(255)))
    mantissa = name(op("or", op("and", b, u(0x7FFFFF)), u(0x800000)))
    left = shl(name, (mantissa, ZERO), name(op("sub", u(0), op("sub", u(150), exponent))))
    right = pick(test("lt", exponent, u(127)), ZERO, shift("shr", mantissa, op("sub", u(150), exponent)))
    large = name(test("ge", exponent, u(150)))
    m = named(name, choose(large, left, (right, ZERO)))
    minus = name(test("ne", op("shr", b, u(31)), ZERO))
    limit = 127 + (63 if signed else 64)
    over = name(test("ge", exponent, u(limit)))
    if signed:
        value = choose(minus, neg(name, m), m)
        ends = choose(minus, words(1 << 63), words((1 << 63) - 1))
        value = choose(over, ends, value)
    else:
        value = choose(over, words((1 << 64) - 1), m)
        value = choose(minus, (ZERO, ZERO), value)
    return choose(name(is_nan(x)), (ZERO, ZERO), value)
