"""Operators that work element by element."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rlx.array.array import Array
from rlx.core import dtype as dt
from rlx.formats.onnx.read import DTYPES
from rlx.formats.onnx.table import TABLE, Call, Operator, Value, X, cast, dtype_of, is_float, operator

#: Operators that are one function of rlx, most of which NumPy has under the same name.
UNARY = {
    "Abs": "abs", "Neg": "negative", "Ceil": "ceil", "Floor": "floor", "Sqrt": "sqrt", "Exp": "exp", "Log": "log",
    "Sin": "sin", "Cos": "cos", "Tan": "tan", "Asin": "asin", "Acos": "acos", "Atan": "atan", "Sinh": "sinh",
    "Cosh": "cosh", "Tanh": "tanh", "Asinh": "asinh", "Acosh": "acosh", "Atanh": "atanh", "Sign": "sign",
    "IsNaN": "isnan", "Not": "logical_not", "BitwiseNot": "bitwise_invert", "Reciprocal": "reciprocal",
}
BINARY = {
    "Add": "add", "Sub": "subtract", "Mul": "multiply", "Equal": "equal", "Less": "less", "Greater": "greater",
    "LessOrEqual": "less_equal", "GreaterOrEqual": "greater_equal", "And": "logical_and", "Or": "logical_or",
    "Xor": "logical_xor", "BitwiseAnd": "bitwise_and", "BitwiseOr": "bitwise_or", "BitwiseXor": "bitwise_xor",
}


def _named(name: str) -> Any:
    return lambda c, *xs: getattr(c.x, name)(*xs)


def _binary(name: str) -> Any:
    def f(c: Call, a: Value, b: Value) -> Value:
        # Before version 7 the second input was placed along the first's axes by an attribute.
        if c.attr("broadcast") and b.ndim:
            axis = c.attr("axis", a.ndim - b.ndim)
            b = c.x.reshape(b, (*b.shape, *(1,) * (a.ndim - axis - b.ndim)))
        return getattr(c.x, name)(a, b)
    return f


TABLE.update({("", op): Operator(_named(name), host=True) for op, name in UNARY.items()})
TABLE.update({("", op): Operator(_binary(name), host=True) for op, name in BINARY.items()})


@operator("Erf")
def erf(c: Call, x: Array) -> Value:
    return X.erf(x)


@operator("Round", host=True)
def round_(c: Call, x: Value) -> Value:
    return c.x.round(x)


@operator("Identity", host=True)
def identity(c: Call, x: Value) -> Value:
    return x


@operator("Div", host=True)
def div(c: Call, a: Value, b: Value) -> Value:
    """Integers are divided towards 0."""
    if is_float(a):
        return _binary("divide")(c, a, b)
    quotient = c.x.floor_divide(a, b)
    if dtype_of(a).kind == "u":
        return quotient
    up = (quotient * b != a) & ((a < 0) != (b < 0))
    return quotient + cast(up, dtype_of(quotient))


@operator("Mod", host=True)
def mod(c: Call, a: Value, b: Value) -> Value:
    return c.x.fmod(a, b) if c.attr("fmod", 0) else c.x.remainder(a, b)


@operator("Pow", host=True)
def power(c: Call, a: Value, b: Value) -> Value:
    """The result has the base's dtype; integers to a floating power are rounded towards 0."""
    if is_float(b) and not is_float(a):
        return cast(c.x.power(cast(a, dt.float64), cast(b, dt.float64)), dtype_of(a))
    if is_float(a):
        return c.x.power(a, cast(b, dtype_of(a)))
    return cast(c.x.power(a, b), dtype_of(a))


@operator("BitShift", host=True)
def bit_shift(c: Call, a: Value, b: Value) -> Value:
    """Bits shifted out of the type are lost."""
    return c.x.left_shift(a, b) if c.attr("direction") == "LEFT" else c.x.right_shift(a, b)


@operator("IsInf", host=True)
def is_inf(c: Call, x: Value) -> Value:
    found = c.x.isinf(x)
    if not c.attr("detect_negative", 1):
        found = found & (x > 0)
    return found if c.attr("detect_positive", 1) else found & (x < 0)


@operator("Sum", host=True)
def sum_(c: Call, *xs: Value) -> Value:
    return _folded(c, "add", xs)


@operator("Max", host=True)
def max_(c: Call, *xs: Value) -> Value:
    return _folded(c, "maximum", xs)


@operator("Min", host=True)
def min_(c: Call, *xs: Value) -> Value:
    return _folded(c, "minimum", xs)


@operator("Mean", host=True)
def mean(c: Call, *xs: Value) -> Value:
    return _folded(c, "add", xs) / len(xs)


def _folded(c: Call, name: str, xs: tuple[Value, ...]) -> Value:
    total = xs[0]
    for x in xs[1:]:
        total = getattr(c.x, name)(total, x)
    return total


@operator("Where", host=True)
def where(c: Call, condition: Value, a: Value, b: Value) -> Value:
    return c.x.where(condition, a, b)


@operator("Clip", host=True)
def clip(c: Call, x: Value, low: Value | None = None, high: Value | None = None) -> Value:
    """The upper bound wins where the bounds cross."""
    if c.version < 11:
        low, high = (None if v is None else np.asarray(v, np.float32) for v in (c.attr("min"), c.attr("max")))
    if low is not None:
        x = c.x.maximum(x, cast(low, dtype_of(x)))
    return x if high is None else c.x.minimum(x, cast(high, dtype_of(x)))


