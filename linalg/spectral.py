"""Eigenvalues and singular values by name."""

from __future__ import annotations

from typing import Any

import rlx
from rlx.array.array import Array
from rlx.core.errors import ValueIssue
from rlx.linalg.arguments import EighResult, EigResult, SVDResult, floats
from rlx.linalg.errors import INFO, RAISE, matrix, outcome, square
from rlx.linalg.ops import eig as _eig
from rlx.linalg.ops import eigh as _eigh
from rlx.linalg.ops import svd as _svd


def _named(kind: Any, found: tuple[Array, ...], errors: str) -> Any:
    """The results under their names; with the info, a plain tuple."""
    return found if errors == INFO else kind(*found)


def _upper(uplo: str) -> bool:
    if uplo.upper() not in ("L", "U"):
        raise ValueIssue(f"UPLO={uplo!r}", why="it names the triangle that is read", do="pass 'L' or 'U'")
    return uplo.upper() == "U"


def eigh(x: Any, /, UPLO: str = "L", *, errors: str = RAISE) -> Any:
    """``(w, V)`` with ``A V = V diag(w)`` for Hermitian ``(..., n, n)``: w real and ascending, V unitary.

    Only one triangle is read. The gradient is finite for equal eigenvalues too: it is that of functions which see
    their common subspace only, not how its vectors were chosen.

    >>> import rlx
    >>> rlx.linalg.eigh([[2.0, 0.0], [0.0, 1.0]]).eigenvalues.tolist()
    [1.0, 2.0]
    """
    (a,) = floats("eigh", x)
    w, v, info = _eigh.eigh(square(a, "eigh"), upper=_upper(UPLO))
    return _named(EighResult, outcome((w, v), info, errors, "converge"), errors)


def eigvalsh(x: Any, /, UPLO: str = "L", *, errors: str = RAISE) -> Any:
    """The eigenvalues of Hermitian ``(..., n, n)``, real and ascending."""
    (a,) = floats("eigvalsh", x)
    w, info = _eigh.eigvalsh(square(a, "eigvalsh"), upper=_upper(UPLO))
    return outcome(w, info, errors, "converge")


def eig(x: Any, /, *, errors: str = RAISE) -> Any:
    """``(w, V)`` with ``A V = V diag(w)`` for any ``(..., n, n)``: complex, in no order, columns of norm 1.

    Always complex, as the Array API asks: whether all eigenvalues are real is known only when they are.
    """
    (a,) = floats("eig", x)
    w, v, info = _eig.eig(square(a, "eig"))
    return _named(EigResult, outcome((w, v), info, errors, "converge"), errors)


def eigvals(x: Any, /, *, errors: str = RAISE) -> Any:
    """The eigenvalues of any ``(..., n, n)``, complex, in no order."""
    (a,) = floats("eigvals", x)
    w, info = _eig.eigvals(square(a, "eigvals"))
    return outcome(w, info, errors, "converge")


def svd(x: Any, /, full_matrices: bool = True, *, compute_uv: bool = True, hermitian: bool = False,
        errors: str = RAISE) -> Any:
    """``(U, S, Vh)`` with ``A = U diag(S) Vh`` for ``(..., m, n)``: S real and descending, k = min(m, n) of them.

    U is (m, m) and Vh (n, n), or (m, k) and (k, n) without ``full_matrices``. ``hermitian`` takes A for Hermitian and
    goes through :func:`eigh`. Without ``compute_uv``, S alone.
    """
    (a,) = floats("svd", x)
    matrix(a, "svd")
    if hermitian:
        return _hermitian(square(a, "svd"), compute_uv, errors)
    if not compute_uv:
        return svdvals(a, errors=errors)
    u, s, vh, info = _svd.svd(a, full=full_matrices)
    return _named(SVDResult, outcome((u, s, vh), info, errors, "converge"), errors)


def _hermitian(a: Array, compute_uv: bool, errors: str) -> Any:
    """By ``A = V diag(w) V^H``: the singular values are |w|."""
    w, v, info = _eigh.eigh(a)
    s = rlx.abs(w)
    order = rlx.argsort(s, axis=-1, descending=True)
    s = rlx.take_along_axis(s, order, axis=-1)
    if not compute_uv:
        return outcome(s, info, errors, "converge")
    sign = rlx.where(rlx.take_along_axis(w, order, axis=-1) < 0, -1.0, 1.0)
    u = rlx.take_along_axis(v, order[..., None, :], axis=-1)
    vh = rlx.conj(rlx.matrix_transpose(u * sign[..., None, :].astype(u.dtype)))
    return _named(SVDResult, outcome((u, s, vh), info, errors, "converge"), errors)


def svdvals(x: Any, /, *, errors: str = RAISE) -> Any:
    """The singular values of ``(..., m, n)``, descending."""
    (a,) = floats("svdvals", x)
    s, info = _svd.svdvals(matrix(a, "svdvals"))
    return outcome(s, info, errors, "converge")
