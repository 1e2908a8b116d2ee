"""Operators on integers that stand for real numbers: ``real = (integer - zero) * scale``."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.array.array import Array
from rlx.core import dtype as dt
from rlx.formats.onnx.operators.conv import settings
from rlx.formats.onnx.operators.elementwise import kind_of
from rlx.formats.onnx.table import Call, Value, X, operator
from rlx.ops.conv import conv as convolve


def _along(c: Call, v: Array, x: Array) -> Array:
    """Scales or zero points as they meet x: one, one for each index of an axis, or one for each block along it."""
    if v.size == 1:
        return X.reshape(v, ())  # type: ignore[no-any-return]
    axis = c.axis(c.attr("axis", 1), x.ndim)
    block = c.attr("block_size", 0)
    if v.ndim == 1 and not block:
        return X.reshape(v, tuple([-1 if i == axis else 1 for i in range(x.ndim)]))  # type: ignore[no-any-return]
    wide = X.repeat(v, block, axis=axis)
    return wide[tuple([slice(0, n) for n in x.shape])]  # type: ignore[no-any-return]


@operator("DequantizeLinear")
@operator("DequantizeLinear", domain="com.microsoft")
def dequantize(c: Call, x: Array, scale: Array, zero: Array | None = None) -> Value:
    wide = X.astype(x, dt.int32)
    if zero is not None:
        wide = wide - _along(c, X.astype(zero, dt.int32), x)
    return X.astype(X.astype(wide, dt.float32) * _along(c, X.astype(scale, dt.float32), x), scale.dtype)


@operator("QuantizeLinear")
@operator("QuantizeLinear", domain="com.microsoft")
def quantize(c: Call, x: Array, scale: Array, zero: Array | None = None) -> Value:
    if zero is not None:
        kind = zero.dtype
    else:
        kind = kind_of(c, c.attr("output_dtype")) if c.attr("output_dtype") else dt.uint8
    if not kind.is_integer:
        raise c.refuse(f"quantization to {kind.name}", "only integers are supported")
    shift = None if zero is None else _along(c, X.astype(zero, dt.float32), x)
    return _rounded(X.astype(x, dt.float32) / _along(c, X.astype(scale, dt.float32), x), shift, kind)


def _rounded(x: Array, zero: Array | None, kind: dt.DType) -> Array:
    """The nearest integers (halves to even) plus a zero point, within the type's range."""
    info = np.iinfo(kind.numpy)
    y = X.rint(x) if zero is None else X.rint(x) + zero
    return X.astype(X.clip(y, int(info.min), int(info.max)), kind)  # type: ignore[no-any-return]


@operator("DynamicQuantizeLinear")
def dynamic_quantize(c: Call, x: Array) -> Value:
    """To 0 to 255, with a scale and a zero point such that 0 is exact."""
    low, high = X.minimum(x.min(), 0), X.maximum(x.max(), 0)
    scale = (high - low) / 255
    zero = X.clip(X.rint(-low / scale), 0, 255)
    return _rounded(x / scale, zero, dt.uint8), scale, X.astype(zero, dt.uint8)


def _integer(x: Array, zero: Array | None, rows: bool | None = None) -> Array:
    """Integers less their zero point: of each row of the first factor, of each column of the second."""
    wide = X.astype(x, dt.int32)
    if zero is None:
        return wide  # type: ignore[no-any-return]
    shift = X.astype(zero, dt.int32)
    return wide - (X.expand_dims(shift, axis=-1) if rows and shift.ndim == 1 and shift.size > 1 else shift)  # type: ignore[no-any-return]


@operator("MatMulInteger")
def matmul_integer(c: Call, a: Array, b: Array, a_zero: Array | None = None, b_zero: Array | None = None) -> Value:
    return X.matmul(_integer(a, a_zero, rows=True), _integer(b, b_zero))


@operator("QLinearMatMul")
def qlinear_matmul(c: Call, a: Array, a_scale: Array, a_zero: Array, b: Array, b_scale: Array, b_zero: Array,
                   y_scale: Array, y_zero: Array) -> Value:
    total = X.matmul(_integer(a, a_zero, rows=True), _integer(b, b_zero))
    factor = X.astype(a_scale, dt.float32) * X.astype(b_scale, dt.float32) / X.astype(y_scale, dt.float32)
    return _rounded(X.astype(total, dt.float32) * factor, X.astype(y_zero, dt.float32), y_zero.dtype)


@operator("QLinearConv")
def qlinear_conv(c: Call, x: Array, x_scale: Array, x_zero: Array, w: Array, w_scale: Array, w_zero: Array,
                 y_scale: Array, y_zero: Array, bias: Array | None = None) -> Value:
    def filters(v: Any) -> Any:
        return X.reshape(v, (-1, *(1,) * (w.ndim - 1))) if v.size > 1 else X.reshape(v, ())
    weight = X.astype(w, dt.int32) - filters(X.astype(w_zero, dt.int32))
    total = convolve(_integer(x, x_zero), weight, groups=c.attr("group", 1), **settings(c, x, w.shape[2:]))
    shape = (-1, *(1,) * (x.ndim - 2))
    if bias is not None:
        total = total + X.reshape(bias, shape)
    scale = X.reshape(w_scale, shape) if w_scale.size > 1 else X.reshape(w_scale, ())
    real = X.astype(total, dt.float32) * (x_scale * scale / y_scale)
    return _rounded(real, X.astype(y_zero, dt.float32), y_zero.dtype)
