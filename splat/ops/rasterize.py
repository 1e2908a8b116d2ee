"""Compositing of projected Gaussians, front to back: one loop a pixel over the list of its tile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from rlx.array.array import Array
from rlx.array.build import broadcast, cast
from rlx.array.define import op_named
from rlx.core import dtype as dt
from rlx.core.errors import ShapeError
from rlx.ir.op import Sample
from rlx.ops.control import while_loop
from rlx.ops.creation import full, ones, zeros
from rlx.ops.elementwise import exp, minimum, where
from rlx.ops.index import gather, scatter
from rlx.ops.movement import iota, permute_dims, reshape, slice_of, stack
from rlx.ops.reduce import any as some
from rlx.ops.reduce import sum as total
from rlx.splat.ops.intersect import grid
from rlx.splat.ops.project import MIN_ALPHA


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
        return Splats(*[read(x) for x in self[:6]], tuple([read(f) for f in self.features]))


class Hit(NamedTuple):
    """One Gaussian at every pixel: offset from its centre, ``exp(-sigma)``, capped alpha, and whether it counts."""

    dx: Array
    dy: Array
    falloff: Array
    alpha: Array
    counts: Array


def _splats(means: Array, conics: Array, features: Array, opacities: Array, ids: Array) -> Splats:
    """Quantities gathered once into the order of the list, so that the loop reads memory in order."""
    columns = [means[:, 0], means[:, 1], conics[:, 0], conics[:, 1], conics[:, 2], opacities]
    moved = [gather(c, ids) for c in columns]
    return Splats(*moved, tuple([gather(features[:, i], ids) for i in range(int(features.shape[1]))]))


def _pixels(f: Frame, dtype: dt.DType, device: str | None) -> tuple[Array, Array]:
    """Centres of the pixels in the layout (tiles, pixels of a tile)."""
    columns, _ = grid(f.width, f.height, f.tile)
    tile = reshape(iota(f.shape[0], dt.int32, device), (-1, 1))
    pixel = reshape(iota(f.shape[1], dt.int32, device), (1, -1))
    x = (tile % columns) * f.tile + pixel % f.tile
    y = (tile // columns) * f.tile + pixel // f.tile
    return cast(x, dtype) + 0.5, cast(y, dtype) + 0.5


def _hit(s: Splats, px: Array, py: Array, f: Frame) -> Hit:
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


def _start(f: Frame, offsets: Array, channels: int, dtype: dt.DType) -> tuple[State, Array]:
    """The state before the first Gaussian, and the end of each pixel's list."""
    device = offsets._value.node.device
    tiles = f.shape[0]
    begin = broadcast(reshape(slice_of(offsets, (0,), (tiles,)), (-1, 1)), f.shape)
    end = broadcast(reshape(slice_of(offsets, (1,), (tiles,)), (-1, 1)), f.shape)
    zero = zeros(f.shape, dtype=dtype, device=device)
    return State(begin, begin < end, ones(f.shape, dtype=dtype, device=device), (zero,) * channels), end


def _step(v: State, s: Splats, h: Hit, end: Array, f: Frame) -> tuple[State, Array, Array]:
    """One Gaussian composited; also whether it was drawn at each pixel, and its weight there."""
    rest = v.rest * (1 - h.alpha)
    hits = v.active & h.counts
    stops = hits & (rest <= f.stop)
    drawn = hits & ~stops
    weight = where(drawn, h.alpha * v.rest, 0)
    sums = tuple([c + weight * x for c, x in zip(v.sums, s.features, strict=True)])
    at = where(v.active, v.at + 1, v.at)
    return State(at, v.active & ~stops & (at < end), where(drawn, rest, v.rest), sums), drawn, weight


