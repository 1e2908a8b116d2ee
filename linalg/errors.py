"""How a factorization that fails says so: one contract on every device.

``errors="raise"`` (the default) raises :class:`LinAlgError` when somebody looks at the result, with the index of the
matrix in its batch and the line that asked. ``errors="nan"`` gives NaN for the matrices that failed and leaves the
others as they are. ``errors="info"`` returns a tuple whose last element is an int32 array of the batch's shape, zero
where all is well. Inside a compiled function there is nobody to raise to: ``raise`` means ``nan`` there.
"""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from rlx.array.array import Array
from rlx.array.define import op_named
from rlx.core.errors import DTypeError, ShapeError, SolverError, ValueIssue
from rlx.core.where import Where
from rlx.ir.op import Sample

RAISE, NAN, INFO = "raise", "nan", "info"


class LinAlgError(SolverError, np.linalg.LinAlgError):
    """A matrix for which the result does not exist, or was not found."""


@op_named("linalg.checked")
def checked(x: Array, info: Array, /, *, what: str) -> Array:
    """``x``, whose failure ``info`` tells (int32 of the batch's shape, 0 for success): see the module."""
    return x


@checked.ref
def _(x: Any, info: Any, *, what: str) -> Any:
    return x


@checked.grad
def _(ct: Array, out: Array, x: Array, info: Array, *, what: str) -> tuple[Array, None]:
    return ct, None


@checked.samples
def _() -> list[Sample]:
    return [Sample((np.ones((2, 2)), np.zeros((), np.int32)), {"what": "cholesky"})]


#: For each kind of failure: what is said of the matrix, why (with the info), and what to do.
_MESSAGES = {
    "cholesky": ("is not positive definite", "its leading minor of order {k} is not",
                 "check that it is symmetric (or Hermitian), add a multiple of the identity, or use rlx.linalg.eigh"),
    "singular": ("is singular", "pivot {k} of its elimination is exactly zero",
                 "use rlx.linalg.lstsq or rlx.linalg.pinv, or errors='nan'"),
    "triangular": ("is singular", "element {k} of its diagonal is zero", "use rlx.linalg.lstsq, or errors='nan'"),
    "converge": ("has no decomposition", "it holds NaN or infinity, or the iteration did not converge",
                 "check the matrix with rlx.isfinite"),
}


def _error(info: Any, where: Where, *, what: str) -> LinAlgError:
    """The error of the first matrix of the batch that failed."""
    bad = np.argwhere(np.asarray(info))
    index = tuple(int(i) for i in bad[0])
    k = int(np.asarray(info)[index])
    said, why, do = _MESSAGES[what]
    place = f"matrix {list(index) if len(index) > 1 else index[0]} of the batch" if index else "the matrix"
    count = f" ({len(bad)} of {np.size(info)} failed)" if index else ""
    return LinAlgError(f"{place} {said}{count}", where=where.short, why=why.format(k=k), do=do)


checked.rules["check"] = _error


def outcome(results: tuple[Array, ...] | Array, info: Array, errors: str, what: str) -> Any:
    """The results by the contract: watched, as they are (NaN where it failed), or with the info."""
    many = results if isinstance(results, tuple) else (results,)
    if errors == INFO:
        return (*many, info)
    if errors == RAISE:
        many = tuple([checked(r, info, what=what) for r in many])
    elif errors != NAN:
        bad_mode(errors)
    return many if isinstance(results, tuple) else many[0]


def bad_mode(errors: Any) -> NoReturn:
    """Refuse an unknown ``errors=``."""
    raise ValueIssue(f"errors={errors!r}", why="the modes are 'raise', 'nan' and 'info'", do="pass one of them")


def matrix(x: Array, name: str) -> Array:
    """``x``, which must have two axes at least."""
    if x.ndim < 2:
        raise MatrixShapeError(f"{name}() of an array of shape {x.shape}", why="it needs matrices: two axes at least",
                               do="add axes with x[None, :]")
    return x


def square(x: Array, name: str) -> Array:
    """``x``, which must be square matrices."""
    matrix(x, name)
    if x.shape[-1] != x.shape[-2]:
        raise MatrixShapeError(f"{name}() of an array of shape {x.shape}", why="its last two axes differ",
                               do="pass square matrices")
    return x


class MatrixShapeError(ShapeError, np.linalg.LinAlgError):
    """Shapes that are not those of the matrices an operation takes."""


class MatrixDTypeError(DTypeError, np.linalg.LinAlgError):
    """A data type in which matrices are not factored."""
