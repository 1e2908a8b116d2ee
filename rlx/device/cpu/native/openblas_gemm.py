"""Claim: a contraction of contiguous float or complex operands is OpenBLAS's GEMM (GEMV for a vector).

Axes that lie together in memory count as one; a transposed operand is passed as such; batches are a loop.
Large products are split over the thread pool, by rows or by columns, whichever there are more of. It takes those that
:mod:`rlx.device.cpu.cost` expects it to compute faster than generated tiles do.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from rlx.compile.nest_form import form_of
from rlx.core.dtype import DType
from rlx.device.cpu import blas, cost, jit, threads
from rlx.device.cpu.caps import vector_bytes
from rlx.device.cpu.emit import Emit, digits, driver
from rlx.device.cpu.gemm import Axes, Form, form
from rlx.ir.claim import Call, Claim, ValueType
from rlx.ir.loop import Native

#: Real operations in a part worth its own thread: about 10 us at the 100 GFlop/s of one core.
PART_FLOPS = 1_000_000
#: Rows or columns in a part are a multiple of this, so that OpenBLAS's register tiles stay full.
TILE = 16
#: Multiplications up to which a generated loop beats the call into the library.
SMALL = 64
_ROW_MAJOR, _PLAIN, _TRANSPOSED = 101, 111, 112


def accepts(call: Call) -> str | None:
    """None for f32, f64, c64 or c128 operands with a GEMM form; else the reason."""
    if (reason := blas.absent()) is not None:
        return reason
    dtypes = {d for d, _ in (*call.inputs, *call.outputs)}
    if len(dtypes) != 1 or blas.letter(next(iter(dtypes))) is None:
        return f"needs float32, float64, complex64 or complex128 throughout, got {_names(call)}"
    found = _form(call.inputs[0], call.inputs[1], call.attrs)
    if isinstance(found, str):
        return found
    if found.m * found.n * found.k <= SMALL:
        return f"is slower than a generated loop at {found.m}x{found.n}x{found.k}"
    return _slower(call, found)


def _slower(call: Call, found: Form) -> str | None:
    """Why tiles are the faster, by the measured model, or None."""
    axes = _axes(call.attrs["contract"]), _axes(call.attrs.get("batch", ((), ())))
    tiled = form_of(found.dtype, call.inputs[0][1], call.inputs[1][1], *axes)
    if tiled is None:
        return None
    turned = found.rhs.row_stride == 1 and found.rhs.col_stride > 1
    return cost.reason(tiled, found.dtype, vector_bytes(jit.host()), turned=turned, packed=1 in call.fixed)


def lower(native: Native) -> tuple[str, str]:
    """The function for one accepted contraction: a loop over batches and parts, each a library call."""
    found = _form(native.types[0], native.types[1], dict(native.attrs))
    if isinstance(found, str):
        raise ValueError(f"not a contraction that was accepted: {found}")
    plan = _split(found, threads.threads())
    facts = f"{found} {plan}"
    name = f"rlx_gemm_{hashlib.sha256(facts.encode()).hexdigest()[:16]}"
    return name, _tile(name, found, plan) + driver(name, found.batches * plan.parts, plan.parallel)


@dataclass(frozen=True, slots=True)
class _Plan:
    """``parts`` of ``size`` rows (or columns) for each product; ``parallel`` goes over the pool."""

    rows: bool
    parts: int
    size: int
    parallel: bool


def _split(f: Form, workers: int) -> _Plan:
    """Enough parts for the workers, none too small to be worth a thread."""
    rows = f.m >= f.n
    extent = f.m if rows else f.n
    total = f.flops * f.batches
    if workers == 1 or total < 2 * PART_FLOPS:
        return _Plan(rows, 1, extent, False)
    parts = min(-(-workers // f.batches), max(1, f.flops // PART_FLOPS))
    if parts > 1 and extent >= 64 * TILE:
        parts *= 2  # parts this large lose nothing by being halved, and even out a busy core
    size = min(extent, -(-extent // parts // TILE) * TILE)
    return _Plan(rows, -(-extent // size), size, True)


def _tile(name: str, f: Form, plan: _Plan) -> str:
    """``@name.tile(bufs, g)``: part g of the work, parts of one product next to each other."""
    e = Emit(f"{name}.tile", "ptr %bufs, i64 %g")
    item = f"[{f.dtype.itemsize} x i8]"
    which = e.let(f"urem i64 %g, {plan.parts}")
    batch = e.let(f"udiv i64 %g, {plan.parts}")
    low = e.let(f"mul i64 {which}, {plan.size}")
    extent = f.m if plan.rows else f.n
    left = e.let(f"sub i64 {extent}, {low}")
    size = e.call("llvm.umin.i64", [("i64", left), ("i64", plan.size)], "i64")
    index = digits(batch, f.extents, e)
    a = e.at(e.buffer(0), item, *zip(index, f.lhs.batch), (low, f.lhs.row_stride if plan.rows else 0))
    b = e.at(e.buffer(1), item, *zip(index, f.rhs.batch), (low, 0 if plan.rows else f.rhs.col_stride))
    c = e.at(e.buffer(2), item, (batch, f.m * f.n), (low, f.n if plan.rows else 1))
    m, n = (size, str(f.n)) if plan.rows else (str(f.m), size)
    _product(e, f, (a, b, c), (m, n))
    return e.text()


def _product(e: Emit, f: Form, pointers: tuple[str, str, str], extents: tuple[str, str]) -> None:
    """One library call over a part: ``m`` rows by ``n`` columns."""
    if f.m == 1 or f.n == 1:
        _vector_product(e, f, pointers, extents)
        return
    (a, b, c), (m, n) = pointers, extents
    one, zero = _scalars(e, f.dtype)
    e.call(blas.cblas(f"{blas.letter(f.dtype)}gemm"), [
        ("i32", _ROW_MAJOR), ("i32", _TRANSPOSED if f.lhs.transposed else _PLAIN),
        ("i32", _TRANSPOSED if f.rhs.transposed else _PLAIN), ("i64", m), ("i64", n), ("i64", f.k), one,
        ("ptr", a), ("i64", f.lhs.ld), ("ptr", b), ("i64", f.rhs.ld), zero, ("ptr", c), ("i64", f.n)])


def _vector_product(e: Emit, f: Form, pointers: tuple[str, str, str], extents: tuple[str, str]) -> None:
    """GEMV: the result is one column of lhs @ rhs, or one row, that is, a column of its transpose."""
    a, b, c = pointers
    if f.n == 1:
        matrix, stored, x, y_size, step = f.lhs, a, b, extents[0], f.rhs.row_stride
    else:
        matrix, stored, x, y_size, step = f.rhs, b, a, extents[1], f.lhs.col_stride
    one, zero = _scalars(e, f.dtype)
    # y runs along the stored rows of lhs, or the stored columns of rhs; a transposed operand turns that.
    along_rows = (f.n == 1) != matrix.transposed
    rows, cols = (y_size, f.k) if along_rows else (f.k, y_size)
    e.call(blas.cblas(f"{blas.letter(f.dtype)}gemv"), [
        ("i32", _ROW_MAJOR), ("i32", _PLAIN if along_rows else _TRANSPOSED), ("i64", rows), ("i64", cols),
        one, ("ptr", stored), ("i64", matrix.ld), ("ptr", x), ("i64", step), zero, ("ptr", c), ("i64", 1)])


def _scalars(e: Emit, dtype: DType) -> tuple[tuple[str, str], tuple[str, str]]:
    """alpha = 1 and beta = 0: by value for real types, by pointer for complex ones."""
    part = "float" if dtype.real.bits == 32 else "double"
    if not dtype.is_complex:
        return (part, "1.0"), (part, "0.0")
    one = e.slot(f"[2 x {part}]", f"[{part} 1.0, {part} 0.0]")
    zero = e.slot(f"[2 x {part}]", "zeroinitializer")
    return ("ptr", one), ("ptr", zero)


def _form(lhs: ValueType, rhs: ValueType, attrs: dict[str, Any]) -> Form | str:
    return form(lhs[0], lhs[1], rhs[1], _axes(attrs["contract"]), _axes(attrs.get("batch", ((), ()))))


def _axes(pair: Any) -> Axes:
    return tuple(map(int, pair[0])), tuple(map(int, pair[1]))


def _names(call: Call) -> str:
    return ", ".join(d.name for d, _ in (*call.inputs, *call.outputs))


CLAIMS = (Claim("openblas_gemm", "dot", "cblas_gemm", accepts, lower,
                "OpenBLAS GEMM on contiguous operands, batches and large products over the thread pool"),)
