"""Programs and kernels (LIR) from text."""

from __future__ import annotations

from typing import Any

from rlx.core.dtype import DType, bool_, float64, int64
from rlx.ir import loop as L
from rlx.ir.prim import POINTWISE
from rlx.ir.text.lex import SHORT, Scanner, Token
from rlx.ir.text.loop_print import COMPARE, INFIX, Names, result_dtype
from rlx.ir.text.types import TypeReader

_SIGNS = {sign: (op, binding) for op, (sign, binding) in INFIX.items()}
ROLES = ("input", "output", "const", "temp")
STATEMENTS = ("for", "let", "var", "set", "combine", "array", "contract", "transpose", "store", "atomic", "if", "while",
              "exchange", "barrier")


def parse_kernel(text: str) -> L.Kernel:
    """The kernel of a text. Raises FormatError with line and column."""
    scan = Scanner(text)
    kernel = _kernel(scan)
    scan.done()
    return kernel


def parse_program(text: str) -> L.Program:
    """The program of a text: its kernels, then its buffers and steps. Raises FormatError with line and column."""
    scan = Scanner(text)
    kernels: dict[str, L.Kernel] = {}
    while scan.peek.text == "kernel":
        k = _kernel(scan)
        kernels[k.name] = k
    program = _Program(scan, kernels).read()
    scan.done()
    return program


# Kernels

def _kernel(scan: Scanner) -> L.Kernel:
    scan.expect("kernel")
    name = scan.word()
    scan.expect("(")
    params = []
    while not scan.accept(")"):
        params.append(L.Param(*_array(scan), scan.choice(("r", "w", "rw"))))
        if not scan.accept(","):
            scan.expect(")")
            break
    scan.expect("{")
    notes = scan.comment()
    return L.Kernel(name, tuple(params), _Body(scan, {}, {p.name: p.dtype for p in params}).block(), notes)


def _array(scan: Scanner) -> tuple[str, DType, int]:
    """``name: f64[100]``."""
    name = scan.word()
    scan.expect(":")
    dtype = scan.dtype()
    scan.expect("[")
    size = scan.integer()
    scan.expect("]")
    return name, dtype, size


