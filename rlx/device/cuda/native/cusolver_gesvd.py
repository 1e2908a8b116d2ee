"""Claims: singular values and vectors by cuSOLVER, one matrix at a time."""

from __future__ import annotations

from typing import Any

from rlx.device.cuda import driver
from rlx.device.cuda.native import _matrices as M
from rlx.device.cuda.program import Library
from rlx.ir.claim import Claim
from rlx.ir.loop import Native


def lower(native: Native) -> Library:
    """(u, s, vh, info), or (s, info): items with a NaN or an infinity fail."""
    full = bool(dict(native.attrs).get("full"))
    values_only = len(native.types) - native.inputs == 2

    def work(a: Any) -> list[Any]:
        cp = driver.cupy()
        bad = M.unfit(a)
        fit = cp.where(bad[..., None, None], cp.ones((), a.dtype), a)
        if values_only:
            return [*M.spoiled(bad, cp.linalg.svd(fit, compute_uv=False)), bad.astype(cp.int32)]
        return [*M.spoiled(bad, *cp.linalg.svd(fit, full_matrices=full)), bad.astype(cp.int32)]

    return M.library(native, work)


CLAIMS = (
    Claim("cusolver_gesvd", "linalg.svd", "gesvd", M.accepts, lower, "cuSOLVER singular value decomposition"),
    Claim("cusolver_gesvd_values", "linalg.svdvals", "gesvd", M.accepts, lower, "cuSOLVER singular values"),
)
