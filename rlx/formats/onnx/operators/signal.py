"""Fourier transforms and windows."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.array.array import Array
from rlx.formats.onnx.operators.elementwise import kind_of
from rlx.formats.onnx.table import Call, Value, X, operator
from rlx.ops import fft
from rlx.ops.movement import windows


def _pairs(z: Array) -> Array:
    """Complex numbers as a last axis of two."""
    out: Array = X.stack([X.real(z), X.imag(z)], axis=-1)
    return out


def _complex(x: Array) -> Array:
    """The numbers of a last axis of one or two."""
    wide = x.dtype.complex
    if x.shape[-1] == 1:
        return X.astype(x[..., 0], wide)  # type: ignore[no-any-return]
    return X.astype(x[..., 0], wide) + 1j * X.astype(x[..., 1], wide)  # type: ignore[no-any-return]


def _sized(x: Array, axis: int, n: int | None) -> Array:
    """Cut or padded with zeros to n elements along an axis."""
    if n is None or n == x.shape[axis]:
        return x
    if n < x.shape[axis]:
        return x[tuple([slice(0, n) if i == axis else slice(None) for i in range(x.ndim)])]
    return X.pad(x, [(0, n - x.shape[axis]) if i == axis else (0, 0) for i in range(x.ndim)])  # type: ignore[no-any-return]


@operator("DFT", static=(1, 2))
def dft(c: Call, x: Array, length: Value | None = None, axis: Value | None = None) -> Value:
    at = c.attr("axis", 1) if c.version < 20 else -2 if axis is None else c.ints(axis, "the axis")[0]
    at = c.axis(at, x.ndim)
    n = None if length is None else c.ints(length, "the length")[0]
    inverse, half = bool(c.attr("inverse", 0)), bool(c.attr("onesided", 0))
    if inverse and half:
        size = n or 2 * (x.shape[at] - 1)
        return fft.to_real(_complex(x), at, size)[..., None] / size
    x = _sized(x, at, n)
    out = fft.to_complex(_complex(x), at, inverse)
    out = out / x.shape[at] if inverse else out
    return _pairs(_sized(out, at, x.shape[at] // 2 + 1) if half else out)


@operator("STFT", static=(1, 3))
def stft(c: Call, x: Array, step: Value, window: Array | None = None, length: Value | None = None) -> Value:
    hop = c.ints(step, "the step")[0]
    n = c.ints(length, "the length")[0] if length is not None else window.shape[0] if window is not None else 0
    if n < 1:
        raise c.refuse("no window and no length", "one of them is needed")
    x = x[..., None] if x.ndim == 2 else x
    frames = X.permute_dims(windows(x, (1,), (n,), (hop,), (1,)), (0, 1, 3, 2))
    if window is not None:
        frames = frames * window[:, None]
    out = fft.to_complex(_complex(frames), 2)
    return _pairs(out[:, :, :n // 2 + 1] if c.attr("onesided", 1) else out)


def _window(c: Call, size: Value, *weights: float) -> Value:
    n = c.ints(size, "the size")[0]
    span = n if c.attr("periodic", 1) else n - 1
    phase = 2 * np.pi * np.arange(n) / span
    out: Any = sum(w * np.cos(k * phase) for k, w in enumerate(weights))
    return out.astype(kind_of(c, c.attr("output_datatype", 1)).numpy)


@operator("HannWindow", static=(0,))
def hann(c: Call, size: Value) -> Value:
    return _window(c, size, 0.5, -0.5)


@operator("HammingWindow", static=(0,))
def hamming(c: Call, size: Value) -> Value:
    """The standard's constants, 25/46 and 21/46."""
    return _window(c, size, 25 / 46, -21 / 46)


@operator("BlackmanWindow", static=(0,))
def blackman(c: Call, size: Value) -> Value:
    return _window(c, size, 0.42, -0.5, 0.08)


@operator("MelWeightMatrix", static=(0, 1, 2, 3, 4))
def mel_weights(c: Call, bins: Value, length: Value, rate: Value, low: Value, high: Value) -> Value:
    """Triangles between frequencies equally spaced on the mel scale ``2595 log10(1 + f / 700)``."""
    count, n, hertz = (c.ints(v, "a size")[0] for v in (bins, length, rate))
    first, last = (float(c.static(v, "a frequency").reshape(())) for v in (low, high))
    ends = 2595 * np.log10(1 + np.array([first, last]) / 700)
    mel = np.arange(count + 2) * (ends[1] - ends[0]) / (count + 2) + ends[0]
    edges = ((n + 1) * 700 * (10 ** (mel / 2595) - 1) // hertz).astype(int)
    out = np.zeros((n // 2 + 1, count))
    for k in range(count):
        a, b, d = edges[k:k + 3]
        out[a:b, k] = (np.arange(a, b) - a) / max(b - a, 1)
        out[b, k] = 1
        out[b:d, k] = (d - np.arange(b, d)) / max(d - b, 1)
    return out.astype(kind_of(c, c.attr("output_datatype", 1)).numpy)


