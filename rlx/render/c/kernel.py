"""Statements and kernels as C text: grid and block loops become the launch, the rest prints as it stands."""

from __future__ import annotations

from collections.abc import Sequence

from rlx.core.errors import CompileError
from rlx.ir import loop as L
from rlx.render.bounds import Interval
from rlx.render.c.complexes import Value
from rlx.render.c.dialect import Shape, Slot, register
from rlx.render.c.expression import Evaluator, Memory, Scope, Writer, function_text
from rlx.render.c.floating import RULES as FLOAT_RULES
from rlx.render.c.tables import DIALECTS
from rlx.render.c.unit import Unit


def render(
    kernels: Sequence[L.Kernel], dialect: str, *, fast: bool = False, guarded: frozenset[str] = frozenset(),
    alone: frozenset[str] = frozenset(),
) -> str:
    """The source of kernels in a dialect (``c``, ``opencl``, ``cuda``, ``hip``, ``metal``, ``glsl``, ``hlsl``).

    A kernel named in ``guarded`` is printed a second time as ``<name>_if``, with one more buffer of bytes
    first: it does nothing unless the first of them is non-zero. ``alone`` names kernels that are never launched with
    one buffer for two parameters. Raises CompileError for what the language
    cannot express.
    """
    d = DIALECTS[dialect]
    if d.one_kernel and len(kernels) + len(guarded) != 1:
        raise CompileError(
            f"{dialect} takes one kernel a source, not {len(kernels)}",
            why="its entry point is main",
            do="render each kernel by itself",
        )
    u = Unit(d, function_text, fast=fast)
    texts = [
        _Kernel(u, k, guard, k.name in alone).text()
        for k in kernels
        for guard in ((False, True) if k.name in guarded else (False,))
    ]
    body = "\n".join(p for p in (u.helpers(), "\n".join(u.file_level), *texts) if p)
    support = "".join(text for name, text in d.support.items() if f"{name}(" in body)
    return "\n".join(p for p in (d.preamble, support, body) if p)


def launch_shape(kernel: L.Kernel) -> Shape:
    """Workgroups and lanes of a kernel, x (the innermost loop) first."""
    groups: list[int] = []
    lanes: list[int] = []
    body = kernel.body
    while len(body) == 1 and isinstance(body[0], L.For) and body[0].kind in (L.GRID, L.BLOCK):
        (groups if body[0].kind == L.GRID else lanes).append(int(body[0].stop.value))
        body = body[0].body
    return Shape(_three(groups), _three(lanes))


def _three(extents: list[int]) -> tuple[int, int, int]:
    x, y, z = (*extents[::-1], 1, 1, 1)[:3]
    return x, y, z


