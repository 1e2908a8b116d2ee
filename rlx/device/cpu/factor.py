"""What the claims on LAPACK share: conditions, failed items as NaN, scratch memory, LAPACKE and CBLAS calls.

LAPACKE finds the routine's workspace itself; matrices are passed as column-major, that is, row-major memory as
its transpose. Each claim says how it turns that into the result without transposing, where it can.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rlx.core.dtype import DType
from rlx.device.cpu import blas, lapack, threads
from rlx.device.cpu.emit import Emit
from rlx.device.cpu.lanes import Lanes
from rlx.ir.claim import Call
from rlx.ir.loop import Native

_COLUMN_MAJOR, _ROW_MAJOR = 102, 101
_NAN = "0x7FF8000000000000"
#: Work of one batch item, in floating operations, from which items are spread over the pool even if there are two.
PARALLEL_FLOPS = 200_000
#: Work of one matrix, in floating operations (0.2 ms of one core), from which the library's own threads share it.
WIDE_FLOPS = 1e7
#: Rows and columns of a tile of a transpose: a tile of doubles and its image are a first-level cache.
TILE = 32


def accepts(call: Call) -> str | None:
    """None for f32, f64, c64 or c128 matrices that are not empty; else the reason."""
    if (reason := blas.absent()) is not None:
        return reason
    for dtype, shape in call.inputs:
        if blas.letter(dtype) is None:
            return f"needs float32, float64, complex64 or complex128, got {dtype.name}"
        if 0 in shape:
            return "a matrix is empty"
    return None


def matrices(native: Native, place: int = 0) -> tuple[DType, int, int, int]:
    """(dtype, batches, rows, columns) of the value at a place."""
    dtype, shape = native.types[place]
    return dtype, math.prod(shape[:-2]), shape[-2], shape[-1]


def lowered(prefix: str, native: Native, flops: float, body: Callable[[Emit, str], None]) -> tuple[str, str]:
    """The symbol and text of a claim whose body does item ``g`` of the batch."""
    _, batches, _, _ = matrices(native)
    facts = f"{native.types} {native.attrs}"
    name = f"rlx_{prefix}_{hashlib.sha256(facts.encode()).hexdigest()[:16]}"
    if batches == 1 and flops > WIDE_FLOPS and (count := threads.threads()) > 1:
        return name, lapack.batched(name, 1, lambda e, g: _wide(e, g, body, count), parallel=False)
    return name, lapack.batched(name, batches, body, parallel=batches > 1 and batches * flops > PARALLEL_FLOPS)


def _wide(e: Emit, g: str, body: Callable[[Emit, str], None], count: int) -> None:
    """The body with the library's own threads, which have nothing to do at other times."""
    e.call(blas.SET_THREADS, [("i32", count)])
    body(e, g)
    e.call(blas.SET_THREADS, [("i32", 1)])


def item(e: Emit, native: Native, place: int, g: str) -> str:
    """The address of item g of the batch in the buffer at a place."""
    dtype, shape = native.types[place]
    tail = shape[len(native.types[0][1]) - 2:]
    return e.at(e.buffer(place), lapack.element(dtype), (g, math.prod(tail)))


def lapacke(e: Emit, name: str, dtype: DType, *args: str | int) -> str:
    """The info of ``LAPACKE_<letter><name>(column major, args...)``: ints, one-letter characters, pointers."""
    passed: list[tuple[str, str | int]] = [("i32", _COLUMN_MAJOR)]
    for arg in args:
        if isinstance(arg, int):
            passed.append(("i64", arg))
        elif arg.startswith(("%", "@")):
            passed.append(("ptr", arg))
        else:
            passed.append(("i8 signext", ord(arg)))
    return e.call(f"scipy_LAPACKE_{blas.letter(dtype)}{name}64_", passed, "i64")


def trsm(e: Emit, dtype: DType, a: str, b: str, n: int, k: int, *, lower: bool, trans: int = 0,
         unit: bool = False) -> None:
    """``B := op(A)^-1 B`` for row-major n by n A and n by k B."""
    part = "float" if dtype.real.bits == 32 else "double"
    one: tuple[str, str] = (part, "1.0")
    if dtype.is_complex:
        one = ("ptr", e.slot(f"[2 x {part}]", f"[{part} 1.0, {part} 0.0]"))
    e.call(blas.cblas(f"{blas.letter(dtype)}trsm"), [
        ("i32", _ROW_MAJOR), ("i32", 141), ("i32", 122 if lower else 121), ("i32", 111 + trans),
        ("i32", 132 if unit else 131), ("i64", n), ("i64", k), one, ("ptr", a), ("i64", n), ("ptr", b), ("i64", k)])


