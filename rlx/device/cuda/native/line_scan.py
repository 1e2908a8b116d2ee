"""Claim: running sums, products and extrema of long lines in three passes, whose order is the same in every run.

Totals of tiles; a scan of those, one workgroup a line; each tile scanned behind what came before it. A pass with
look-back would read the data once less, but sums floats in an order that depends on timing.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from rlx.core.dtype import DType, float32, float64, int32, int64, uint32, uint64
from rlx.device.cuda import driver
from rlx.device.cuda.kernel import Kernel
from rlx.device.cuda.program import Library
from rlx.ir.claim import Call, Claim
from rlx.ir.loop import Native

#: Length of a line from which three launches are faster than generated code.
SMALL = 1 << 14
#: Lanes of a workgroup, and elements of each.
LANES, ITEMS = 256, 16
#: C type (integers wrap, so they are added unsigned where that is all that matters) and limits of each dtype.
TYPES: dict[DType, tuple[str, str, str]] = {
    float32: ("float", "-INFINITY", "INFINITY"), float64: ("double", "-INFINITY", "INFINITY"),
    int32: ("int", "(-2147483647 - 1)", "2147483647"), uint32: ("unsigned", "0u", "4294967295u"),
    int64: ("long long", "(-9223372036854775807LL - 1)", "9223372036854775807LL"),
    uint64: ("unsigned long long", "0ull", "18446744073709551615ull"),
}
#: NaN is kept by extrema, as the op says.
COMBINE = {"add": "a + b", "mul": "a * b", "min": "b < a || b != b ? b : a", "max": "b > a || b != b ? b : a"}


def accepts(call: Call) -> str | None:
    """None for lines that are long and lie together; else the reason."""
    dtype, shape = call.inputs[0]
    if dtype not in TYPES:
        return f"needs integers or floats of 32 or 64 bits, got {dtype.name}"
    axis = call.attrs["axis"]
    if 0 in shape or prod(shape[axis + 1:]) > 1:
        return "takes lines whose elements lie together"
    if prod(shape) >= 1 << 31:
        return f"counts {prod(shape)} elements in 32 bits"
    return f"is slower than generated code at length {shape[axis]}" if shape[axis] < SMALL else None


def source(dtype: DType, kind: str, lines: int, length: int, reverse: bool) -> str:
    """The three kernels: ``sums``, ``offsets`` and ``apply``."""
    name, low, high = TYPES[dtype]
    first = {"add": "0", "mul": "1", "min": high, "max": low}[kind]
    # Signed overflow has no meaning in C.
    wraps = kind in ("add", "mul") and dtype.kind == "i"
    body = f"(T)({COMBINE[kind].replace('a', '(U)a').replace('b', '(U)b')})" if wraps else COMBINE[kind]
    tiles = -(-length // (LANES * ITEMS))
    facts = {"T": name, "U": f"unsigned {name}" if wraps else name, "FIRST": f"((T)({first}))", "LINES": lines,
             "N": length, "TILES": tiles, "REVERSE": int(reverse), "LANES": LANES, "ITEMS": ITEMS}
    return "\n".join(f"#define {k} {v}" for k, v in facts.items()) + _TEXT.replace("@combine@", body)


_TEXT = """
#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#endif
__device__ __forceinline__ T combine(T a, T b) { return @combine@; }
__device__ __forceinline__ int place(int i) { return REVERSE ? N - 1 - i : i; }
// Lanes read their elements in a row: a word of padding in 32 keeps them in different banks.
__device__ __forceinline__ int slot(int i) { return i + i / 32; }

// What lanes before this one have, and the total of all; `between` has a place for each warp.
__device__ T before(T own, T* between, T* total) {
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  T upto = own;
  for (int k = 1; k < 32; k *= 2) {
    T other = __shfl_up_sync(0xffffffffu, upto, k);
    if (lane >= k) upto = combine(other, upto);
  }
  if (lane == 31) between[warp] = upto;
  T left = __shfl_up_sync(0xffffffffu, upto, 1);
  __syncthreads();
  T lead = FIRST, all = FIRST;
  for (int w = 0; w < warps; ++w) {
    if (w == warp) lead = all;
    all = combine(all, between[w]);
  }
  *total = all;
  __syncthreads();
  return lane ? combine(lead, left) : lead;
}

__device__ __forceinline__ T fetch(const T* x, T* tile, int line, int start) {
  for (int k = 0; k < ITEMS; ++k) {
    int i = k * LANES + threadIdx.x, at = start + i;
    tile[slot(i)] = at < N ? x[(long long)line * N + place(at)] : FIRST;
  }
  __syncthreads();
  T own = tile[slot(threadIdx.x * ITEMS)];
  for (int k = 1; k < ITEMS; ++k) own = combine(own, tile[slot(threadIdx.x * ITEMS + k)]);
  return own;
}

extern "C" __global__ void __launch_bounds__(LANES) sums(const T* x, T* partial) {
  __shared__ T tile[LANES * ITEMS + LANES * ITEMS / 32], between[LANES / 32];
  T total, own = fetch(x, tile, blockIdx.x / TILES, blockIdx.x % TILES * LANES * ITEMS);
  before(own, between, &total);
  if (threadIdx.x == 0) partial[blockIdx.x] = total;
}

extern "C" __global__ void __launch_bounds__(1024) offsets(T* partial) {
  __shared__ T between[32];
  T* line = partial + (long long)blockIdx.x * TILES;
  T carry = FIRST, total;
  for (int low = 0; low < TILES; low += 1024) {
    int i = low + threadIdx.x;
    T lead = before(i < TILES ? line[i] : FIRST, between, &total);
    if (i < TILES) line[i] = combine(carry, lead);
    carry = combine(carry, total);
  }
}

extern "C" __global__ void __launch_bounds__(LANES) apply(const T* x, const T* partial, T* out) {
  __shared__ T tile[LANES * ITEMS + LANES * ITEMS / 32], between[LANES / 32];
  int line = blockIdx.x / TILES, start = blockIdx.x % TILES * LANES * ITEMS;
  T total, own = fetch(x, tile, line, start);
  T v = combine(partial[blockIdx.x], before(own, between, &total));
  for (int k = 0; k < ITEMS; ++k) {
    T* at = tile + slot(threadIdx.x * ITEMS + k);
    *at = v = combine(v, *at);
  }
  __syncthreads();
  for (int k = 0; k < ITEMS; ++k) {
    int i = k * LANES + threadIdx.x, at = start + i;
    if (at < N) out[(long long)line * N + place(at)] = tile[slot(i)];
  }
}
"""


def lower(native: Native) -> Library:
    """x -> running results of the kind."""
    attrs, (dtype, shape) = dict(native.attrs), native.types[0]
    length = shape[int(attrs["axis"])]
    lines = prod(shape) // length
    text = source(dtype, str(attrs["kind"]), lines, length, bool(attrs["reverse"]))
    sums, offsets, apply = (Kernel(text, name) for name in ("sums", "offsets", "apply"))
    tiles = lines * -(-length // (LANES * ITEMS))
    partial = driver.cupy().cuda.alloc(tiles * dtype.itemsize)

    def run(stream: int, addresses: Sequence[int]) -> None:
        x, out = addresses
        sums(stream, tiles, LANES, (x, partial.ptr))
        offsets(stream, lines, 1024, (partial.ptr,))
        apply(stream, tiles, LANES, (x, partial.ptr, out))

    return Library(run, records=True)


CLAIMS = (Claim("line_scan", "scan", "sums, offsets, apply", accepts, lower,
                "running results of long lines in three passes"),)
