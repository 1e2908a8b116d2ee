"""Why a function was compiled again, the guard against it, the NaN locator, and the graph page."""

from __future__ import annotations

import numpy as np
import pytest

import rlx
from rlx.core.errors import CompileError, ValueIssue
from rlx.tools import cli


def test_no_compile():
    f = rlx.jit(lambda x: x * 3 + 1)
    f(np.ones(4))
    with rlx.no_compile():
        f(np.zeros(4))
        with pytest.raises(CompileError, match="no_compile"):
            f(np.ones(5)).numpy()
        with pytest.raises(CompileError, match="would be compiled"):
            (rlx.asarray(np.ones((3, 7))) * 2.5 - 1).numpy()
    f(np.ones(5))


def test_explain_recompile():
    f = rlx.jit(lambda x: x + 1)
    assert rlx.explain_recompile(f) == "never called"
    f(np.ones(2))
    f(np.ones(2, np.float32))
    assert rlx.explain_recompile(f).splitlines() == ["1. first call", "2. argument 0 changed from f64[2] to f32[2]"]
    with pytest.raises(ValueIssue, match="explain_recompile"):
        rlx.explain_recompile(len)


@pytest.mark.parametrize("target", ["cpu", "python"])
def test_the_first_nan_is_named(target):
    def f(x):
        return rlx.exp(rlx.log(x) * 2).sum()
    with rlx.flags(check="nan", device=target):
        x = rlx.asarray(np.array([1.0, 2.0]))
        assert f(x).item() == pytest.approx(5.0)
        with pytest.raises(ValueIssue, match=r"log .* is the first") as e:
            f(x - 1.5).item()
        assert "test_inspect.py" in e.value.where and "from -0.5 to 0.5" in e.value.why
        with pytest.raises(ValueIssue, match=r"argument 0 .* 1 NaN of 2"):
            rlx.jit(f)(np.array([1.0, np.nan]))
        with pytest.raises(ValueIssue, match=r"sqrt .* is the first"):
            rlx.jit(rlx.grad(lambda x: (rlx.log(x) * 0).sum() + rlx.sqrt(x - 5).sum()))(np.array([1.0, 2.0]))
    assert np.isnan(f(rlx.asarray([-1.0])).item())


def _roots(x):
    return rlx.fori_loop(0, 6, lambda i, c: rlx.sqrt(c - 1.0), x)


def _nested(x):
    def inner(j, d):
        return rlx.log(d)
    return rlx.while_loop(lambda c: c.sum() > -1e6, lambda c: rlx.fori_loop(0, 2, inner, c), x)


def _branched(x):
    return rlx.cond(x.sum() > 0, lambda x: rlx.log(-x) + 1, lambda x: x, x)


def _backward(x):
    # inf * 0: the square root's slope at 0, times the slope of the square.
    return rlx.grad(lambda x: rlx.fori_loop(0, 3, lambda i, c: rlx.sqrt(c * c), x).sum())(x)


@pytest.mark.parametrize("f, start, op, inside", [
    (_roots, 100.0, "sqrt", "in iteration 4 of the loop at "), (_nested, 20.0, "log", "in iteration 0 of the loop at "),
    (_nested, 20.0, "log", "in iteration 2 of the while at "), (_branched, 0.5, "log", "NaN"),
    (_backward, 0.0, "mul|div", "in iteration 0 of the loop at "),
])
def test_the_first_nan_in_a_loop_is_named(f, start, op, inside):
    with rlx.flags(check="nan"), pytest.raises(ValueIssue, match=f"({op}) .* is the first.*{inside}"):
        rlx.eval(rlx.jit(f)(np.array([start])))


def test_graph_page(tmp_path, capsys):
    out = tmp_path / "g.html"
    loop = "rlx.fori_loop(0, 3, lambda i, c: rlx.tanh(c @ w), x)"
    assert cli.main(["viz", loop, "x:f64[4]", "w:f64[4,4]", "-o", str(out)]) == 0
    text = out.read_text()
    assert "<svg" in text and "tanh" in text and "loop" in text and "body" in text and "f64[4,4]" in text
    assert "http" not in text
    assert cli.main(["viz", "x + 1", "x:f64[2]", "--level", "mir", "-o", str(out)]) == 0
