"""Primitives in NumPy: one plain function each, written for clarity."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.special

from rlx.core import dtype as dt

Arr = np.ndarray[Any, Any]


def _floordiv(x: Arr, y: Arr) -> Arr:
    if x.dtype.kind == "f":
        return np.floor_divide(x, y)
    safe = np.where(y == 0, 1, y).astype(y.dtype)
    return np.where(y == 0, 0, x // safe).astype(x.dtype)


def _rem(x: Arr, y: Arr) -> Arr:
    if x.dtype.kind == "f":
        return np.remainder(x, y)
    safe = np.where(y == 0, 1, y).astype(y.dtype)
    return np.where(y == 0, 0, x % safe).astype(x.dtype)


def _int_pow(x: Arr, y: Arr) -> Arr:
    if x.dtype.kind not in "iu":
        return np.power(x, y)
    out, base, n = np.ones_like(x), x.copy(), np.where(y < 0, 0, y).astype(np.uint64)
    while n.any():
        out = np.where(n & np.uint64(1), out * base, out)
        base, n = base * base, n >> np.uint64(1)
    inverse = np.where(x == 1, 1, np.where(x == -1, np.where(y % 2 == 0, 1, -1), 0)) if x.dtype.kind == "i" else x
    return np.where(y < 0, inverse, out).astype(x.dtype)


def _shift(left: bool) -> Callable[[Arr, Arr], Arr]:
    def f(x: Arr, y: Arr) -> Arr:
        bits = x.dtype.itemsize * 8
        over = (y >= bits) | (y < 0)
        safe = np.where(over, 0, y).astype(x.dtype)
        fill = np.zeros_like(x) if left else np.where(x < 0, -1, 0).astype(x.dtype)
        return np.where(over, fill, np.left_shift(x, safe) if left else np.right_shift(x, safe)).astype(x.dtype)
    return f


def _mulhi(x: Arr, y: Arr) -> Arr:
    high: Arr = ((x.astype(object) * y.astype(object)) >> (x.dtype.itemsize * 8)).astype(x.dtype)
    return high


def _clz(x: Arr) -> Arr:
    bits = x.dtype.itemsize * 8
    unsigned = x.astype(np.dtype(f"u{x.dtype.itemsize}")).astype(np.uint64)
    out = np.full(x.shape, bits, np.int64)
    for b in range(bits):
        out = np.where(unsigned >> np.uint64(b) & np.uint64(1), bits - 1 - b, out)
    return out.astype(x.dtype)


def _sign(x: Arr) -> Arr:
    return np.sign(x)


def _fma(x: Arr, y: Arr, z: Arr) -> Arr:
    wide = np.longdouble if x.dtype == np.float64 else np.float64
    out: Arr = (x.astype(wide) * y.astype(wide) + z.astype(wide)).astype(x.dtype)
    return out


def _complex(x: Arr, y: Arr) -> Arr:
    """Part by part: ``x + 1j * y`` would make NaN of an infinite ``y``."""
    out = np.empty(x.shape, np.complex64 if x.dtype == np.float32 else np.complex128)
    out.real, out.imag = x, y
    return out


def _lgamma(x: Arr) -> Arr:
    """C's limit at minus infinity (SciPy gives minus infinity)."""
    return np.where(np.isinf(x), np.inf, scipy.special.gammaln(x)).astype(x.dtype)


def _max(x: Arr, y: Arr) -> Arr:
    """NumPy's, but of two zeros always the positive one."""
    return np.where((x == 0) & (y == 0), x + y, np.maximum(x, y)) if x.dtype.kind == "f" else np.maximum(x, y)


def _min(x: Arr, y: Arr) -> Arr:
    """NumPy's, but of two zeros always the negative one."""
    return np.where((x == 0) & (y == 0), -(-x - y), np.minimum(x, y)) if x.dtype.kind == "f" else np.minimum(x, y)


def _bit_not(x: Arr) -> Arr:
    return np.invert(x)


POINTWISE: dict[str, Callable[..., Any]] = {
    "neg": np.negative, "abs": np.abs, "sign": _sign, "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc,
    "round": np.rint, "sqrt": np.sqrt, "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide,
    "floordiv": _floordiv, "rem": _rem, "pow": _int_pow, "min": _min, "max": _max, "fma": _fma,
    "copysign": np.copysign, "nextafter": np.nextafter, "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1,
    "log": np.log, "log2": np.log2, "log10": np.log10, "log1p": np.log1p, "sin": np.sin, "cos": np.cos, "tan": np.tan,
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh,
    "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh, "erf": scipy.special.erf, "erfc": scipy.special.erfc,
    "erfinv": scipy.special.erfinv, "lgamma": _lgamma, "digamma": scipy.special.digamma,
    "atan2": np.arctan2, "hypot": np.hypot, "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal,
    "gt": np.greater, "ge": np.greater_equal, "isnan": np.isnan, "and": np.bitwise_and, "or": np.bitwise_or,
    "xor": np.bitwise_xor, "not": _bit_not, "shl": _shift(True), "shr": _shift(False),
    "popcount": lambda x: np.bitwise_count(x.view(f"u{x.dtype.itemsize}")), "clz": _clz, "mulhi": _mulhi,
    "select": np.where, "complex": _complex,
    "real": np.real, "imag": np.imag, "conj": np.conj,
}
REDUCE: dict[str, Callable[..., Any]] = {
    "sum": np.sum, "prod": np.prod, "min": np.min, "max": np.max, "and": np.bitwise_and.reduce,
    "or": np.bitwise_or.reduce, "xor": np.bitwise_xor.reduce}