class _Body:
    """Reads the statements of one scope."""

    def __init__(self, scan: Scanner, variables: Names, buffers: Names) -> None:
        self.scan, self.variables, self.buffers = scan, variables, buffers

    def block(self) -> tuple[L.Stmt, ...]:
        """Statements up to the closing brace; the opening one is taken."""
        inner = _Body(self.scan, dict(self.variables), dict(self.buffers))
        out: list[L.Stmt] = []
        while not self.scan.accept("}"):
            out.append(inner._stmt())
        return tuple(out)

    def _braced(self) -> tuple[L.Stmt, ...]:
        self.scan.expect("{")
        return self.block()

    def _stmt(self) -> L.Stmt:
        what = self.scan.choice(STATEMENTS)
        if what == "barrier":
            return L.Barrier()
        if what == "for":
            return self._for()
        if what in ("let", "var"):
            return self._define(what)
        if what == "exchange":
            return self._exchange()
        if what in ("set", "combine"):
            name = self.scan.word()
            self.scan.expect("=")
            return L.Assign(name, self.expr(), what == "combine")
        if what == "array":
            name, dtype, size = _array(self.scan)
            self.buffers[name] = dtype
            return L.Array(name, dtype, size, self.scan.word("shared or local"))
        if what in ("store", "atomic"):
            return self._store(what)
        if what == "contract":
            return self._contract()
        if what == "transpose":
            return self._transpose()
        cond = self.expr()
        body = self._braced()
        if what == "while":
            return L.Loop(cond, body)
        return L.If(cond, body, self._braced() if self.scan.accept("else") else ())

    def _for(self) -> L.For:
        scan = self.scan
        name = scan.word()
        for word in ("in", "range", "("):
            scan.expect(word)
        start = self.expr()
        scan.expect(",")
        stop = self.expr()
        step = scan.integer() if scan.accept(",") else 1
        scan.expect(")")
        kind = scan.word("the kind of the loop")
        inner = _Body(scan, self.variables | {name: start.dtype}, self.buffers)
        return L.For(name, start, stop, step, kind, inner._braced())

    def _define(self, what: str) -> L.Stmt:
        name = self.scan.word()
        self.scan.expect("=")
        e = self.expr()
        self.variables[name] = e.dtype
        return L.Let(name, e) if what == "let" else L.Register(name, e)

    def _exchange(self) -> L.Stmt:
        name = self.scan.word()
        self.scan.expect("=")
        e = self.expr()
        self.scan.expect("from")
        self.variables[name] = e.dtype
        return L.Exchange(name, e, self.scan.integer())

    def _contract(self) -> L.Stmt:
        scan = self.scan
        t = scan.peek
        acc = scan.word()
        dtype = self._buffer(t)
        m = scan.integer()
        scan.expect("by")
        n = scan.integer()
        scan.expect("=")
        a, a_index = self._element()
        scan.expect("stride")
        strides = (scan.integer(), scan.integer())
        scan.expect("times")
        b, b_index = self._element()
        scan.expect("depth")
        return L.Contract(acc, a, a_index, strides, b, b_index, m, n, scan.integer(), dtype)

    def _transpose(self) -> L.Stmt:
        scan = self.scan
        dtype = self._buffer(scan.peek)
        dst, dst_index = self._element()
        scan.expect("stride")
        dst_stride = scan.integer()
        scan.expect("=")
        src, src_index = self._element()
        scan.expect("stride")
        src_stride, m = scan.integer(), scan.integer()
        scan.expect("by")
        return L.Transpose(dst, dst_index, dst_stride, src, src_index, src_stride, m, scan.integer(), dtype)

    def _element(self) -> tuple[str, L.Expr]:
        name = self.scan.word()
        self.scan.expect("[")
        index = self.expr()
        self.scan.expect("]")
        return name, index

    def _store(self, what: str) -> L.Stmt:
        kind = self.scan.word("add, min or max") if what == "atomic" else ""
        buffer = self.scan.word()
        self.scan.expect("[")
        index = self.expr()
        self.scan.expect("]")
        self.scan.expect("=")
        e = self.expr()
        return L.Atomic(kind, buffer, index, e) if kind else L.Store(buffer, index, e)

    # Expressions

    def expr(self, binding: int = 0) -> L.Expr:
        """An expression of infix signs that bind at least so tightly. One frame a level: nesting can be deep."""
        scan = self.scan
        t = scan.peek
        if scan.accept("("):
            left = self.expr()
            scan.expect(")")
        elif t.kind == "word" and t.text not in SHORT and t.text not in ("true", "false"):
            scan.next()
            target = self._target(t)
            if scan.accept("("):
                args: list[L.Expr] = []
                while not scan.accept(")"):
                    args.append(self.expr())
                    if not scan.accept(","):
                        scan.expect(")")
                        break
                left = self._call(t, tuple(args), target)
            elif scan.accept("["):
                index = self.expr()
                scan.expect("]")
                left = L.load(t.text, index, self._buffer(t))
            else:
                left = L.var(t.text, self._variable(t))
        else:
            left = self._constant()
        while True:
            sign = _SIGNS.get(scan.peek.text)
            if sign is None or sign[1] < binding or scan.peek.kind != "sign":
                return left
            sign_token = scan.next()
            right = self.expr(sign[1] + 1)
            left = self._infix(sign_token, sign[0], left, right)
            if sign[1] == COMPARE and _SIGNS.get(scan.peek.text, ("", 0))[1] == COMPARE:
                scan.fail("parentheses around one of two comparisons")

    def _infix(self, t: Token, op: str, left: L.Expr, right: L.Expr) -> L.Expr:
        dtype = result_dtype(op, (left, right))
        assert dtype is not None
        return L.expr(op, (left, right), dtype)

    def _target(self, t: Token) -> DType | None:
        """``<f32>`` of a cast, a bitcast or an expression whose dtype is not what its parts say."""
        if t.text not in ("cast", "bitcast", "typed") or not self.scan.accept("<"):
            return None
        dtype = self.scan.dtype()
        self.scan.expect(">")
        return dtype

    def _call(self, t: Token, args: tuple[L.Expr, ...], target: DType | None) -> L.Expr:
        if t.text == "typed" and len(args) == 1 and target is not None:
            e = args[0]
            return L.expr(e.op, e.args, target, e.value)
        row = POINTWISE.get(t.text)
        if row is None:
            self.scan.fail("an elementwise primitive", t)
        if len(args) != row.arity:
            self.scan.fail(f"{row.arity} arguments of {t.text}", t)
        dtype = target if row.result == "attr" else result_dtype(t.text, args)
        if dtype is None:
            self.scan.fail(f"{t.text}<dtype>(...)", t)
        return L.expr(t.text, args, dtype)

    def _variable(self, t: Token) -> DType:
        if t.text not in self.variables:
            self.scan.fail("a variable defined above", t)
        return self.variables[t.text]

    def _buffer(self, t: Token) -> DType:
        if t.text not in self.buffers:
            self.scan.fail("a buffer of the kernel", t)
        return self.buffers[t.text]

    def _constant(self) -> L.Expr:
        scan = self.scan
        if scan.peek.text in SHORT and scan.peek.kind == "word":
            dtype = scan.dtype()
            scan.expect("(")
            value = self._number(dtype)
            scan.expect(")")
            return L.expr("const", (), dtype, value)
        if scan.accept("true"):
            return L.const(True, bool_)
        if scan.accept("false"):
            return L.const(False, bool_)
        if not scan.at_number:
            scan.fail("an expression")
        x = scan.real()
        return L.expr("const", (), float64 if isinstance(x, float) else int64, x)

    def _number(self, dtype: DType) -> Any:
        scan = self.scan
        if scan.peek.text in ("true", "false"):
            return scan.next().text == "true"
        x = scan.real()
        if dtype.kind == "c" and scan.accept(","):
            return complex(x, scan.real())
        return x


