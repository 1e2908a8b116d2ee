"""Claims: LU and linear systems by cuSOLVER, one matrix at a time."""

from __future__ import annotations

import importlib
from typing import Any

from rlx.device.cuda import driver
from rlx.device.cuda.native import _matrices as M
from rlx.device.cuda.program import Library
from rlx.ir.claim import Claim
from rlx.ir.loop import Native


def _factor(a: Any) -> tuple[Any, Any, Any, Any]:
    """(LU, pivots, permutation, info) of one matrix. The exchanges are followed on the host: they are a chain."""
    cp, np = driver.cupy(), importlib.import_module("numpy")
    warnings = importlib.import_module("warnings")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a zero pivot is told by info
        packed, pivots = importlib.import_module("cupyx.scipy.linalg").lu_factor(a, check_finite=False)
    order = np.arange(a.shape[0], dtype=np.int32)
    for i, p in enumerate(pivots.get().tolist()):
        order[i], order[p] = order[p], order[i]
    zero = cp.diagonal(packed) == 0
    info = cp.where(zero.any(), zero.argmax() + 1, 0).astype(cp.int32)
    return packed, pivots.astype(cp.int32), cp.asarray(order), info


def lower_lu(native: Native) -> Library:
    """(LU, pivots, permutation, info)."""
    return M.library(native, lambda a: M.each(a, _factor))


def lower_solve(native: Native) -> Library:
    """(X, W, permutation, info): the factors are those of A^T, transposed, as the op says."""
    def work(a: Any, b: Any) -> list[Any]:
        cp, scipy = driver.cupy(), importlib.import_module("cupyx.scipy.linalg")
        packed, _, order, info = M.each(cp.ascontiguousarray(cp.swapaxes(a, -1, -2)), _factor)
        w = cp.ascontiguousarray(cp.swapaxes(packed, -1, -2))
        n, k = b.shape[-2:]
        flat = zip(w.reshape(-1, n, n), order.reshape(-1, n), b.reshape(-1, n, k), strict=True)
        found = []
        for factors, perm, right in flat:
            y = scipy.solve_triangular(factors, right, lower=True, check_finite=False)
            y = scipy.solve_triangular(factors, y, unit_diagonal=True, check_finite=False)
            x = cp.empty_like(right)
            x[perm] = y
            found.append(x)
        x = cp.stack(found).reshape(b.shape)
        (x,) = M.spoiled(info != 0, x)
        return [x, w, order, info]

    return M.library(native, work)


CLAIMS = (
    Claim("cusolver_getrf", "linalg.lu", "getrf", M.accepts_few, lower_lu, "cuSOLVER LU with partial pivoting"),
    Claim("cusolver_gesv", "linalg.solve", "getrf, trsm", M.accepts_few, lower_solve,
          "cuSOLVER LU, then two cuBLAS triangular solves"),
)
