"""The analysis of a matrix for a direct solver: orders, scales and tables, for many values of one pattern."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from rlx.array.array import Array
from rlx.array.build import as_array
from rlx.array.tree import register_pytree
from rlx.core.errors import ShapeError, ValueIssue
from rlx.sparse.csr import CSR, as_csr
from rlx.sparse.direct_ops import (
    ABOVE,
    BASE,
    CHOLESKY,
    COLUMNS,
    ENTRY,
    FIRST,
    KIDS,
    LOW,
    LU,
    PANEL,
    PARENT,
    SIZE,
    WIDTH,
)

if TYPE_CHECKING:
    from rlx.sparse.symbolic import Fronts

#: Elements of a batch of fronts in the array program: enough to fill a device, small enough for few wasted ones.
BATCH_ELEMENTS = 1 << 16
#: Fronts are padded to the first number of rows, times a power of the second: few sizes, as each is compiled.
SIZES = (8, 4)
#: Passes of the scaling by square roots of row and column maxima (D. Ruiz, RAL-TR-2001-034); it converges linearly.
SCALINGS = 5
#: A diagonal whose elements are at least this share of their column's largest is kept as the pivots.
KEEP_DIAGONAL = 0.1


@dataclass(frozen=True, eq=False)
class Plan:
    """What :func:`analyze` found out about a pattern. Row ``rows[k]`` and column ``cols[k]`` are eliminated k-th.

    ``row_scale`` and ``col_scale`` are multiplied onto A before it is factored (powers of 2, so they cost no accuracy).
    ``nnz`` counts the elements of the factors, ``flops`` the floating operations of a factorization.
    """

    kind: str
    shape: tuple[int, int]
    rows: np.ndarray[Any, Any]
    cols: np.ndarray[Any, Any]
    row_scale: np.ndarray[Any, Any]
    col_scale: np.ndarray[Any, Any]
    nnz: int
    flops: int
    attrs: dict[str, Any] = field(repr=False)
    _pattern: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]] = field(repr=False)
    _tables: dict[str, np.ndarray[Any, Any]] = field(repr=False)
    _uploaded: dict[tuple[str, str], Array] = field(default_factory=dict, repr=False)
    _programs: dict[tuple[Any, ...], Any] = field(default_factory=dict, repr=False)
    #: Patterns that were compared and found equal, the last few.
    _seen: list[Array] = field(default_factory=list, repr=False)

    def table(self, name: str, device: str) -> Array:
        """One of the tables on a device; it is copied there once."""
        found = self._uploaded.get((name, device))
        if found is None:
            found = self._uploaded[name, device] = as_array(self._tables[name], device=device)
        return found

    def check(self, A: CSR) -> None:
        """Raise ShapeError unless A has the shape and pattern that was analyzed; a traced pattern only by its size."""
        indptr, indices = self._pattern
        if A.shape != self.shape or A.nnz != len(indices):
            raise ShapeError(f"a plan for a matrix of shape {self.shape} with {len(indices)} entries, and one of shape "
                             f"{A.shape} with {A.nnz}", why="a plan is for one pattern", do="analyze this matrix")
        if A.indices.is_traced or A.indptr.is_traced:
            return
        if any(A.indices is known for known in self._seen):
            return
        if not (np.array_equal(indptr, np.asarray(A.indptr)) and np.array_equal(indices, np.asarray(A.indices))):
            raise ShapeError("a plan for a matrix with entries in other places", why="a plan is for one pattern",
                             do="analyze this matrix")
        self._seen[:] = [*self._seen[-3:], A.indices]

    def program(self, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        """A compiled function that belongs to this plan, made at its first use."""
        found = self._programs.get(key)
        if found is None:
            found = self._programs[key] = make()
        return found

    @property
    def longest(self) -> int:
        """Most rows below a front."""
        nodes = self._tables["nodes"]
        return int((nodes[:, SIZE] - nodes[:, WIDTH]).max(initial=0))

    def __repr__(self) -> str:
        return (f"Plan({self.kind} of {self.shape[0]} x {self.shape[1]}, {self._tables['nodes'].shape[0] - 1} fronts, "
                f"{self.nnz} elements, {self.flops / 1e6:.3g} Mflop)")


def analyze(A: Any, *, kind: str = LU, ordering: Any = "amd") -> Plan:
    """The reusable analysis of a square sparse matrix for :func:`lu` or :func:`cholesky`.

    Parameters
    ----------
    A : CSR, scipy.sparse matrix or dense array (n, n), with values: for ``lu`` they choose the pivots.
    kind : ``"lu"`` or ``"cholesky"``.
    ordering : ``"amd"`` (approximate minimum degree), ``"natural"``, or an array: the order of the columns.

    For ``lu``, A is scaled so that its rows and columns have maxima near 1, and its rows are ordered so that the
    product of the diagonal is the largest possible, unless the diagonal is large already (a matching in a bipartite
    graph, as I. S. Duff and J. Koster, SIAM J. Matrix Anal. Appl. 22 (2001) 973). The pivots are then taken from the
    diagonal, for these values and for all others the plan is used with.

    Raises ShapeError for a matrix that is not square, ValueIssue for one whose pattern is structurally singular (for
    ``lu``), or with values that are not finite.

    >>> import rlx.sparse
    >>> A = rlx.sparse.CSR.from_dense([[0.0, 2.0], [4.0, 1.0]])
    >>> plan = rlx.sparse.analyze(A)
    >>> rlx.sparse.lu(A, plan=plan).solve([2.0, 5.0]).tolist()
    [1.0, 1.0]
    """
    # numba takes half a second to import: not before it is needed.
    from rlx.sparse.symbolic import fronts
    m = as_csr(A)
    if kind not in (LU, CHOLESKY):
        raise ValueIssue(f"analyze() with kind {kind!r}", why="the kinds are 'lu' and 'cholesky'",
                         do="pass one of them")
    n = m.shape[0]
    if m.shape[0] != m.shape[1]:
        raise ShapeError(f"a factorization of a matrix of shape {m.shape}", why="it must be square",
                         do="for least squares solve A.T @ A, or use a solver for rectangular systems")
    indptr, indices = np.asarray(m.indptr).astype(np.int64), np.asarray(m.indices).astype(np.int64)
    row_of = np.repeat(np.arange(n), np.diff(indptr))
    if kind == LU:
        size = np.abs(np.asarray(m.data)).astype(np.float64)
        check_finite(size, row_of, indices)
        row_scale, col_scale = _scales(n, row_of, indices, size)
        match = _matching(n, indptr, indices, row_of, size * row_scale[row_of] * col_scale[indices])
    else:
        row_scale = col_scale = np.ones(n)
        match = np.arange(n)
    # From here on row match[j] stands at j.
    spot = np.empty(n, np.int64)
    spot[match] = np.arange(n)
    from_pattern = _symmetric(n, spot[row_of], indices)
    f = fronts(*from_pattern, _order(ordering, n, from_pattern))
    rank = np.empty(n, np.int64)
    rank[f.order] = np.arange(n)
    tables, attrs = _tables(kind, f, rank[spot[row_of]], rank[indices], (row_scale[row_of] * col_scale[indices]))
    tables.update(orders=np.stack([match[f.order], f.order, rank[spot], rank]),
                  scales=np.stack([row_scale, col_scale]))
    widths, sizes = f.widths, f.sizes
    nnz = int(np.sum(widths * (2 * sizes - widths))) if kind == LU else \
        int(np.sum(widths * sizes - widths * (widths - 1) // 2))
    return Plan(kind, (n, n), match[f.order], f.order, row_scale, col_scale, nnz,
                f.flops if kind == LU else f.flops // 2, attrs, (indptr, indices), tables)


def check_finite(size: np.ndarray[Any, Any], row_of: np.ndarray[Any, Any], indices: np.ndarray[Any, Any]) -> None:
    """Raise ValueIssue for an element that is NaN or infinite, naming it."""
    bad = np.nonzero(~np.isfinite(size))[0]
    if len(bad):
        k = bad[0]
        raise ValueIssue(f"a factorization of a matrix with {size[k]} at ({row_of[k]}, {indices[k]})",
                         why=f"{len(bad)} of {len(size)} elements are not finite", do="check how the matrix was made")


def _order(ordering: Any, n: int, pattern: tuple[Any, Any]) -> np.ndarray[Any, Any]:
    if isinstance(ordering, str) and ordering == "amd":
        from rlx.sparse.ordering import amd
        return amd(*pattern)
    if isinstance(ordering, str) and ordering == "natural":
        return np.arange(n)
    order = np.asarray(ordering)
    if order.shape != (n,) or order.dtype.kind not in "iu" or not np.array_equal(np.sort(order), np.arange(n)):
        raise ValueIssue(f"analyze() with ordering {ordering!r}", why=f"it is 'amd', 'natural' or a permutation of {n}",
                         do="pass one of them")
    return order.astype(np.int64)


def _symmetric(n: int, rows: Any, cols: Any) -> tuple[Any, Any]:
    """(indptr, indices) of the pattern of ``A + A^T`` without its diagonal."""
    import scipy.sparse
    off = rows != cols
    r, c = rows[off], cols[off]
    m = scipy.sparse.coo_matrix((np.ones(2 * len(r), np.int8), (np.concatenate([r, c]), np.concatenate([c, r]))),
                                shape=(n, n)).tocsr()
    return m.indptr.astype(np.int64), m.indices.astype(np.int64)


def _scales(n: int, row_of: Any, indices: Any, size: Any) -> tuple[Any, Any]:
    """Powers of two by which rows and columns get maxima near 1; 1 where there is nothing."""
    r, c = np.ones(n), np.ones(n)
    for _ in range(SCALINGS):
        now = size * r[row_of] * c[indices]
        top, side = np.zeros(n), np.zeros(n)
        np.maximum.at(top, row_of, now)
        np.maximum.at(side, indices, now)
        r /= np.sqrt(np.where(top > 0, top, 1))
        c /= np.sqrt(np.where(side > 0, side, 1))
    return np.exp2(np.round(np.log2(r))), np.exp2(np.round(np.log2(c)))


def _matching(n: int, indptr: Any, indices: Any, row_of: Any, size: Any) -> Any:
    """Row ``out[j]`` for column j: the diagonal if it is large, else the matching of largest product."""
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import maximum_bipartite_matching, min_weight_full_bipartite_matching
    diagonal, top = np.zeros(n), np.zeros(n)
    on = row_of == indices
    diagonal[row_of[on]] = size[on]
    np.maximum.at(top, indices, size)
    if n == 0 or (np.all(diagonal >= KEEP_DIAGONAL * top) and np.all(diagonal > 0)):
        return np.arange(n)
    live = size > 0
    graph = csr_matrix((np.ones(int(live.sum())), (row_of[live], indices[live])), shape=(n, n))
    rank = int(np.sum(maximum_bipartite_matching(graph, perm_type="column") >= 0))
    if rank < n:
        raise ValueIssue(f"LU of a structurally singular matrix of {n} rows",
                         why=f"whatever the values of its entries, its rank is at most {rank}",
                         do="check for empty or repeated rows and columns")
    # Costs from 1: the matching takes 0 for an entry that is not there.
    cost = 1 + np.log(top.max()) - np.log(size[live])
    rows, cols = min_weight_full_bipartite_matching(csr_matrix((cost, (row_of[live], indices[live])), shape=(n, n)))
    match = np.empty(n, np.int64)
    match[cols] = rows
    return match


def _tables(kind: str, f: Fronts, rows: Any, cols: Any, scale: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The tables of the ops, and their attributes."""
    from rlx.sparse.symbolic import entry_places
    count, w, size = len(f.parent), f.widths, f.sizes
    low = w * (size - w) if kind == LU else np.zeros_like(w)
    panel, base = _running(w * size + low), _running(size * size)
    taken = np.arange(len(rows)) if kind == LU else np.nonzero(rows <= cols)[0]
    front, i, j = entry_places(f, rows[taken], cols[taken])
    sequence = np.argsort(front, kind="stable")
    entry = np.concatenate([[0], np.cumsum(np.bincount(front, minlength=count))])
    nodes = np.zeros((count + 1, COLUMNS), np.int64)
    nodes[:, FIRST], nodes[:, ABOVE], nodes[:, PANEL], nodes[:, BASE], nodes[:, ENTRY] = \
        f.first, f.above, panel, base, entry
    nodes[:count, WIDTH], nodes[:count, SIZE], nodes[:count, PARENT] = w, size, f.parent
    nodes[count, PARENT] = -1
    below = f.parent >= 0
    nodes[:count, KIDS] = np.bincount(f.parent[below], minlength=count)
    lowest = list(range(count))
    for s, p in enumerate(f.parent.tolist()):
        if p >= 0:
            lowest[p] = min(lowest[p], lowest[s])
    nodes[:count, LOW] = lowest
    batches, bounds, classes = _schedule(f)
    attrs = {"kind": kind, "classes": classes, "panels": int(panel[-1]), "pool": int(base[-1]),
             "stack": _stack(f)}
    tables = {"nodes": nodes, "into": f.into.astype(np.int32), "members": f.rows.astype(np.int32),
              "source": taken[sequence].astype(np.int32), "place": (i * size[front] + j)[sequence].astype(np.int32),
              "scale": scale, "batches": batches, "bounds": bounds}
    return tables, attrs


