"""Radix sorts for core devices: stable, a byte of the key at a time, bytes that are equal everywhere skipped.

Keys become unsigned integers in the order of the values (for floats: all bits flipped below zero, the sign above), and
are moved together with their old places; at the end every operand is gathered once. A long line is cut into chunks
that count and move at the same time, and the counts of all chunks, taken digit by digit and chunk by chunk, say where
each chunk's part of a digit begins; so the result does not depend on the number of threads.

H. H. Seward, "Information sorting in the application of electronic digital computers", MIT, 1954.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from rlx.compile.builder import Builder
from rlx.compile.emit import Index
from rlx.compile.index import sizes
from rlx.compile.naming import Made
from rlx.compile.nest import CHUNK_WORK
from rlx.core import dtype as dt
from rlx.core.dtype import bool_
from rlx.ir import loop as L
from rlx.ir.graph import Node
from rlx.ir.loop import Expr, Stmt

DIGITS = 256
#: Elements of a line from which counting bytes beats merging, by bits of the key.
SHORTEST = {8: 64, 16: 96, 32: 128, 64: 256}
#: Elements of one chunk of a long line, and chunks at most.
CHUNK, MOST_CHUNKS = 1 << 14, 64
_UNSIGNED = {8: dt.uint8, 16: dt.uint16, 32: dt.uint32, 64: dt.uint64}


def pays(n: Node) -> bool:
    """Whether the lines of a sort are long enough, and its keys have bytes."""
    key, length = n.args[0], sizes(n.args[0])[n.attr("axis")]
    return not key.dtype.is_complex and SHORTEST[max(key.dtype.bits, 8)] <= length < 1 << 31


class Radix:
    """The kernels of one sort; ``spawn`` makes the builder of one kernel."""

    def __init__(self, node: Node, spawn: Callable[[], Builder]) -> None:
        self.node, self.spawn = node, spawn
        key = node.args[0]
        self.axis, self.shape = node.attr("axis"), sizes(key)
        self.length = self.shape[self.axis]
        self.others = tuple([d for a, d in enumerate(self.shape) if a != self.axis])
        self.bits = max(key.dtype.bits, 8)
        self.word = _UNSIGNED[self.bits]
        self.passes = self.bits // 8

    def build(self) -> list[Made]:
        """All in one kernel, a line at a time; or, for few long lines, kernels that share each line's work."""
        lines = prod(self.others)
        chunks = min(self.length // CHUNK, MOST_CHUNKS)
        return [self._lines()] if chunks < 2 or lines >= MOST_CHUNKS // 4 else self._shared(lines, chunks)

    # Pieces

    def _word(self, s: Builder, index: Index) -> Expr:
        """The key at an index as an unsigned integer in the order of the sort, NaN last."""
        key = self.node.args[0]
        x = s.em.let(s.em.value(key, index))
        top = 1 << (self.bits - 1)

        def const(v: int) -> Expr:
            return L.const(v, self.word)
        if key.dtype.is_float:
            plain = s.em.let(L.select(L.expr("eq", (x, L.const(0, x.dtype)), bool_), L.const(0, x.dtype), x))
            u = s.em.let(L.expr("bitcast", (plain,), self.word))
            negative = L.expr("ne", (L.expr("and", (u, const(top)), self.word), const(0)), bool_)
            u = L.expr("xor", (u, L.select(negative, const(2 * top - 1), const(top))), self.word)
        elif key.dtype.kind == "i":
            u = L.expr("xor", (L.expr("bitcast", (x,), self.word), const(top)), self.word)
        else:
            u = L.expr("cast", (x,), self.word) if key.dtype == bool_ else x
        if self.node.attr("descending"):
            u = L.expr("not", (u,), self.word)
        if key.dtype.is_float:
            u = L.select(L.expr("isnan", (x,), bool_), const(2 * top - 1), u)
        return u

    def _digit(self, s: Builder, word: Expr, p: int) -> Expr:
        shifted = L.expr("shr", (word, L.const(8 * p, self.word)), self.word) if p else word
        masked = shifted if self.bits == 8 else L.expr("and", (shifted, L.const(DIGITS - 1, self.word)), self.word)
        return L.expr("cast", (masked,), s.ix.dtype)

    def _each(self, s: Builder, start: Expr, stop: Expr, body: Callable[[Expr], None], kind: str = L.SERIAL) -> None:
        name = s.em.name("i")
        v = s.ix.var(name, max(self.length, 2))
        s.em.open(name)
        body(v)
        s.em.loop(name, start, stop, kind)

    def _when(self, s: Builder, cond: Expr, body: Callable[[], None]) -> None:
        s.em.open()
        body()
        then = s.em.close()
        s.em.here.append(L.If(cond, then))

    def _cleared(self, s: Builder, count: int, prefix: str = "n") -> str:
        """A local array of zeros."""
        name = s.em.name(prefix)
        s.em.here.append(L.Array(name, s.ix.dtype, count, "local"))
        v = s.em.name("z")
        zero = L.Store(name, L.var(v, s.ix.dtype), s.ix.const(0))
        s.em.here.append(L.For(v, s.ix.const(0), s.ix.const(count), 1, L.VECTOR, (zero,)))
        return name

    def _more(self, s: Builder, counts: str, at: Expr) -> Expr:
        """The count at a place, which then becomes one more."""
        old = s.named(L.load(counts, at, s.ix.dtype))
        s.em.here.append(L.Store(counts, at, L.add(old, s.ix.const(1))))
        return old

    def _sum_up(self, s: Builder, counts: str, first: Expr, count: int, begin: Expr) -> None:
        """Counts -> where each begins: running sums from ``begin``, each before its own count."""
        run = s.em.register(begin, "s")
        s.em.mutable.add(str(run.value))

        def step(i: Expr) -> None:
            at = L.add(first, i)
            old = s.named(L.load(counts, at, s.ix.dtype))
            s.em.here.append(L.Store(counts, at, run))
            s.em.here.append(L.Assign(str(run.value), L.add(run, old)))
        self._each(s, s.ix.const(0), s.ix.const(count), step)

    def _scratch(self, s: Builder) -> tuple[str, str]:
        """Words and old places: two copies of every line, between which a pass moves them."""
        span = 2 * prod(self.shape)
        return (s.naming.scratch("words", self.word, span), s.naming.scratch("places", dt.int32, span))

    def _begin(self, s: Builder, line: Expr, at: Index, i: Expr) -> Expr:
        """Write element i's word and place into the line's first copy; the word."""
        words, places = self._scratch(s)
        word = s.named(self._word(s, (*at[:self.axis], i, *at[self.axis:])))
        to = L.add(L.mul(line, s.ix.const(2 * self.length)), i)
        s.em.here.append(L.Store(words, to, word))
        s.em.here.append(L.Store(places, to, L.expr("cast", (i,), dt.int32)))
        return word

    def _move(self, s: Builder, source: Expr, target: Expr, i: Expr, counts: str, p: int, base: Expr | None = None
              ) -> None:
        """Element i of one copy to where its digit's count says in the other."""
        words, places = self._scratch(s)
        word = s.named(L.load(words, L.add(source, i), self.word))
        place = s.named(L.load(places, L.add(source, i), dt.int32))
        digit = s.named(self._digit(s, word, p))
        to = s.named(L.add(target, self._more(s, counts, digit if base is None else L.add(base, digit))))
        s.em.here.append(L.Store(words, to, word))
        s.em.here.append(L.Store(places, to, place))

    def _finish(self, s: Builder, source: Expr, at: Index, i: Expr) -> None:
        """Element i of every result: the operand at its old place."""
        _, places = self._scratch(s)
        old = s.named(L.expr("cast", (L.load(places, L.add(source, i), dt.int32),), s.ix.dtype), self.length)
        for x, out in zip(self.node.args, self.node.outs, strict=True):
            value = s.em.value(x, (*at[:self.axis], old, *at[self.axis:]))
            to = s.ix.linear((*at[:self.axis], i, *at[self.axis:]), self.shape)
            s.em.here.append(L.Store(s.naming.of(out), to, value))

    # One kernel

    def _lines(self) -> Made:
        """``for line: count all bytes; for byte: if it differs: move; gather``."""
        s = self.spawn()
        em, ix, n = s.em, s.ix, self.length

        def line(at: Index) -> None:
            number = em.let(ix.linear(at, self.others))
            counts = self._cleared(s, DIGITS * self.passes)

            def begin(i: Expr) -> None:
                word = self._begin(s, number, at, i)
                for p in range(self.passes):
                    self._more(s, counts, L.add(self._digit(s, word, p), ix.const(DIGITS * p)))
            self._each(s, ix.const(0), ix.const(n), begin)
            start = s.named(L.mul(number, ix.const(2 * n)))
            side = em.register(ix.const(0), "s")
            em.mutable.add(str(side.value))
            for p in range(self.passes):
                words, _ = self._scratch(s)
                any_digit = self._digit(s, L.load(words, L.add(start, side), self.word), p)
                same = s.named(L.load(counts, L.add(any_digit, ix.const(DIGITS * p)), ix.dtype))

                def turn(p: int = p) -> None:
                    self._sum_up(s, counts, ix.const(DIGITS * p), DIGITS, ix.const(0))
                    source = s.named(L.add(start, side))
                    target = s.named(L.sub(L.add(start, ix.const(n)), side))
                    self._each(s, ix.const(0), ix.const(n),
                               lambda i: self._move(s, source, target, i, counts, p, ix.const(DIGITS * p)))
                    em.here.append(L.Assign(str(side.value), L.sub(ix.const(n), side)))
                self._when(s, L.expr("ne", (same, ix.const(n)), bool_), turn)
            source = s.named(L.add(start, side))
            self._each(s, ix.const(0), ix.const(n), lambda i: self._finish(s, source, at, i))

        if prod(self.shape) > CHUNK_WORK // 4 and prod(self.others) > 1:
            s.over_grid(self.others, line)
        else:
            s.loops("o", self.others, L.SERIAL, line)
        return s.naming.kernel(s.name, tuple(em.here), f"radix sort along axis {self.axis} of {list(self.shape)}")

    # Kernels that share a line

    def _shared(self, lines: int, chunks: int) -> list[Made]:
        made = [self._spread(lines, chunks), self._differing(lines, chunks)]
        for p in range(self.passes):
            made += [self._count(lines, chunks, p), self._places(lines, chunks, p), self._scatter(lines, chunks, p)]
        return [*made, self._gather(lines, chunks)]

    def _over_chunks(self, lines: int, chunks: int, label: str, body: Callable[[Builder, Expr, Expr, Expr, Expr], None]
                     ) -> Made:
        """A kernel that runs ``body(builder, line, chunk, first, last)`` for each chunk of each line."""
        s = self.spawn()
        size = -(-self.length // chunks)
        s.em.open()
        g = s.ix.var("g", lines * chunks)
        s.em.define("g")
        line, chunk = s.em.let(s.ix.div(g, chunks)), s.em.let(s.ix.mod(g, chunks))
        first = s.named(L.mul(chunk, s.ix.const(size)))
        last = s.named(L.expr("min", (L.add(first, s.ix.const(size)), s.ix.const(self.length)), s.ix.dtype))
        body(s, line, chunk, first, last)
        loop: tuple[Stmt, ...] = (L.For("g", s.ix.const(0), s.ix.const(lines * chunks), 1, L.GRID, s.em.close()),)
        return s.naming.kernel(f"{s.name}_{label}", (*s.em.here, *loop),
                               f"radix sort along axis {self.axis} of {list(self.shape)}: {label}")

    def _at(self, s: Builder, line: Expr) -> Index:
        return tuple(s.ix.split(line, self.others)) if self.others else ()

    def _spread(self, lines: int, chunks: int) -> Made:
        """Words and places; of each chunk the bits set anywhere, and those set everywhere."""
        def body(s: Builder, line: Expr, chunk: Expr, first: Expr, last: Expr) -> None:
            some, every = s.em.register(L.const(0, self.word), "s"), s.em.register(
                L.const((1 << self.bits) - 1, self.word), "s")
            s.em.mutable |= {str(some.value), str(every.value)}
            at = self._at(s, line)

            def step(i: Expr) -> None:
                word = self._begin(s, line, at, i)
                for r, op in ((some, "or"), (every, "and")):
                    s.em.here.append(L.Assign(str(r.value), L.expr(op, (r, word), self.word)))
            self._each(s, first, last, step)
            marks = s.naming.scratch("marks", self.word, lines * chunks)
            s.em.here.append(L.Store(marks, L.add(L.mul(line, s.ix.const(chunks)), chunk), some))
            marks = s.naming.scratch("marks_all", self.word, lines * chunks)
            s.em.here.append(L.Store(marks, L.add(L.mul(line, s.ix.const(chunks)), chunk), every))
        return self._over_chunks(lines, chunks, "words", body)

    def _differing(self, lines: int, chunks: int) -> Made:
        """Which bits differ within each line."""
        s = self.spawn()

        def line(number: Expr) -> None:
            some, every = s.em.register(L.const(0, self.word), "s"), s.em.register(
                L.const((1 << self.bits) - 1, self.word), "s")
            s.em.mutable |= {str(some.value), str(every.value)}

            def step(c: Expr) -> None:
                at = L.add(L.mul(number, s.ix.const(chunks)), c)
                for r, op, key in ((some, "or", "marks"), (every, "and", "marks_all")):
                    mark = L.load(s.naming.scratch(key, self.word, lines * chunks), at, self.word)
                    s.em.here.append(L.Assign(str(r.value), L.expr(op, (r, mark), self.word)))
            self._each(s, s.ix.const(0), s.ix.const(chunks), step)
            s.em.here.append(L.Store(s.naming.scratch("differ", self.word, lines), number,
                                     L.expr("xor", (some, every), self.word)))
        s.loop("o", lines, L.SERIAL, line)
        return s.naming.kernel(f"{s.name}_differ", tuple(s.em.here), "radix sort: the bits that differ in a line")

    def _moves(self, s: Builder, lines: int, line: Expr, p: int) -> Expr:
        """Whether pass p moves anything."""
        differ = L.load(s.naming.scratch("differ", self.word, lines), line, self.word)
        return L.expr("ne", (self._digit(s, differ, p), s.ix.const(0)), bool_)

    def _copy(self, s: Builder, lines: int, line: Expr, p: int) -> Expr:
        """Where the copy begins that pass p reads: the passes before it that moved, modulo two, say which."""
        side: Expr = L.const(False, bool_)
        for q in range(p):
            moves = self._moves(s, lines, line, q)
            side = moves if q == 0 else L.expr("xor", (side, moves), bool_)
        begin = L.mul(line, s.ix.const(2 * self.length))
        return s.named(L.add(begin, L.select(side, s.ix.const(self.length), s.ix.const(0))))

    def _other(self, s: Builder, line: Expr, source: Expr) -> Expr:
        """Where the copy begins that is not ``source``."""
        both = L.mul(line, s.ix.const(4 * self.length))
        return s.named(L.expr("sub", (L.add(both, s.ix.const(self.length)), source), s.ix.dtype))

    def _count(self, lines: int, chunks: int, p: int) -> Made:
        def body(s: Builder, line: Expr, chunk: Expr, first: Expr, last: Expr) -> None:
            def go() -> None:
                words, _ = self._scratch(s)
                source, counts = self._copy(s, lines, line, p), self._cleared(s, DIGITS)

                def step(i: Expr) -> None:
                    word = s.named(L.load(words, L.add(source, i), self.word))
                    self._more(s, counts, s.named(self._digit(s, word, p)))
                self._each(s, first, last, step)
                all_counts = s.naming.scratch("counts", s.ix.dtype, lines * chunks * DIGITS)

                def store(d: Expr) -> None:
                    to = L.add(L.mul(L.add(L.mul(line, s.ix.const(DIGITS)), d), s.ix.const(chunks)), chunk)
                    s.em.here.append(L.Store(all_counts, to, L.load(counts, d, s.ix.dtype)))
                self._each(s, s.ix.const(0), s.ix.const(DIGITS), store)
            self._when(s, self._moves(s, lines, line, p), go)
        return self._over_chunks(lines, chunks, f"count{p}", body)

    def _places(self, lines: int, chunks: int, p: int) -> Made:
        s = self.spawn()

        def line(number: Expr) -> None:
            counts = s.naming.scratch("counts", s.ix.dtype, lines * chunks * DIGITS)
            self._when(s, self._moves(s, lines, number, p), lambda: self._sum_up(
                s, counts, L.mul(number, s.ix.const(DIGITS * chunks)), DIGITS * chunks, s.ix.const(0)))
        s.loop("o", lines, L.SERIAL, line)
        return s.naming.kernel(f"{s.name}_places{p}", tuple(s.em.here), "radix sort: where each chunk's digits begin")

    def _scatter(self, lines: int, chunks: int, p: int) -> Made:
        def body(s: Builder, line: Expr, chunk: Expr, first: Expr, last: Expr) -> None:
            def go() -> None:
                source = self._copy(s, lines, line, p)
                target = self._other(s, line, source)
                counts = self._cleared(s, DIGITS)
                all_counts = s.naming.scratch("counts", s.ix.dtype, lines * chunks * DIGITS)

                def fetch(d: Expr) -> None:
                    at = L.add(L.mul(L.add(L.mul(line, s.ix.const(DIGITS)), d), s.ix.const(chunks)), chunk)
                    s.em.here.append(L.Store(counts, d, L.load(all_counts, at, s.ix.dtype)))
                self._each(s, s.ix.const(0), s.ix.const(DIGITS), fetch)
                self._each(s, first, last, lambda i: self._move(s, source, target, i, counts, p))
            self._when(s, self._moves(s, lines, line, p), go)
        return self._over_chunks(lines, chunks, f"move{p}", body)

    def _gather(self, lines: int, chunks: int) -> Made:
        def body(s: Builder, line: Expr, chunk: Expr, first: Expr, last: Expr) -> None:
            source, at = self._copy(s, lines, line, self.passes), self._at(s, line)
            self._each(s, first, last, lambda i: self._finish(s, source, at, i))
        return self._over_chunks(lines, chunks, "gather", body)