ACCUMULATE: dict[str, np.ufunc] = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}


def cast(x: Arr, dtype: dt.DType) -> Arr:
    """Float to integer truncates and saturates, NaN gives 0; the rest is NumPy's cast."""
    target: np.dtype[Any] = dtype.numpy if dtype is not dt.bfloat16 else np.dtype(np.float32)
    if x.dtype.kind == "f" and dtype.is_integer:
        info = np.iinfo(target)
        with np.errstate(invalid="ignore"):
            out = np.trunc(np.nan_to_num(x.astype(np.float64), nan=0.0, posinf=np.inf, neginf=-np.inf))
            low, high = out < info.min, out >= float(info.max) + 1 if info.bits == 64 else out > info.max
            body = np.where(low | high, 0, out)
            body = body.astype(target)
        return np.where(low, info.min, np.where(high, info.max, body)).astype(target)
    if x.dtype.kind == "c" and dtype.kind != "c" and dtype.kind != "b":
        x = x.real
    return x.astype(target)


def gather(x: Arr, *index: Arr) -> Arr:
    """``x[i0, ..., :]`` with indices clamped to the axes."""
    if any(d == 0 for d in x.shape[:len(index)]):
        return np.zeros((*index[0].shape, *x.shape[len(index):]), x.dtype)
    return x[tuple(np.clip(i.astype(np.int64), 0, d - 1) for i, d in zip(index, x.shape, strict=False))]


def scatter(x: Arr, update: Arr, *index: Arr, kind: str) -> Arr:
    """Updates one after another in row-major order; indices out of bounds are dropped."""
    out = x.copy()
    ok = np.ones(index[0].shape, bool)
    for i, d in zip(index, x.shape, strict=False):
        ok &= (i >= 0) & (i < d)
    where = tuple(i[ok].astype(np.int64) for i in index)
    values = np.broadcast_to(update, (*index[0].shape, *x.shape[len(index):]))[ok]
    if kind == "set":
        for k in range(len(values)):
            out[tuple(w[k] for w in where)] = values[k]
    else:
        ACCUMULATE[kind].at(out, where, values)
    return out


def segment_reduce(values: Arr, offsets: Arr, kind: str) -> Arr:
    """One NumPy reduction for each segment."""
    n = len(offsets) - 1
    start = {"sum": 0, "prod": 1}
    out = np.zeros((n, *values.shape[1:]), values.dtype)
    for i in range(n):
        part = values[int(offsets[i]):int(offsets[i + 1])]
        if kind in start or len(part):
            out[i] = REDUCE[kind](part, axis=0)
        else:
            big = np.inf if values.dtype.kind == "f" else np.iinfo(values.dtype).max
            small = -np.inf if values.dtype.kind == "f" else np.iinfo(values.dtype).min
            out[i] = big if kind == "min" else small
    return out


def dot(x: Arr, y: Arr, contract: Any, batch: Any) -> Arr:
    """Einstein summation over the contracted and batch axes."""
    letters = iter("abcdefghijklmnopqrstuvwxyz")
    xs, ys = [""] * x.ndim, [""] * y.ndim
    for i, j in (*zip(*batch, strict=True), *zip(*contract, strict=True)):
        xs[i] = ys[j] = next(letters)
    xs = [c or next(letters) for c in xs]
    ys = [c or next(letters) for c in ys]
    out = [xs[i] for i in batch[0]]
    out += [c for i, c in enumerate(xs) if i not in batch[0] and i not in contract[0]]
    out += [c for j, c in enumerate(ys) if j not in batch[1] and j not in contract[1]]
    product: Arr = np.einsum(f"{''.join(xs)},{''.join(ys)}->{''.join(out)}", x, y)
    return product


def sort(keys: Arr, *payload: Arr, axis: int, descending: bool) -> tuple[Arr, ...]:
    """Stable, NaN last in both directions."""
    order = np.argsort(keys, axis=axis, kind="stable")
    if descending:
        # A stable downward order is the reverse of the stable upward order of the reversed line, NaN put last again.
        n = keys.shape[axis]
        order = n - 1 - np.flip(np.argsort(np.flip(keys, axis), axis=axis, kind="stable"), axis)
        if keys.dtype.kind == "f":
            nan = np.isnan(np.take_along_axis(keys, order, axis=axis))
            order = np.take_along_axis(order, np.argsort(nan, axis=axis, kind="stable"), axis=axis)
    return tuple(np.take_along_axis(a, order, axis=axis) for a in (keys, *payload))


def window(x: Arr, axes: Any, size: Any, step: Any, dilation: Any) -> Arr:
    """Strided sliding windows, the window's axes last."""
    reach = tuple((k - 1) * d + 1 for k, d in zip(size, dilation, strict=True))
    views = np.lib.stride_tricks.sliding_window_view(x, reach, axis=axes)
    cut = [slice(None)] * views.ndim
    for a, s in zip(axes, step, strict=True):
        cut[a] = slice(None, None, s)
    for k, d in enumerate(dilation):
        cut[x.ndim + k] = slice(None, None, d)
    return views[tuple(cut)]
