"""The numeric part of a direct solver as ops: multifrontal factorization, and substitution with its factors.

Both follow tables made by the symbolic analysis (:mod:`rlx.sparse.plan`), so that one program serves every matrix of a
pattern. As array programs they go by levels of the elimination tree: the fronts of a level that are of like size are
batches of small dense matrices. A device may claim them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import rlx
from rlx.array.array import Array
from rlx.array.build import cast, constant
from rlx.array.define import op_named
from rlx.core import dtype as dt
from rlx.ir.op import NotDifferentiable
from rlx.ops.index import gather, scatter
from rlx.ops.movement import iota
from rlx.ops.segments import segment_of

#: Columns of the table of fronts; row ``fronts`` is a front without rows, which fills batches up. ``ENTRY`` is where
#: the entries of the matrix that enter a front begin, ``LOW`` the first front of its subtree.
FIRST, WIDTH, SIZE, ABOVE, PARENT, PANEL, BASE, ENTRY, KIDS, LOW, COLUMNS = range(11)
LU, CHOLESKY = "lu", "cholesky"
#: What a class of fronts is: (rows it is padded to, fronts in a batch, first batch and number of batches in the table).
Class = tuple[int, int, int, int]


@op_named("sparse.front_factor")
def front_factor(values: Array, scale: Array, tiny: Array, nodes: Array, into: Array, source: Array, place: Array,
                 batches: Array, bounds: Array, /, *, kind: str, classes: Any, panels: int, pool: int,
                 stack: int) -> tuple[Array, Array]:
    """``(panels, info)``: the triangular factors of a sparse matrix, front by front.

    values (..., nnz) are the matrix's, of which ``(values * scale)[source]`` enter the fronts at ``place``; tiny (...):
    pivots of ``lu`` below it are replaced by it, with their sign. Panels (..., p): of each front the rows of U, (w, f),
    and for ``lu`` the rows below the diagonal block of L, transposed, (w, f - w); L's unit diagonal is not stored.
    ``cholesky`` reads the entries of one triangle, and gives ``A = U^H U``. info (..., 2) int32: how many pivots were
    replaced (or were not positive), and the 1-based number of the first.
    """
    lead = values.shape[:-1]
    if not lead:
        return _factor(values, scale, tiny, nodes, into, source, place, batches, bounds, kind=kind, classes=classes,
                       panels=panels, pool=pool)
    flat = values.reshape((-1, values.shape[-1]))
    one = lambda v, t: _factor(v, scale, t, nodes, into, source, place, batches, bounds, kind=kind, classes=classes,
                               panels=panels, pool=pool)
    out, info = rlx.vmap(one)(flat, rlx.broadcast_to(tiny, lead).reshape((-1,)))
    return out.reshape((*lead, panels)), info.reshape((*lead, 2))


def _factor(values: Array, scale: Array, tiny: Array, nodes: Array, into: Array, source: Array, place: Array,
            batches: Array, bounds: Array, *, kind: str, classes: Any, panels: int,
            pool: int) -> tuple[Array, Array]:
    """One matrix, by levels."""
    n_entries = source.shape[0]
    home = segment_of(nodes[:, ENTRY], n_entries)
    where = gather(nodes[:, BASE], home, mode="promise") + place
    entries = gather(values * cast(scale, values.dtype), cast(source, dt.int64), mode="promise")
    fronts = scatter(_zeros(values, pool), entries, (where,), "set")
    info = rlx.stack([constant(0, dt.int64, _device(values)), constant(np.iinfo(np.int32).max, dt.int64,
                                                                       _device(values))])

    def level(l: Array, state: Any) -> Any:
        for c, (size, width, first, rows) in enumerate(classes):
            table = batches[first:first + width * rows].reshape((rows, width))
            step = lambda t, s, size=size, table=table: _eliminate(
                s, gather(table, t, mode="promise"), size, nodes, into, tiny, kind)
            state = rlx.fori_loop(bounds[l, c], bounds[l + 1, c], step, state)
        return state

    _, out, info = rlx.fori_loop(0, bounds.shape[0] - 1, level, (fronts, _zeros(values, panels), info))
    found = rlx.stack([info[0], rlx.where(info[0] > 0, info[1], 0)])
    return out, cast(found, dt.int32)


def _eliminate(state: Any, ids: Array, size: int, nodes: Array, into: Array, tiny: Array, kind: str) -> Any:
    """A batch of fronts: read, eliminate their columns, store the panels, and add the rest to the parents' fronts."""
    pool, out, info = state
    mine = gather(nodes, cast(ids, dt.int64), mode="promise")
    first, w, f, above, parent, panel, base = [mine[:, k].reshape((-1, 1, 1)) for k in range(ENTRY)]
    i, j = iota(size, dt.int64, _device(pool)).reshape((1, -1, 1)), iota(size, dt.int64, _device(pool)).reshape(
        (1, 1, -1))
    inside = rlx.logical_and(i < f, j < f)
    if kind == CHOLESKY:
        inside = rlx.logical_and(inside, i <= j)
    front = rlx.where(inside, gather(pool, rlx.where(inside, base + i * f + j, 0), mode="promise"), 0)
    front, info = _pivots(front, info, first, w, tiny, kind)
    # Rows of U, then L below the block; whatever is neither has an index past the end, and is dropped.
    low = panel + w * f + j * (f - w) + i - w
    stored = rlx.where(i < w, panel + i * f + j, rlx.where(j < w, low, out.shape[0])) if kind == LU else \
        rlx.where(i < w, panel + i * f + j, out.shape[0])
    out = scatter(out, front, (rlx.where(inside, stored, out.shape[0]),), "set")
    if not into.shape[0]:  # every front is a root
        return pool, out, info
    up = gather(nodes, rlx.where(parent >= 0, parent, nodes.shape[0] - 1), mode="promise")
    base_p, size_p = up[..., BASE], up[..., SIZE]
    ri = gather(into, rlx.clip(above + i - w, 0, into.shape[0] - 1), mode="promise")
    rj = gather(into, rlx.clip(above + j - w, 0, into.shape[0] - 1), mode="promise")
    passed = rlx.logical_and(rlx.logical_and(inside, parent >= 0), rlx.logical_and(i >= w, j >= w))
    pool = scatter(pool, front, (rlx.where(passed, base_p + ri * size_p + rj, pool.shape[0]),), "add")
    return pool, out, info


