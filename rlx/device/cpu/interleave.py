"""Batches of small matrices in vector lanes: a block of matrices side by side in scratch memory, one a lane.

Element ``i`` of the block's matrices is one vector, at ``scratch[i]``. A block is read by transposing squares of as
many elements as there are lanes. The last block of a batch names its last matrix again where lanes are left over: those
lanes compute, and store, the same once more. Loops over elements are loops of the generated code, so the code is as
short for 32 by 32 matrices as for 3 by 3.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import final

from rlx.core.dtype import float32, float64
from rlx.device.cpu import factor, lapack
from rlx.device.cpu.emit import Emit
from rlx.device.cpu.lanes import Lanes
from rlx.ir.claim import Call
from rlx.ir.loop import Native

#: Largest matrices: two of 32 by 32 for each of eight lanes fill an eighth of a second-level cache. Beyond them one
#: matrix at a time fills the vectors of a library well enough.
LARGEST = 32
#: Bytes of a block's vector: the widest registers there are; where they are narrower, two or four make one.
VECTOR_BYTES = 64
#: Blocks from which lanes are worth it: below one block most of them would stand idle.
FEWEST_BLOCKS = 1
#: Floating operations of a chunk of blocks, from which handing it to a worker is cheap.
CHUNK_FLOPS = 200_000
#: Rows taken together, so that what they share is loaded once.
ROWS = 4


def accepts(call: Call) -> str | None:
    """None for batches of small real square matrices; else the reason."""
    dtype, shape = call.inputs[0]
    if dtype not in (float32, float64):
        return f"needs float32 or float64, got {dtype.name}"
    if 0 in shape or shape[-1] != shape[-2] or shape[-1] > LARGEST:
        return f"needs square matrices of 1 to {LARGEST} rows, got {shape[-2]}x{shape[-1]}"
    fewest = FEWEST_BLOCKS * VECTOR_BYTES // dtype.itemsize
    if math.prod(shape[:-2]) < fewest:
        return f"needs {fewest} matrices to fill its lanes"
    return None


def pitch(n: int, width: int) -> int:
    """Vectors from row to row of a matrix. One more than it has columns where that costs nothing: columns whose
    vectors lie powers of two apart share a few lines of the first-level cache.
    """
    return n if n % width else n + 1


@final
class Block:
    """One block of a batch: lanes, scratch memory, and where its matrices are."""

    def __init__(self, e: Emit, native: Native, g: str, scratch: Sequence[str]) -> None:
        self.e, self.native, self.scratch = e, native, scratch
        self.dtype, self.batches, self.n, _ = factor.matrices(native)
        self.width = VECTOR_BYTES // self.dtype.itemsize
        self.v = Lanes(e, self.width, "float" if self.dtype.bits == 32 else "double")
        self.pitch = pitch(self.n, self.width)
        self.first = e.let(f"mul i64 {g}, {self.width}")

    def at(self, part: str, *terms: tuple[str | int, int]) -> str:
        """The vector at an index of scratch memory."""
        return self.e.at(part, self.v.type, *terms)

    def load(self, part: str, *terms: tuple[str | int, int]) -> str:
        """The vector there."""
        return self.v.load(self.at(part, *terms))

    def store(self, x: str, part: str, *terms: tuple[str | int, int]) -> None:
        """Put a vector there."""
        self.v.store(x, self.at(part, *terms))

    def number(self, lane: int | str) -> str:
        """Which matrix of the batch a lane has."""
        number = self.e.let(f"add i64 {self.first}, {lane}")
        return self.e.call("llvm.smin.i64", [("i64", number), ("i64", self.batches - 1)], "i64")

    def item(self, place: int, lane: int | str, kind: str = "") -> str:
        """What belongs to a lane's matrix in the buffer at a place; ``kind`` is its LLVM type, if not the matrix's."""
        return self.e.at(self.e.buffer(place), kind or self.v.kind, (self.number(lane), self.size(place)))

    def size(self, place: int) -> int:
        """Elements of the buffer at a place that belong to one matrix."""
        return math.prod(self.native.types[place][1]) // self.batches

    def read(self, place: int, part: str, triangle: str = "") -> None:
        """The block's matrices into scratch memory; of their ``lower`` or ``upper`` triangle as much as is easy."""
        self._move(place, part, self._square_in, self._element_in, self.pitch, triangle)

    def read_flat(self, place: int, part: str) -> None:
        """What belongs to the block's matrices in another buffer, element after element."""
        self._move(place, part, self._square_in, self._element_in, self.n)

    def write(self, place: int, part: str) -> None:
        """Scratch memory into the block's matrices."""
        self._move(place, part, self._square_out, self._element_out, self.pitch)

    def _move(self, place: int, part: str, square: Callable[[list[str], str, str, str], None],
              element: Callable[[list[str], str, str, str], None], pitch: int, triangle: str = "") -> None:
        """Squares of elements; the last overlaps the one before where they do not fit evenly."""
        e, w, count = self.e, self.width, self.size(place)
        items = [self.item(place, lane) for lane in range(w)]
        if pitch > self.n:
            with e.loop(self.n) as row:
                on = e.let(f"udiv i64 {row}, {w}")
                first, stop = on if triangle == "upper" else "0", plus(e, on, 1) if triangle == "lower" else self.n // w
                with e.loop(stop, first) as k:
                    at = e.let(f"mul i64 {k}, {w}")
                    start, to = (e.let(f"add i64 {at}, {e.let(f'mul i64 {row}, {x}')}") for x in (self.n, pitch))
                    square(items, part, start, to)
            return
        if count < w:
            with e.loop(count) as i:
                element(items, part, i, i)
            return
        with e.loop(count // w) as k:
            start = e.let(f"mul i64 {k}, {w}")
            square(items, part, start, start)
        if count % w:
            square(items, part, str(count - w), str(count - w))

    def _square_in(self, items: list[str], part: str, start: str, to: str) -> None:
        rows = [self.v.load(self.e.at(item, self.v.kind, (start, 1))) for item in items]
        for i, x in enumerate(self.v.transposed(rows)):
            self.store(x, part, (to, 1), (i, 1))

    def _square_out(self, items: list[str], part: str, start: str, to: str) -> None:
        rows = [self.load(part, (to, 1), (i, 1)) for i in range(self.width)]
        for item, x in zip(items, self.v.transposed(rows), strict=True):
            self.v.store(x, self.e.at(item, self.v.kind, (start, 1)))

    def _element_in(self, items: list[str], part: str, i: str, to: str) -> None:
        x = "poison"
        for lane, item in enumerate(items):
            one = self.e.let(f"load {self.v.kind}, ptr {self.e.at(item, self.v.kind, (i, 1))}")
            x = self.e.let(f"insertelement {self.v.type} {x}, {self.v.kind} {one}, i64 {lane}")
        self.store(x, part, (to, 1))

    def _element_out(self, items: list[str], part: str, i: str, to: str) -> None:
        x = self.load(part, (to, 1))
        for lane, item in enumerate(items):
            one = self.e.let(f"extractelement {self.v.type} {x}, i64 {lane}")
            self.e.do(f"store {self.v.kind} {one}, ptr {self.e.at(item, self.v.kind, (i, 1))}")

    def write_info(self, place: int, number: str) -> None:
        """A vector of whole numbers into an int32 for each matrix."""
        whole = self.e.let(f"fptosi {self.v.type} {number} to {self.v.ints}")
        with self.e.loop(self.width) as lane:
            one = self.e.let(f"extractelement {self.v.ints} {whole}, i64 {lane}")
            self.e.do(f"store i32 {one}, ptr {self.item(place, lane, 'i32')}")

    def write_ints(self, place: int, part: str) -> None:
        """Integers of scratch memory into those of the block."""
        with self.e.loop(self.width) as lane:
            target = self.item(place, lane, "i32")
            with self.e.loop(self.size(place)) as i:
                x = self.e.let(f"load i32, ptr {self.scalar(part, 'i32', lane, (i, 1))}")
                self.e.do(f"store i32 {x}, ptr {self.e.at(target, 'i32', (i, 1))}")

    def scalar(self, part: str, kind: str, lane: int | str, *terms: tuple[str | int, int]) -> str:
        """The address of one lane's number of a vector in scratch memory."""
        return self.e.at(part, kind, (lane, 1), *((i, s * self.width) for i, s in terms))

    def number_of(self, i: str) -> str:
        """An i64 as a number in every lane."""
        return self.v.all(self.e.let(f"sitofp i64 {i} to {self.v.kind}"))

    def slot(self, value: str) -> str:
        """A mutable vector."""
        at = self.e.slot(self.v.type)
        self.v.store(value, at)
        return at

    def ints(self, value: str) -> str:
        """A mutable vector of integers."""
        at = self.e.slot(self.v.ints)
        self.store_ints(value, at)
        return at

    def load_ints(self, part: str, i: str = "0") -> str:
        """The integers at an index."""
        return self.e.let(f"load {self.v.ints}, ptr {self.e.at(part, self.v.ints, (i, 1))}, align 4")

    def store_ints(self, x: str, part: str, i: str = "0") -> None:
        """Put integers at an index."""
        self.e.do(f"store {self.v.ints} {x}, ptr {self.e.at(part, self.v.ints, (i, 1))}, align 4")


def lowered(prefix: str, native: Native, flops: float, vectors: Callable[[int], Sequence[int]],
            body: Callable[[Block], None]) -> tuple[str, str]:
    """The symbol and text of a claim whose body does a block. ``vectors(m)`` are the sizes of its scratch memory,
    in vectors, where m is that of a matrix.
    """
    dtype, batches, n, _ = factor.matrices(native)
    width = VECTOR_BYTES // dtype.itemsize
    blocks = -(-batches // width)
    per = min(max(int(CHUNK_FLOPS // (flops * width)), 1), blocks)
    units = -(-blocks // per)
    name = f"rlx_lanes_{prefix}_{hashlib.sha256(f'{native.types} {native.attrs}'.encode()).hexdigest()[:16]}"
    sizes = vectors(n * pitch(n, width))

    def chunk(e: Emit, g: str) -> None:
        # One piece of memory, on the boundary of a vector.
        with factor.scratch(e, (sum(sizes) + 1) * VECTOR_BYTES) as (raw,):
            number = e.let(f"ptrtoint ptr {raw} to i64")
            up = e.let(f"add i64 {number}, {VECTOR_BYTES - 1}")
            base = e.let(f"inttoptr i64 {e.let(f'and i64 {up}, -{VECTOR_BYTES}')} to ptr")
            parts = [e.at(base, f"[{VECTOR_BYTES} x i8]", (sum(sizes[:k]), 1)) for k in range(len(sizes))]
            start = e.let(f"mul i64 {g}, {per}")
            stop = e.call("llvm.smin.i64", [("i64", e.let(f"add i64 {start}, {per}")), ("i64", blocks)], "i64")
            with e.loop(stop, start) as b:
                body(Block(e, native, b, parts))

    return name, lapack.batched(name, units, chunk, parallel=units > 1)


def by_rows(e: Emit, start: str | int, stop: str | int, work: Callable[[str, int], None], rows: int = ROWS) -> None:
    """``work(i, rows)`` for rows [start, stop), several at a time, then one at a time."""
    count = e.let(f"sub i64 {stop}, {start}")
    whole = e.let(f"sdiv i64 {count}, {rows}")
    with e.loop(whole) as k:
        work(e.let(f"add i64 {start}, {e.let(f'mul i64 {k}, {rows}')}"), rows)
    rest = e.let(f"add i64 {start}, {e.let(f'mul i64 {whole}, {rows}')}")
    with e.loop(stop, rest) as i:
        work(i, 1)


@contextmanager
def downward(e: Emit, start: str | int, stop: str | int) -> Iterator[str]:
    """A loop over start - 1, start - 2, ... stop."""
    with e.loop(start, stop) as k:
        up = e.let(f"add i64 {start}, {stop}")
        yield e.let(f"sub i64 {e.let(f'sub i64 {up}, 1')}, {k}")


def plus(e: Emit, i: str | int, k: int) -> str:
    """i + k."""
    return e.let(f"add i64 {i}, {k}") if k else str(i)
