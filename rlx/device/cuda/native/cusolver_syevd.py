"""Claims: eigenvalues and vectors of symmetric matrices by cuSOLVER, one matrix at a time."""

from __future__ import annotations

from typing import Any

from rlx.device.cuda import driver
from rlx.device.cuda.native import _matrices as M
from rlx.device.cuda.program import Library
from rlx.ir.claim import Claim
from rlx.ir.loop import Native


def lower_eigh(native: Native) -> Library:
    """(eigenvalues, vectors, info): items with a NaN or an infinity fail."""
    part = "U" if dict(native.attrs).get("upper") else "L"
    values_only = len(native.types) - native.inputs == 2

    def work(a: Any) -> list[Any]:
        cp = driver.cupy()
        bad = M.unfit(a)
        fit = cp.where(bad[..., None, None], cp.eye(a.shape[-1], dtype=a.dtype), a)
        if values_only:
            return [*M.spoiled(bad, cp.linalg.eigvalsh(fit, UPLO=part)), bad.astype(cp.int32)]
        return [*M.spoiled(bad, *cp.linalg.eigh(fit, UPLO=part)), bad.astype(cp.int32)]

    return M.library(native, work)


CLAIMS = (
    Claim("cusolver_syevd", "linalg.eigh", "syevd, heevd", M.accepts, lower_eigh, "cuSOLVER symmetric eigenproblem"),
    Claim("cusolver_syevd_values", "linalg.eigvalsh", "syevd, heevd", M.accepts, lower_eigh,
          "cuSOLVER symmetric eigenvalues"),
)
