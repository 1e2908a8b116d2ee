"""Claim: QR is LAPACK's LQ of the transpose, which is what a row-major matrix is to it."""

from __future__ import annotations

from rlx.device.cpu import factor, lapack
from rlx.device.cpu.emit import Emit
from rlx.ir.claim import Claim
from rlx.ir.loop import Native


def lower(native: Native) -> tuple[str, str]:
    """``A^T = L Q'`` says ``A = Q'^T L^T``: rows of R are columns of L, and Q lies as Q' does column-major."""
    dtype, _, m, n = factor.matrices(native)
    k = min(m, n)
    columns = native.types[1][1][-1]
    element, size = lapack.element(dtype), dtype.itemsize
    generate = "unglq" if dtype.is_complex else "orglq"

    def body(e: Emit, g: str) -> None:
        q, r = factor.item(e, native, 1, g), factor.item(e, native, 2, g)
        with factor.scratch(e, m * n * size, k * size) as (work, tau):
            lapack.copy(e, dtype, work, factor.item(e, native, 0, g), m * n)
            factor.lapacke(e, "gelqf", dtype, n, m, work, n, tau)
            with e.loop(columns) as i:
                below = e.call("llvm.umin.i64", [("i64", i), ("i64", n)], "i64")
                row = e.at(r, element, (i, n))
                e.call("llvm.memset.p0.i64", [("ptr", row), ("i8", 0), ("i64", e.let(f"mul i64 {below}, {size}")),
                                              ("i1", "false")])
                left = e.let(f"sub i64 {n}, {below}")
                e.call("llvm.memcpy.p0.p0.i64", [
                    ("ptr", e.at(row, element, (below, 1))), ("ptr", e.at(work, element, (i, n), (below, 1))),
                    ("i64", e.let(f"mul i64 {left}, {size}")), ("i1", "false")])
            if columns > k:  # rows that the generator fills, but whose NaN would be taken for bad input
                e.call("llvm.memset.p0.i64", [("ptr", q), ("i8", 0), ("i64", m * columns * size), ("i1", "false")])
            with e.loop(m) as j:
                lapack.copy(e, dtype, e.at(q, element, (j, columns)), e.at(work, element, (j, n)), k)
            factor.lapacke(e, generate, dtype, columns, m, k, q, columns, tau)

    return factor.lowered("geqrf", native, 4 * m * n * k, body)


CLAIMS = (Claim("openblas_geqrf", "linalg.qr", "gelqf, orglq", factor.accepts, lower,
                "LAPACK QR without transposing, batches over the thread pool"),)
