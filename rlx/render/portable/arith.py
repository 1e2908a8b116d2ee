"""Short spellings for building expressions of 32-bit types, with folding where a constant decides."""

from __future__ import annotations

from collections.abc import Callable

from rlx.core.dtype import DType, bool_, float32, int32, uint32
from rlx.ir.loop import Expr, const, expr

ZERO = const(0, uint32)
NO = const(False, bool_)


_FOLD: dict[str, Callable[[int, int], int]] = {
    "add": int.__add__, "sub": int.__sub__, "mul": int.__mul__, "and": int.__and__, "or": int.__or__,
    "shl": lambda a, b: a << b if b < 32 else 0, "shr": lambda a, b: a >> b}


def u(value: int) -> Expr:
    """An unsigned 32-bit constant, modulo 2**32."""
    return const(value & 0xFFFFFFFF, uint32)


def i(value: int) -> Expr:
    """A signed 32-bit constant."""
    return const(value, int32)


def f(value: float) -> Expr:
    """A float32 constant."""
    return const(value, float32)


def op(name: str, *args: Expr) -> Expr:
    """A primitive with the dtype of its first argument; identities with the constant 0 are dropped."""
    if args[0].dtype == uint32 and len(args) == 2 and all(a.op == "const" for a in args) and name in _FOLD:
        return u(_FOLD[name](args[0].value, args[1].value))
    if not args[0].dtype.is_float:
        null = [a.op == "const" and not a.value for a in args]
        if name in ("add", "or", "xor", "shl", "shr") and null[1]:
            return args[0]
        if name in ("add", "or", "xor") and null[0]:
            return args[1]
        if name in ("and", "mul") and any(null):
            return const(0, args[0].dtype)
    return expr(name, args, args[0].dtype)


def test(name: str, a: Expr, b: Expr) -> Expr:
    """A comparison."""
    return expr(name, (a, b), bool_)


def pick(c: Expr, a: Expr, b: Expr) -> Expr:
    """``a`` where ``c``, else ``b``."""
    if c.op == "const":
        return a if c.value else b
    return a if a == b else expr("select", (c, a, b), a.dtype)


def bits(e: Expr, dtype: DType = uint32) -> Expr:
    """The same 32 bits as another dtype."""
    if e.dtype == dtype:
        return e
    if e.op == "bitcast":
        return bits(e.args[0], dtype)
    if e.op == "const" and not e.dtype.is_float and not dtype.is_float:
        v = e.value & 0xFFFFFFFF
        return const(v - (1 << 32) if dtype.kind == "i" and v >> 31 else v, dtype)
    return expr("bitcast", (e,), dtype)


def cast(e: Expr, dtype: DType) -> Expr:
    """A conversion."""
    return e if e.dtype == dtype else expr("cast", (e,), dtype)


def is_nan(x: Expr) -> Expr:
    """NaN by its bits: comparisons with NaN are not reliable on every driver."""
    return expr("isnan", (x,), bool_)
