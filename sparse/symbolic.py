"""The symbolic part of a direct solver, on the host: elimination tree, supernodes, and where every entry goes.

Supernode ``s`` eliminates the columns ``first[s] .. first[s+1]`` together in a dense *front* whose rows are those
columns and then ``rows[above[s]:above[s+1]]``. What a front adds to its parent's goes to rows ``into[...]`` of that.
The functions that numba compiles are pure loops over integer arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit

Ints = np.ndarray[Any, np.dtype[np.int64]]
#: Two supernodes merge when the share of zeros that the merged one stores is at most this, by its columns. A wider
#: front costs fewer, longer loops: below four columns it always pays. After the relaxation of CHOLMOD (Y. Chen et al.,
#: ACM Trans. Math. Softw. 35 (2008) 22), tightened for the wide ones.
RELAX = ((4, 1.0), (16, 0.5), (48, 0.15), (1 << 60, 0.05))


@dataclass(frozen=True, eq=False)
class Fronts:
    """The fronts of a symmetric pattern, in an order in which children come before parents.

    ``order[k]`` is the variable eliminated k-th; ``first``, ``above`` (supernodes + 1), ``parent`` (-1 at a root),
    ``rows``, ``into`` as the module says; ``level`` is 0 for a front that waits for nobody.
    """

    order: Ints
    first: Ints
    above: Ints
    rows: Ints
    into: Ints
    parent: Ints
    level: Ints

    @property
    def widths(self) -> Ints:
        """Columns eliminated in each front."""
        return np.diff(self.first)

    @property
    def sizes(self) -> Ints:
        """Rows of each front."""
        return self.widths + np.diff(self.above)

    @property
    def flops(self) -> int:
        """Floating operations of an LU factorization, zeros included."""
        w, f = self.widths.astype(float), self.sizes.astype(float)
        # Column k of a front divides and updates m = f - 1 - k rows: m + 2 m^2.
        total = 0.0
        for sign, x in ((1, f), (-1, f - w)):
            total += sign * float(np.sum(x * (x - 1) / 2 + x * (x - 1) * (2 * x - 1) / 3))
        return round(total)


def fronts(indptr: Ints, indices: Ints, order: Ints) -> Fronts:
    """The fronts of a symmetric pattern (whole, without its diagonal) eliminated in this order, or an equivalent one.

    The order is changed to a postorder of the elimination tree, which has the same fill.
    """
    n = len(order)
    indptr, indices = np.ascontiguousarray(indptr, np.int64), np.ascontiguousarray(indices, np.int64)
    tree = _tree(n, indptr, indices, order)
    after = _postorder(n, tree)
    order = order[after]
    back = np.empty(n, np.int64)
    back[after] = np.arange(n)
    tree = np.where(tree[after] < 0, -1, back[tree[after]])
    counts = _counts(n, indptr, indices, order, tree)
    limits = np.array([a for a, _ in RELAX], np.int64)
    shares = np.array([b for _, b in RELAX], np.float64)
    first = _supernodes(n, tree, counts, limits, shares)
    above, rows, into, parent, level = _structure(n, indptr, indices, order, first)
    return Fronts(order, first, above, rows, into, parent, level)


def entry_places(f: Fronts, row_of: Ints, col_of: Ints) -> tuple[Ints, Ints, Ints]:
    """Where entries at eliminated positions ``(row_of, col_of)`` enter: (front, row in it, column in it)."""
    front, i, j = _places(f.first, f.above, f.rows, np.ascontiguousarray(row_of, np.int64),
                          np.ascontiguousarray(col_of, np.int64))
    return front, i, j


@njit(cache=True)
def _tree(n: int, indptr: Ints, indices: Ints, order: Ints) -> Ints:  # pragma: no cover - compiled
    """The elimination tree of the permuted pattern, by paths shortened on the way (J. W. H. Liu, 1986)."""
    rank = np.empty(n, np.int64)
    for k in range(n):
        rank[order[k]] = k
    parent, ancestor = np.full(n, -1, np.int64), np.full(n, -1, np.int64)
    for i in range(n):
        v = order[i]
        for t in range(indptr[v], indptr[v + 1]):
            j = rank[indices[t]]
            while j != -1 and j < i:
                up = ancestor[j]
                ancestor[j] = i
                if up == -1:
                    parent[j] = i
                j = up
    return parent


@njit(cache=True)
def _postorder(n: int, parent: Ints) -> Ints:  # pragma: no cover - compiled
    """The nodes of a forest with every subtree in one piece, children in order."""
    child, sibling = np.full(n, -1, np.int64), np.full(n, -1, np.int64)
    for i in range(n - 1, -1, -1):
        if parent[i] >= 0:
            sibling[i] = child[parent[i]]
            child[parent[i]] = i
    out, stack, k = np.empty(n, np.int64), np.empty(n, np.int64), 0
    for root in range(n):
        if parent[root] >= 0:
            continue
        stack[0], top = root, 1
        while top > 0:
            i = stack[top - 1]
            c = child[i]
            if c >= 0:
                child[i] = sibling[c]
                stack[top] = c
                top += 1
            else:
                out[k] = i
                k += 1
                top -= 1
    return out


@njit(cache=True)
def _counts(n: int, indptr: Ints, indices: Ints, order: Ints, parent: Ints) -> Ints:  # pragma: no cover - compiled
    """Entries of each column of the factor, its diagonal included: every row's subtree is walked once."""
    rank = np.empty(n, np.int64)
    for k in range(n):
        rank[order[k]] = k
    counts, seen = np.ones(n, np.int64), np.full(n, -1, np.int64)
    for i in range(n):
        seen[i] = i
        v = order[i]
        for t in range(indptr[v], indptr[v + 1]):
            j = rank[indices[t]]
            while j < i and seen[j] != i:
                counts[j] += 1
                seen[j] = i
                j = parent[j]
    return counts


