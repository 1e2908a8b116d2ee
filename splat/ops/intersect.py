"""Which Gaussians touch which tile of the image, front to back: a counting pass, an expansion and two stable sorts."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.array.array import Array
from rlx.array.build import broadcast, cast
from rlx.array.define import op_named
from rlx.core import dtype as dt
from rlx.core.errors import ShapeError, ValueIssue
from rlx.ir.op import NotDifferentiable, Sample
from rlx.ops.creation import ones, zeros
from rlx.ops.elementwise import ceil, floor, maximum, minimum, where
from rlx.ops.index import gather, scatter
from rlx.ops.movement import iota
from rlx.ops.reduce import sum as total
from rlx.ops.scan import cumulative_sum, scan
from rlx.ops.searching import searchsorted
from rlx.ops.sort import sort_with
from rlx.splat.sizes import length

_DISCRETE = NotDifferentiable("the list of touched tiles does not vary smoothly")


def grid(width: int, height: int, tile: int) -> tuple[int, int]:
    """Tiles in x and in y."""
    return -(-width // tile), -(-height // tile)


def _bounds(centres: Array, radii: Array, width: int, height: int, tile: int) -> tuple[Array, Array, Array, Array]:
    """First column and row, and number of columns and rows (0 where nothing is drawn), of each Gaussian's tiles."""
    out = []
    for axis, tiles in enumerate(grid(width, height, tile)):
        c, r = centres[:, axis], cast(radii[:, axis], centres.dtype)
        low = minimum(maximum(floor((c - r) * (1 / tile)), 0), tiles)
        high = minimum(maximum(ceil((c + r) * (1 / tile)), 0), tiles)
        drawn = (radii[:, 0] > 0) & (radii[:, 1] > 0)
        out.append((cast(where(drawn, low, 0), dt.int32), cast(where(drawn, high - low, 0), dt.int32)))
    return out[0][0], out[1][0], out[0][1], out[1][1]


@op_named("splat.count_tiles")
def count_tiles(centres: Array, radii: Array, /, *, width: int, height: int, tile: int = 16) -> Array:
    """How many pairs of tile and Gaussian there are: the capacity that :func:`intersect` needs. An int64 scalar.

    Shapes: centres (N, 2) in pixels; radii (N, 2), int32 half-widths, 0 where a Gaussian is not drawn.
    """
    _check(centres.shape, radii.shape, 1)
    _, _, nx, ny = _bounds(centres, radii, width, height, tile)
    out: Array = total(cast(nx, dt.int64) * cast(ny, dt.int64))
    return out


