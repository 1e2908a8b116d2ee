"""Sets: unique values, membership, and what is counted by value (``bincount``, ``histogram``).

NaN are all different, as the standard has it. Under ``jit`` pass ``size=``.
"""

from __future__ import annotations

import builtins
import math
from typing import Any, NamedTuple

from rlx.array.array import FUNCTIONS, Array
from rlx.array.build import as_array, cast, is_scalar
from rlx.array.define import public
from rlx.array.hooks import default_float
from rlx.core import dtype as dt
from rlx.core.errors import DTypeError, ShapeError, ValueIssue
from rlx.ops.index import gather, scatter
from rlx.ops.manipulate import ravel
from rlx.ops.movement import concat, iota, reshape
from rlx.ops.searching import compress, full_like_scalar, isin, need_size, searchsorted


class UniqueAll(NamedTuple):
    """What :func:`unique_all` gives."""

    values: Array
    indices: Array
    inverse_indices: Array
    counts: Array


class UniqueCounts(NamedTuple):
    """What :func:`unique_counts` gives."""

    values: Array
    counts: Array


class UniqueInverse(NamedTuple):
    """What :func:`unique_inverse` gives."""

    values: Array
    inverse_indices: Array


def _sorting(x: Array) -> Array:
    """Indices that sort a vector; complex values by real, then imaginary part."""
    if not x.dtype.is_complex:
        return FUNCTIONS["argsort"](x)
    order = FUNCTIONS["argsort"](FUNCTIONS["imag"](x))
    return gather(order, FUNCTIONS["argsort"](gather(FUNCTIONS["real"](x), order)))


def _grouped(x: Array) -> tuple[Array, Array, Array]:
    """The sorted vector, the order that sorts it, and where a new value begins."""
    order = _sorting(x)
    values = gather(x, order)
    n = x.shape[0]
    if n == 0:
        return values, order, FUNCTIONS["zeros"]((0,), dtype=dt.bool_, device=x._value.node.device)
    first = concat([FUNCTIONS["ones"]((1,), dtype=dt.bool_, device=x._value.node.device), values[1:] != values[:-1]])
    return values, order, first


@public
def unique_values(x: Any, /, *, size: int | None = None, fill_value: Any = 0) -> Array:
    """The different values, sorted."""
    values, _, first = _grouped(ravel(x))
    return compress(first, size, [fill_value], [values], "unique_values()")[0]


@public
def unique_counts(x: Any, /, *, size: int | None = None, fill_value: Any = 0) -> UniqueCounts:
    """The different values, sorted, and how often each occurs (0 for padding)."""
    got = _unique(as_array(x), size, fill_value, "unique_counts()")
    return UniqueCounts(got.values, got.counts)


@public
def unique_inverse(x: Any, /, *, size: int | None = None, fill_value: Any = 0) -> UniqueInverse:
    """The different values, sorted, and for each element of ``x`` the index of its value."""
    got = _unique(as_array(x), size, fill_value, "unique_inverse()")
    return UniqueInverse(got.values, got.inverse_indices)


@public
def unique_all(x: Any, /, *, size: int | None = None, fill_value: Any = 0) -> UniqueAll:
    """The different values, sorted; the first index of each; each element's value as an index; and counts."""
    return _unique(as_array(x), size, fill_value, "unique_all()")


def _unique(x: Array, size: int | None, fill: Any, what: str) -> UniqueAll:
    if size is None:
        need_size(what, x)
    flat = ravel(x)
    n = flat.shape[0]
    dev = x._value.node.device
    values, order, first = _grouped(flat)
    if n == 0:
        zero = FUNCTIONS["zeros"]((size or 0,), dtype=dt.int64, device=dev)
        return UniqueAll(full_like_scalar(fill, (size or 0,), flat), zero,
                         FUNCTIONS["zeros"](x.shape, dtype=dt.int64, device=dev), zero)
    group = FUNCTIONS["cumulative_sum"](cast(first, dt.int64), axis=0) - 1
    zeros = FUNCTIONS["zeros"]((n,), dtype=dt.int64, device=dev)
    inverse = scatter(zeros, group, (order,), "set")
    tallies = gather(scatter(zeros, zeros + 1, (group,), "add"), group)
    packed = compress(first, size, [fill, 0, 0], [values, order, tallies], what)
    return UniqueAll(packed[0], packed[1], reshape(inverse, x.shape), packed[2])


@public
def unique(x: Any, /, return_index: bool = False, return_inverse: bool = False, return_counts: bool = False,
           axis: int | None = None, *, size: int | None = None, fill_value: Any = 0) -> Any:
    """The different values (or slices along an axis), sorted, with NumPy's optional extra results."""
    if axis is not None:
        return _unique_slices(as_array(x), axis, (return_index, return_inverse, return_counts))
    if not (return_index or return_inverse or return_counts):
        return unique_values(x, size=size, fill_value=fill_value)
    got = unique_all(x, size=size, fill_value=fill_value)
    wanted = (True, return_index, return_inverse, return_counts)
    return tuple([v for v, w in zip(got, wanted, strict=True) if w])


