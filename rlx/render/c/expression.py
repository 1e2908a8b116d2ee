"""Expressions as C text. What is used twice gets a name; an arm of ``select`` (or the right side of a bool
``and``/``or``) that loads from an index not provably inside its buffer becomes the branch of an ``if``, so that
it is evaluated only where needed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rlx.core.dtype import DType, int32
from rlx.core.errors import CompileError
from rlx.ir.expand import Function
from rlx.ir.loop import Expr
from rlx.ir.walk import bottom_up
from rlx.render.bounds import Interval, find_risky, interval, is_lazy
from rlx.render.c import convert, integer
from rlx.render.c.complexes import Value, emit_complex
from rlx.render.c.dialect import register
from rlx.render.c.primitives import emit
from rlx.render.c.unit import Unit

#: Length of an expression's text from which it gets a name of its own.
LONG_TEXT = 160


class Writer:
    """Indented lines, and a counter for names."""

    def __init__(self, depth: int = 0) -> None:
        self.lines: list[str] = []
        self.depth = depth
        self._count = 0

    def line(self, text: str) -> None:
        self.lines.append("  " * self.depth + text)

    def name(self) -> str:
        self._count += 1
        return f"x_{self._count}"

    def open(self, head: str) -> None:
        self.line(head + " {")
        self.depth += 1

    def close(self, tail: str = "}") -> None:
        self.depth -= 1
        self.line(tail)


@dataclass(frozen=True, slots=True)
class Memory:
    """A buffer or array: its dtype and size, and whether its elements are stored forms (buffers) or registers
    (arrays).
    """

    dtype: DType
    size: int
    stored: bool


@dataclass(slots=True)
class Scope:
    """What names mean here: values, ranges of integers, memory, and what is known of expressions by identity."""

    names: dict[str, Value] = field(default_factory=dict)
    ranges: dict[str, Interval] = field(default_factory=dict)
    memory: dict[str, Memory] = field(default_factory=dict)
    facts: dict[int, Interval] = field(default_factory=dict)

    def copy(self) -> Scope:
        """A scope to extend without changing this one."""
        return Scope(dict(self.names), dict(self.ranges), dict(self.memory), dict(self.facts))


class Evaluator:
    """Prints expressions into a writer. ``exact``: names are declared so that nothing is contracted."""

    def __init__(self, u: Unit, w: Writer, scope: Scope, *, exact: bool = False) -> None:
        self.u, self.w, self.scope, self.exact = u, w, scope, exact
        self.known: dict[int, Interval] = dict(scope.facts)
        self._alive: list[Expr] = []
        self._risky: set[int] = set()

    def value(self, e: Expr) -> str:
        """The text of a real expression."""
        x = self.values((e,))[0]
        assert isinstance(x, str), "a complex value where a real one belongs"
        return x

    def values(self, roots: tuple[Expr, ...]) -> list[Value]:
        """The texts of several expressions; what they share is named once."""
        self._alive.extend(roots)
        self._risky |= find_risky(roots, self.range, lambda name: self.memory(name).size)
        memo: dict[int, Value] = {}
        uses = self._count_uses(roots, memo)
        return [self._visit(r, memo, uses) for r in roots]

    def range(self, e: Expr) -> Interval:
        """The values that an integer expression can take here."""
        self._alive.append(e)
        return interval(e, self.scope.ranges, self.known)

    # Order

    def _visit(self, root: Expr, memo: dict[int, Value], uses: dict[int, int]) -> Value:
        for e in bottom_up((root,), memo, self._needed):
            memo[id(e)] = self._named(e, self._emit(e, memo), uses.get(id(e), 1))
        return memo[id(root)]

    def _count_uses(self, roots: tuple[Expr, ...], memo: dict[int, Value]) -> dict[int, int]:
        uses: dict[int, int] = {}
        stack = list(roots)
        for r in roots:
            uses[id(r)] = uses.get(id(r), 0) + 1
        seen: set[int] = set()
        while stack:
            e = stack.pop()
            if id(e) in seen or id(e) in memo:
                continue
            seen.add(id(e))
            for a in self._needed(e):
                uses[id(a)] = uses.get(id(a), 0) + 1
                stack.append(a)
        return uses

    def _named(self, e: Expr, x: Value, uses: int) -> Value:
        if isinstance(x, tuple):
            return x if e.op in ("const", "var") else (self._part(x[0], e.dtype), self._part(x[1], e.dtype))
        if e.op in ("const", "var") or (uses < 2 and len(x) < LONG_TEXT):
            return x
        return self._part(x, e.dtype)

    def _part(self, x: str, d: DType) -> str:
        if x.replace("_", "").isalnum():
            return x
        name = self.w.name()
        qualifier = (
            self.u.d.exact if self.exact and d.is_inexact and self.u.d.exact else "" if self.u.d.exact else "const "
        )
        self.w.line(f"{qualifier}{self.u.d.type(register(d))} {name} = {x};")
        return name

    def _is_lazy(self, e: Expr) -> bool:
        return is_lazy(e, self._risky)

    def _needed(self, e: Expr) -> tuple[Expr, ...]:
        return e.args[:1] if self._is_lazy(e) else e.args

    # Text

    def _emit(self, e: Expr, memo: dict[int, Value]) -> Value:
        if e.op == "const":
            return self._const(e)
        if e.op == "var":
            return self._read(e)
        if self._is_lazy(e):
            return self._branch(e, memo)
        args = [memo[id(a)] for a in e.args]
        if e.op == "load":
            assert isinstance(args[0], str)
            return self.load(e.value, args[0])
        d = e.args[-1].dtype
        if d.is_complex or e.dtype.is_complex:
            return emit_complex(self.u, e.op, d, e.dtype, [self._atoms(a, d) for a in args], self._inline)
        reals = [a for a in args if isinstance(a, str)]
        if e.op in ("floordiv", "rem") and self._is_natural(e):
            return integer.natural(self.u, e.op, reals[0], reals[1])
        return emit(self.u, e.op, d, e.dtype, reals, plain=self._stays(e))

    def _atoms(self, x: Value, d: DType) -> Value:
        return (self._part(x[0], d), self._part(x[1], d)) if isinstance(x, tuple) else x

    def _inline(self, names: dict[str, str], results: tuple[Expr, ...]) -> list[str]:
        inner = Evaluator(self.u, self.w, Scope(dict(names)), exact=self.exact)
        return [x for x in inner.values(results) if isinstance(x, str)]

    def _const(self, e: Expr) -> Value:
        r = register(e.dtype)
        if e.dtype.is_complex:
            return self.u.d.number(e.value.real, r), self.u.d.number(e.value.imag, r)
        if e.dtype.short in ("f16", "bf16"):
            return self.u.d.number(_narrow(float(e.value), e.dtype), r)
        if e.dtype.is_integer and e.dtype.bits < 32:
            n = int(e.value) & ((1 << e.dtype.bits) - 1)
            return self.u.d.number(
                n - (1 << e.dtype.bits) if e.dtype.kind == "i" and n >> (e.dtype.bits - 1) else n, r
            )
        return self.u.d.number(e.value, r)

    def _read(self, e: Expr) -> Value:
        found = self.scope.names.get(e.value)
        if found is None:
            raise CompileError(
                f"variable {e.value!r} is read but not defined here",
                why="a kernel's names are visible in their block and the blocks inside it",
                do="define it with let, var or a loop before this use",
            )
        return found

    def _is_natural(self, e: Expr) -> bool:
        x, y = e.args
        return y.op == "const" and y.dtype.is_integer and y.value > 0 and self.range(x)[0] >= 0

    def _stays(self, e: Expr) -> bool:
        """Whether 32- or 64-bit signed arithmetic cannot leave its range."""
        if e.op not in ("add", "sub", "mul") or e.dtype.kind != "i" or e.dtype.bits < 32:
            return False
        (a, b), (c, d) = (self.range(x) for x in e.args)
        ends = {
            "add": (a + c, b + d),
            "sub": (a - d, b - c),
            "mul": (min(a * c, a * d, b * c, b * d), max(a * c, a * d, b * c, b * d)),
        }[e.op]
        return ends[0] >= -(1 << (e.dtype.bits - 1)) and ends[1] < 1 << (e.dtype.bits - 1)

    def memory(self, name: str) -> Memory:
        """The buffer or array of that name."""
        found = self.scope.memory.get(name)
        if found is None:
            raise CompileError(
                f"buffer {name!r} is not known to the kernel",
                why="it is neither a parameter nor an array declared before",
                do="add it to the kernel's parameters",
            )
        return found

    def load(self, name: str, index: str) -> Value:
        """``name[index]`` in registers."""
        m = self.memory(name)
        if m.dtype.is_complex:
            at = self._part(index, _INDEX)
            return f"{name}[2 * {at}]", f"{name}[2 * {at} + 1]"
        x = f"{name}[{index}]"
        d = m.dtype
        if d.kind == "b":
            return f"({x} != 0)"
        if not m.stored:
            return x
        if d.short in ("f16", "bf16"):
            return convert.value16(self.u, d, self.u.d.cast("u32", x))
        return self.u.d.cast(register(d), x) if d.is_integer and d.bits < 32 else x

    def store(self, name: str, index: str, x: Value) -> None:
        """``name[index] = x``."""
        m = self.memory(name)
        if isinstance(x, tuple):
            at = self._part(index, _INDEX)
            re, im = (self._part(p, m.dtype) for p in x)
            self.w.line(f"{name}[2 * {at}] = {re};")
            self.w.line(f"{name}[2 * {at} + 1] = {im};")
            return
        if m.dtype.kind == "b":
            x = f"{x} ? 1 : 0"
            if self.u.d.functional_cast and m.stored:
                x = f"{self.u.d.stored(m.dtype)}({x})"
        elif m.stored and m.dtype.bits < 32:
            bits = convert.bits16(self.u, m.dtype, x) if m.dtype.is_float else x
            x = (
                f"{self.u.d.stored(m.dtype)}({bits})"
                if self.u.d.functional_cast
                else f"({self.u.d.stored(m.dtype)})({bits})"
            )
        self.w.line(f"{name}[{index}] = {x};")

    def _branch(self, e: Expr, memo: dict[int, Value]) -> Value:
        """``select``, ``and`` or ``or`` as an ``if``; the arms see what is known before it."""
        cond = memo[id(e.args[0])]
        assert isinstance(cond, str)
        t = self.u.d.type(register(e.dtype))
        names = [self.w.name() for _ in range(2 if e.dtype.is_complex else 1)]
        for n in names:
            self.w.line(f"{t} {n};")
        arms: tuple[Expr | str, ...] = e.args[1:]
        if e.op != "select":
            arms = (e.args[1], "false") if e.op == "and" else ("true", e.args[1])
        for head, arm in zip((f"if ({cond})", "else"), arms, strict=True):
            self.w.open(head)
            inner = dict(memo)
            x = arm if isinstance(arm, str) else self._visit(arm, inner, self._count_uses((arm,), inner))
            for n, p in zip(names, x if isinstance(x, tuple) else (x,), strict=True):
                self.w.line(f"{n} = {p};")
            self.w.close()
        return (names[0], names[1]) if len(names) == 2 else names[0]


_INDEX = int32


def _narrow(value: float, d: DType) -> float:
    """The nearest value of a 16-bit format."""
    import numpy as np

    with np.errstate(over="ignore"):
        if d.short == "f16":
            return float(np.float16(value))
        bits = int(np.float32(value).view(np.uint32))
        if (bits & 0x7FFFFFFF) > 0x7F800000:
            return float("nan")
        bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
        return float(np.uint32(bits).view(np.float32))


def function_text(u: Unit, f: Function) -> str:
    """A straight-line function as a helper's text; its rare case is a branch to a function of its own."""
    w, scope = Writer(1), Scope()
    scope.names.update((str(p.value), str(p.value)) for p in f.params)
    e = Evaluator(u, w, scope, exact=True)
    qualifier = u.d.exact or "const "
    for name, value in f.lets:
        t = u.d.type(register(value.dtype))
        w.line(f"{qualifier if value.dtype.is_inexact or not u.d.exact else ''}{t} {name} = {e.value(value)};")
        scope.names[name] = name
    if f.rare is not None:
        args = ", ".join(str(p.value) for p in f.params)
        w.line(f"if ({e.value(f.rare[0])}) {{ return {u.straight(f.rare[1])}({args}); }}")
    out = u.d.type(register(f.result.dtype))
    w.line(f"{qualifier}{out} result = {e.value(f.result)};")
    w.line("return result;")
    params = ", ".join(f"{u.d.type(register(p.dtype))} {p.value}" for p in f.params)
    return "\n".join([f"{u.d.function} {out} {f.name}({params}) {{".strip(), *w.lines, "}", ""])
