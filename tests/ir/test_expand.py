"""The standard expansions: measured error, special values, and the form renderers rely on."""

from __future__ import annotations

import numpy as np
import pytest

from rlx.core.dtype import DType, float16, float32, float64
from rlx.ir.expand import BOUNDS, FAST, FUNCTIONS, Function, expansion
from rlx.ir.loop import Expr
from rlx.ir.prim import POINTWISE, TRANSCENDENTAL
from rlx.tools.straight import compile_function
from rlx.tools.ulp import compiled, errors, measure, reference, scale_of

DTYPES = (float32, float64)
FORBIDDEN = TRANSCENDENTAL | {"load", "nextafter", "rem", "floordiv"}


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.short)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_error_is_within_the_stated_bound(name: str, dtype: DType) -> None:
    found = measure(name, dtype, 40_000, seed=1)
    assert found.ulp <= BOUNDS[name], str(found)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.short)
@pytest.mark.parametrize("name", FAST)
def test_fast_variants_are_within_16_ulp(name: str, dtype: DType) -> None:
    found = measure(name, dtype, 40_000, fast=True, seed=1)
    assert found.ulp <= 16.0, str(found)


def _walk(f: Function) -> list[Expr]:
    """Every node, checking on the way that names are bound before use."""
    bound = {str(p.value) for p in f.params}
    nodes: list[Expr] = []

    def visit(e: Expr) -> None:
        if e.op == "var":
            assert e.value in bound
        nodes.append(e)
        for a in e.args:
            visit(a)

    for name, value in f.lets:
        assert name not in bound
        visit(value)
        bound.add(name)
    visit(f.result)
    if f.rare is not None:
        visit(f.rare[0])
        nodes += _walk(f.rare[1])
    return nodes


@pytest.mark.parametrize("branches", (False, True))
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.short)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_expansions_are_straight_line_arithmetic(name: str, dtype: DType, branches: bool) -> None:
    f = expansion(name, dtype, branches=branches)
    assert f is not None and f.result.dtype == dtype
    for e in _walk(f):
        if e.op not in ("const", "var"):
            assert e.op in POINTWISE and e.op not in FORBIDDEN
            assert len(e.args) == POINTWISE[e.op].arity
        if dtype == float32:
            assert e.dtype.bits <= 32


@pytest.mark.parametrize("name", FUNCTIONS)
def test_float32_on_a_stride_of_all_bit_patterns(name: str) -> None:
    if FUNCTIONS[name].arity != 1:
        return
    x = np.arange(7, 2**32, 20_011, dtype=np.uint64).astype(np.uint32).view(np.float32)
    want = reference(name, x)
    e = errors(compiled(name, float32)(x), want, scale_of(name, x, want))
    assert e.max() <= BOUNDS[name], float(x[int(e.argmax())])


def test_no_expansion_outside_the_table() -> None:
    assert expansion("exp", float16) is None
    assert expansion("add", float32) is None


def test_expansions_are_built_once() -> None:
    assert expansion("exp", float64) is expansion("exp", float64)


def test_huge_angles_are_reduced_exactly() -> None:
    # 6381956970095103 * 2**797 is the double closest to a multiple of pi/2 (Muller, Elementary
    # Functions, ch. 11)
    k = np.arange(1, 200_000, 7)
    near = (k * np.longdouble("1.5707963267948966192313216916397514")).astype(np.float64)
    x = np.concatenate(
        [[6381956970095103.0 * 2.0**797, 2.0**1023, 1e22, 2.0**28], near, near * 2.0**40]
    )
    for name in ("sin", "cos", "tan"):
        assert errors(compiled(name, float64)(x), reference(name, x)).max() <= BOUNDS[name]


def test_branching_and_folded_forms_agree() -> None:
    x = np.concatenate([np.geomspace(1e-3, 1e30, 4001), [np.inf, -np.inf, np.nan]]).astype(
        np.float32
    )
    for name in ("sin", "cos", "tan"):
        f = expansion(name, float32, branches=True)
        assert f is not None and f.rare is not None
        got = compile_function(f)(x)
        np.testing.assert_array_equal(got, compiled(name, float32)(x))


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.short)
def test_pow_near_overflow_underflow_and_one(dtype: DType) -> None:
    rng = np.random.default_rng(3)
    kind = dtype.numpy
    x = np.concatenate(
        [
            np.exp(rng.uniform(-80, 80, 20_000)),
            1 + rng.uniform(-1, 1, 20_000) * 2.0**-10,
            1 + rng.uniform(-1, 1, 2_000) * np.finfo(kind).eps * 8,
        ]
    ).astype(kind)
    x = x[x != 1]
    limit = 1075 * np.log(2) if kind == np.float64 else 150 * np.log(2)
    y = (rng.uniform(-1, 1, x.size) * limit / np.log(x.astype(np.longdouble))).astype(kind)
    e = errors(compiled("pow", dtype)(x, y), reference("pow", x, y))
    assert e.max() <= BOUNDS["pow"], (x[int(e.argmax())], y[int(e.argmax())])


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.short)
def test_exact_results_are_exact(dtype: DType) -> None:
    kind = dtype.numpy
    k = np.arange(-20, 21).astype(kind)
    power = np.exp2(k.astype(np.float64)).astype(kind)
    assert (compiled("exp2", dtype)(k) == power).all()
    assert (compiled("log2", dtype)(power) == k).all()
    assert (compiled("pow", dtype)(np.full_like(k, 2), k) == power).all()
    small = np.arange(1, 11).astype(kind)
    assert (compiled("pow", dtype)(small, np.full_like(small, 3)) == small**3).all()
    tens = np.arange(0, 11)
    assert (compiled("log10", dtype)((10.0**tens).astype(kind)) == tens).all()
    assert compiled("hypot", dtype)(np.array([3], kind), np.array([-4], kind))[0] == 5
    assert compiled("exp", dtype)(np.zeros(1, kind))[0] == 1


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.short)
def test_hypot_at_the_ends_of_the_range(dtype: DType) -> None:
    info = np.finfo(dtype.numpy)
    rng = np.random.default_rng(4)
    for low, high in (
        (info.minexp - info.nmant, info.minexp + 3),
        (info.maxexp - 3, info.maxexp - 1),
    ):
        x, y = (
            np.ldexp(rng.uniform(0.5, 1, 5000), rng.integers(low, high, 5000)).astype(dtype.numpy)
            for _ in range(2)
        )
        assert (
            errors(compiled("hypot", dtype)(x, y), reference("hypot", x, y)).max()
            <= BOUNDS["hypot"]
        )


def test_special_values_of_two_arguments_are_those_of_c() -> None:
    v = np.array(
        [
            0.0,
            -0.0,
            1,
            -1,
            2,
            -2,
            3,
            -3,
            0.5,
            -0.5,
            2.5,
            -2.5,
            np.inf,
            -np.inf,
            np.nan,
            1e308,
            5e-324,
            -5e-324,
        ]
    )
    x, y = np.repeat(v, v.size), np.tile(v, v.size)
    for name in ("pow", "atan2", "hypot"):
        got, want = compiled(name, float64)(x, y), reference(name, x, y)
        e = errors(got, want)
        assert e.max() <= BOUNDS[name], (name, x[int(e.argmax())], y[int(e.argmax())])
