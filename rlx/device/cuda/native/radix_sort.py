"""Claim: one long line is sorted by its digits, 8 bits a pass: stable, NaN last, recorded in graphs.

Keys become unsigned numbers of the same order and carry their places; then every operand is gathered. A pass counts
the digits of each tile, scans the counts, and moves each element behind those of its digit that came before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from rlx.core.dtype import DType, bfloat16
from rlx.device.cuda import driver
from rlx.device.cuda.kernel import Kernel
from rlx.device.cuda.program import Library
from rlx.ir.claim import Call, Claim
from rlx.ir.loop import Native

#: Length from which it is faster than generated merges.
SMALL = 1 << 15
#: Length from which Thrust is faster at keys that carry nothing: it can sort them alone.
PLAIN = 1 << 20
#: Lanes of a workgroup, and elements of each.
LANES, ITEMS = 256, 16
_UNSIGNED = {1: "unsigned char", 2: "unsigned short", 4: "unsigned", 8: "unsigned long long", 16: "double2"}


def accepts(call: Call) -> str | None:
    """None for one long line of keys that have an order as bits; else the reason."""
    dtype, shape = call.inputs[0]
    if dtype.is_complex or dtype == bfloat16:
        return f"needs integers, or floats that NumPy has, got {dtype.name}"
    n = shape[call.attrs["axis"]]
    if prod(shape) != n:
        return "sorts one line"
    if n >= 1 << 31:
        return f"counts {n} elements in 32 bits"
    if len(call.inputs) == 1 and n >= PLAIN and not call.attrs["descending"]:
        return f"is slower than Thrust at {n} keys alone"
    return f"is slower than generated code at length {n}" if n < SMALL else None


def source(dtype: DType, n: int, down: bool) -> str:
    """Kernels ``begin``, ``count``, ``offsets``, ``move`` by digit, and ``take1`` .. ``take16`` by item size."""
    bits = 8 * dtype.itemsize
    facts = {"U": _UNSIGNED[dtype.itemsize], "N": n, "BLOCKS": -(-n // (LANES * ITEMS)), "DOWN": int(down),
             "LANES": LANES, "ITEMS": ITEMS, "SIGN": f"((U)(1ull << {bits - 1}))", "FLOAT": int(dtype.is_float),
             "SIGNED": int(dtype.kind == "i"), "INF": f"((U){_infinity(dtype)}ull)"}
    digits = "".join(f"PASS({k})\n" for k in range(dtype.itemsize))
    takes = "".join(f"TAKE(take{size}, {name})\n" for size, name in _UNSIGNED.items())
    return "\n".join(f"#define {k} {v}" for k, v in facts.items()) + _TEXT + digits + takes


def _infinity(dtype: DType) -> int:
    """The bits of infinity of a float; beyond them, but for the sign, are the NaN."""
    return {2: 0x7C00, 4: 0x7F800000, 8: 0x7FF << 52}[dtype.itemsize] if dtype.is_float else 0


_TEXT = """
__device__ __forceinline__ U order(U u) {
  if (FLOAT) {
    if ((U)(u & (U)~SIGN) > INF) return (U)~(U)0;
    if (u == SIGN) u = 0;
    u = u & SIGN ? (U)~u : (U)(u | SIGN);
  } else if (SIGNED) {
    u = u ^ SIGN;
  }
  return DOWN ? (U)~u : u;
}

extern "C" __global__ void begin(const U* x, U* keys, unsigned* places) {
  unsigned i = blockIdx.x * LANES + threadIdx.x;
  if (i < N) { keys[i] = order(x[i]); places[i] = i; }
}

__device__ __forceinline__ void count_digits(const U* keys, unsigned* counts, int shift) {
  __shared__ unsigned hist[256];
  hist[threadIdx.x] = 0;
  __syncthreads();
  unsigned start = blockIdx.x * LANES * ITEMS;
  for (int k = 0; k < ITEMS; ++k) {
    unsigned i = start + k * LANES + threadIdx.x;
    if (i < N) atomicAdd(&hist[keys[i] >> shift & 255], 1u);
  }
  __syncthreads();
  counts[threadIdx.x * BLOCKS + blockIdx.x] = hist[threadIdx.x];
}

// What the lanes before this one have; 256 lanes.
__device__ unsigned before(unsigned own, unsigned* between, unsigned* total) {
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  unsigned upto = own;
  for (int k = 1; k < 32; k *= 2) {
    unsigned other = __shfl_up_sync(0xffffffffu, upto, k);
    if (lane >= k) upto += other;
  }
  if (lane == 31) between[warp] = upto;
  __syncthreads();
  unsigned lead = 0, all = 0;
  for (int w = 0; w < 8; ++w) {
    if (w < warp) lead += between[w];
    all += between[w];
  }
  *total = all;
  __syncthreads();
  return lead + upto - own;
}

// A workgroup for each digit: where its elements of each tile go, within the digit.
extern "C" __global__ void __launch_bounds__(256) offsets(unsigned* counts, unsigned* totals) {
  __shared__ unsigned between[8];
  unsigned* row = counts + blockIdx.x * BLOCKS;
  unsigned carry = 0, total;
  for (int low = 0; low < BLOCKS; low += 256) {
    int i = low + threadIdx.x;
    unsigned lead = before(i < BLOCKS ? row[i] : 0, between, &total);
    if (i < BLOCKS) row[i] = carry + lead;
    carry += total;
  }
  if (threadIdx.x == 0) totals[blockIdx.x] = carry;
}

