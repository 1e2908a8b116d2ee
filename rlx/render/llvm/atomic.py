"""Atomic updates: ``atomicrmw`` where it has the primitive's meaning, a compare-and-swap loop otherwise."""

from __future__ import annotations

from rlx.core.dtype import DType, float32
from rlx.core.errors import CompileError
from rlx.render.llvm import floating
from rlx.render.llvm.builder import Builder
from rlx.render.llvm.types import Value, memory_type

#: atomicrmw operations by kind, for float, signed, unsigned and bool memory.
_OPERATION = {
    "f": {"add": "fadd", "min": "fminimum", "max": "fmaximum"},
    "i": {"add": "add", "min": "min", "max": "max"},
    "u": {"add": "add", "min": "umin", "max": "umax"},
    "b": {"min": "and", "max": "or"},
}


def emit_atomic(b: Builder, kind: str, d: DType, pointer: str, x: Value) -> None:
    """Combine ``x`` into ``*pointer`` atomically; parts of a complex sum are added one after the other.

    Relaxed order: a launch ends with a barrier of its own, and nothing reads the result before.
    """
    if isinstance(x, tuple):
        if kind != "add":
            raise CompileError(
                f"atomic {kind!r} of {d.name}",
                why="complex numbers have no order",
                do="use add, or reduce real numbers",
            )
        t = memory_type(d)
        other = b.op(f"getelementptr inbounds {t}, ptr {pointer}, i64 1", "a")
        for p, part in zip((pointer, other), x, strict=True):
            _update(b, "fadd", t, p, part, d.real.itemsize)
        return
    if d.name == "bfloat16":
        _swap_loop(b, kind, d, pointer, x)
        return
    operation = _OPERATION[d.kind].get(kind)
    if operation is None:
        raise CompileError(
            f"atomic {kind!r} of {d.name}",
            why="the kinds are add, min and max, and bool has no sum",
            do="use max for a logical or",
        )
    if d.kind == "b":
        x = b.op(f"zext i1 {x} to i8")
    _update(b, operation, memory_type(d), pointer, x, d.itemsize)


def _update(b: Builder, operation: str, t: str, pointer: str, x: str, align: int) -> None:
    b.op(f"atomicrmw {operation} ptr {pointer}, {t} {x} monotonic, align {align}")


def _swap_loop(b: Builder, kind: str, d: DType, pointer: str, x: str) -> None:
    """Read, combine in float32, and swap in if nobody came between."""
    head, end = b.name("swap"), b.name("end")
    first = b.op(f"load atomic i16, ptr {pointer} monotonic, align 2")
    before, wide, old, seen = b.block, floating.widen(b, d, x), f"%{b.name('old')}", f"%{b.name('seen')}"
    b.jump(head)
    b.start(head)
    b.do(f"{old} = phi i16 [ {first}, %{before} ], [ {seen}, %{head} ]")
    new = floating.narrow(b, d, floating.RULES[kind](b, float32, floating.widen(b, d, old), wide))
    pair = b.op(f"cmpxchg ptr {pointer}, i16 {old}, i16 {new} monotonic monotonic, align 2")
    b.do(f"{seen} = extractvalue {{ i16, i1 }} {pair}, 0")
    b.branch(b.op(f"extractvalue {{ i16, i1 }} {pair}, 1"), end, head)
    b.start(end)
