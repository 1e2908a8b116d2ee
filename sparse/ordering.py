"""Fill-reducing orderings, on the host: approximate minimum degree on the quotient graph.

The functions that numba compiles are pure loops over integer arrays; they are compiled at the first analysis and kept
on disk by numba.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

Ints = np.ndarray[Any, np.dtype[np.int64]]
#: A variable with more neighbours than ``DENSE * sqrt(n)`` is ordered last: it would join every front.
DENSE = 10.0


def amd(indptr: Ints, indices: Ints) -> Ints:
    """An order of the variables of a symmetric pattern that keeps the fill of its factors small.

    The pattern is given whole (both triangles), sorted or not, without its diagonal. Returns ``order`` with
    ``order[k]`` the variable eliminated k-th. After P. R. Amestoy, T. A. Davis and I. S. Duff, SIAM J. Matrix Anal.
    Appl. 17 (1996) 886: approximate external degrees, element and aggressive absorption, mass elimination, and
    variables of equal adjacency merged.

    >>> import numpy as np
    >>> from rlx.sparse.ordering import amd
    >>> 0 in amd(np.array([0, 3, 4, 5, 6]), np.array([1, 2, 3, 0, 0, 0]))[-2:]    # the hub of a star comes late
    True
    """
    n = len(indptr) - 1
    if n == 0:
        return np.zeros(0, np.int64)
    return _amd(n, np.ascontiguousarray(indptr, np.int64), np.ascontiguousarray(indices, np.int64),
                max(16, int(DENSE * np.sqrt(n))))


@njit(cache=True)
def _amd(n: int, indptr: Ints, indices: Ints, dense: int) -> Ints:  # pragma: no cover - compiled
    """The elimination. A node is a live variable (``weight > 0``), an element (``weight`` of its pivot, in
    ``elements``), or dead (absorbed into ``owner``).

    ``lists[start[i]:start[i] + size[i]]`` of a variable are its elements (the first ``inner[i]``), then its variables;
    of an element, its variables. During a pivot's elimination the members of its element have negative weight.
    """
    free = len(indices)
    lists = np.empty(free + free // 5 + n + 16, np.int64)
    lists[:free] = indices
    start, size, inner = indptr[:-1].copy(), np.diff(indptr), np.zeros(n, np.int64)
    weight, degree = np.ones(n, np.int64), np.diff(indptr)
    owner = np.full(n, -1, np.int64)
    mark = np.ones(n, np.int64)          # of elements: stamp + |Le \ Lp|; 0 when absorbed
    head, after, before = np.full(n + 1, -1, np.int64), np.full(n, -1, np.int64), np.full(n, -1, np.int64)
    bucket, link, key = np.full(n, -1, np.int64), np.full(n, -1, np.int64), np.zeros(n, np.int64)
    same = np.full(n, -1, np.int64)      # whom a variable was last compared with
    pivots, count, done, stamp, largest = np.empty(n, np.int64), 0, 0, 2, 0
    for i in range(n):
        if degree[i] > dense:            # last of all, and out of the graph
            weight[i] = 0
            done += 1
            owner[i] = -2
    for i in range(n):
        if weight[i] > 0:
            _insert(i, degree[i], head, after, before)
    low = 0
    while done < n:
        while head[low] < 0:
            low += 1
        p = head[low]
        _remove(p, low, head, after, before)
        weight_p = weight[p]
        done += weight_p
        # The element of p: the variables of p and of its elements, which it absorbs.
        room = degree[p] + size[p] + 8
        if free + room > len(lists):
            bigger = np.empty(2 * len(lists) + room, np.int64)
            bigger[:free] = lists[:free]
            lists = bigger
        first, degree_p = free, 0
        weight[p] = -weight_p
        for t in range(inner[p] + 1):
            if t < inner[p]:
                e = lists[start[p] + t]
                begin, stop = start[e], start[e] + size[e]
                mark[e] = 0
                owner[e] = p
            else:
                begin, stop = start[p] + inner[p], start[p] + size[p]
            for q in range(begin, stop):
                i = lists[q]
                if weight[i] > 0:
                    degree_p += weight[i]
                    weight[i] = -weight[i]
                    lists[free] = i
                    free += 1
                    _remove(i, degree[i], head, after, before)
        start[p], size[p], inner[p], degree[p] = first, free - first, -1, degree_p
        mark[p] = stamp
        # |Le \ Lp| of every element that meets Lp.
        for q in range(first, free):
            i = lists[q]
            for t in range(start[i], start[i] + inner[i]):
                e = lists[t]
                if mark[e] >= stamp:
                    mark[e] += weight[i]
                elif mark[e] != 0:
                    mark[e] = degree[e] + stamp + weight[i]
        # New degrees; elements inside Lp vanish; variables with nothing else are eliminated with p.
        for q in range(first, free):
            i = lists[q]
            begin, middle = start[i], start[i] + inner[i]
            to, bound, code = begin, 0, 0
            for t in range(begin, middle):
                e = lists[t]
                if mark[e] == 0:
                    continue
                outside = mark[e] - stamp
                if outside > 0:
                    bound += outside
                    code += e
                    lists[to] = e
                    to += 1
                else:
                    mark[e] = 0
                    owner[e] = p
            kept = to
            for t in range(middle, begin + size[i]):
                j = lists[t]
                if weight[j] > 0:
                    bound += weight[j]
                    code += j
                    lists[to] = j
                    to += 1
            if to == begin:
                owner[i] = p
                weight_p -= weight[i]
                degree_p += weight[i]
                done -= weight[i]
                weight[i] = 0
                continue
            degree[i] = min(degree[i], bound)
            # Room for p is there: an element or variable of the list led to p, and is gone.
            lists[to] = lists[kept]
            lists[kept] = lists[begin]
            lists[begin] = p
            inner[i], size[i] = kept - begin + 1, to - begin + 1
            code = code % n
            key[i] = code
            link[i] = bucket[code]
            bucket[code] = i
        degree[p] = degree_p
        largest = max(largest, degree_p)
        stamp += largest + 1
        # Variables of equal adjacency become one.
        for q in range(first, free):
            i = lists[q]
            if weight[i] == 0:
                continue
            i = bucket[key[i]]
            bucket[key[lists[q]]] = -1
            while i >= 0 and link[i] >= 0:
                for t in range(start[i] + 1, start[i] + size[i]):
                    same[lists[t]] = stamp
                    # elements and variables have different numbers, so one mark serves both
                last, j = i, link[i]
                while j >= 0:
                    equal = size[i] == size[j] and inner[i] == inner[j]
                    t = start[j] + 1
                    while equal and t < start[j] + size[j]:
                        equal = same[lists[t]] == stamp
                        t += 1
                    if equal:
                        owner[j] = i
                        weight[i] += weight[j]
                        weight[j] = 0
                        j = link[j]
                        link[last] = j
                    else:
                        last, j = j, link[j]
                stamp += 1
                i = link[i]
        # Lp without the dead; degrees back into the lists.
        to = first
        for q in range(first, free):
            i = lists[q]
            if weight[i] == 0:
                continue
            weight[i] = -weight[i]
            degree[i] = max(min(degree[i] + degree_p - weight[i], n - done - weight[i]), 0)
            _insert(i, degree[i], head, after, before)
            low = min(low, degree[i])
            lists[to] = i
            to += 1
        free, size[p] = to, to - first
        weight[p] = weight_p
        if size[p] == 0:
            mark[p] = 0
        pivots[count] = p
        count += 1
    return _sequence(n, pivots[:count], owner)


@njit(cache=True)
def _insert(i: int, d: int, head: Ints, after: Ints, before: Ints) -> None:  # pragma: no cover - compiled
    """Put a variable at the head of its degree's list."""
    after[i], before[i] = head[d], -1
    if head[d] >= 0:
        before[head[d]] = i
    head[d] = i


@njit(cache=True)
def _remove(i: int, d: int, head: Ints, after: Ints, before: Ints) -> None:  # pragma: no cover - compiled
    """Take a variable out of its degree's list."""
    if before[i] >= 0:
        after[before[i]] = after[i]
    else:
        head[d] = after[i]
    if after[i] >= 0:
        before[after[i]] = before[i]


@njit(cache=True)
def _sequence(n: int, pivots: Ints, owner: Ints) -> Ints:  # pragma: no cover - compiled
    """Pivots in order, each with the variables merged into it or eliminated with it; dense variables last."""
    rank = np.full(n, -1, np.int64)
    for k in range(len(pivots)):
        rank[pivots[k]] = k
    home = np.empty(n, np.int64)
    for i in range(n):
        j = i
        while rank[j] < 0 and owner[j] >= 0:
            j = owner[j]
        home[i] = rank[j] if rank[j] >= 0 else len(pivots)
    return np.argsort(home, kind="mergesort")
