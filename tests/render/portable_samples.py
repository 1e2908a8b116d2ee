"""Kernels written by hand, for the renderers of portable kernels: each a program of one launch, and its answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx.core.dtype import DType, as_dtype, bool_, complex64, float16, float32, int8, int32, int64
from rlx.ir import loop as L
from rlx.ir.loop import Expr, Stmt, const, expr, load, var

Arr = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Sample:
    """A kernel over inputs and one output, and what it must give."""

    kernel: L.Kernel
    inputs: tuple[Arr, ...]
    want: Arr
    ulps: float = 0


def i(n: int) -> Expr:
    return const(n, int32)


def over(n: int, body: Callable[[Expr], tuple[Stmt, ...]], lanes: int = 32) -> tuple[Stmt, ...]:
    """``for g in grid: for l in block: if g*lanes + l < n: body``."""
    at = expr("add", (expr("mul", (var("g", int32), i(lanes)), int32), var("l", int32)), int32)
    guarded = L.If(L.less(at, i(n)), (L.Let("o", at), *body(var("o", int32))))
    block = L.For("l", i(0), i(lanes), 1, L.BLOCK, (guarded,))
    return (L.For("g", i(0), i(-(-n // lanes)), 1, L.GRID, (block,)),)


def pointwise(name: str, f: Callable[..., Expr], inputs: tuple[Arr, ...], want: Arr, ulps: float = 0) -> Sample:
    """``out[o] = f(in0[o], in1[o], ...)``."""
    n = want.size
    types = [as_dtype(x.dtype) for x in inputs]
    params = [L.Param(f"b{k}", t, n, "r") for k, t in enumerate(types)]
    out = f"b{len(inputs)}"
    result = as_dtype(want.dtype)

    def body(o: Expr) -> tuple[Stmt, ...]:
        return (L.Store(out, o, f(*[load(p.name, o, p.dtype) for p in params])),)
    kernel = L.Kernel(name, (*params, L.Param(out, result, n, "w")), over(n, body))
    return Sample(kernel, inputs, want, ulps)


def e(op: str, *args: Expr, dtype: DType | None = None) -> Expr:
    return expr(op, args, dtype or args[0].dtype)


def row_sums(rows: int, n: int) -> Sample:
    """A tree in shared memory: one workgroup a row."""
    x = np.arange(rows * n, dtype=np.float32).reshape(rows, n) % 7
    lane, red = var("l", int32), load("red", var("l", int32), float32)
    steps: list[Stmt] = [L.Array("red", float32, n, "shared"),
                         L.Store("red", lane, load("b0", L.add(L.mul(var("g", int32), i(n)), lane), float32)),
                         L.Barrier()]
    s = n // 2
    while s:
        other = load("red", L.add(lane, i(s)), float32)
        steps += [L.If(L.less(lane, i(s)), (L.Store("red", lane, e("add", red, other)),)), L.Barrier()]
        s //= 2
    steps.append(L.If(e("eq", lane, i(0), dtype=bool_), (L.Store("b1", var("g", int32), load("red", i(0), float32)),)))
    body = (L.For("g", i(0), i(rows), 1, L.GRID, (L.For("l", i(0), i(n), 1, L.BLOCK, tuple(steps)),)),)
    params = (L.Param("b0", float32, rows * n, "r"), L.Param("b1", float32, rows, "w"))
    return Sample(L.Kernel("row_sums", params, body), (x,), x.sum(1))


def scatter_add() -> Sample:
    """Many lanes add to few places: float32 atomics."""
    n = 300
    at = (np.arange(n) * 7 % 5).astype(np.int32)
    want = np.zeros(5, np.float32)
    np.add.at(want, at, np.float32(0.5))

    def body(o: Expr) -> tuple[Stmt, ...]:
        return (L.Atomic("add", "b1", load("b0", o, int32), const(0.5, float32)),)
    params = (L.Param("b0", int32, n, "r"), L.Param("b1", float32, 5, "rw"))
    return Sample(L.Kernel("scatter_add", params, over(n, body)), (at,), want)


def collatz() -> Sample:
    """A loop with a 64-bit condition, whose evaluation needs statements."""
    x = np.array([1, 7, 27, 97], np.int64)

    def steps(n: int) -> int:
        count = 0
        while n != 1:
            n, count = (n // 2 if n % 2 == 0 else 3 * n + 1), count + 1
        return count
    n, one = var("n", int64), const(1, int64)
    even = e("eq", e("and", n, one), const(0, int64), dtype=bool_)
    step = e("select", even, e("shr", n, one), e("add", e("mul", n, const(3, int64)), one), dtype=int64)

    def body(o: Expr) -> tuple[Stmt, ...]:
        count = L.Assign("c", e("add", var("c", int32), i(1)))
        loop = L.Loop(e("ne", n, one, dtype=bool_), (L.Assign("n", step), count))
        return (L.Register("n", load("b0", o, int64)), L.Register("c", i(0)), loop, L.Store("b1", o, var("c", int32)))
    params = (L.Param("b0", int64, 4, "r"), L.Param("b1", int32, 4, "w"))
    return Sample(L.Kernel("collatz", params, over(4, body)), (x,), np.array([steps(int(v)) for v in x], np.int32))


def samples() -> dict[str, Sample]:
    """Every sample by name."""
    with np.errstate(all="ignore"):
        return _samples()


def _samples() -> dict[str, Sample]:
    rng = np.random.default_rng(3)
    x = rng.standard_normal(70).astype(np.float32)
    special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, 1e-45, 3e38], np.float32)
    a, b = rng.integers(-2**62, 2**62, 40), rng.integers(-1000, 1000, 40)
    b[0], b[1], a[2], b[2] = 0, -1, -2**63, -1
    wide = np.concatenate([a, [0, 1, -1, 2**63 - 1, -2**63, 2**24 + 1, 2**53 + 1]])
    bits = rng.integers(0, 2**16, 64).astype(np.uint16)
    ok = b != 0
    z = (x[:35] + 1j * x[35:]).astype(np.complex64)
    floats = np.concatenate([special, [1e10, -1e10, 1e19, -1e19, 2.5, -2.5, 9.007199e15]]).astype(np.float32)
    with np.errstate(all="ignore"):
        safe = np.where(np.isnan(floats), 0, np.clip(floats.astype(np.float64), -2.0**63, 2.0**63 - 1025))
        to_int = np.where(floats >= 2.0**63, 2**63 - 1, safe.astype(np.int64))
        quotient = np.where(ok, a // np.where(ok, b, 1), 0)
        remainder = np.where(ok, a % np.where(ok, b, 1), 0)
    shifts = np.array([0, 1, 31, 32, 33, 63, 64, 200] * 5, np.int64)
    left = np.array([int(v) << int(s) & 2**64 - 1 if s < 64 else 0 for v, s in zip(a, shifts, strict=True)], np.uint64)
    right = np.array([int(v) >> int(min(s, 63)) for v, s in zip(a, shifts, strict=True)], np.int64)
    big = np.full(8, 1e8, np.float32)
    small = np.linspace(0.5, 3, 8, dtype=np.float32)
    found = {
        "axpy": pointwise("axpy", lambda p, q: e("add", e("mul", p, const(2.0, float32)), q), (x, x[::-1].copy()),
                          2 * x + x[::-1]),
        "add_i64": pointwise("add_i64", lambda p, q: e("add", p, q), (a, b), a + b),
        "mul_i64": pointwise("mul_i64", lambda p, q: e("mul", p, q), (a, b), a * b),
        "floordiv_i64": pointwise("floordiv_i64", lambda p, q: e("floordiv", p, q), (a, b), quotient),
        "rem_i64": pointwise("rem_i64", lambda p, q: e("rem", p, q), (a, b), remainder),
        "shl_i64": pointwise("shl_i64", lambda p, q: e("shl", p, q), (a, shifts), left.view(np.int64)),
        "shr_i64": pointwise("shr_i64", lambda p, q: e("shr", p, q), (a, shifts), right),
        "less_i64": pointwise("less_i64", lambda p, q: e("lt", p, q, dtype=bool_), (a, b), a < b),
        "f32_of_i64": pointwise("f32_of_i64", lambda p: e("cast", p, dtype=float32), (wide,), wide.astype(np.float32)),
        "i64_of_f32": pointwise("i64_of_f32", lambda p: e("cast", p, dtype=int64), (floats,), to_int),
        "mul_i8": pointwise("mul_i8", lambda p, q: e("mul", p, q), (b.astype(np.int8), a.astype(np.int8)),
                            b.astype(np.int8) * a.astype(np.int8)),
        "i8_of_f32": pointwise("i8_of_f32", lambda p: e("cast", p, dtype=int8), (floats,),
                               np.clip(np.nan_to_num(floats, posinf=127, neginf=-128), -128, 127).astype(np.int8)),
        "f32_of_f16": pointwise("f32_of_f16", lambda p: e("cast", p, dtype=float32), (bits.view(np.float16),),
                                bits.view(np.float16).astype(np.float32)),
        "f16_of_f32": pointwise("f16_of_f32", lambda p: e("cast", p, dtype=float16), (x * np.float32(1e-5),),
                                (x * np.float32(1e-5)).astype(np.float16)),
        "mul_c64": pointwise("mul_c64", lambda p: e("mul", p, p, dtype=complex64), (z,), z * z, 4),
        "widened_ge": pointwise("widened_ge",
                                lambda p: e("ge", e("cast", p, dtype=int64), const(5, int64), dtype=bool_),
                                (np.arange(12, dtype=np.int32) - 3,), np.arange(12) - 3 >= 5),
        "isnan": pointwise("isnan", lambda p: e("isnan", p, dtype=bool_), (special,), np.isnan(special)),
        "not_equal_nan": pointwise("not_equal_nan", lambda p: e("ne", p, p, dtype=bool_), (special,),
                                   special != special),
        "minus_itself": pointwise("minus_itself", lambda p: e("sub", p, p), (special,), special - special),
        "times_zero": pointwise("times_zero", lambda p: e("mul", p, const(0.0, float32)), (special,),
                                special * np.float32(0)),
        "sum_cancels": pointwise("sum_cancels", lambda p, q: e("sub", e("add", p, q), p), (big, small),
                                 (big + small) - big),
        "exp": pointwise("exp", lambda p: e("exp", p), (x * 20,), _rounded(np.exp, x * 20), 1),
        "sin": pointwise("sin", lambda p: e("sin", p), (x * 1e4,), _rounded(np.sin, x * 1e4), 1),
        "row_sums": row_sums(5, 64), "scatter_add": scatter_add(), "collatz": collatz(),
    }
    return found


def _rounded(f: Callable[[Arr], Arr], x: Arr) -> Arr:
    """``f(x)`` in float64, rounded to float32."""
    return f(x.astype(np.float64)).astype(np.float32)


def program(s: Sample) -> L.Program:
    """The sample's kernel as a program; its output starts as zeros."""
    params = s.kernel.params
    buffers = [L.Buffer(f"in{k}", p.dtype, p.size, "input", k) for k, p in enumerate(params[:-1])]
    last = params[-1]
    zero = L.Buffer("zero", last.dtype, last.size, "const", data=np.zeros(last.size, last.dtype.numpy))
    out = L.Buffer("out0", last.dtype, last.size, "output")
    names = tuple(b.name for b in (*buffers, out))
    return L.Program("sample", (*buffers, zero, out), (L.Copy("out0", "zero"), L.Launch(s.kernel, names)))


def run(device: Any, s: Sample) -> Arr:
    """The sample's output on a device."""
    last = s.kernel.params[-1]
    out = device.empty(last.dtype, (last.size,))
    device.load(program(s)).run([device.upload(x) for x in s.inputs], [out])
    return device.download(out, last.dtype, s.want.shape)


def check(device: Any, s: Sample) -> None:
    """The device's answer is the sample's: the same bits, or within its units in the last place."""
    got = run(device, s)
    assert got.dtype == s.want.dtype
    if s.ulps:
        size = np.abs(s.want).astype(np.float64)
        assert (np.abs(got - s.want) <= s.ulps * 2.0**-23 * size + 1e-45).all()
    else:
        assert np.array_equal(got, s.want, equal_nan=s.want.dtype.kind in "fc")
