"""Symbolic dimensions: in types from tracing on, with arithmetic and bounds, and bound before compiling."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from rlx.array.tree import flatten
from rlx.core.errors import CompileError, ShapeError
from rlx.core.shape import Dim, broadcast_shapes, dim, largest, smallest
from rlx.runtime.execute import compile_for

N = dim("n", low=1, high=1000)


def test_arithmetic_has_one_normal_form() -> None:
    assert (N + 1) * 2 == 2 * N + 2
    assert N - N == 0 and N * 0 == 0 and N + 0 == N
    assert (N * 4) // 2 == N * 2 and (N * 4) % 2 == 0
    assert (N + 1) * (N - 1) == N * N - 1
    assert repr(2 * N + 3) == "3 + 2*n"


def test_bounds_decide_comparisons() -> None:
    assert (2 * N + 1).bounds() == (3, 2001)
    assert largest(N, 1) == N and smallest(N, 5000) == N
    assert isinstance(largest(N, 5), Dim) and largest(N, 5).bind({"n": 3}) == 5
    with pytest.raises(ShapeError, match="out of its bounds"):
        N.bind({"n": 1001})


def test_broadcasting() -> None:
    assert broadcast_shapes((N, 1), (3,), (1, N, 3)) == (1, N, 3)
    with pytest.raises(ShapeError):
        broadcast_shapes((N,), (4,))


def model(x: Any, w: Any) -> Any:
    h = rlx.softmax(x @ w)
    return {"total": (h.reshape(-1) * 2).sum(), "part": h[:, :2].T, "twice": rlx.concat([h, h]), "mean": h.mean(axis=0),
            "max": h.max(axis=1), "shift": rlx.exp(h) - h[:1], "every other": h[::2], "last": h[-1:], "back": h[::-1]}


@pytest.mark.parametrize("n", [1, 5, 33])
def test_a_traced_graph_is_bound_and_run(n: int) -> None:
    t = rlx.make_graph(model, rlx.spec("f64", (N, 4)), rlx.spec("f64", (4, 3)))
    program = compile_for(t.bind(n=n).graph, "cpu")
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((n, 4)), rng.standard_normal((4, 3))
    device = program.device
    outs = program.run([device.upload(x), device.upload(w)])
    expected, _ = flatten(model(rlx.asarray(x), rlx.asarray(w)))
    for got, want, t_out in zip(outs, expected, program.outputs, strict=True):
        np.testing.assert_allclose(device.download(got, t_out.dtype, t_out.shape), np.asarray(want), rtol=1e-12)


def test_an_unbound_program_is_refused() -> None:
    t = rlx.make_graph(model, rlx.spec("f64", (N, 4)), rlx.spec("f64", (4, 3)))
    with pytest.raises(CompileError, match="sizes that are not known"):
        compile_for(t.graph, "cpu")


def test_a_loop_over_an_unknown_size() -> None:
    def f(x: Any) -> Any:
        return rlx.fori_loop(0, 3, lambda i, v: v * 2 + x, x)
    t = rlx.make_graph(f, rlx.spec("f32", (N,)))
    assert t.graph.outputs[0].shape == (N,)
    assert t.bind(n=7).graph.outputs[0].shape == (7,)
