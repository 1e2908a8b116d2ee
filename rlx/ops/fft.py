"""Discrete Fourier transforms along one axis: complex to complex, real to complex, complex to real.

Inside, a complex array is a real one with an axis 0 of two parts, and the transformed axis comes next, so that each
radix is one real matrix product (Stockham's order: no bit reversal). Every transform takes its tables of roots of
unity as operands (those of a long one's radices may be left out), and does not scale its result.
"""

from __future__ import annotations

from collections.abc import Callable
from math import pi
from typing import Any

import numpy as np

from rlx.array.array import FUNCTIONS, Array
from rlx.array.build import cast, constant
from rlx.array.define import OpFunction, op_named
from rlx.array.hooks import default_float
from rlx.core import dtype as dt
from rlx.ir.op import Sample
from rlx.ops.fft_plan import LONGEST_GIVEN, plan, tables
from rlx.ops.linear import dot, matmul
from rlx.ops.movement import concat, flip, iota, pad_with, permute_dims, reshape, slice_of, stack


def front(x: Array, axis: int) -> Array:
    """The axis first and all others flattened behind it: ``(n, others)``."""
    y = permute_dims(x, (axis, *[i for i in range(x.ndim) if i != axis]))
    others = 1
    for size in y.shape[1:]:
        others = others * size
    return reshape(y, (x.shape[axis], others))


def back(y: Array, axis: int, shape: tuple[Any, ...]) -> Array:
    """Inverse of :func:`front` for an array that had this shape, with the axis as long as it is now."""
    others = [n for i, n in enumerate(shape) if i != axis]
    y = reshape(y, (y.shape[0], *others))
    order = list(range(1, y.ndim))
    order.insert(axis, 0)
    return permute_dims(y, order)


def parts(x: Array, inverse: bool = False) -> Array:
    """Real and imaginary parts along a new axis 0; exchanged for an inverse transform, which that makes it."""
    re, im = FUNCTIONS["real"](x), FUNCTIONS["imag"](x)
    return stack([im, re] if inverse else [re, im])


def joined(y: Array, inverse: bool = False) -> Array:
    """Inverse of :func:`parts`."""
    re, im = (_part(y, 1), _part(y, 0)) if inverse else (_part(y, 0), _part(y, 1))
    out: Array = FUNCTIONS["_complex"](re, im)
    return out


def _part(y: Array, which: int) -> Array:
    rest = y.shape[1:]
    return reshape(slice_of(y, (which, *[0] * len(rest)), (1, *rest)), rest)


def _some(y: Array, start: int, count: int) -> Array:
    """``count`` elements along axis 1."""
    return slice_of(y, (0, start, 0), (y.shape[0], count, y.shape[2]))


def _signs(y: Array, first: int) -> Array:
    """``(first, -first)`` for the two parts of ``y``."""
    i = cast(iota(2, dt.int32, y._value.node.device), y.dtype)
    return reshape((1 - 2 * i) * first, (2, *[1] * (y.ndim - 1)))


def turn(y: Array, table: Array) -> Array:
    """The product of complex numbers in parts: ``y`` (2, ..., others) times ``table`` (2, ...)."""
    c, s = (reshape(_part(table, k), (1, *table.shape[1:], 1)) for k in range(2))
    out: Array = y * c + flip(y, axis=0) * (s * _signs(y, -1))
    return out


def _roots(k: Array, n: int, dtype: dt.DType) -> Array:
    """:func:`~rlx.ops.fft_plan.roots` in a program."""
    where, cos, sin = FUNCTIONS["where"], FUNCTIONS["cos"], FUNCTIONS["sin"]
    k = k % n
    below = 2 * k > n
    t = 2 * where(below, n - k, k)
    left = 2 * t > n
    u = 2 * where(left, n - t, t)
    steep = 2 * u > n
    angle = cast(where(steep, n - u, u), dt.float64) * (pi / (2 * n))
    c, s = cos(angle), sin(angle)
    c, s = where(steep, s, c), where(steep, c, s)
    return cast(stack([where(left, -c, c), where(below, s, -s)]), dtype)


def _twiddles(y: Array, n: int) -> list[Array]:
    """What :func:`~rlx.ops.fft_plan.tables` holds for the radices of ``n``."""
    out = []
    for r in plan(n).radices:
        m, at = n // r, y._value.node.device
        i, k = (reshape(iota(size, dt.int64, at), shape) for size, shape in ((r, (r, 1)), (r, (1, r))))
        c, s = (_part(_roots(i * k, r, y.dtype), p) for p in range(2))
        out.append(concat([concat([c, -s], axis=1), concat([s, c], axis=1)], axis=0))
        if m > 1:
            out.append(_roots(reshape(iota(m, dt.int64, at), (m, 1)) * k, n, y.dtype))
        n = m
    return out


