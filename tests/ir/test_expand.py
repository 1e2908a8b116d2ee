"""The standard expansions: measured error, special values, and the form renderers rely on."""

from __future__ import annotations

import numpy as np
import pytest

from rlx.core.dtype import DType, float16, float32, float64
from rlx.ir.expand import BOUNDS, FAST, FUNCTIONS, Function, expansion
from rlx.ir.loop import Expr
from rlx.ir.prim import POINTWISE, TRANSCENDENTAL
from rlx.tools.ulp import compiled, errors, measure, reference

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
    e = errors(compiled(name, float32)(x), reference(name, x))
    assert e.max() <= BOUNDS[name], float(x[int(e.argmax())])


def test_no_expansion_outside_the_table() -> None:
    assert expansion("exp", float16) is None
    assert expansion("add", float32) is None


def test_expansions_are_built_once() -> None:
    assert expansion("exp", float64) is expansion("exp", float64)
