"""Roots of polynomials and fits by polynomials; coefficients highest power first, as in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

import rlx
from rlx.array.array import Array
from rlx.core.errors import ShapeError, ValueIssue
from rlx.linalg.arguments import floats
from rlx.linalg.solvers import inv, lstsq
from rlx.linalg.spectral import eigvals


def roots(p: Any, /) -> Array:
    """The roots of a polynomial: the eigenvalues of its companion matrix, always complex, in no order.

    Leading and trailing zeros lower the degree, so the coefficients are looked at.

    >>> import rlx
    >>> rlx.sort(rlx.real(rlx.roots([1.0, -3.0, 2.0]))).round(12).tolist()
    [1.0, 2.0]
    """
    (c,) = floats("roots", p)
    if c.ndim != 1:
        raise ShapeError(f"roots of an array of shape {c.shape}", why="coefficients are a vector",
                         do="find the roots of one polynomial at a time")
    at = np.flatnonzero(np.asarray(c))
    kind = c.dtype.complex
    if not at.size:
        return rlx.zeros(0, dtype=kind, device=c.device)
    at_zero = c.shape[0] - 1 - int(at[-1])
    c = c[int(at[0]):int(at[-1]) + 1]
    n = c.shape[0] - 1
    zeros = rlx.zeros(at_zero, dtype=kind, device=c.device)
    if n == 0:
        return zeros
    below = rlx.eye(n - 1, n, dtype=c.dtype, device=c.device)
    found = eigvals(rlx.concat([rlx.reshape(-c[1:] / c[0], (1, n)), below]))
    return rlx.concat([found, zeros]) if at_zero else found


def polyfit(x: Any, y: Any, deg: int, /, rcond: float | None = None, full: bool = False, w: Any = None,
            cov: bool | str = False) -> Any:
    """The polynomial of degree ``deg`` that is closest to the points ``(x, y)`` in the sense of least squares.

    ``w`` weighs the residuals. With ``full`` also the squared residuals, rank, singular values and ``rcond``; with
    ``cov`` also the covariance of the coefficients (``"unscaled"``: for weights that are 1 / standard deviation).

    >>> import rlx
    >>> rlx.polyfit([0.0, 1.0, 2.0], [1.0, 3.0, 5.0], 1).round(12).tolist()
    [2.0, 1.0]
    """
    points, values = floats("polyfit", x, y)
    if points.ndim != 1 or not points.shape[0] or values.ndim not in (1, 2) or values.shape[0] != points.shape[0]:
        raise ShapeError(f"polyfit of points of shape {points.shape} and values of shape {values.shape}",
                         why="each point has one value (or one row of them)", do="pass a vector of points")
    if deg < 0:
        raise ValueIssue(f"polyfit of degree {deg}", why="a degree is not negative", do="pass deg of at least 0")
    cut = points.shape[0] * float(rlx.finfo(points.dtype).eps) if rcond is None else rcond
    lhs, rhs = rlx.vander(points, deg + 1), values
    if w is not None:
        (weights,) = floats("polyfit", w)
        lhs = lhs * weights[:, None]
        rhs = rhs * (weights if rhs.ndim == 1 else weights[:, None])
    scale = rlx.sqrt(rlx.sum(lhs * lhs, axis=0))
    c, residuals, rank, s = lstsq(lhs / scale, rhs, cut)
    c = c / (scale if c.ndim == 1 else scale[:, None])
    if full:
        return c, residuals, rank, s, cut
    if not cov:
        return c
    base = inv(rlx.matmul(rlx.matrix_transpose(lhs), lhs))
    if cov == "unscaled":
        return c, base
    free = points.shape[0] - (deg + 1)
    if free <= 0:
        raise ValueIssue(f"the covariance of {deg + 1} coefficients from {points.shape[0]} points",
                         why="no point is left to estimate the noise", do="pass more points, or cov='unscaled'")
    spread = residuals / free
    return (c, base * spread) if rhs.ndim == 1 else (c, base[:, :, None] * spread)
