"""Expressions over the types of a portable kernel, as WGSL text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import copysign, inf

import numpy as np

from rlx.core.dtype import DType, float32, float64, uint32
from rlx.core.errors import CompileError
from rlx.ir.loop import Expr
from rlx.render.wgsl.guard import Guard, opaque

_INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/", "quotient": "/", "modulus": "%", "and": "&", "or": "|",
          "eq": "==", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_CALL = {"popcount": "countOneBits", "clz": "countLeadingZeros", **{
    name: name for name in ("abs", "floor", "ceil", "trunc", "round", "sqrt", "min", "max", "fma")}}


def type_name(d: DType) -> str:
    """``f32``, ``u32``, ``bool``..."""
    return d.short


def literal(value: object, d: DType) -> str:
    """A constant of this type, exactly."""
    if d.kind == "b":
        return "true" if value else "false"
    if d.kind in "iu":
        return _integer(int(value), d)  # type: ignore[call-overload]
    return _float(float(value), d)  # type: ignore[arg-type]


def _integer(n: int, d: DType) -> str:
    suffix = {"i32": "i", "u32": "u", "i64": "li", "u64": "lu"}[d.short]
    if d.kind == "i" and n == -(1 << d.bits - 1):
        return f"({n + 1}{suffix} - 1{suffix})"
    return f"({n}{suffix})" if n < 0 else f"{n}{suffix}"


def _float(x: float, d: DType) -> str:
    """Through bits where a decimal literal is not accepted or not kept: infinities, NaN, -0 and denormals."""
    if d == float64:
        if x != x or abs(x) == inf or (x == 0 and copysign(1, x) < 0) or 0 < abs(x) < 2.0**-1022:
            return f"bitcast<f64>({int(np.float64(x).view(np.uint64))}lu ^ u64(rlx_zero))"
        return f"({x!r}lf)" if x < 0 else f"{x!r}lf"
    with np.errstate(over="ignore"):
        y = np.float32(x)
    if y != y or abs(y) == inf or (y == 0 and copysign(1, y) < 0) or 0 < abs(y) < 2.0**-126:
        return f"bitcast<f32>({int(y.view(np.uint32)):#x}u ^ rlx_zero)"
    text = np.format_float_scientific(y, unique=True, trim="-") if not 1e-4 <= abs(y) < 1e7 and y != 0 else (
        np.format_float_positional(y, unique=True, trim="0"))
    return f"({text}f)" if y < 0 else f"{text}f"


class Writer:
    """Writes the expressions of one kernel. ``loads`` turns a buffer's name and index text into a load."""

    def __init__(self, loads: Mapping[str, Callable[[str], str]], guard: Guard) -> None:
        self.loads, self.guard = loads, guard

    def text(self, e: Expr) -> str:
        """The expression."""
        if e.op == "const":
            return literal(e.value, e.dtype)
        if e.op == "var":
            return str(e.value)
        if e.op == "load":
            return self.loads[e.value](self.text(e.args[0]))
        if e.op == "cast" and e.args[0].op == "const" and e.args[0].dtype.is_integer and e.dtype.kind in "iu":
            return literal(_wrapped(int(e.args[0].value), e.dtype), e.dtype)  # naga casts no 64-bit literals
        hidden = self.guard.needed(e)
        if e.op in _CALL and e.dtype == float64:
            # naga evaluates calls of constants, but has no float64 there.
            hidden = tuple([_is_constant(a) for a in e.args])
        args = [opaque(self.text(a), a) if h else self.text(a) for a, h in zip(e.args, hidden, strict=True)]
        return self._apply(e, args)

    def _apply(self, e: Expr, args: list[str]) -> str:
        op, d = e.op, e.dtype
        if op in _INFIX:
            return f"({args[0]} {_INFIX[op]} {args[1]})"
        if op in _CALL:
            return f"{_CALL[op]}({', '.join(args)})"
        if op == "ne":
            # "!=" is false for NaN on several drivers; "==" is right on all.
            return f"!({args[0]} == {args[1]})" if e.args[0].dtype.is_float else f"({args[0]} != {args[1]})"
        if op == "select":
            return f"select({args[2]}, {args[1]}, {args[0]})"
        if op == "cast":
            return f"{type_name(d)}({args[0]})"
        if op == "bitcast":
            return f"bitcast<{type_name(d)}>({args[0]})"
        if op == "call":
            return f"{e.value}({', '.join(args)})"
        if op == "neg":
            return f"(-{args[0]})"
        if op == "not":
            return f"(!{args[0]})" if d.kind == "b" else f"(~{args[0]})"
        if op == "xor":
            return f"({args[0]} != {args[1]})" if d.kind == "b" else f"({args[0]} ^ {args[1]})"
        if op in ("shl", "shr"):
            return f"({args[0]} {'<<' if op == 'shl' else '>>'} {_count(e.args[1], args[1])})"
        if op == "isnan":
            return _is_nan(args[0], e.args[0].dtype)
        raise CompileError(f"primitive {op!r} on {d.name} has no WGSL", why="the language has no such operation",
                           do="report this kernel: the portable rewrite should have replaced it")


def _wrapped(n: int, d: DType) -> int:
    """An integer modulo the range of its type."""
    n &= (1 << d.bits) - 1
    return n - (1 << d.bits) if d.kind == "i" and n >> d.bits - 1 else n


def _is_constant(e: Expr) -> bool:
    return e.op not in ("var", "load", "call") and all(map(_is_constant, e.args))


def _count(by: Expr, text: str) -> str:
    if by.op == "const":
        return f"{int(by.value)}u"
    return text if by.dtype == uint32 else f"u32({text})"


def _is_nan(text: str, d: DType) -> str:
    if d == float32:
        return f"((bitcast<u32>({text}) & 0x7fffffffu) > 0x7f800000u)"
    return f"((bitcast<u64>({text}) & {2**63 - 1}lu) > {0x7FF << 52}lu)"


__all__ = ["Writer", "literal", "type_name"]
