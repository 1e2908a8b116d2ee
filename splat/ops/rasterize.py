"""Compositing of projected Gaussians, front to back: one loop a pixel over the list of its tile."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.array.array import Array
from rlx.array.define import op_named
from rlx.core import dtype as dt
from rlx.ir.op import Sample
from rlx.ops.control import while_loop
from rlx.ops.creation import zeros
from rlx.ops.elementwise import where
from rlx.ops.index import scatter
from rlx.ops.movement import iota, slice_of, stack
from rlx.ops.reduce import any as some
from rlx.ops.reduce import sum as total
from rlx.splat.ops.intersect import grid
from rlx.splat.ops.pixels import Frame, State, check, hit, image, in_order, pixels, start, step
from rlx.splat.ops.places import rasterize_places
from rlx.splat.ops.project import MIN_ALPHA
from rlx.splat.sizes import length


@op_named("splat.rasterize")
def rasterize(
    means: Array,
    conics: Array,
    features: Array,
    opacities: Array,
    ids: Array,
    offsets: Array,
    /,
    *,
    width: int,
    height: int,
    tile: int = 16,
    max_alpha: float = 0.999,
    stop: float = 1e-4,
) -> tuple[Array, Array]:
    """Composite Gaussians front to back: ``sum_i f_i a_i prod_{j<i} (1 - a_j)`` at the centre of every pixel.

    ``a_i = min(max_alpha, opacity_i exp(-sigma_i))`` with ``sigma = (xx dx^2 + yy dy^2) / 2 + xy dx dy``; contributions
    below 1/255 are dropped, and a pixel ends before the Gaussian that would bring its transmittance to ``stop``.

    Shapes: means (N, 2) in pixels, conics (N, 3), features (N, C), opacities (N,); ids (I,) and offsets (tiles + 1,),
    int32, from :func:`intersect`. Results: the features (height, width, C) and alpha (height, width), ``1 -``
    the final transmittance.
    """
    f = Frame(width, height, tile, max_alpha, stop)
    check(means.shape, conics.shape, features.shape, opacities.shape, offsets.shape, f)
    if 0 in (means.shape[0], ids.shape[0]):
        blank = zeros((height, width, length(features, 1)), dtype=means.dtype, device=means._value.node.device)
        return blank, zeros((height, width), dtype=means.dtype, device=means._value.node.device)
    splats = in_order(means, conics, features, opacities, ids)
    px, py = pixels(f, means.dtype, means._value.node.device)
    first, end = start(f, offsets, length(features, 1), means.dtype)

    def body(v: State) -> State:
        s = splats.at(v.at)
        passed, drawn, weight = step(v, hit(s, px, py, f), end, f)
        # Selected, not multiplied by 0: a pixel that has ended may read a Gaussian that is not finite.
        return passed._replace(
            sums=tuple([where(drawn, c + weight * x, c) for c, x in zip(v.sums, s.features, strict=True)])
        )

    last = while_loop(lambda v: some(v.active), body, first)
    return stack([image(c, f) for c in last.sums], axis=2), image(1 - last.rest, f)


@rasterize.grad
def _(
    ct: Any,
    out: Any,
    means: Array,
    conics: Array,
    features: Array,
    opacities: Array,
    ids: Array,
    offsets: Array,
    *,
    width: int,
    height: int,
    tile: int = 16,
    max_alpha: float = 0.999,
    stop: float = 1e-4,
) -> tuple[Array | None, ...]:
    """Gradients by place in the list, from the op :func:`rasterize_places`, summed over the places of each Gaussian."""
    if 0 in (means.shape[0], ids.shape[0]):
        return means * 0, conics * 0, features * 0, opacities * 0, None, None
    d_image, d_alpha = ct
    d_image = out[0] * 0 if d_image is None else d_image
    behind = total(d_image * out[0], axis=2)
    if d_alpha is not None:
        behind = behind - d_alpha * (1 - out[1])
    places = rasterize_places(
        means,
        conics,
        features,
        opacities,
        ids,
        offsets,
        d_image,
        behind,
        width=width,
        height=height,
        tile=tile,
        max_alpha=max_alpha,
        stop=stop,
    )
    used = slice_of(offsets, (length(offsets) - 1,), (1,))
    # Places behind the last one have no gradient; their ids are unspecified.
    spot = where(iota(length(ids), dt.int32, means._value.node.device) < used, ids, 2147483647)
    sums = scatter(
        zeros((length(means), length(places, 1)), dtype=means.dtype, device=means._value.node.device),
        places,
        (spot,),
        "add",
    )
    return sums[:, 0:2], sums[:, 2:5], sums[:, 6:], sums[:, 5], None, None


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
    return [
        Sample(args, size, name="two tiles a side", grad=False),
        Sample(low, size, name="float32", tolerance=16.0, grad=False),
        Sample(opaque, size, name="opaque", edge=True, grad=False),
    ]
