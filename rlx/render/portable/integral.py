"""Integer primitives of 32 bits (and 64 where native) with the meaning of the primitive table.

``quotient`` and ``modulus`` are the language's truncating division by a divisor that is neither 0 nor -1.
"""

from __future__ import annotations

from collections.abc import Callable

from rlx.core.dtype import DType, bool_, uint32
from rlx.ir.loop import Assign, Expr, If, Loop, Register, Stmt, const, expr, var
from rlx.render.portable.arith import op, pick, test
from rlx.render.portable.helper import Helper

Name = Callable[[Expr], Expr]


def shift(name: str, x: Expr, by: Expr) -> Expr:
    """``shl`` or ``shr``; a count of the width and more gives 0, or the sign."""
    d = x.dtype
    width = const(d.bits, by.dtype)
    if by.op == "const":
        if 0 <= by.value < d.bits:
            return op(name, x, by)
        return op("shr", x, const(d.bits - 1, d)) if name == "shr" and d.kind == "i" else const(0, d)
    inside = test("lt", by, width)
    if d.kind == "i":
        inside = expr("and", (inside, test("ge", by, const(0, by.dtype))), bool_)
    if name == "shr" and d.kind == "i":
        return expr("shr", (x, pick(inside, by, const(d.bits - 1, by.dtype))), d)
    return pick(inside, expr(name, (x, expr("and", (by, const(d.bits - 1, by.dtype)), by.dtype)), d), const(0, d))


def division(name: Name, primitive: str, x: Expr, y: Expr) -> Expr:
    """``floordiv`` or ``rem``: the floor's, 0 for a zero divisor."""
    d = x.dtype
    zero, one = const(0, d), const(1, d)
    if d.kind == "u":
        return _unsigned(primitive, x, y, zero, one)
    known = y.op == "const" and y.value not in (0, -1)
    trap = expr("or", (test("eq", y, zero), test("eq", y, const(-1, d))), bool_)
    safe = y if known else name(pick(trap, one, y))
    whole = name(expr("quotient", (x, safe), d))
    # Not the language's remainder, which GLSL leaves undefined for negative numbers.
    r = name(op("sub", x, op("mul", whole, safe)))
    off = expr("and", (test("ne", r, zero), test("lt", op("xor", r, safe), zero)), bool_)
    if primitive == "rem":
        return op("add", r, pick(off, safe, zero))
    q = op("add", whole, pick(off, const(-1, d), zero))
    if known:
        return q
    return pick(test("eq", y, zero), zero, pick(test("eq", y, const(-1, d)), expr("sub", (zero, x), d), q))


def _unsigned(primitive: str, x: Expr, y: Expr, zero: Expr, one: Expr) -> Expr:
    how = "quotient" if primitive == "floordiv" else "modulus"
    if y.op == "const" and y.value:
        return expr(how, (x, y), x.dtype)
    null = test("eq", y, zero)
    return pick(null, zero, expr(how, (x, pick(null, one, y)), x.dtype))


def natural_division(primitive: str, x: Expr, y: Expr) -> Expr:
    """The same of a number that is not negative by a positive constant."""
    return expr("quotient" if primitive == "floordiv" else "modulus", (x, y), x.dtype)


def absolute(x: Expr) -> Expr:
    d = x.dtype
    return x if d.kind == "u" else pick(test("lt", x, const(0, d)), expr("sub", (const(0, d), x), d), x)


def sign(x: Expr) -> Expr:
    d = x.dtype
    up = pick(test("gt", x, const(0, d)), const(1, d), const(0, d))
    return up if d.kind == "u" else pick(test("lt", x, const(0, d)), const(-1, d), up)


def power(d: DType) -> Helper:
    """Square and multiply modulo 2**bits; a negative exponent gives the truncated reciprocal."""
    x, y, r, b, e = var("x", d), var("y", d), var("r", d), var("b", d), var("e", d)
    one, zero = const(1, d), const(0, d)
    odd = test("ne", expr("and", (e, one), d), zero)
    body: list[Stmt] = [
        Register("r", one), Register("b", x), Register("e", y),
        Loop(test("gt", e, zero), (If(odd, (Assign("r", expr("mul", (r, b), d)),)), Assign("b", expr("mul", (b, b), d)),
                                   Assign("e", expr("shr", (e, one), d))))]
    value = r
    if d.kind == "i":
        lone = test("ne", expr("and", (y, one), d), zero)
        minus = pick(test("eq", x, const(-1, d)), pick(lone, const(-1, d), one), zero)
        value = pick(test("lt", y, zero), pick(test("eq", x, one), one, minus), r)
    return Helper(f"rlx_power_{d.short}", (x, y), tuple(body), value)


def high_product(d: DType) -> Helper:
    """The upper half of an unsigned product, by halves of the word."""
    x, y = var("x", d), var("y", d)
    half = d.bits // 2
    mask, by = const((1 << half) - 1, d), const(half, d)

    def low(e: Expr) -> Expr:
        return expr("and", (e, mask), d)

    def high(e: Expr) -> Expr:
        return expr("shr", (e, by), d)

    def times(a: Expr, b: Expr) -> Expr:
        return expr("mul", (a, b), d)

    def plus(a: Expr, b: Expr) -> Expr:
        return expr("add", (a, b), d)

    c1, c2 = times(low(x), high(y)), times(high(x), low(y))
    middle = plus(plus(high(times(low(x), low(y))), low(c1)), low(c2))
    value = plus(plus(times(high(x), high(y)), plus(high(c1), high(c2))), high(middle))
    return Helper(f"rlx_mulhi_{d.short}", (x, y), (), value)


def count_bits(primitive: str, x: Expr, narrow: Callable[[Expr], Expr]) -> Expr:
    """``popcount`` or ``clz`` of a native 64-bit integer, word by word; ``narrow`` takes the low 32 bits as u32."""
    d = x.dtype
    low, high = narrow(x), narrow(expr("shr", (expr("bitcast", (x,), d) if d.kind == "u" else x, const(32, d)), d))
    if primitive == "popcount":
        return op("add", expr("popcount", (low,), uint32), expr("popcount", (high,), uint32))
    below = op("add", expr("clz", (low,), uint32), const(32, uint32))
    return pick(test("eq", high, const(0, uint32)), below, expr("clz", (high,), uint32))
