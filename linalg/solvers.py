"""Linear systems, inverses, least squares, determinants, rank."""

from __future__ import annotations

from math import prod
from typing import Any

import rlx
from rlx.array.array import Array
from rlx.array.build import as_array, cast
from rlx.core import dtype as dt
from rlx.core.errors import ValueIssue
from rlx.linalg.arguments import LstsqResult, SlogdetResult, eps_of, floats, right_side
from rlx.linalg.diagonals import diagonal
from rlx.linalg.errors import RAISE, MatrixShapeError, matrix, outcome, square
from rlx.linalg.factor import identity_like
from rlx.linalg.ops import det as _det
from rlx.linalg.ops import lu as _lu
from rlx.linalg.ops.common import adjoint, counter, nan_where
from rlx.linalg.ops.triangular import triangular
from rlx.linalg.spectral import eigvalsh, svd, svdvals


def solve(a: Any, b: Any, /, *, errors: str = RAISE) -> Any:
    """``x`` with ``A x = b``: ``(..., n, n)`` and one vector ``(n,)`` or matrices ``(..., n, k)``.

    Raises LinAlgError for a singular matrix (an exactly zero pivot; nearly singular ones show in :func:`cond`).

    >>> import rlx
    >>> rlx.linalg.solve([[2.0, 0.0], [0.0, 4.0]], [2.0, 2.0]).tolist()
    [1.0, 0.5]
    """
    x, y = floats("solve", a, b)
    x, y, vector = right_side("solve", square(x, "solve"), y)
    out, _, _, info = _lu.solve(x, y)
    return outcome(out[..., 0] if vector else out, info, errors, "singular")


def inv(x: Any, /, *, errors: str = RAISE) -> Any:
    """The inverse of ``(..., n, n)``. Raises LinAlgError for a singular matrix."""
    (a,) = floats("inv", x)
    out, _, _, info = _lu.solve(square(a, "inv"), identity_like(a))
    return outcome(out, info, errors, "singular")


def solve_triangular(a: Any, b: Any, /, trans: int | str = 0, lower: bool = False, unit_diagonal: bool = False, *,
                     errors: str = RAISE) -> Any:
    """``x`` with ``op(A) x = b`` for a triangle of A; ``trans`` 0/'N', 1/'T', 2/'C'. The other triangle is not read.

    Raises LinAlgError for a zero on the diagonal.
    """
    kind = {0: 0, 1: 1, 2: 2, "N": 0, "T": 1, "C": 2}.get(trans)
    if kind is None:
        raise ValueIssue(f"solve_triangular() with trans={trans!r}", why="it is 0, 1, 2, 'N', 'T' or 'C'",
                         do="pass one of them")
    x, y = floats("solve_triangular", a, b)
    x, y, vector = right_side("solve_triangular", square(x, "solve_triangular"), y)
    out = triangular(x, y, lower=lower, trans=kind, unit=unit_diagonal)
    n = x.shape[-1]
    if unit_diagonal or not n:
        info = cast(rlx.zeros(x.shape[:-2], device=x.device), dt.int32)
    else:
        zero = rlx.equal(diagonal(x), 0)
        first = rlx.min(rlx.where(zero, counter(n, x) + 1, n + 1), axis=-1)
        info = cast(rlx.where(first > n, 0, first), dt.int32)
        out = nan_where(rlx.not_equal(info, 0), out)
    return outcome(out[..., 0] if vector else out, info, errors, "triangular")


def det(x: Any, /) -> Array:
    """The determinant of ``(..., n, n)``; 0 for a singular matrix, whose gradient, the cofactors, exists as well."""
    (a,) = floats("det", x)
    found: Array = _det.det(square(a, "det"))
    return found


def slogdet(x: Any, /) -> SlogdetResult:
    """``(sign, logabsdet)`` with ``det = sign * exp(logabsdet)``; (0, -inf) for a singular matrix."""
    (a,) = floats("slogdet", x)
    packed, parity = _det.factored(square(a, "slogdet"))
    d = diagonal(packed)
    size = rlx.abs(d)
    phase = d / cast(rlx.where(rlx.equal(size, 0), 1, size), d.dtype)
    return SlogdetResult(rlx.prod(phase, axis=-1) * parity, rlx.sum(rlx.log(size), axis=-1))


def _cutoff(s: Array, shape: tuple[Any, ...], rtol: Any) -> Array:
    """Singular values below this count as zero: (..., 1)."""
    largest = rlx.max(s, axis=-1, keepdims=True)
    if rtol is None:
        return largest * float(max(shape[-2:]) * eps_of(s))
    r = as_array(rtol)
    return largest * cast(r, s.dtype)[..., None] if r.ndim else largest * rtol


def pinv(x: Any, /, rcond: Any = None, hermitian: bool = False, *, rtol: Any = None, errors: str = RAISE) -> Any:
    """The Moore-Penrose inverse of ``(..., m, n)``, shape ``(..., n, m)``.

    Singular values up to ``rtol`` (NumPy's ``rcond``) times the largest count as zero; ``max(m, n) * eps`` by default.
    """
    (a,) = floats("pinv", x)
    matrix(a, "pinv")
    if 0 in a.shape[-2:]:
        return rlx.zeros((*a.shape[:-2], a.shape[-1], a.shape[-2]), dtype=a.dtype, device=a.device)
    u, s, vh, info = svd(a, full_matrices=False, hermitian=hermitian, errors="info")
    kept = s > _cutoff(s, a.shape, rcond if rtol is None else rtol)
    inverse = cast(rlx.where(kept, 1 / rlx.where(kept, s, 1), 0), a.dtype)
    out = nan_where(rlx.not_equal(info, 0), rlx.matmul(adjoint(vh), inverse[..., :, None] * adjoint(u)))
    return outcome(out, info, errors, "converge")


