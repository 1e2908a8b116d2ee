"""Loops over pairs of words: 64-bit power and the upper half of a 64-bit product, one helper for each word."""

from __future__ import annotations

from rlx.core.dtype import DType, bool_, int64, uint32, uint64
from rlx.ir.loop import Assign, Expr, If, Loop, Register, Stmt, const, expr, var
from rlx.render.portable.helper import Helper


def helpers(name: str, dtype: DType) -> list[Helper]:
    """The helpers that give the low and the high word of ``name`` on two pairs."""
    return [(_power if name == "pow" else _high)(dtype, k) for k in (0, 1)]


def _params() -> tuple[Expr, ...]:
    return tuple(var(n, uint32) for n in ("x_0", "x_1", "y_0", "y_1"))


def _word(e: Expr, k: int) -> Expr:
    """Word ``k`` of a 64-bit expression, as an expression of 32 bits."""
    unsigned = e if e.dtype == uint64 else expr("bitcast", (e,), uint64)
    return expr("cast", (expr("shr", (unsigned, const(32 * k, uint64)), uint64),), uint32)


def _power(dtype: DType, k: int) -> Helper:
    x, y, r, b, e = (var(n, dtype) for n in "xyrbe")
    one, zero = const(1, dtype), const(0, dtype)
    odd = expr("ne", (expr("and", (e, one), dtype), zero), bool_)
    body: list[Stmt] = [
        Register("r", one), Register("b", x), Register("e", y),
        Loop(expr("gt", (e, zero), bool_), (
            If(odd, (Assign("r", expr("mul", (r, b), dtype)),)),
            Assign("b", expr("mul", (b, b), dtype)), Assign("e", expr("shr", (e, one), dtype))))]
    value = r
    if dtype == int64:
        minus = const(-1, dtype)
        lone = expr("ne", (expr("and", (y, one), dtype), zero), bool_)
        sign = expr("select", (lone, minus, one), dtype)
        below = expr("select", (expr("eq", (x, minus), bool_), sign, zero), dtype)
        below = expr("select", (expr("eq", (x, one), bool_), one, below), dtype)
        value = expr("select", (expr("lt", (y, zero), bool_), below, r), dtype)
    return Helper(f"rlx_power_{dtype.short}_{k}", _params(), tuple(body), _word(value, k))


def _high(dtype: DType, k: int) -> Helper:
    x0, x1, y0, y1 = _params()

    def product(a: Expr, b: Expr) -> Expr:
        return expr("mul", (expr("cast", (a,), uint64), expr("cast", (b,), uint64)), uint64)

    def add(a: Expr, b: Expr) -> Expr:
        return expr("add", (a, b), uint64)

    def high(e: Expr) -> Expr:
        return expr("shr", (e, const(32, uint64)), uint64)

    def low(e: Expr) -> Expr:
        return expr("and", (e, const(0xFFFFFFFF, uint64)), uint64)

    c1, c2 = product(x0, y1), product(x1, y0)
    middle = add(add(high(product(x0, y0)), low(c1)), low(c2))
    value = add(add(product(x1, y1), add(high(c1), high(c2))), high(middle))
    return Helper(f"rlx_mulhi_{dtype.short}_{k}", _params(), (), _word(value, k))
