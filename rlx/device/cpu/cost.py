"""Expected time of a matrix product on one core: generated tiles against OpenBLAS, from measured constants.

``tiles = multiply-adds at the register tile's rate + packing + the ends``; ``OpenBLAS = call + multiply-adds at its
rate + its packing``. Constants are single-thread processor times on the machine that each ``Rates`` names; on another
core of the same width both sides scale together, and only their ratio decides.
"""

from __future__ import annotations

from dataclasses import dataclass

from rlx.compile.nest_form import Form, geometry, spreads
from rlx.core.dtype import DType


@dataclass(frozen=True, slots=True)
class Rates:
    """What was measured: GFlop/s in float32 (half of it in float64), nanoseconds a byte, a call, or an element.

    ``latency`` is how many multiply-adds must be under way to keep the units busy.
    """

    machine: str
    tile: float
    library: float
    library_small: float
    latency: int
    pack: float
    pack_far: float
    library_pack: tuple[float, float]
    library_far: tuple[float, float]
    library_turn: float


#: By bytes of a vector. 64: EPYC of the fourth generation (AVX-512), OpenBLAS 0.3.34 with SkylakeX kernels, all
#: measured. 32: EPYC of the third generation (AVX2), the same OpenBLAS with Haswell kernels: rates measured, packing
#: and turning estimated from them. Pairs: columns of rhs along memory, and rows.
RATES = {64: Rates("AVX-512", 116.0, 105.0, 115.0, 4, 0.019, 0.037, (0.045, 0.025), (0.15, 0.035), 0.1),
         32: Rates("AVX2", 99.0, 90.0, 88.0, 8, 0.025, 0.05, (0.06, 0.03), (0.15, 0.05), 0.1)}
#: Multiply-adds up to which OpenBLAS takes kernels that do not pack.
SMALL = 1_000_000
#: Bytes from which an operand lies beyond the second-level cache.
FAR = 1 << 20
#: Nanoseconds: of a kernel's start, of a call into the library, of one byte of a finished tile.
LAUNCH, CALL, END = 5.0, 25.0, 0.05
#: Nanoseconds that a multiply-add of the library's kernels without packing takes more where rhs lies by columns.
TURN = 0.02


def tiles(f: Form, dtype: DType, rates: Rates, vector_bytes: int, *, turned: bool = False,
          packed: bool = False) -> float:
    """Microseconds of the generated kernels; ``turned``: the packed operand's columns lie along memory; ``packed``: it
    was packed before.
    """
    rows, width = geometry(dtype, vector_bytes)
    lanes = vector_bytes // dtype.itemsize
    width = lanes if f.n <= lanes else width
    across, panels = width // lanes, -(-f.n // width)
    rows = min(rows, f.m)
    steps = f.m // rows * max(rows * across, rates.latency)
    if f.m % rows:
        steps += max(f.m % rows * across, rates.latency)
    peak = rates.tile * 4 / dtype.itemsize
    work = panels * f.depth * steps * lanes * 2 / peak
    nbytes = panels * width * f.depth * dtype.itemsize
    ends = f.m * f.n * dtype.itemsize * END
    spread = f.m * f.depth * dtype.itemsize * rates.pack if spreads(f, dtype, rows) else 0.0
    pack = nbytes * (rates.pack_far * (1.3 if turned else 1.0) if nbytes > FAR else rates.pack)
    if packed:
        pack = 0.0
    return (2 * LAUNCH + _batches(f) * (work + ends + spread + pack)) / 1000


def library(f: Form, dtype: DType, rates: Rates, *, turned: bool = False) -> float:
    """Microseconds of OpenBLAS; ``turned``: the columns of rhs lie along memory."""
    scale = 4 / dtype.itemsize
    lanes = 64 // dtype.itemsize if rates is RATES[64] else 32 // dtype.itemsize
    elements = f.n * f.depth
    if f.m * f.n * f.depth <= SMALL:
        work = 2 * f.m * (-(-f.n // lanes) * lanes) * f.depth / (rates.library_small * scale)
        pack = min(elements * dtype.itemsize * rates.library_turn, elements * f.m * TURN) if turned else 0.0
    else:
        work = 2 * f.m * f.n * f.depth / (rates.library * scale)
        far = elements * dtype.itemsize > FAR
        pack = elements * dtype.itemsize * (rates.library_far if far else rates.library_pack)[0 if turned else 1]
    return _batches(f) * (CALL + work + pack) / 1000


def _batches(f: Form) -> int:
    n = 1
    for d in f.batch:
        n *= d
    return n


def reason(f: Form, dtype: DType, vector_bytes: int, *, turned: bool = False, packed: bool = False) -> str | None:
    """Why the library should not take this product, or None: it is the faster, or nothing was measured here."""
    rates = RATES.get(vector_bytes)
    if rates is None:
        return None
    own = tiles(f, dtype, rates, vector_bytes, turned=turned, packed=packed)
    other = library(f, dtype, rates, turned=turned)
    if own >= other:
        return None
    return (f"is slower: one core's time in the generated kernel is expected to be {own:.3g} us, in OpenBLAS "
            f"{other:.3g} us ({rates.machine})")
