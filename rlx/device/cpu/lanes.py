"""Float vectors in the LLVM IR of claims: one value a lane, masks, and an exponential."""

from __future__ import annotations

import math
import struct
from typing import final

from rlx.device.cpu.emit import Emit


def number(x: float) -> str:
    """A float literal: LLVM takes the bits of the double with the same value."""
    single = struct.unpack("<f", struct.pack("<f", x))[0]
    return f"0x{struct.unpack('<Q', struct.pack('<d', single))[0]:016X}"


@final
class Lanes:
    """Writes instructions on ``<n x float>`` values; with ``n = 0`` on single floats."""

    def __init__(self, e: Emit, n: int) -> None:
        self.e, self.n = e, n
        self.type = f"<{n} x float>" if n else "float"
        self.ints = f"<{n} x i32>" if n else "i32"
        self.mask = f"<{n} x i1>" if n else "i1"
        self._suffix = f"v{n}f32" if n else "f32"

    def const(self, x: float) -> str:
        """The same number in every lane."""
        return f"splat (float {number(x)})" if self.n else number(x)

    def all(self, x: str) -> str:
        """A float value in every lane."""
        one = self.e.let(f"insertelement {self.type} poison, float {x}, i64 0")
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
        """A mask; ``how`` is LLVM's: ogt, oge, olt, ole."""
        return self.e.let(f"fcmp {how} {self.type} {x}, {y}")

    def both(self, x: str, y: str) -> str:
        """Both masks."""
        return self.e.let(f"and {self.mask} {x}, {y}")

    def choose(self, mask: str, x: str, y: str) -> str:
        """x where the mask holds, else y."""
        return self.e.let(f"select {self.mask} {mask}, {self.type} {x}, {self.type} {y}")

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
