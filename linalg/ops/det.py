"""The determinant, as an op of its own: its gradient exists where the factorization that computes it has none."""

from __future__ import annotations

from typing import Any

import numpy as np

import rlx
from rlx.array.array import Array
from rlx.array.build import cast
from rlx.array.define import op_named
from rlx.core import dtype as dt
from rlx.ir.op import Sample
from rlx.linalg.diagonals import diagonal
from rlx.linalg.ops.common import adjoint, batch_first, cols_of, counter, eye_like, filled, flat, random, rows_of
from rlx.linalg.ops.lu import lu, solve
from rlx.linalg.ops.svd import svd


@op_named("linalg.det")
def det(a: Array, /) -> Array:
    """The determinant of ``(..., n, n)``: the product of the pivots, 0 for a singular matrix."""
    packed, parity = factored(a)
    return rlx.prod(diagonal(packed), axis=-1) * parity


def factored(a: Array) -> tuple[Array, Array]:
    """The packed LU, and the sign of its row exchanges."""
    packed, pivots, _, _ = lu(a)
    moved = cast(rlx.not_equal(pivots, counter(pivots.shape[-1], a)), dt.int64)
    return packed, cast(1 - 2 * rlx.remainder(rlx.sum(moved, axis=-1), 2), a.dtype)


@det.ref
def _(a: Any) -> Any:
    return np.linalg.det(a).astype(a.dtype)


@det.grad
def _(ct: Array, out: Array, a: Array) -> tuple[Array]:
    """``Abar = ct conj(cof A)``: the cofactors are ``det(A) A^-T``, or by singular values where A has no inverse."""
    x, lead = flat(a)
    b, n = x.shape[:2]
    if 0 in (b, n):
        return (filled(a, a.shape),)
    inverse, _, _, info = solve(x, rlx.broadcast_to(eye_like(x, n), x.shape))
    value = out.reshape((b, 1, 1))
    singular = rlx.not_equal(info, 0).reshape((b, 1, 1))
    regular = rlx.conj(value) * adjoint(rlx.where(singular, 0, inverse))
    found = rlx.cond(rlx.any(singular), lambda m, r: rlx.where(singular, _by_singular_values(m), r),
                     lambda m, r: r, x, regular)
    return ((found.reshape((*lead, n, n)) * ct[..., None, None]),)


def _by_singular_values(x: Array) -> Array:
    """``conj(cof A) = conj(det U det V^H) U diag(p) V^H``, p_i the product of all singular values but the i-th."""
    n = x.shape[1]
    u, s, vh, _ = svd(x, full=False)
    itself = rlx.equal(rows_of(n, x), cols_of(n, x))
    others = rlx.prod(rlx.where(itself, 1, s[:, None, :]), axis=2)
    phase = rlx.conj(det(u) * det(vh)).reshape((-1, 1, 1))
    return phase * rlx.matmul(u * cast(others, u.dtype)[:, None, :], vh)


det.batch(batch_first(det, 1))


@det.samples
def _() -> list[Sample]:
    out = [Sample((random((2, n, n), dtype),), name=f"{n}-{dtype}", tolerance=200.0, grad=n < 10)
           for n, dtype in ((1, "float64"), (3, "complex128"), (5, "float32"), (6, "float64"), (40, "float64"))]
    out.append(Sample((np.array([[1.0, 2.0], [2.0, 4.0]]),), name="singular", edge=True, grad=False))
    return out
