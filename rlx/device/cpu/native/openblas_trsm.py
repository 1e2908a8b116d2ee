"""Claim: triangular systems are BLAS's TRSM, in place on a copy of the right sides."""

from __future__ import annotations

from rlx.device.cpu import factor, lapack
from rlx.device.cpu.emit import Emit
from rlx.ir.claim import Claim
from rlx.ir.loop import Native


def lower(native: Native) -> tuple[str, str]:
    """CBLAS takes row-major matrices as they lie."""
    dtype, _, n, k = factor.matrices(native, 1)
    attrs = dict(native.attrs)

    def body(e: Emit, g: str) -> None:
        x = factor.item(e, native, 2, g)
        lapack.copy(e, dtype, x, factor.item(e, native, 1, g), n * k)
        factor.trsm(e, dtype, factor.item(e, native, 0, g), x, n, k, lower=bool(attrs["lower"]),
                    trans=int(attrs["trans"]), unit=bool(attrs["unit"]))

    return factor.lowered("trsm", native, n * n * k, body)


CLAIMS = (Claim("openblas_trsm", "linalg.solve_triangular", "trsm", factor.accepts, lower,
                "BLAS triangular solve, batches over the thread pool"),)