@njit(cache=True)
def _supernodes(n: int, parent: Ints, counts: Ints, limits: Ints, shares: Any) -> Ints:  # pragma: no cover - compiled
    """First columns of the supernodes, and n: equal structures first, then merges that store few zeros."""
    begin, rows, zeros, k = np.empty(n + 1, np.int64), np.empty(n, np.int64), np.zeros(n, np.int64), 0
    for j in range(n):
        if j > 0 and parent[j - 1] == j and counts[j - 1] == counts[j] + 1:
            # One more column of the open supernode.
            pass
        else:
            begin[k] = j
            rows[k] = counts[j]
            zeros[k] = 0
            k += 1
        last = j == n - 1 or not (parent[j] == j + 1 and counts[j] == counts[j + 1] + 1)
        if not last:
            continue
        # The supernode that ends here may take in the one that ends before it.
        while k > 1:
            at = begin[k - 1]
            if parent[at - 1] < at or parent[at - 1] > j:
                break
            w_child, w = at - begin[k - 2], j + 1 - at
            size = w_child + rows[k - 1]
            more = zeros[k - 2] + zeros[k - 1] + w_child * (size - rows[k - 2])
            width = w_child + w
            stored = width * size - width * (width - 1) // 2
            allowed = False
            for r in range(len(limits)):
                if width <= limits[r]:
                    allowed = more <= shares[r] * stored
                    break
            if not allowed:
                break
            k -= 1
            rows[k - 1], zeros[k - 1] = size, more
    begin[k] = n
    return begin[:k + 1].copy()


@njit(cache=True)
def _structure(n: int, indptr: Ints, indices: Ints, order: Ints,
               first: Ints) -> Any:  # pragma: no cover - compiled
    """(above, rows, into, parent, level): each front's rows are those of its columns and of its children."""
    count = len(first) - 1
    rank, home = np.empty(n, np.int64), np.empty(n, np.int64)
    for k in range(n):
        rank[order[k]] = k
    for s in range(count):
        home[first[s]:first[s + 1]] = s
    above = np.zeros(count + 1, np.int64)
    rows = np.empty(len(indices) + n + 16, np.int64)
    parent, level = np.full(count, -1, np.int64), np.zeros(count, np.int64)
    child, sibling = np.full(count, -1, np.int64), np.full(count, -1, np.int64)
    seen = np.full(n, -1, np.int64)
    at = 0
    for s in range(count):
        stop = first[s + 1]
        if at + n > len(rows):
            bigger = np.empty(2 * len(rows) + n, np.int64)
            bigger[:at] = rows[:at]
            rows = bigger
        begin = at
        for k in range(first[s], stop):
            v = order[k]
            for t in range(indptr[v], indptr[v + 1]):
                j = rank[indices[t]]
                if j >= stop and seen[j] != s:
                    seen[j] = s
                    rows[at] = j
                    at += 1
        c = child[s]
        while c >= 0:
            for t in range(above[c], above[c + 1]):
                j = rows[t]
                if j >= stop and seen[j] != s:
                    seen[j] = s
                    rows[at] = j
                    at += 1
            level[s] = max(level[s], level[c] + 1)
            c = sibling[c]
        rows[begin:at].sort()
        above[s + 1] = at
        if at > begin:
            p = home[rows[begin]]
            parent[s] = p
            sibling[s] = child[p]
            child[p] = s
    into, place = np.empty(at, np.int64), np.empty(n, np.int64)
    for p in range(count):
        if child[p] < 0:
            continue
        w = first[p + 1] - first[p]
        for k in range(w):
            place[first[p] + k] = k
        for t in range(above[p], above[p + 1]):
            place[rows[t]] = w + t - above[p]
        c = child[p]
        while c >= 0:
            for t in range(above[c], above[c + 1]):
                into[t] = place[rows[t]]
            c = sibling[c]
    return above, rows[:at].copy(), into, parent, level


@njit(cache=True)
def _places(first: Ints, above: Ints, rows: Ints, row_of: Ints, col_of: Ints) -> Any:  # pragma: no cover - compiled
    """The front of each entry is that of its earlier position; the later one is searched in the front's rows."""
    n = first[-1]
    home = np.empty(n, np.int64)
    for s in range(len(first) - 1):
        home[first[s]:first[s + 1]] = s
    m = len(row_of)
    front, i, j = np.empty(m, np.int64), np.empty(m, np.int64), np.empty(m, np.int64)
    for k in range(m):
        s = home[min(row_of[k], col_of[k])]
        front[k] = s
        for side in range(2):
            x = row_of[k] if side == 0 else col_of[k]
            if x < first[s + 1]:
                place = x - first[s]
            else:
                w = first[s + 1] - first[s]
                place = w + np.searchsorted(rows[above[s]:above[s + 1]], x)
            if side == 0:
                i[k] = place
            else:
                j[k] = place
    return front, i, j
