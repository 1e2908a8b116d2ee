"""Each primitive through the public functions that make it: derivatives, and batches against one example at a time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import rlx
from rlx.ops.linear import dot
from rlx.ops.movement import pad_with, windows
from rlx.ops.scan import scan
from rlx.ops.segments import segment_reduce
from rlx.ops.sort import sort_with
from rlx.testing import check_grad

RNG = np.random.default_rng(3)
X = RNG.standard_normal((3, 4))
Y = RNG.standard_normal((3, 4)) + 3.0
Z = X + 1j * Y
I = np.array([2, 0, 2])
J = np.array([1, 3, 0])
OFFSETS = np.array([0, 2, 2, 3])

SMOOTH: dict[str, tuple[Callable, tuple]] = {
    "reshape": (lambda x: x.reshape(2, 6) * 2, (X,)),
    "permute": (lambda x: x.T @ x, (X,)),
    "broadcast": (lambda x: rlx.broadcast_to(x[:, :1], (5, 3, 4)) * 1.5, (X,)),
    "slice": (lambda x: x[1:, ::2], (X,)),
    "slice step": (lambda x: x[::2, 1::3], (X,)),
    "flip": (lambda x: x[::-1] * x, (X,)),
    "concat": (lambda x, y: rlx.concat([x, y, x], axis=1), (X, Y)),
    "pad": (lambda x, v: pad_with(x, (1, 0), (0, 2), v), (X, np.array(2.0))),
    "window": (lambda x: windows(x, (0, 1), (2, 2), (1, 2), (1, 1)), (X,)),
    "gather": (lambda x: x[rlx.asarray(I)], (X,)),
    "gather two": (lambda x: x[rlx.asarray(I), rlx.asarray(J)], (X,)),
    "gather negative": (lambda x: x[rlx.asarray(-I - 1)], (X,)),
    "scatter add": (lambda x, y: x.at[rlx.asarray(I)].add(y), (X, Y)),
    "scatter set": (lambda x, y: x.at[rlx.asarray(I)].set(y), (X, Y)),
    "scatter set slice": (lambda x, y: x.at[1].set(y[0]), (X, Y)),
    "scatter mul": (lambda x, y: x.at[rlx.asarray(I), rlx.asarray(J)].multiply(y[:, 0]), (X, Y)),
    "scatter max": (lambda x, y: x.at[rlx.asarray(I)].max(y - 3.0), (X, Y)),
    "scatter min": (lambda x, y: x.at[rlx.asarray(I)].min(y - 3.0), (X, Y)),
    "dot": (lambda x, y: x @ y.T, (X, Y)),
    "dot batch": (lambda x, y: dot(x, y, ((1,), (1,)), ((0,), (0,))), (X, Y)),
    "dot vector": (lambda x, y: x @ y[0], (X, Y)),
    "sum": (lambda x: x.sum(axis=0) * x[0], (X,)),
    "prod": (lambda x: x.prod(axis=1), (X,)),
    "max": (lambda x: x.max(axis=1), (X,)),
    "min": (lambda x: x.min(), (X,)),
    "cumulative sum": (lambda x: rlx.cumulative_sum(x, axis=1) * x, (X,)),
    "cumulative product": (lambda x: rlx.cumulative_prod(x, axis=0), (Y,)),
    "cumulative max": (lambda x: scan(x, "max", 1), (X,)),
    "scan back": (lambda x: scan(x, "add", 0, True), (X,)),
    "sort": (lambda x: rlx.sort(x, axis=1) * x, (X,)),
    "sort with": (lambda x, y: sort_with(x, (y,), 0)[1], (X, Y)),
    "segments": (lambda x: segment_reduce(x, rlx.asarray(OFFSETS)), (X,)),
    "segment max": (lambda x: segment_reduce(x, rlx.asarray(OFFSETS), "max")[0], (X,)),
    "where": (lambda x, y: rlx.where(x > 0, x * y, y), (X, Y)),
    "cast": (lambda x: (x * 3).astype(rlx.float64), (X,)),
    "divide": (lambda x, y: x / y, (X, Y)),
    "floor": (lambda x: x - rlx.floor(x), (X,)),
    "remainder": (lambda x, y: rlx.remainder(x, y), (X, Y)),
    "power": (lambda x, y: y ** x, (X, Y)),
    "hypot": (lambda x, y: rlx.hypot(x, y), (X, Y)),
    "complex abs": (lambda z: rlx.abs(z), (Z,)),
    "complex parts": (lambda z: rlx.real(z) * rlx.imag(z), (Z,)),
    "complex conj": (lambda z: rlx.conj(z) * z * z, (Z,)),
    "complex exp": (lambda z: rlx.exp(z) / z, (Z,)),
    "complex sign": (lambda z: rlx.sign(z), (Z,)),
    "complex from real": (lambda x, z: x * z, (X, Z)),
    "complex matmul": (lambda z: z @ z.T, (Z,)),
    "softmax": (lambda x: rlx.softmax(x, axis=0), (X,)),
    "logsumexp": (lambda x: rlx.logsumexp(x, axis=1), (X,)),
}


@pytest.mark.parametrize("name", SMOOTH)
def test_derivatives(name: str):
    f, args = SMOOTH[name]
    check_grad(f, *args, order=2, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("target", ["cpu", "python"])
@pytest.mark.parametrize("name", SMOOTH)
def test_batches(name: str, target: str):
    f, args = SMOOTH[name]
    many = [np.stack([a, a[..., ::-1] * 1.25 if a.ndim else a + 1, a - 0.5]) for a in args]
    for axes in {(0,) * len(args), *[tuple(0 if i == k else None for i in range(len(args))) for k in range(len(args))]}:
        given = [m if a == 0 else x for m, x, a in zip(many, args, axes, strict=True)]
        with rlx.flags(device=target):
            got = np.asarray(rlx.vmap(f, axes)(*[rlx.asarray(g) for g in given]))
        one = [np.asarray(f(*[rlx.asarray(m[k] if a == 0 else m) for m, a in zip(given, axes, strict=True)]))
               for k in range(3)]
        np.testing.assert_allclose(got, np.stack(one), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", SMOOTH)
def test_batches_of_gradients(name: str):
    f, args = SMOOTH[name]
    many = [np.stack([a, a * 1.25 + 0.1]) for a in args]

    def loss(*xs: rlx.Array) -> rlx.Array:
        y = f(*xs)
        return (rlx.abs(y) ** 2).sum() if y.dtype.is_complex else (y * y).sum()
    g = rlx.grad(loss, tuple(range(len(args))))
    got = rlx.vmap(g)(*many)
    for k in range(2):
        for a, b in zip(got, g(*[rlx.asarray(m[k]) for m in many]), strict=True):
            np.testing.assert_allclose(np.asarray(a)[k], np.asarray(b), rtol=1e-11, atol=1e-13)