def _pivots(front: Array, info: Array, first: Array, w: Array, tiny: Array, kind: str) -> tuple[Array, Array]:
    """Eliminate the first ``w`` columns of each front, one column of all of them at a time."""
    size = front.shape[1]
    i, j = iota(size, dt.int64, _device(front)).reshape((1, -1, 1)), iota(size, dt.int64, _device(front)).reshape(
        (1, 1, -1))

    def column(k: Array, state: Any) -> Any:
        x, info = state
        live = k < w
        row = gather(x.transpose(1, 0, 2), k, mode="promise").reshape((-1, 1, size))
        pivot = gather(row.transpose(2, 0, 1), k, mode="promise").reshape((-1, 1, 1))
        if kind == CHOLESKY:
            bad = rlx.logical_and(live, rlx.logical_not(rlx.real(pivot) > 0))
            root = cast(rlx.sqrt(rlx.real(pivot)), x.dtype)
            row = row / rlx.where(live, root, 1)
            row = rlx.where(rlx.equal(j, k), root, row)
            left = rlx.conj(row).transpose(0, 2, 1)
        else:
            # NaN counts as bad, and stays.
            bad = rlx.logical_and(live, rlx.logical_not(rlx.abs(pivot) >= tiny))
            pivot = rlx.where(rlx.logical_and(live, rlx.abs(pivot) < tiny), _signed(pivot, tiny), pivot)
            row = rlx.where(rlx.equal(j, k), pivot, row)
            col = gather(x.transpose(2, 0, 1), k, mode="promise").reshape((-1, size, 1))
            left = col / rlx.where(live, pivot, 1)
        new = rlx.where(j > k, x - left * row, x if kind == CHOLESKY else rlx.where(rlx.equal(j, k), left, x))
        new = rlx.where(i > k, new, rlx.where(rlx.equal(i, k), row, x))
        at = rlx.min(rlx.where(bad, first + k + 1, np.iinfo(np.int32).max))
        info = rlx.stack([info[0] + rlx.sum(cast(bad, dt.int64)), rlx.minimum(info[1], at)])
        return rlx.where(live, new, x), info

    out: tuple[Array, Array] = rlx.fori_loop(0, rlx.max(w), column, (front, info))
    return out


def _signed(pivot: Array, tiny: Array) -> Array:
    """``tiny`` with the sign (or direction) of the pivot; positive for 0."""
    size = rlx.abs(pivot)
    direction = rlx.where(rlx.equal(size, 0), 1, pivot / cast(rlx.where(rlx.equal(size, 0), 1, size), pivot.dtype))
    return cast(tiny, pivot.dtype) * cast(direction, pivot.dtype)


def _zeros(like: Array, n: int) -> Array:
    return rlx.broadcast_to(constant(0, like.dtype, _device(like)), (n,)) + 0


def _device(x: Array) -> str | None:
    return x._value.node.device


front_factor.grad(NotDifferentiable("sparse.direct_solve has the derivative: its values are the matrix's"))


@front_factor.batch
def _(axes: Any, size: int, *args: Array, **attrs: Any) -> Any:
    """A leading axis of matrices."""
    values, scale, tiny, *tables = args
    if axes[0] is None:
        values = rlx.broadcast_to(values, (size, *values.shape))
    elif axes[0]:
        values = rlx.permute_dims(values, (axes[0], *(i for i in range(values.ndim) if i != axes[0])))
    tiny = rlx.broadcast_to(tiny, (size, *tiny.shape)) if axes[2] is None else tiny
    return front_factor(values, scale, tiny, *tables, **attrs), (0, 0)