def _factored(y: Array, n: int, given: list[Array]) -> Array:
    """The transform of parts (2, n, others), or of (1, n, others) real values, by the radices of ``n``."""
    given = given or _twiddles(y, n)
    others, done, rest = y.shape[2], 1, n
    radices = plan(n).radices
    if not radices and y.shape[0] == 1:
        return pad_with(y, (0, 0, 0), (1, 0, 0), 0)
    for r in radices:
        m, rows = rest // r, y.shape[0] * r
        matrix = slice_of(given.pop(0), (0, 0), (2 * r, rows))
        y = reshape(y, (rows, m * done * others))
        if y.shape[1] == m > 1:  # one transform alone: the product in this order leaves short runs, not single values
            y = permute_dims(reshape(dot(y, matrix, ((0,), (1,))), (m, 2, r, 1)), (1, 0, 2, 3))
        else:
            y = permute_dims(reshape(matmul(matrix, y), (2, r, m, done * others)), (0, 2, 1, 3))
        if m > 1:
            y = turn(y, given.pop(0))
        done, rest = done * r, m
        y = reshape(y, (2, n, others))
    return y


def _transform(y: Array, given: list[Array]) -> Array:
    """The forward transform of (2, n, others) or (1, n, others)."""
    n = y.shape[1]
    p = plan(n)
    if not p.chirp:
        return _factored(y, n, given)
    chirp, filter_ = given.pop(0), given.pop(0)
    if y.shape[0] == 1:
        y = pad_with(y, (0, 0, 0), (1, 0, 0), 0)
    y = pad_with(turn(y, chirp), (0, 0, 0), (0, p.chirp - n, 0), 0)
    y = turn(_factored(y, p.chirp, list(given)), filter_)
    y = flip(_factored(flip(y, axis=0), p.chirp, list(given)), axis=0)
    return turn(_some(y, 0, n), chirp)


@op_named("fft.c2c")
def c2c(x: Array, /, *roots: Array, axis: int, inverse: bool = False) -> Array:
    """``out[k] = sum_j x[j] exp(-2 pi i j k / n)`` along an axis of a complex array; ``+`` if inverse. Not scaled."""
    y = _transform(parts(front(x, axis), inverse), list(roots))
    return back(joined(y, inverse), axis, x.shape)


@op_named("fft.r2c")
def r2c(x: Array, /, *roots: Array, axis: int) -> Array:
    """The first ``n // 2 + 1`` values of the transform of ``n`` real ones along an axis. Not scaled.

    An even ``n`` is half as many complex values, whose transform is split: ``X = E - i w (Z - conj Z') / 2``.
    """
    n, y = x.shape[axis], front(x, axis)
    m, others = n // 2, y.shape[1]
    given = list(roots)
    if n % 2:
        z = _transform(reshape(y, (1, n, others)), given)
        return back(joined(_some(z, 0, m + 1)), axis, x.shape)
    join = given.pop(0)
    z = _transform(permute_dims(reshape(y, (m, 2, others)), (1, 0, 2)), given)
    z = concat([z, _some(z, 0, 1)], axis=1)
    mirror = flip(z, axis=1) * _signs(z, 1)
    return back(joined((z + mirror) * 0.5 + turn((z - mirror) * 0.5, join)), axis, x.shape)


@op_named("fft.c2r")
def c2r(x: Array, /, *roots: Array, axis: int, n: int) -> Array:
    """``n`` real values from the first ``n // 2 + 1`` of their transform along an axis. Not scaled.

    The imaginary part of the first value, and of the last where ``n`` is even, is not read.
    """
    m, given, y = n // 2, list(roots), front(x, axis)
    if n % 2:
        tail = slice_of(y, (1, 0), (m, y.shape[1]))
        y = concat([y, FUNCTIONS["conj"](flip(tail, axis=0))], axis=0)
        return back(_part(_transform(parts(y, True), given), 1), axis, x.shape)
    k = reshape(iota(m + 1, dt.int64, x._value.node.device), (m + 1, 1))
    zero = constant(0, x.dtype.real, x._value.node.device)
    im = FUNCTIONS["where"]((k == 0) | (k == m), zero, FUNCTIONS["imag"](y))
    y = stack([FUNCTIONS["real"](y), im])
    split = given.pop(0)
    mirror = _some(flip(y, axis=1) * _signs(y, 1), 0, m)
    y = _some(y, 0, m)
    z = flip(y + mirror + turn(y - mirror, split), axis=0)
    z = flip(_transform(z, given), axis=0)
    return back(reshape(permute_dims(z, (1, 0, 2)), (n, y.shape[2])), axis, x.shape)


# Derivatives: the transforms are linear, and the tables are constants

