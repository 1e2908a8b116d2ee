"""Projection of 3D Gaussians to 2D: the EWA approximation of a perspective camera."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.array.array import Array
from rlx.array.define import op_named
from rlx.core import dtype as dt
from rlx.core.errors import ShapeError
from rlx.ir.op import Sample
from rlx.ops.control import stop_gradient
from rlx.ops.elementwise import ceil, log, maximum, minimum, sqrt, where
from rlx.ops.movement import stack
from rlx.splat.sizes import length

#: Contributions below one step of an 8-bit image are dropped; it also bounds a Gaussian's extent on the screen.
MIN_ALPHA = 1 / 255
#: Half-width of a Gaussian of opacity 1 in standard deviations: sqrt(2 ln 255) = 3.329.
MAX_EXTENT = 3.33
#: The projection is linearized at most this much (as a share of the half image) outside of the image.
MARGIN = 0.3

Columns = tuple[Array, ...]


def _columns(x: Array) -> Columns:
    return tuple([x[:, i] for i in range(length(x, 1))])


def rotation(q: Array) -> list[list[Array]]:
    """Rotation matrices, as 3 x 3 columns, of quaternions ``w, x, y, z`` of any length above 0."""
    w, x, y, z = _columns(q)
    s = 2 / maximum(w * w + x * x + y * y + z * z, 1e-24)
    return [[1 - s * (y * y + z * z), s * (x * y - w * z), s * (x * z + w * y)],
            [s * (x * y + w * z), 1 - s * (x * x + z * z), s * (y * z - w * x)],
            [s * (x * z - w * y), s * (y * z + w * x), 1 - s * (x * x + y * y)]]


def _camera_axes(scales: Array, rotations: Array, view: Array) -> list[list[Array]]:
    """``W R S``: the three scaled axes of each Gaussian in camera coordinates; the covariance is its square."""
    r, s = rotation(rotations), _columns(scales)
    return [[(view[i, 0] * r[0][j] + view[i, 1] * r[1][j] + view[i, 2] * r[2][j]) * s[j] for j in range(3)]
            for i in range(3)]


def _screen(p: Columns, m: list[list[Array]], k: Array, width: int, height: int) -> Columns:
    """The 2D covariance ``J M M^T J^T`` (xx, xy, yy), with J the projection's derivative at p."""
    x, y, z = p
    fx, fy, cx, cy = k[0, 0], k[1, 1], k[0, 2], k[1, 2]
    wide, tall = MARGIN * width / (2 * fx), MARGIN * height / (2 * fy)
    u = minimum(maximum(x / z, -(cx / fx + wide)), (width - cx) / fx + wide)
    v = minimum(maximum(y / z, -(cy / fy + tall)), (height - cy) / fy + tall)
    a = [(fx / z) * (m[0][j] - u * m[2][j]) for j in range(3)]
    b = [(fy / z) * (m[1][j] - v * m[2][j]) for j in range(3)]
    return (a[0] * a[0] + a[1] * a[1] + a[2] * a[2], a[0] * b[0] + a[1] * b[1] + a[2] * b[2],
            b[0] * b[0] + b[1] * b[1] + b[2] * b[2])


@op_named("splat.project")
def project(
    means: Array,
    scales: Array,
    rotations: Array,
    opacities: Array,
    world_to_camera: Array,
    intrinsics: Array,
    /,
    *,
    width: int,
    height: int,
    near: float = 0.01,
    far: float = 1e10,
    blur: float = 0.3,
    radius_clip: float = 0.0,
) -> tuple[Array, Array, Array, Array, Array]:
    """Project Gaussians to the screen: ``S2 = J W S3 W^T J^T + blur I`` (Zwicker et al., EWA splatting, 2001).

    Shapes: means (N, 3), scales (N, 3), rotations (N, 4) as w x y z, opacities (N,), world_to_camera (4, 4),
    intrinsics (3, 3). Results: centres (N, 2) in pixels; depths (N,); conics (N, 3), the entries xx, xy, yy of the
    inverse of S2; compensation (N,), ``sqrt(det / det blurred)``; radii (N, 2), int32 half-widths in pixels, both 0
    for a Gaussian that is not drawn (outside of the depths or the image, too small, too faint, or not finite).
    """
    _check(means.shape, scales.shape, rotations.shape, opacities.shape, world_to_camera.shape, intrinsics.shape)
    w, k = world_to_camera, intrinsics
    mx, my, mz = _columns(means)
    x, y, z = [w[i, 0] * mx + w[i, 1] * my + w[i, 2] * mz + w[i, 3] for i in range(3)]
    inside = (z > near) & (z < far)
    # A Gaussian behind the camera is replaced by one in front, so that values and gradients stay finite.
    x, y, z = where(inside, x, 0), where(inside, y, 0), where(inside, z, 1)
    sxx, sxy, syy = _screen((x, y, z), _camera_axes(scales, rotations, w), k, width, height)
    sharp = sxx * syy - sxy * sxy
    sxx, syy = sxx + blur, syy + blur
    det = sxx * syy - sxy * sxy
    solid = det > 0
    safe = where(solid, det, 1)
    ratio = sharp / safe
    compensation = where(ratio > 1e-12, sqrt(where(ratio > 1e-12, ratio, 1)), 0)
    centres = stack([k[0, 0] * x / z + k[0, 2], k[1, 1] * y / z + k[1, 2]], axis=1)
    conics = stack([syy / safe, -sxy / safe, sxx / safe], axis=1)
    radii = _radii(stop_gradient(sxx), stop_gradient(syy), stop_gradient(opacities), stop_gradient(centres),
                   inside & solid, width, height, radius_clip)
    return centres, z, conics, compensation, radii


