"""Kernels through the LLVM renderer: loops, registers, vectorisation, and the text."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from rlx.core.dtype import DType, bfloat16, bool_, complex128, float16, float32, float64, int32, int64, uint8
from rlx.core.errors import CompileError
from rlx.ir import loop
from rlx.ir.loop import Assign, Atomic, For, If, Kernel, Let, Loop, Param, Register, Store, const, load, var
from rlx.render.llvm import Helpers, module, render_kernel, symbol
from tests.render.build import I, J, K, loop_over, op
from tests.render.llvm_jit import Jitted, from_bf16, optimised, pointwise, to_bf16

ROOT = Path(__file__).parents[2]


def reduction(
    name: str,
    combine: str,
    d: DType,
    n: int,
    init: float,
    *,
    reassoc: bool = True,
    value: Callable[[loop.Expr], loop.Expr] = lambda x: x,
    kind: str = loop.SERIAL,
) -> Kernel:
    """``out[0] = combine over i of value(x[i])``."""
    step = Assign("acc", op(combine, var("acc", d), value(load("x", I, d))), reassoc)
    return Kernel(
        name,
        (Param("x", d, n, "r"), Param("out", d, 1, "w")),
        (
            Register("acc", const(init, d)),
            loop_over("i", n, step, kind=kind),
            Store("out", const(0), var("acc", d)),
        ),
    )


def function_text(text: str, name: str) -> str:
    """One function out of module text."""
    found = re.search(rf"define [^@]*@{re.escape(name)}\(.*?\n}}", text, re.S)
    assert found, name
    return found.group(0)


def vector_types(kernel: Kernel) -> set[str]:
    """Vector types that appear in the optimised kernel."""
    return set(
        re.findall(r"<\d+ x \w+>", function_text(str(optimised(module([kernel]))), symbol(kernel.name)))
    )


def test_grid_index_is_decomposed_last_loop_fastest() -> None:
    body = Store(
        "y",
        op("add", op("mul", op("add", op("mul", I, const(3)), J), const(5)), K),
        op("cast", op("add", op("mul", I, const(100)), op("add", op("mul", J, const(10)), K)), dtype=int32),
    )
    nest = loop_over(
        "i", 2, loop_over("j", 3, loop_over("k", 5, body, kind=loop.GRID), kind=loop.GRID), kind=loop.GRID
    )
    kernel = Kernel("grid", (Param("y", int32, 30, "w"),), (nest,))
    y = np.zeros(30, np.int32)
    Jitted([kernel])("grid", y)
    i, j, k = np.indices((2, 3, 5))
    np.testing.assert_array_equal(y, (100 * i + 10 * j + k).ravel())


@pytest.mark.parametrize("d", [float32, float64])
def test_matrix_product_in_nested_loops(d: DType) -> None:
    m, n, k = 7, 9, 33
    a, b = (
        load("a", op("add", op("mul", I, const(k)), K), d),
        load("b", op("add", op("mul", K, const(n)), J), d),
    )
    cell = (
        Register("acc", const(0, d)),
        loop_over("k", k, Assign("acc", op("fma", a, b, var("acc", d)), True)),
        Store("c", op("add", op("mul", I, const(n)), J), var("acc", d)),
    )
    kernel = Kernel(
        "mm",
        (Param("a", d, m * k, "r"), Param("b", d, k * n, "r"), Param("c", d, m * n, "w")),
        (loop_over("i", m, loop_over("j", n, *cell, kind=loop.VECTOR), kind=loop.GRID),),
    )
    rng = np.random.default_rng(0)
    x, y, c = (rng.normal(size=s).astype(d.numpy) for s in ((m, k), (k, n), (m, n)))
    Jitted([kernel])("mm", x, y, c)
    np.testing.assert_allclose(c, x @ y, rtol=0, atol=200 * np.finfo(d.numpy).eps)


@pytest.mark.parametrize(
    ("combine", "init"), [("add", 0.0), ("mul", 1.0), ("min", np.inf), ("max", -np.inf)]
)
@pytest.mark.parametrize("d", [float16, bfloat16, float32, float64], ids=lambda d: d.short)
def test_reductions(combine: str, init: float, d: DType) -> None:
    n = 203
    x = np.random.default_rng(1).normal(1.0, 0.05, n).astype(np.float64)
    stored = to_bf16(x.astype(np.float32)) if d == bfloat16 else x.astype(d.numpy)
    exact = (from_bf16(stored) if d == bfloat16 else stored).astype(np.float64)
    out = np.zeros(1, d.numpy)
    jitted = Jitted([reduction("r", combine, d, n, init)])
    jitted("r", stored, out)
    got = float(from_bf16(out)[0]) if d == bfloat16 else float(out[0])
    want = {"add": exact.sum(), "mul": exact.prod(), "min": exact.min(), "max": exact.max()}[combine]
    eps = 2.0**-8 if d == bfloat16 else float(np.finfo(d.numpy).eps)
    assert abs(got - want) <= (0 if combine in ("min", "max") else n * eps * abs(want))
    if d != bfloat16:
        stored[57] = np.nan
        jitted("r", stored, out)
        assert np.isnan(out[0])


@pytest.mark.parametrize("d", [float32, float64])
@pytest.mark.parametrize(("combine", "init"), [("add", 0.0), ("max", -np.inf), ("min", np.inf)])
def test_reductions_vectorise(d: DType, combine: str, init: float) -> None:
    wide = {"float32": "float", "float64": "double"}[d.name]
    assert any(wide in t for t in vector_types(reduction("r", combine, d, 4096, init)))
    absolute = reduction("r", combine, d, 4096, init, value=lambda x: op("mul", x, x))
    assert any(wide in t for t in vector_types(absolute))


def test_dot_product_by_fma_vectorises() -> None:
    d = float32
    step = Assign("acc", op("fma", load("x", I, d), load("y", I, d), var("acc", d)), True)
    kernel = Kernel(
        "dot",
        (Param("x", d, 4096, "r"), Param("y", d, 4096, "r"), Param("out", d, 1, "w")),
        (Register("acc", const(0, d)), loop_over("i", 4096, step), Store("out", const(0), var("acc", d))),
    )
    assert any("float" in t for t in vector_types(kernel))


def test_strict_sum_keeps_its_order() -> None:
    """Without ``reassoc`` the sum runs from the left, even where the values make every order differ."""
    x = np.random.default_rng(2).normal(size=999) * 10.0 ** (np.arange(999) % 7)
    x = x.astype(np.float32)
    out = np.zeros(1, np.float32)
    Jitted([reduction("s", "add", float32, 999, 0.0, reassoc=False)])("s", x, out)
    want = np.float32(0)
    for v in x:
        want += v
    assert out[0] == want


@pytest.mark.parametrize("d", [float32, float64])
@pytest.mark.parametrize("name", ["exp", "log", "sqrt"])
def test_vector_loop_of_a_function_vectorises(d: DType, name: str) -> None:
    kernel = pointwise("k", name, (d,), d, 4096)
    text = function_text(str(optimised(module([kernel]))), "k")
    wide = {"float32": "float", "float64": "double"}[d.name]
    assert re.search(rf"store <\d+ x {wide}>", text)
    assert f"@{name}" not in text


@pytest.mark.parametrize("d", [float32, float64])
@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
@pytest.mark.parametrize("huge", [0.0, 1e30])
def test_rare_case_of_a_function_in_place(name: str, d: DType, huge: float) -> None:
    """One huge argument among ordinary ones takes the whole loop to its complete version, also in place."""
    kernel = pointwise("k", name, (d,), d, 301)
    x = np.linspace(-20, 20, 301).astype(d.numpy)
    x[203] += d.numpy.type(huge)
    wide = np.float64 if d == float32 else np.longdouble
    want = getattr(np, name)(x.astype(wide))
    if (
        huge and d == float64
    ):  # the extended-precision functions reduce such arguments correctly, if they exist
        want[203] = getattr(math, name)(float(x[203]))
    Jitted([kernel])("k", x, x)
    np.testing.assert_allclose(x.astype(wide), want, rtol=4 * np.finfo(d.numpy).eps, atol=1e-15)


def test_rare_case_inside_a_reduction() -> None:
    d, n = float64, 100
    kernel = reduction("r", "add", d, n, 0.5, value=lambda x: op("sin", x), kind=loop.VECTOR)
    for top in (3.0, 1e22):
        x, out = np.linspace(0, top, n), np.zeros(1)
        Jitted([kernel])("r", x, out)
        np.testing.assert_allclose(out[0], 0.5 + sum(map(math.sin, x)), rtol=1e-13)


def test_common_case_loop_has_no_argument_reduction() -> None:
    """The version run for ordinary arguments is a vector loop far shorter than the complete one."""
    text = module([pointwise("k", "sin", (float64,), float64, 4096)])
    complete = function_text(text, "rlx.sin.f64")
    assert function_text(text, "rlx.sin.f64.common").count("\n") < complete.count("\n") / 2
    assert re.search(r"store <\d+ x double>", function_text(str(optimised(text)), "k"))


def test_register_loop_with_in_kernel_exit() -> None:
    """Newton's square root until it stops changing: a loop whose condition reads registers and memory."""
    d = float64
    y, old = var("y", d), var("old", d)
    going = op(
        "and",
        op("ne", y, old, dtype=bool_),
        op("lt", var("n"), load("limit", const(0), int64), dtype=bool_),
    )
    body = (
        Assign("old", y),
        Assign("y", op("mul", op("add", y, op("div", var("x", d), y)), const(0.5, d))),
        Assign("n", op("add", var("n"), const(1))),
    )
    kernel = Kernel(
        "newton",
        (Param("a", d, 9, "r"), Param("limit", int64, 1, "r"), Param("out", d, 9, "w")),
        (
            loop_over(
                "i",
                9,
                Let("x", load("a", I, d)),
                Register("y", var("x", d)),
                Register("old", const(0, d)),
                Register("n", const(0)),
                Loop(going, body),
                Store("out", I, y),
            ),
        ),
    )
    a, out = np.linspace(0.5, 1e6, 9), np.zeros(9)
    jitted = Jitted([kernel])
    jitted("newton", a, np.array([100]), out)
    np.testing.assert_allclose(out, np.sqrt(a), rtol=1e-15)
    jitted("newton", a, np.array([0]), out)
    np.testing.assert_array_equal(out, a)


