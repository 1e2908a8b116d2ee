"""Claims: Fourier transforms along one axis are cuFFT's, as the data lie."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from rlx.core.dtype import complex64, complex128, float32, float64
from rlx.device.cuda import driver, fft
from rlx.device.cuda.fft import FORWARD, INVERSE, Transforms
from rlx.device.cuda.kernel import Kernel
from rlx.device.cuda.program import Library
from rlx.ir.claim import Call, Claim
from rlx.ir.loop import Native

#: Lengths up to which a generated kernel is one small product, which may be fused with others.
SMALL = 8
#: Outer axes are done one by one: more of them cost more calls than a transform is worth.
CALLS = 64
#: The imaginary part of a half spectrum's first value (and last, of an even length) is not read by definition; cuFFT
#: leaves open what it does with it.
_REAL_ENDS = """
extern "C" __global__ void real_ends(%(t)s* x) {
  long long i = (long long)blockIdx.x * 256 + threadIdx.x;
  if (i >= %(outer)dLL * %(inner)d) return;
  long long at = i / %(inner)d * %(size)d * %(inner)d + i %% %(inner)d;
  x[2 * at + 1] = 0;
  if (%(even)d) x[2 * (at + %(last)dLL * %(inner)d) + 1] = 0;
}
"""


def accepts(call: Call) -> str | None:
    """None for a transform that is not tiny, whose axis has few or no axes before it or none behind; else why not."""
    if (reason := fft.absent()) is not None:
        return reason
    dtype, shape = call.inputs[0]
    if dtype not in (float32, float64, complex64, complex128):
        return f"needs 32-bit or 64-bit floats, got {dtype.name}"
    axis, n = call.attrs["axis"], call.attrs.get("n", shape[call.attrs["axis"]])
    if 0 in shape or n <= SMALL:
        return f"is no faster than a generated kernel at length {n}"
    outer, inner = prod(shape[:axis]), prod(shape[axis + 1:])
    if inner > 1 and outer > CALLS:
        return f"takes a call for each of {outer} outer places"
    return f"counts {max(prod(shape), n * outer * inner)} elements in 32 bits" if prod(shape) >= 1 << 31 else None


def lower(native: Native) -> Library:
    """``op(x, *roots) -> y``; the tables of roots are not read."""
    kind = {"cufft_c2c": "c2c", "cufft_r2c": "r2c", "cufft_c2r": "c2r"}[native.claim]
    attrs, (dtype, shape), (made, result) = dict(native.attrs), native.types[0], native.types[-1]
    axis = int(attrs["axis"])
    outer, inner = prod(shape[:axis]), prod(shape[axis + 1:])
    lengths = shape[axis], result[axis]
    n = lengths[1] if kind == "c2r" else lengths[0]
    bits = 32 if dtype in (float32, complex64) else 64
    batch, apart = (inner, (1, 1)) if inner > 1 else (outer, lengths)
    transforms = Transforms(kind, bits, n, batch, inner, apart)
    direction = () if kind != "c2c" else (INVERSE if attrs.get("inverse") else FORWARD,)
    calls = outer if inner > 1 else 1
    steps = lengths[0] * inner * dtype.itemsize, lengths[1] * inner * made.itemsize
    nbytes = prod(shape) * dtype.itemsize
    scratch = driver.cupy().cuda.alloc(nbytes) if kind == "c2r" else None
    facts = {"t": "float" if bits == 32 else "double", "outer": outer, "inner": inner, "size": lengths[0],
             "even": int(n % 2 == 0), "last": lengths[0] - 1}
    ends = Kernel(_REAL_ENDS % facts, "real_ends") if kind == "c2r" else None

    def run(stream: int, addresses: Sequence[int]) -> None:
        source, target = addresses[0], addresses[-1]
        if scratch is not None and ends is not None:
            driver.told("copy", driver.api().cuMemcpyDtoDAsync(scratch.ptr, source, nbytes, stream))
            source = int(scratch.ptr)
            ends(stream, -(-outer * inner // 256), 256, (source,))
        for k in range(calls):
            transforms(stream, source + k * steps[0], target + k * steps[1], *direction)

    return Library(run, records=True)


CLAIMS = tuple(Claim(f"cufft_{kind}", f"fft.{kind}", f"cufftExec{kind.upper()}", accepts, lower,
                     "cuFFT along any axis, without transposing") for kind in ("c2c", "r2c", "c2r"))
