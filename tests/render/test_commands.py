"""Command plans: loops gated on the device, branches, counted loops, aliases."""

from __future__ import annotations

import pytest

from rlx.core.dtype import bool_, float32, int32
from rlx.core.errors import CompileError
from rlx.ir import loop as L
from rlx.ir.loop import const, expr, load
from rlx.render import commands as C

ZERO = const(0, int32)


def kernel(name: str, dtype=float32) -> L.Kernel:
    body = (L.Store("b1", ZERO, load("b0", ZERO, dtype)),)
    return L.Kernel(name, (L.Param("b0", dtype, 1, "r"), L.Param("b1", dtype, 1, "w")), body)


def program(*steps: L.Step) -> L.Program:
    names = [L.Buffer(n, float32, 1, "temp", offset=64 * k) for k, n in enumerate("xyz")]
    pred, count = L.Buffer("p", bool_, 1, "temp", offset=512), L.Buffer("n", int32, 1, "temp", offset=640)
    return L.Program("p", (*names, pred, count), steps)


LESS = expr("lt", (load("b0", ZERO, float32), const(1.0, float32)), bool_)
TEST = L.Launch(L.Kernel("test", (L.Param("b0", float32, 1, "r"), L.Param("b1", bool_, 1, "w")),
                         (L.Store("b1", ZERO, LESS),)), ("x", "p"))
STEP = L.Launch(kernel("step"), ("x", "y"))


def test_a_straight_loop_is_a_batch() -> None:
    plan = C.plan(program(L.While((TEST,), "p", (STEP, L.Copy("x", "y")))))
    (batch,) = plan.commands
    assert isinstance(batch, C.Batch)
    head, gate, step, copy = batch.body
    assert head.slot is None and gate.slot is None
    assert [step.slot, copy.slot] == [0, 1] and plan.args == 6
    assert plan.kernels[copy.kernel].name.startswith("copy_")
    assert gate.buffers == ("p", C.FLAGS, C.ARGS)


def test_a_loop_around_a_loop_is_run_by_the_host() -> None:
    inner = L.While((TEST,), "p", (STEP,))
    (outer,) = C.plan(program(L.While((TEST,), "p", (inner,)))).commands
    assert isinstance(outer, C.HostWhile) and isinstance(outer.body[0], C.Batch)


def test_a_branch_in_a_loop_has_two_flags() -> None:
    branch = L.Branch("p", (STEP,), (L.Copy("y", "x"),))
    plan = C.plan(program(L.While((TEST,), "p", (branch,))))
    assert plan.flags == 3 and plan.args == 6


def test_a_branch_alone_asks_nobody() -> None:
    gate, then = C.plan(program(L.Branch("p", (STEP,), ()))).commands
    assert isinstance(gate, C.Dispatch) and then.slot == 0


def test_a_count_on_the_device_is_a_loop() -> None:
    plan = C.plan(program(L.Repeat("n", "n", (STEP,))))
    assert isinstance(plan.commands[-1], C.Batch)
    fixed = C.plan(program(L.Repeat(5, "n", (STEP,))))
    assert isinstance(fixed.commands[-1], C.Times) and C.dispatch_count(fixed.commands) == 11


def test_a_buffer_is_bound_once() -> None:
    merged, names = C.merge_aliases(kernel("k"), ("x", "x"))
    assert names == ("x",) and [p.access for p in merged.params] == ["rw"]
    assert "b1" not in repr(merged.body)


def test_an_empty_grid_launches_nothing() -> None:
    assert C.grid_of((0,)) == (0, 1, 1)
    assert C.grid_of(()) == (1, 1, 1)


def test_a_native_call_is_refused() -> None:
    with pytest.raises(CompileError, match="gemm"):
        C.plan(program(L.Native("gemm", ("x",), ((float32, (1,)),), 1)))
