"""Operators that choose or place elements by indices."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.array.array import Array
from rlx.core import dtype as dt
from rlx.formats.onnx.table import Call, Value, X, cast, dtype_of, operator
from rlx.ops.index import gather as gather_at
from rlx.ops.index import scatter as scatter_at


@operator("Gather", static=(), host=True)
def gather(c: Call, x: Value, indices: Value) -> Value:
    """Negative indices count from the end."""
    return c.x.take(x, indices, axis=c.axis(c.attr("axis", 0), x.ndim))


def _wrapped(i: Value, size: int) -> Array:
    i = X.astype(i, dt.int64)
    out: Array = X.where(i < 0, i + size, i)
    return out


@operator("GatherElements")
def gather_elements(c: Call, x: Array, indices: Array) -> Value:
    axis = c.axis(c.attr("axis", 0), x.ndim)
    return gather_at(x, *_places(x, indices, axis))


def _places(x: Array, indices: Array, axis: int) -> tuple[Array, ...]:
    """Index arrays for each axis: their own place, and along ``axis`` the given index."""
    grid = [X.broadcast_to(X.reshape(X.arange(n, device=x.device), tuple([-1 if i == a else 1
                                                                        for i in range(indices.ndim)])), indices.shape)
            for a, n in enumerate(indices.shape)]
    grid[axis] = _wrapped(indices, x.shape[axis])
    return tuple(grid)


@operator("GatherND")
def gather_nd(c: Call, x: Array, indices: Array) -> Value:
    batch = c.attr("batch_dims", 0)
    depth = indices.shape[-1]
    lead = indices.shape[:-1]
    grid = [X.broadcast_to(X.reshape(X.arange(lead[a], device=x.device), tuple([-1 if i == a else 1 for i in
                                                                              range(len(lead))])), lead)
            for a in range(batch)]
    parts = [_wrapped(indices[..., k], x.shape[batch + k]) for k in range(depth)]
    return gather_at(x, *grid, *parts)


#: How the standard names what to do at a place, and how rlx does.
_KINDS = {"none": "set", "add": "add", "mul": "mul", "min": "min", "max": "max"}


@operator("Scatter", "ScatterElements")
def scatter_elements(c: Call, x: Array, indices: Array, updates: Array) -> Value:
    axis = c.axis(c.attr("axis", 0), x.ndim)
    return scatter_at(x, updates, _places(x, indices, axis), _KINDS[c.attr("reduction", "none")])


@operator("ScatterND")
def scatter_nd(c: Call, x: Array, indices: Array, updates: Array) -> Value:
    parts = tuple([_wrapped(indices[..., k], x.shape[k]) for k in range(indices.shape[-1])])
    return scatter_at(x, updates, parts, _KINDS[c.attr("reduction", "none")])


@operator("TensorScatter")
def tensor_scatter(c: Call, past: Array, update: Array, at: Array | None = None) -> Value:
    """Rows of a cache replaced from an index on; "circular" goes on at the start."""
    axis = c.axis(c.attr("axis", -2), past.ndim)
    size, count = past.shape[axis], update.shape[axis]
    start = X.zeros((past.shape[0],), dtype=dt.int64, device=past.device) if at is None else X.astype(at, dt.int64)
    rows = X.reshape(start, (-1, 1)) + X.arange(count, device=past.device)
    rows = X.remainder(rows, size) if c.attr("mode", "linear") == "circular" else rows
    moved, new = (X.moveaxis(v, axis, 1) for v in (past, update))
    batch = X.broadcast_to(X.reshape(X.arange(past.shape[0], device=past.device), (-1, 1)), rows.shape)
    return X.moveaxis(scatter_at(moved, new, (batch, rows), "set"), 1, axis)


@operator("OneHot", static=(1,))
def one_hot(c: Call, indices: Array, depth: Value, values: Array) -> Value:
    n = c.ints(depth, "the depth")[0]
    axis = c.axis(c.attr("axis", -1), indices.ndim + 1)
    places = X.reshape(X.arange(n, device=indices.device), (-1, *(1,) * (indices.ndim - axis)))
    hit = X.expand_dims(_wrapped(indices, n), axis=axis) == places
    return X.where(hit, values[1], values[0])


@operator("NonZero", static=(0,))
def nonzero(c: Call, x: Value) -> Value:
    """How many there are depends on the data: the model then runs node by node."""
    return np.stack(np.nonzero(c.static(x, "its input"))).astype(np.int64)


@operator("Compress", static=(1,))
def compress(c: Call, x: Array, condition: Value) -> Value:
    axis = c.attr("axis")
    places = np.flatnonzero(c.static(condition, "the condition"))
    if axis is None:
        x, axis = X.reshape(x, (-1,)), 0
    return X.take(x, c.array(places), axis=c.axis(axis, x.ndim))


@operator("Unique", static=(0,))
def unique(c: Call, x: Value) -> Value:
    """On the host: how many there are depends on the data."""
    host, axis = c.static(x, "its input"), c.attr("axis")
    values, first, inverse, counts = np.unique(host, return_index=True, return_inverse=True, return_counts=True,
                                               axis=axis)
    inverse = inverse.reshape(-1)
    if not c.attr("sorted", 1):
        order = np.argsort(first)
        values = np.take(values, order, axis=axis or 0)
        first, counts, inverse = first[order], counts[order], np.argsort(order)[inverse]
    return cast(values, dtype_of(x), c.run.device), *[v.astype(np.int64) for v in (first, inverse, counts)]


@operator("NonMaxSuppression", static=(2, 3, 4))
def non_max_suppression(c: Call, boxes: Value, scores: Value, most: Value | None = None, overlap: Value | None = None,
                        least: Value | None = None) -> Value:
    """On the host: which boxes remain depends on the data."""
    host, score = c.static(boxes, "the boxes"), c.static(scores, "the scores")
    limit = 0 if most is None else c.ints(most)[0]
    share = 0.0 if overlap is None else float(c.static(overlap).reshape(()))
    floor = -np.inf if least is None else float(c.static(least).reshape(()))
    corners = host if not c.attr("center_point_box", 0) else _corners(host)
    found: list[Any] = []
    for b, k in np.ndindex(score.shape[:2]):
        kept: list[int] = []
        for i in np.argsort(-score[b, k], kind="stable"):
            if len(kept) == limit or score[b, k, i] <= floor:
                break
            if all(_overlap(corners[b, i], corners[b, j]) <= share for j in kept):
                kept.append(int(i))
        found += [(b, k, i) for i in kept]
    return np.array(found, np.int64).reshape(-1, 3)


def _corners(boxes: np.ndarray) -> np.ndarray:
    """Centers and sizes (x, y, w, h) as corners (y, x, y, x)."""
    x, y, w, h = np.moveaxis(boxes, -1, 0)
    return np.stack([y - h / 2, x - w / 2, y + h / 2, x + w / 2], axis=-1)


def _overlap(a: np.ndarray, b: np.ndarray) -> float:
    """Intersection over union of two boxes given by any two opposite corners."""
    a, b = (np.stack([np.minimum(v[:2], v[2:]), np.maximum(v[:2], v[2:])]) for v in (a, b))
    both = np.prod(np.maximum(np.minimum(a[1], b[1]) - np.maximum(a[0], b[0]), 0))
    total = np.prod(a[1] - a[0]) + np.prod(b[1] - b[0]) - both
    return float(both / total) if total > 0 else 0.0


@operator("ArrayFeatureExtractor", domain="ai.onnx.ml")
def array_feature_extractor(c: Call, x: Array, indices: Array) -> Value:
    return X.take(X.reshape(x, (1, -1)) if x.ndim == 1 else x, X.reshape(indices, (-1,)), axis=-1)


@operator("Binarizer", domain="ai.onnx.ml")
def binarizer(c: Call, x: Array) -> Value:
    return cast(x > c.attr("threshold", 0.0), x.dtype)


