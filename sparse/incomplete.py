"""Incomplete factorizations without fill: ILU(0) and IC(0), level-scheduled programs to make and to apply."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlx.array.array import Array
from rlx.array.build import as_array
from rlx.array.jit import jit
from rlx.core.errors import ShapeError, ValueIssue
from rlx.ops.elementwise import astype, conj, reciprocal
from rlx.ops.index import gather
from rlx.sparse import pattern
from rlx.sparse.csr import CSR, as_csr
from rlx.sparse.pattern import host
from rlx.sparse.schedule import Triangular, eliminate, triangular

Index = NDArray[Any]


@dataclass(frozen=True)
class Pattern:
    """The host's side of a factorization; equal only to itself, so that it may be part of a cache key."""

    indices: Index
    indptr: Index
    diagonal: Index

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    @property
    def rows(self) -> Index:
        """The row of each entry."""
        return pattern.rows_of(self.indptr)


@dataclass(frozen=True)
class Incomplete:
    """``M r = U^-1 L^-1 r`` with the factors of an incomplete factorization; a pytree that is called.

    ``values`` are those of L (below the diagonal, whose own is 1) and U in the places of the matrix's entries.
    """

    forward: Triangular
    backward: Triangular | ScaledFirst
    values: Array
    plan: Pattern = field(metadata={"static": True})
    hermitian: bool = field(metadata={"static": True})

    def __call__(self, r: Array) -> Array:
        """``M r``."""
        return astype(self.backward(self.forward(astype(r, self.values.dtype))), r.dtype)

    @property
    def H(self) -> Incomplete:
        """The conjugate transpose of the preconditioner: ``L^-H U^-H``."""
        if self.hermitian:
            return self
        v, p = conj(self.values), self.plan
        lower, upper = p.indices < p.rows, p.indices > p.rows
        inverse = reciprocal(_at(v, p.diagonal))
        one = inverse * 0 + 1
        first = _solve(p.indices[upper], p.rows[upper], np.flatnonzero(upper), v, inverse)
        return Incomplete(first, _solve(p.indices[lower], p.rows[lower], np.flatnonzero(lower), v, one), self.values, p,
                          False)


def ilu0(A: Any, *, shift: float = 0.0, device: str | None = None) -> Incomplete:
    """The incomplete LU factorization of a square matrix on its own pattern, as a preconditioner.

    ``L U`` equals ``A + shift * diag(A)`` on A's pattern. Both the factorization and its application are loops over
    levels of independent rows in one program; values may be traced (``rlx.vmap`` over values of one pattern).

    Raises ValueIssue where the diagonal is not stored, or a pivot is zero or not finite: then a shift of 1e-3 to 1e-1
    may help, or another order of the rows. After J. A. Meijerink and H. A. van der Vorst, Math. Comp. 31 (1977) 148.

    >>> import numpy as np, rlx.sparse
    >>> A = rlx.sparse.diags([-1.0, 2.0, -0.5], [-1, 0, 1], (100, 100))
    >>> _, info = rlx.sparse.bicgstab(A, np.ones(100), M=rlx.sparse.ilu0(A))  # exact: a tridiagonal matrix has no fill
    >>> info.iterations
    1
    """
    a = _square("ilu0", A, device)
    p = _pattern("ilu0", a)
    rows, cols, n = p.rows, p.indices.astype(np.int64), a.shape[0]
    terms = _products(p, np.flatnonzero(cols < rows))
    divisor = np.where(cols < rows, p.diagonal[np.minimum(cols, n - 1)], a.nnz)
    depends = _dependencies(terms[1:], terms[0], divisor, a.nnz)
    v = _run(lambda x: eliminate(terms[0], terms[1], terms[2], None, divisor, depends, _shifted(x, p, shift)), a.data)
    _check_pivots("ilu0", _at(v, p.diagonal), False)
    lower, upper = cols < rows, cols > rows
    inverse = reciprocal(_at(v, p.diagonal))
    return Incomplete(_solve(rows[lower], cols[lower], np.flatnonzero(lower), v, inverse * 0 + 1),
                      _solve(rows[upper], cols[upper], np.flatnonzero(upper), v, inverse), v, p, False)


