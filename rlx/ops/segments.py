"""Segmented reduction, the primitive under products of sparse matrices: pieces of a vector, of different lengths."""

from __future__ import annotations

from rlx.array.array import FUNCTIONS, Array
from rlx.array.build import broadcast, cast, emit1
from rlx.array.define import primitive
from rlx.core import dtype as dt
from rlx.core.errors import DTypeError
from rlx.ir.graph import Type
from rlx.ops.scan import scan

_segment = primitive("segment_reduce")


@_segment.infer
def _(values: Type, offsets: Type, *, kind: str) -> Type:
    return Type(values.dtype, (offsets.shape[0] - 1, *values.shape[1:]))


@_segment.grad
def _(ct: Array, out: Array, values: Array, offsets: Array, *, kind: str) -> tuple[Array | None, None]:
    rows = segment_of(offsets, values.shape[0])
    if kind == "prod":
        return ct_rows(ct, rows) * FUNCTIONS["conj"](_others_of_segment(values, offsets, rows)), None
    if kind != "sum":
        hit = cast(FUNCTIONS["equal"](values, ct_rows(out, rows)), values.dtype)
        n = segment_reduce(hit, offsets)
        return hit * ct_rows(ct / FUNCTIONS["where"](FUNCTIONS["equal"](n, 0), 1, n), rows), None
    return ct_rows(ct, rows), None


def _others_of_segment(values: Array, offsets: Array, rows: Array) -> Array:
    """For each element, the product of the others of its segment; right where elements are zero."""
    where, equal = FUNCTIONS["where"], FUNCTIONS["equal"]
    zero = equal(values, 0)
    zeros = ct_rows(segment_reduce(cast(zero, dt.int64), offsets), rows)
    safe = where(zero, 1, values)
    nonzero = ct_rows(segment_reduce(safe, offsets, "prod"), rows)
    alone = where(zero, where(equal(zeros, 1), nonzero, 0), where(equal(zeros, 0), nonzero / safe, 0))
    return cast(alone, values.dtype)


def ct_rows(x: Array, rows: Array) -> Array:
    """Row ``rows[k]`` of ``x`` for each k."""
    return emit1("gather", x, rows)


def segment_of(offsets: Array, n: int) -> Array:
    """The segment each of ``n`` elements lies in, for offsets ``0 = o[0] <= ... <= o[m] = n``."""
    m = offsets.shape[0] - 1
    zero = FUNCTIONS["zeros"]((n + 1,), dtype=dt.int64, device=offsets._value.node.device)
    one = broadcast(FUNCTIONS["ones"]((), dtype=dt.int64, device=offsets._value.node.device), (m,))
    starts = emit1("scatter", zero, one, cast(offsets[:-1], dt.int64), kind="add")
    return scan(starts, "add", 0)[:n] - 1


def segment_reduce(values: Array, offsets: Array, kind: str = "sum") -> Array:
    """``out[i] = reduce(values[offsets[i]:offsets[i+1]])``; ``kind``: sum prod min max; the identity if empty."""
    if not offsets.dtype.is_integer:
        raise DTypeError(f"segment offsets of {offsets.dtype.name}", why="offsets are integers",
                         do="cast them to int32 or int64")
    return emit1("segment_reduce", values, offsets, kind=kind)
