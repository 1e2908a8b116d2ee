"""The values a renderer works on: Gaussians, a camera, and how to render. All are frozen pytrees."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from rlx.array.array import Array
from rlx.array.build import as_array
from rlx.array.tree import tree_map
from rlx.core import dtype as dt
from rlx.core.errors import DTypeError, ShapeError, ValueIssue
from rlx.splat.sizes import length

#: Number of spherical-harmonics coefficients -> degree.
DEGREES = {1: 0, 4: 1, 9: 2, 16: 3}


@dataclass(frozen=True)
class Gaussians:
    """``N`` anisotropic 3D Gaussians with view-dependent colour.

    Attributes
    ----------
    means : (N, 3) centres, in world units.
    scales : (N, 3) standard deviations along the own axes, in world units (linear and positive, not logarithms).
    rotations : (N, 4) quaternions ``w, x, y, z`` that turn the own axes into the world's; normalized when used.
    opacities : (N,) peak opacities in [0, 1] (linear, not logits).
    sh : (N, K, 3) spherical-harmonics coefficients of red, green, blue; K is 1, 4, 9 or 16 (degree 0 to 3).
        The colour seen along a direction d is ``max(0, 0.5 + sum_k sh[:, k] Y_k(d))``.

    Files keep logarithms and logits: :meth:`from_raw` and :meth:`to_raw` convert, and are what an optimizer should
    work on.
    """

    means: Array
    scales: Array
    rotations: Array
    opacities: Array
    sh: Array

    @classmethod
    def create(cls, means: Any, scales: Any, rotations: Any, opacities: Any, sh: Any, *, dtype: Any = None,
               device: str | None = None) -> Gaussians:
        """Gaussians from anything NumPy reads, checked; float32 unless ``dtype`` says otherwise.

        >>> import rlx.splat
        >>> g = rlx.splat.Gaussians.create([[0, 0, 0]], [[1, 1, 1]], [[1, 0, 0, 0]], [0.5], [[[1, 0, 0]]])
        >>> len(g), g.degree
        (1, 0)
        """
        kind = dt.as_dtype(dtype).numpy if dtype is not None else np.float32
        if kind not in (np.dtype(np.float32), np.dtype(np.float64), np.float32):
            raise DTypeError(
                f"Gaussians of {kind}", why="rendering takes float32 or float64", do="pass dtype=rlx.float32"
            )
        parts = [x if isinstance(x, Array) else as_array(np.asarray(x, kind), device=device)
                 for x in (means, scales, rotations, opacities, sh)]
        made = cls(*parts)
        made.check()
        return made

    @classmethod
    def from_raw(
        cls, means: Array, log_scales: Array, rotations: Array, logit_opacities: Array, sh: Array
    ) -> Gaussians:
        """Gaussians from unbounded parameters: ``scales = exp(log_scales)``, ``opacities = sigmoid(logits)``."""
        from rlx.ops.elementwise import exp
        return cls(means, exp(log_scales), rotations, 1 / (1 + exp(-logit_opacities)), sh)

    def to_raw(self) -> tuple[Array, Array, Array, Array, Array]:
        """Unbounded parameters: means, log scales, rotations, opacity logits, sh. Opacities are kept off 0 and 1."""
        from rlx.ops.elementwise import log, maximum, minimum
        o = minimum(maximum(self.opacities, 1e-6), 1 - 1e-6)
        return self.means, log(maximum(self.scales, 1e-12)), self.rotations, log(o / (1 - o)), self.sh

    def __len__(self) -> int:
        return length(self.means)

    @property
    def degree(self) -> int:
        """Degree of the spherical harmonics, 0 to 3."""
        return DEGREES[length(self.sh, 1)]

    @property
    def device(self) -> str:
        """Where the arrays are."""
        return self.means.device

    def to_device(self, device: str) -> Gaussians:
        """The same Gaussians on another device."""
        moved: Gaussians = tree_map(lambda x: x.to_device(device), self)
        return moved

    def astype(self, dtype: Any) -> Gaussians:
        """The same Gaussians in another floating type."""
        cast: Gaussians = tree_map(lambda x: x.astype(dtype), self)
        return cast

    def check(self) -> None:
        """Raise ShapeError or DTypeError unless shapes and types fit together."""
        n = self.means.shape[0] if self.means.ndim else None
        want = {"means": (n, 3), "scales": (n, 3), "rotations": (n, 4), "opacities": (n,)}
        for name, shape in want.items():
            got = getattr(self, name).shape
            if got != shape:
                raise ShapeError(f"Gaussians with {name} of shape {got}", why=f"{name} must have the shape {shape}",
                                 do="pass one row for each Gaussian")
        s = self.sh.shape
        if len(s) != 3 or s[0] != n or s[1] not in DEGREES or s[2] != 3:
            raise ShapeError(f"Gaussians with sh of shape {s}", why=f"it must be ({n}, K, 3) with K one of 1, 4, 9, 16",
                             do="pass the coefficients of degree 0, 1, 2 or 3 for red, green and blue")
        kinds = {getattr(self, k).dtype for k in (*want, "sh")}
        if len(kinds) != 1 or next(iter(kinds)) not in (dt.float32, dt.float64):
            raise DTypeError(f"Gaussians of {', '.join(sorted(k.name for k in kinds))}",
                             why="all arrays are float32, or all float64", do="use .astype(rlx.float32)")

    def __repr__(self) -> str:
        return f"Gaussians({len(self)}, degree {self.degree}, {self.means.dtype.name} on {self.device})"


@dataclass(frozen=True)
class Camera:
    """A pinhole camera. Camera axes: x to the right, y down, z forward (the OpenCV convention).

    Attributes
    ----------
    world_to_camera : (4, 4) rigid transformation.
    intrinsics : (3, 3) ``[[fx, 0, cx], [0, fy, cy], [0, 0, 1]]`` in pixels; the centre of the first pixel is (0.5,
    0.5). width, height : size of the image in pixels (static: another size is another program).
    """

    world_to_camera: Array
    intrinsics: Array
    width: int = field(metadata={"static": True})
    height: int = field(metadata={"static": True})

    @classmethod
    def create(
        cls, world_to_camera: Any, intrinsics: Any, width: int, height: int, *, device: str | None = None
    ) -> Camera:
        """A camera from matrices, checked."""
        parts = [x if isinstance(x, Array) else as_array(np.asarray(x, np.float32), device=device)
                 for x in (world_to_camera, intrinsics)]
        made = cls(parts[0], parts[1], width, height)
        made.check()
        return made

    @classmethod
    def look_at(
        cls,
        eye: Sequence[float],
        target: Sequence[float] = (0.0, 0.0, 0.0),
        up: Sequence[float] = (0.0, 1.0, 0.0),
        *,
        width: int,
        height: int,
        fov: float = 50.0,
        device: str | None = None,
    ) -> Camera:
        """A camera at ``eye`` that looks at ``target`` with ``up`` upwards in the image.

        ``fov`` is the *vertical* field of view in degrees; the principal point is the image's centre.

        >>> import rlx.splat
        >>> c = rlx.splat.Camera.look_at((0, 0, -2), width=64, height=48)
        >>> c.world_to_camera[:3, 3].tolist()
        [0.0, 0.0, 2.0]
        """
        if not 0.0 < fov < 180.0:
            raise ValueIssue(f"a camera with fov={fov}", why="the field of view is an angle between 0 and 180 degrees",
                             do="pass degrees, for example 50")
        e, t, u = (np.asarray(v, np.float64) for v in (eye, target, up))
        forward = _unit(t - e, "eye and target are the same point")
        right = _unit(np.cross(forward, u), "up is parallel to the viewing direction")
        rows = np.stack([right, np.cross(forward, right), forward])
        m = np.eye(4)
        m[:3, :3], m[:3, 3] = rows, -rows @ e
        f = 0.5 * height / math.tan(math.radians(fov) / 2)
        return cls.create(m + 0.0, [[f, 0, width / 2], [0, f, height / 2], [0, 0, 1]], width, height, device=device)

    @classmethod
    def orbit(cls, count: int, *, center: Sequence[float], radius: float, elevation: float = 15.0,
              up: Sequence[float] = (0.0, 1.0, 0.0), width: int, height: int, fov: float = 50.0,
              device: str | None = None) -> list[Camera]:
        """``count`` cameras evenly on a circle around ``center``, ``elevation`` degrees above its plane (normal
        ``up``).
        """
        u = _unit(np.asarray(up, np.float64), "up has no length")
        side = np.eye(3)[int(np.argmin(np.abs(u)))]
        a = _unit(np.cross(u, side), "up has no length")
        b = np.cross(u, a)
        lift = math.radians(elevation)
        out = []
        for i in range(count):
            t = 2 * math.pi * i / count
            offset = math.cos(lift) * (math.cos(t) * a + math.sin(t) * b) + math.sin(lift) * u
            eye = np.asarray(center, np.float64) + radius * offset
            out.append(
                cls.look_at(list(eye), list(center), list(u), width=width, height=height, fov=fov, device=device)
            )
        return out

    def check(self) -> None:
        """Raise when the matrices or sizes are not those of a camera."""
        if self.world_to_camera.shape != (4, 4) or self.intrinsics.shape != (3, 3):
            raise ShapeError(f"a camera of matrices {self.world_to_camera.shape} and {self.intrinsics.shape}",
                             why="world_to_camera is 4x4 and intrinsics 3x3", do="pass homogeneous matrices")
        for name in ("width", "height"):
            v = getattr(self, name)
            if not isinstance(v, int) or not 1 <= v <= 1 << 15:
                raise ValueIssue(f"a camera with {name}={v!r}", why="an image has 1 to 32768 pixels a side",
                                 do="pass the size in pixels as an int")

    def to_device(self, device: str) -> Camera:
        """The same camera on another device."""
        moved: Camera = tree_map(lambda x: x.to_device(device), self)
        return moved

    def resized(self, width: int, height: int) -> Camera:
        """The same view on an image of another size."""
        from rlx.ops.movement import stack
        k = self.intrinsics
        rows = stack([k[0] * (width / self.width), k[1] * (height / self.height), k[2]])
        return replace(self, intrinsics=rows, width=width, height=height)


def _unit(v: np.ndarray, why: str) -> np.ndarray:
    n = float(np.linalg.norm(v))
    if not n > 0 or not math.isfinite(n):
        raise ValueIssue("a camera without a direction", why=why, do="move the eye, the target or the up vector")
    return v / n


@dataclass(frozen=True)
class RenderSettings:
    """How to render. Every field but the background is static.

    Attributes
    ----------
    background : red, green, blue behind everything.
    near, far : depths between which a Gaussian is drawn.
    blur : variance in square pixels added to every projected Gaussian: the 0.3 px low-pass of the published method.
    antialiased : scale opacities by ``sqrt(det S / det(S + blur I))``, which keeps the energy of small Gaussians.
    radius_clip : Gaussians whose radius on screen is at most this many pixels are left out.
    sh_degree : highest degree used; None uses all that there are.
    max_alpha : opacity at which one Gaussian is capped (0.999 as in gsplat; the first publication has 0.99).
    stop : a pixel is finished before its transmittance would fall to this.
    tile : side of the square tiles in pixels.
    capacity : room for pairs of tile and Gaussian. None: counted first, and rounded up to a bucket (only outside traced
        functions, where the number can be looked at; see :func:`rlx.splat.capacity`).
    """

    background: tuple[float, float, float] = (0.0, 0.0, 0.0)
    near: float = 0.01
    far: float = 1e10
    blur: float = 0.3
    antialiased: bool = False
    radius_clip: float = 0.0
    sh_degree: int | None = None
    max_alpha: float = 0.999
    stop: float = 1e-4
    tile: int = 16
    capacity: int | None = None

    def __post_init__(self) -> None:
        if not 0 < self.near < self.far:
            raise ValueIssue(f"near={self.near} and far={self.far}", why="depths are positive, near before far",
                             do="pass 0 < near < far")
        if self.sh_degree is not None and self.sh_degree not in (0, 1, 2, 3):
            raise ValueIssue(f"sh_degree={self.sh_degree!r}", why="spherical harmonics go to degree 3",
                             do="pass 0, 1, 2, 3, or None for all")
        if self.tile not in (4, 8, 16, 32, 64):
            raise ValueIssue(f"tile={self.tile!r}", why="tiles are 4, 8, 16, 32 or 64 pixels a side", do="use 16")
