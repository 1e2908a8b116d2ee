"""Expressions to LLVM instructions, inside one function.

An arm of ``select``, and the right side of a bool ``and``/``or``, is evaluated only where it is needed
if it loads from an index that is not provably inside its buffer: ``select(i < n, x[i], 0)`` never reads
``x[n]``. The proof is interval arithmetic over the loop variables; a load it covers is read
unconditionally, which keeps inner loops free of branches.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rlx.core.dtype import DType, float32
from rlx.core.errors import CompileError
from rlx.ir import loop
from rlx.ir.walk import bottom_up
from rlx.render.bounds import Interval, find_risky, interval, is_lazy
from rlx.render.llvm import complexes, convert, floating, integer, transcendental
from rlx.render.llvm.builder import Builder
from rlx.render.llvm.types import Value, is_narrow, literal, memory_type, register_type


@dataclass(frozen=True, slots=True)
class Memory:
    """A buffer or local array: its pointer, and how many loops deep it was declared (0 for parameters)."""

    pointer: str
    dtype: DType
    size: int
    depth: int = 0


@dataclass(frozen=True, slots=True)
class Slot:
    """A mutable register: one stack slot, or two for a complex value."""

    dtype: DType
    pointers: tuple[str, ...]


@dataclass(slots=True)
class Scope:
    """What names mean here: values, registers, loop variable ranges, and memory."""

    names: dict[str, Value | Slot] = field(default_factory=dict)
    ranges: dict[str, Interval] = field(default_factory=dict)
    memory: dict[str, Memory] = field(default_factory=dict)
    groups: tuple[tuple[int, str], ...] = ()

    def copy(self) -> Scope:
        """A scope to extend without changing this one."""
        return Scope(dict(self.names), dict(self.ranges), dict(self.memory), self.groups)

    def access(self, memory: Memory) -> str:
        """The access-group tail of a load or store: the parallel loops that this memory outlives."""
        groups = [g for depth, g in self.groups if memory.depth <= depth]
        if not groups:
            return ""
        return f", !llvm.access.group {groups[0] if len(groups) == 1 else '!{' + ', '.join(groups) + '}'}"


_Memo = dict[int, Value]


class Evaluator:
    """Evaluates expressions into a builder. Shared sub-expressions (one object) are evaluated once a call."""

    __slots__ = ("b", "scope", "_risky", "_flags")

    def __init__(self, b: Builder, scope: Scope) -> None:
        self.b, self.scope = b, scope
        self._risky: set[int] = set()
        self._flags: tuple[int, str] = (0, "")

    def value(self, e: loop.Expr, *, reassoc: bool = False) -> Value:
        """The value of ``e``. ``reassoc`` lets its outermost operation be reordered."""
        return self.values((e,), reassoc=reassoc)[0]

    def real(self, e: loop.Expr) -> str:
        """The value of a real expression."""
        return _one(self.value(e))

    def values(self, roots: tuple[loop.Expr, ...], *, reassoc: bool = False) -> list[Value]:
        """The values of several expressions, sharing what they share."""
        known: dict[int, Interval] = {}
        self._risky = find_risky(roots, lambda e: interval(e, self.scope.ranges, known),
                                 lambda name: self._memory(name).size)
        self._flags = (id(roots[0]), "reassoc ") if reassoc else (0, "")
        memo: _Memo = {}
        return [self._visit(r, memo) for r in roots]

    def _visit(self, root: loop.Expr, memo: _Memo) -> Value:
        for e in bottom_up((root,), memo, self._needed):
            memo[id(e)] = self._emit(e, memo)
        return memo[id(root)]

    def _is_lazy(self, e: loop.Expr) -> bool:
        return is_lazy(e, self._risky)

    def _needed(self, e: loop.Expr) -> tuple[loop.Expr, ...]:
        return e.args[:1] if self._is_lazy(e) else e.args

    def _emit(self, e: loop.Expr, memo: _Memo) -> Value:
        if e.op == "const":
            return literal(e.value, e.dtype)
        if e.op == "var":
            return self._read(e)
        if self._is_lazy(e):
            return self._branch(e, memo)
        args = [memo[id(a)] for a in e.args]
        if e.op == "load":
            return self._load(e, self.index(e.args[0], _one(args[0])))
        flags = self._flags[1] if id(e) == self._flags[0] else ""
        return self._primitive(e, args, flags)

    def _primitive(self, e: loop.Expr, args: list[Value], flags: str) -> Value:
        d = e.args[-1].dtype
        if d.is_complex or e.dtype.is_complex:
            return complexes.emit(self.b, e.op, d, e.dtype, args, flags, emit_real)
        reals = [_one(a) for a in args]
        if e.op in ("floordiv", "rem") and self._is_natural(e):
            return integer.natural_division(self.b, d, e.op, reals[0], reals[1])
        return emit_real(self.b, e.op, d, e.dtype, reals, flags)

    def _is_natural(self, e: loop.Expr) -> bool:
        x, y = e.args
        return (
            y.op == "const"
            and y.dtype.is_integer
            and y.value > 0
            and interval(x, self.scope.ranges, {})[0] >= 0
        )

    def _read(self, e: loop.Expr) -> Value:
        found = self.scope.names.get(e.value)
        if found is None:
            raise CompileError(
                f"variable {e.value!r} is read but not defined here",
                why="a kernel's names are visible in their block and the blocks inside it",
                do="define it with let, var or a loop before this use",
            )
        if not isinstance(found, Slot):
            return found
        t = memory_type(found.dtype) if found.dtype.kind != "b" else "i1"
        parts = [self.b.op(f"load {t}, ptr {p}") for p in found.pointers]
        return (parts[0], parts[1]) if len(parts) == 2 else parts[0]

    def index(self, e: loop.Expr, x: str) -> str:
        """An index register as ``i64``."""
        if e.dtype.bits == 64 or integer.is_literal(x):
            return x
        return self.b.op(f"{'sext' if e.dtype.kind == 'i' else 'zext'} {register_type(e.dtype)} {x} to i64")

    def _memory(self, name: str) -> Memory:
        found = self.scope.memory.get(name)
        if found is None:
            raise CompileError(
                f"buffer {name!r} is not known to the kernel",
                why="it is neither a parameter nor an array declared before",
                do="add it to the kernel's parameters",
            )
        return found

    def address(self, name: str, index: str) -> tuple[Memory, str]:
        """The memory and the pointer of element ``index``; for complex elements, of the real part."""
        m = self._memory(name)
        t = memory_type(m.dtype)
        element = f"[2 x {t}]" if m.dtype.is_complex else t
        return m, self.b.op(f"getelementptr inbounds {element}, ptr {m.pointer}, i64 {index}", "a")

    def _load(self, e: loop.Expr, index: str) -> Value:
        m, p = self.address(e.value, index)
        t, tail = memory_type(m.dtype), self.scope.access(m)
        align = m.dtype.real.itemsize
        if m.dtype.is_complex:
            q = self.b.op(f"getelementptr inbounds {t}, ptr {p}, i64 1", "a")
            return (
                self.b.op(f"load {t}, ptr {p}, align {align}{tail}"),
                self.b.op(f"load {t}, ptr {q}, align {align}{tail}"),
            )
        x = self.b.op(f"load {t}, ptr {p}, align {align}{tail}")
        return self.b.op(f"icmp ne i8 {x}, 0") if m.dtype.kind == "b" else x

    def store(self, name: str, index: str, x: Value) -> None:
        """``name[index] = x``."""
        m, p = self.address(name, index)
        t, tail, align = memory_type(m.dtype), self.scope.access(m), m.dtype.real.itemsize
        if isinstance(x, tuple):
            q = self.b.op(f"getelementptr inbounds {t}, ptr {p}, i64 1", "a")
            self.b.do(f"store {t} {x[0]}, ptr {p}, align {align}{tail}")
            self.b.do(f"store {t} {x[1]}, ptr {q}, align {align}{tail}")
            return
        if m.dtype.kind == "b":
            x = self.b.op(f"zext i1 {x} to i8")
        self.b.do(f"store {t} {x}, ptr {p}, align {align}{tail}")

    def _branch(self, e: loop.Expr, memo: _Memo) -> Value:
        """``select``, ``and`` or ``or`` as control flow; the arms see what is known before them."""
        b, cond = self.b, _one(memo[id(e.args[0])])
        then, orelse, join = (f"{b.name(stem)}" for stem in ("then", "else", "join"))
        last = e.args[-1]
        arms: tuple[Value | loop.Expr, ...] = e.args[1:]
        if e.op != "select":
            arms = (last, "false") if e.op == "and" else ("true", last)
        b.branch(cond, then, orelse)
        results: list[tuple[Value, str]] = []
        for block, arm in zip((then, orelse), arms, strict=True):
            b.start(block)
            value = self._visit(arm, dict(memo)) if isinstance(arm, loop.Expr) else arm
            results.append((value, b.block))
            b.jump(join)
        b.start(join)
        (x, bx), (y, by) = results
        t = register_type(e.dtype)
        if isinstance(x, tuple) and isinstance(y, tuple):
            return (
                b.op(f"phi {t} [ {x[0]}, %{bx} ], [ {y[0]}, %{by} ]"),
                b.op(f"phi {t} [ {x[1]}, %{bx} ], [ {y[1]}, %{by} ]"),
            )
        return b.op(f"phi {t} [ {x}, %{bx} ], [ {y}, %{by} ]")


def _one(x: Value) -> str:
    assert isinstance(x, str), "a complex value where a real one belongs"
    return x


def emit_real(b: Builder, op: str, d: DType, result: DType, args: list[str], flags: str = "") -> str:
    """A primitive whose arguments (of dtype ``d``, but for select's condition) and result are real."""
    t = register_type(d)
    if op == "select":
        return b.op(f"select i1 {args[0]}, {t} {args[1]}, {t} {args[2]}")
    if op == "cast":
        return convert.cast(b, args[0], d, result)
    if op == "bitcast":
        return convert.bitcast(b, args[0], d, result)
    if op == "nextafter":
        return convert.nextafter(b, d, args[0], args[1])
    if op in ("real", "conj"):
        return args[0]
    if not d.is_float:
        return _rule(integer.RULES, op, d)(b, d, *args)
    if is_narrow(d):
        wide = emit_real(b, op, float32, float32, [floating.widen(b, d, a) for a in args], flags)
        return floating.narrow(b, d, wide) if result == d else wide
    if op in transcendental.NAMES:
        return transcendental.call(b, op, d, args, emit_real)
    return _rule(floating.RULES, op, d)(b, d, *args, flags=flags)


def _rule(rules: dict[str, floating.Rule], op: str, d: DType) -> floating.Rule:
    if op not in rules:
        raise CompileError(
            f"primitive {op!r} has no LLVM form for {d.name}",
            why=f"it is not defined on {d.name}",
            do="cast the arguments first",
        )
    return rules[op]
