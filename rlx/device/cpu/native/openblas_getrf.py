"""Claims: LU and linear systems are LAPACK's GETRF and BLAS's TRSM."""

from __future__ import annotations

from rlx.device.cpu import factor, lapack
from rlx.device.cpu.emit import Emit
from rlx.ir.claim import Claim
from rlx.ir.loop import Native


def lower_lu(native: Native) -> tuple[str, str]:
    """GETRF exchanges rows of a column-major matrix, so it works on a transposed copy, in the result's memory."""
    dtype, _, m, n = factor.matrices(native)
    k = min(m, n)

    def body(e: Emit, g: str) -> None:
        a, packed = factor.item(e, native, 0, g), factor.item(e, native, 1, g)
        square = m == n
        with factor.scratch(e, 0 if square else m * n * dtype.itemsize, k * 8) as (more, ipiv):
            turned = packed if square else more
            factor.transpose(e, dtype, turned, a, m, n)
            info = lapack.routine(e, "getrf", dtype, m, n, turned, m, ipiv)
            if square:
                factor.transpose_here(e, dtype, packed, n)
            else:
                factor.transpose(e, dtype, packed, turned, n, m)
            pivots = e.at(e.buffer(2), "i32", (g, k))
            factor.permutation(e, e.at(e.buffer(3), "i32", (g, m)), ipiv, m, k, pivots)
        lapack.store_info(e, info, 4, g)

    return factor.lowered("getrf", native, 2 * m * n * k / 3, body)


def lower_solve(native: Native) -> tuple[str, str]:
    """Row-major A is A^T to GETRF: ``A[:, p] = (U^T) (L^T)``, and both lie there as TRSM wants them."""
    dtype, _, n, _ = factor.matrices(native)
    k = factor.matrices(native, 1)[3]

    def body(e: Emit, g: str) -> None:
        b, x, w = (factor.item(e, native, place, g) for place in (1, 2, 3))
        perm = e.at(e.buffer(4), "i32", (g, n))
        lapack.copy(e, dtype, w, factor.item(e, native, 0, g), n * n)
        with factor.scratch(e, n * 8, n * k * dtype.itemsize) as (ipiv, y):
            info = lapack.routine(e, "getrf", dtype, n, n, w, n, ipiv)
            factor.permutation(e, perm, ipiv, n, n)
            number = e.let(f"load i64, ptr {info}")
            with e.when(e.let(f"icmp eq i64 {number}, 0")):
                lapack.copy(e, dtype, y, b, n * k)
                factor.trsm(e, dtype, w, y, n, k, lower=True)
                factor.trsm(e, dtype, w, y, n, k, lower=False, unit=True)
                with e.loop(n) as i:
                    number_at = e.let(f"load i32, ptr {e.at(perm, 'i32', (i, 1))}")
                    place = e.let(f"sext i32 {number_at} to i64")
                    element = lapack.element(dtype)
                    lapack.copy(e, dtype, e.at(x, element, (place, k)), e.at(y, element, (i, k)), k)
        factor.finish(e, native, g, number, 5, (2,))

    return factor.lowered("solve", native, 2 * n**3 / 3 + 2 * n * n * k, body)


CLAIMS = (
    Claim("openblas_getrf", "linalg.lu", "getrf", factor.accepts, lower_lu,
          "LAPACK LU with partial pivoting, batches over the thread pool"),
    Claim("openblas_gesv", "linalg.solve", "getrf, trsm", factor.accepts, lower_solve,
          "LAPACK LU of the matrix as it lies, then two triangular solves in place"),
)
