"""Every elementwise primitive on every dtype it takes, compiled through LLVM, against NumPy."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

from rlx.core.dtype import ALL, DType, bfloat16, bool_, complex64, complex128, float64, int32
from rlx.core.errors import CompileError
from rlx.ir import loop
from rlx.ir.prim import POINTWISE
from rlx.render.llvm import module
from rlx.render.pairs import pair_function
from tests.render.llvm_jit import Jitted, from_bf16, plain, pointwise, stored, to_bf16
from tests.render.oracle import COMPLEX_ULPS, NUMPY, ULPS, Array, arguments, check, edge_values


def result_dtype(op: str, d: DType) -> DType:
    rule = POINTWISE[op].result
    return {"same": d, "bool": bool_, "real": d.real, "complex": d.complex}[rule]


def _has_form(op: str, d: DType) -> bool:
    try:
        module([pointwise("k", op, (d,) * POINTWISE[op].arity, result_dtype(op, d), 1)])
    except CompileError:
        return False
    return True


CASES = [
    (op, d)
    for op, p in POINTWISE.items()
    for d in ALL
    if op not in ("select", "cast", "bitcast", "complex")
    and d.kind in p.kinds
    and not (op in ("erfinv", "digamma") and not _has_form(op, d))
]


@cache
def compiled() -> Jitted:
    """All cases in one module."""
    kernels = [
        pointwise(
            f"{op}.{d.short}",
            op,
            (d,) * POINTWISE[op].arity,
            result_dtype(op, d),
            len(arguments(d, POINTWISE[op].arity)[0]),
        )
        for op, d in CASES
    ]
    return Jitted(kernels, level=2)


def _next_bf16(x: Array, y: Array) -> Array:
    """By walking the sorted list of all bfloat16 values."""
    every = np.unique(from_bf16(np.arange(1 << 16, dtype=np.uint16)))
    every = every[~np.isnan(every)]
    at = np.searchsorted(every, x)
    step = np.clip(at + (y > x).astype(int) - (y < x).astype(int), 0, len(every) - 1)
    return np.where(np.isnan(x) | np.isnan(y), np.float32(np.nan), np.where(x == y, y, every[step]))


@pytest.mark.parametrize(("op", "d"), CASES, ids=lambda v: v if isinstance(v, str) else v.short)
def test_pointwise(op: str, d: DType) -> None:
    args = arguments(d, POINTWISE[op].arity)
    out_type = result_dtype(op, d)
    out = np.zeros(len(args[0]), out_type.numpy)
    compiled()(f"{op}.{d.short}", *[np.ascontiguousarray(stored(a, d)) for a in args], out)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        want = np.asarray(NUMPY[op](*args))
    if op == "nextafter":  # NumPy's own float16 form keeps x where x == y; C returns y
        want = _next_bf16(*args) if d == bfloat16 else np.where(args[0] == args[1], args[1], want)
    if out_type == bfloat16:
        want = from_bf16(to_bf16(want))
    exact = op in ("add", "sub", "neg", "conj", "real", "imag")
    ulps = COMPLEX_ULPS.get(op, 16.0) if d.is_complex and not exact else ULPS.get(op, 0.0)
    got = plain(out, out_type)
    if op == "lgamma":  # poles all the way there: the expansion's own tests cover it
        got, want = got[args[0] > -1e30], want[args[0] > -1e30]
    # Near their roots these two are accurate in absolute terms.
    check(got, want, out_type, ulps, f"{op} {d.short}", floor=1.0 if op in ("lgamma", "digamma") else 0.0)


EXTREME = {complex64: 1e30, complex128: 1e300}


@pytest.mark.parametrize("d", [complex64, complex128], ids=lambda d: d.short)
def test_complex_does_not_overflow_early(d: DType) -> None:
    """Quotient, modulus, root, logarithm and hyperbolic functions of huge and tiny numbers."""
    big = EXTREME[d]
    wide = np.clongdouble
    x = np.array(
        [big + big * 1j, big - 3j, 2j * big, 1 / big + 2j / big, -big + 1j / big, 5 / big], d.numpy
    )
    y = np.array(
        [big - 2j * big, 2 * big + big * 1j, -3j * big, 3 / big - 1j / big, 1j * big, -7j / big], d.numpy
    )
    ops: list[tuple[str, Callable[..., Array], int]] = [
        ("div", np.divide, 2),
        ("abs", np.abs, 1),
        ("sqrt", np.sqrt, 1),
        ("log", np.log, 1),
        ("sign", _unit, 1),
    ]
    kernels = [pointwise(op, op, (d,) * n, result_dtype(op, d), len(x)) for op, _, n in ops]
    jitted = Jitted(kernels)
    for op, reference, n in ops:
        args = (x, y)[:n]
        out = np.zeros(len(x), result_dtype(op, d).numpy)
        jitted(op, *args, out)
        want = reference(*(a.astype(wide) for a in args))
        error = np.abs(out.astype(wide) - want) / np.abs(want)
        assert np.all(error < 8 * np.finfo(d.real.numpy).eps), (op, out, want)


def _unit(z: Array) -> Array:
    return z / np.abs(z)


def test_complex_log_near_unit_circle_keeps_its_digits() -> None:
    t = np.linspace(0.1, 6.2, 97)
    z = (np.cos(t) + 1j * np.sin(t)).astype(np.complex128)
    jitted = Jitted([pointwise("log", "log", (complex128,), complex128, len(z))])
    out = np.zeros_like(z)
    jitted("log", z, out)
    wide = np.clongdouble
    x, y = z.real.astype(wide).real, z.imag.astype(wide).real
    want = np.log1p((x - 1) * (x + 1) + y * y) / 2
    np.testing.assert_allclose(out.real, want.astype(np.float64), rtol=1e-2, atol=1e-19)


def test_functions_without_complex_formula_are_refused() -> None:
    with pytest.raises(CompileError, match="erf") as refused:
        pair_function("erf", float64)
    assert refused.value.why and refused.value.do


def test_constant_arguments_fold_as_variables_compute() -> None:
    """Division, shift and power by literals take their own paths."""
    d = int32
    x = edge_values(d)
    i = loop.var("i")
    cases = [
        ("floordiv", 7),
        ("floordiv", -3),
        ("floordiv", 0),
        ("floordiv", -1),
        ("rem", 7),
        ("rem", -3),
        ("rem", 0),
        ("rem", -1),
        ("shl", 31),
        ("shl", 32),
        ("shl", -1),
        ("shr", 5),
        ("shr", 40),
        ("pow", 0),
        ("pow", 13),
    ]
    kernels = [
        loop.Kernel(
            f"k{n}",
            (loop.Param("x", d, len(x), "r"), loop.Param("out", d, len(x), "w")),
            (
                loop.For(
                    "i",
                    loop.const(0),
                    loop.const(len(x)),
                    1,
                    loop.VECTOR,
                    (loop.Store("out", i, loop.expr(op, (loop.load("x", i, d), loop.const(c, d)), d)),),
                ),
            ),
        )
        for n, (op, c) in enumerate(cases)
    ]
    jitted = Jitted(kernels)
    for n, (op, c) in enumerate(cases):
        out = np.zeros_like(x)
        jitted(f"k{n}", x, out)
        with np.errstate(all="ignore"):
            want = NUMPY[op](x, np.full_like(x, c))
        np.testing.assert_array_equal(out, want, f"{op} {c}")
