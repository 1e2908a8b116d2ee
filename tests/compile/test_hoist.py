"""Steps that compute the same in every iteration leave their loops; others stay."""

from __future__ import annotations

from typing import Any

import numpy as np

import rlx
from rlx.compile.hoist import hoist
from rlx.core.dtype import float32, int64
from rlx.ir import loop as L


def _kernel(name: str, *access: str) -> L.Kernel:
    params = tuple(L.Param(f"b{i}", float32, 4, a) for i, a in enumerate(access))
    zero = L.const(0)
    loads = [L.load(p.name, zero, float32) for p in params if "r" in p.access] or [L.const(1.0, float32)]
    return L.Kernel(name, params, tuple(L.Store(p.name, zero, loads[0]) for p in params if "w" in p.access))


COPY = _kernel("copy", "r", "w")
BUMP = _kernel("bump", "rw")


def _program(*steps: L.Step) -> L.Program:
    names = {"x": "input", "y": "output"} | {f"t{i}": "temp" for i in range(5)}
    buffers = [L.Buffer(n, float32, 4, role) for n, role in names.items()]
    return L.Program("p", (*buffers, L.Buffer("i", int64, 1, "temp"), L.Buffer("j", int64, 1, "temp")), steps)


def _launch(kernel: L.Kernel, *names: str) -> L.Launch:
    return L.Launch(kernel, names)


def test_a_chain_of_invariant_steps_leaves_nested_loops_in_order() -> None:
    a, b, use = _launch(COPY, "x", "t0"), _launch(COPY, "t0", "t1"), _launch(BUMP, "y")
    read = _launch(COPY, "t1", "t2")
    inner = L.Repeat(3, "j", (a, b, read, use))
    got = hoist(_program(L.Repeat(2, "i", (inner,)))).steps
    assert got == (a, b, read, L.Repeat(2, "i", (L.Repeat(3, "j", (use,)),)))


def test_what_depends_on_the_loop_or_is_written_twice_stays() -> None:
    carried, from_carried = _launch(BUMP, "t0"), _launch(COPY, "t0", "t1")
    output, twice, again = _launch(COPY, "x", "y"), _launch(COPY, "x", "t2"), _launch(COPY, "t0", "t2")
    counted = _launch(L.Kernel("k", (L.Param("b0", int64, 1, "r"), L.Param("b1", float32, 4, "w")),
                               (L.Store("b1", L.const(0), L.const(1.0, float32)),)), "i", "t3")
    body = (carried, from_carried, output, twice, again, counted)
    program = _program(L.Repeat(2, "i", body))
    assert hoist(program).steps == program.steps


def test_a_branch_keeps_its_steps_and_a_test_may_feed_the_body() -> None:
    a, b, use = _launch(COPY, "x", "t0"), _launch(COPY, "t0", "t1"), _launch(BUMP, "t4")
    choice = L.Branch("t4", (_launch(COPY, "x", "t3"),), ())
    got = hoist(_program(L.While((a, use), "t4", (b, choice)))).steps
    assert got == (a, b, L.While((use,), "t4", (choice,)))


def test_weights_of_a_recurrent_loop_are_packed_once() -> None:
    rng = np.random.default_rng(0)
    w, x = (rng.standard_normal(s).astype(np.float32) * 0.2 for s in ((64, 64), (32, 64)))

    def run(x: Any, w: Any) -> Any:
        return rlx.scan(lambda h, _: (rlx.tanh(h @ w), h.sum()), x, rlx.arange(7))[0]

    compiled = rlx.jit(run, dispatch="common")
    X, W = map(rlx.asarray, (x, w))
    program = compiled.lower(X, W).lowered.program
    loops = [s for s in program.steps if isinstance(s, L.Repeat)]
    assert len(loops) == 1
    inside = [s.kernel.notes for s in loops[0].body if isinstance(s, L.Launch)]
    outside = [s.kernel.notes for s in program.steps if isinstance(s, L.Launch)]
    assert any(n.startswith("pack") for n in outside) and not any(n.startswith("pack") for n in inside)
    for _ in range(7):
        x = np.tanh(x @ w)
    np.testing.assert_allclose(np.asarray(compiled(X, W)), x, rtol=1e-4, atol=1e-5)