@operator("Relu")
def relu(c: Call, x: Array) -> Value:
    return X.maximum(x, 0)


@operator("Sigmoid")
def sigmoid(c: Call, x: Array) -> Value:
    """As a tangent, which does not overflow."""
    return 0.5 * X.tanh(0.5 * x) + 0.5


@operator("LeakyRelu")
def leaky_relu(c: Call, x: Array) -> Value:
    return X.where(x < 0, x * c.attr("alpha", 0.01), x)


@operator("PRelu")
def prelu(c: Call, x: Array, slope: Array) -> Value:
    if c.version < 9 and 1 < slope.size < x.size and slope.ndim == 1:
        slope = X.reshape(slope, (-1, *(1,) * (x.ndim - 2)))
    return X.where(x < 0, x * slope, x)


@operator("Elu")
def elu(c: Call, x: Array) -> Value:
    # The branch not taken stays finite, or its gradient is 0 * inf.
    return X.where(x < 0, c.attr("alpha", 1.0) * X.expm1(X.minimum(x, 0)), x)


@operator("Selu")
def selu(c: Call, x: Array) -> Value:
    """The defaults are the fixed point of Klambauer et al., arXiv 1706.02515, as the standard spells them."""
    alpha, gamma = c.attr("alpha", 1.67326319217681884765625), c.attr("gamma", 1.05070102214813232421875)
    return gamma * X.where(x > 0, x, alpha * X.expm1(X.minimum(x, 0)))


@operator("Celu")
def celu(c: Call, x: Array) -> Value:
    alpha = c.attr("alpha", 1.0)
    return X.maximum(x, 0) + X.minimum(alpha * X.expm1(X.minimum(x, 0) / alpha), 0)


@operator("HardSigmoid")
def hard_sigmoid(c: Call, x: Array) -> Value:
    return X.clip(c.attr("alpha", 0.2) * x + c.attr("beta", 0.5), 0, 1)


@operator("HardSwish")
def hard_swish(c: Call, x: Array) -> Value:
    return x * X.clip(x / 6 + 0.5, 0, 1)


@operator("Softplus")
def softplus(c: Call, x: Array) -> Value:
    return X.logaddexp(x, X.zeros_like(x))


@operator("Softsign")
def softsign(c: Call, x: Array) -> Value:
    return x / (1 + X.abs(x))


@operator("Mish")
def mish(c: Call, x: Array) -> Value:
    return x * X.tanh(X.logaddexp(x, X.zeros_like(x)))


@operator("ThresholdedRelu")
def thresholded_relu(c: Call, x: Array) -> Value:
    return X.where(x > c.attr("alpha", 1.0), x, 0)


@operator("Shrink")
def shrink(c: Call, x: Array) -> Value:
    bias, edge = c.attr("bias", 0.0), c.attr("lambd", 0.5)
    out = X.where(x < -edge, x + bias, X.where(x > edge, x - bias, 0))
    return cast(out, x.dtype)


@operator("Gelu")
@operator("Gelu", domain="com.microsoft")
def gelu(c: Call, x: Array) -> Value:
    """The constant of the approximation is from Hendrycks and Gimpel, arXiv 1606.08415, section 2."""
    if c.attr("approximate", "none") == "tanh":
        return 0.5 * x * (1 + X.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x))))
    return 0.5 * x * (1 + X.erf(x * math.sqrt(0.5)))


@operator("Cast", host=True)
def cast_(c: Call, x: Value) -> Value:
    return _converted(c, x, kind_of(c, c.attr("to")))


@operator("CastLike", static=(), host=True)
def cast_like(c: Call, x: Value, like: Value) -> Value:
    return _converted(c, x, dtype_of(like))


def _converted(c: Call, x: Value, kind: dt.DType) -> Value:
    if kind is dt.bool_:
        return x != 0 if dtype_of(x) is not dt.bool_ else x
    with np.errstate(all="ignore"):
        return cast(x, kind, c.run.device)


def kind_of(c: Call, number: int) -> dt.DType:
    """The dtype of a number in onnx.proto; those of fewer than 8 bits cannot be computed with."""
    # 21, 22, 25 and 26 are integers of 4 and 2 bits: constants of them are widened, but a cast would have to wrap.
    if number not in DTYPES or number in (21, 22, 25, 26):
        raise c.refuse(f"type number {number}", "rlx has no such dtype", "export the model with another type")
    return DTYPES[number]


@operator("BitCast")
def bit_cast(c: Call, x: Array) -> Value:
    return X.bitcast(x, kind_of(c, c.attr("to")))


@operator("Dropout")
def dropout(c: Call, x: Array, ratio: Value | None = None, training: Value | None = None) -> Value:
    """The identity: models are run, not trained, by what their files say. Train by rlx.nn's layers."""
    if training is not None and bool(c.static(training, "training_mode")):
        if ratio is None or float(c.static(ratio, "ratio")) != 0:
            raise c.refuse("dropout in training mode", "random numbers are not the standard's")
    return x, X.ones(x.shape, dtype=dt.bool_, device=x.device)
