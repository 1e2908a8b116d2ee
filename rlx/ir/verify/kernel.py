"""Verify kernels: scopes, dtypes by the table of primitives, loop kinds and their nesting, accesses and bounds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NoReturn

from rlx.core.dtype import DType, bool_
from rlx.core.errors import VerifyError
from rlx.ir import loop as L
from rlx.ir.prim import COMBINE, POINTWISE
from rlx.ir.text.lex import NAME
from rlx.ir.text.loop_print import statement_text
from rlx.ir.verify.prims import Broken, fits, need, result
from rlx.ir.walk import inside

#: Words of the text form that no name may be.
RESERVED = frozenset(("true", "false", "nan", "inf"))
#: Which loop kinds may stand around each kind, outermost first; ``lane`` and ``block`` are one workgroup's.
INSIDE: dict[str, frozenset[str]] = {
    L.GRID: frozenset((L.GRID,)),
    L.BLOCK: frozenset((L.GRID, L.BLOCK, L.SERIAL, L.UNROLL)),
    L.LANE: frozenset((L.GRID, L.BLOCK, L.LANE, L.SERIAL, L.UNROLL)),
    L.VECTOR: frozenset((L.GRID, L.BLOCK, L.LANE, L.SERIAL, L.UNROLL)),
    L.UNROLL: frozenset(L.LOOP_KINDS),
    L.SERIAL: frozenset(L.LOOP_KINDS),
}
MAX_GRID = 3
#: Ops that may combine a register with a value in any order.
_REORDERED = frozenset((*COMBINE.values(), "fma"))


@dataclass
class _Uses:
    """What an expression reads: variables and buffers with their dtypes, and constant indices."""

    variables: set[tuple[str, DType]] = field(default_factory=set)
    buffers: set[tuple[str, DType]] = field(default_factory=set)
    indices: set[tuple[str, int]] = field(default_factory=set)


@dataclass
class _Buffer:
    dtype: DType
    size: int
    access: str


@dataclass
class _Scope:
    """Names visible to a statement. ``outside`` are the registers declared outside the innermost vector loop."""

    values: dict[str, DType]
    registers: set[str]
    buffers: dict[str, _Buffer]
    loops: tuple[str, ...] = ()
    outside: frozenset[str] = frozenset()

    def child(self, loop: str | None = None) -> _Scope:
        outside = frozenset(self.registers) if loop == L.VECTOR else self.outside
        return _Scope(dict(self.values), set(self.registers), dict(self.buffers),
                      self.loops if loop is None else (*self.loops, loop), outside)


def verify_kernel(kernel: L.Kernel) -> L.Kernel:
    """The kernel, if it is well-formed. Raises VerifyError with the statement that is not."""
    _Checker(kernel).run()
    return kernel


class _Checker:
    def __init__(self, kernel: L.Kernel) -> None:
        self.kernel = kernel
        self.cache: dict[int, tuple[L.Expr, _Uses]] = {}

    def run(self) -> None:
        k = self.kernel
        buffers: dict[str, _Buffer] = {}
        try:
            check_name(k.name)
            for p in k.params:
                check_name(p.name)
                need(p.name not in buffers, f"two parameters are named {p.name}")
                need(p.access in ("r", "w", "rw"), f"parameter {p.name} has access {p.access!r}")
                need(type(p.size) is int and p.size >= 0, f"parameter {p.name} has size {p.size}")
                buffers[p.name] = _Buffer(p.dtype, p.size, p.access)
        except Broken as e:
            self.fail(f"kernel {k.name}", str(e))
        scope = _Scope({}, set(), buffers)
        self.block(k.body, scope)

    def fail(self, what: str, why: str) -> NoReturn:
        raise VerifyError(f"LIR: {what}", where=f"kernel {self.kernel.name}", why=why,
                          do="a scheduler or hand-written IR broke the grammar of rlx.ir.loop")

    def block(self, body: tuple[L.Stmt, ...], scope: _Scope) -> None:
        grids = [s for s in body if isinstance(s, L.For) and s.kind == L.GRID]
        for s in body:
            try:
                need(not grids or s is grids[0] or isinstance(s, L.Let),
                     "beside a grid loop only values may be defined: who runs it?")
                self.stmt(s, scope)
            except Broken as e:
                self.fail(statement_text(s), str(e))

    # Statements

    def stmt(self, s: L.Stmt, scope: _Scope) -> None:
        match s:
            case L.For():
                self.loop(s, scope)
            case L.Let() | L.Register():
                self.read(s.value if isinstance(s, L.Let) else s.init, scope)
                self.define(s.name, scope)
                scope.values[s.name] = (s.value if isinstance(s, L.Let) else s.init).dtype
                if isinstance(s, L.Register):
                    scope.registers.add(s.name)
            case L.Assign():
                self.assign(s, scope)
            case L.Array():
                self.define(s.name, scope)
                need(s.space in ("shared", "local"), f"there is no space {s.space!r}")
                need(type(s.size) is int and s.size >= 1, f"an array of {s.size} elements")
                scope.buffers[s.name] = _Buffer(s.dtype, s.size, "rw")
            case L.Store():
                self.write(s, scope)
            case L.Atomic():
                need(s.kind in ("add", "min", "max"), f"there is no atomic {s.kind!r}")
                self.write(s, scope)
            case L.If():
                self.read(s.cond, scope)
                need(s.cond.dtype == bool_, f"the condition is {s.cond.dtype.name}, not bool")
                self.block(s.then, scope.child())
                self.block(s.orelse, scope.child())
            case L.Loop():
                self.read(s.cond, scope)
                need(s.cond.dtype == bool_, f"the condition is {s.cond.dtype.name}, not bool")
                self.block(s.body, scope.child(L.SERIAL))
            case L.Contract():
                self.contract(s, scope)
            case L.Transpose():
                self.transpose(s, scope)
            case L.Exchange():
                self.read(s.value, scope)
                need(L.BLOCK in scope.loops, "an exchange outside any workgroup")
                need(s.distance >= 1, f"an exchange at distance {s.distance}")
                self.define(s.name, scope)
                scope.values[s.name] = s.value.dtype
            case L.Barrier():
                need(L.VECTOR not in scope.loops, "a barrier inside a vector loop: its iterations are one lane")
                need(L.GRID in scope.loops or L.BLOCK in scope.loops, "a barrier outside any workgroup")

    def loop(self, s: L.For, scope: _Scope) -> None:
        need(s.kind in INSIDE, f"there is no loop kind {s.kind!r}")
        for around in scope.loops:
            need(around in INSIDE[s.kind], f"a {s.kind} loop inside a {around} loop")
        self.read(s.start, scope)
        self.read(s.stop, scope)
        need(s.start.dtype == s.stop.dtype and s.start.dtype.is_integer,
             f"it runs from {s.start.dtype.name} to {s.stop.dtype.name}: both must be one integer type")
        need(type(s.step) is int and s.step >= 1, f"its step is {s.step}")
        if s.kind == L.GRID:
            need(s.start.op == "const" and s.stop.op == "const" and s.start.value == 0 and s.step == 1,
                 "the extent of a grid loop is a constant, from 0 in steps of 1")
            need(scope.loops.count(L.GRID) < MAX_GRID, f"grid loops are at most {MAX_GRID} deep")
        inner = scope.child(s.kind)
        self.define(s.var, inner)
        inner.values[s.var] = s.start.dtype
        self.block(s.body, inner)

    def assign(self, s: L.Assign, scope: _Scope) -> None:
        self.read(s.value, scope)
        need(s.name in scope.registers, f"{s.name} is no register in scope")
        need(scope.values[s.name] == s.value.dtype,
             f"register {s.name} is {scope.values[s.name].name}, the value {s.value.dtype.name}")
        need(s.name not in scope.outside or s.reassoc, f"a vector loop sets the outer register {s.name} in order")
        if s.reassoc:
            combines = s.value.op in _REORDERED and any(a.op == "var" and a.value == s.name for a in s.value.args)
            need(combines, f"{s.value.op} does not combine {s.name} with a value in any order")

    def write(self, s: L.Store | L.Atomic, scope: _Scope) -> None:
        self.read(s.index, scope)
        self.read(s.value, scope)
        b = self.buffer(s.buffer, s.index, scope)
        need(b.dtype == s.value.dtype, f"{s.buffer} holds {b.dtype.name}, the value is {s.value.dtype.name}")
        need("w" in b.access, f"{s.buffer} is read only")

    def contract(self, s: L.Contract, scope: _Scope) -> None:
        for name, index in ((s.a, s.a_index), (s.b, s.b_index)):
            self.read(index, scope)
            b = self.buffer(name, index, scope)
            need(b.dtype == s.dtype, f"{name} holds {b.dtype.name}, the contraction is in {s.dtype.name}")
            need("r" in b.access, f"{name} is write only")
        need(s.acc in scope.buffers, f"there is no array {s.acc} in scope")
        acc = scope.buffers[s.acc]
        need(acc.dtype == s.dtype, f"{s.acc} holds {acc.dtype.name}, the contraction is in {s.dtype.name}")
        need(s.m >= 1 and s.n >= 1 and s.depth >= 1, f"a tile of {s.m} by {s.n}, depth {s.depth}")
        need(acc.size >= s.m * s.n, f"{s.acc} has {acc.size} elements for a tile of {s.m} by {s.n}")

    def transpose(self, s: L.Transpose, scope: _Scope) -> None:
        for name, index, access in ((s.dst, s.dst_index, "w"), (s.src, s.src_index, "r")):
            self.read(index, scope)
            b = self.buffer(name, index, scope)
            need(b.dtype == s.dtype, f"{name} holds {b.dtype.name}, the transposition is of {s.dtype.name}")
            need(access in b.access, f"{name} is {'read' if access == 'w' else 'write'} only")
        need(s.dst != s.src, f"{s.dst} is transposed into itself")
        need(s.m >= 1 and s.n >= 1, f"a block of {s.m} by {s.n}")
        need(s.dst_stride >= s.m or s.n == 1, f"lines of {s.m} at a stride of {s.dst_stride} in {s.dst}")

    def buffer(self, name: str, index: L.Expr, scope: _Scope) -> _Buffer:
        need(name in scope.buffers, f"there is no buffer {name} in scope")
        need(index.dtype.is_integer, f"the index of {name} is {index.dtype.name}")
        b = scope.buffers[name]
        if index.op == "const":
            need(0 <= index.value < b.size, f"index {index.value} is outside {name}, which has {b.size} elements")
        return b

    def define(self, name: str, scope: _Scope) -> None:
        check_name(name)
        need(name not in scope.values and name not in scope.buffers, f"{name} is already defined")

    # Expressions

    def read(self, e: L.Expr, scope: _Scope) -> None:
        """Check an expression against the names in scope."""
        uses = self.uses(e)
        for name, dtype in uses.variables:
            need(name in scope.values, f"{name} is used before it is defined")
            need(scope.values[name] == dtype, f"{name} is {scope.values[name].name}, not {dtype.name}")
        for name, dtype in uses.buffers:
            need(name in scope.buffers, f"there is no buffer {name} in scope")
            b = scope.buffers[name]
            need(b.dtype == dtype, f"{name} holds {b.dtype.name}, not {dtype.name}")
            need("r" in b.access, f"{name} is write only")
        for name, at in uses.indices:
            size = scope.buffers[name].size
            need(0 <= at < size, f"index {at} is outside {name}, which has {size} elements")

    def uses(self, e: L.Expr) -> _Uses:
        """What an expression reads, after checking the dtypes inside; each object is visited once a kernel."""
        known = self.cache.get(id(e))
        if known is not None:
            return known[1]
        uses = _Uses()
        for x in inside(e):
            self.typed(x, uses)
        self.cache[id(e)] = e, uses
        return uses

    def typed(self, x: L.Expr, uses: _Uses) -> None:
        """One expression: its dtype follows from its arguments by the table of primitives."""
        if x.op == "const":
            kind = {"b": bool, "i": int, "u": int, "f": float, "c": complex}[x.dtype.kind]
            need(type(x.value) is kind and not x.args, f"the {x.dtype.name} constant {x.value!r} is no {kind.__name__}")
            need(fits(x.value, x.dtype), f"{x.value} does not fit {x.dtype.name}")
        elif x.op == "var":
            uses.variables.add((x.value, x.dtype))
        elif x.op == "load":
            need(len(x.args) == 1 and x.args[0].dtype.is_integer, f"the index of {x.value} is no integer")
            uses.buffers.add((x.value, x.dtype))
            if x.args[0].op == "const":
                uses.indices.add((x.value, x.args[0].value))
        else:
            need(x.op in POINTWISE, f"{x.op} is no elementwise primitive")
            want = result(x.op, tuple([a.dtype for a in x.args]), x.dtype)
            need(x.dtype == want, f"{x.op} gives {want.name}, not {x.dtype.name}")


def check_name(name: str) -> None:
    """A name that the text form can hold."""
    need(NAME.fullmatch(name) is not None and name not in RESERVED, f"{name!r} is not a name")