@contextmanager
def scratch(e: Emit, *sizes: int) -> Iterator[list[str]]:
    """Blocks of so many bytes, given back at the end."""
    blocks = [e.call("malloc", [("i64", max(size, 1))], "ptr") for size in sizes]
    yield blocks
    for block in blocks:
        e.call("free", [("ptr", block)])


def not_finite(e: Emit, dtype: DType, matrix: str, rows: int, cols: int, part: str = "all") -> str:
    """An i1: whether a row-major matrix (``all`` of it, its ``lower`` or ``upper`` triangle) has a NaN or infinity."""
    kind = "float" if dtype.real.bits == 32 else "double"
    words = 2 if dtype.is_complex else 1
    total = e.slot(kind, "0.0")
    with e.loop(rows) as i:
        stop = e.let(f"add i64 {i}, 1") if part == "lower" else str(cols)
        start = i if part == "upper" else "0"
        first, last = (x if words == 1 else e.let(f"mul i64 {x}, 2") for x in (start, stop))
        with e.loop(last, first) as j:
            x = e.let(f"load {kind}, ptr {e.at(matrix, kind, (i, cols * words), (j, 1))}")
            # x * 0 is 0 for finite x, else NaN; the sum may be taken in any order.
            z = e.let(f"fmul {kind} {x}, 0.0")
            before = e.let(f"load {kind}, ptr {total}")
            e.do(f"store {kind} {e.let(f'fadd reassoc {kind} {before}, {z}')}, ptr {total}")
    left = e.let(f"load {kind}, ptr {total}")
    return e.let(f"fcmp uno {kind} {left}, 0.0")


def fill_nan(e: Emit, native: Native, place: int, g: str) -> None:
    """Item g of the output at a place becomes NaN."""
    dtype, shape = native.types[place]
    kind = "float" if dtype.real.bits == 32 else "double"
    count = math.prod(shape[len(native.types[0][1]) - 2:]) * (2 if dtype.is_complex else 1)
    base = item(e, native, place, g)
    with e.loop(count) as i:
        e.do(f"store {kind} {_NAN}, ptr {e.at(base, kind, (i, 1))}")


def finish(e: Emit, native: Native, g: str, info: str, place: int, results: tuple[int, ...]) -> None:
    """Store an i64 info at a place, and NaN in the results where it is not 0."""
    at = e.at(e.buffer(place), "i32", (g, 1))
    e.do(f"store i32 {e.let(f'trunc i64 {info} to i32')}, ptr {at}")
    with e.when(e.let(f"icmp ne i64 {info}, 0")):
        for result in results:
            fill_nan(e, native, result, g)


def guarded(e: Emit, native: Native, g: str, bad: str, place: int, results: tuple[int, ...],
            work: Callable[[], str]) -> None:
    """Unless the i1 ``bad`` holds, ``work`` gives the info; failed items get info 1 and NaN."""
    status = e.slot("i64", 1)
    with e.when(e.let(f"xor i1 {bad}, true")):
        info = work()
        failed = e.let(f"icmp ne i64 {info}, 0")
        e.do(f"store i64 {e.let(f'zext i1 {failed} to i64')}, ptr {status}")
    finish(e, native, g, e.let(f"load i64, ptr {status}"), place, results)


def transpose(e: Emit, dtype: DType, dst: str, src: str, rows: int, cols: int, *, conj: bool = False) -> None:
    """``dst[j, i] = src[i, j]`` (or its conjugate) for row-major ``src``."""
    if dtype.is_complex and (conj or rows * cols > 256):
        part = "float" if dtype.real.bits == 32 else "double"
        one = ("ptr", e.slot(f"[2 x {part}]", f"[{part} 1.0, {part} 0.0]"))
        e.call(blas.cblas(f"{blas.letter(dtype)}omatcopy"), [
            ("i32", _ROW_MAJOR), ("i32", 113 if conj else 112), ("i64", rows), ("i64", cols), one,
            ("ptr", src), ("i64", cols), ("ptr", dst), ("i64", rows)])
    elif not dtype.is_complex and min(rows, cols) >= TILE:
        _by_tiles(e, dtype, dst, src, rows, cols)
    else:
        lapack.transposed(e, dtype, dst, src, rows, cols)


