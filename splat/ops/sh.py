"""Real spherical harmonics to degree 3, in the order and signs of the published splatting method."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.array.array import Array
from rlx.array.define import op_named
from rlx.core.errors import ShapeError, ValueIssue
from rlx.ir.op import Sample
from rlx.ops.elementwise import maximum, sqrt
from rlx.ops.movement import expand_dims
from rlx.ops.reduce import sum as total

# Normalizations of the real harmonics as polynomials of a unit vector: P.-P. Sloan, JCGT 2(2), 2013, appendix A2.
# C1 = sqrt(3/4pi), C2 = sqrt(15/4pi), sqrt(5/16pi), sqrt(15/16pi); C3 = sqrt(35/32pi), sqrt(105/4pi), sqrt(21/32pi),
# sqrt(7/16pi), sqrt(105/16pi). Odd orders carry the Condon-Shortley sign.
C0 = 0.28209479177387814
C1 = 0.4886025119029199
C2 = (1.0925484305920792, 0.31539156525252005, 0.5462742152960396)
C3 = (0.5900435899266435, 2.890611442640554, 0.4570457994644658, 0.3731763325901154, 1.445305721320277)


def basis(x: Array, y: Array, z: Array, degree: int) -> list[Any]:
    """The ``(degree + 1)^2`` harmonics of unit directions; the first is a number."""
    out: list[Any] = [C0]
    if degree >= 1:
        out += [-C1 * y, C1 * z, -C1 * x]
    if degree >= 2:
        xx, yy, zz = x * x, y * y, z * z
        out += [C2[0] * (x * y), -C2[0] * (y * z), C2[1] * (2 * zz - xx - yy), -C2[0] * (x * z), C2[2] * (xx - yy)]
    if degree >= 3:
        out += [-C3[0] * y * (3 * xx - yy), C3[1] * (x * y) * z, -C3[2] * y * (4 * zz - xx - yy),
                C3[3] * z * (2 * zz - 3 * xx - 3 * yy), -C3[2] * x * (4 * zz - xx - yy), C3[4] * z * (xx - yy),
                -C3[0] * x * (xx - 3 * yy)]
    return out


@op_named("splat.spherical_harmonics")
def spherical_harmonics(directions: Array, coefficients: Array, /, *, degree: int = 3) -> Array:
    """``sum_k coefficients[:, k] Y_k(d / |d|)``: the value of each function along its direction.

    Shapes: directions (N, 3), of any length; coefficients (N, K, C) with K at least ``(degree + 1)^2``; result (N, C).
    A direction of length 0 counts as a very short one (its odd harmonics vanish).
    """
    _check(directions.shape, coefficients.shape, degree)
    # The smallest length keeps the gradient finite at the origin.
    length = sqrt(maximum(total(directions * directions, axis=1), 1e-24))
    x, y, z = (directions[:, i] / length for i in range(3))
    terms = basis(x, y, z, degree)
    out: Array = coefficients[:, 0] * terms[0]
    for k in range(1, len(terms)):
        out = out + coefficients[:, k] * expand_dims(terms[k], axis=1)
    return out


def _check(d: Any, c: Any, degree: int) -> None:
    if degree not in (0, 1, 2, 3):
        raise ValueIssue(f"spherical harmonics of degree {degree!r}", why="they are implemented to degree 3",
                         do="pass 0, 1, 2 or 3")
    if len(d) != 2 or d[1] != 3 or len(c) != 3 or c[0] != d[0] or c[1] < (degree + 1) ** 2:
        raise ShapeError(f"spherical harmonics of degree {degree} with directions {d} and coefficients {c}",
                         why=f"they must be (N, 3) and (N, K, C) with K at least {(degree + 1) ** 2}",
                         do="pass more coefficients, or a lower degree")


@spherical_harmonics.ref
def _(directions: Any, coefficients: Any, *, degree: int = 3) -> Any:
    """Through SciPy's complex harmonics ``Y_l^m``: ``sqrt(2) Im`` for m < 0, ``sqrt(2) Re`` for m > 0."""
    from scipy.special import sph_harm_y
    d = directions.astype(np.float64)
    d = d / np.linalg.norm(d, axis=1, keepdims=True)
    theta, phi = np.arccos(np.clip(d[:, 2], -1, 1)), np.arctan2(d[:, 1], d[:, 0])
    out = np.zeros((len(d), coefficients.shape[2]))
    k = 0
    for l in range(degree + 1):
        for m in range(-l, l + 1):
            v = sph_harm_y(l, abs(m), theta, phi)
            y = v.real if m == 0 else np.sqrt(2) * (v.imag if m < 0 else v.real)
            out += coefficients[:, k] * y[:, None]
            k += 1
    return out.astype(coefficients.dtype)


@spherical_harmonics.samples
def _() -> list[Sample]:
    rng = np.random.default_rng(5)
    d, c = rng.standard_normal((6, 3)), rng.standard_normal((6, 16, 3))
    out = [Sample((d, c), {"degree": k}, name=f"degree {k}") for k in range(4)]
    out.append(Sample((d.astype(np.float32), c.astype(np.float32)), {"degree": 3}, name="float32", tolerance=4.0))
    axes = np.concatenate([np.eye(3), -np.eye(3)]) * 1e3
    return [*out, Sample((axes, c), {"degree": 3}, name="axes", edge=True)]