def _running(sizes: Any) -> Any:
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def _stack(f: Fronts) -> int:
    """Most elements alive when fronts go one after another: updates that wait for their parents, and one front."""
    waiting = most = 0
    kids = [0] * len(f.parent)
    squares, left = (f.sizes ** 2).tolist(), ((f.sizes - f.widths) ** 2).tolist()
    for s, p in enumerate(f.parent.tolist()):
        most = max(most, waiting + squares[s])
        waiting += left[s] - kids[s]
        if p >= 0:
            kids[p] += left[s]
    return most


def _schedule(f: Fronts) -> tuple[Any, Any, tuple[tuple[int, int, int, int], ...]]:
    """(batches, bounds, classes): the fronts of each level by padded size, in batches of equal width.

    Batches ``bounds[l, c] .. bounds[l+1, c]`` of class c are level l's; what is free in the last is filled up with the
    empty front.
    """
    count = len(f.parent)
    levels = int(f.level.max()) + 1 if count else 0
    padded = np.full(count, SIZES[0])
    while np.any(padded < f.sizes):
        padded[padded < f.sizes] *= SIZES[1]
    parts: list[Any] = []
    classes = []
    bounds = []
    at = 0
    for size in np.unique(padded):
        members = [np.nonzero((padded == size) & (f.level == l))[0] for l in range(levels)]
        width = int(max(1, min(BATCH_ELEMENTS // size ** 2, max(len(m) for m in members))))
        rows = [-(-len(m) // width) for m in members]
        for m, k in zip(members, rows, strict=True):
            parts.append(np.concatenate([m, np.full(k * width - len(m), count)]))
        classes.append((int(size), width, at, int(sum(rows))))
        bounds.append(np.concatenate([[0], np.cumsum(rows)]))
        at += width * int(sum(rows))
    batches = np.concatenate(parts) if parts else np.zeros(0)
    table = np.stack(bounds, axis=1) if bounds else np.zeros((1, 0))
    return batches.astype(np.int32), table.astype(np.int64), tuple(classes)


register_pytree(Plan, lambda plan: ((), plan), lambda plan, _: plan)