def lstsq(a: Any, b: Any, /, rcond: Any = None, *, errors: str = RAISE) -> Any:
    """The ``x`` of least norm that minimises ``|A x - b|``: ``(..., m, n)`` and ``(m,)`` or ``(..., m, k)``.

    Returns x, the sums of squared residuals (empty unless m > n), the effective rank by ``rcond`` (relative to the
    largest singular value; ``max(m, n) * eps`` by default), and the singular values. NumPy empties the residuals also
    when the rank is below n, which is known only afterwards; here they are given.
    """
    x, y = floats("lstsq", a, b)
    m, n = matrix(x, "lstsq").shape[-2:]
    x, y, vector = right_side("lstsq", x, y)
    u, s, vh, info = svd(x, full_matrices=False, errors="info")
    if 0 in (m, n):
        out = rlx.zeros((*x.shape[:-2], n, y.shape[-1]), dtype=x.dtype, device=x.device)
        rank = cast(rlx.zeros(x.shape[:-2], device=x.device), dt.int64)
    else:
        # NumPy takes a negative rcond for machine precision.
        machine = isinstance(rcond, (int, float)) and rcond < 0
        kept = s > _cutoff(s, x.shape, eps_of(x) if machine else rcond)
        inverse = cast(rlx.where(kept, 1 / rlx.where(kept, s, 1), 0), x.dtype)
        out = rlx.matmul(adjoint(vh), inverse[..., :, None] * rlx.matmul(adjoint(u), y))
        out = nan_where(rlx.not_equal(info, 0), out)
        rank = rlx.sum(cast(kept, dt.int64), axis=-1)
    r = rlx.abs(rlx.matmul(x, out) - y)
    residuals = rlx.sum(r * r, axis=-2) if m > n else rlx.zeros((*x.shape[:-2], 0), dtype=r.dtype, device=x.device)
    out = out[..., 0] if vector else out
    found = outcome((out, residuals, rank, s), info, errors, "converge")
    return found if errors == "info" else LstsqResult(*found)


def matrix_rank(x: Any, /, tol: Any = None, hermitian: bool = False, *, rtol: Any = None, errors: str = RAISE) -> Any:
    """How many singular values exceed ``tol``, or ``rtol`` times the largest (``max(m, n) * eps`` by default).

    An array with fewer than two axes has rank 1 if any element is nonzero, else 0, as in NumPy.
    """
    if tol is not None and rtol is not None:
        raise ValueIssue("matrix_rank(): `tol` and `rtol` can't be both set.",
                         why="each says which singular values count", do="pass one of them")
    (a,) = floats("matrix_rank", x)
    if a.ndim < 2:
        return cast(rlx.any(rlx.not_equal(a, 0)), dt.int64)
    if 0 in a.shape[-2:]:
        return rlx.zeros(a.shape[:-2], dtype=dt.int64, device=a.device)
    if hermitian:
        w, info = eigvalsh(a, errors="info")
        s = rlx.abs(w)
    else:
        s, info = svdvals(a, errors="info")
    limit = _cutoff(s, a.shape, rtol)
    if tol is not None:
        t = as_array(tol)
        limit = cast(t, s.dtype)[..., None]
    return outcome(rlx.sum(cast(s > limit, dt.int64), axis=-1), info, errors, "converge")


def tensorsolve(a: Any, b: Any, axes: Any = None) -> Array:
    """``x`` with ``tensordot(a, x, x.ndim) == b``, where the leading axes of ``a`` are those of ``b``."""
    x, y = floats("tensorsolve", a, b)
    if axes is not None:
        moved = [i % x.ndim for i in axes]
        x = rlx.permute_dims(x, (*(i for i in range(x.ndim) if i not in moved), *moved))
    shape = x.shape[y.ndim:]
    if prod(shape) != prod(x.shape[:y.ndim]):
        raise MatrixShapeError(f"tensorsolve() of an array of shape {x.shape}", why="it is not square as a matrix",
                               do="the axes of b and of x need equal products")
    flat: Array = solve(x.reshape((prod(shape), prod(shape))), y.reshape((-1,)))
    return flat.reshape(shape)


def tensorinv(a: Any, ind: int = 2) -> Array:
    """The inverse of ``a`` as a matrix from its last axes to its first ``ind``."""
    if ind <= 0:
        raise ValueIssue(f"tensorinv() with ind={ind}", why="it counts the axes of one side", do="pass at least 1")
    (x,) = floats("tensorinv", a)
    if prod(x.shape[:ind]) != prod(x.shape[ind:]):
        raise MatrixShapeError(f"tensorinv() of an array of shape {x.shape}", why="it is not square as a matrix",
                         do="both groups of axes need equal products")
    n = prod(x.shape[:ind])
    inverse: Array = inv(x.reshape((n, n)))
    return inverse.reshape((*x.shape[ind:], *x.shape[:ind]))
