"""Expressions of a portable kernel as SPIR-V instructions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rlx.core.dtype import DType, bool_, int32, uint32, uint64
from rlx.core.errors import CompileError
from rlx.ir.loop import Expr
from rlx.ir.walk import bottom_up
from rlx.render.spirv.module import Module, instruction

#: op -> opcode for (float, signed, unsigned, bool); 0 where there is none.
_BINARY: dict[str, tuple[int, int, int, int]] = {
    "add": (129, 128, 128, 0), "sub": (131, 130, 130, 0), "mul": (133, 132, 132, 0), "div": (136, 0, 0, 0),
    "quotient": (0, 135, 134, 0), "modulus": (0, 138, 137, 0),
    "and": (0, 199, 199, 167), "or": (0, 197, 197, 166), "xor": (0, 198, 198, 165),
    "shl": (0, 196, 196, 0), "shr": (0, 195, 194, 0),
    "eq": (180, 170, 170, 164), "ne": (183, 171, 171, 165), "lt": (184, 177, 176, 0), "le": (188, 179, 178, 0),
    "gt": (186, 173, 172, 0), "ge": (190, 175, 174, 0),
}
#: GLSL.std.450 numbers for (float, signed, unsigned).
_EXTENDED = {"abs": (4, 5, 0), "floor": (8, 0, 0), "ceil": (9, 0, 0), "trunc": (3, 0, 0), "round": (2, 0, 0),
             "sqrt": (31, 0, 0), "fma": (50, 0, 0), "min": (0, 39, 38), "max": (0, 42, 41)}
_NO_CONTRACTION = 42


@dataclass(frozen=True, slots=True)
class Place:
    """Memory by name: a pointer to one register, an array, or a buffer block."""

    pointer: int
    dtype: DType
    storage: int
    kind: str


class Emitter:
    """Emits one function's expressions into ``body``."""

    def __init__(self, m: Module, glsl: int, functions: Mapping[str, int], group: int) -> None:
        self.m, self.glsl, self.functions, self.group = m, glsl, functions, group
        self.body: list[int] = []
        self.values: dict[str, int] = {}
        self.places: dict[str, Place] = {}

    def put(self, op: int, d: DType, *operands: int) -> int:
        """An instruction with a result."""
        return self.put_typed(op, self.m.type(d), *operands)

    def put_typed(self, op: int, result: int, *operands: int) -> int:
        out = self.m.id()
        self.body += instruction(op, result, out, *operands)
        return out

    def do(self, op: int, *operands: int) -> None:
        """An instruction without a result."""
        self.body += instruction(op, *operands)

    def value(self, e: Expr) -> int:
        """The id of the expression's value; what it shares is computed once."""
        memo: dict[Expr, int] = {}
        for x in bottom_up((e,), memo, key=lambda x: x):
            memo[x] = self._one(x, [memo[a] for a in x.args])
        return memo[e]

    def address(self, name: str, index: int) -> int:
        """A pointer to an element."""
        place = self.places[name]
        pointer = self.m.pointer(place.storage, self.m.type(place.dtype))
        inner = (self.m.constant(0, uint32), index) if place.kind == "buffer" else (index,)
        return self.put_typed(65, pointer, place.pointer, *inner)

    def _one(self, e: Expr, args: list[int]) -> int:
        op, d = e.op, e.dtype
        if op == "const":
            return self.m.constant(e.value, d)
        if op == "var":
            if e.value in self.values:
                return self.values[e.value]
            return self.put(61, d, self.places[e.value].pointer)
        if op == "load":
            place = self.places[e.value]
            found = self.put(61, place.dtype, self.address(e.value, args[0]))
            return found if place.dtype == d else self.put(124, d, found)
        if op == "call":
            return self.put(57, d, self.functions[e.value], *args)
        if op == "select":
            return self.put(169, d, *args)
        source = e.args[0].dtype
        if op == "cast":
            return self.cast(args[0], source, d)
        if op == "bitcast":
            return args[0] if source == d else self.put(124, d, args[0])
        if op == "neg":
            return self.float_op(127, d, args)
        if op == "not":
            return self.put(168 if d.kind == "b" else 200, d, *args)
        if op == "isnan":
            return self.is_nan(args[0], source)
        if op == "popcount":
            return self.put(205, d, *args)
        if op == "clz":
            top = self.put(12, int32, self.glsl, 75, args[0])
            return self.put(124, d, self.put(130, int32, self.m.constant(31, int32), top))
        return self._table(op, d, source, args, e.args)

    def _hidden(self, x: int, d: DType) -> int:
        """The same number, unknown to the driver: some make x * 0 zero for infinities and NaN, whatever they are told.

        The third coordinate of the workgroup is always 0.
        """
        u = uint32 if d.bits == 32 else uint64
        zero = self.coordinate(2)
        bits = self.put(198, u, self.put(124, u, x), zero if d.bits == 32 else self.put(113, uint64, zero))
        return self.put(124, d, bits)

    def coordinate(self, k: int) -> int:
        """Coordinate ``k`` of this workgroup."""
        u = self.m.type(uint32)
        return self.put_typed(81, u, self.put_typed(61, self.m.vector(u, 3), self.group), k)

    def _table(self, op: str, d: DType, source: DType, args: list[int], operands: tuple[Expr, ...]) -> int:
        kind = {"f": 0, "i": 1, "u": 2, "b": 3}[source.kind]
        if op == "mul" and kind == 0:
            args = [self._hidden(a, x.dtype) if x.op == "const" and x.value == 0 else a
                    for a, x in zip(args, operands, strict=True)]
        if op in _BINARY and _BINARY[op][kind]:
            code = _BINARY[op][kind]
            return self.float_op(code, d, args) if kind == 0 and d.is_float else self.put(code, d, *args)
        if op in _EXTENDED and kind < 3 and _EXTENDED[op][kind]:
            return self.put(12, d, self.glsl, _EXTENDED[op][kind], *args)
        raise CompileError(f"primitive {op!r} on {source.name} has no SPIR-V", why="the language has no such operation",
                           do="report this kernel: the portable rewrite should have replaced it")

    def float_op(self, code: int, d: DType, args: list[int]) -> int:
        out = self.put(code, d, *args)
        if d.is_float:
            self.m.decorate(out, _NO_CONTRACTION)
        return out

    def is_nan(self, x: int, d: DType) -> int:
        """By bits: drivers may assume that there is no NaN."""
        u, mant = (uint32, 23) if d.bits == 32 else (uint64, 52)
        magnitude = self.put(199, u, self.put(124, u, x), self.m.constant((1 << d.bits - 1) - 1, u))
        infinity = ((1 << d.bits - 1 - mant) - 1) << mant
        return self.put(172, bool_, magnitude, self.m.constant(infinity, u))

    def cast(self, x: int, src: DType, dst: DType) -> int:
        """A conversion whose result is representable, or wraps between integers."""
        if src == dst:
            return x
        if src.kind == "b":
            return self.put(169, dst, x, self.m.constant(1, dst), self.m.constant(0, dst))
        if src.is_float:
            return self.put(115 if dst.is_float else 110 if dst.kind == "i" else 109, dst, x)
        if dst.is_float:
            return self.put(111 if src.kind == "i" else 112, dst, x)
        if src.bits == dst.bits:
            return self.put(124, dst, x)
        if src.kind == "i":
            return self.put(114, dst, x)
        unsigned = uint64 if dst.bits == 64 else uint32
        y = self.put(113, unsigned, x)
        return y if dst.kind == "u" else self.put(124, dst, y)


__all__ = ["Emitter", "Place"]
