"""Programs and kernels (LIR) as text."""

from __future__ import annotations

from collections.abc import Iterable

from rlx.core.dtype import DType, bool_, float64, int64
from rlx.ir import loop as L
from rlx.ir.prim import POINTWISE
from rlx.ir.text.lex import commented, float_text
from rlx.ir.text.types import attributes_text

#: Primitives written between their arguments, with how tightly they bind (as in Python).
INFIX: dict[str, tuple[str, int]] = {
    "eq": ("==", 1), "ne": ("!=", 1), "lt": ("<", 1), "le": ("<=", 1), "gt": (">", 1), "ge": (">=", 1),
    "or": ("|", 2), "xor": ("^", 3), "and": ("&", 4), "shl": ("<<", 5), "shr": (">>", 5),
    "add": ("+", 6), "sub": ("-", 6), "mul": ("*", 7), "div": ("/", 7), "floordiv": ("//", 7), "rem": ("%", 7),
}
#: Binding of a comparison; it does not chain.
COMPARE = 1
#: Binding of what is never put in parentheses.
ATOM = 9
#: What a name stands for in a kernel: the dtype of a variable or of a buffer's elements.
Names = dict[str, DType]


def result_dtype(op: str, args: tuple[L.Expr, ...]) -> DType | None:
    """The dtype of a primitive by its table; None where the text must say it."""
    row = POINTWISE.get(op)
    if row is None or row.result == "attr" or len(args) != row.arity:
        return None
    first = args[1] if op == "select" else args[0]
    return {"same": first.dtype, "bool": bool_, "real": first.dtype.real, "complex": first.dtype.complex}[row.result]


def print_kernel(kernel: L.Kernel) -> str:
    """The kernel as text; :func:`rlx.ir.text.parse_kernel` reads it back."""
    params = ", ".join(f"{p.name}: {p.dtype.short}[{p.size}] {p.access}" for p in kernel.params)
    lines = [commented(f"kernel {kernel.name}({params}) {{", kernel.notes)]
    _Kernel({}, {p.name: p.dtype for p in kernel.params}).block(kernel.body, "  ", lines)
    return "\n".join((*lines, "}")) + "\n"


class _Kernel:
    """Prints statements, knowing the names in scope."""

    def __init__(self, variables: Names, buffers: Names) -> None:
        self.variables, self.buffers = variables, buffers

    def block(self, body: Iterable[L.Stmt], indent: str, lines: list[str]) -> None:
        """The statements of one scope."""
        inner = _Kernel(dict(self.variables), dict(self.buffers))
        for s in body:
            inner._stmt(s, indent, lines)

    def _stmt(self, s: L.Stmt, indent: str, lines: list[str]) -> None:
        deeper = indent + "  "
        match s:
            case L.For():
                step = f", {s.step}" if s.step != 1 else ""
                over = f"range({self.expr(s.start)}, {self.expr(s.stop)}{step})"
                lines.append(f"{indent}for {s.var} in {over} {s.kind} {{")
                _Kernel(self.variables | {s.var: s.start.dtype}, self.buffers).block(s.body, deeper, lines)
                lines.append(indent + "}")
            case L.Let():
                lines.append(f"{indent}let {s.name} = {self.expr(s.value)}")
                self.variables[s.name] = s.value.dtype
            case L.Register():
                lines.append(f"{indent}var {s.name} = {self.expr(s.init)}")
                self.variables[s.name] = s.init.dtype
            case L.Assign():
                lines.append(f"{indent}{'combine' if s.reassoc else 'set'} {s.name} = {self.expr(s.value)}")
            case L.Array():
                lines.append(f"{indent}array {s.name}: {s.dtype.short}[{s.size}] {s.space}")
                self.buffers[s.name] = s.dtype
            case L.Store():
                lines.append(f"{indent}store {s.buffer}[{self.expr(s.index)}] = {self.expr(s.value)}")
            case L.Atomic():
                lines.append(f"{indent}atomic {s.kind} {s.buffer}[{self.expr(s.index)}] = {self.expr(s.value)}")
            case L.If():
                lines.append(f"{indent}if {self.expr(s.cond)} {{")
                self.block(s.then, deeper, lines)
                if s.orelse:
                    lines.append(indent + "} else {")
                    self.block(s.orelse, deeper, lines)
                lines.append(indent + "}")
            case L.Loop():
                lines.append(f"{indent}while {self.expr(s.cond)} {{")
                self.block(s.body, deeper, lines)
                lines.append(indent + "}")
            case L.Contract():
                row, column = s.a_strides
                left = f"{s.a}[{self.expr(s.a_index)}] stride {row} {column}"
                lines.append(f"{indent}contract {s.acc} {s.m} by {s.n} = {left} "
                             f"times {s.b}[{self.expr(s.b_index)}] depth {s.depth}")
            case L.Transpose():
                target = f"{s.dst}[{self.expr(s.dst_index)}] stride {s.dst_stride}"
                lines.append(f"{indent}transpose {target} = {s.src}[{self.expr(s.src_index)}] stride {s.src_stride} "
                             f"{s.m} by {s.n}")
            case L.Exchange():
                lines.append(f"{indent}exchange {s.name} = {self.expr(s.value)} from {s.distance}")
                self.variables[s.name] = s.value.dtype
            case L.Barrier():
                lines.append(indent + "barrier")

    def expr(self, e: L.Expr) -> str:
        """An expression, from its leaves up: nesting can be deeper than Python's stack."""
        done: dict[int, tuple[str, int]] = {}
        stack = [e]
        while stack:
            x = stack[-1]
            missing = [a for a in x.args if id(a) not in done]
            if missing:
                stack += missing
                continue
            stack.pop()
            if id(x) not in done:
                done[id(x)] = self._one(x, [done[id(a)] for a in x.args])
        return done[id(e)][0]

    def _one(self, e: L.Expr, args: list[tuple[str, int]]) -> tuple[str, int]:
        """Text and binding of an expression from those of its arguments."""
        if e.op == "const":
            return constant_text(e), ATOM
        text, own, implied = self._bare(e, args)
        return (text, own) if implied == e.dtype else (f"typed<{e.dtype.short}>({text})", ATOM)

    def _bare(self, e: L.Expr, args: list[tuple[str, int]]) -> tuple[str, int, DType | None]:
        """Text, binding, and the dtype that a reader would give it."""
        if e.op == "var":
            return e.value, ATOM, self.variables.get(e.value)
        if e.op == "load":
            return f"{e.value}[{args[0][0]}]", ATOM, self.buffers.get(e.value)
        implied = result_dtype(e.op, e.args)
        if e.op in INFIX and len(args) == 2:
            sign, own = INFIX[e.op]
            left, right = _within(args[0], own + (own == COMPARE)), _within(args[1], own + 1)
            return f"{left} {sign} {right}", own, implied
        inner = ", ".join([text for text, _ in args])
        if e.op in ("cast", "bitcast"):
            return f"{e.op}<{e.dtype.short}>({inner})", ATOM, e.dtype
        return f"{e.op}({inner})", ATOM, implied


