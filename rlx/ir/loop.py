"""LIR: what a device executes. A *program* of ordered steps over buffers; a *kernel* is a loop nest.

Grammar (`*` is zero or more; every expression carries its dtype)::

    program := name buffer* step*
    buffer  := name dtype size role(input i | output i | const | temp) offset
    step    := launch kernel buffer*            run a kernel with these buffers bound to its parameters
             | native claim buffer* attrs       call what a claim provides
             | copy dst src
             | while step* pred step*           run the first steps, stop when pred[0] is false, run the second
             | if pred step* step*
             | repeat count counter step*       counter[0] = 0 .. count[0]-1
    kernel  := name param* stmt*
    param   := name dtype size access(r | w | rw)
    stmt    := for var start stop step kind stmt*     kind: grid block lane vector unroll serial
             | let var expr                     a name for a value, assigned once
             | var name expr                    a mutable register
             | set name expr                    assign a register (reassoc: the combining op may be reordered)
             | array name dtype size space      space: shared (workgroup) | local (lane)
             | store buffer index expr
             | atomic kind buffer index expr    kind: add min max
             | if expr stmt* stmt*
             | loop expr stmt*                  while the expression holds (in-kernel loop with early exit)
             | contract acc a index strides b index m n depth     tile contraction, see Contract
             | transpose dst index stride src index stride m n      a block of a matrix to its transpose
             | exchange name expr distance      name: the value of the lane whose number differs by xor
             | barrier
    expr    := const | name | load buffer index | prim(expr*)

Conventions. Buffers are flat, indices count elements. ``grid`` loops stand outermost, at most three deep, and have
constant extents: a kernel device launches one workgroup (a core device: one chunk) per iteration, in any order.
``block`` loops are the lanes of one workgroup. A ``vector`` loop promises that its iterations are independent except
for registers set with ``reassoc``. A ``for`` evaluates start and stop once. Booleans are one byte in buffers (0 or 1).
``prim`` is an elementwise primitive of :mod:`rlx.ir.prim`; its argument dtypes are equal unless that table says not.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rlx.core.dtype import DType, bool_, int64

GRID, BLOCK, LANE, VECTOR, UNROLL, SERIAL = "grid", "block", "lane", "vector", "unroll", "serial"
LOOP_KINDS = (GRID, BLOCK, LANE, VECTOR, UNROLL, SERIAL)


class Expr:
    """A typed scalar expression. ``op`` is ``const``, ``var``, ``load`` or an elementwise primitive.

    Hash-consed: equal expressions are one object, so identity is equality and shared work is visible.
    ``value`` is the constant, the variable's name, or the loaded buffer's name; ``cast`` and ``bitcast`` have the
    target in ``dtype``.
    """

    __slots__ = ("op", "args", "dtype", "value", "_hash", "__weakref__")
    op: str
    args: tuple[Expr, ...]
    dtype: DType
    value: Any

    def __init__(self, op: str, args: tuple[Expr, ...], dtype: DType, value: Any, hash_: int) -> None:
        self.op, self.args, self.dtype, self.value, self._hash = op, args, dtype, value, hash_

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return (isinstance(other, Expr) and self._hash == other._hash and self.op == other.op
                and self.dtype == other.dtype and self.args == other.args
                and type(self.value) is type(other.value) and _same(self.value, other.value))

    def __repr__(self) -> str:
        # Exact: caches know programs by this text, so it says everything that tells two expressions apart.
        t = self.dtype.short
        if self.op == "const":
            return f"{self.value!r}:{t}"
        if self.op == "var":
            return f"{self.value}:{t}"
        if self.op == "load":
            return f"{self.value}[{self.args[0]!r}]:{t}"
        extra = "" if self.value is None else f" {self.value!r}"
        return f"{self.op}{extra}({', '.join(map(repr, self.args))}):{t}"


def _same(a: Any, b: Any) -> bool:
    return a is b or (a == b and str(a) == str(b)) or (a != a and b != b)


def expr(op: str, args: tuple[Expr, ...], dtype: DType, value: Any = None) -> Expr:
    """Build an expression."""
    h = hash((op, args, dtype.name, str(value) if isinstance(value, (float, complex)) else value))
    return Expr(op, args, dtype, value, h)


def const(value: Any, dtype: DType = int64) -> Expr:
    """A constant; the value is a Python scalar of the dtype's kind."""
    conv: Any = {"b": bool, "i": int, "u": int, "f": float, "c": complex}[dtype.kind]
    return expr("const", (), dtype, conv(value))


