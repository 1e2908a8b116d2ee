"""Claim: Cholesky of batches of small matrices, one in each vector lane."""

from __future__ import annotations

from rlx.device.cpu import interleave
from rlx.device.cpu.interleave import ROWS, Block, plus
from rlx.ir.claim import Claim
from rlx.ir.loop import Native


def lower(native: Native) -> tuple[str, str]:
    """Rows of L four at a time: products with the rows above them, then the triangle on the diagonal."""
    upper = bool(dict(native.attrs)["upper"])

    def body(k: Block) -> None:
        a, reciprocals = k.scratch
        k.read(0, a, "upper" if upper else "lower")
        _Cholesky(k, upper, a, reciprocals).run()

    n = native.types[0][1][-1]
    return interleave.lowered("potrf", native, n**3 / 3 + n * n, lambda m: (m, n), body)


class _Cholesky:
    """Element (i, j) of the lower triangle is at (j, i) in memory when the upper one is factored."""

    def __init__(self, k: Block, upper: bool, a: str, reciprocals: str) -> None:
        self.k, self.e, self.v, self.n = k, k.e, k.v, k.n
        self.a, self.reciprocals = a, reciprocals
        self.steps = (1, k.pitch) if upper else (k.pitch, 1)
        self.info = k.slot(k.v.const(0.0))

    def _at(self, i: str | int, di: int, j: str | int, dj: int) -> tuple[tuple[str | int, int], ...]:
        row, column = self.steps
        return (i, row), (di, row), (j, column), (dj, column)

    def run(self) -> None:
        """Factor, and store the factor and the info."""
        k, e, n = self.k, self.e, self.n
        with e.loop(n // ROWS) as b:
            self._rows(e.let(f"mul i64 {b}, {ROWS}"), ROWS)
        if n % ROWS:
            self._rows(str(n - n % ROWS), n % ROWS)
        info = self.v.load(self.info)
        failed = self.v.compare("ogt", info, self.v.const(0.0))
        with e.loop(n) as i:
            with e.loop(plus(e, i, 1)) as j:
                x = k.load(self.a, *self._at(i, 0, j, 0))
                k.store(self.v.choose(failed, self.v.const(float("nan")), x), self.a, *self._at(i, 0, j, 0))
            with e.loop(n, plus(e, i, 1)) as j:
                k.store(self.v.choose(failed, self.v.const(float("nan")), self.v.const(0.0)), self.a,
                        *self._at(i, 0, j, 0))
        k.write(1, self.a)
        k.write_info(2, info)

    def _rows(self, i: str, count: int) -> None:
        with self.e.loop(self.e.let(f"sdiv i64 {i}, {ROWS}")) as b:
            self._beside(i, count, self.e.let(f"mul i64 {b}, {ROWS}"))
        self._diagonal(i, count)

    def _reduced(self, i: str, rows: int, j: str, columns: int, cells: list[tuple[int, int]]) -> dict[
            tuple[int, int], str]:
        """A(i.., j..) less the product of what stands left of column j in rows i.. and in rows j.."""
        k, e, v = self.k, self.e, self.v
        sums = {(r, c): k.slot(k.load(self.a, *self._at(i, r, j, c))) for r, c in cells}
        with e.loop(j) as t:
            left = [k.load(self.a, *self._at(i, r, t, 0)) for r in range(rows)]
            right = left if i == j else [k.load(self.a, *self._at(j, c, t, 0)) for c in range(columns)]
            for (r, c), at in sums.items():
                v.store(v.minus(v.load(at), left[r], right[c]), at)
        return {cell: v.load(at) for cell, at in sums.items()}

    def _beside(self, i: str, count: int, j: str) -> None:
        """A block left of the diagonal."""
        k, v = self.k, self.v
        x = self._reduced(i, count, j, ROWS, [(r, c) for r in range(count) for c in range(ROWS)])
        for c in range(ROWS):
            for t in range(c):
                l = k.load(self.a, *self._at(j, c, j, t))
                for r in range(count):
                    x[r, c] = v.minus(x[r, c], x[r, t], l)
            scale = k.load(self.reciprocals, (j, 1), (c, 1))
            for r in range(count):
                x[r, c] = v.mul(x[r, c], scale)
                k.store(x[r, c], self.a, *self._at(i, r, j, c))

    def _diagonal(self, i: str, count: int) -> None:
        """The triangle on the diagonal: roots, and where they do not exist."""
        k, e, v = self.k, self.e, self.v
        x = self._reduced(i, count, i, count, [(r, c) for r in range(count) for c in range(r + 1)])
        for c in range(count):
            for t in range(c):
                for r in range(c, count):
                    x[r, c] = v.minus(x[r, c], x[r, t], x[c, t])
            good = v.compare("ogt", x[c, c], v.const(0.0))
            before = v.load(self.info)
            fine = v.either(good, v.compare("ogt", before, v.const(0.0)))
            v.store(v.choose(fine, before, k.number_of(plus(e, i, c + 1))), self.info)
            x[c, c] = v.sqrt(x[c, c])
            scale = v.div(v.const(1.0), x[c, c])
            k.store(scale, self.reciprocals, (i, 1), (c, 1))
            k.store(x[c, c], self.a, *self._at(i, c, i, c))
            for r in range(c + 1, count):
                x[r, c] = v.mul(x[r, c], scale)
                k.store(x[r, c], self.a, *self._at(i, r, i, c))


CLAIMS = (Claim("lanes_potrf", "linalg.cholesky", "generated", interleave.accepts, lower,
                "Cholesky of small matrices, one in each vector lane, blocks of them over the thread pool"),)
