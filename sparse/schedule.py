"""Recurrences on sparse patterns in an order that a device can run: steps of many independent updates.

A triangular solve, or an incomplete factorization, computes each item from items that it depends on. Items of one level
depend on lower levels only. Levels are cut into steps of one width, items with many terms into several steps, so that a
loop over the steps with arrays of fixed shape does it all, on every device.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlx.array.array import Array
from rlx.array.build import as_array
from rlx.core.errors import ValueIssue
from rlx.ops.control import fori_loop
from rlx.ops.creation import zeros
from rlx.ops.elementwise import conj
from rlx.ops.index import gather, scatter
from rlx.ops.movement import concat
from rlx.ops.reduce import sum as total

Index = NDArray[Any]
#: What a step costs beside its terms, in terms: starting a few kernels.
STEP_COST = 400
#: Terms of one update in one step at most.
MOST_TERMS = 32


@dataclass(frozen=True)
class Steps:
    """``rows[s, w]`` is the item that update w of step s adds to (past the end: none), ``terms[s, w, k]`` the numbers
    of its terms (the count of terms: none), ``last[s, w]`` whether it is the item's last update."""

    rows: Index
    terms: Index
    last: Index


def levels(depends: Index, start: Index, n: int) -> Index:
    """The level of each item: 0 without dependencies, else one more than the highest it depends on.

    Item t depends on ``depends[start[t]:start[t+1]]``. Raises ValueIssue for a cycle.
    """
    waits = np.diff(start)
    items = np.repeat(np.arange(n), waits)
    order = np.argsort(depends, kind="stable")
    after, begin = items[order], np.searchsorted(depends[order], np.arange(n + 1))
    level = np.full(n, -1, np.int64)
    waits, front, k = waits.copy(), np.flatnonzero(waits == 0), 0
    while len(front):
        level[front] = k
        count = begin[front + 1] - begin[front]
        reached = after[_runs(begin[front], count)]
        targets, times = np.unique(reached, return_counts=True)
        waits[targets] -= times
        front, k = targets[waits[targets] == 0], k + 1
    if n and level.min() < 0:
        raise ValueIssue("a recurrence that depends on itself", why="its pattern has a cycle",
                         do="pass a triangular pattern")
    return level


def _runs(start: Index, count: Index) -> Index:
    """``start[0], start[0] + 1, ...`` (count[0] of them), then the next run."""
    ends = np.cumsum(count)
    if not len(count) or ends[-1] == 0:
        return np.zeros(0, np.int64)
    out: Index = np.arange(ends[-1]) - np.repeat(ends - count, count) + np.repeat(start, count)
    return out


