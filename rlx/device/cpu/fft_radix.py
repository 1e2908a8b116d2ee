"""Fourier transforms of as many lines as a vector has lanes: butterflies in registers, and passes of them over memory.

A value is a pair of vectors, real parts and imaginary parts, one line a lane. In scratch memory the two lie next to
each other. The passes are Stockham's: each reads a whole array and writes another, and the last leaves natural order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, final

import numpy as np

from rlx.device.cpu.emit import Emit
from rlx.device.cpu.lanes import Lanes
from rlx.ops.fft_plan import primes, roots

#: Real and imaginary parts.
Pair = tuple[str, str]
#: An index is a sum of terms, (index, stride) each.
Term = tuple[str | int, int]
Read = Callable[..., Pair]
Write = Callable[..., None]

#: The longest butterfly: 16 pairs are the 32 registers of the processors that have so many.
LARGEST_RADIX = 16
#: The largest prime of a butterfly, which takes the square of it.
LARGEST_PRIME = 13
#: Bytes of a vector. Twice as wide ones are no faster where they are done in two halves, and need longer lines.
VECTOR_BYTES = 32


@cache
def radices(n: int) -> tuple[int, ...]:
    """The fewest butterflies with product ``n``, and of those the ones that are most alike; () if a prime is large."""
    if n == 1 or max(primes(n)) > LARGEST_PRIME:
        return ()
    best = _factors(n, LARGEST_RADIX)
    assert best is not None
    return best


@cache
def _factors(n: int, largest: int) -> tuple[int, ...] | None:
    if n == 1:
        return ()
    found = None
    for r in range(min(n, largest), 1, -1):
        if n % r == 0 and (rest := _factors(n // r, r)) is not None:
            new = (r, *rest)
            if found is None or (len(new), sum(new)) < (len(found), sum(found)):
                found = new
    return found


@final
class Tables:
    """Arrays of numbers that a module's text contains."""

    def __init__(self, name: str, kind: str) -> None:
        self.name = name
        self.numpy = np.float32 if kind == "float" else np.float64
        self._known: dict[bytes, str] = {}

    def add(self, values: Any) -> str:
        """The address of the values, in the tables' kind."""
        raw = np.ascontiguousarray(values, self.numpy).tobytes()
        return self._known.setdefault(raw, f"@{self.name}.t{len(self._known)}")

    def text(self) -> str:
        """The definitions."""
        return "".join(f'{name} = private constant [{len(raw)} x i8] c"{_escaped(raw)}", align 64\n'
                       for raw, name in self._known.items())


def _escaped(raw: bytes) -> str:
    digits = raw.hex().upper()
    return "".join([f"\\{digits[i:i + 2]}" for i in range(0, len(digits), 2)])


@contextmanager
def counted(e: Emit, count: int) -> Iterator[str]:
    """A loop, unless there is one turn only."""
    if count == 1:
        yield "0"
    else:
        with e.loop(count) as i:
            yield i


def place(e: Emit, *terms: Term) -> str:
    """The sum of the terms."""
    total = "0"
    for index, stride in terms:
        if index in (0, "0") or stride == 0:
            continue
        part = str(index) if stride == 1 else e.let(f"mul nsw i64 {index}, {stride}")
        total = part if total == "0" else e.let(f"add nsw i64 {total}, {part}")
    return total


