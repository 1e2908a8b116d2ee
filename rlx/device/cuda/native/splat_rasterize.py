"""Claims: compositing of splats and its backward pass, a tile a workgroup; the sums have one order, without atomics."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from rlx.device._splats import accepts, frame
from rlx.device.cuda import driver, splats
from rlx.device.cuda.kernel import Kernel
from rlx.device.cuda.program import Library
from rlx.ir.claim import Claim
from rlx.ir.loop import Native


def lower(native: Native) -> Library:
    """(means, conics, features, opacities, ids, offsets) -> (image, alpha)."""
    f = frame(dict(native.attrs), native.types[2][1])
    kernel = Kernel(splats.source(f), "forward")
    return Library(lambda stream, addresses: kernel(stream, f.tiles, f.lanes, addresses), records=True)


def lower_places(native: Native) -> Library:
    """Also d_image and what is behind -> gradients by place; zeros where no pixel reaches."""
    f = frame(dict(native.attrs), native.types[2][1])
    kernel = Kernel(splats.source(f), "backward")
    words = prod(native.types[8][1])

    def run(stream: int, addresses: Sequence[int]) -> None:
        driver.told("fill with zeros", driver.api().cuMemsetD32Async(addresses[8], 0, words, stream))
        kernel(stream, f.tiles, f.lanes, addresses)

    return Library(run, records=True)


CLAIMS = (
    Claim("splat_rasterize", "splat.rasterize", "forward", accepts, lower,
          "a tile a workgroup, Gaussians in shared memory, early exit"),
    Claim("splat_places", "splat.rasterize_places", "backward", accepts, lower_places,
          "a tile a workgroup, sums by warp, without atomics"),
)
