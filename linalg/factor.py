"""Factorizations by name, and solving with a factorization one has."""

from __future__ import annotations

from typing import Any

import rlx
from rlx.array.array import Array
from rlx.array.build import as_array, cast
from rlx.core import dtype as dt
from rlx.core.errors import ValueIssue
from rlx.linalg.arguments import QRResult, floats, right_side
from rlx.linalg.errors import INFO, RAISE, matrix, outcome, square
from rlx.linalg.ops import cholesky as _cholesky
from rlx.linalg.ops import lu as _lu
from rlx.linalg.ops import qr as _qr
from rlx.linalg.ops.common import counter, eye_like, flat, permute_rows
from rlx.linalg.ops.triangular import triangular
from rlx.ops.index import gather


def cholesky(x: Any, /, *, upper: bool = False, errors: str = RAISE) -> Any:
    """The factor of a Hermitian positive definite matrix: lower L with ``A = L L^H``, or U with ``A = U^H U``.

    Shapes ``(..., n, n)``; only the triangle named is read. ``errors`` is the contract of :mod:`rlx.linalg.errors`:
    raises LinAlgError for a matrix that is not positive definite.

    >>> import rlx
    >>> rlx.linalg.cholesky([[4.0, 2.0], [2.0, 5.0]]).tolist()
    [[2.0, 0.0], [1.0, 2.0]]
    """
    (a,) = floats("cholesky", x)
    factor, info = _cholesky.cholesky(square(a, "cholesky"), upper=upper)
    return outcome(factor, info, errors, "cholesky")


def cho_factor(a: Any, lower: bool = False, *, errors: str = RAISE) -> Any:
    """``(c, lower)`` for :func:`cho_solve`: SciPy's spelling of :func:`cholesky`."""
    found = cholesky(a, upper=not lower, errors=errors)
    return (found[0], lower, found[1]) if errors == INFO else (found, lower)


def cho_solve(c_and_lower: tuple[Any, bool], b: Any) -> Array:
    """``x`` with ``A x = b`` from the Cholesky factor of A: ``(..., n, n)`` and ``(n,)`` or ``(..., n, k)``."""
    factor, lower = c_and_lower[:2]
    c, y = floats("cho_solve", factor, b)
    c, y, vector = right_side("cho_solve", square(c, "cho_solve"), y)
    y = triangular(c, y, lower=lower, trans=0 if lower else 2)
    y = triangular(c, y, lower=lower, trans=2 if lower else 0)
    return y[..., 0] if vector else y


def lu_factor(a: Any) -> tuple[Array, Array]:
    """``(lu, piv)``: unit lower L under U in one matrix; row i was exchanged with row ``piv[i]`` (0-based, int32).

    A zero pivot is no failure: the factors are right, and :func:`lu_solve` gives infinities.
    """
    (x,) = floats("lu_factor", a)
    packed, pivots, _, _ = _lu.lu(matrix(x, "lu_factor"))
    return packed, pivots


def lu_solve(lu_and_piv: tuple[Any, Any], b: Any, trans: int = 0) -> Array:
    """``x`` with ``op(A) x = b`` from :func:`lu_factor`; ``trans`` 0, 1, 2 is A, A^T, A^H."""
    packed, y = floats("lu_solve", lu_and_piv[0], b)
    packed, y, vector = right_side("lu_solve", square(packed, "lu_solve"), y)
    perm = permutation_of(as_array(lu_and_piv[1]), packed.shape[-1])
    perm = rlx.broadcast_to(perm, packed.shape[:-1])
    (rows, lead), (order, _) = flat(y), flat(perm[..., None])
    order = order[:, :, 0]
    if trans == 0:
        y = permute_rows(rows, order).reshape((*lead, *y.shape[-2:]))
        y = triangular(packed, triangular(packed, y, lower=True, unit=True), lower=False)
    else:
        y = triangular(packed, y, lower=False, trans=trans)
        y = triangular(packed, y, lower=True, trans=trans, unit=True)
        back = rlx.argsort(cast(order, dt.int64), axis=-1)
        y = permute_rows(flat(y)[0], back).reshape((*lead, *y.shape[-2:]))
    return y[..., 0] if vector else y


def permutation_of(pivots: Array, n: int) -> Array:
    """The permutation vector (int32) of row exchanges: ``A[permutation] = L U``."""
    lead, k = pivots.shape[:-1], pivots.shape[-1]
    p = cast(pivots, dt.int64).reshape((-1, k))
    b = p.shape[0]
    line = counter(n, p, 1, -1)

    def exchange(i: Array, perm: Array) -> Array:
        other = gather(p.transpose(1, 0), i, mode="promise")
        there = gather(perm, counter(b, p), other, mode="promise").reshape((b, 1))
        here = gather(perm.transpose(1, 0), i, mode="promise").reshape((b, 1))
        return rlx.where(rlx.equal(line, i), there, rlx.where(rlx.equal(line, other.reshape((b, 1))), here, perm))

    perm = rlx.fori_loop(0, k, exchange, rlx.broadcast_to(line, (b, n)) + 0) if b and k else \
        rlx.broadcast_to(line, (b, n))
    return cast(perm, dt.int32).reshape((*lead, n))


def lu(a: Any, /, *, permute_l: bool = False, p_indices: bool = False) -> tuple[Array, ...]:
    """``(P, L, U)`` with ``A = P L U`` for ``(..., m, n)``; with ``permute_l``, ``(P L, U)``.

    With ``p_indices`` P is the index vector with ``A = L[P] U``, as in SciPy.
    """
    (x,) = floats("lu", a)
    packed, _, perm, _ = _lu.lu(matrix(x, "lu"))
    m, n = x.shape[-2:]
    l, u = _lu.unit_lower(packed), rlx.triu(packed[..., :min(m, n), :])
    back = rlx.argsort(cast(perm, dt.int64), axis=-1)
    if permute_l:
        rows, lead = flat(l)
        return permute_rows(rows, back.reshape((rows.shape[0], m))).reshape((*lead, *l.shape[-2:])), u
    if p_indices:
        return back, l, u
    return cast(rlx.equal(back[..., :, None], counter(m, packed)), packed.dtype), l, u


def qr(x: Any, /, *, mode: str = "reduced") -> Any:
    """``(Q, R)`` with ``A = Q R``: ``reduced`` (or SciPy's ``economic``), ``complete`` (``full``), or R alone (``r``).

    Shapes ``(..., m, n)``: Q (m, k), R (k, n) with k = min(m, n), or m if complete.
    """
    (a,) = floats("qr", x)
    known = {"reduced": "reduced", "economic": "reduced", "complete": "complete", "full": "complete", "r": "reduced"}
    if mode not in known:
        raise ValueIssue(f"qr() with mode {mode!r}", why=f"the modes are {', '.join(known)}", do="pass one of them")
    q, r = _qr.qr(matrix(a, "qr"), mode=known[mode])
    return r if mode == "r" else QRResult(q, r)


def identity_like(a: Array) -> Array:
    """Identities of the shape of square matrices."""
    n = a.shape[-1]
    return rlx.broadcast_to(eye_like(a, n).reshape((n, n)), a.shape)
