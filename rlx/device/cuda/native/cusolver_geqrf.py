"""Claim: QR by cuSOLVER, one matrix at a time."""

from __future__ import annotations

from rlx.device.cuda import driver
from rlx.device.cuda.native import _matrices as M
from rlx.device.cuda.program import Library
from rlx.ir.claim import Claim
from rlx.ir.loop import Native


def lower(native: Native) -> Library:
    """(Q, R)."""
    mode = str(dict(native.attrs)["mode"])
    return M.library(native, lambda a: M.each(a, lambda x: tuple(driver.cupy().linalg.qr(x, mode=mode))))


CLAIMS = (Claim("cusolver_geqrf", "linalg.qr", "geqrf, orgqr", M.accepts_few, lower, "cuSOLVER QR"),)