def _within(part: tuple[str, int], binding: int) -> str:
    """A part of an expression, in parentheses when it binds less tightly than its place needs."""
    text, own = part
    return f"({text})" if own < binding else text


def constant_text(e: L.Expr) -> str:
    """``3`` (i64), ``0.5`` (f64), ``true``, or the dtype around the number: ``f32(0.5)``, ``c64(1.0, -0.0)``."""
    x = e.value
    if isinstance(x, complex):
        return f"{e.dtype.short}({float_text(x.real)}, {float_text(x.imag)})"
    text = ("true" if x else "false") if isinstance(x, bool) else float_text(x) if isinstance(x, float) else str(x)
    natural = {bool: bool_, int: int64, float: float64}[type(x)]
    finite = text.lstrip("-") not in ("nan", "inf")
    return text if e.dtype == natural and finite else f"{e.dtype.short}({text})"


def print_program(program: L.Program) -> str:
    """Kernels, buffers and steps; :func:`rlx.ir.text.parse_program` reads them back. Data of constants is left out."""
    parts = [print_kernel(k) for k in program.kernels()]
    lines = [f"program {program.name} arena {program.arena} {{"]
    for b in program.buffers:
        slot = f" slot {b.slot}" if b.slot or b.role in ("input", "output") else ""
        offset = f" offset {b.offset}" if b.offset or b.role == "temp" else ""
        lines.append(f"  buffer {b.name}: {b.dtype.short}[{b.size}] {b.role}{slot}{offset}")
    _steps(program.steps, "  ", lines)
    return "\n".join((*parts, *lines, "}")) + "\n"


def step_text(s: L.Step) -> str:
    """The first line of a step."""
    lines: list[str] = []
    _steps((s,), "", lines)
    return lines[0]


def statement_text(s: L.Stmt) -> str:
    """The first line of a statement."""
    lines: list[str] = []
    _Kernel({}, {}).block((s,), "", lines)
    return lines[0]


def _steps(steps: Iterable[L.Step], indent: str, lines: list[str]) -> None:
    deeper = indent + "  "
    for s in steps:
        match s:
            case L.Launch():
                lines.append(f"{indent}launch {s.kernel.name}({', '.join(s.buffers)})")
            case L.Native():
                lines.append(indent + _native(s))
            case L.Copy():
                lines.append(f"{indent}copy {s.dst} = {s.src}")
            case L.While():
                lines.append(indent + "while {")
                _steps(s.head, deeper, lines)
                lines.append(f"{indent}}} holds {s.pred} {{")
                _steps(s.body, deeper, lines)
                lines.append(indent + "}")
            case L.Branch():
                lines.append(f"{indent}if {s.pred} {{")
                _steps(s.then, deeper, lines)
                if s.orelse:
                    lines.append(indent + "} else {")
                    _steps(s.orelse, deeper, lines)
                lines.append(indent + "}")
            case L.Repeat():
                lines.append(f"{indent}repeat {s.count} counter {s.counter} {{")
                _steps(s.body, deeper, lines)
                lines.append(indent + "}")


def _native(s: L.Native) -> str:
    types = [f"{d.short}[{', '.join(map(str, shape))}]" for d, shape in s.types]
    call = ", ".join(f"{b}: {t}" for b, t in zip(s.buffers[:s.inputs], types, strict=False))
    outs = ", ".join(f"{b}: {t}" for b, t in zip(s.buffers[s.inputs:], types[s.inputs:], strict=False))
    scratch = f" scratch ({', '.join(s.scratch)})" if s.scratch else ""
    return f"native \"{s.claim}\" ({call}) to ({outs}){scratch}{attributes_text(s.attrs)}"
