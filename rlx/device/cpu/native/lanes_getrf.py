"""Claims: LU and linear systems of batches of small matrices, one in each vector lane."""

from __future__ import annotations

import math
from collections.abc import Callable

from rlx.device.cpu import interleave
from rlx.device.cpu.interleave import Block, by_rows, downward, plus
from rlx.ir.claim import Call, Claim
from rlx.ir.loop import Native

#: Most numbers of a matrix's right sides: with the matrix they stay in second-level cache.
MOST_RIGHT = interleave.LARGEST**2


class _LU:
    """Row exchanges and elimination in place; element (i, j) is at (j, i) in memory for the transposed matrix."""

    def __init__(self, k: Block, a: str, perm: str, pivots: str, *, transposed: bool) -> None:
        self.k, self.e, self.v, self.n = k, k.e, k.v, k.n
        self.a, self.perm, self.pivots = a, perm, pivots
        self.transposed = transposed
        self.steps = (1, k.pitch) if transposed else (k.pitch, 1)
        self.info = k.slot(k.v.const(0.0))

    def _at(self, i: str, j: str, di: int = 0, dj: int = 0) -> tuple[tuple[str | int, int], ...]:
        row, column = self.steps
        return (i, row), (di, row), (j, column), (dj, column)

    def run(self) -> None:
        """Factor; perm holds the permutation, pivots the exchanges."""
        e, v = self.e, self.v
        with e.loop(self.n) as i:
            self.k.store_ints(v.all_int(i), self.perm, i)
        with e.loop(self.n) as j:
            self._choose(j)
            self._exchange(j)
            self._eliminate(j)

    def _choose(self, j: str) -> None:
        """The pivot of column j in every lane: the row, from row j on, of its largest element."""
        k, e, v = self.k, self.e, self.v
        best = k.slot(v.abs(k.load(self.a, *self._at(j, j))))
        row = k.ints(v.all_int(j))
        with e.loop(self.n, plus(e, j, 1)) as i:
            x, before = v.abs(k.load(self.a, *self._at(i, j))), v.load(best)
            more = v.compare("ogt", x, before)
            v.store(v.choose(more, x, before), best)
            k.store_ints(v.choose_int(more, v.all_int(i), k.load_ints(row)), row)
        k.store_ints(k.load_ints(row), self.pivots, j)

    def _exchange(self, j: str) -> None:
        """Row j and the pivot's, lane by lane: fewer loads than choosing by masks takes."""
        k, e, v = self.k, self.e, self.v
        with e.loop(k.width) as lane:
            number = e.let(f"load i32, ptr {k.scalar(self.pivots, 'i32', lane, (j, 1))}")
            p = e.let(f"sext i32 {number} to i64")
            with e.when(e.let(f"icmp ne i64 {p}, {j}")):
                with e.loop(self.n) as c:
                    self._swap(v.kind, k.scalar(self.a, v.kind, lane, *self._at(j, c)),
                               k.scalar(self.a, v.kind, lane, *self._at(p, c)))
                self._swap("i32", k.scalar(self.perm, "i32", lane, (j, 1)), k.scalar(self.perm, "i32", lane, (p, 1)))

    def _swap(self, kind: str, here: str, there: str) -> None:
        x, y = (self.e.let(f"load {kind}, ptr {at}") for at in (here, there))
        self.e.do(f"store {kind} {y}, ptr {here}")
        self.e.do(f"store {kind} {x}, ptr {there}")

    def _eliminate(self, j: str) -> None:
        k, e, v = self.k, self.e, self.v
        pivot = k.load(self.a, *self._at(j, j))
        zero = v.compare("oeq", pivot, v.const(0.0))
        before = v.load(self.info)
        first = v.both(zero, v.compare("oeq", before, v.const(0.0)))
        v.store(v.choose(first, k.number_of(plus(e, j, 1)), before), self.info)
        divisor = v.choose(zero, v.const(1.0), pivot)

        after = plus(e, j, 1)
        with e.loop(self.n, after) as i:
            k.store(v.div(k.load(self.a, *self._at(i, j)), divisor), self.a, *self._at(i, j))
        # Along the rows of memory, several of them at a time.
        by_rows(e, after, self.n, self._columns(j, after) if self.transposed else self._rows(j, after))

    def _rows(self, j: str, after: str) -> Callable[[str, int], None]:
        k, e, v = self.k, self.e, self.v

        def rows(i: str, count: int) -> None:
            factors = [k.load(self.a, *self._at(i, j, r)) for r in range(count)]
            with e.loop(self.n, after) as c:
                top = k.load(self.a, *self._at(j, c))
                for r, x in enumerate(factors):
                    k.store(v.minus(k.load(self.a, *self._at(i, c, r)), x, top), self.a, *self._at(i, c, r))
        return rows

    def _columns(self, j: str, after: str) -> Callable[[str, int], None]:
        k, e, v = self.k, self.e, self.v

        def columns(c: str, count: int) -> None:
            tops = [k.load(self.a, *self._at(j, c, 0, t)) for t in range(count)]
            with e.loop(self.n, after) as i:
                x = k.load(self.a, *self._at(i, j))
                for t, top in enumerate(tops):
                    k.store(v.minus(k.load(self.a, *self._at(i, c, 0, t)), x, top), self.a, *self._at(i, c, 0, t))
        return columns