def _unique_slices(x: Array, axis: int, extra: tuple[bool, bool, bool]) -> Any:
    """The different slices along an axis, in lexicographic order: each is numbered, then the numbers are searched."""
    rows = FUNCTIONS["moveaxis"](x, axis, 0)
    flat = reshape(rows, (rows.shape[0], math.prod(rows.shape[1:])))
    if not flat.shape[0] or not flat.shape[1]:
        raise ShapeError(f"unique slices along axis {axis} of shape {x.shape}", why="there is nothing to compare",
                         do="check the size first")
    order = FUNCTIONS["lexsort"]([flat[:, k] for k in builtins.range(flat.shape[1] - 1, -1, -1)])
    ordered = gather(flat, order)
    new = FUNCTIONS["any"](ordered[1:] != ordered[:-1], axis=1)
    number = concat([FUNCTIONS["zeros"](1, dtype=dt.int64), FUNCTIONS["cumulative_sum"](cast(new, dt.int64))])
    place = scatter(FUNCTIONS["zeros"]((flat.shape[0],), dtype=dt.int64), number, (order,), "set")
    got = unique_all(place)
    values = FUNCTIONS["moveaxis"](FUNCTIONS["take"](rows, got.indices, axis=0), 0, axis)
    found = (values, got.indices, got.inverse_indices, got.counts)
    return tuple([v for v, w in zip(found, (True, *extra), strict=True) if w]) if any(extra) else values


@public
def union1d(x1: Any, x2: Any, /, *, size: int | None = None, fill_value: Any = 0) -> Array:
    """The values that are in either array, sorted."""
    return unique_values(concat([x1, x2], axis=None), size=size, fill_value=fill_value)


@public
def intersect1d(x1: Any, x2: Any, /, *, size: int | None = None, fill_value: Any = 0) -> Array:
    """The values that are in both arrays, sorted."""
    return _kept(x1, x2, False, size, fill_value, "intersect1d()")


@public
def setdiff1d(x1: Any, x2: Any, /, *, size: int | None = None, fill_value: Any = 0) -> Array:
    """The values of the first array that are not in the second, sorted."""
    return _kept(x1, x2, True, size, fill_value, "setdiff1d()")


def _kept(x1: Any, x2: Any, invert: bool, size: int | None, fill: Any, what: str) -> Array:
    values, _, first = _grouped(ravel(x1))
    keep = FUNCTIONS["logical_and"](first, isin(values, x2, invert=invert))
    return compress(keep, size, [fill], [values], what)[0]


@public
def setxor1d(x1: Any, x2: Any, /, *, size: int | None = None, fill_value: Any = 0) -> Array:
    """The values that are in exactly one of the arrays, sorted."""
    a, b = ravel(x1), ravel(x2)
    values, _, first = _grouped(concat([a, b], axis=0))
    keep = FUNCTIONS["logical_and"](first, FUNCTIONS["logical_xor"](isin(values, a), isin(values, b)))
    return compress(keep, size, [fill_value], [values], "setxor1d()")[0]


# Counting by value

@public
def bincount(x: Any, /, weights: Any = None, minlength: int = 0, *, length: int | None = None) -> Array:
    """``out[k]``: how many elements of ``x`` equal ``k``, or the sum of their ``weights``.

    ``x`` holds non-negative integers. The length is ``max(max(x) + 1, minlength)``; under ``jit`` pass ``length``
    (larger values are not counted).
    """
    x = as_array(x)
    if not x.dtype.is_integer and x.dtype.kind != "b":
        raise DTypeError(f"bincount of {x.dtype.name}", why="it counts integers", do="cast with .astype(rlx.int64)")
    if x.ndim != 1:
        raise ShapeError(f"bincount of an array of shape {x.shape}", why="it takes a vector", do="flatten it first")
    x = cast(x, dt.int64)
    if length is None:
        need_size("bincount()", x)
        top = int(FUNCTIONS["max"](x)) + 1 if x.shape[0] else 0
        if x.shape[0] and int(FUNCTIONS["min"](x)) < 0:
            raise ValueIssue("bincount of negative values", why="a bin's index is not negative",
                             do="shift the values first")
        length = top if top > minlength else minlength
    dev = x._value.node.device
    if weights is None:
        unit = FUNCTIONS["ones"](x.shape, dtype=dt.int64, device=dev)
    else:
        unit = as_array(weights, device=dev)
        unit = unit if unit.dtype.is_inexact else cast(unit, default_float(x.device))
    if length == 0 or x.shape[0] == 0:
        return FUNCTIONS["zeros"]((length,), dtype=unit.dtype, device=dev)
    at = FUNCTIONS["where"](x < 0, length, x)
    return scatter(FUNCTIONS["zeros"]((length,), dtype=unit.dtype, device=dev), unit, (at,), "add")