@op_named("splat.rasterize")
def rasterize(means: Array, conics: Array, features: Array, opacities: Array, ids: Array, offsets: Array, /, *, width: int,
              height: int, tile: int = 16, max_alpha: float = 0.999, stop: float = 1e-4) -> tuple[Array, Array]:
    """Composite Gaussians front to back: ``sum_i f_i a_i prod_{j<i} (1 - a_j)`` at the centre of every pixel.

    ``a_i = min(max_alpha, opacity_i exp(-sigma_i))`` with ``sigma = (xx dx^2 + yy dy^2) / 2 + xy dx dy``; contributions
    below 1/255 are dropped, and a pixel ends before the Gaussian that would bring its transmittance to ``stop``.

    Shapes: means (N, 2) in pixels, conics (N, 3), features (N, C), opacities (N,); ids (I,) and offsets (tiles + 1,),
    int32, from :func:`intersect`. Results: the features (height, width, C) and alpha (height, width), ``1 -``
    the final transmittance.
    """
    f = Frame(width, height, tile, max_alpha, stop)
    _check(means.shape, conics.shape, features.shape, opacities.shape, offsets.shape, f)
    if 0 in (means.shape[0], ids.shape[0]):
        blank = zeros((height, width, int(features.shape[1])), dtype=means.dtype, device=means._value.node.device)
        return blank, zeros((height, width), dtype=means.dtype, device=means._value.node.device)
    splats = _splats(means, conics, features, opacities, ids)
    px, py = _pixels(f, means.dtype, means._value.node.device)
    first, end = _start(f, offsets, int(features.shape[1]), means.dtype)

    def body(v: State) -> State:
        s = splats.at(v.at)
        return _step(v, s, _hit(s, px, py, f), end, f)[0]

    last = while_loop(lambda v: some(v.active), body, first)
    return stack([_image(c, f) for c in last.sums], axis=2), _image(1 - last.rest, f)


def _image(x: Array, f: Frame) -> Array:
    """(tiles, pixels of a tile) as (height, width)."""
    columns, rows = grid(f.width, f.height, f.tile)
    whole = permute_dims(reshape(x, (rows, columns, f.tile, f.tile)), (0, 2, 1, 3))
    return slice_of(reshape(whole, (rows * f.tile, columns * f.tile)), (0, 0), (f.height, f.width))


def _tiles(x: Array, f: Frame) -> Array:
    """Inverse of :func:`_image`; pixels outside of the image are 0."""
    from rlx.ops.movement import pad_with
    columns, rows = grid(f.width, f.height, f.tile)
    whole = pad_with(x, (0, 0), (rows * f.tile - f.height, columns * f.tile - f.width), 0)
    return reshape(permute_dims(reshape(whole, (rows, f.tile, columns, f.tile)), (0, 2, 1, 3)), f.shape)


def _check(means: Any, conics: Any, features: Any, opacities: Any, offsets: Any, f: Frame) -> None:
    n = means[0] if means else None
    good = means == (n, 2) and conics == (n, 3) and len(features) == 2 and features[0] == n and opacities == (n,)
    if not good or features[1] < 1:
        raise ShapeError(f"rasterize() of arrays of shapes {means}, {conics}, {features}, {opacities}",
                         why=f"they must be ({n}, 2), ({n}, 3), ({n}, C) and ({n},)", do="pass one row for each Gaussian")
    if offsets != (f.shape[0] + 1,):
        raise ShapeError(f"rasterize() with offsets of shape {offsets}", why=f"the image has {f.shape[0]} tiles",
                         do="use the offsets of intersect() with the same width, height and tile")


class Back(NamedTuple):
    """The backward loop: the forward state, and gradients by place in the list."""

    k: Array
    state: State
    grads: tuple[Array, ...]


