"""Claims: eigenvalues and vectors of batches of small symmetric matrices, one in each vector lane.

Householder reflections to a tridiagonal matrix, then implicit QL steps with Wilkinson's shift (as EISPACK's tql2 and
LAPACK's steqr do). All lanes take the steps that the slowest of them needs; a lane that is done, or whose unreduced
part is shorter, turns by the identity.
"""

from __future__ import annotations

import numpy as np

from rlx.device.cpu import interleave
from rlx.device.cpu.interleave import Block, by_rows, downward, plus
from rlx.ir.claim import Claim
from rlx.ir.loop import Native

#: Steps for one eigenvalue, after which a matrix counts as not converged: LAPACK's number is 30, and 2 are common.
STEPS = 40


def lower(native: Native) -> tuple[str, str]:
    """With vectors if there are four values: matrix, eigenvalues, vectors, info."""
    upper, vectors = bool(dict(native.attrs)["upper"]), len(native.types) == 4
    n = native.types[0][1][-1]

    def body(k: Block) -> None:
        _Eigen(k, upper, vectors).run()

    def sizes(m: int) -> tuple[int, ...]:
        return (m, m if vectors else 0, n, n, n, n, n, n)

    return interleave.lowered("syev", native, (9 if vectors else 2) * n**3 + 60 * n * n, sizes, body)