class _Kernel:
    def __init__(self, u: Unit, k: L.Kernel, guard: bool, alone: bool = False) -> None:
        self.u, self.k, self.guard, self.alone = u, k, guard, alone
        self.w = Writer(1)
        self.scope = Scope()

    def text(self) -> str:
        d, first = self.u.d, int(self.guard)
        slots = [Slot("go", d.storage["bool"], 1, False, 0)] if self.guard else []
        for n, p in enumerate(self.k.params):
            size = p.size * (2 if p.dtype.is_complex else 1)
            slots.append(Slot(p.name, d.stored(p.dtype), size, p.access != "r", n + first,
                              # What lanes tell each other through memory must be read again after a barrier.
                              self.alone and p.access != "rw"))
            self.scope.memory[p.name] = Memory(p.dtype, p.size, True)
        if self.guard:
            self.w.line("if (go[0] == 0) { return; }")
        body = self._enter()
        self._block(body, self.scope)
        name = self.k.name + ("_if" if self.guard else "")
        return d.frame(name, tuple(slots), launch_shape(self.k), tuple(self.w.lines))

    def _enter(self) -> Sequence[L.Stmt]:
        """Name the position in the launch; returns the statements of one lane."""
        if not self.u.d.group(0):
            return self.k.body
        body: Sequence[L.Stmt] = self.k.body
        loops: dict[str, list[L.For]] = {L.GRID: [], L.BLOCK: []}
        while len(body) == 1 and isinstance(body[0], L.For) and body[0].kind in loops:
            loops[body[0].kind].append(body[0])
            body = body[0].body
        for kind, spell in ((L.GRID, self.u.d.group), (L.BLOCK, self.u.d.lane)):
            for axis, loop in enumerate(reversed(loops[kind])):
                r = register(loop.start.dtype)
                self.w.line(f"{self._const()}{self.u.d.type(r)} {loop.var} = {self.u.d.cast(r, spell(axis))};")
                self.scope.names[loop.var] = loop.var
                self.scope.ranges[loop.var] = (0, int(loop.stop.value) - 1)
        return body

    def _const(self) -> str:
        return "" if self.u.d.exact else "const "

    # Statements

    def _block(self, body: Sequence[L.Stmt], outer: Scope) -> None:
        scope = outer.copy()
        for s in body:
            self._statement(s, scope)

    def _statement(self, s: L.Stmt, scope: Scope) -> None:
        e = Evaluator(self.u, self.w, scope)
        match s:
            case L.For():
                self._for(s, scope, e)
            case L.Let(name=n, value=x):
                self._declare(n, x, scope, e, self._const())
                if x.dtype.is_integer:
                    scope.ranges[n] = e.range(x)
            case L.Register(name=n, init=x):
                self._declare(n, x, scope, e, "")
            case L.Assign(name=n, value=x):
                self._assign(scope.names[n], e.values((x,))[0], x)
            case L.Array():
                self._array(s, scope)
            case L.Store(buffer=b, index=i, value=x):
                at, value = e.values((i, x))
                assert isinstance(at, str)
                e.store(b, at, value)
            case L.Atomic():
                self._atomic(s, e)
            case L.If():
                self._if(s, scope, e)
            case L.Loop(cond=c, body=b):
                self.w.open("while (true)")
                inner = scope.copy()
                self.w.line(f"if (!{_parenthesised(Evaluator(self.u, self.w, inner).value(c))}) {{ break; }}")
                self._block(b, inner)
                self.w.close()
            case L.Exchange():
                self._exchange(s, scope, e)
            case L.Barrier():
                if not self.u.d.barrier:
                    self._refuse("barriers")
                self.w.line(self.u.d.barrier)

    def _exchange(self, s: L.Exchange, scope: Scope, e: Evaluator) -> None:
        """A boolean travels as an integer."""
        if not self.u.d.exchange:
            self._refuse("exchanges between lanes")
        value = e.values((s.value,))[0]
        parts = value if isinstance(value, tuple) else (value,)
        names = (f"{s.name}_re", f"{s.name}_im") if isinstance(value, tuple) else (s.name,)
        short = register(s.value.dtype)
        for name, part in zip(names, parts, strict=True):
            given = self.u.d.cast("i32", part) if short == "bool" else part
            text = self.u.d.exchange.format(value=given, distance=s.distance)
            if short == "bool":
                text = f"({text} != 0)"
            self.w.line(f"{self._const()}{self.u.d.type(short)} {name} = {text};")
        scope.names[s.name] = names if isinstance(value, tuple) else s.name  # type: ignore[assignment]

    def _refuse(self, what: str) -> None:
        raise CompileError(
            f"{self.u.d.name} has no {what}",
            why="the language runs one lane after another",
            do="schedule the program for a nest of loops",
        )

    def _declare(self, name: str, x: L.Expr, scope: Scope, e: Evaluator, qualifier: str) -> None:
        value = e.values((x,))[0]
        t = self.u.d.type(register(x.dtype))
        if isinstance(value, tuple):
            value = tuple(e._part(p, x.dtype) for p in value)  # type: ignore[assignment]
            scope.names[name] = (f"{name}_re", f"{name}_im")
            for part, text in zip(scope.names[name], value, strict=True):
                self.w.line(f"{qualifier}{t} {part} = {text};")
            return
        self.w.line(f"{qualifier}{t} {name} = {value};")
        scope.names[name] = name

    def _assign(self, target: Value, value: Value, x: L.Expr) -> None:
        if isinstance(target, tuple):
            assert isinstance(value, tuple)
            for t, v in zip(target, value, strict=True):
                self.w.line(f"{t} = {v};")
            return
        self.w.line(f"{target} = {value};")

    def _for(self, s: L.For, scope: Scope, e: Evaluator) -> None:
        start, stop = e.values((s.start, s.stop))
        assert isinstance(start, str) and isinstance(stop, str)
        t = self.u.d.type(register(s.start.dtype))
        if s.stop.op not in ("const", "var"):
            stop = e._part(stop, s.stop.dtype)
        low, high = e.range(s.start)[0], e.range(s.stop)[1] - 1
        if s.kind == L.UNROLL and self.u.d.unroll:
            self.w.line(self.u.d.unroll)
        self.w.open(f"for ({t} {s.var} = {start}; {s.var} < {stop}; {s.var} += {s.step})")
        inner = scope.copy()
        inner.names[s.var] = s.var
        inner.ranges[s.var] = (low, max(high, low))
        self._block(s.body, inner)
        self.w.close()

    def _if(self, s: L.If, scope: Scope, e: Evaluator) -> None:
        self.w.open(f"if {_parenthesised(e.value(s.cond))}")
        inner = scope.copy()
        for x, limit in _limits(s.cond):
            low, high = e.range(x)
            narrowed: Interval = (low, max(min(high, limit - 1), low))
            inner.facts[id(x)] = narrowed
            if x.op == "var":
                inner.ranges[x.value] = narrowed
        self._block(s.then, inner)
        if s.orelse:
            self.w.close("} else {")
            self.w.depth += 1
            self._block(s.orelse, scope)
        self.w.close()

    def _array(self, s: L.Array, scope: Scope) -> None:
        scope.memory[s.name] = Memory(s.dtype, s.size, False)
        r = "i32" if s.dtype.kind == "b" else register(s.dtype)
        size = max(s.size, 1) * (2 if s.dtype.is_complex else 1)
        t = self.u.d.type(r)
        if s.space != "shared":
            self.w.line(f"{t} {s.name}[{size}];")
            return
        if not self.u.d.shared:
            self._refuse("workgroup memory")
        text = self.u.d.shared.format(type=t, name=s.name, size=size)
        if self.u.d.shared_at == "file":
            self.u.file_level.append(text)
        else:
            self.w.line(text)

    def _atomic(self, s: L.Atomic, e: Evaluator) -> None:
        at, x = e.values((s.index, s.value))
        assert isinstance(at, str)
        m = e.memory(s.buffer)
        if isinstance(x, tuple):
            if s.kind != "add":
                raise CompileError(
                    f"atomic {s.kind!r} of {m.dtype.name}",
                    why="complex numbers have no order",
                    do="use add, or reduce real numbers",
                )
            at = e._part(at, s.index.dtype)
            for k, part in enumerate(x):
                self._atomic_one(s.kind, m.dtype.real.short, s.buffer, f"2 * {at} + {k}", part)
            return
        if m.dtype.kind == "b" or m.dtype.bits < 32:
            raise CompileError(
                f"atomic {s.kind!r} of {m.dtype.name}",
                why=f"{self.u.d.name} has atomics on 32-bit words at least",
                do="use a wider dtype",
            )
        self._atomic_one(s.kind, m.dtype.short, s.buffer, at, x)

    def _atomic_one(self, kind: str, r: str, array: str, index: str, x: str) -> None:
        d = self.u.d
        form = d.atomics.get((kind, r))
        if form is not None:
            self.w.line(form.format(array=array, index=index, value=x) + ";")
            return
        word = "u" + r[1:]
        if r[0] != "f" or word not in d.swap:
            raise CompileError(
                f"{d.name} has no atomic {kind} of {r}",
                why="its language has neither that nor a compare-and-swap",
                do="scatter in order, or use another dtype",
            )
        from rlx.core.dtype import BY_NAME

        combined = FLOAT_RULES[kind](self.u, BY_NAME[r], "now", "x")
        pointer = d.pointer.format(type=d.type(word))
        swap = d.swap[word].format(pointer="p", old="seen", new="next")
        name = self.u.template(
            f"rlx_atomic_{kind}_{r}",
            f"""
^ void rlx_atomic_{kind}_{r}({pointer} p, ${r} x) {{
  ${word} seen = *p, old;
  do {{
    old = seen;
    const ${r} now = #{word}:{r}(old);
    const ${word} next = #{r}:{word}({combined});
    seen = {swap.replace("seen", "old")};
  }} while (seen != old);
}}""",
        )
        self.w.line(f"{name}(({pointer})&{array}[{index}], {x});")


def _parenthesised(text: str) -> str:
    return text if text.startswith("(") and _spans(text) else f"({text})"


def _spans(text: str) -> bool:
    """Whether the first parenthesis closes at the very end."""
    depth = 0
    for k, c in enumerate(text):
        depth += {"(": 1, ")": -1}.get(c, 0)
        if depth == 0:
            return k == len(text) - 1
    return False


def _limits(cond: L.Expr) -> list[tuple[L.Expr, int]]:
    """``x < n`` terms of a conjunction."""
    if cond.op == "and":
        return [t for a in cond.args for t in _limits(a)]
    if cond.op == "lt" and cond.args[1].op == "const" and cond.args[1].dtype.is_integer:
        return [(cond.args[0], int(cond.args[1].value))]
    return []
