"""Name the parameters of a kernel: one for each value and each scratch buffer that its body loads or stores."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from rlx.compile.index import sizes
from rlx.core.dtype import DType
from rlx.ir import loop as L
from rlx.ir.graph import Value
from rlx.ir.loop import Expr, Stmt
from rlx.ir.walk import expressions, inside, statements


@dataclass
class Made:
    """A kernel, and what its parameters stand for: a value, or the name of a scratch buffer."""

    kernel: L.Kernel
    bound: list[Value | str]


class Naming:
    """Parameters of one kernel: each stored value gets one name."""

    def __init__(self, dtype: DType) -> None:
        self.names: dict[Value | str, str] = {}
        self.dtypes: dict[str, DType] = {}
        self.sizes: dict[str, int] = {}

    def of(self, v: Value) -> str:
        return self.scratch(v, v.dtype, prod(sizes(v)))

    def scratch(self, key: Value | str, dtype: DType, size: int) -> str:
        if key not in self.names:
            name = f"b{len(self.names)}"
            self.names[key] = name
            self.dtypes[name], self.sizes[name] = dtype, size
        return self.names[key]

    def kernel(self, name: str, body: tuple[Stmt, ...], notes: str = "") -> Made:
        read, written = touched(body)
        params = []
        bound: list[Value | str] = []
        for key, p in self.names.items():
            if p not in read and p not in written:
                continue
            access = "rw" if p in read and p in written else "w" if p in written else "r"
            params.append(L.Param(p, self.dtypes[p], self.sizes[p], access))
            bound.append(key)
        return Made(L.Kernel(name, tuple(params), body, notes), bound)


def touched(body: tuple[Stmt, ...]) -> tuple[set[str], set[str]]:
    """Buffers loaded and stored anywhere in the statements."""
    read: set[str] = set()
    written: set[str] = set()
    held: list[Expr] = []
    for s in statements(body):
        held.extend(expressions(s))
        match s:
            case L.Store(buffer=b) | L.Atomic(buffer=b):
                written.add(b)
            case L.Contract(a=a, b=b):
                read.update((a, b))
            case L.Transpose(dst=a, src=b):
                written.add(a)
                read.add(b)
            case _:
                pass
    read.update(e.value for e in inside(*held) if e.op == "load")
    return read, written