def _edges(x: Array, n: int, axis: int, edge: float, inner: float) -> Array:
    """Half a spectrum with the values that are their own mirror image times ``edge``, all others times ``inner``."""
    size = x.shape[axis]
    k = iota(size, dt.int64, x._value.node.device)
    own = (k == 0) | (k == (n // 2 if n % 2 == 0 else 0))
    weights = FUNCTIONS["where"](own, constant(edge, x.dtype.real, x._value.node.device), inner)
    out: Array = x * reshape(weights, tuple(size if i == axis else 1 for i in range(x.ndim)))
    return out


@c2c.grad
def _(ct: Array, out: Array, x: Array, *roots: Array, axis: int, inverse: bool = False) -> tuple[Array | None, ...]:
    return (c2c(ct, *roots, axis=axis, inverse=not inverse), *[None] * len(roots))


@r2c.grad
def _(ct: Array, out: Array, x: Array, *roots: Array, axis: int) -> tuple[Array | None, ...]:
    n = x.shape[axis]
    return (to_real(_edges(ct, n, axis, 1.0, 0.5), axis, n), *[None] * len(roots))


@c2r.grad
def _(ct: Array, out: Array, x: Array, *roots: Array, axis: int, n: int) -> tuple[Array | None, ...]:
    return (_edges(from_real(ct, axis), n, axis, 1.0, 2.0), *[None] * len(roots))


def _linear(op: OpFunction[Any]) -> None:
    """Tangents, and batches along axis 0, go through the transform itself."""
    @op.jvp
    def _(t: list[Array | None], out: Array, x: Array, *roots: Array, **attrs: Any) -> Array | None:
        return None if t[0] is None else op(t[0], *roots, **attrs)

    @op.batch
    def _(axes: list[int | None], size: int, x: Array, *roots: Array, axis: int, **attrs: Any) -> tuple[Array, int]:
        return op(x, *roots, axis=axis + 1, **attrs), 0


for _op in (c2c, r2c, c2r):
    _linear(_op)


# The transforms with the tables they need

def to_complex(x: Array, axis: int, inverse: bool = False) -> Array:
    """:func:`c2c` of a complex array."""
    return c2c(x, *_tables("c2c", x, x.shape[axis]), axis=axis, inverse=inverse)


def from_real(x: Array, axis: int) -> Array:
    """:func:`r2c` of a real array."""
    return r2c(x, *_tables("r2c", x, x.shape[axis]), axis=axis)


def to_real(x: Array, axis: int, n: int) -> Array:
    """:func:`c2r` of a complex array of ``n // 2 + 1`` values along the axis."""
    return c2r(x, *_tables("c2r", x, n), axis=axis, n=n)


def _tables(kind: str, x: Array, n: int) -> tuple[Array, ...]:
    """Without the radices' where they are long: a library reads none, and in 64 bits a program can make them."""
    brief = n > LONGEST_GIVEN and default_float(x.device) == dt.float64
    return tables(kind, n, x.dtype.real, x.device, brief)


# Oracles and samples

@c2c.ref
def _(x: Any, *roots: Any, axis: int, inverse: bool = False) -> Any:
    out = np.fft.ifft(x, axis=axis, norm="forward") if inverse else np.fft.fft(x, axis=axis)
    return out.astype(x.dtype)


@r2c.ref
def _(x: Any, *roots: Any, axis: int) -> Any:
    return np.fft.rfft(x, axis=axis).astype(np.result_type(x.dtype, np.complex64))


@c2r.ref
def _(x: Any, *roots: Any, axis: int, n: int) -> Any:
    return np.fft.irfft(x, n, axis=axis, norm="forward").astype(x.real.dtype)


def _sample(kind: str, length: int, name: str, **attrs: Any) -> Sample:
    """One sample; its tables are operands, whose derivative is no part of the op (``grad`` is tested on its own)."""
    from rlx.ops.fft_plan import _host
    rng = np.random.default_rng(length)
    real = np.dtype(name).type(0).real.dtype
    size = length // 2 + 1 if kind == "c2r" else length
    x = rng.standard_normal((2, size)) + (0 if kind == "r2c" else 1j * rng.standard_normal((2, size)))
    roots = [t.astype(real) for t in _host(kind, length)]
    return Sample((x.astype(name), *roots), {"axis": 1, **attrs}, name=f"{length}-{name}", grad=False)


def _samples(kind: str, *, real: bool = False) -> Callable[[], list[Sample]]:
    def make() -> list[Sample]:
        out = []
        for n in (1, 2, 7, 48, 131):
            for name in ("float32", "float64") if real else ("complex64", "complex128"):
                more: dict[str, dict[str, Any]] = {"c2c": {"inverse": n == 7}, "r2c": {}, "c2r": {"n": n}}
                out.append(_sample(kind, n, name, **more[kind]))
        return out
    return make


c2c.samples(_samples("c2c"))
r2c.samples(_samples("r2c", real=True))
c2r.samples(_samples("c2r"))
