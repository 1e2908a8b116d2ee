"""``cast``, ``bitcast`` and ``nextafter``: primitives that look at the representation of a real number."""

from __future__ import annotations

from rlx.core.dtype import DType, float32
from rlx.render.llvm import floating
from rlx.render.llvm.builder import Builder
from rlx.render.llvm.types import float_literal, is_narrow, register_type, suffix


def cast(b: Builder, x: str, src: DType, dst: DType) -> str:
    """A real value as another real dtype; float to integer truncates, saturates, and sends NaN to 0."""
    if src == dst:
        return x
    if src.is_float and dst.is_float:
        return floating.convert(b, x, src, dst)
    if src.is_float:
        return _from_float(
            b, floating.widen(b, src, x) if is_narrow(src) else x, float32 if is_narrow(src) else src, dst
        )
    if dst.is_float:
        return _to_float(b, x, src, dst)
    return _resize(b, x, src, dst)


def _from_float(b: Builder, x: str, src: DType, dst: DType) -> str:
    s, t = register_type(src), register_type(dst)
    if dst.kind == "b":
        return b.op(f"fcmp une {s} {x}, {float_literal(0.0, s)}")
    name = f"llvm.fpto{'s' if dst.kind == 'i' else 'u'}i.sat.{t}.{suffix(s)}"
    b.helpers.declare(name, t, (s,), "nounwind willreturn memory(none)")
    return b.call(name, t, (s, x))


def _to_float(b: Builder, x: str, src: DType, dst: DType) -> str:
    """Through float32 for the 16-bit formats: exact below 2**24, and far past the range of float16 above."""
    wide = float32 if is_narrow(dst) else dst
    how = "sitofp" if src.kind == "i" else "uitofp"
    y = b.op(f"{how} {register_type(src)} {x} to {register_type(wide)}")
    return floating.narrow(b, dst, y) if is_narrow(dst) else y


def _resize(b: Builder, x: str, src: DType, dst: DType) -> str:
    s, t = register_type(src), register_type(dst)
    if dst.kind == "b":
        return b.op(f"icmp ne {s} {x}, 0")
    if src.kind == "b":
        return b.op(f"zext i1 {x} to {t}")
    if src.bits == dst.bits:
        return x
    if src.bits > dst.bits:
        return b.op(f"trunc {s} {x} to {t}")
    return b.op(f"{'sext' if src.kind == 'i' else 'zext'} {s} {x} to {t}")


def bitcast(b: Builder, x: str, src: DType, dst: DType) -> str:
    """The same bits as another dtype of the same width; a bool is the byte 0 or 1."""
    s, t = register_type(src), register_type(dst)
    if src.kind == "b" and dst.kind != "b":
        return b.op(f"zext i1 {x} to {t}")
    if dst.kind == "b" and src.kind != "b":
        return b.op(f"icmp ne {s} {x}, 0")
    return x if s == t else b.op(f"bitcast {s} {x} to {t}")


def nextafter(b: Builder, d: DType, x: str, y: str) -> str:
    """The neighbour of x towards y: floats of one sign are ordered as their bits are."""
    t, i = register_type(d), f"i{d.bits}"
    fx, fy, f = x, y, t
    if is_narrow(d):
        fx, fy, f = floating.widen(b, d, x), floating.widen(b, d, y), "float"
    xb = x if t == i else b.op(f"bitcast {t} {x} to {i}")
    yb = y if t == i else b.op(f"bitcast {t} {y} to {i}")
    away = b.op(f"xor i1 {b.op(f'fcmp olt {f} {fx}, {fy}')}, {b.op(f'icmp slt {i} {xb}, 0')}")
    moved = b.op(f"add {i} {xb}, {b.op(f'select i1 {away}, {i} 1, {i} -1')}")
    least = b.op(f"or {i} {b.op(f'and {i} {yb}, {-(1 << (d.bits - 1))}')}, 1")
    null = b.op(f"fcmp oeq {f} {fx}, {float_literal(0.0, f)}")
    bits = b.op(f"select i1 {null}, {i} {least}, {i} {moved}")
    bits = b.op(f"select i1 {b.op(f'fcmp oeq {f} {fx}, {fy}')}, {i} {yb}, {i} {bits}")
    bits = b.op(f"select i1 {b.op(f'fcmp uno {f} {fy}, {fy}')}, {i} {yb}, {i} {bits}")
    bits = b.op(f"select i1 {b.op(f'fcmp uno {f} {fx}, {fx}')}, {i} {xb}, {i} {bits}")
    return bits if t == i else b.op(f"bitcast {i} {bits} to {t}")