def _radii(sxx: Array, syy: Array, opacities: Array, centres: Array, solid: Array, width: int, height: int,
           clip: float) -> Array:
    """Half-widths of the box outside of which ``opacity * exp(-sigma)`` is below MIN_ALPHA; 0 where not drawn."""
    bright = opacities >= MIN_ALPHA
    extent = minimum(sqrt(2 * log(where(bright, opacities * (1 / MIN_ALPHA), 1))), MAX_EXTENT)
    rx, ry = ceil(extent * sqrt(where(solid, sxx, 1))), ceil(extent * sqrt(where(solid, syy, 1)))
    cx, cy = centres[:, 0], centres[:, 1]
    seen = (cx + rx > 0) & (cx - rx < width) & (cy + ry > 0) & (cy - ry < height)
    drawn = solid & bright & seen & ((rx > clip) | (ry > clip))
    # Half-widths beyond the image cannot matter; the bound keeps the cast exact.
    out: Array = stack([where(drawn, minimum(r, 1 << 20), 0) for r in (rx, ry)], axis=1).astype(dt.int32)
    return out


def _check(*shapes: Any) -> None:
    n = shapes[0][0] if shapes[0] else None
    want = ((n, 3), (n, 3), (n, 4), (n,), (4, 4), (3, 3))
    if tuple(shapes) != want:
        raise ShapeError(f"project() of arrays of shapes {', '.join(map(str, shapes))}",
                         why=f"they must be {', '.join(map(str, want))}", do="pass one row for each Gaussian")


@project.ref
def _(
    means: Any,
    scales: Any,
    rotations: Any,
    opacities: Any,
    world_to_camera: Any,
    intrinsics: Any,
    *,
    width: int,
    height: int,
    near: float = 0.01,
    far: float = 1e10,
    blur: float = 0.3,
    radius_clip: float = 0.0,
) -> Any:
    """The published matrix form, in float64, one Gaussian at a time."""
    from scipy.spatial.transform import Rotation
    out: list[list[Any]] = [[], [], [], [], []]
    w, k = world_to_camera.astype(np.float64), intrinsics.astype(np.float64)
    for m, s, q, o in zip(means, scales, rotations, opacities, strict=True):
        p = w[:3, :3] @ m + w[:3, 3]
        inside = near < p[2] < far
        p = p if inside else np.array([0.0, 0.0, 1.0])
        r = Rotation.from_quat(np.roll(q.astype(np.float64), -1)).as_matrix()
        cov = w[:3, :3] @ (r * s.astype(np.float64) ** 2) @ r.T @ w[:3, :3].T
        f, c = k[[0, 1], [0, 1]], k[:2, 2]
        size = np.array([width, height])
        u = np.clip(p[:2] / p[2], -(c / f + MARGIN * size / (2 * f)), (size - c) / f + MARGIN * size / (2 * f))
        j = np.array([[f[0] / p[2], 0, -f[0] * u[0] / p[2]], [0, f[1] / p[2], -f[1] * u[1] / p[2]]])
        s2 = j @ cov @ j.T
        b2 = s2 + blur * np.eye(2)
        centre = f * p[:2] / p[2] + c
        inv = np.linalg.inv(b2)
        extent = min(np.sqrt(2 * np.log(max(o, MIN_ALPHA) / MIN_ALPHA)), MAX_EXTENT)
        radius = np.ceil(extent * np.sqrt(np.diag(b2)))
        drawn = inside and o >= MIN_ALPHA and (radius > radius_clip).any() and \
            (centre + radius > 0).all() and (centre - radius < size).all()
        for part, v in zip(
            out,
            (
                centre,
                p[2],
                [inv[0, 0], inv[0, 1], inv[1, 1]],
                np.sqrt(max(np.linalg.det(s2) / np.linalg.det(b2), 0.0)),
                radius * drawn,
            ),
            strict=True,
        ):
            part.append(v)
    kind = means.dtype
    return (*[np.array(part).astype(kind) for part in out[:4]], np.array(out[4]).astype(np.int32))


def sample_scene(n: int, seed: int = 0) -> tuple[np.ndarray, ...]:
    """Means, scales, rotations, opacities, world_to_camera and intrinsics of a small scene seen at 48 x 32 pixels."""
    rng = np.random.default_rng(seed)
    q = rng.standard_normal((n, 4))
    view = np.eye(4)
    view[:3, 3] = 0.1, -0.2, 4.0
    k = np.array([[40.0, 0, 24.5], [0, 42.0, 15.0], [0, 0, 1]])
    return (rng.uniform(-1, 1, (n, 3)), rng.uniform(0.05, 0.4, (n, 3)), q, rng.uniform(0.1, 0.95, n), view, k)


@project.samples
def _() -> list[Sample]:
    size = {"width": 48, "height": 32}
    args = sample_scene(7)
    low = tuple(a.astype(np.float32) for a in args)
    behind = (np.array([[0, 0, -9.0], [50.0, 0, 0], [0, 0, 0]]), *(a[:3] for a in args[1:4]), *args[4:])
    return [Sample(args, size, name="scene"), Sample(low, size, name="float32", tolerance=16.0),
            Sample(behind, size, name="behind and outside", edge=True, grad=False)]
