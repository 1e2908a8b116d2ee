"""Transcendental functions: an expansion in arithmetic primitives where there is one, else the C library's.

An expansion becomes an ``alwaysinline`` function, so that the loop vectoriser sees plain arithmetic. Its
arithmetic is strict (no contraction): error-free transformations inside it mean what they say.
"""

from __future__ import annotations

from rlx.core.dtype import DType
from rlx.core.errors import CompileError
from rlx.ir.expand import expansion
from rlx.ir.prim import TRANSCENDENTAL
from rlx.render.llvm.builder import Builder
from rlx.render.llvm.straight import Emit, define
from rlx.render.llvm.types import register_type

#: Primitives this module renders.
NAMES = TRANSCENDENTAL

#: C99 library functions with the meaning of the primitive of the same name.
LIBM = frozenset(
    ("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan")
    + ("sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "lgamma", "pow", "atan2", "hypot"))

_ATTRIBUTES = "nounwind willreturn memory(none)"


def call(b: Builder, op: str, d: DType, args: list[str], real: Emit) -> str:
    """Call the helper or library function of ``op`` on float32 or float64; ``real`` emits primitives."""
    t = register_type(d)
    typed = [(t, a) for a in args]
    function = expansion(op, d, fast=b.helpers.fast, branches=b.cases != "all")
    if function is not None:
        name = f"rlx.{op}.{d.short}"
        if function.rare is not None:
            name += ".common"
            if b.cases == "check":
                test = f"rlx.{op}.{d.short}.rare"
                define(b.helpers, test, function.params, function.lets, (function.rare[0],), real)
                _raise_flag(b, b.call(test, "i1", *typed))
        define(b.helpers, name, function.params, function.lets, (function.result,), real)
        return b.call(name, t, *typed)
    if op not in LIBM:
        raise CompileError(
            f"primitive {op!r} has no expansion for {d.name}",
            why="the C library has no function of that meaning either",
            do="add an expansion in rlx.ir.expand",
        )
    name = op if d.bits == 64 else op + "f"
    b.helpers.declare(name, t, (t,) * len(args), _ATTRIBUTES)
    return b.call(name, t, *typed)


def _raise_flag(b: Builder, cond: str) -> None:
    one = b.op(f"zext i1 {cond} to i32")
    before = b.op(f"load i32, ptr {b.flag}")
    b.do(f"store i32 {b.op(f'or i32 {before}, {one}')}, ptr {b.flag}")