def steps_of(level: Index, start: Index) -> Steps:
    """The steps for items of these levels, with the terms ``start[t] .. start[t+1]`` of each item t."""
    n, count = len(level), np.diff(start)
    most = min(int(count.max(initial=1)) or 1, MOST_TERMS)
    pieces = np.maximum(-(-count // most), 1)
    item = np.repeat(np.arange(n), pieces)
    piece = _runs(np.zeros(n, np.int64), pieces)
    deepest = int(pieces.max(initial=1))
    group = level[item] * deepest + piece
    order = np.argsort(group, kind="stable")
    item, piece, group = item[order], piece[order], group[order]
    sizes = np.unique(group, return_counts=True)[1]
    width = _width(sizes, most)
    steps = -(-sizes // width)
    place = _runs(np.zeros(len(sizes), np.int64), sizes) + np.repeat((np.cumsum(steps) - steps) * width, sizes)
    total_steps = int(steps.sum())
    rows = np.full(total_steps * width, n, np.int64)
    rows[place] = item
    terms = np.full((total_steps * width, most), int(start[-1]), np.int64)
    number = start[item][:, None] + piece[:, None] * most + np.arange(most)
    terms[place] = np.where(number < start[item + 1][:, None], number, int(start[-1]))
    last = np.zeros(total_steps * width, bool)
    last[place] = piece == pieces[item] - 1
    shape = (total_steps, width)
    return Steps(rows.reshape(shape), terms.reshape((*shape, most)), last.reshape(shape))


def _width(sizes: Index, terms: int) -> int:
    """The width that costs least over all levels."""
    if not len(sizes):
        return 1
    choices = 2 ** np.arange(max(int(sizes.max()) - 1, 1).bit_length() + 1)
    cost = [int((-(-sizes // w)).sum()) * (STEP_COST + int(w) * terms) for w in choices]
    return int(choices[int(np.argmin(cost))])


@dataclass(frozen=True)
class Triangular:
    """A triangular solve as steps; a pytree that is called with the right-hand side.

    In each step ``x[rows] = sum_k values[., k] x[cols[., k]] * scale``, where x starts as b and one of the terms is
    ``1 x[rows]``. All that is read of x is read by one sum, so that x is written in place.
    """

    rows: Array
    cols: Array
    values: Array
    scale: Array

    def __call__(self, b: Array) -> Array:
        """The solution x (n,)."""
        n, device = int(b.shape[0]), b._value.node.device
        start = concat((b, zeros((1,), dtype=b.dtype, device=device)))

        def step(s: Array, x: Array) -> Array:
            terms = gather(self.values, s) * gather(x, gather(self.cols, s), mode="promise")
            return scatter(x, total(terms, axis=1) * gather(self.scale, s), (gather(self.rows, s),), "set")
        out: Array = fori_loop(0, int(self.rows.shape[0]), step, start)[:n]
        return out


def triangular(cols: Index, start: Index, entries: Index, values: Array, scale: Array) -> Triangular:
    """The solve ``x[i] = (b[i] - sum values[entries[t]] x[cols[t]]) * scale[i]`` over terms t of row i.

    ``entries`` are places in ``values`` (nnz,) and ``scale`` has one number a row; both may be traced.
    """
    n = len(start) - 1
    plan = steps_of(levels(cols, start, n), start)
    device = values._value.node.device
    none, m = zeros((1,), dtype=values.dtype, device=device), values.shape[0]
    source = np.append(entries, m)[plan.terms]
    source = np.concatenate([np.full((*source.shape[:2], 1), m + 1), source], axis=2)
    taken = gather(concat((-values, none, none + 1)), _placed(source, device), mode="promise")
    places = np.concatenate([plan.rows[:, :, None], np.append(cols, n)[plan.terms]], axis=2)
    factor = gather(concat((scale, none + 1)), _placed(np.where(plan.last, plan.rows, n), device), mode="promise")
    # Place n of x is a zero that empty terms read and idle updates write.
    return Triangular(_placed(plan.rows, device), _placed(places, device), taken, factor)


def _placed(index: Index, device: str | None) -> Array:
    small = np.int32 if index.size == 0 or index.max() < 2**31 else np.int64
    return as_array(np.ascontiguousarray(index, small), device=device)


def eliminate(start: Index, left: Index, right: Index, middle: Index | None, divisor: Index,
              depends: tuple[Index, Index], values: Array) -> Array:
    """Entries by elimination: ``v[e] = (a[e] - sum_t v[left[t]] * v[right[t]]) / v[divisor[e]]``.

    Terms of entry e are ``start[e] <= t < start[e+1]``. With ``middle`` a term is ``v[left] conj(v[right]) v[middle]``.
    A divisor of nnz is 1. ``depends`` is the pattern of what each entry needs: (entries, starts).
    """
    n = len(start) - 1
    plan = steps_of(levels(*depends, n), start)
    device = values._value.node.device
    # Places past the entries: 0, which empty terms read; 1, the divisor of none; -1, which takes an entry as it stands
    # into its own sum (so that all that is read is read by one sum, and entries are written in place).
    ends = zeros((1,), dtype=values.dtype, device=device)
    begin = concat((values, ends, ends + 1, ends - 1))
    rows = _placed(np.where(plan.rows == n, n + 3, plan.rows), device)  # idle updates are dropped
    own = np.minimum(plan.rows, n)[:, :, None]
    heads = (own, np.full_like(own, n + 2), np.full_like(own, n + 1))
    parts = (left, right) if middle is None else (left, right, middle)
    sides = [_placed(np.concatenate([h, np.append(t, n)[plan.terms]], axis=2), device)
             for h, t in zip(heads, parts, strict=False)]
    by = np.append(np.where(divisor == n, n + 1, divisor), n + 1)
    over = _placed(np.where(plan.last, by[plan.rows], n + 1)[:, :, None], device)

    def step(s: Array, v: Array) -> Array:
        a, b, *d = [gather(v, gather(side, s), mode="promise") for side in sides]
        terms = a * conj(b) * d[0] if d else a * b
        terms = terms / gather(v, gather(over, s), mode="promise")
        return scatter(v, -total(terms, axis=1), (gather(rows, s),), "set")
    out: Array = fori_loop(0, plan.rows.shape[0], step, begin)[:n]
    return out


__all__ = ["Steps", "Triangular", "eliminate", "levels", "steps_of", "triangular"]