# Programs

class _Program:
    def __init__(self, scan: Scanner, kernels: dict[str, L.Kernel]) -> None:
        self.scan, self.kernels = scan, kernels

    def read(self) -> L.Program:
        scan = self.scan
        scan.expect("program")
        name = scan.word()
        arena = scan.integer() if scan.accept("arena") else 0
        scan.expect("{")
        buffers = []
        while scan.accept("buffer"):
            parts = _array(scan)
            role = scan.choice(ROLES)
            slot = scan.integer() if scan.accept("slot") else 0
            buffers.append(L.Buffer(*parts, role, slot, scan.integer() if scan.accept("offset") else 0))
        return L.Program(name, tuple(buffers), self.steps(), arena)

    def steps(self) -> tuple[L.Step, ...]:
        """Steps up to the closing brace; the opening one is taken."""
        out: list[L.Step] = []
        while not self.scan.accept("}"):
            out.append(self._step())
        return tuple(out)

    def _braced(self) -> tuple[L.Step, ...]:
        self.scan.expect("{")
        return self.steps()

    def _step(self) -> L.Step:
        scan = self.scan
        what = scan.choice(("launch", "native", "copy", "while", "if", "repeat"))
        if what == "launch":
            t = scan.peek
            name = scan.word("the name of a kernel")
            if name not in self.kernels:
                scan.fail("a kernel defined above", t)
            return L.Launch(self.kernels[name], self._names())
        if what == "copy":
            dst = scan.word()
            scan.expect("=")
            return L.Copy(dst, scan.word())
        if what == "native":
            return self._native()
        if what == "while":
            head = self._braced()
            scan.expect("holds")
            return L.While(head, scan.word(), self._braced())
        if what == "if":
            pred = scan.word()
            then = self._braced()
            return L.Branch(pred, then, self._braced() if scan.accept("else") else ())
        count = scan.word() if scan.peek.kind == "word" else scan.integer()
        scan.expect("counter")
        return L.Repeat(count, scan.word(), self._braced())

    def _names(self) -> tuple[str, ...]:
        self.scan.expect("(")
        out = []
        while not self.scan.accept(")"):
            out.append(self.scan.word("the name of a buffer"))
            if not self.scan.accept(","):
                self.scan.expect(")")
                break
        return tuple(out)

    def _native(self) -> L.Native:
        scan = self.scan
        claim = scan.string()
        inputs = self._typed()
        scan.expect("to")
        outputs = self._typed()
        scratch = self._names() if scan.accept("scratch") else ()
        attrs = TypeReader(scan, {}).attributes()
        both = (*inputs, *outputs)
        return L.Native(claim, tuple(n for n, _ in both), tuple(t for _, t in both), len(inputs), attrs, scratch)

    def _typed(self) -> list[tuple[str, tuple[DType, tuple[int, ...]]]]:
        """``(a: f64[3, 4], b: f64[4])``."""
        scan = self.scan
        scan.expect("(")
        out: list[tuple[str, tuple[DType, tuple[int, ...]]]] = []
        while not scan.accept(")"):
            name = scan.word("the name of a buffer")
            scan.expect(":")
            dtype = scan.dtype()
            shape = TypeReader(scan, {}).shape()
            out.append((name, (dtype, shape)))  # type: ignore[arg-type]
            if not scan.accept(","):
                scan.expect(")")
                break
        return out