def var(name: str, dtype: DType = int64) -> Expr:
    """A reference to a loop variable, a ``let`` or a register."""
    return expr("var", (), dtype, name)


def load(buffer: str, index: Expr, dtype: DType) -> Expr:
    """``buffer[index]``."""
    return expr("load", (index,), dtype, buffer)


@dataclass(frozen=True, slots=True)
class For:
    """``for var in range(start, stop, step)`` executed as ``kind`` says."""

    var: str
    start: Expr
    stop: Expr
    step: int
    kind: str
    body: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class Let:
    name: str
    value: Expr


@dataclass(frozen=True, slots=True)
class Register:
    """Declare a mutable register with its first value."""

    name: str
    init: Expr


@dataclass(frozen=True, slots=True)
class Assign:
    """Set a register. ``reassoc``: the outermost op of ``value`` combines with the register and may be reordered."""

    name: str
    value: Expr
    reassoc: bool = False


@dataclass(frozen=True, slots=True)
class Array:
    """A small array in workgroup (``shared``) or lane (``local``) memory, uninitialised."""

    name: str
    dtype: DType
    size: int
    space: str = "local"


@dataclass(frozen=True, slots=True)
class Store:
    buffer: str
    index: Expr
    value: Expr


@dataclass(frozen=True, slots=True)
class Atomic:
    kind: str
    buffer: str
    index: Expr
    value: Expr


@dataclass(frozen=True, slots=True)
class If:
    cond: Expr
    then: tuple[Stmt, ...]
    orelse: tuple[Stmt, ...] = ()


@dataclass(frozen=True, slots=True)
class Loop:
    """While ``cond`` holds, run the body. ``cond`` may load buffers and read registers the body sets."""

    cond: Expr
    body: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class Contract:
    """A tile contraction: for ``i < m`` and ``j < n``, the local array ``acc[i*n + j]`` becomes
    ``sum over k < depth of a[a_index + i*a_strides[0] + k*a_strides[1]] * b[b_index + k*n + j]``.

    ``b`` is a packed panel. Sums of floats may be reordered and their products fused.
    """

    acc: str
    a: str
    a_index: Expr
    a_strides: tuple[int, int]
    b: str
    b_index: Expr
    m: int
    n: int
    depth: int
    dtype: DType


@dataclass(frozen=True, slots=True)
class Transpose:
    """For ``i < m`` and ``j < n``: ``dst[dst_index + j*dst_stride + i] = src[src_index + i*src_stride + j]``.

    The buffers do not overlap. Core devices only: they do it in blocks of registers.
    """

    dst: str
    dst_index: Expr
    dst_stride: int
    src: str
    src_index: Expr
    src_stride: int
    m: int
    n: int
    dtype: DType


@dataclass(frozen=True, slots=True)
class Exchange:
    """``name`` is the ``value`` of the lane whose number in the subgroup is this one's xor ``distance``.

    For devices that say ``exchange`` among their features; all lanes of the subgroup arrive together.
    """

    name: str
    value: Expr
    distance: int


@dataclass(frozen=True, slots=True)
class Barrier:
    """All lanes of the workgroup arrive, and see each other's writes to shared memory."""


Stmt = (For | Let | Register | Assign | Array | Store | Atomic | If | Loop | Contract | Transpose | Exchange
        | Barrier)


@dataclass(frozen=True, slots=True)
class Param:
    """A buffer parameter of a kernel: ``size`` elements, ``access`` r, w or rw."""

    name: str
    dtype: DType
    size: int
    access: str


@dataclass(frozen=True, slots=True)
class Kernel:
    """A loop nest over buffer parameters. ``notes`` are for people (what was fused), not part of equality."""

    name: str
    params: tuple[Param, ...]
    body: tuple[Stmt, ...]
    notes: str = field(default="", compare=False)

    def grid(self) -> tuple[int, ...]:
        """Extents of the leading grid loops (empty for a kernel that runs once)."""
        extents: list[int] = []
        body = self.body
        while (loops := [s for s in body if isinstance(s, For) and s.kind == GRID]):
            extents.append(int(loops[0].stop.value))
            body = loops[0].body
        return tuple(extents)


