"""Rearranging arrays: moving, rolling, repeating, splitting and joining axes."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from rlx.array.array import FUNCTIONS, Array
from rlx.array.build import as_array, broadcast, promote
from rlx.array.define import public
from rlx.core import dtype as dt
from rlx.core.errors import ShapeError, TraceError, ValueIssue
from rlx.core.shape import axes_tuple, axis_index
from rlx.core.shape import broadcast_shapes as _broadcast_shapes
from rlx.ops.index import gather
from rlx.ops.movement import broadcast_to, concat, expand_dims, flip, iota, permute_dims, reshape, slice_of

Axis = int | Sequence[int] | None


@public
def broadcast_shapes(*shapes: Sequence[Any]) -> tuple[Any, ...]:
    """The shape to which all of these broadcast (sizes equal, or 1)."""
    return _broadcast_shapes(*[(s,) if isinstance(s, int) else tuple(s) for s in shapes])


@public
def broadcast_arrays(*arrays: Any) -> tuple[Array, ...]:
    """The arrays, each repeated to their common shape."""
    xs = [as_array(x) for x in arrays]
    shape: Any = _broadcast_shapes(*[x.shape for x in xs])
    return tuple([broadcast_to(x, shape) for x in xs])


@public
def moveaxis(x: Array, source: int | Sequence[int], destination: int | Sequence[int], /) -> Array:
    """``x`` with its axes ``source`` at the places ``destination``; the others keep their order."""
    x = as_array(x)
    one, two = ((v,) if isinstance(v, int) else tuple(v) for v in (source, destination))
    if len(one) != len(two):
        raise ShapeError(f"moveaxis from {one} to {two}", why="each source needs one destination",
                         do="pass as many destinations as sources")
    src = [axis_index(a, x.ndim) for a in one]
    dst = [axis_index(a, x.ndim) for a in two]
    if len(set(src)) != len(src) or len(set(dst)) != len(dst):
        raise ShapeError(f"moveaxis from {one} to {two}", why="an axis repeats", do="name each axis once")
    order = [a for a in range(x.ndim) if a not in src]
    for d, s in sorted(zip(dst, src, strict=True)):
        order.insert(d, s)
    return permute_dims(x, order)


@public
def swapaxes(x: Array, axis1: int, axis2: int, /) -> Array:
    """``x`` with two axes exchanged."""
    x = as_array(x)
    order = list(range(x.ndim))
    a, b = axis_index(axis1, x.ndim), axis_index(axis2, x.ndim)
    order[a], order[b] = b, a
    return permute_dims(x, order)


@public
def transpose(x: Array, /, axes: Sequence[int] | None = None) -> Array:
    """The axes in another order (reversed by default)."""
    x = as_array(x)
    return permute_dims(x, tuple(reversed(range(x.ndim))) if axes is None else axes)


@public
def ravel(x: Any, /, order: str = "C") -> Array:
    """The elements in one axis, by rows ("C") or columns ("F")."""
    x = as_array(x)
    return reshape(x, (-1,) if x.size else (0,), order)


@public
def roll(x: Array, /, shift: int | Sequence[int], axis: Axis = None) -> Array:
    """The elements moved ``shift`` places along axes, those pushed out at one end coming in at the other."""
    x = as_array(x)
    if axis is None:
        flat = _roll(ravel(x), builtins.sum(shift) if isinstance(shift, (tuple, list)) else shift, 0)
        return reshape(flat, x.shape)
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    shifts = tuple(shift) if isinstance(shift, (tuple, list)) else (shift,) * len(axes)
    if len(axes) == 1 and len(shifts) > 1:
        axes = axes * len(shifts)
    if len(shifts) != len(axes):
        raise ShapeError(f"roll by {shifts} along axes {axes}", why="each axis needs one shift",
                         do="pass as many shifts as axes")
    for s, a in zip(shifts, axes, strict=True):
        x = _roll(x, s, axis_index(a, x.ndim))
    return x


def _roll(x: Array, shift: Any, axis: int) -> Array:
    n = x.shape[axis]
    if n == 0:
        return x
    if isinstance(shift, Array):
        at = FUNCTIONS["remainder"](iota(n, dt.int64, x._value.node.device) - shift, n)
        return FUNCTIONS["take"](x, at, axis=axis)
    k = int(shift) % n
    if k == 0:
        return x
    return concat([_part(x, axis, n - k, k), _part(x, axis, 0, n - k)], axis=axis)


def _part(x: Array, axis: int, start: int, size: int) -> Array:
    return slice_of(x, [start if i == axis else 0 for i in range(x.ndim)],
                    [size if i == axis else n for i, n in enumerate(x.shape)])


@public
def tile(x: Any, repetitions: int | Sequence[int], /) -> Array:
    """The whole array repeated side by side along each axis."""
    x = as_array(x)
    reps = (repetitions,) if isinstance(repetitions, int) else tuple(repetitions)
    rank = builtins.max(x.ndim, len(reps))
    reps = (1,) * (rank - len(reps)) + reps
    shape = (1,) * (rank - x.ndim) + x.shape
    spread = reshape(x, [n for s in shape for n in (1, s)])
    return reshape(broadcast(spread, tuple(n for r, s in zip(reps, shape, strict=True) for n in (r, s))),
                   [r * s for r, s in zip(reps, shape, strict=True)])


@public
def repeat(x: Any, repeats: Any, /, axis: int | None = None, *, size: int | None = None) -> Array:
    """Each element (slice along ``axis``) repeated ``repeats`` times; counts may differ from element to element.

    With an array of counts the result's size depends on the data: under ``jit`` pass ``size``, the total.
    """
    x = as_array(x)
    if axis is None:
        x, axis = ravel(x), 0
    a = axis_index(axis, x.ndim)
    n = x.shape[a]
    if not isinstance(repeats, (Array, np.ndarray, list, tuple)):
        k = int(repeats)
        if k < 0:
            raise ValueIssue(f"repeat() {k} times", why="a count is not negative", do="pass a count of at least 0")
        wide = broadcast(expand_dims(x, axis=a + 1), (*x.shape[:a + 1], k, *x.shape[a + 1:]))
        return reshape(wide, (*x.shape[:a], n * k, *x.shape[a + 1:]))
    counts = as_array(repeats, device=x._value.node.device)
    if not counts.dtype.is_integer:
        raise ValueIssue(f"repeat() by an array of {counts.dtype.name}", why="counts are integers",
                         do="cast them with .astype(rlx.int64)")
    counts = broadcast(ravel(counts), (n,))
    if size is None:
        if counts.is_traced:
            raise TraceError("repeat() by a traced array of counts",
                             why="the size of the result depends on their values",
                             do="pass size=, the total of the counts")
        size = int(FUNCTIONS["sum"](counts))
    ends = FUNCTIONS["cumulative_sum"](counts.astype(dt.int64), axis=0)
    at = FUNCTIONS["searchsorted"](ends, iota(size, dt.int64, x._value.node.device), side="right")
    order = (a, *(i for i in range(x.ndim) if i != a))
    return moveaxis(gather(permute_dims(x, order), at), 0, a)


@public
def unstack(x: Array, /, *, axis: int = 0) -> tuple[Array, ...]:
    """The slices along an axis, as a tuple."""
    x = as_array(x)
    a = axis_index(axis, x.ndim)
    rest = (*x.shape[:a], *x.shape[a + 1:])
    return tuple([reshape(_part(x, a, i, 1), rest) for i in range(x.shape[a])])


@public
def array_split(x: Array, indices_or_sections: Any, /, axis: int = 0) -> list[Array]:
    """Parts along an axis: as equal as can be for a number of them, else cut before the given indices."""
    x = as_array(x)
    a = axis_index(axis, x.ndim)
    n = x.shape[a]
    if isinstance(indices_or_sections, int):
        k = indices_or_sections
        if k <= 0:
            raise ValueIssue(f"split into {k} parts", why="a number of parts is positive", do="pass at least 1")
        cuts = [i * (n // k) + builtins.min(i, n % k) for i in range(k + 1)]
    else:
        cuts = [0, *[int(i) for i in indices_or_sections], n]
        cuts = [0, *[slice(0, c).indices(n)[1] for c in cuts[1:]]]
    return [_part(x, a, b, builtins.max(e - b, 0)) for b, e in pairwise(cuts)]


@public
def split(x: Array, indices_or_sections: Any, /, axis: int = 0) -> list[Array]:
    """Like :func:`array_split`; a number of parts must divide the axis."""
    x = as_array(x)
    n = x.shape[axis_index(axis, x.ndim)]
    if isinstance(indices_or_sections, int) and n % indices_or_sections:
        raise ShapeError(f"cannot split axis {axis} of shape {x.shape} into {indices_or_sections} equal parts",
                         why=f"{n} is not a multiple of {indices_or_sections}", do="use rlx.array_split")
    return array_split(x, indices_or_sections, axis)


@public
def atleast_1d(x: Any, /) -> Array:
    """``x`` with at least one axis."""
    return _atleast(x, 1)


@public
def atleast_2d(x: Any, /) -> Array:
    """``x`` with at least two axes, new ones in front."""
    return _atleast(x, 2)


@public
def atleast_nd(x: Any, /, ndim: int) -> Array:
    """``x`` with at least ``ndim`` axes, new ones in front."""
    return _atleast(x, ndim)


def _atleast(x: Any, ndim: int) -> Array:
    x = as_array(x)
    return x if x.ndim >= ndim else reshape(x, (1,) * (ndim - x.ndim) + x.shape)


@public
def vstack(arrays: Sequence[Any], /) -> Array:
    """The arrays one below another, each at least two-dimensional."""
    return concat([atleast_2d(x) for x in arrays], axis=0)


@public
def hstack(arrays: Sequence[Any], /) -> Array:
    """The arrays side by side: along axis 1, or 0 for one-dimensional ones."""
    xs = [atleast_1d(x) for x in arrays]
    return concat(xs, axis=0 if xs[0].ndim == 1 else 1)


@public
def column_stack(arrays: Sequence[Any], /) -> Array:
    """One-dimensional arrays as the columns of a matrix."""
    xs = [as_array(x) for x in arrays]
    return concat([reshape(x, (-1, 1)) if x.ndim < 2 else x for x in xs], axis=1)


@public
def meshgrid(*arrays: Any, indexing: str = "xy", sparse: bool = False) -> tuple[Array, ...]:
    """Coordinate arrays of the grid that one-dimensional arrays span; ``indexing`` is ``xy`` or ``ij``.

    With ``sparse`` each has its own axis only, and broadcasts to the grid.
    """
    if indexing not in ("xy", "ij"):
        raise ValueIssue(f"meshgrid with indexing {indexing!r}", why="it is 'xy' or 'ij'", do="pass one of them")
    xs = promote(*arrays) if arrays else []
    n = len(xs)
    for x in xs:
        if x.ndim > 1:
            raise ShapeError(f"meshgrid of an array of shape {x.shape}", why="its arguments are one-dimensional",
                             do="flatten it first")
    place = list(range(n))
    if indexing == "xy" and n > 1:
        place[0], place[1] = 1, 0
    columns = [reshape(x, [-1 if a == place[i] else 1 for a in range(n)]) if x.size else
               reshape(x, [0 if a == place[i] else 1 for a in range(n)]) for i, x in enumerate(xs)]
    return tuple(columns) if sparse else broadcast_arrays(*columns) if columns else ()


@public
def fliplr(x: Array, /) -> Array:
    """The second axis reversed."""
    return flip(x, axis=1)


@public
def flipud(x: Array, /) -> Array:
    """The first axis reversed."""
    return flip(x, axis=0)


@public
def rot90(x: Array, /, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Array:
    """``x`` turned by ``k`` quarter turns, from the first of two axes towards the second."""
    x = as_array(x)
    a, b = axes_pair(axes, x.ndim)
    turns = k % 4
    if turns == 0:
        return x
    if turns == 2:
        return flip(x, axis=(a, b))
    return swapaxes(flip(x, axis=b), a, b) if turns == 1 else flip(swapaxes(x, a, b), axis=b)


def axes_pair(axes: Sequence[int], rank: int) -> tuple[int, int]:
    """Two different axes, checked."""
    a, b = (axis_index(int(i), rank) for i in axes)
    axes_tuple((a, b), rank)
    return a, b


@public
def append(x: Any, values: Any, /, axis: int | None = None) -> Array:
    """``values`` after ``x`` along an axis (both flattened by default)."""
    return concat([x, values], axis=axis)


@public
def delete(x: Any, indices: Any, /, axis: int | None = None) -> Array:
    """``x`` without the slices at these indices along an axis (flattened by default); indices are known numbers."""
    x = as_array(x)
    x, a = (ravel(x), 0) if axis is None else (x, axis_index(axis, x.ndim))
    kept = np.delete(np.arange(x.shape[a]), np.asarray(indices) if not isinstance(indices, slice) else indices)
    return FUNCTIONS["take"](x, as_array(kept, device=x._value.node.device), axis=a)


@public
def insert(x: Any, indices: Any, values: Any, /, axis: int | None = None) -> Array:
    """``values`` put before these indices (known numbers) along an axis (flattened by default)."""
    x = as_array(x)
    x, a = (ravel(x), 0) if axis is None else (x, axis_index(axis, x.ndim))
    n = x.shape[a]
    at = np.atleast_1d(np.asarray(indices))
    new = as_array(values, device=x._value.node.device).astype(x.dtype)
    if new.ndim < x.ndim:
        new = reshape(new, (*(1,) * a, -1, *(1,) * (x.ndim - a - 1))) if new.ndim <= 1 else expand_dims(new, axis=a)
    count = new.shape[a] if np.ndim(indices) == 0 else len(at)
    new = broadcast(new, tuple(count if i == a else s for i, s in enumerate(x.shape)))
    order = np.insert(np.arange(n), indices, n + np.arange(count))
    return FUNCTIONS["take"](concat([x, new], axis=a), as_array(order, device=x._value.node.device), axis=a)