__device__ __forceinline__ void move_digits(const U* keys, const unsigned* places, const unsigned* counts,
                                            const unsigned* totals, U* keys_out, unsigned* places_out, int shift) {
  __shared__ unsigned next[8][256], between[8], ahead[256];
  __shared__ unsigned long long room[LANES * ITEMS * (sizeof(U) > 4 ? sizeof(U) : 4) / 8];
  U* stage = (U*)room;
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int w = 0; w < 8; ++w) next[w][threadIdx.x] = 0;
  unsigned all, base = before(totals[threadIdx.x], between, &all) + counts[threadIdx.x * BLOCKS + blockIdx.x];
  unsigned first = blockIdx.x * LANES * ITEMS + warp * 32 * ITEMS + lane, below = (1u << lane) - 1;
  U own[ITEMS];
  unsigned rank[ITEMS];
#pragma unroll
  for (int k = 0; k < ITEMS; ++k) {
    unsigned i = first + k * 32;
    own[k] = i < N ? keys[i] : (U)0;
  }
#pragma unroll
  for (int k = 0; k < ITEMS; ++k) {
    bool inside = first + k * 32 < N;
    unsigned digit = inside ? own[k] >> shift & 255 : 256;
    unsigned same = __match_any_sync(0xffffffffu, digit);
    unsigned seen = inside ? next[warp][digit] : 0;
    rank[k] = seen + __popc(same & below);
    __syncwarp();
    if (inside && !(same & below)) next[warp][digit] = seen + __popc(same);
    __syncwarp();
  }
  __syncthreads();
  // Elements go to their places within the tile first, so that what is written lies together.
  unsigned here = 0;
  for (int w = 0; w < 8; ++w) here += next[w][threadIdx.x];
  unsigned local = before(here, between, &all);
  ahead[threadIdx.x] = base - local;
  for (int w = 0; w < 8; ++w) {
    unsigned own_ = next[w][threadIdx.x];
    next[w][threadIdx.x] = local;
    local += own_;
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < ITEMS; ++k) {
    if (first + k * 32 < N) {
      rank[k] += next[warp][own[k] >> shift & 255];
      stage[rank[k]] = own[k];
    }
  }
  __syncthreads();
  unsigned to[ITEMS];
#pragma unroll
  for (int k = 0; k < ITEMS; ++k) {
    unsigned i = k * LANES + threadIdx.x;
    if (i < all) {
      U key = stage[i];
      to[k] = ahead[key >> shift & 255] + i;
      keys_out[to[k]] = key;
    }
  }
  __syncthreads();
  unsigned* staged = (unsigned*)stage;
#pragma unroll
  for (int k = 0; k < ITEMS; ++k) {
    unsigned i = first + k * 32;
    if (i < N) staged[rank[k]] = places[i];
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < ITEMS; ++k) {
    unsigned i = k * LANES + threadIdx.x;
    if (i < all) places_out[to[k]] = staged[i];
  }
}

#define PASS(k) \\
  extern "C" __global__ void __launch_bounds__(LANES) count##k(const U* keys, unsigned* counts) { \\
    count_digits(keys, counts, 8 * k); \\
  } \\
  extern "C" __global__ void __launch_bounds__(LANES) move##k(const U* keys, const unsigned* places, \\
      const unsigned* counts, const unsigned* totals, U* keys_out, unsigned* places_out) { \\
    move_digits(keys, places, counts, totals, keys_out, places_out, 8 * k); \\
  }
#define TAKE(name, V) \\
  extern "C" __global__ void name(const V* x, const unsigned* places, V* out) { \\
    unsigned i = blockIdx.x * LANES + threadIdx.x; \\
    if (i < N) out[i] = x[places[i]]; \\
  }
"""


def lower(native: Native) -> Library:
    """(keys, *payloads) -> all in the order of the keys."""
    attrs, (dtype, shape) = dict(native.attrs), native.types[0]
    n = shape[int(attrs["axis"])]
    text, count = source(dtype, n, bool(attrs["descending"])), native.inputs
    tiles, lines = -(-n // (LANES * ITEMS)), -(-n // LANES)
    begin, offsets = Kernel(text, "begin"), Kernel(text, "offsets")
    passes = [(Kernel(text, f"count{k}"), Kernel(text, f"move{k}")) for k in range(dtype.itemsize)]
    takes = [Kernel(text, f"take{d.itemsize}") for d, _ in native.types[:count]]
    alloc = driver.cupy().cuda.alloc
    keys, places = ([alloc(n * size) for _ in range(2)] for size in (dtype.itemsize, 4))
    counts, totals = alloc(256 * tiles * 4), alloc(256 * 4)

    def run(stream: int, addresses: Sequence[int]) -> None:
        begin(stream, lines, LANES, (addresses[0], keys[0].ptr, places[0].ptr))
        for k, (counting, moving) in enumerate(passes):
            a, b = k % 2, 1 - k % 2
            counting(stream, tiles, LANES, (keys[a].ptr, counts.ptr))
            offsets(stream, 256, 256, (counts.ptr, totals.ptr))
            moving(stream, tiles, LANES, (keys[a].ptr, places[a].ptr, counts.ptr, totals.ptr, keys[b].ptr,
                                          places[b].ptr))
        last = places[len(passes) % 2].ptr
        for k, take in enumerate(takes):
            take(stream, lines, LANES, (addresses[k], last, addresses[count + k]))

    return Library(run, records=True)


CLAIMS = (Claim("radix_sort", "sort", "begin, count, offsets, move, take", accepts, lower,
                "stable radix sort of one long line"),)
