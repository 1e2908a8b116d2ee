"""Primitives on registers, and the functions of the standard expansions as helpers."""

from __future__ import annotations

from rlx.core.dtype import DType, float32
from rlx.core.errors import CompileError
from rlx.ir.expand import expansion
from rlx.ir.prim import TRANSCENDENTAL
from rlx.render.c import convert, floating, integer
from rlx.render.c.dialect import register
from rlx.render.c.unit import Unit


def emit(u: Unit, op: str, d: DType, result: DType, args: list[str], plain: bool = False) -> str:
    """A primitive whose arguments (of dtype ``d``, but for select's condition) and result are real.

    ``plain``: signed arithmetic that is known to stay in range.
    """
    if op == "select":
        return f"({args[0]} ? {args[1]} : {args[2]})"
    if op == "cast":
        return convert.cast(u, args[0], d, result)
    if op == "bitcast":
        return convert.bitcast(u, args[0], d, result)
    if op in ("real", "conj"):
        return args[0]
    if not d.is_float:
        return _integer(u, op, d, args, plain)
    if op == "nextafter" and d.bits == 16:
        return convert.nextafter16(u, d, args[0], args[1])
    if d.bits == 16:
        wide = emit(u, op, float32, float32 if result == d else result, args)
        return convert.rounded(u, d, wide) if result == d and op not in _EXACT else wide
    if op in TRANSCENDENTAL:
        return f"{function(u, op, d)}({', '.join(args)})"
    return _rule(floating.RULES, op, d)(u, d, *args)


#: Primitives whose result is one of their arguments, up to the sign: nothing to round.
_EXACT = frozenset(("neg", "abs", "min", "max", "copysign", "sign", "floor", "ceil", "trunc", "round"))


def _integer(u: Unit, op: str, d: DType, args: list[str], plain: bool) -> str:
    rule = _rule(integer.RULES, op, d)
    return rule(u, d, *args, plain=True) if plain and op in ("add", "sub", "mul") else rule(u, d, *args)


def _rule(rules: dict[str, floating.Rule], op: str, d: DType) -> floating.Rule:
    if op not in rules:
        raise CompileError(
            f"primitive {op!r} has no C form for {d.name}",
            why=f"it is not defined on {d.name}",
            do="cast the arguments first",
        )
    return rules[op]


def function(u: Unit, op: str, d: DType) -> str:
    """The helper of a transcendental primitive on float32 or float64: its expansion, rare cases behind a branch."""
    own = u.d.math.get((op, register(d)))
    if own is not None:
        return own
    found = expansion(op, d, fast=u.fast, branches=True)
    if found is None:
        raise CompileError(
            f"primitive {op!r} has no expansion for {d.name}",
            why=f"{u.d.name} has no such function",
            do="add an expansion in rlx.ir.expand",
        )
    return u.straight(found)
