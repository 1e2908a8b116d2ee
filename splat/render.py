"""Rendering: project, list the tiles, composite. Two programs with one number between them, or one with a fixed
room.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from rlx.array.array import Array
from rlx.array.jit import jit
from rlx.core.errors import DeviceError, TraceError, ValueIssue
from rlx.ops.elementwise import maximum
from rlx.ops.movement import concat, expand_dims, stack
from rlx.splat.ops.intersect import count_tiles, intersect
from rlx.splat.ops.project import project
from rlx.splat.ops.rasterize import rasterize
from rlx.splat.ops.sh import spherical_harmonics
from rlx.splat.types import Camera, Gaussians, RenderSettings

#: Capacities are multiples of a quarter of a power of two: at most a quarter is wasted, and few programs are compiled.
SMALLEST = 1 << 12


class Image(NamedTuple):
    """A rendered view.

    Attributes
    ----------
    rgb : (height, width, 3), the background included; not clipped to 1.
    alpha : (height, width) coverage in [0, 1].
    depth : (height, width) sum of depth times weight, in world units; divide by alpha for the expected depth.
    pairs : how many pairs of tile and Gaussian there are (int64). When it exceeds a fixed capacity, the farthest
    Gaussians are missing: render again with more.
    """

    rgb: Array
    alpha: Array
    depth: Array
    pairs: Array


class Projected(NamedTuple):
    """Gaussians on the screen: see :func:`rlx.splat.project`; colours are (N, 3)."""

    means: Array
    depths: Array
    conics: Array
    opacities: Array
    colors: Array
    radii: Array
    pairs: Array


def _look(g: Gaussians, camera: Camera, settings: RenderSettings) -> Projected:
    """Everything up to the number of pairs."""
    kind = g.means.dtype
    view, k = camera.world_to_camera.astype(kind), camera.intrinsics.astype(kind)
    means, depths, conics, compensation, radii = project(
        g.means, g.scales, g.rotations, g.opacities, view, k, width=camera.width, height=camera.height,
        near=settings.near, far=settings.far, blur=settings.blur, radius_clip=settings.radius_clip)
    opacities = g.opacities * compensation if settings.antialiased else g.opacities
    degree = g.degree if settings.sh_degree is None else min(settings.sh_degree, g.degree)
    eye = -(view[:3, :3].T @ view[:3, 3])
    colors = maximum(spherical_harmonics(g.means - expand_dims(eye, axis=0), g.sh, degree=degree) + 0.5, 0)
    pairs = count_tiles(means, radii, width=camera.width, height=camera.height, tile=settings.tile)
    return Projected(means, depths, conics, opacities, colors, radii, pairs)


def _composite(p: Projected, background: Any, *, width: int, height: int, settings: RenderSettings, room: int) -> Image:
    """The image of projected Gaussians, with room for that many pairs."""
    ids, offsets = intersect(p.means, p.radii, p.depths, width=width, height=height, tile=settings.tile, capacity=room)
    features = concat([p.colors, expand_dims(p.depths, axis=1)], axis=1)
    image, alpha = rasterize(p.means, p.conics, features, p.opacities, ids, offsets, width=width, height=height,
                             tile=settings.tile, max_alpha=settings.max_alpha, stop=settings.stop)
    rest = 1 - expand_dims(alpha, axis=2)
    behind = stack([x.astype(alpha.dtype) for x in background])
    return Image(image[:, :, :3] + rest * behind, alpha, image[:, :, 3], p.pairs)


_look_program = jit(_look, static_argnames=("settings",))
_composite_program = jit(_composite, static_argnames=("width", "height", "settings", "room"))
_whole_program = jit(lambda g, camera, background, *, settings, room: _composite(
    _look(g, camera, settings), background, width=camera.width, height=camera.height, settings=settings, room=room),
    static_argnames=("settings", "room"))


def bucket(pairs: int) -> int:
    """The smallest capacity of the series (4, 5, 6, 7) * 2^k, at least SMALLEST, that has room for ``pairs``."""
    need = max(pairs, SMALLEST)
    step = 1 << max((need - 1).bit_length() - 3, 0)
    return -(-need // step) * step


def capacity(gaussians: Gaussians, camera: Camera, settings: RenderSettings | None = None) -> int:
    """Room that ``RenderSettings(capacity=...)`` needs for this view, rounded up to a bucket.

    For training, take the largest over the cameras and add some: a Gaussian may grow.
    """
    s = _static(settings or RenderSettings())
    _eager(gaussians, camera, "capacity")
    return bucket(int(_look_program(gaussians, camera, settings=s).pairs))


def render(gaussians: Gaussians, camera: Camera, settings: RenderSettings | None = None, *,
           device: str | None = None) -> Image:
    """Render Gaussians: colours, coverage and depth, differentiable in everything but sizes.

    Parameters
    ----------
    gaussians : N Gaussians, float32 or float64; N may be 0.
    camera : where from, and the size of the image.
    settings : background, limits, anti-aliasing; see :class:`RenderSettings`.
    device : where to render; the Gaussians' device by default.

    How many pairs of tile and Gaussian there are depends on the data. Outside of traced functions they are counted
    first
    (one number goes to the host) and the list gets the next capacity of a series, so that few programs are compiled.
    In a traced function (jit, grad) give ``RenderSettings(capacity=...)``; compare ``pairs`` with it afterwards.

    The method is that of Kerbl et al., ACM TOG 42(4), 2023, with the limits of gsplat.

    >>> import rlx.splat as splat
    >>> g = splat.Gaussians.create([[0, 0, 0]], [[.3, .3, .3]], [[1, 0, 0, 0]], [0.9], [[[1, 0, 0]]])
    >>> image = splat.render(g, splat.Camera.look_at((0, 0, -3), width=32, height=32))
    >>> image.rgb.shape, bool(image.alpha[16, 16] > 0.8)
    ((32, 32, 3), True)
    """
    gaussians.check()
    camera.check()
    s = settings or RenderSettings()
    g, c = _placed(gaussians, camera, device)
    background, s = tuple([x if isinstance(x, Array) else float(x) for x in s.background]), _static(s)
    image: Image
    if s.capacity is not None:
        image = _whole_program(g, c, background, settings=s, room=s.capacity)
        return image
    _eager(g, c, "render")
    p = _look_program(g, c, settings=s)
    image = _composite_program(p, background, width=c.width, height=c.height, settings=s, room=bucket(int(p.pairs)))
    return image


def _static(s: RenderSettings) -> RenderSettings:
    """The settings without what is an input of the program."""
    return replace(s, background=(0.0, 0.0, 0.0))


def _eager(g: Gaussians, camera: Camera, what: str) -> None:
    parts = (g.means, g.scales, g.rotations, g.opacities, camera.world_to_camera, camera.intrinsics)
    if any(x.is_traced for x in parts):
        raise TraceError(f"{what}() inside a traced function", why="the number of tile intersections is not known yet",
                         do="pass RenderSettings(capacity=n), with n from rlx.splat.capacity(gaussians, camera)")


def _placed(g: Gaussians, camera: Camera, device: str | None) -> tuple[Gaussians, Camera]:
    """Both on one device."""
    if device is not None and g.device != device:
        if g.means.is_traced:
            raise DeviceError(f"render(device={device!r}) of traced Gaussians on {g.device}",
                              why="a traced function runs on one device", do="trace it with the arrays on that device")
        g = g.to_device(device)
    if camera.world_to_camera.device != g.device and not camera.world_to_camera.is_traced:
        camera = camera.to_device(g.device)
    return g, camera


def check_room(image: Image, room: int) -> None:
    """Raise ValueIssue when an image rendered with a fixed capacity lacks Gaussians."""
    if int(image.pairs) > room:
        raise ValueIssue(f"{int(image.pairs)} pairs of tile and Gaussian in room for {room}",
                         why="the farthest Gaussians were left out", do="raise RenderSettings.capacity")


__all__ = ["Image", "Projected", "bucket", "capacity", "check_room", "render"]