@pytest.mark.parametrize("index", [int32, int64], ids=lambda d: d.short)
def test_sparse_rows_with_loaded_bounds(index: DType) -> None:
    d, n, nnz = float64, 40, 300
    rng = np.random.default_rng(3)
    pointers = np.sort(rng.integers(0, nnz, n + 1)).astype(index.numpy)
    columns, values, x = (
        rng.integers(0, n, nnz).astype(index.numpy),
        rng.normal(size=nnz),
        rng.normal(size=n),
    )
    k = var("k", index)
    start, stop = load("p", I, index), load("p", op("add", I, const(1)), index)
    term = op("mul", load("v", k, d), load("x", load("c", k, index), d))
    row = For("k", start, stop, 1, loop.SERIAL, (Assign("acc", op("add", var("acc", d), term), True),))
    kernel = Kernel(
        "csr",
        (
            Param("p", index, n + 1, "r"),
            Param("c", index, nnz, "r"),
            Param("v", d, nnz, "r"),
            Param("x", d, n, "r"),
            Param("y", d, n, "w"),
        ),
        (
            loop_over(
                "i", n, Register("acc", const(0, d)), row, Store("y", I, var("acc", d)), kind=loop.GRID
            ),
        ),
    )
    y = np.zeros(n)
    Jitted([kernel])("csr", pointers, columns, values, x, y)
    want = [values[a:b] @ x[columns[a:b]] for a, b in pairwise(pointers)]
    np.testing.assert_allclose(y, want, rtol=1e-12, atol=1e-12)


