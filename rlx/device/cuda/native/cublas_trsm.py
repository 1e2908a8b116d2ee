"""Claim: triangular systems are cuBLAS's TRSM, in place on a copy of the right sides."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from rlx.device.cuda import blas, driver
from rlx.device.cuda.native import _matrices as M
from rlx.device.cuda.program import Library
from rlx.ir.claim import Call, Claim
from rlx.ir.loop import Native


def accepts(call: Call) -> str | None:
    """None for a few triangles that are large enough; else the reason."""
    return blas.absent() or M.accepts_few(call)


def lower(native: Native) -> Library:
    """(a, b) -> x, a call for each matrix of the batch."""
    (dtype, a), (_, b), _ = native.types
    attrs = dict(native.attrs)
    n, k, batch = a[-1], b[-1], prod(a[:-2])
    solve = blas.Triangular(dtype, n, k, lower=bool(attrs["lower"]), trans=int(attrs["trans"]),
                            unit=bool(attrs["unit"]))
    steps = n * n * dtype.itemsize, n * k * dtype.itemsize

    def run(stream: int, addresses: Sequence[int]) -> None:
        matrix, given, out = addresses
        driver.told("copy", driver.api().cuMemcpyDtoDAsync(out, given, batch * steps[1], stream))
        for i in range(batch):
            solve(stream, matrix + i * steps[0], out + i * steps[1])

    return Library(run, records=True)


CLAIMS = (Claim("cublas_trsm", "linalg.solve_triangular", "trsm", accepts, lower, "cuBLAS triangular solve"),)