def ic0(A: Any, *, shift: float = 0.0, device: str | None = None) -> Incomplete:
    """The incomplete Cholesky factorization of a Hermitian matrix on its own pattern, as a preconditioner.

    ``L D L^H`` equals ``A + shift * diag(A)`` on A's pattern; only A's lower triangle is read. As :func:`ilu0`, with
    half the work.

    Raises ValueIssue where a pivot is not positive, which happens for positive definite matrices too that are not
    diagonally dominant: a shift of 1e-3 to 1e-1 helps (T. A. Manteuffel, Math. Comp. 34 (1980) 473).

    >>> import numpy as np, rlx.sparse
    >>> A = rlx.sparse.diags([-1.0, 2.0, -1.0], [-1, 0, 1], (100, 100))
    >>> _, info = rlx.sparse.cg(A, np.ones(100), M=rlx.sparse.ic0(A))  # exact: a tridiagonal matrix has no fill
    >>> info.iterations
    1
    """
    full = _square("ic0", A, device)
    keep = np.flatnonzero(host(full.indices) <= pattern.rows_of(host(full.indptr)))
    rows = pattern.rows_of(host(full.indptr))[keep]
    a = CSR._from_pattern(_at(full.data, keep), host(full.indices)[keep], pattern.pointer(rows, full.shape[0]),
                          full.shape)
    p = _pattern("ic0", a)
    cols = p.indices.astype(np.int64)
    start, left, right, middle = _symmetric_products(p)
    divisor = np.where(cols < rows, p.diagonal[cols], a.nnz)
    depends = _dependencies((left, right, middle), start, divisor, a.nnz)
    v = _run(lambda x: eliminate(start, left, right, middle, divisor, depends, _shifted(x, p, shift)), a.data)
    pivots = _at(v, p.diagonal)
    _check_pivots("ic0", pivots, True)
    off = np.flatnonzero(cols < rows)
    inverse = reciprocal(pivots)
    forward = _solve(rows[off], cols[off], off, v, inverse * 0 + 1)
    backward = _solve(cols[off], rows[off], off, conj(v), inverse * 0 + 1)
    return Incomplete(forward, ScaledFirst(backward, inverse), v, p, True)


@dataclass(frozen=True)
class ScaledFirst:
    """A triangular solve of a scaled right-hand side; a pytree."""

    solve: Triangular
    scale: Array

    def __call__(self, b: Array) -> Array:
        """The solution for ``scale * b``."""
        return self.solve(b * self.scale)


def _run(f: Any, data: Array) -> Array:
    """A factorization as one program (it is inlined in a traced function)."""
    out: Array = jit(f)(data)
    return out


def _at(values: Array, index: Index) -> Array:
    return gather(values, as_array(np.ascontiguousarray(index), device=values._value.node.device), mode="promise")


def _shifted(values: Array, p: Pattern, shift: float) -> Array:
    if not shift:
        return values
    factor = np.ones(len(p.indices), values.dtype.numpy)
    factor[p.diagonal] += shift
    return values * as_array(factor, device=values._value.node.device)


def _square(who: str, A: Any, device: str | None) -> CSR:
    a = as_csr(A, device)
    if a.shape[0] != a.shape[1]:
        raise ShapeError(f"{who} of a matrix of shape {a.shape}", why="it must be square",
                         do="pass the matrix of the system")
    return a


def _pattern(who: str, a: CSR) -> Pattern:
    indices, indptr = host(a.indices), host(a.indptr).astype(np.int64)
    rows = pattern.rows_of(indptr)
    at = np.flatnonzero(indices == rows)
    if len(at) != a.shape[0]:
        absent = int(np.setdiff1d(np.arange(a.shape[0]), rows[at])[0])
        raise ValueIssue(f"{who} of a matrix without an entry at {absent} of its diagonal",
                         why="the factorization divides by the diagonal and makes no entries",
                         do="reorder the rows, or add the diagonal with rlx.sparse.eye")
    return Pattern(indices, indptr, at)