def lower_lu(native: Native) -> tuple[str, str]:
    """Outputs are the packed factors, exchanges, permutation, info."""
    def body(k: Block) -> None:
        a, perm, pivots = k.scratch
        k.read(0, a)
        lu = _LU(k, a, perm, pivots, transposed=False)
        lu.run()
        k.write(1, a)
        k.write_ints(2, pivots)
        k.write_ints(3, perm)
        k.write_info(4, lu.v.load(lu.info))

    n = native.types[0][1][-1]
    return interleave.lowered("getrf", native, 2 * n**3 / 3 + n * n, lambda m: (m, n, n), body)


def lower_solve(native: Native) -> tuple[str, str]:
    """LU of A^T, so that ``A[:, p] = U^T L^T``; two substitutions; rows of x where the permutation says."""
    n, right = native.types[0][1][-1], native.types[1][1][-1]

    def body(k: Block) -> None:
        a, perm, pivots, y = k.scratch
        k.read(0, a)
        lu = _LU(k, a, perm, pivots, transposed=True)
        lu.run()
        k.write(3, a)
        k.read_flat(1, y)
        info = k.v.load(lu.info)
        _substitute(k, a, y, right)
        _scatter(k, perm, y, right, info)
        k.write_ints(4, perm)
        k.write_info(5, info)

    return interleave.lowered("gesv", native, 2 * n**3 / 3 + n * n * (1 + 2 * right),
                              lambda m: (m, n, n, n * right), body)


def _substitute(k: Block, a: str, y: str, right: int) -> None:
    """Every row of the solution is taken from the rows that still wait for it, several of those at a time."""
    e, v, n = k.e, k.v, k.n

    def rows_from(c: str) -> Callable[[str, int], None]:
        def rows(r: str, count: int) -> None:
            left = [k.load(a, (r, k.pitch), (i, k.pitch), (c, 1)) for i in range(count)]
            with e.loop(right) as q:
                x = k.load(y, (c, right), (q, 1))
                for i, l in enumerate(left):
                    at = (r, right), (i, right), (q, 1)
                    k.store(v.minus(k.load(y, *at), l, x), y, *at)
        return rows

    with e.loop(n) as c:
        pivot = k.load(a, (c, k.pitch + 1))
        with e.loop(right) as q:
            k.store(v.div(k.load(y, (c, right), (q, 1)), pivot), y, (c, right), (q, 1))
        by_rows(e, plus(e, c, 1), n, rows_from(c))
    with downward(e, n, 0) as c:
        by_rows(e, "0", c, rows_from(c))


def _scatter(k: Block, perm: str, y: str, right: int, info: str) -> None:
    """``x[perm[i]] = y[i]`` of every lane; NaN where there is no solution."""
    e, v = k.e, k.v
    failed = v.compare("ogt", info, v.const(0.0))
    with e.loop(k.n * right) as i:
        k.store(v.choose(failed, v.const(float("nan")), k.load(y, (i, 1))), y, (i, 1))
    with e.loop(k.width) as lane:
        target = k.item(2, lane)
        with e.loop(k.n) as i:
            number = e.let(f"load i32, ptr {k.scalar(perm, 'i32', lane, (i, 1))}")
            row = e.let(f"sext i32 {number} to i64")
            with e.loop(right) as q:
                x = e.let(f"load {v.kind}, ptr {k.scalar(y, v.kind, lane, (i, right), (q, 1))}")
                e.do(f"store {v.kind} {x}, ptr {e.at(target, v.kind, (row, right), (q, 1))}")


def accepts_solve(call: Call) -> str | None:
    """None for small matrices with right sides no larger; else the reason."""
    n, right = call.inputs[1][1][-2:]
    if n * right > MOST_RIGHT:
        return f"needs at most {MOST_RIGHT} numbers of right sides a matrix, got {n * right}"
    if math.prod(call.inputs[1][1]) == 0:
        return "there are no right sides"
    return interleave.accepts(call)


CLAIMS = (
    Claim("lanes_getrf", "linalg.lu", "generated", interleave.accepts, lower_lu,
          "LU of small matrices, one in each vector lane, blocks of them over the thread pool"),
    Claim("lanes_gesv", "linalg.solve", "generated", accepts_solve, lower_solve,
          "linear systems of small matrices, one in each vector lane, blocks of them over the thread pool"),
)