def test_if_else_steps_down_and_unrolls() -> None:
    odd = op("eq", op("rem", I, const(2)), const(1), dtype=bool_)
    kernel = Kernel(
        "k",
        (Param("y", int64, 20, "w"),),
        (
            For(
                "i",
                const(19),
                const(-1),
                -1,
                loop.SERIAL,
                (If(odd, (Store("y", I, const(-1)),), (Store("y", I, I),)),),
            ),
            loop_over("j", 4, Store("y", J, const(7)), kind=loop.UNROLL, step=3),
        ),
    )
    y = np.zeros(20, np.int64)
    Jitted([kernel])("k", y)
    want = np.where(np.arange(20) % 2 == 1, -1, np.arange(20))
    want[[0, 3]] = 7
    np.testing.assert_array_equal(y, want)


def test_in_place_update() -> None:
    """One array bound to a read and a write parameter, touched at the same index."""
    kernel = pointwise("k", "exp", (float64,), float64, 100)
    x = np.linspace(-1, 1, 100)
    want = np.exp(x)
    Jitted([kernel])("k", x, x)
    np.testing.assert_allclose(x, want, rtol=4e-16)


@pytest.mark.parametrize(
    ("kernel", "what"),
    [
        (Kernel("b", (), (loop_over("i", 4, kind=loop.BLOCK),)), "block"),
        (Kernel("l", (), (loop_over("i", 4, kind=loop.LANE),)), "lane"),
        (Kernel("g", (), (loop_over("i", 4, loop_over("j", 2, kind=loop.GRID)),)), "grid"),
        (Kernel("o", (), (loop_over("i", 4, kind=loop.GRID, start=1),)), "grid"),
        (Kernel("z", (), (loop_over("i", 4, step=0),)), "step 0"),
        (Kernel("u", (Param("y", int64, 1, "w"),), (Store("y", const(0), var("q")),)), "'q'"),
        (Kernel("s", (), (Assign("q", const(1)),)), "'q'"),
        (Kernel("m", (), (Store("y", const(0), const(1)),)), "'y'"),
        (
            Kernel(
                "c",
                (Param("y", complex128, 1, "rw"),),
                (Atomic("max", "y", const(0), const(1j, complex128)),),
            ),
            "complex128",
        ),
    ],
    ids=lambda v: v.name if isinstance(v, Kernel) else "",
)
def test_refusals_say_why(kernel: Kernel, what: str) -> None:
    with pytest.raises(CompileError, match=re.escape(what)) as refused:
        render_kernel(kernel, Helpers())
    assert refused.value.why and refused.value.do


