"""How a discrete Fourier transform is factored, and its tables of roots of unity, computed on the host in float64.

A length whose primes are all small is a product of radices: each is a dense DFT, one matrix product, with a table of
twiddle factors between two of them. A length with a large prime is a convolution with a chirp (Bluestein 1970), of a
longer length that has small primes only.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from rlx.array.array import Array
from rlx.array.build import as_array
from rlx.core.dtype import DType

#: The largest prime that is transformed as a dense matrix: from about here three longer transforms cost less.
LARGEST_PRIME = 127
#: What one more pass over the data costs, in units of one row of a dense DFT (measured with products of 2^16 values).
PASS = 30
#: Tables of the radices of longer transforms are left to the program, where it computes in 64 bits.
LONGEST_GIVEN = 1 << 14
#: Tables of longer transforms are made anew each time instead of being kept.
LONGEST_KEPT = 1 << 20

Host = np.ndarray


@dataclass(frozen=True, slots=True)
class Plan:
    """``radices`` of a length, outermost first; ``chirp`` is the length of the convolution, 0 for none."""

    n: int
    radices: tuple[int, ...]
    chirp: int = 0


def primes(n: int) -> tuple[int, ...]:
    """The prime factors, ascending: ``12 -> (2, 2, 3)``."""
    out, p = [], 2
    while p * p <= n:
        while n % p == 0:
            out.append(p)
            n //= p
        p += 1
    return (*out, n) if n > 1 else tuple(out)


@lru_cache(maxsize=4096)
def plan(n: int) -> Plan:
    """The cheapest factorization: ``1000 -> 10 * 10 * 10``."""
    if n == 1 or max(primes(n)) <= LARGEST_PRIME:
        return Plan(n, _split(n)[1])
    size = smooth(2 * n - 1)
    return Plan(n, plan(size).radices, size)


@lru_cache(maxsize=4096)
def _split(n: int) -> tuple[int, tuple[int, ...]]:
    """(cost, radices) of a product of small primes: each pass over the data costs ``PASS + radix``."""
    if n == 1:
        return 0, ()
    best: tuple[int, tuple[int, ...]] | None = None
    for r in range(2, min(n, LARGEST_PRIME) + 1):
        if n % r == 0:
            cost, rest = _split(n // r)
            if best is None or PASS + r + cost < best[0]:
                best = PASS + r + cost, (r, *rest)
    assert best is not None
    return best


def smooth(n: int) -> int:
    """The smallest product of powers of 2, 3 and 5 that is at least ``n``."""
    best = 1 << (n - 1).bit_length()
    five = 1
    while five < best:
        three = five
        while three < best:
            two = -(-n // three)
            best = min(best, three << max(two - 1, 0).bit_length())
            three *= 3
        five *= 5
    return best


def roots(k: Host, n: int) -> Host:
    """``exp(-2 pi i k / n)`` as (2, ...) cosines and sines; the angle is reduced to an eighth of a turn in integers."""
    k = k % n
    below = 2 * k > n
    t = 2 * np.where(below, n - k, k)  # the angle is pi t / n
    left = 2 * t > n
    u = 2 * np.where(left, n - t, t)  # and now pi u / 2n
    steep = 2 * u > n
    angle = np.where(steep, n - u, u) * (np.pi / (2 * n))
    c, s = np.cos(angle), np.sin(angle)
    c, s = np.where(steep, s, c), np.where(steep, c, s)
    return np.stack([np.where(left, -c, c), np.where(below, s, -s)])


def dense(r: int) -> Host:
    """The DFT of length ``r`` as a real matrix on (real parts, imaginary parts): ``[[C, -S], [S, C]]``."""
    i = np.arange(r)
    c, s = roots(np.outer(i, i), r)
    return np.block([[c, -s], [s, c]])


def _factored(n: int) -> list[Host]:
    """For each radix its matrix, and the twiddles (2, m, r) before the ``m`` that remain."""
    out = []
    for r in plan(n).radices:
        m = n // r
        out.append(dense(r))
        if m > 1:
            out.append(roots(np.outer(np.arange(m), np.arange(r)), n))
        n = m
    return out


def convolution(n: int, size: int) -> tuple[Host, Host]:
    """The chirp of ``n`` values, and the transform of its convolution of length ``size`` over that, two planes each."""
    j = np.arange(n)
    c, s = roots(j * j % (2 * n), 2 * n)
    filter_ = np.zeros(size, np.complex128)
    filter_[:n] = c - 1j * s
    filter_[size - n + 1:] = filter_[1:n][::-1]
    f = np.fft.fft(filter_) / size
    return np.stack([c, s]), np.stack([f.real, f.imag])


def _complex(n: int, brief: bool = False) -> list[Host]:
    p = plan(n)
    return [*(convolution(n, p.chirp) if p.chirp else ()), *(() if brief else _factored(p.chirp or n))]


def _host(kind: str, n: int, brief: bool = False) -> list[Host]:
    """The tables of a transform of ``n`` values: ``c2c``, and of real values ``r2c`` and ``c2r``."""
    if kind == "c2c" or n % 2:
        return _complex(n, brief)
    m = n // 2
    c, s = roots(np.arange(m + 1), n)
    # -i w^k joins the halves of a real transform; its conjugate splits them.
    return [np.stack([s, -c]) if kind == "r2c" else np.stack([s, c])[:, :m], *_complex(m, brief)]


@lru_cache(maxsize=64)
def _kept(kind: str, n: int, dtype: DType, device: str, brief: bool) -> tuple[Array, ...]:
    return tuple(as_array(np.ascontiguousarray(t), dtype, device) for t in _host(kind, n, brief))


def tables(kind: str, n: int, dtype: DType, device: str, brief: bool = False) -> tuple[Array, ...]:
    """The tables of a transform as arrays of a real dtype on a device; ``brief`` without those of the radices."""
    make = _kept if n <= LONGEST_KEPT else _kept.__wrapped__
    return make(kind, n, dtype, device, brief)
