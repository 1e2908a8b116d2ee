"""The backward pass of compositing: gradients of each place in the tiles' lists."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rlx.array.array import Array
from rlx.array.define import op_named
from rlx.core import dtype as dt
from rlx.ir.op import REGISTRY, NotDifferentiable, Sample
from rlx.ops.control import while_loop
from rlx.ops.creation import full, zeros
from rlx.ops.elementwise import where
from rlx.ops.index import scatter
from rlx.ops.movement import slice_of, stack
from rlx.ops.reduce import any as some
from rlx.ops.reduce import sum as total
from rlx.splat.ops.intersect import grid
from rlx.splat.ops.pixels import Frame, Hit, Splats, State, check, hit, in_order, pixels, start, step, tiled
from rlx.splat.ops.project import MIN_ALPHA
from rlx.splat.sizes import length


class Back(NamedTuple):
    """The loop's state: step, forward state, what is behind each pixel's Gaussian, and gradients by place."""

    k: Array
    state: State
    behind: Array
    grads: tuple[Array, ...]


@op_named("splat.rasterize_places")
def rasterize_places(means: Array, conics: Array, features: Array, opacities: Array, ids: Array, offsets: Array,
                     d_image: Array, behind: Array, /, *, width: int, height: int, tile: int = 16,
                     max_alpha: float = 0.999, stop: float = 1e-4) -> Array:
    """Gradients with respect to the Gaussian at each place of the list that ``splat.rasterize`` composites.

    With T the transmittance in front of a Gaussian, ``g = d_image . f`` and B the share of the result that lies behind
    it, ``d alpha = T g - B / (1 - alpha)``: one loop front to back, in which B loses ``alpha T g`` a step. Places of
    different tiles differ, so that nothing is added atomically.

    Shapes: the first six as for ``splat.rasterize``; d_image (height, width, C); behind (height, width), which is
    ``sum_c d_image image - d_alpha (1 - alpha)``. Result (I, 6 + C): mean x, y; conic xx, xy, yy; opacity; features.
    """
    f = Frame(width, height, tile, max_alpha, stop)
    check(means.shape, conics.shape, features.shape, opacities.shape, offsets.shape, f)
    channels, device, size = length(features, 1), means._value.node.device, length(ids)
    if 0 in (means.shape[0], size):
        none: Array = zeros((size, 6 + channels), dtype=means.dtype, device=device)
        return none
    splats, (px, py) = in_order(means, conics, features, opacities, ids), pixels(f, means.dtype, device)
    d_sums = [tiled(d_image[:, :, i], f) for i in range(channels)]
    first, end = start(f, offsets, 0, means.dtype)
    starts = slice_of(offsets, (0,), (f.shape[0],))

    def body(v: Back) -> Back:
        s = splats.at(v.state.at)
        h = hit(s, px, py, f)
        after, drawn, weight = step(v.state, h, end, f)
        g = sum(dc * x for dc, x in zip(d_sums, s.features, strict=True))
        rest = where(drawn, v.behind - weight * g, v.behind)
        d = where(drawn & (h.alpha < f.max_alpha), v.state.rest * g - rest / (1 - h.alpha), 0)
        # Selected, not multiplied by 0: a pixel that has ended may read a Gaussian that is not finite.
        parts = [where(drawn, p, 0) for p in (*_parts(s, h, d), *[weight * dc for dc in d_sums])]
        # A tile whose list has ended would write to its neighbour's places: out of bounds it is dropped.
        here = where(some(v.state.active, axis=1), starts + v.k, 2147483647)
        grads = tuple([scatter(to, total(p, axis=1), (here,), "set") for to, p in zip(v.grads, parts, strict=True)])
        return Back(v.k + 1, after, rest, grads)

    empty = zeros((size,), dtype=means.dtype, device=device)
    begin = Back(full((), 0, dtype=dt.int32, device=device), first, tiled(behind, f), (empty,) * (6 + channels))
    out: Array = stack(while_loop(lambda v: some(v.state.active), body, begin).grads, axis=1)
    return out


def _parts(s: Splats, h: Hit, d: Array) -> list[Array]:
    """From d alpha: with respect to mean x, y, conic xx, xy, yy and opacity."""
    d_sigma = -d * h.alpha
    return [-d_sigma * (s.a * h.dx + s.b * h.dy), -d_sigma * (s.c * h.dy + s.b * h.dx), 0.5 * d_sigma * h.dx * h.dx,
            d_sigma * h.dx * h.dy, 0.5 * d_sigma * h.dy * h.dy, d * h.falloff]


rasterize_places.grad(NotDifferentiable("second derivatives of compositing are not implemented"))


@rasterize_places.ref
def _(
    means: Any,
    conics: Any,
    features: Any,
    opacities: Any,
    ids: Any,
    offsets: Any,
    d_image: Any,
    behind: Any,
    *,
    width: int,
    height: int,
    tile: int = 16,
    max_alpha: float = 0.999,
    stop: float = 1e-4,
) -> Any:
    """One pixel at a time, back to front, in float64."""
    out = np.zeros((len(ids), 6 + features.shape[1]))
    columns, _ = grid(width, height, tile)
    for y in range(height):
        for x in range(width):
            t = (y // tile) * columns + x // tile
            drawn, rest = [], 1.0
            for k in range(offsets[t], offsets[t + 1]):
                d = np.array([x + 0.5, y + 0.5]) - means[ids[k]]
                xx, xy, yy = conics[ids[k]].astype(np.float64)
                sigma = 0.5 * (xx * d[0] ** 2 + yy * d[1] ** 2) + xy * d[0] * d[1]
                raw = float(opacities[ids[k]] * np.exp(-sigma))
                a = min(raw, max_alpha)
                if sigma < 0 or a < MIN_ALPHA:
                    continue
                if rest * (1 - a) <= stop:
                    break
                drawn.append((k, d, (xx, xy, yy), np.exp(-sigma), a, raw < max_alpha, rest))
                rest *= 1 - a
            back = behind[y, x] - sum(d_image[y, x] @ features[ids[k]] * a * T for k, _, _, _, a, _, T in drawn)
            for k, d, (xx, xy, yy), fall, a, free, front in reversed(drawn):
                g = d_image[y, x] @ features[ids[k]]
                da = (front * g - back / (1 - a)) * free
                ds = -da * a
                out[k, :6] += [-ds * (xx * d[0] + xy * d[1]), -ds * (yy * d[1] + xy * d[0]), 0.5 * ds * d[0] ** 2,
                               ds * d[0] * d[1], 0.5 * ds * d[1] ** 2, da * fall]
                out[k, 6:] += d_image[y, x] * a * front
                back += a * front * g
    return out.astype(means.dtype)


@rasterize_places.samples
def _() -> list[Sample]:
    rng = np.random.default_rng(6)
    out = []
    forward = REGISTRY["splat.rasterize"]
    for s in forward.all_samples():
        image, alpha = forward.rules["ref"](*s.args, **s.attrs)
        d_image, d_alpha = rng.standard_normal(image.shape), rng.standard_normal(alpha.shape)
        behind = (d_image * image).sum(2) - d_alpha * (1 - alpha)
        kind = s.args[0].dtype
        out.append(Sample((*s.args, d_image.astype(kind), behind.astype(kind)), s.attrs, s.name, s.edge, False, 64.0))
    return out