@dataclass(frozen=True, slots=True)
class Buffer:
    """Storage of a program. ``offset`` is the byte offset of a temp in the arena, ``slot`` an input/output number."""

    name: str
    dtype: DType
    size: int
    role: str
    slot: int = 0
    offset: int = 0
    data: Any = field(default=None, compare=False)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class Launch:
    kernel: Kernel
    buffers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Native:
    """Call what a claim provides. ``types`` are (dtype, shape) of each buffer, inputs before outputs."""

    claim: str
    buffers: tuple[str, ...]
    types: tuple[tuple[DType, tuple[int, ...]], ...]
    inputs: int
    attrs: tuple[tuple[str, Any], ...] = ()
    scratch: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Copy:
    dst: str
    src: str


@dataclass(frozen=True, slots=True)
class While:
    head: tuple[Step, ...]
    pred: str
    body: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Branch:
    pred: str
    then: tuple[Step, ...]
    orelse: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """Run the body ``count`` times (an int, or a buffer whose first element is the count)."""

    count: int | str
    counter: str
    body: tuple[Step, ...]


Step = Launch | Native | Copy | While | Branch | Repeat


@dataclass(frozen=True, slots=True)
class Program:
    """Buffers and the steps over them. ``arena`` is the bytes that all temps together need."""

    name: str
    buffers: tuple[Buffer, ...]
    steps: tuple[Step, ...]
    arena: int = 0

    def buffer(self, name: str) -> Buffer:
        return next(b for b in self.buffers if b.name == name)

    def kernels(self) -> tuple[Kernel, ...]:
        """Every distinct kernel, in order of first launch."""
        found: dict[str, Kernel] = {}

        def visit(steps: tuple[Step, ...]) -> None:
            for s in steps:
                if isinstance(s, Launch):
                    found.setdefault(s.kernel.name, s.kernel)
                elif isinstance(s, While):
                    visit(s.head)
                    visit(s.body)
                elif isinstance(s, Branch):
                    visit(s.then)
                    visit(s.orelse)
                elif isinstance(s, Repeat):
                    visit(s.body)

        visit(self.steps)
        return tuple(found.values())


# Small builders with constant folding: the arithmetic of index expressions.

def add(a: Expr, b: Expr) -> Expr:
    if b.op == "const" and a.op == "const":
        return const(a.value + b.value, a.dtype)
    if a.op == "const":
        a, b = b, a
    if b.op == "const":
        if b.value == 0:
            return a
        if a.op == "add" and a.args[1].op == "const":
            return add(a.args[0], const(a.args[1].value + b.value, a.dtype))
    return expr("add", (a, b), a.dtype)


def sub(a: Expr, b: Expr) -> Expr:
    if b.op == "const":
        return add(a, const(-b.value, b.dtype))
    return const(0, a.dtype) if a == b else expr("sub", (a, b), a.dtype)


def mul(a: Expr, b: Expr) -> Expr:
    if a.op == "const" and b.op == "const":
        return const(a.value * b.value, a.dtype)
    if a.op == "const":
        a, b = b, a
    if b.op == "const":
        if b.value == 1:
            return a
        if b.value == 0:
            return b
        if a.op == "mul" and a.args[1].op == "const":
            return mul(a.args[0], const(a.args[1].value * b.value, a.dtype))
    return expr("mul", (a, b), a.dtype)


def div(a: Expr, b: int) -> Expr:
    """Floor division of a non-negative index by a positive constant."""
    if b == 1:
        return a
    if a.op == "const":
        return const(a.value // b, a.dtype)
    return expr("floordiv", (a, const(b, a.dtype)), a.dtype)


def mod(a: Expr, b: int) -> Expr:
    """Remainder of a non-negative index by a positive constant."""
    if b == 1:
        return const(0, a.dtype)
    if a.op == "const":
        return const(a.value % b, a.dtype)
    return expr("rem", (a, const(b, a.dtype)), a.dtype)


def less(a: Expr, b: Expr) -> Expr:
    if a.op == "const" and b.op == "const":
        return const(a.value < b.value, bool_)
    return expr("lt", (a, b), bool_)


def both(a: Expr, b: Expr) -> Expr:
    """Logical and of two booleans."""
    if a.op == "const":
        return b if a.value else a
    if b.op == "const":
        return a if b.value else b
    return expr("and", (a, b), bool_)


def select(c: Expr, a: Expr, b: Expr) -> Expr:
    if c.op == "const":
        return a if c.value else b
    return a if a == b else expr("select", (c, a, b), a.dtype)