@final
class Complex:
    """Arithmetic on pairs of vectors (of single numbers where ``lanes`` is 0), and their way to and from memory."""

    def __init__(self, e: Emit, kind: str, lanes: int) -> None:
        self.e, self.kind, self.lanes, self.v = e, kind, lanes, Lanes(e, lanes, kind)
        self.step = max(lanes, 1)
        self._both = f"<{2 * lanes} x {kind}>"

    def add(self, x: Pair, y: Pair) -> Pair:
        """x + y."""
        return self.v.add(x[0], y[0]), self.v.add(x[1], y[1])

    def sub(self, x: Pair, y: Pair) -> Pair:
        """x - y."""
        return self.v.sub(x[0], y[0]), self.v.sub(x[1], y[1])

    def mul(self, x: Pair, y: Pair) -> Pair:
        """x y."""
        v = self.v
        return (v.minus(v.mul(x[0], y[0]), x[1], y[1]), v.fma(x[0], y[1], v.mul(x[1], y[0])))

    def scale(self, x: Pair, c: str) -> Pair:
        """x times a real number."""
        return self.v.mul(x[0], c), self.v.mul(x[1], c)

    def neg(self, x: str) -> str:
        """-x of one vector."""
        return self.e.let(f"fneg {self.v.type} {x}")

    def all(self, x: Pair) -> Pair:
        """One number in every lane."""
        return (self.v.all(x[0]), self.v.all(x[1])) if self.lanes else x

    def turn(self, x: Pair, k: int, n: int) -> Pair:
        """``x exp(-2 pi i k / n)``; eighths of a turn need no or one product."""
        v, (re, im) = self.v, x
        k %= n
        if 8 * k % n:
            c, s = (v.const(float(t)) for t in roots(np.array(k), n))
            return self.mul(x, (c, s))
        eighth = 8 * k // n
        if eighth % 2:
            plus, minus = v.add(re, im), v.sub(im, re)
            x = self.scale((plus, minus), v.const(math.sqrt(0.5)))
            re, im = x
            eighth -= 1
        return (x, (im, self.neg(re)), (self.neg(re), self.neg(im)), (self.neg(im), re))[eighth // 2]

    def dft(self, xs: list[Pair]) -> list[Pair]:
        """The transform of a few values in registers."""
        n = len(xs)
        if n == 1:
            return xs
        if n == 2:
            return [self.add(*xs), self.sub(*xs)]
        factors = primes(n)
        if len(factors) == 1:
            return self._prime(xs)
        a = {8: 2, 16: 4}.get(n, factors[-1])
        b = n // a
        columns = [self.dft(xs[j::b]) for j in range(b)]
        out: list[Pair] = [("", "")] * n
        for k in range(a):
            out[k::a] = self.dft([self.turn(columns[j][k], j * k, n) for j in range(b)])
        return out

    def _prime(self, xs: list[Pair]) -> list[Pair]:
        """Of an odd number of values: sums meet cosines, differences sines."""
        n, v, first = len(xs), self.v, xs[0]
        half = range(1, n // 2 + 1)
        sums, differences = [self.add(xs[k], xs[n - k]) for k in half], [self.sub(xs[k], xs[n - k]) for k in half]
        total = first
        for x in sums:
            total = self.add(total, x)
        out = [total] * n
        for j in half:
            even, odd = first, None
            for k in half:
                c, s = (float(t) for t in roots(np.array(j * k), n))
                t, u = sums[k - 1], differences[k - 1]
                even = v.fma(t[0], v.const(c), even[0]), v.fma(t[1], v.const(c), even[1])
                # -i times the difference, whose sine is -s
                u = (u[1], u[0])
                odd = (self.scale(u, v.const(-s)) if odd is None
                       else (v.fma(u[0], v.const(-s), odd[0]), v.fma(u[1], v.const(-s), odd[1])))
            assert odd is not None
            out[j] = v.add(even[0], odd[0]), v.sub(even[1], odd[1])
            out[n - j] = v.sub(even[0], odd[0]), v.add(even[1], odd[1])
        return out

    # Memory

    def load(self, base: str, *terms: Term) -> Pair:
        """A pair in scratch memory, the two vectors next to each other."""
        at = place(self.e, *terms)
        return (self.v.load(self.e.at(base, self.v.type, (at, 2))),
                self.v.load(self.e.at(base, self.v.type, (place(self.e, (at, 2), (1, 1)), 1))))

    def store(self, x: Pair, base: str, *terms: Term) -> None:
        """Put a pair in scratch memory."""
        at = place(self.e, *terms)
        self.v.store(x[0], self.e.at(base, self.v.type, (at, 2)))
        self.v.store(x[1], self.e.at(base, self.v.type, (place(self.e, (at, 2), (1, 1)), 1)))

    def read(self, base: str, *terms: Term) -> Pair:
        """As many complex numbers as there are lanes from an array of them."""
        at = self.e.at(base, self.kind, (place(self.e, *terms), 2))
        if not self.lanes:
            return self.v.load(at), self.v.load(self.e.at(at, self.kind, (1, 1)))
        both = self.e.let(f"load {self._both}, ptr {at}, align 4")
        picks = [", ".join(f"i32 {2 * i + part}" for i in range(self.lanes)) for part in (0, 1)]
        re, im = (self.e.let(f"shufflevector {self._both} {both}, {self._both} poison, <{self.lanes} x i32> <{p}>")
                  for p in picks)
        return re, im

    def write(self, x: Pair, base: str, *terms: Term) -> None:
        """Put as many complex numbers as there are lanes in an array of them."""
        at = self.e.at(base, self.kind, (place(self.e, *terms), 2))
        if not self.lanes:
            self.v.store(x[0], at)
            self.v.store(x[1], self.e.at(at, self.kind, (1, 1)))
            return
        order = ", ".join(f"i32 {i // 2 + i % 2 * self.lanes}" for i in range(2 * self.lanes))
        t = self.v.type
        both = self.e.let(f"shufflevector {t} {x[0]}, {t} {x[1]}, <{2 * self.lanes} x i32> <{order}>")
        self.e.do(f"store {self._both} {both}, ptr {at}, align 4")

    def reversed(self, x: Pair) -> Pair:
        """The lanes in the opposite order."""
        if not self.lanes:
            return x
        order, t = ", ".join(f"i32 {i}" for i in range(self.lanes - 1, -1, -1)), self.v.type
        re, im = (self.e.let(f"shufflevector {t} {p}, {t} poison, <{self.lanes} x i32> <{order}>") for p in x)
        return re, im


def swapped(x: Pair) -> Pair:
    """Real and imaginary parts exchanged: before and after a transform that makes it the inverse."""
    return x[1], x[0]


@final
class Columns:
    """Transforms of length ``n``, one a lane, in as many passes over memory as there are radices."""

    def __init__(self, c: Complex, tables: Tables, n: int) -> None:
        self.c, self.e, self.tables, self.n = c, c.e, tables, n
        self.radices = radices(n)

    def run(self, read: Read, write: Write, spare: tuple[str, str]) -> None:
        """Element i is ``read((i, 1))``, and result k goes to ``write(pair, (k, 1))``. Between passes values are in
        ``spare``, of ``n`` pairs each; the second of which may be what is read from.
        """
        done, size, last = 1, self.n, len(self.radices) - 1
        for t, r in enumerate(self.radices):
            source, target = spare[(t + 1) % 2], spare[t % 2]
            self._pass(read if t == 0 else self._loader(source), write if t == last else self._storer(target),
                       r, size, done)
            done, size = done * r, size // r

    def _loader(self, base: str) -> Read:
        return lambda *terms: self.c.load(base, *terms)

    def _storer(self, base: str) -> Write:
        return lambda pair, *terms: self.c.store(pair, base, *terms)

    def _pass(self, read: Read, write: Write, r: int, size: int, done: int) -> None:
        """Butterflies of ``r`` values of ``size``, ``done`` side by side, with the twiddles of the next pass."""
        c, e, m = self.c, self.e, size // r
        if m > 1:
            w = roots(np.outer(np.arange(m), np.arange(1, r)), size)
            table = self.tables.add(np.moveaxis(w, 0, -1))
        with counted(e, m) as p:
            turns: list[Pair] = []
            for k in range(r - 1 if m > 1 else 0):
                at = e.at(table, c.kind, (place(e, (p, 2 * (r - 1)), (2 * k, 1)), 1))
                turns.append(c.all((e.let(f"load {c.kind}, ptr {at}"),
                                    e.let(f"load {c.kind}, ptr {e.at(at, c.kind, (1, 1))}"))))
            with counted(e, done) as q:
                out = c.dft([read((q, 1), (p, done), (i * m * done, 1)) for i in range(r)])
                for k, x in enumerate(out):
                    if k and turns:
                        x = c.mul(x, turns[k - 1])
                    write(x, (q, 1), (p, r * done), (k * done, 1))
