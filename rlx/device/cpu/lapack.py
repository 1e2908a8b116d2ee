"""Emitting LAPACK calls for claims: Fortran's calling form, layouts, info results, batches.

LAPACK sees a row-major matrix as its transpose. Where that changes the meaning, copy with
:func:`transposed`; where the matrix is symmetric or Hermitian, swap ``uplo`` instead: the upper triangle of
the transpose is the lower one in memory.

A claim's lowering reads, for a batch of n by n matrices at places 0 (input), 1 (factor) and 2 (info)::

    def body(e: Emit, g: str) -> None:
        factor = e.at(e.buffer(1), element(dtype), (g, n * n))
        copy(e, dtype, factor, e.at(e.buffer(0), element(dtype), (g, n * n)), n * n)
        info = routine(e, "potrf", dtype, "U", n, factor, n)
        store_info(e, info, 2, g)
    text = batched(name, batches, body, parallel=True)
"""

from __future__ import annotations

from collections.abc import Callable

from rlx.core.dtype import DType
from rlx.device.cpu import blas
from rlx.device.cpu.emit import Emit, driver


def routine(e: Emit, name: str, dtype: DType, *args: str | int) -> str:
    """Call ``<letter><name>(args..., info)``; returns the stack slot of ``info``.

    An int is passed as a 64-bit integer, a one-letter string as a character, and a string that starts with
    ``%`` or ``@`` is a pointer (to an array, or to a scalar in a slot of the caller's making). Fortran
    takes all by address, and the lengths of characters by value behind the other arguments.
    """
    passed: list[tuple[str, str | int]] = []
    lengths: list[tuple[str, str | int]] = []
    for arg in args:
        if isinstance(arg, int):
            passed.append(("ptr", e.slot("i64", arg)))
        elif arg.startswith(("%", "@")):
            passed.append(("ptr", arg))
        else:
            passed.append(("ptr", e.slot("i8", ord(arg))))
            lengths.append(("i64", 1))
    info = e.slot("i64", 0)
    e.call(blas.lapack(f"{blas.letter(dtype)}{name}"), [*passed, ("ptr", info), *lengths])
    return info


def element(dtype: DType) -> str:
    """The LLVM type that strides and copies of this dtype count in."""
    return f"[{dtype.itemsize} x i8]"


def copy(e: Emit, dtype: DType, dst: str, src: str, count: int) -> None:
    """Copy elements between buffers that do not overlap, or are the same."""
    e.call("llvm.memcpy.p0.p0.i64",
           [("ptr", dst), ("ptr", src), ("i64", count * dtype.itemsize), ("i1", "false")])


def transposed(e: Emit, dtype: DType, dst: str, src: str, rows: int, cols: int) -> None:
    """``dst[j, i] = src[i, j]``: a row-major rows by cols matrix to column-major, or the transpose's way
    back.
    """
    word = f"i{dtype.bits}"
    with e.loop(cols) as j, e.loop(rows) as i:
        value = e.let(f"load {word}, ptr {e.at(src, word, (i, cols), (j, 1))}, align {dtype.real.itemsize}")
        e.do(f"store {word} {value}, ptr {e.at(dst, word, (j, rows), (i, 1))}, align {dtype.real.itemsize}")


def zero_above(e: Emit, dtype: DType, matrix: str, n: int) -> None:
    """Zero the elements above the diagonal of a row-major n by n matrix, which LAPACK leaves as they were."""
    word = f"i{dtype.bits}"
    with e.loop(n) as i, e.loop(n, e.let(f"add i64 {i}, 1")) as j:
        e.do(f"store {word} 0, ptr {e.at(matrix, word, (i, n), (j, 1))}, align {dtype.real.itemsize}")


def store_info(e: Emit, info: str, place: int, index: str) -> None:
    """Write info into an int32 buffer: 0 done, k > 0 the k-th pivot failed, below 0 a bad argument."""
    value = e.let(f"trunc i64 {e.let(f'load i64, ptr {info}')} to i32")
    e.do(f"store i32 {value}, ptr {e.at(e.buffer(place), 'i32', (index, 1))}")


def batched(name: str, batches: int, body: Callable[[Emit, str], None], *, parallel: bool) -> str:
    """The text of ``@name(bufs)``: the body for every item of a batch, over the pool or in turn."""
    e = Emit(f"{name}.tile", "ptr %bufs, i64 %g")
    body(e, "%g")
    return e.text() + driver(name, batches, parallel)
