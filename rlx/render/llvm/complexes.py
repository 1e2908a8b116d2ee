"""Complex primitives on pairs of registers."""

from __future__ import annotations

from rlx.core.dtype import DType, complex64, complex128
from rlx.render.llvm import convert, floating
from rlx.render.llvm.builder import Builder
from rlx.render.llvm.straight import Emit, define
from rlx.render.llvm.types import Value, float_literal, register_type, return_type
from rlx.render.pairs import pair_function


def emit(b: Builder, op: str, d: DType, result: DType, args: list[Value], flags: str, real: Emit) -> Value:
    """A primitive with a complex argument (of dtype ``d``) or result; ``real`` emits real primitives."""
    if op in ("add", "sub"):
        return _parts(b, op, d.real, args, flags)
    if op == "cast":
        return _cast(b, args[0], d, result)
    if op == "complex":
        return convert.cast(b, _real(args[0]), d, result.real), convert.cast(
            b, _real(args[1]), d, result.real
        )
    if op == "select":
        return _select(b, d, args)
    x = _pair(args[0])
    if op == "real":
        return x[0]
    if op == "imag":
        return x[1]
    if op in ("neg", "conj"):
        re = floating.RULES["neg"](b, d.real, x[0]) if op == "neg" else x[0]
        return re, floating.RULES["neg"](b, d.real, x[1])
    if op in ("eq", "ne", "isnan"):
        return _test(b, op, d.real, args)
    if op == "pow" and d == complex64:
        return _power(b, args, real)
    return _function(b, op, d, result, args, real)


def _real(x: Value) -> str:
    assert isinstance(x, str)
    return x


def _pair(x: Value) -> tuple[str, str]:
    assert isinstance(x, tuple)
    return x


def _parts(b: Builder, op: str, part: DType, args: list[Value], flags: str) -> Value:
    x, y = _pair(args[0]), _pair(args[1])
    rule = floating.RULES[op]
    return rule(b, part, x[0], y[0], flags=flags), rule(b, part, x[1], y[1], flags=flags)


def _cast(b: Builder, x: Value, src: DType, dst: DType) -> Value:
    """Real to complex has imaginary part 0, complex to real drops it, complex to bool asks for z != 0."""
    if isinstance(x, str):
        part = register_type(dst)
        return convert.cast(b, x, src, dst.real), float_literal(0.0, part)
    if dst.kind == "b":
        parts = [convert.cast(b, p, src.real, dst) for p in x]
        return b.op(f"or i1 {parts[0]}, {parts[1]}")
    if dst.is_complex:
        return convert.cast(b, x[0], src.real, dst.real), convert.cast(b, x[1], src.real, dst.real)
    return convert.cast(b, x[0], src.real, dst)


def _select(b: Builder, d: DType, args: list[Value]) -> Value:
    c, x, y, t = _real(args[0]), _pair(args[1]), _pair(args[2]), register_type(d)
    return (b.op(f"select i1 {c}, {t} {x[0]}, {t} {y[0]}"), b.op(f"select i1 {c}, {t} {x[1]}, {t} {y[1]}"))


def _test(b: Builder, op: str, part: DType, args: list[Value]) -> str:
    pairs = [_pair(a) for a in args]
    first, second = (floating.RULES[op](b, part, *(p[i] for p in pairs)) for i in (0, 1))
    return b.op(f"{'and' if op == 'eq' else 'or'} i1 {first}, {second}")


def _power(b: Builder, args: list[Value], real: Emit) -> Value:
    """complex64 power through complex128: exp(b log a) loses as many digits as its exponent is large."""
    wide = [_cast(b, a, complex64, complex128) for a in args]
    return _cast(b, _function(b, "pow", complex128, complex128, wide, real), complex128, complex64)


def _function(b: Builder, op: str, d: DType, result: DType, args: list[Value], real: Emit) -> Value:
    """Call the helper made from the pair formula of ``op``."""
    name = f"rlx.{op}.{d.short}"
    if not b.helpers.has(name):
        params, results = pair_function(op, d.real)
        define(b.helpers, name, params, (), results, real)
    t, returns = register_type(d), return_type(result)
    value = b.call(name, returns, *((t, part) for a in args for part in _pair(a)))
    if not result.is_complex:
        return value
    return b.op(f"extractvalue {returns} {value}, 0"), b.op(f"extractvalue {returns} {value}, 1")