def _by_tiles(e: Emit, dtype: DType, dst: str, src: str, rows: int, cols: int) -> None:
    """Tile after tile of squares in vectors; a last tile overlaps the one before, and writes the same once more."""
    kind = "float" if dtype.bits == 32 else "double"
    v = Lanes(e, 64 // dtype.itemsize, kind)
    down, across = -(-rows // TILE), -(-cols // TILE)
    with e.loop(down) as p, e.loop(across) as q:
        top, left = (e.call("llvm.smin.i64", [("i64", e.let(f"mul i64 {x}, {TILE}")), ("i64", end - TILE)], "i64")
                     for x, end in ((p, rows), (q, cols)))
        with e.loop(TILE // v.n) as b, e.loop(TILE // v.n) as a:
            i, j = (e.let(f"add i64 {start}, {e.let(f'mul i64 {x}, {v.n}')}") for start, x in ((top, a), (left, b)))
            square = [v.load(e.at(src, kind, (i, cols), (r, cols), (j, 1))) for r in range(v.n)]
            for r, x in enumerate(v.transposed(square)):
                v.store(x, e.at(dst, kind, (j, rows), (r, rows), (i, 1)))


def transpose_here(e: Emit, dtype: DType, a: str, n: int, *, conj: bool = False) -> None:
    """``a[j, i] = a[i, j]`` (or its conjugate) of a square matrix, in its own memory."""
    if dtype.is_complex:
        _exchange_conj(e, dtype, a, n, conj)
        return
    word = f"i{dtype.bits}"
    v = Lanes(e, 64 // dtype.itemsize, "float" if dtype.bits == 32 else "double")
    whole = n // v.n
    with e.loop(whole) as p:
        i = e.let(f"mul i64 {p}, {v.n}")
        with e.loop(p) as q:
            j = e.let(f"mul i64 {q}, {v.n}")
            below, above = ([e.at(a, v.kind, (x, n), (r, n), (y, 1)) for r in range(v.n)] for x, y in ((i, j), (j, i)))
            low, high = ([v.load(at) for at in square] for square in (below, above))
            for square, new in ((below, v.transposed(high)), (above, v.transposed(low))):
                for at, x in zip(square, new, strict=True):
                    v.store(x, at)
        diagonal = [e.at(a, v.kind, (i, n + 1), (r, n)) for r in range(v.n)]
        for at, x in zip(diagonal, v.transposed([v.load(at) for at in diagonal]), strict=True):
            v.store(x, at)
    with e.loop(n, whole * v.n) as i, e.loop(i) as j:
        here, there = (e.at(a, word, (x, n), (y, 1)) for x, y in ((i, j), (j, i)))
        x, y = (e.let(f"load {word}, ptr {at}, align {dtype.itemsize}") for at in (here, there))
        e.do(f"store {word} {y}, ptr {here}, align {dtype.itemsize}")
        e.do(f"store {word} {x}, ptr {there}, align {dtype.itemsize}")


def _exchange_conj(e: Emit, dtype: DType, a: str, n: int, conj: bool) -> None:
    """Of a complex matrix: the library's transpose in place."""
    part = "float" if dtype.real.bits == 32 else "double"
    one = ("ptr", e.slot(f"[2 x {part}]", f"[{part} 1.0, {part} 0.0]"))
    e.call(blas.cblas(f"{blas.letter(dtype)}imatcopy"), [
        ("i32", _ROW_MAJOR), ("i32", 113 if conj else 112), ("i64", n), ("i64", n), one,
        ("ptr", a), ("i64", n), ("i64", n)])


def store_index(e: Emit, base: str, at: str, value: str) -> None:
    """An i64 into an int32 array."""
    e.do(f"store i32 {e.let(f'trunc i64 {value} to i32')}, ptr {e.at(base, 'i32', (at, 1))}")


def permutation(e: Emit, perm: str, ipiv: str, n: int, k: int, pivots: str | None = None) -> None:
    """The permutation (int32) of LAPACK's 1-based exchanges (i64), and the exchanges 0-based in ``pivots``."""
    with e.loop(n) as i:
        store_index(e, perm, i, i)
    with e.loop(k) as i:
        number = e.let(f"load i64, ptr {e.at(ipiv, 'i64', (i, 1))}")
        p = e.let(f"sub i64 {number}, 1")
        if pivots is not None:
            store_index(e, pivots, i, p)
        here, there = e.at(perm, "i32", (i, 1)), e.at(perm, "i32", (p, 1))
        x, y = e.let(f"load i32, ptr {here}"), e.let(f"load i32, ptr {there}")
        e.do(f"store i32 {y}, ptr {here}")
        e.do(f"store i32 {x}, ptr {there}")
