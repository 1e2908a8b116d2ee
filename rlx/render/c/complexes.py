"""Complex primitives on pairs of registers, by the formulas of :mod:`rlx.render.pairs`."""

from __future__ import annotations

from collections.abc import Callable

from rlx.core.dtype import DType, complex64, complex128
from rlx.ir.loop import Expr
from rlx.render.c import convert
from rlx.render.c.dialect import register
from rlx.render.c.primitives import emit
from rlx.render.c.unit import Unit
from rlx.render.pairs import pair_function

Value = str | tuple[str, str]
#: Evaluates real expressions over named parts: ``inline({"x_re": "a", ..}, results) -> values``.
Inline = Callable[[dict[str, str], tuple[Expr, ...]], list[str]]


def emit_complex(u: Unit, op: str, d: DType, result: DType, args: list[Value], inline: Inline) -> Value:
    """A primitive with a complex argument (of dtype ``d``) or result."""
    if op == "cast":
        return _cast(u, args[0], d, result)
    if op == "complex":
        return _one(args[0]), _one(args[1])
    if op == "select":
        c, x, y = _one(args[0]), _pair(args[1]), _pair(args[2])
        return f"({c} ? {x[0]} : {y[0]})", f"({c} ? {x[1]} : {y[1]})"
    pairs = [_pair(a) for a in args]
    x, part = pairs[0], d.real
    if op in ("add", "sub"):
        return tuple(emit(u, op, part, part, [p[k] for p in pairs]) for k in (0, 1))  # type: ignore[return-value]
    if op in ("real", "imag"):
        return x[op == "imag"]
    if op in ("neg", "conj"):
        return f"(-{x[0]})" if op == "neg" else x[0], f"(-{x[1]})"
    if op in ("eq", "ne", "isnan"):
        tests = [emit(u, op, part, part, [p[k] for p in pairs]) for k in (0, 1)]
        return f"({tests[0]} {'&&' if op == 'eq' else '||'} {tests[1]})"
    if op == "pow" and d == complex64 and "f64" in u.d.types:
        # exp(b log a) loses as many digits as its exponent is large.
        wide = [_cast(u, p, complex64, complex128) for p in pairs]
        return _cast(u, _function(op, complex128, wide, inline), complex128, complex64)
    return _function(op, d, list(args), inline)


def _function(op: str, d: DType, args: list[Value], inline: Inline) -> Value:
    params, results = pair_function(op, d.real)
    parts = [part for a in args for part in _pair(a)]
    values = inline({str(p.value): part for p, part in zip(params, parts, strict=True)}, results)
    return values[0] if len(values) == 1 else (values[0], values[1])


def _cast(u: Unit, x: Value, src: DType, dst: DType) -> Value:
    """Real to complex has imaginary part 0, complex to real drops it, complex to bool asks for z != 0."""
    if isinstance(x, str):
        return convert.cast(u, x, src, dst.real), u.d.number(0.0, register(dst))
    if dst.kind == "b":
        return f"({convert.cast(u, x[0], src.real, dst)} || {convert.cast(u, x[1], src.real, dst)})"
    if dst.is_complex:
        return convert.cast(u, x[0], src.real, dst.real), convert.cast(u, x[1], src.real, dst.real)
    return convert.cast(u, x[0], src.real, dst)


def _one(x: Value) -> str:
    assert isinstance(x, str), "a complex value where a real one belongs"
    return x


def _pair(x: Value) -> tuple[str, str]:
    assert isinstance(x, tuple), "a real value where a complex one belongs"
    return x
