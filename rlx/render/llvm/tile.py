"""Tile contraction: a register-blocked micro-kernel of vector multiply-adds, one function for each shape.

Accumulators of an m x n tile stay in vector registers over the whole depth; each step loads one row of the packed panel
and broadcasts m elements of the other operand. After K. Goto and R. van de Geijn, ACM TOMS 34 (2008), article 12.
"""

from __future__ import annotations

from rlx.core.errors import CompileError
from rlx.ir.loop import Contract
from rlx.render.llvm.helpers import Helpers
from rlx.render.llvm.lines import Lines
from rlx.render.llvm.types import memory_type

#: Steps of the depth loop written out, to hide its counter and let loads run ahead.
UNROLL = 4


def define(s: Contract, helpers: Helpers) -> str:
    """The name of the function ``void (ptr acc, ptr a, ptr b)`` that does this contraction."""
    if s.dtype.kind not in "fiu" or s.dtype.bits not in (32, 64):
        raise CompileError(f"a tile contraction of {s.dtype.name}", why="it is written for numbers of 32 and 64 bits",
                           do="schedule it as a reduction")
    # Vectors wider than the machine's are split by LLVM; a width that divides the tile is what counts.
    lanes = 64 // s.dtype.itemsize
    while s.n % lanes:
        lanes //= 2
    name = f"rlx_tile_{s.dtype.short}_{s.m}x{s.n}x{s.depth}_{s.a_strides[0]}_{s.a_strides[1]}_v{lanes}"
    if not helpers.has(name):
        helpers.define(name, _Tile(s, lanes, helpers).text(name))
    return name


class _Tile(Lines):
    """Writes one micro-kernel."""

    def __init__(self, s: Contract, lanes: int, helpers: Helpers) -> None:
        super().__init__()
        self.s, self.lanes = s, lanes
        self.scalar = memory_type(s.dtype)
        self.vector = f"<{lanes} x {self.scalar}>"
        self.across = s.n // lanes
        self.fma = helpers.declare(f"llvm.fma.v{lanes}f{s.dtype.bits}", self.vector, (self.vector,) * 3) if (
            s.dtype.is_float) else ""
        self.loop = helpers.loop(('!"llvm.loop.mustprogress"', '!"llvm.loop.unroll.disable"'))

    def text(self, name: str) -> str:
        """The whole function."""
        s = self.s
        cells = [(i, j) for i in range(s.m) for j in range(self.across)]
        main = s.depth // UNROLL * UNROLL
        out = [f"define internal void @{name}(ptr noalias %acc, ptr noalias %a, ptr noalias %b) nounwind noinline {{",
               "entry:"]
        rows = self._rows()
        out += self.taken()
        sums = dict.fromkeys(cells, "zeroinitializer")
        block = "entry"
        if main:
            out += ["  br label %step", "step:"]
            body_sums = {c: f"%s{c[0]}_{c[1]}" for c in cells}
            new = dict(body_sums)
            for u in range(UNROLL):
                new = self._step("%k", u, rows, new)
            body = self.taken()
            out.append(f"  %k = phi i64 [ 0, %{block} ], [ %next, %step ]")
            out += [f"  {body_sums[c]} = phi {self.vector} [ {sums[c]}, %{block} ], [ {new[c]}, %step ]" for c in cells]
            out += body
            out += [f"  %next = add nuw nsw i64 %k, {UNROLL}", f"  %more = icmp ult i64 %next, {main}",
                    f"  br i1 %more, label %step, label %rest, !llvm.loop {self.loop}", "rest:"]
            sums = new
        for k in range(main, s.depth):
            sums = self._step(str(k), 0, rows, sums)
        for i, j in cells:
            at = self.op(f"getelementptr inbounds {self.scalar}, ptr %acc, i64 {i * s.n + j * self.lanes}")
            align = 64 if self._aligned(i, j) else self._item
            self.lines.append(f"  store {self.vector} {sums[i, j]}, ptr {at}, align {align}")
        out += self.taken()
        return "\n".join([*out, "  ret void", "}"]) + "\n"

    @property
    def _item(self) -> int:
        return self.s.dtype.itemsize

    def _aligned(self, i: int, j: int) -> bool:
        return (i * self.s.n + j * self.lanes) * self._item % 64 == 0

    def _rows(self) -> list[str]:
        """A pointer to each row of the tile's first operand."""
        step = self.s.a_strides[0]
        return ["%a" if i == 0 else self.op(f"getelementptr inbounds {self.scalar}, ptr %a, i64 {i * step}")
                for i in range(self.s.m)]

    def _step(self, k: str, offset: int, rows: list[str], sums: dict[tuple[int, int], str]) -> dict[tuple[int, int],
                                                                                                    str]:
        """One depth index: a row of the panel times a column of the other operand."""
        kk = k if offset == 0 else self.op(f"add nuw nsw i64 {k}, {offset}")
        base = self.op(f"mul nuw nsw i64 {kk}, {self.s.n}")
        panel = []
        for j in range(self.across):
            at = base if j == 0 else self.op(f"add nuw nsw i64 {base}, {j * self.lanes}")
            p = self.op(f"getelementptr inbounds {self.scalar}, ptr %b, i64 {at}")
            panel.append(self.op(f"load {self.vector}, ptr {p}, align {self._item}"))
        stride = self.s.a_strides[1]
        column = kk if stride == 1 else self.op(f"mul nuw nsw i64 {kk}, {stride}")
        new = dict(sums)
        for i in range(self.s.m):
            p = self.op(f"getelementptr inbounds {self.scalar}, ptr {rows[i]}, i64 {column}")
            x = self.op(f"load {self.scalar}, ptr {p}, align {self._item}")
            one = self.op(f"insertelement {self.vector} poison, {self.scalar} {x}, i64 0")
            wide = self.op(f"shufflevector {self.vector} {one}, {self.vector} poison, "
                           f"<{self.lanes} x i32> zeroinitializer")
            for j in range(self.across):
                new[i, j] = self._multiply_add(wide, panel[j], new[i, j])
        return new

    def _multiply_add(self, a: str, b: str, c: str) -> str:
        """``a*b + c``; of integers modulo their range."""
        v = self.vector
        if self.fma:
            return self.op(f"call {v} {self.fma}({v} {a}, {v} {b}, {v} {c})")
        return self.op(f"add {v} {self.op(f'mul {v} {a}, {b}')}, {c}")