class _Eigen:
    """The matrix ``a`` (whole), vectors ``z``, diagonal ``d``, beside it ``e``, scales ``tau`` of the reflections.

    ``x`` and ``y`` hold a reflection and its product with the matrix, then cosines and sines of a step.
    """

    def __init__(self, k: Block, upper: bool, vectors: bool) -> None:
        self.k, self.e, self.v, self.n = k, k.e, k.v, k.n
        self.upper, self.vectors, self.step = upper, vectors, k.pitch
        self.a, self.z, self.d, self.off, self.tau, self.x, self.y, self.rank = k.scratch
        limits = np.finfo(k.dtype.numpy)
        self.eps, self.tiny = float(limits.eps), float(limits.tiny)
        self.zero, self.one = k.v.const(0.0), k.v.const(1.0)
        self.failed = k.e.slot(k.v.mask)

    def run(self) -> None:
        """Everything for one block."""
        k, v = self.k, self.v
        k.read(0, self.a, "upper" if self.upper else "lower")
        bad, size = self._scale()
        self._tridiagonal()
        if self.vectors:
            self._reflections()
        self._iterate()
        failed = v.either(bad, self.e.let(f"load {v.mask}, ptr {self.failed}"))
        self._results(failed, size)
        k.write_info(3 if self.vectors else 2, v.choose(failed, self.one, self.zero))

    def _pair(self, i: str, j: str) -> tuple[tuple[tuple[str | int, int], ...], tuple[tuple[str | int, int], ...]]:
        """Where the element (i, j) is that is read, and its mirror image."""
        low, high = ((i, self.step), (j, 1)), ((j, self.step), (i, 1))
        return (high, low) if self.upper else (low, high)

    def _scale(self) -> tuple[str, str]:
        """The matrix whole and divided by a power of two near its largest element; (not finite, that power)."""
        k, e, v = self.k, self.e, self.v
        largest, odd = k.slot(self.zero), k.slot(self.zero)
        with e.loop(self.n) as i, e.loop(plus(e, i, 1)) as j:
            x = k.load(self.a, *self._pair(i, j)[0])
            v.store(v.max(v.load(largest), v.abs(x)), largest)
            # x * 0 is 0 for finite x, else NaN.
            v.store(v.fma(x, self.zero, v.load(odd)), odd)
        bad = v.compare("uno", v.load(odd), self.zero)
        bits = 32 if v.kind == "float" else 64
        whole, mask = f"<{k.width} x i{bits}>", 0x7F800000 if bits == 32 else 0x7FF0000000000000
        raw = e.let(f"bitcast {v.type} {v.load(largest)} to {whole}")
        power = e.let(f"bitcast {whole} {e.let(f'and {whole} {raw}, splat (i{bits} {mask})')} to {v.type}")
        usable = v.both(v.compare("oge", power, v.const(self.tiny)), v.compare("olt", power, v.const(float("inf"))))
        power = v.choose(usable, power, self.one)
        factor = v.div(self.one, power)
        with e.loop(self.n) as i, e.loop(plus(e, i, 1)) as j:
            here, there = self._pair(i, j)
            x = v.choose(bad, self.zero, v.mul(k.load(self.a, *here), factor))
            k.store(x, self.a, *here)
            k.store(x, self.a, *there)
        return bad, power

    # To tridiagonal form

    def _tridiagonal(self) -> None:
        k, e, n = self.k, self.e, self.n
        with e.loop(max(n - 2, 0)) as i:
            first = plus(e, i, 1)
            self._reflector(i, first)
            self._product(i, first)
            self._update(first)
        with e.loop(n) as i:
            k.store(k.load(self.a, (i, self.step + 1)), self.d, (i, 1))
        if n > 1:
            k.store(k.load(self.a, (n - 1, self.step), (n - 2, 1)), self.off, (n - 2, 1))
        k.store(self.zero, self.off, (n - 1, 1))

    def _reflector(self, i: str, first: str) -> None:
        """``H = 1 - tau x x^T`` that makes column i zero below ``first``; x (x[first] = 1) stays in that column."""
        k, e, v, n = self.k, self.e, self.v, self.n
        total = k.slot(self.zero)
        with e.loop(n, plus(e, first, 1)) as r:
            x = k.load(self.a, (r, self.step), (i, 1))
            v.store(v.fma(x, x, v.load(total)), total)
        rest, alpha = v.load(total), k.load(self.a, (first, self.step), (i, 1))
        some = v.compare("ogt", rest, v.const(self.tiny))
        beta = v.signed(v.sqrt(v.fma(alpha, alpha, rest)), e.let(f"fneg {v.type} {alpha}"))
        beta = v.choose(some, beta, alpha)
        safe = v.choose(some, beta, self.one)
        k.store(v.choose(some, v.div(v.sub(beta, alpha), safe), self.zero), self.tau, (i, 1))
        k.store(beta, self.off, (i, 1))
        scale = v.choose(some, v.div(self.one, v.choose(some, v.sub(alpha, beta), self.one)), self.zero)
        k.store(self.one, self.x, (first, 1))
        with e.loop(n, plus(e, first, 1)) as r:
            k.store(v.mul(k.load(self.a, (r, self.step), (i, 1)), scale), self.x, (r, 1))
        with e.loop(n, first) as r:
            k.store(k.load(self.x, (r, 1)), self.a, (r, self.step), (i, 1))

    def _product(self, i: str, first: str) -> None:
        """``y = tau A x - (tau^2 / 2) (x^T A x) x``."""
        k, e, v, n = self.k, self.e, self.v, self.n
        tau, dot = k.load(self.tau, (i, 1)), k.slot(self.zero)

        def rows(r: str, count: int) -> None:
            sums = [k.slot(self.zero) for _ in range(count)]
            with e.loop(n, first) as c:
                x = k.load(self.x, (c, 1))
                for t, at in enumerate(sums):
                    v.store(v.fma(k.load(self.a, (r, self.step), (t, self.step), (c, 1)), x, v.load(at)), at)
            for t, at in enumerate(sums):
                y = v.mul(tau, v.load(at))
                k.store(y, self.y, (r, 1), (t, 1))
                v.store(v.fma(y, k.load(self.x, (r, 1), (t, 1)), v.load(dot)), dot)

        by_rows(e, first, n, rows)
        share = v.mul(v.mul(v.const(0.5), tau), v.load(dot))
        with e.loop(n, first) as r:
            k.store(v.minus(k.load(self.y, (r, 1)), share, k.load(self.x, (r, 1))), self.y, (r, 1))

    def _update(self, first: str) -> None:
        """``A -= x y^T + y x^T``."""
        k, e, v, n = self.k, self.e, self.v, self.n

        def rows(r: str, count: int) -> None:
            xs = [k.load(self.x, (r, 1), (t, 1)) for t in range(count)]
            ys = [k.load(self.y, (r, 1), (t, 1)) for t in range(count)]
            with e.loop(n, first) as c:
                x, y = k.load(self.x, (c, 1)), k.load(self.y, (c, 1))
                for t in range(count):
                    at = (r, self.step), (t, self.step), (c, 1)
                    k.store(v.minus(v.minus(k.load(self.a, *at), xs[t], y), ys[t], x), self.a, *at)

        by_rows(e, first, n, rows)

    def _reflections(self) -> None:
        """``z``: the product of the reflections, from the last to the first, on the part that they touch."""
        k, e, v, n = self.k, self.e, self.v, self.n
        with e.loop(n) as i:
            with e.loop(n) as j:
                k.store(self.zero, self.z, (i, self.step), (j, 1))
            k.store(self.one, self.z, (i, self.step + 1))
        with downward(e, max(n - 2, 0), 0) as i:
            first, tau = plus(e, i, 1), k.load(self.tau, (i, 1))

            def columns(c: str, count: int, i: str = i, first: str = first, tau: str = tau) -> None:
                sums = [k.slot(self.zero) for _ in range(count)]
                with e.loop(n, first) as r:
                    x = k.load(self.a, (r, self.step), (i, 1))
                    for t, at in enumerate(sums):
                        v.store(v.fma(x, k.load(self.z, (r, self.step), (c, 1), (t, 1)), v.load(at)), at)
                scaled = [v.mul(tau, v.load(at)) for at in sums]
                with e.loop(n, first) as r:
                    x = k.load(self.a, (r, self.step), (i, 1))
                    for t, y in enumerate(scaled):
                        cell = (r, self.step), (c, 1), (t, 1)
                        k.store(v.minus(k.load(self.z, *cell), x, y), self.z, *cell)

            by_rows(e, first, n, columns)

    # From there to a diagonal

    def _iterate(self) -> None:
        """Steps for eigenvalue after eigenvalue, until all lanes have it."""
        e, v = self.e, self.v
        e.do(f"store {v.mask} zeroinitializer, ptr {self.failed}")
        more, active = e.slot("i1"), e.slot(v.mask)
        with e.loop(max(self.n - 1, 0)) as l:
            e.do(f"store i1 true, ptr {more}")
            with e.loop(STEPS), e.when(e.let(f"load i1, ptr {more}")):
                end, last = self._unreduced(l)
                on = e.let(f"icmp sgt {v.ints} {end}, {v.all_int(l)}")
                e.do(f"store {v.mask} {on}, ptr {active}")
                some = v.some(on)
                e.do(f"store i1 {some}, ptr {more}")
                with e.when(some):
                    self._step(l, end, last, on)
            with e.when(e.let(f"load i1, ptr {more}")):
                now = e.let(f"load {v.mask}, ptr {active}")
                before = e.let(f"load {v.mask}, ptr {self.failed}")
                e.do(f"store {v.mask} {v.either(now, before)}, ptr {self.failed}")

    def _unreduced(self, l: str) -> tuple[str, str]:
        """The last row of the part from row l on whose ``e`` are not negligible, and d there; negligible ones go."""
        k, e, v, n = self.k, self.e, self.v, self.n
        end, last = k.ints(f"splat (i32 {n - 1})"), k.slot(k.load(self.d, (n - 1, 1)))
        with downward(e, n - 1, l) as i:
            d, off = k.load(self.d, (i, 1)), k.load(self.off, (i, 1))
            scale = v.add(v.abs(d), v.abs(k.load(self.d, (i, 1), (1, 1))))
            # The matrix is about 1 in size: what is below eps^2 is nothing to any of its rows.
            limit = v.max(v.mul(scale, v.const(self.eps)), v.const(self.eps**2))
            small = v.compare("ole", v.abs(off), limit)
            k.store(v.choose(small, self.zero, off), self.off, (i, 1))
            v.store(v.choose(small, d, v.load(last)), last)
            k.store_ints(v.choose_int(small, v.all_int(i), k.load_ints(end)), end)
        return k.load_ints(end), v.load(last)

    def _step(self, l: str, end: str, last: str, on: str) -> None:
        """One implicit QL step on rows l to ``end`` of every lane."""
        k, e, v = self.k, self.e, self.v
        most = e.let(f"sext i32 {e.call(f'llvm.vector.reduce.smax.v{k.width}i32', [(v.ints, end)], 'i32')} to i64")
        d, off = k.load(self.d, (l, 1)), k.load(self.off, (l, 1))
        safe = v.choose(on, off, self.one)
        g = v.div(v.sub(k.load(self.d, (l, 1), (1, 1)), d), v.mul(v.const(2.0), safe))
        r = v.sqrt(v.fma(g, g, self.one))
        shift = v.div(safe, v.add(g, v.signed(r, g)))
        state = [k.slot(x) for x in (v.add(v.sub(last, d), shift), self.one, self.one, self.zero)]
        with downward(e, most, l) as i:
            self._turn(i, end, state)
        g, _, _, p = (v.load(at) for at in state)
        self._close(l, on, g, p)
        if self.vectors:
            self._rotate(l, most)

    def _close(self, l: str, on: str, g: str, p: str) -> None:
        k, v = self.k, self.v
        d, off = k.load(self.d, (l, 1)), k.load(self.off, (l, 1))
        k.store(v.choose(on, v.sub(d, p), d), self.d, (l, 1))
        k.store(v.choose(on, g, off), self.off, (l, 1))

    def _turn(self, i: str, end: str, state: list[str]) -> None:
        """The rotation of rows i and i + 1, in the lanes that reach so far."""
        k, e, v = self.k, self.e, self.v
        g, s, c, p = (v.load(at) for at in state)
        reach = e.let(f"sub {v.ints} {end}, {v.all_int(i)}")
        on = e.let(f"icmp sgt {v.ints} {reach}, zeroinitializer")
        inner = e.let(f"icmp sgt {v.ints} {reach}, splat (i32 1)")
        off, below = k.load(self.off, (i, 1)), k.load(self.off, (i, 1), (1, 1))
        here, there = k.load(self.d, (i, 1)), k.load(self.d, (i, 1), (1, 1))
        f, b = v.mul(s, off), v.mul(c, off)
        square = v.fma(f, f, v.mul(g, g))
        fine = v.compare("ogt", square, v.const(self.tiny))
        root = v.sqrt(square)
        scale = v.div(self.one, v.choose(fine, root, self.one))
        s = v.choose(fine, v.mul(f, scale), self.zero)
        c = v.choose(fine, v.mul(g, scale), self.one)
        k.store(v.choose(inner, v.choose(fine, root, g), below), self.off, (i, 1), (1, 1))
        moved = v.sub(there, p)
        r = v.fma(v.sub(here, moved), s, v.mul(v.mul(v.const(2.0), c), b))
        shift = v.mul(s, r)
        k.store(v.choose(on, v.add(moved, shift), there), self.d, (i, 1), (1, 1))
        for at, x, old in zip(state, (v.fma(c, r, e.let(f"fneg {v.type} {b}")), s, c, shift),
                              (g, self.one, self.one, p), strict=True):
            v.store(v.choose(on, x, old), at)
        if self.vectors:
            k.store(v.choose(on, c, self.one), self.x, (i, 1))
            k.store(v.choose(on, s, self.zero), self.y, (i, 1))

    def _rotate(self, l: str, most: str) -> None:
        """The step's rotations on the columns of z, row by row: a column goes from one rotation to the next."""
        k, e, v, n = self.k, self.e, self.v, self.n

        def rows(r: str, count: int) -> None:
            carried = [k.slot(k.load(self.z, (r, self.step), (t, self.step), (most, 1))) for t in range(count)]
            with downward(e, most, l) as i:
                c, s = k.load(self.x, (i, 1)), k.load(self.y, (i, 1))
                for t, at in enumerate(carried):
                    z, f = k.load(self.z, (r, self.step), (t, self.step), (i, 1)), v.load(at)
                    k.store(v.fma(s, z, v.mul(c, f)), self.z, (r, self.step), (t, self.step), (i, 1), (1, 1))
                    v.store(v.minus(v.mul(c, z), s, f), at)
            for t, at in enumerate(carried):
                k.store(v.load(at), self.z, (r, self.step), (t, self.step), (l, 1))

        by_rows(e, "0", n, rows)

    # Results

    def _results(self, failed: str, size: str) -> None:
        """Eigenvalues in order, and their vectors with them; NaN for the lanes that failed."""
        k, e, v, n = self.k, self.e, self.v, self.n
        nan = v.const(float("nan"))
        with e.loop(n) as i:
            place, mine = k.ints("zeroinitializer"), k.load(self.d, (i, 1))
            for start, stop, how in (("0", i, "ole"), (plus(e, i, 1), str(n), "olt")):
                with e.loop(stop, start) as j:
                    before = v.compare(how, k.load(self.d, (j, 1)), mine)
                    one = e.let(f"zext {v.mask} {before} to {v.ints}")
                    k.store_ints(e.let(f"add {v.ints} {k.load_ints(place)}, {one}"), place)
            k.store_ints(k.load_ints(place), self.rank, i)
            if self.vectors:
                with e.loop(n) as r:
                    at = (r, self.step), (i, 1)
                    k.store(v.choose(failed, nan, k.load(self.z, *at)), self.z, *at)
        with e.loop(n) as i:
            k.store(v.choose(failed, nan, v.mul(k.load(self.d, (i, 1)), size)), self.x, (i, 1))
        with e.loop(k.width) as lane:
            self._scatter(lane)

    def _scatter(self, lane: str) -> None:
        k, e, v, n = self.k, self.e, self.v, self.n
        values = k.item(1, lane)
        vectors = k.item(2, lane) if self.vectors else ""
        with e.loop(n) as i:
            place = e.let(f"load i32, ptr {k.scalar(self.rank, 'i32', lane, (i, 1))}")
            to = e.let(f"sext i32 {place} to i64")
            x = e.let(f"load {v.kind}, ptr {k.scalar(self.x, v.kind, lane, (i, 1))}")
            e.do(f"store {v.kind} {x}, ptr {e.at(values, v.kind, (to, 1))}")
            if self.vectors:
                with e.loop(n) as r:
                    x = e.let(f"load {v.kind}, ptr {k.scalar(self.z, v.kind, lane, (r, self.step), (i, 1))}")
                    e.do(f"store {v.kind} {x}, ptr {e.at(vectors, v.kind, (r, n), (to, 1))}")


_DOC = "eigenvalues of small symmetric matrices, one in each vector lane, blocks of them over the thread pool"
CLAIMS = (
    Claim("lanes_syev", "linalg.eigh", "generated", interleave.accepts, lower, _DOC),
    Claim("lanes_syev_values", "linalg.eigvalsh", "generated", interleave.accepts, lower, _DOC),
)