@op_named("splat.intersect")
def intersect(centres: Array, radii: Array, depths: Array, /, *, width: int, height: int, tile: int = 16,
              capacity: int) -> tuple[Array, Array]:
    """The Gaussians of each tile, nearest first.

    Shapes: centres (N, 2), radii (N, 2) int32, depths (N,). Results: ids (capacity,) int32, the Gaussian of each pair
    of tile and Gaussian, sorted by tile, depth and index; offsets (tiles + 1,) int32: tile t (row by row) has the pairs
    ``offsets[t]`` to ``offsets[t + 1]``. With more pairs than ``capacity`` the farthest Gaussians are left out; entries
    behind the last pair are unspecified.
    """
    _check(centres.shape, radii.shape, capacity)
    n, (columns, rows) = length(centres), grid(width, height, tile)
    device = centres._value.node.device
    if n == 0:
        return (zeros((capacity,), dtype=dt.int32, device=device),
                zeros((columns * rows + 1,), dtype=dt.int32, device=device))
    hidden = (radii[:, 0] <= 0) | (radii[:, 1] <= 0)
    _, order = sort_with(where(hidden, float("inf"), depths), (iota(n, dt.int32, device),), 0)
    boxes = _bounds(gather(centres, order, mode="promise"), gather(radii, order, mode="promise"), width, height, tile)
    owner, local, used = _expand(boxes[2] * boxes[3], capacity)
    x0, y0, nx, _ = (gather(b, owner, mode="promise") for b in boxes)
    wide = maximum(nx, 1)
    tiles = (y0 + local // wide) * columns + x0 + local % wide
    beyond = columns * rows
    tiles = where(iota(capacity, dt.int32, device) < used, tiles, beyond)
    sorted_tiles, ids = sort_with(tiles, (gather(order, owner, mode="promise"),), 0)
    return ids, _offsets(sorted_tiles, beyond, device)


def _expand(counts: Array, capacity: int) -> tuple[Array, Array, Array]:
    """For each slot of a list where item i repeats ``counts[i]`` times: its item, its place among the item's slots,
    and how many slots are used."""
    device = counts._value.node.device
    n = length(counts)
    ends = cumulative_sum(cast(counts, dt.int64))
    starts = cast(minimum(ends - cast(counts, dt.int64), capacity), dt.int32)
    marks = scatter(zeros((capacity + 1,), dtype=dt.int32, device=device),
                    broadcast(ones((), dtype=dt.int32, device=device), (n,)), (starts,), "add")
    owner = minimum(scan(marks, "add", 0)[:capacity] - 1, n - 1)
    local = iota(capacity, dt.int32, device) - gather(starts, owner, mode="promise")
    return owner, local, minimum(cast(minimum(ends[n - 1], capacity), dt.int32), capacity)


def _offsets(tiles: Array, count: int, device: str | None) -> Array:
    """Where each tile's run starts in the sorted list, and where the last one ends."""
    out: Array = cast(searchsorted(tiles, iota(count + 1, dt.int32, device)), dt.int32)
    return out


def _check(centres: Any, radii: Any, capacity: int) -> None:
    if len(centres) != 2 or centres[1] != 2 or radii != centres:
        raise ShapeError(f"centres of shape {centres} and radii of shape {radii}", why="both must be (N, 2)",
                         do="pass one row for each Gaussian")
    if not 1 <= capacity < 1 << 31:
        raise ValueIssue(f"intersect() with capacity={capacity}", why="positions in the list are 32-bit integers",
                         do="draw fewer or smaller Gaussians, or a smaller image")


@count_tiles.ref
def _(centres: Any, radii: Any, *, width: int, height: int, tile: int = 16) -> Any:
    return np.array(sum(len(t) for t in _touched(centres, radii, width, height, tile)), np.int64)


@intersect.ref
def _(centres: Any, radii: Any, depths: Any, *, width: int, height: int, tile: int = 16, capacity: int) -> Any:
    columns, rows = grid(width, height, tile)
    lists: list[list[int]] = [[] for _ in range(columns * rows)]
    touched = _touched(centres, radii, width, height, tile)
    for i in np.argsort(depths, kind="stable"):
        for t in touched[i]:
            lists[t].append(int(i))
    flat = [i for ids in lists for i in ids]
    ids = np.zeros(capacity, np.int32)
    ids[:len(flat)] = flat
    return ids, np.concatenate([[0], np.cumsum([len(x) for x in lists])]).astype(np.int32)


def _touched(centres: Any, radii: Any, width: int, height: int, tile: int) -> list[list[int]]:
    """The tiles that the box of each Gaussian overlaps."""
    columns, rows = grid(width, height, tile)
    out = []
    for (cx, cy), (rx, ry) in zip(centres, radii, strict=True):
        drawn = rx > 0 and ry > 0
        out.append([y * columns + x for y in range(rows) for x in range(columns)
                    if drawn and cx - rx < (x + 1) * tile and cx + rx > x * tile
                    and cy - ry < (y + 1) * tile and cy + ry > y * tile])
    return out


count_tiles.grad(_DISCRETE)
intersect.grad(_DISCRETE)


def _sample() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(2)
    centres = rng.uniform(-5, 50, (9, 2))
    radii = rng.integers(1, 20, (9, 2)).astype(np.int32)
    radii[3] = 0
    return centres, radii, rng.permutation(9) + 0.5


@count_tiles.samples
def _() -> list[Sample]:
    centres, radii, _ = _sample()
    return [
        Sample((centres, radii), {"width": 48, "height": 40, "tile": 8}, name="scene", grad=False),
        Sample((centres[:1], radii[:1] * 0), {"width": 48, "height": 40}, name="nothing drawn", edge=True, grad=False),
    ]


@intersect.samples
def _() -> list[Sample]:
    args = _sample()
    size = {"width": 48, "height": 40, "tile": 8}
    pairs = sum(len(t) for t in _touched(*args[:2], 48, 40, 8))
    low = (args[0].astype(np.float32), args[1], args[2].astype(np.float32))
    return [Sample(args, {**size, "capacity": pairs}, name="scene", grad=False),
            Sample(low, {**size, "capacity": pairs}, name="float32", grad=False)]
