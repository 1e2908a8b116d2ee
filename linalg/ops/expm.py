"""The matrix exponential: scaling, the [13/13] Pade approximant, squaring (Higham 2005)."""

from __future__ import annotations

from typing import Any

import numpy as np

import rlx
from rlx.array.array import Array
from rlx.array.build import cast, constant
from rlx.array.define import op_named
from rlx.ir.op import Sample
from rlx.linalg.ops.common import adjoint, batch_first, eye_like, flat, random
from rlx.linalg.ops.lu import solve

#: The 1-norm up to which [13/13] is accurate to double precision (Higham 2005, table 2.3).
THETA = 5.371920351148152
#: Coefficients of the numerator of [13/13], ascending.
PADE = (64764752532480000.0, 32382376266240000.0, 7771770303897600.0, 1187353796428800.0, 129060195264000.0,
        10559470521600.0, 670442572800.0, 33522128640.0, 1323241920.0, 40840800.0, 960960.0, 16380.0, 182.0, 1.0)


@op_named("linalg.expm")
def expm(a: Array, /) -> Array:
    """``exp(A)`` of ``(..., n, n)``."""
    x, _ = flat(a)
    b, n = x.shape[:2]
    if 0 in (b, n):
        return a
    size = rlx.max(rlx.sum(rlx.abs(x), axis=1), axis=1)
    times = rlx.ceil(rlx.log2(rlx.where(size > THETA, size / THETA, 1)))
    times = rlx.where(rlx.isfinite(times), times, 0)
    # The power of two is made by repeated halving, exactly.
    x = x * cast(rlx.exp2(-times), x.dtype).reshape((b, 1, 1))

    def going(state: Any) -> Array:
        return rlx.any(times > state[1])

    def squared(state: Any) -> Any:
        e, i = state
        return rlx.where((times > i).reshape((b, 1, 1)), rlx.matmul(e, e), e), i + 1

    start = (_rational(x), constant(0, times.dtype, a._value.node.device))
    out: Array = rlx.while_loop(going, squared, start)[0]
    return out.reshape(a.shape)


def _rational(a: Array) -> Array:
    """``r(A) = q(A)^-1 p(A)`` with even and odd parts shared."""
    c = PADE
    one = eye_like(a, a.shape[-1])
    a2 = rlx.matmul(a, a)
    a4 = rlx.matmul(a2, a2)
    a6 = rlx.matmul(a4, a2)
    odd = rlx.matmul(a6, c[13] * a6 + c[11] * a4 + c[9] * a2) + c[7] * a6 + c[5] * a4 + c[3] * a2 + c[1] * one
    odd = rlx.matmul(a, odd)
    even = rlx.matmul(a6, c[12] * a6 + c[10] * a4 + c[8] * a2) + c[6] * a6 + c[4] * a4 + c[2] * a2 + c[0] * one
    return solve(even - odd, even + odd)[0]


@expm.ref
def _(a: Any) -> Any:
    from scipy.linalg import expm as oracle
    return oracle(a)


@expm.grad
def _(ct: Array, out: Array, a: Array) -> tuple[Array]:
    """The adjoint of the Frechet derivative: the corner of ``exp([[A^H, G], [0, A^H]])``."""
    n, h = a.shape[-1], adjoint(a)
    top = rlx.concat([h, ct], axis=-1)
    low = rlx.concat([h * 0, h], axis=-1)
    return (expm(rlx.concat([top, low], axis=-2))[..., :n, n:],)


expm.batch(batch_first(expm, 1))


@expm.samples
def _() -> list[Sample]:
    out = [Sample((random((2, n, n), dtype),), name=f"{n}-{dtype}", tolerance=1e3)
           for n, dtype in ((3, "float64"), (4, "complex128"), (5, "float32"))]
    out.append(Sample((random((4, 4)) * 30,), name="large", tolerance=1e5, edge=True, grad=False))
    out.append(Sample((np.zeros((3, 3)),), name="zero", edge=True, grad=False))
    out.append(Sample((np.array([[0.0, 1.0], [0.0, 0.0]]),), name="nilpotent", edge=True))
    return out