@rasterize.grad
def _(ct: Any, out: Any, means: Array, conics: Array, features: Array, opacities: Array, ids: Array, offsets: Array, *,
      width: int, height: int, tile: int = 16, max_alpha: float = 0.999, stop: float = 1e-4) -> tuple[Array | None, ...]:
    """The loop again, front to back: what is behind a Gaussian is the final sum without the part already seen.

    Gradients of one place of the list are summed over its tile's pixels (no two tiles share a place, so nothing is
    added atomically), and places are summed over Gaussians at the end.
    """
    f = Frame(width, height, tile, max_alpha, stop)
    if 0 in (means.shape[0], ids.shape[0]):
        return means * 0, conics * 0, features * 0, opacities * 0, None, None
    d_image, d_alpha = ct
    channels, device = int(features.shape[1]), means._value.node.device
    zero = zeros((height, width), dtype=means.dtype, device=device)
    d_sums = [_tiles(zero if d_image is None else d_image[:, :, i], f) for i in range(channels)]
    d_rest = -_tiles(zero if d_alpha is None else d_alpha, f)
    finals = [_tiles(out[0][:, :, i], f) for i in range(channels)]
    final_rest = 1 - _tiles(out[1], f)
    splats = _splats(means, conics, features, opacities, ids)
    px, py = _pixels(f, means.dtype, device)
    first, end = _start(f, offsets, channels, means.dtype)
    starts = slice_of(offsets, (0,), (f.shape[0],))

    def body(v: Back) -> Back:
        s = splats.at(v.state.at)
        h = _hit(s, px, py, f)
        after, drawn, weight = _step(v.state, s, h, end, f)
        # d alpha: what this Gaussian adds in front, less what all behind it lose.
        d = -d_rest * final_rest / (1 - h.alpha)
        for dc, x, fin, seen in zip(d_sums, s.features, finals, after.sums, strict=True):
            d = d + dc * (x * v.state.rest - (fin - seen) / (1 - h.alpha))
        d = where(drawn & (s.opacity * h.falloff < f.max_alpha), d, 0)
        d_sigma = -d * h.alpha
        parts = [-d_sigma * (s.a * h.dx + s.b * h.dy), -d_sigma * (s.c * h.dy + s.b * h.dx),
                 0.5 * d_sigma * h.dx * h.dx, d_sigma * h.dx * h.dy, 0.5 * d_sigma * h.dy * h.dy, d * h.falloff,
                 *[weight * dc for dc in d_sums]]
        # A tile whose list has ended writes to its neighbour's place: send that out of bounds, where it is dropped.
        here = where(some(v.state.active, axis=1), starts + v.k, 2147483647)
        grads = tuple([scatter(g, total(p, axis=1), (here,), "set") for g, p in zip(v.grads, parts, strict=True)])
        return Back(v.k + 1, after, grads)

    empty = zeros((int(ids.shape[0]),), dtype=means.dtype, device=device)
    start = Back(full((), 0, dtype=dt.int32, device=device), first, (empty,) * (6 + channels))
    places = while_loop(lambda v: some(v.state.active), body, start).grads
    sums = [scatter(means[:, 0] * 0, g, (ids,), "add") for g in places]
    return (stack(sums[:2], axis=1), stack(sums[2:5], axis=1), stack(sums[6:], axis=1), sums[5], None, None)


@rasterize.ref
def _(means: Any, conics: Any, features: Any, opacities: Any, ids: Any, offsets: Any, *, width: int, height: int,
      tile: int = 16, max_alpha: float = 0.999, stop: float = 1e-4) -> Any:
    columns, _ = grid(width, height, tile)
    image, alpha = np.zeros((height, width, features.shape[1])), np.zeros((height, width))
    for y in range(height):
        for x in range(width):
            t = (y // tile) * columns + x // tile
            rest = 1.0
            for i in ids[offsets[t]:offsets[t + 1]]:
                d = np.array([x + 0.5, y + 0.5]) - means[i]
                xx, xy, yy = conics[i]
                sigma = 0.5 * (xx * d[0] ** 2 + yy * d[1] ** 2) + xy * d[0] * d[1]
                a = min(float(opacities[i] * np.exp(-sigma)), max_alpha)
                if sigma < 0 or a < MIN_ALPHA:
                    continue
                if rest * (1 - a) <= stop:
                    break
                image[y, x] += features[i] * (a * rest)
                rest *= 1 - a
            alpha[y, x] = 1 - rest
    return image.astype(means.dtype), alpha.astype(means.dtype)


@rasterize.samples
def _() -> list[Sample]:
    rng = np.random.default_rng(4)
    n, size = 6, {"width": 12, "height": 9, "tile": 8}
    means, wide = rng.uniform(1, 9, (n, 2)), rng.uniform(0.02, 0.2, (n, 2))
    conics = np.stack([wide[:, 0], 0.3 * np.sqrt(wide.prod(1)) * rng.uniform(-1, 1, n), wide[:, 1]], 1)
    args = (means, conics, rng.uniform(0, 1, (n, 2)), rng.uniform(0.2, 0.9, n),
            np.array([0, 1, 2, 3, 4, 5, 0, 2, 4, 5, 1, 3, 2], np.int32), np.array([0, 6, 9, 12, 13], np.int32))
    low = tuple(a.astype(np.float32) if a.dtype == np.float64 else a for a in args)
    opaque = (*args[:3], args[3] * 0 + 1, *args[4:])
    return [Sample(args, size, name="two tiles a side", grad=False), Sample(low, size, name="float32", tolerance=16.0, grad=False),
            Sample(opaque, size, name="opaque", edge=True, grad=False)]