@public
def histogram_bin_edges(x: Any, /, bins: Any = 10, range: tuple[Any, Any] | None = None) -> Array:
    """The edges of ``bins`` equal bins over ``range`` (from the smallest to the largest value by default)."""
    if not is_scalar(bins):
        return as_array(bins)
    if bins < 1:
        raise ValueIssue(f"histogram with {bins} bins", why="there is at least one bin", do="pass a positive number")
    v = as_array(x)
    work = v.dtype if v.dtype.is_float else default_float(v.device)
    if range is not None:
        low, high = (as_array(r, work, v._value.node.device) for r in range)
    elif v.size == 0:
        low, high = as_array(0.0, work), as_array(1.0, work)
    else:
        low, high = FUNCTIONS["min"](v), FUNCTIONS["max"](v)
    low, high = cast(low, work), cast(high, work)
    flat = low == high
    low, high = FUNCTIONS["where"](flat, low - 0.5, low), FUNCTIONS["where"](flat, high + 0.5, high)
    i = cast(iota(bins + 1, dt.int64, v._value.node.device), work)
    return FUNCTIONS["where"](i == bins, high, low + i * ((high - low) / bins))


@public
def histogram(x: Any, /, bins: Any = 10, range: tuple[Any, Any] | None = None, density: bool = False, *,
              weights: Any = None) -> tuple[Array, Array]:
    """Counts (or sums of weights) in each bin, and the bins' edges; the last bin includes its right edge.

    ``density`` divides by the total and the widths, so that the integral is 1.
    """
    v = ravel(x)
    edges = histogram_bin_edges(v, bins, range)
    n = edges.shape[0] - 1
    at = searchsorted(edges, v, side="right") - 1
    at = FUNCTIONS["where"](v == edges[-1], n - 1, at)
    out = bincount(FUNCTIONS["where"](at < 0, n, at), None if weights is None else ravel(weights), length=n)
    if not density:
        return out, edges
    return out / FUNCTIONS["sum"](out) / (edges[1:] - edges[:-1]), edges


@public
def histogram2d(x: Any, y: Any, /, bins: Any = 10, range: Any = None, density: bool = False, *,
                weights: Any = None) -> tuple[Array, Array, Array]:
    """Counts in the cells of a grid (or a density, whose integral is 1), and the edges of both axes."""
    pair = bins if isinstance(bins, (tuple, list)) and len(bins) == 2 else (bins, bins)
    out, edges = histogramdd([x, y], pair, range, density=density, weights=weights)
    return out, edges[0], edges[1]


@public
def histogramdd(sample: Any, /, bins: Any = 10, range: Any = None, density: bool = False, *,
                weights: Any = None) -> tuple[Array, tuple[Array, ...]]:
    """Counts in the cells of a grid with an axis for each column of ``sample`` (or each of a list of vectors).

    ``bins`` and ``range``: one for all axes, or a sequence with one for each. The second result is the edges.
    """
    if isinstance(sample, (list, tuple)):
        columns = [ravel(v) for v in sample]
    else:
        rows = FUNCTIONS["atleast_2d"](as_array(sample)) if as_array(sample).ndim != 1 else reshape(sample, (-1, 1))
        columns = [rows[:, k] for k in builtins.range(rows.shape[1])]
    each = list(bins) if isinstance(bins, (tuple, list)) else [bins] * len(columns)
    spans = [None] * len(columns) if range is None else list(range)
    if len(each) != len(columns) or len(spans) != len(columns):
        raise ShapeError(f"histogram along {len(columns)} axes with {len(each)} bins and {len(spans)} ranges",
                         why="each axis has one of both", do="pass one number of bins, or one for each axis")
    edges = tuple([histogram_bin_edges(v, b, r) for v, b, r in zip(columns, each, spans, strict=True)])
    sizes = tuple([e.shape[0] - 1 for e in edges])
    cell, inside = as_array(0), as_array(True)
    for v, e, n in zip(columns, edges, sizes, strict=True):
        i = FUNCTIONS["where"](v == e[-1], n - 1, searchsorted(e, v, side="right") - 1)
        inside = inside & (i >= 0) & (i < n)
        cell = cell * n + i
    total = math.prod(sizes)
    counts = bincount(FUNCTIONS["where"](inside, cell, total), weights, length=total)
    out = reshape(cast(counts, default_float(columns[0].device)), sizes)
    if density:
        out = out / FUNCTIONS["sum"](out)
        for k, e in enumerate(edges):
            out = out / reshape(e[1:] - e[:-1], tuple(-1 if j == k else 1 for j in builtins.range(len(edges))))
    return out, edges