def _products(p: Pattern, lower: Index) -> tuple[Index, Index, Index]:
    """(start, left, right): the pairs ``l_ik u_kj`` of each entry (i, j) of the pattern, k below both."""
    rows, cols, n = p.rows, p.indices.astype(np.int64), np.int64(len(p.indptr) - 1)
    after = p.indptr[1:][cols[lower]] - p.diagonal[cols[lower]] - 1
    left = np.repeat(lower, after)
    ends = np.cumsum(after)
    right = np.arange(len(left)) - np.repeat(ends - after, after) + np.repeat(p.diagonal[cols[lower]] + 1, after)
    return _grouped(rows * n + cols, rows[left] * n + cols[right], left, right)


def _symmetric_products(p: Pattern) -> tuple[Index, Index, Index, Index]:
    """(start, left, right, pivot): the triples ``l_ik conj(l_jk) d_k`` of each entry (i, j) of a lower pattern."""
    rows, cols, n = p.rows, p.indices.astype(np.int64), np.int64(len(p.indptr) - 1)
    off = np.flatnonzero(cols < rows)
    order = off[np.argsort(cols[off], kind="stable")]  # by column, rows rising
    start = np.searchsorted(cols[order], np.arange(n + 1))
    # Every pair of entries of a column, the lower one first: (l_ik, l_jk) with i >= j.
    place = np.arange(len(order)) - start[cols[order]]
    left = np.repeat(order, place + 1)
    ends = np.cumsum(place + 1)
    right = order[np.arange(len(left)) - np.repeat(ends - (place + 1), place + 1) + np.repeat(start[cols[order]],
                                                                                              place + 1)]
    begin, left, right = _grouped(rows * n + cols, rows[left] * n + rows[right], left, right)
    return begin, left, right, p.diagonal[cols[left]]


def _grouped(keys: Index, wanted: Index, left: Index, right: Index) -> tuple[Index, Index, Index]:
    """The pairs whose target is an entry, grouped by it."""
    at = np.searchsorted(keys, wanted)
    hit = at < len(keys)
    hit[hit] = keys[at[hit]] == wanted[hit]
    target, left, right = at[hit], left[hit], right[hit]
    order = np.argsort(target, kind="stable")
    return np.searchsorted(target[order], np.arange(len(keys) + 1)), left[order], right[order]


def _dependencies(parts: tuple[Index, ...], start: Index, divisor: Index, n: int) -> tuple[Index, Index]:
    """What each entry needs before it: the parts of its terms, and its divisor."""
    owner = np.repeat(np.arange(n), np.diff(start))
    divided = np.flatnonzero(divisor < n)
    items = np.concatenate([*[owner] * len(parts), divided])
    needs = np.concatenate([*parts, divisor[divided]])
    order = np.argsort(items, kind="stable")
    return needs[order], np.searchsorted(items[order], np.arange(n + 1))


def _solve(rows: Index, cols: Index, entries: Index, values: Array, scale: Array) -> Triangular:
    order = np.argsort(rows, kind="stable")
    n = int(scale.shape[0])
    return triangular(cols[order].astype(np.int64), np.searchsorted(rows[order], np.arange(n + 1)), entries[order],
                      values, scale)


def _check_pivots(who: str, pivots: Array, positive: bool) -> None:
    if pivots.is_traced:
        return
    d = np.asarray(pivots)
    bad = np.flatnonzero(~np.isfinite(d) | (~(d.real > 0) if positive else d == 0))
    if len(bad):
        raise ValueIssue(f"{who} met a pivot of {d[bad[0]]:.3g} at row {int(bad[0])}",
                         why="the matrix is not positive definite, or too far from diagonal dominance" if positive else
                             "the incomplete factorization is singular",
                         do="pass shift=0.01 or larger, reorder the matrix, or use another preconditioner")


__all__ = ["Incomplete", "ic0", "ilu0"]
