"""What the loops of compositing share: the image in tiles, Gaussians in list order, and one step of a pixel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from rlx.array.array import Array
from rlx.array.build import broadcast, cast
from rlx.core import dtype as dt
from rlx.core.errors import ShapeError
from rlx.ops.creation import ones, zeros
from rlx.ops.elementwise import exp, minimum, where
from rlx.ops.index import gather
from rlx.ops.movement import iota, pad_with, permute_dims, reshape, slice_of
from rlx.splat.ops.intersect import grid
from rlx.splat.ops.project import MIN_ALPHA
from rlx.splat.sizes import length


@dataclass(frozen=True)
class Frame:
    """The image and the limits of compositing."""

    width: int
    height: int
    tile: int
    max_alpha: float
    stop: float

    @property
    def shape(self) -> tuple[int, int]:
        """Tiles, and pixels of a tile: the layout of everything that a pixel carries."""
        columns, rows = grid(self.width, self.height, self.tile)
        return columns * rows, self.tile * self.tile


class Splats(NamedTuple):
    """What the loop reads, one array a quantity, in the order of the list: centre, conic, opacity, features."""

    cx: Array
    cy: Array
    a: Array
    b: Array
    c: Array
    opacity: Array
    features: tuple[Array, ...]

    def at(self, index: Array) -> Splats:
        """The values at positions of the list."""
        read: Callable[[Array], Array] = lambda x: gather(x, index)
        return Splats(read(self.cx), read(self.cy), read(self.a), read(self.b), read(self.c), read(self.opacity),
                      tuple([read(f) for f in self.features]))


class Hit(NamedTuple):
    """One Gaussian at every pixel: offset from its centre, ``exp(-sigma)``, capped alpha, and whether it counts."""

    dx: Array
    dy: Array
    falloff: Array
    alpha: Array
    counts: Array


def in_order(means: Array, conics: Array, features: Array, opacities: Array, ids: Array) -> Splats:
    """Quantities gathered once into the order of the list, so that the loop reads memory in order."""
    columns = tuple([features[:, i] for i in range(length(features, 1))])
    given = Splats(means[:, 0], means[:, 1], conics[:, 0], conics[:, 1], conics[:, 2], opacities, columns)
    return given.at(ids)


def pixels(f: Frame, dtype: dt.DType, device: str | None) -> tuple[Array, Array]:
    """Centres of the pixels in the layout (tiles, pixels of a tile)."""
    columns, _ = grid(f.width, f.height, f.tile)
    tile = reshape(iota(f.shape[0], dt.int32, device), (-1, 1))
    pixel = reshape(iota(f.shape[1], dt.int32, device), (1, -1))
    x = (tile % columns) * f.tile + pixel % f.tile
    y = (tile // columns) * f.tile + pixel // f.tile
    return cast(x, dtype) + 0.5, cast(y, dtype) + 0.5


def hit(s: Splats, px: Array, py: Array, f: Frame) -> Hit:
    """One Gaussian at every pixel."""
    dx, dy = px - s.cx, py - s.cy
    sigma = 0.5 * (s.a * dx * dx + s.c * dy * dy) + s.b * dx * dy
    falloff = exp(-sigma)
    alpha = minimum(s.opacity * falloff, f.max_alpha)
    return Hit(dx, dy, falloff, alpha, (sigma >= 0) & (alpha >= MIN_ALPHA))


class State(NamedTuple):
    """What a pixel carries: place in the list, whether it goes on, transmittance, and features so far."""

    at: Array
    active: Array
    rest: Array
    sums: tuple[Array, ...]


def start(f: Frame, offsets: Array, channels: int, dtype: dt.DType) -> tuple[State, Array]:
    """The state before the first Gaussian, and the end of each pixel's list."""
    device = offsets._value.node.device
    tiles = f.shape[0]
    begin = broadcast(reshape(slice_of(offsets, (0,), (tiles,)), (-1, 1)), f.shape)
    end = broadcast(reshape(slice_of(offsets, (1,), (tiles,)), (-1, 1)), f.shape)
    zero = zeros(f.shape, dtype=dtype, device=device)
    return State(begin, begin < end, ones(f.shape, dtype=dtype, device=device), (zero,) * channels), end


def step(v: State, h: Hit, end: Array, f: Frame) -> tuple[State, Array, Array]:
    """One Gaussian passed, the sums left as they are; also whether it is drawn at each pixel, and its weight there."""
    rest = v.rest * (1 - h.alpha)
    hits = v.active & h.counts
    stops = hits & (rest <= f.stop)
    drawn = hits & ~stops
    at = where(v.active, v.at + 1, v.at)
    passed = State(at, v.active & ~stops & (at < end), where(drawn, rest, v.rest), v.sums)
    return passed, drawn, where(drawn, h.alpha * v.rest, 0)


def image(x: Array, f: Frame) -> Array:
    """(tiles, pixels of a tile) as (height, width)."""
    columns, rows = grid(f.width, f.height, f.tile)
    whole = permute_dims(reshape(x, (rows, columns, f.tile, f.tile)), (0, 2, 1, 3))
    return slice_of(reshape(whole, (rows * f.tile, columns * f.tile)), (0, 0), (f.height, f.width))


def tiled(x: Array, f: Frame) -> Array:
    """Inverse of :func:`image`; pixels outside of the image are 0."""
    columns, rows = grid(f.width, f.height, f.tile)
    whole = pad_with(x, (0, 0), (rows * f.tile - f.height, columns * f.tile - f.width), 0)
    out: Array = reshape(permute_dims(reshape(whole, (rows, f.tile, columns, f.tile)), (0, 2, 1, 3)), f.shape)
    return out


def check(means: Any, conics: Any, features: Any, opacities: Any, offsets: Any, f: Frame) -> None:
    """Raise ShapeError unless the shapes are those of ``rasterize``."""
    n = means[0] if means else None
    good = means == (n, 2) and conics == (n, 3) and len(features) == 2 and features[0] == n and opacities == (n,)
    if not good or features[1] < 1:
        raise ShapeError(
            f"rasterize() of arrays of shapes {means}, {conics}, {features}, {opacities}",
            why=f"they must be ({n}, 2), ({n}, 3), ({n}, C) and ({n},)",
            do="pass one row for each Gaussian",
        )
    if offsets != (f.shape[0] + 1,):
        raise ShapeError(f"rasterize() with offsets of shape {offsets}", why=f"the image has {f.shape[0]} tiles",
                         do="use the offsets of intersect() with the same width, height and tile")
