"""Claim: long lines are sorted by Thrust, through CuPy: stable, NaN last."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlx.core.dtype import bfloat16
from rlx.device.cuda import driver
from rlx.device.cuda.native import _matrices as M
from rlx.device.cuda.program import Library
from rlx.ir.claim import Call, Claim
from rlx.ir.loop import Native

#: Length of a line from which it is faster than generated merges.
SMALL = 1 << 16


def accepts(call: Call) -> str | None:
    """None for long lines of keys that Thrust compares; else the reason."""
    dtype, shape = call.inputs[0]
    if dtype == bfloat16 or dtype.is_complex or any(d == bfloat16 for d, _ in call.inputs):
        return f"needs integers, or floats that NumPy has, got {dtype.name}"
    n = shape[call.attrs["axis"]]
    return f"is slower than generated code at length {n}" if n < SMALL or 0 in shape else None


def lower(native: Native) -> Library:
    """(keys, *payloads), all in the order of the keys."""
    attrs = dict(native.attrs)
    axis, down = int(attrs["axis"]), bool(attrs["descending"])
    count = native.inputs

    def work(*given: Any) -> Sequence[Any]:
        cp = driver.cupy()
        if count == 1 and not down:
            return [cp.sort(given[0], axis=axis)]
        lines = [cp.ascontiguousarray(cp.moveaxis(x, axis, -1)) for x in given[:count]]
        order = cp.argsort(_key(lines[0], down), axis=-1, kind="stable")
        moved = [x[order] if x.ndim == 1 else cp.take_along_axis(x, order, axis=-1) for x in lines]
        return [cp.moveaxis(x, -1, axis) for x in moved]

    return M.library(native, work)


def _key(x: Any, down: bool) -> Any:
    """What ascends where x descends: NaN stays last, and equal keys stay equal."""
    if not down:
        return x
    return -x if x.dtype.kind == "f" else ~x


CLAIMS = (Claim("thrust_sort", "sort", "stable_sort_by_key", accepts, lower, "Thrust stable sort of long lines"),)
