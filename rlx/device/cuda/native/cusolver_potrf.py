"""Claim: Cholesky by cuSOLVER."""

from __future__ import annotations

from typing import Any

from rlx.device.cuda import driver
from rlx.device.cuda.native import _matrices as M
from rlx.device.cuda.program import Library
from rlx.ir.claim import Claim
from rlx.ir.loop import Native


def lower(native: Native) -> Library:
    """(factor, info): info is the number of the first diagonal element that is not positive."""
    upper = bool(dict(native.attrs)["upper"])

    def work(a: Any) -> list[Any]:
        cp = driver.cupy()
        # CuPy reads the lower triangle; of a matrix given by its upper one that is the adjoint's.
        given = cp.conj(cp.swapaxes(a, -1, -2)) if upper else a
        factor = cp.linalg.cholesky(cp.ascontiguousarray(given))
        wrong = ~(cp.diagonal(factor, axis1=-2, axis2=-1).real > 0)
        bad = wrong.any(axis=-1)
        info = cp.where(bad, wrong.argmax(axis=-1) + 1, 0).astype(cp.int32)
        (factor,) = M.spoiled(bad, factor)
        return [cp.conj(cp.swapaxes(factor, -1, -2)) if upper else factor, info]

    return M.library(native, work)


CLAIMS = (Claim("cusolver_potrf", "linalg.cholesky", "potrf", M.accepts, lower, "cuSOLVER Cholesky"),)
