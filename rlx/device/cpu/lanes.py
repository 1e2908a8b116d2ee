"""Float vectors in the LLVM IR of claims: one value a lane, masks, and an exponential."""

from __future__ import annotations

import math
import struct
from typing import final

from rlx.device.cpu.emit import Emit


def number(x: float, kind: str = "float") -> str:
    """A literal; of a float LLVM takes the bits of the double with the same value."""
    if kind == "float":
        x = struct.unpack("<f", struct.pack("<f", x))[0]
    return f"0x{struct.unpack('<Q', struct.pack('<d', x))[0]:016X}"


@final
class Lanes:
    """Writes instructions on ``<n x float>`` (or ``double``) values; with ``n = 0`` on single numbers."""

    def __init__(self, e: Emit, n: int, kind: str = "float") -> None:
        self.e, self.n, self.kind = e, n, kind
        self.type = f"<{n} x {kind}>" if n else kind
        self.ints = f"<{n} x i32>" if n else "i32"
        self.mask = f"<{n} x i1>" if n else "i1"
        bits = 32 if kind == "float" else 64
        self._suffix = f"v{n}f{bits}" if n else f"f{bits}"

    def const(self, x: float) -> str:
        """The same number in every lane."""
        return f"splat ({self.kind} {number(x, self.kind)})" if self.n else number(x, self.kind)

    def all(self, x: str) -> str:
        """A value in every lane."""
        one = self.e.let(f"insertelement {self.type} poison, {self.kind} {x}, i64 0")
        return self.e.let(f"shufflevector {self.type} {one}, {self.type} poison, <{self.n} x i32> zeroinitializer")

    def add(self, x: str, y: str) -> str:
        """x + y."""
        return self.e.let(f"fadd {self.type} {x}, {y}")

    def sub(self, x: str, y: str) -> str:
        """x - y."""
        return self.e.let(f"fsub {self.type} {x}, {y}")

    def mul(self, x: str, y: str) -> str:
        """x * y."""
        return self.e.let(f"fmul {self.type} {x}, {y}")

    def div(self, x: str, y: str) -> str:
        """x / y."""
        return self.e.let(f"fdiv {self.type} {x}, {y}")

    def fma(self, x: str, y: str, z: str) -> str:
        """x * y + z with one rounding."""
        return self._call("fma", x, y, z)

    def minus(self, z: str, x: str, y: str) -> str:
        """z - x * y with one rounding."""
        return self.fma(self.e.let(f"fneg {self.type} {x}"), y, z)

    def abs(self, x: str) -> str:
        """The modulus."""
        return self._call("fabs", x)

    def signed(self, x: str, y: str) -> str:
        """The modulus of x with the sign of y."""
        return self._call("copysign", x, y)

    def min(self, x: str, y: str) -> str:
        """The smaller."""
        return self._call("minnum", x, y)

    def max(self, x: str, y: str) -> str:
        """The larger."""
        return self._call("maxnum", x, y)

    def sqrt(self, x: str) -> str:
        """The square root."""
        return self._call("sqrt", x)

    def compare(self, how: str, x: str, y: str) -> str:
        """A mask; ``how`` is LLVM's: ogt, oge, olt, ole, oeq, uno."""
        return self.e.let(f"fcmp {how} {self.type} {x}, {y}")

    def both(self, x: str, y: str) -> str:
        """Both masks."""
        return self.e.let(f"and {self.mask} {x}, {y}")

    def choose(self, mask: str, x: str, y: str) -> str:
        """x where the mask holds, else y."""
        return self.e.let(f"select {self.mask} {mask}, {self.type} {x}, {self.type} {y}")

    def either(self, x: str, y: str) -> str:
        """One of two masks, or both."""
        return self.e.let(f"or {self.mask} {x}, {y}")

    def choose_int(self, mask: str, x: str, y: str) -> str:
        """:meth:`choose` of 32-bit integers."""
        return self.e.let(f"select {self.mask} {mask}, {self.ints} {x}, {self.ints} {y}")

    def all_int(self, x: str) -> str:
        """An i64 as a 32-bit integer in every lane."""
        one = self.e.let(f"insertelement {self.ints} poison, i32 {self.e.let(f'trunc i64 {x} to i32')}, i64 0")
        return self.e.let(f"shufflevector {self.ints} {one}, {self.ints} poison, <{self.n} x i32> zeroinitializer")

    def some(self, mask: str) -> str:
        """Whether the mask holds in any lane."""
        return self.e.call(f"llvm.vector.reduce.or.v{self.n}i1", [(self.mask, mask)], "i1")

    def total(self, x: str) -> str:
        """The sum of the lanes, pairwise."""
        e, width = self.e, self.n
        while width > 1:
            width //= 2
            # Halves are added until one lane is left: the same order on every processor.
            picks = ", ".join(f"i32 {width + i}" if i < width else "i32 poison" for i in range(self.n))
            high = e.let(f"shufflevector {self.type} {x}, {self.type} poison, <{self.n} x i32> <{picks}>")
            x = self.add(x, high)
        return e.let(f"extractelement {self.type} {x}, i64 0")

    def transposed(self, rows: list[str]) -> list[str]:
        """Rows and columns exchanged: squares of half the size, a quarter and so on, across the diagonal."""
        half = self.n // 2
        while half:
            out = list(rows)
            for i in range(self.n):
                if not i & half:
                    a, b = rows[i], rows[i + half]
                    low = [j if not j & half else self.n + j - half for j in range(self.n)]
                    high = [j + half if not j & half else self.n + j for j in range(self.n)]
                    out[i], out[i + half] = self._picked(a, b, low), self._picked(a, b, high)
            rows, half = out, half // 2
        return rows

    def _picked(self, a: str, b: str, picks: list[int]) -> str:
        text = ", ".join(f"i32 {p}" for p in picks)
        return self.e.let(f"shufflevector {self.type} {a}, {self.type} {b}, <{self.n} x i32> <{text}>")

    def load(self, pointer: str) -> str:
        """The value at an address."""
        return self.e.let(f"load {self.type}, ptr {pointer}, align 4")

    def store(self, x: str, pointer: str) -> None:
        """Put a value at an address."""
        self.e.do(f"store {self.type} {x}, ptr {pointer}, align 4")

    def exp_minus(self, x: str) -> str:
        """``exp(-x)`` for x >= 0, within 2 units in the last place; below 2^-115 it stays there.

        ``2^n 2^f`` with ``n + f = -x / ln 2``; ``2^f`` on [-1/2, 1/2] is its Taylor series to degree 6, whose error is
        (ln 2 / 2)^7 / 7! = 1.2e-7.
        """
        e, scale = self.e, self.const(-1 / math.log(2))
        x = self.min(x, self.const(80.0))
        n = self._call("roundeven", self.mul(x, scale))
        minus = e.let(f"fneg {self.type} {n}")
        f = self.fma(x, scale, minus)
        p = self.const(math.log(2) ** 6 / math.factorial(6))
        for k in range(5, -1, -1):
            p = self.fma(p, f, self.const(math.log(2) ** k / math.factorial(k)))
        shift = "splat (i32 23)" if self.n else "23"
        whole = e.let(f"fptosi {self.type} {n} to {self.ints}")
        power = e.let(f"shl {self.ints} {whole}, {shift}")
        raw = e.let(f"bitcast {self.type} {p} to {self.ints}")
        bits = e.let(f"add {self.ints} {raw}, {power}")
        return e.let(f"bitcast {self.ints} {bits} to {self.type}")

    def _call(self, name: str, *args: str) -> str:
        return self.e.call(f"llvm.{name}.{self._suffix}", [(self.type, a) for a in args], self.type)
