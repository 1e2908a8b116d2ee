"""Block transposition: squares of registers go through a network of shuffles, one function for each shape.

A square of 8 x 8 words of 32 bits (4 x 4 of 64) is 8 vectors of 256 bits: ``log2(8)`` rounds interleave words, then
pairs, then halves of vectors, each one instruction a vector. What is left over at the edges is moved word by word.
"""

from __future__ import annotations

from rlx.core.errors import CompileError
from rlx.ir.loop import Transpose
from rlx.render.llvm.helpers import Helpers
from rlx.render.llvm.lines import Lines
from rlx.render.llvm.types import memory_type

#: Bytes of a vector of the square: its last round exchanges the halves of 128 bits.
VECTOR, HALF = 32, 16


def define(s: Transpose, helpers: Helpers) -> str:
    """The name of the function ``void (ptr dst, ptr src)`` that transposes this block."""
    if s.dtype.is_complex or s.dtype.itemsize not in (4, 8):
        raise CompileError(f"a transposition of {s.dtype.name}", why="it is written for words of 32 and 64 bits",
                           do="copy element by element")
    name = f"rlx_transpose_{s.dtype.short}_{s.m}x{s.n}_{s.src_stride}_{s.dst_stride}"
    if not helpers.has(name):
        helpers.define(name, _Block(s, helpers).text(name))
    return name


class _Block(Lines):
    """Writes one function: loops over the squares, then the edges."""

    def __init__(self, s: Transpose, helpers: Helpers) -> None:
        super().__init__()
        self.s = s
        self.item = s.dtype.itemsize
        self.side = VECTOR // self.item
        self.scalar = memory_type(s.dtype)
        self.vector = f"<{self.side} x {self.scalar}>"
        self.loop = helpers.loop(('!"llvm.loop.mustprogress"', '!"llvm.loop.unroll.disable"'))

    def text(self, name: str) -> str:
        """The whole function: ``for j in squares: every square of this column``, then edges."""
        s, side = self.s, self.side
        rows, columns = s.m // side * side, s.n // (2 * side) * 2 * side
        out = [f"define internal void @{name}(ptr noalias %dst, ptr noalias %src) nounwind noinline {{", "entry:"]
        if rows and columns:
            # Two squares are a whole cache line of each row: rows at a stride of a power of two evict each other.
            for first in (0, side):
                source = self.op(f"add nuw nsw i64 {self.op(f'mul nuw nsw i64 %i, {s.src_stride}')}, %j")
                target = self.op(f"add nuw nsw i64 {self.op(f'mul nuw nsw i64 %j, {s.dst_stride}')}, %i")
                self.square(source, target, first)
            out += ["  br label %columns", "columns:", "  %j = phi i64 [ 0, %entry ], [ %after, %next ]",
                    "  br label %square", "square:", "  %i = phi i64 [ 0, %columns ], [ %i.next, %square ]",
                    *self.taken(), f"  %i.next = add nuw nsw i64 %i, {side}",
                    f"  %again = icmp ult i64 %i.next, {rows}",
                    f"  br i1 %again, label %square, label %next, !llvm.loop {self.loop}", "next:",
                    f"  %after = add nuw nsw i64 %j, {2 * side}", f"  %more = icmp ult i64 %after, {columns}",
                    f"  br i1 %more, label %columns, label %edges, !llvm.loop {self.loop}", "edges:"]
        else:
            rows = columns = 0
            out += ["  br label %edges", "edges:"]
        before = "edges"
        # Below the squares: short rows of dst; beside them: whole lines of dst.
        for label, first, last, start, stop in (("below", rows, s.m, 0, columns), ("beside", 0, s.m, columns, s.n)):
            if first < last and start < stop:
                out += self.words(label, before, (first, last), (start, stop))
                before = f"{label}end"
        return "\n".join([*out, "  ret void", "}"]) + "\n"

    def words(self, label: str, before: str, rows: tuple[int, int], columns: tuple[int, int]) -> list[str]:
        """Element by element: for each column of src, its rows."""
        c = f"%{label}j"
        head = [f"  br label %{label}", f"{label}:",
                f"  {c} = phi i64 [ {columns[0]}, %{before} ], [ {c}.next, %{label} ]"]
        line = self.op(f"mul nuw nsw i64 {c}, {self.s.dst_stride}")
        for i in range(*rows):
            x = self.op(f"load {self.scalar}, ptr {self.at('%src', c, i * self.s.src_stride)}, align {self.item}")
            self.lines.append(f"  store {self.scalar} {x}, ptr {self.at('%dst', line, i)}, align {self.item}")
        return [*head, *self.taken(), f"  {c}.next = add nuw nsw i64 {c}, 1",
                f"  {c}.more = icmp ult i64 {c}.next, {columns[1]}",
                f"  br i1 {c}.more, label %{label}, label %{label}end, !llvm.loop {self.loop}", f"{label}end:"]

    def square(self, source: str, target: str, first: int) -> None:
        """The square at column ``first`` after these places of src and dst."""
        s = self.s
        rows = [self.op(f"load {self.vector}, ptr {self.at('%src', source, k * s.src_stride + first)}, "
                        f"align {self.item}") for k in range(self.side)]
        for k, v in enumerate(self.transposed(rows)):
            self.lines.append(f"  store {self.vector} {v}, ptr {self.at('%dst', target, (first + k) * s.dst_stride)}, "
                              f"align {self.item}")

    def transposed(self, rows: list[str]) -> list[str]:
        """The columns of a square given as rows."""
        group = HALF // self.item
        found = []
        for first in range(0, self.side, group):
            found.append(self.interleaved(rows[first:first + group]))
        half = self.side // 2
        low, high = [*range(half), *range(self.side, self.side + half)], [*range(half, self.side),
                                                                         *range(self.side + half, 2 * self.side)]
        return [self.shuffle(a, b, mask) for mask in (low, high) for a, b in zip(*found, strict=True)]

    def interleaved(self, rows: list[str]) -> list[str]:
        """Vector k holds, in each half of 128 bits, element k of that half of every row."""
        width, n = 1, len(rows)
        while width < n:
            # Words of `width` elements of each pair of vectors interleave: the first of both, then the second.
            new = list(rows)
            for base in range(0, n, 2 * width):
                for k in range(width):
                    a, b = rows[base + k], rows[base + k + width]
                    # Vector base+k holds columns c = k mod width; its pair gives two vectors of them.
                    new[base + 2 * k] = self.shuffle(a, b, self.mask(width, 0, n))
                    new[base + 2 * k + 1] = self.shuffle(a, b, self.mask(width, 1, n))
            rows, width = new, 2 * width
        return rows

    def mask(self, width: int, part: int, n: int) -> list[int]:
        """In every half: the low (or high) quarter-words of a and b, words of ``width`` elements alternating."""
        out: list[int] = []
        for base in range(0, self.side, n):
            words = range(base + part * n // 2, base + (part + 1) * n // 2, width)
            for w in words:
                out += [*range(w, w + width), *range(self.side + w, self.side + w + width)]
        return out

    def shuffle(self, a: str, b: str, mask: list[int]) -> str:
        picks = ", ".join(f"i32 {k}" for k in mask)
        return self.op(f"shufflevector {self.vector} {a}, {self.vector} {b}, <{len(mask)} x i32> <{picks}>")

    def at(self, base: str, index: str, more: int) -> str:
        """``base + index + more`` elements."""
        p = self.op(f"getelementptr inbounds {self.scalar}, ptr {base}, i64 {index}")
        return p if more == 0 else self.op(f"getelementptr inbounds {self.scalar}, ptr {p}, i64 {more}")
