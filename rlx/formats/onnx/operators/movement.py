"""Operators that move elements, and those that make or read shapes. Most work on host data too: shapes are computed
while tracing."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.array.array import Array
from rlx.core import dtype as dt
from rlx.formats.onnx.operators.elementwise import kind_of
from rlx.formats.onnx.table import Call, Value, X, cast, dtype_of, operator, upload


@operator("Shape", host=True)
def shape(c: Call, x: Value) -> Value:
    part = slice(c.attr("start", 0), c.attr("end"))
    return np.array(x.shape[part], np.int64)


@operator("Size", host=True)
def size(c: Call, x: Value) -> Value:
    return np.array(x.size, np.int64)


@operator("Reshape", static=(1,), host=True)
def reshape(c: Call, x: Value, target: Value | None = None) -> Value:
    sizes = list(c.attr("shape") if target is None else c.ints(target, "the shape"))
    if not c.attr("allowzero", 0):
        sizes = [x.shape[i] if n == 0 else n for i, n in enumerate(sizes)]
    return c.x.reshape(x, tuple(sizes))


@operator("Flatten", host=True)
def flatten(c: Call, x: Value) -> Value:
    axis = c.attr("axis", 1)
    axis += x.ndim if axis < 0 else 0
    rows = 1
    for n in x.shape[:axis]:
        rows *= n
    columns = 1
    for n in x.shape[axis:]:
        columns *= n
    return c.x.reshape(x, (rows, columns))


@operator("Transpose", host=True)
def transpose(c: Call, x: Value) -> Value:
    return c.x.permute_dims(x, tuple(c.attr("perm", range(x.ndim)[::-1])))


@operator("Squeeze", static=(1,), host=True)
def squeeze(c: Call, x: Value, axes: Value | None = None) -> Value:
    found = c.axes(axes, x.ndim, tuple([i for i, n in enumerate(x.shape) if n == 1]))
    return c.x.squeeze(x, axis=found) if found else x


@operator("Unsqueeze", static=(1,), host=True)
def unsqueeze(c: Call, x: Value, axes: Value | None = None) -> Value:
    count = len(c.attr("axes", ())) if axes is None else np.size(axes)
    return c.x.expand_dims(x, axis=c.axes(axes, x.ndim + count))


@operator("Concat", host=True)
def concat(c: Call, *xs: Value) -> Value:
    return c.x.concat(xs, axis=c.attr("axis", 1))


@operator("Split", static=(1,), host=True)
def split(c: Call, x: Value, parts: Value | None = None) -> Value:
    axis = c.axis(c.attr("axis", 0), x.ndim)
    sizes = c.attr("split") if parts is None else c.ints(parts, "the sizes of the parts")
    if sizes is None:
        count = c.attr("num_outputs", len(c.node.outputs))
        each = -(-x.shape[axis] // count)
        sizes = [min(each, x.shape[axis] - i * each) for i in range(count)]
    if sum(sizes) != x.shape[axis] or min(sizes) < 0:
        raise c.refuse(f"parts of {list(sizes)} of {x.shape[axis]} elements", "they do not add up")
    ends = np.cumsum(sizes)
    return tuple([_cut(x, axis, int(end - n), int(end)) for n, end in zip(sizes, ends, strict=True)])


def _cut(x: Value, axis: int, start: int, stop: int) -> Value:
    return x[tuple([slice(start, stop) if i == axis else slice(None) for i in range(x.ndim)])]


@operator("Slice", static=(1, 2, 3, 4), host=True)
def slice_(c: Call, x: Value, starts: Value | None = None, ends: Value | None = None, axes: Value | None = None,
           steps: Value | None = None) -> Value:
    first = c.attr("starts") if starts is None else c.ints(starts, "the starts")
    last = c.attr("ends") if ends is None else c.ints(ends, "the ends")
    along = c.axes(axes, x.ndim, tuple(range(len(first))))
    strides = (1,) * len(first) if steps is None else c.ints(steps, "the steps")
    key = [slice(None)] * x.ndim
    for a, i, j, s in zip(along or (), first, last, strides, strict=True):
        n = x.shape[a]
        i, j = (v + n if v < 0 else v for v in (i, j))
        # A backward slice to before the first element has no end that Python would not count from the back.
        key[a] = slice(max(i, 0), max(j, 0), s) if s > 0 else slice(min(i, n - 1), j if j >= 0 else None, s)
        if s < 0 and i < 0:
            key[a] = slice(0, 0)
    return x[tuple(key)]


@operator("Expand", static=(1,), host=True)
def expand(c: Call, x: Value, target: Value) -> Value:
    return c.x.broadcast_to(x, np.broadcast_shapes(x.shape, c.ints(target, "the shape")))


@operator("Tile", static=(1,), host=True)
def tile(c: Call, x: Value, times: Value) -> Value:
    return c.x.tile(x, c.ints(times, "the repeats"))


@operator("ConstantOfShape", static=(0,), host=True)
def constant_of_shape(c: Call, sizes: Value) -> Value:
    value = c.attr("value", np.zeros(1, np.float32)).reshape(())
    target = c.ints(sizes, "the shape")
    if np.prod(target, dtype=object) > 4096 or dtype_of(value) is dt.bfloat16:
        return X.broadcast_to(upload(value, c.run.device), target)
    return np.full(target, value)


@operator("Constant", host=True)
def constant(c: Call) -> Value:
    found = c.attributes
    if "value" in found:
        return found["value"]
    kinds = {"value_float": np.float32, "value_floats": np.float32, "value_int": np.int64, "value_ints": np.int64}
    for name, kind in kinds.items():
        if name in found:
            return np.array(found[name], kind)
    raise c.refuse(f"a constant of {', '.join(found) or 'nothing'}", "rlx has no strings")


@operator("Range", static=(0, 1, 2), host=True)
def range_(c: Call, start: Value, limit: Value, delta: Value) -> Value:
    first, last, step = (c.static(v, "the range").reshape(()) for v in (start, limit, delta))
    count = max(int(np.ceil((last.astype(object) - first.astype(object)) / step.astype(object))), 0)
    if count > 4096:
        return X.astype(X.arange(count, device=c.run.device) * step.item() + first.item(), dtype_of(start))
    return cast((first + np.arange(count) * step).astype(first.dtype), dtype_of(start), c.run.device)


@operator("EyeLike")
def eye_like(c: Call, x: Array) -> Value:
    kind = kind_of(c, c.attr("dtype")) if c.attr("dtype") is not None else x.dtype
    return X.eye(*x.shape, k=c.attr("k", 0), dtype=kind, device=x.device)


@operator("Trilu", static=(1,))
def trilu(c: Call, x: Array, k: Value | None = None) -> Value:
    f = X.triu if c.attr("upper", 1) else X.tril
    return f(x, k=0 if k is None else c.ints(k, "k")[0])


@operator("Pad", static=(1, 3))
def pad(c: Call, x: Array, pads: Value | None = None, value: Value | None = None, axes: Value | None = None) -> Value:
    """Negative widths cut off, before the others add."""
    widths = c.attr("pads", c.attr("paddings")) if pads is None else c.ints(pads, "the widths")
    along = c.axes(axes, x.ndim, tuple(range(x.ndim))) or ()
    low, high = [0] * x.ndim, [0] * x.ndim
    for i, a in enumerate(along):
        low[a], high[a] = widths[i], widths[i + len(along)]
    keep = [slice(max(-a, 0), n - max(-b, 0)) for a, b, n in zip(low, high, x.shape, strict=True)]
    x = x[tuple(keep)]
    width = [(max(a, 0), max(b, 0)) for a, b in zip(low, high, strict=True)]
    mode = c.attr("mode", "constant")
    if mode != "constant":
        return X.pad(x, width, mode=mode)
    fill = c.attr("value", 0.0) if value is None else X.reshape(X.astype(value, x.dtype), ())
    return X.pad(x, width, constant_values=fill)


@operator("DepthToSpace")
def depth_to_space(c: Call, x: Array) -> Value:
    n, channels, h, w = x.shape
    b = c.attr("blocksize")
    if c.attr("mode", "DCR") == "DCR":
        x = X.permute_dims(X.reshape(x, (n, b, b, channels // b ** 2, h, w)), (0, 3, 4, 1, 5, 2))
    else:
        x = X.permute_dims(X.reshape(x, (n, channels // b ** 2, b, b, h, w)), (0, 1, 4, 2, 5, 3))
    return X.reshape(x, (n, channels // b ** 2, h * b, w * b))


@operator("SpaceToDepth")
def space_to_depth(c: Call, x: Array) -> Value:
    n, channels, h, w = x.shape
    b = c.attr("blocksize")
    order = (0, 3, 5, 1, 2, 4) if c.attr("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
    x = X.permute_dims(X.reshape(x, (n, channels, h // b, b, w // b, b)), order)
    return X.reshape(x, (n, channels * b * b, h // b, w // b))


@operator("ReverseSequence")
def reverse_sequence(c: Call, x: Array, lengths: Array) -> Value:
    time, batch = c.attr("time_axis", 0), c.attr("batch_axis", 1)
    return reversed_by(x, lengths, time, batch)


def reversed_by(x: Array, lengths: Array, time: int, batch: int) -> Array:
    """The first ``lengths[b]`` elements along ``time`` in reverse, the others as they are."""
    def along(v: Any, axis: int) -> Any:
        return X.reshape(v, tuple([-1 if i == axis else 1 for i in range(x.ndim)]))
    t = along(X.arange(x.shape[time], device=x.device), time)
    n = along(X.astype(lengths, dt.int64), batch)
    places = X.broadcast_to(X.where(t < n, n - 1 - t, t), x.shape)
    out: Array = X.take_along_axis(x, places, axis=time)
    return out
