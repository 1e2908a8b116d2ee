"""What the public functions do to their arguments: floats of one type, one batch shape, named results."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import rlx
from rlx.array.array import Array
from rlx.array.build import broadcast, cast, promote
from rlx.array.hooks import default_float
from rlx.core import dtype as dt
from rlx.core.errors import ShapeError
from rlx.core.shape import broadcast_shapes
from rlx.linalg.errors import MatrixDTypeError, MatrixShapeError

#: What the factorizations compute in.
TAKEN = (dt.float32, dt.float64, dt.complex64, dt.complex128)


def floats(name: str, *xs: Any) -> list[Array]:
    """Arrays of one floating or complex type; integers and booleans become the default float."""
    arrays = promote(*xs)
    if not arrays[0].dtype.is_inexact:
        arrays = [cast(a, default_float(a.device)) for a in arrays]
    if arrays[0].dtype not in TAKEN:
        raise MatrixDTypeError(f"{name}() of {arrays[0].dtype.name}",
                               why="matrices are factored in float32, float64, complex64 and complex128",
                               do="cast it with .astype(rlx.float32)")
    return arrays


def same_batch(name: str, a: Array, b: Array) -> tuple[Array, Array]:
    """Both with the broadcast of their leading axes, which all but the last two are."""
    try:
        lead = broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except ShapeError as e:
        raise MatrixShapeError(f"{name}() of shapes {a.shape} and {b.shape}", why="their batches do not fit each other",
                               do="leading axes must be equal or 1") from e
    return broadcast(a, (*lead, *a.shape[-2:])), broadcast(b, (*lead, *b.shape[-2:]))


def right_side(name: str, a: Array, b: Array) -> tuple[Array, Array, bool]:
    """(a, b as matrices, whether b was one vector) for ``a x = b`` with n equations."""
    vector = b.ndim == 1
    if vector:
        b = rlx.expand_dims(b, axis=-1)
    if b.ndim < 2 or b.shape[-2] != a.shape[-2]:
        raise MatrixShapeError(
            f"Incompatible dimensions: {name}() with a matrix of shape {a.shape} and right sides of shape {b.shape}",
            why=f"there are {a.shape[-2]} equations", do="the right sides need as many rows")
    a, b = same_batch(name, a, b)
    return a, b, vector


def eps_of(a: Array) -> float:
    """The spacing of numbers near 1 in the dtype's real part."""
    return float(np.finfo(a.dtype.real.numpy).eps)


class QRResult(NamedTuple):
    """``A = Q R``."""

    Q: Array
    R: Array


class EigResult(NamedTuple):
    """``A v = w v``, vectors as columns."""

    eigenvalues: Array
    eigenvectors: Array


class EighResult(NamedTuple):
    """``A V = V diag(w)``, ascending, vectors as columns."""

    eigenvalues: Array
    eigenvectors: Array


class SVDResult(NamedTuple):
    """``A = U diag(S) Vh``, S descending."""

    U: Array
    S: Array
    Vh: Array


class SlogdetResult(NamedTuple):
    """``det = sign * exp(logabsdet)``."""

    sign: Array
    logabsdet: Array


class LstsqResult(NamedTuple):
    """The least-squares solution, sums of squared residuals, effective rank, singular values."""

    x: Array
    residuals: Array
    rank: Array
    singular_values: Array
