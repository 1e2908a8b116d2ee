"""Solving with the factors: substitution by levels, iterative refinement, and derivatives by the same factors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from rlx.sparse.direct_ops import ABOVE, FIRST, LU, PANEL, SIZE, WIDTH
from rlx.sparse.products import csr_matvec

#: Refinement ends where the backward error is this many units of rounding.
TARGET = 16.0
PLAIN, TRANSPOSED, ADJOINT = 0, 1, 2


@op_named("sparse.substitute")
def substitute(panels: Array, b: Array, nodes: Array, members: Array, batches: Array, bounds: Array, /, *, kind: str,
               trans: bool, classes: Any, longest: int) -> Array:
    """``(L U)^-1 b`` for every right-hand side, or ``(L U)^-T b``; ``(U^H U)^-1 b`` if the kind is ``cholesky``.

    panels (..., p) are those of ``sparse.front_factor``, b (..., k, n) holds k right-hand sides in the order of
    elimination; ``longest`` is the largest number of rows below a front.
    """
    lead = b.shape[:-2]
    rest = {"kind": kind, "trans": trans, "classes": classes}
    if not lead:
        return _substitute(panels, b, nodes, members, batches, bounds, **rest)
    one = lambda p, y: _substitute(p, y, nodes, members, batches, bounds, **rest)
    out: Array = rlx.vmap(one)(panels.reshape((-1, panels.shape[-1])), b.reshape((-1, *b.shape[-2:])))
    return out.reshape(b.shape)


def _substitute(panels: Array, b: Array, nodes: Array, members: Array, batches: Array, bounds: Array, *, kind: str,
                trans: bool, classes: Any) -> Array:
    """Up the levels by the lower factor, down them by the upper one."""
    plain = kind == LU and not trans
    levels = bounds.shape[0] - 1

    def sweep(x: Array, down: bool) -> Array:
        def level(t: Array, x: Array) -> Array:
            l = levels - 1 - t if down else t
            for c, (size, width, first, rows) in enumerate(classes):
                table = batches[first:first + width * rows].reshape((rows, width))

                def step(k: Array, x: Array, size: int = size, table: Array = table) -> Array:
                    front = _Batch(gather(table, k, mode="promise"), size, nodes, members, x)
                    rows_of_u = (kind != LU) or plain == down
                    e = front.triangle(panels, rows_of_u)
                    unit = kind == LU and not rows_of_u
                    if down:
                        return front.backward(x, e, unit)
                    return front.forward(x, rlx.conj(e) if kind != LU else e, unit)
                x = rlx.fori_loop(bounds[l, c], bounds[l + 1, c], step, x)
            return x
        out: Array = rlx.fori_loop(0, levels, level, x)
        return out

    x = b.transpose(1, 0) + 0
    return sweep(sweep(x, False), True).transpose(1, 0)


class _Batch:
    """Fronts of one size: where their rows are in x, and their triangles."""

    def __init__(self, ids: Array, size: int, nodes: Array, members: Array, x: Array) -> None:
        mine = gather(nodes, cast(ids, dt.int64), mode="promise")
        self.size, self.device = size, x._value.node.device
        self.w, self.f, self.panel = [mine[:, k].reshape((-1, 1, 1)) for k in (WIDTH, SIZE, PANEL)]
        w, f, first, above = [mine[:, k].reshape((-1, 1)) for k in (WIDTH, SIZE, FIRST, ABOVE)]
        i = self._numbers(1, -1)
        self.below = rlx.logical_and(i >= w, i < f)
        self.inside, self.own = i < f, i < w
        last = max(members.shape[0] - 1, 0)
        there = cast(gather(members, rlx.clip(above + i - w, 0, last), mode="promise"), dt.int64) \
            if members.shape[0] else rlx.zeros_like(above + i)
        self.places = rlx.where(self.own, first + i, rlx.where(self.below, there, x.shape[0]))

    def _numbers(self, *shape: int) -> Array:
        return iota(self.size, dt.int64, self.device).reshape(shape)

    def triangle(self, panels: Array, rows: bool) -> Array:
        """``e[b, k, i]``: row k of U, or column k of L, at i >= k; zeros elsewhere."""
        k, i = self._numbers(1, -1, 1), self._numbers(1, 1, -1)
        w, f = self.w, self.f
        inside = rlx.logical_and(rlx.logical_and(k < w, i < f), i >= k)
        at = self.panel + k * f + i
        if not rows:
            at = rlx.where(i < w, self.panel + i * f + k, self.panel + w * f + k * (f - w) + i - w)
        out: Array = rlx.where(inside, gather(panels, rlx.where(inside, at, 0), mode="promise"), 0)
        return out

    def forward(self, x: Array, e: Array, unit: bool) -> Array:
        """Solve for the own rows, and subtract what they give the others."""
        seen = self._read(x, self.own)
        i = self._numbers(1, -1, 1)

        def column(k: Array, y: Array) -> Array:
            line = gather(e.transpose(1, 0, 2), k, mode="promise").reshape((-1, self.size, 1))
            value = self._at(y, k)
            live = k < self.w
            if not unit:
                value = value / rlx.where(live, self._at(line, k), 1)
            new = rlx.where(rlx.equal(i, k), value, rlx.where(i > k, y - line * value, y))
            out: Array = rlx.where(live, new, y)
            return out

        y = rlx.fori_loop(0, rlx.max(self.w), column, seen)
        x = scatter(x, y, (rlx.where(self.own, self.places, x.shape[0]),), "set")
        return scatter(x, y, (rlx.where(self.below, self.places, x.shape[0]),), "add")

    def backward(self, x: Array, e: Array, unit: bool) -> Array:
        """Solve for the own rows, given the others."""
        i = self._numbers(1, -1, 1)
        last = rlx.max(self.w)

        def row(t: Array, y: Array) -> Array:
            k = last - 1 - t
            line = gather(e.transpose(1, 0, 2), k, mode="promise").reshape((-1, self.size, 1))
            live = k < self.w
            value = self._at(y, k) - rlx.sum(rlx.where(i > k, line * y, 0), axis=1, keepdims=True)
            if not unit:
                value = value / rlx.where(live, self._at(line, k), 1)
            out: Array = rlx.where(rlx.logical_and(live, rlx.equal(i, k)), value, y)
            return out

        y = rlx.fori_loop(0, last, row, self._read(x, self.inside))
        return scatter(x, y, (rlx.where(self.own, self.places, x.shape[0]),), "set")

    def _read(self, x: Array, which: Array) -> Array:
        """Rows of x, zeros where not wanted: (fronts, rows, right-hand sides)."""
        got = gather(x, rlx.where(which, self.places, 0), mode="promise")
        out: Array = rlx.where(which.reshape((*which.shape, 1)), got, 0)
        return out

    @staticmethod
    def _at(y: Array, k: Array) -> Array:
        """Row k of every front: (fronts, 1, right-hand sides)."""
        row = gather(y.transpose(1, 0, 2), k, mode="promise")
        return row.reshape((row.shape[0], 1, row.shape[1]))


substitute.grad(NotDifferentiable("sparse.direct_solve, which uses it, has the derivative"))


@substitute.batch
def _(axes: Sequence[int | None], size: int, *args: Array, **attrs: Any) -> Any:
    """Batched factors: a leading axis. Factors that are shared: more right-hand sides."""
    panels, b, *tables = args
    b = front(b, axes[1], size)
    if axes[0] is None and panels.ndim == 1:
        out = substitute(panels, b.reshape((-1, b.shape[-1])), *tables, **attrs)
        return out.reshape(b.shape), 0
    return substitute(front(panels, axes[0], size), b, *tables, **attrs), 0


def front(x: Array, axis: int | None, size: int) -> Array:
    """The batch axis first; a value without one is repeated."""
    if axis is None:
        return rlx.broadcast_to(x, (size, *x.shape))
    return rlx.permute_dims(x, (axis, *(i for i in range(x.ndim) if i != axis)))


@op_named("sparse.direct_solve")
def direct_solve(values: Array, panels: Array, b: Array, indices: Array, indptr: Array, orders: Array, scales: Array,
                 nodes: Array, members: Array, batches: Array, bounds: Array, /, *, kind: str, trans: int, refine: int,
                 classes: Any, longest: int) -> tuple[Array, Array, Array]:
    """``(x, error, steps)`` with ``op(A) x = b`` for each of k right-hand sides, by factors of A (or of one near A).

    values (..., nnz), indices, indptr: A as CSR. panels (..., p): the factors. b (..., k, n). orders (4, n): rows and
    columns in the order of elimination, and back; scales (2, n). ``trans`` 0, 1, 2 is A, A^T, A^H. Up to ``refine``
    steps of refinement follow, until the backward error ``max_i |b - A x|_i / (|A| |x| + |b|)_i`` (k) is ``TARGET``
    units of rounding or falls no longer; steps is their number (int32).
    """
    lead = b.shape[:-2]
    attrs = {"kind": kind, "refine": refine, "classes": classes, "longest": longest}

    def one(values: Array, panels: Array, b: Array) -> Any:
        if trans != ADJOINT:
            return _solve(values, panels, b, indices, indptr, orders, scales, nodes, members, batches, bounds,
                          trans=trans == TRANSPOSED, **attrs)
        # A^H x = b is A^T conj(x) = conj(b).
        x, error, steps = _solve(values, panels, rlx.conj(b), indices, indptr, orders, scales, nodes, members, batches,
                                 bounds, trans=True, **attrs)
        return rlx.conj(x), error, steps

    if not lead:
        out: tuple[Array, Array, Array] = one(values, panels, b)
        return out
    flat = [a.reshape((-1, *a.shape[len(lead):])) for a in (values, panels, b)]
    x, error, steps = rlx.vmap(one)(*flat)
    return x.reshape(b.shape), error.reshape(b.shape[:-1]), steps.reshape(lead)


def _solve(values: Array, panels: Array, b: Array, indices: Array, indptr: Array, orders: Array, scales: Array,
           nodes: Array, members: Array, batches: Array, bounds: Array, *, kind: str, trans: bool, refine: int,
           classes: Any, longest: int) -> tuple[Array, Array, Array]:
    before, after = (scales[1], scales[0]) if trans else (scales[0], scales[1])
    rows, back = (orders[1], orders[2]) if trans else (orders[0], orders[3])
    # The factors of a Hermitian matrix's transpose are the conjugates.
    turned = trans and kind != LU and values.dtype.is_complex

    def apply(r: Array) -> Array:
        y = gather((r * cast(before, r.dtype)).transpose(1, 0), rows, mode="promise").transpose(1, 0)
        y = rlx.conj(y) if turned else y
        z = substitute(panels, y, nodes, members, batches, bounds, kind=kind, trans=trans and kind == LU,
                       classes=classes, longest=longest)
        z = rlx.conj(z) if turned else z
        return gather(z.transpose(1, 0), back, mode="promise").transpose(1, 0) * cast(after, r.dtype)

    product = _products(values, indices, indptr, trans)
    size = _products(rlx.abs(values), indices, indptr, trans)
    eps = float(np.finfo(b.dtype.real.numpy).eps)
    given = rlx.abs(b)

    def judge(x: Array) -> tuple[Array, Array]:
        r = b - product(x)
        scale = size(rlx.abs(x)) + given
        # A row whose terms are tiny beside the others' says nothing: its own rounding is not its fault.
        floor = rlx.max(scale, axis=1, keepdims=True) * (1000 * eps)
        scale = rlx.maximum(scale, floor)
        return r, rlx.max(rlx.abs(r) / rlx.where(rlx.equal(scale, 0), 1, scale), axis=1)

    x = apply(b)
    r, error = judge(x)
    zero = constant(0, dt.int32, b._value.node.device)
    if not refine:
        return x, error, zero

    def more(state: Any) -> Array:
        return rlx.logical_and(rlx.any(state[3]), state[4] < refine)

    def improve(state: Any) -> Any:
        x, r, error, going, steps = state
        new = x + apply(r)
        r_new, e_new = judge(new)
        better = rlx.logical_and(going, e_new < error)
        on = better.reshape((-1, 1))
        still = rlx.logical_and(rlx.logical_and(better, e_new > TARGET * eps), 2 * e_new <= error)
        return (rlx.where(on, new, x), rlx.where(on, r_new, r), rlx.where(better, e_new, error), still,
                cast(steps + 1, dt.int32))

    x, _, error, _, steps = rlx.while_loop(more, improve, (x, r, error, error > TARGET * eps, zero))
    return x, error, steps


def _products(values: Array, indices: Array, indptr: Array, trans: bool) -> Callable[[Array], Array]:
    """``x -> A x`` (or ``A^T x``) for x (k, n)."""
    def plain(x: Array) -> Array:
        if x.shape[0] == 1:
            return csr_matvec(values, indices, indptr, x.reshape((-1,))).reshape(x.shape)
        return csr_matvec(values, indices, indptr, x.transpose(1, 0)).transpose(1, 0)

    def turned(x: Array) -> Array:
        rows = segment_of(indptr, values.shape[0])
        terms = gather(x.transpose(1, 0), rows, mode="promise") * values.reshape((-1, 1))
        return scatter(x.transpose(1, 0) * 0, terms, (indices,), "add").transpose(1, 0)
    return turned if trans else plain


@direct_solve.grad
def _(ct: Any, out: Any, values: Array, panels: Array, b: Array, indices: Array, indptr: Array, orders: Array,
      scales: Array, nodes: Array, members: Array, batches: Array, bounds: Array, *, kind: str, trans: int, refine: int,
      classes: Any, longest: int) -> list[Any]:
    """``bbar = op(A)^-H xbar`` by the same factors, and ``op(A)bar = -bbar x^H`` at the entries."""
    nothing = [None] * 8
    if ct[0] is None:
        return [None, None, None, *nothing]
    flip = {PLAIN: ADJOINT, ADJOINT: PLAIN, TRANSPOSED: TRANSPOSED}[trans]
    given = rlx.conj(ct[0]) if trans == TRANSPOSED else ct[0]
    tables = (indices, indptr, orders, scales, nodes, members, batches, bounds)
    if trans == TRANSPOSED:
        flip = PLAIN
    bar = direct_solve(values, panels, given, *tables, kind=kind, trans=flip, refine=refine, classes=classes,
                       longest=longest)[0]
    bar = rlx.conj(bar) if trans == TRANSPOSED else bar
    rows, cols = segment_of(indptr, values.shape[-1]), cast(indices, dt.int64)
    left, right = (rows, cols) if trans == PLAIN else (cols, rows)
    g = -rlx.sum(_last(bar, left) * rlx.conj(_last(out[0], right)), axis=-2)
    return [rlx.conj(g) if trans == ADJOINT else g, None, bar, *nothing]


def _last(a: Array, at: Array) -> Array:
    """Elements ``at`` of the last axis."""
    n = a.ndim
    picked = gather(a.transpose(n - 1, *range(n - 1)), at, mode="promise")
    return picked.transpose(*range(1, n), 0)


@direct_solve.batch
def _(axes: Sequence[int | None], size: int, *args: Array, **attrs: Any) -> Any:
    """Matrices of a batch: a leading axis. One matrix: more right-hand sides."""
    values, panels, b, *tables = args
    b = front(b, axes[2], size)
    if axes[0] is None and axes[1] is None and values.ndim == 1:
        x, error, steps = direct_solve(values, panels, b.reshape((-1, b.shape[-1])), *tables, **attrs)
        return (x.reshape(b.shape), error.reshape(b.shape[:-1]), steps), (0, 0, None)
    return direct_solve(front(values, axes[0], size), front(panels, axes[1], size), b, *tables, **attrs), (0, 0, 0)


__all__ = ["ADJOINT", "PLAIN", "TRANSPOSED", "direct_solve", "substitute"]