def test_names_become_legal_and_stay_distinct() -> None:
    assert symbol("fused_add.3") == "fused_add.3"
    assert symbol("a b") != symbol("a_b") != symbol("a-b") != symbol("a b")
    kernel = pointwise("soft max/é", "neg", (uint8,), uint8, 3)
    y = np.zeros(3, np.uint8)
    Jitted([kernel])("soft max/é", np.array([1, 2, 0], np.uint8), y)
    np.testing.assert_array_equal(y, [255, 254, 0])


def _sample() -> Kernel:
    x = load("x", op("add", op("mul", I, const(64)), J), float32)
    body = (
        Let("v", op("fma", x, const(0.5, float32), load("b", J, float32))),
        Store(
            "y",
            op("add", op("mul", I, const(64)), J),
            op("max", op("exp", var("v", float32)), const(1, float32)),
        ),
    )
    return Kernel(
        "row_exp",
        (Param("x", float32, 512, "r"), Param("b", float32, 64, "r"), Param("y", float32, 512, "w")),
        (loop_over("i", 8, loop_over("j", 64, *body, kind=loop.VECTOR), kind=loop.GRID),),
    )


def test_kernel_text_is_as_recorded(golden: Callable[[str, str], None]) -> None:
    golden("llvm/row_exp.ll", render_kernel(_sample(), Helpers()))


def test_text_does_not_depend_on_the_hash_seed() -> None:
    program = (
        "from tests.render.test_llvm import _sample, reduction\n"
        "from rlx.core.dtype import float64, complex64\n"
        "from tests.render.llvm_jit import pointwise\nfrom rlx.render.llvm import module\n"
        "print(module([_sample(), reduction('r', 'max', float64, 9, 0.0), "
        "pointwise('p', 'pow', (complex64,) * 2, complex64, 4)]))"
    )
    texts = [
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert texts[0] == texts[1] and "@rlx.exp.f32" in texts[0]


def test_shared_expressions_are_computed_once() -> None:
    """Doubling a shared expression 3000 times is 3000 instructions, and depth does not meet recursion."""
    e = load("x", I, float64)
    for _ in range(3000):
        e = op("add", e, e)
    kernel = Kernel(
        "k",
        (Param("x", float64, 4, "r"), Param("y", float64, 4, "w")),
        (loop_over("i", 4, Store("y", I, e)),),
    )
    assert render_kernel(kernel, Helpers()).count("fadd") == 3000
