"""Lazy arrays: evaluated once, as a whole, from any thread; long chains do not grow; values never change."""

from __future__ import annotations

import gc
import threading
from typing import Any

import numpy as np
import pytest

import rlx
from rlx import device as devices
from rlx.array import build
from rlx.core.errors import DeviceError, TraceError
from rlx.ir.graph import postorder
from rlx.runtime.execute import PROGRAMS


class Counted:
    """Counts the programs that run."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from rlx.runtime.execute import Compiled
        self.runs = 0
        run = Compiled.run

        def counting(program: Any, inputs: Any) -> Any:
            self.runs += 1
            return run(program, inputs)
        monkeypatch.setattr(Compiled, "run", counting)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    return Counted(monkeypatch)


def test_an_array_is_evaluated_once(device: str, counted: Counted) -> None:
    x = rlx.asarray(np.arange(6.0), device=device)
    y = x * 2 + 1
    assert not y.is_evaluated
    for _ in range(3):
        assert np.asarray(y).tolist() == [1, 3, 5, 7, 9, 11]
    assert y.is_evaluated and counted.runs == 1
    z = y + 1
    assert [n.op for n in postorder([z._value])].count("mul") == 0, "what was computed is a leaf of what comes after"
    assert np.asarray(z)[0] == 2 and counted.runs == 2


def test_eval_runs_one_program_for_several_arrays(counted: Counted) -> None:
    x = rlx.asarray(np.arange(6.0))
    a, b, c = x + 1, x * x, (x + 1).sum()
    rlx.eval(a, {"b": b}, [c])
    assert counted.runs == 1 and a.is_evaluated and b.is_evaluated and c.item() == 21.0


def test_equal_expressions_are_one_computation(counted: Counted) -> None:
    x = rlx.asarray(np.arange(6.0))
    a, b = rlx.exp(x).sum(), rlx.exp(x).sum()
    assert a.item() == b.item() and counted.runs == 1


def test_a_new_number_or_new_data_does_not_compile(device: str) -> None:
    def run(scale: float, data: Any) -> float:
        return float((rlx.asarray(data, device=device) * scale + 0.5).sum())
    assert run(2.0, np.ones(3)) == 7.5
    before = PROGRAMS.compiles
    assert [run(s, np.full(3, s)) for s in (3.0, -1.0, 0.0, 1e9)] == [28.5, 4.5, 1.5, 3e18 + 1.5]
    assert PROGRAMS.compiles == before


def test_numbers_of_other_kinds_are_other_programs() -> None:
    x = rlx.asarray(np.arange(3))
    assert (x + 1).dtype == rlx.int64 and (x + 1.0).dtype == rlx.float64
    assert np.asarray(x * True).dtype == np.int64


# Values never change

def test_writing_copies(device: str) -> None:
    x = rlx.asarray(np.zeros(4), device=device)
    y, view, alias, doubled = x.copy(), x[1:3], x, x * 2
    x[1] = 5.0
    x[2:] = rlx.asarray(np.array([7.0, 8.0]), device=device)
    assert np.asarray(x).tolist() == [0, 5, 7, 8] and alias is x
    assert np.asarray(y).tolist() == [0, 0, 0, 0]
    assert np.asarray(view).tolist() == [0, 0] and np.asarray(doubled).tolist() == [0, 0, 0, 0]


def test_an_input_array_is_not_written_by_a_program(device: str) -> None:
    x = rlx.asarray(np.arange(5.0), device=device)
    f = rlx.jit(lambda a: a.at[0].set(99.0))
    assert np.asarray(f(x)).tolist() == [99, 1, 2, 3, 4] and np.asarray(x).tolist() == [0, 1, 2, 3, 4]


def test_numpy_data_is_copied_in_and_read_only_out(device: str) -> None:
    source = np.zeros(3)
    x = rlx.asarray(source, device=device)
    source[0] = 9.0
    assert np.asarray(x).tolist() == [0, 0, 0]
    with pytest.raises(ValueError):
        np.asarray(x)[0] = 1.0


def test_an_evaluated_constant_leaves_kept_graphs_alone(device: str) -> None:
    """The node of an expression becomes a buffer when it is looked at; an equal node in a compiled graph may not."""
    f = rlx.jit(lambda x: x + rlx.arange(5, device=device) * 2)
    x = rlx.asarray(np.ones(5, np.int64), device=device)
    assert np.asarray(f(x)).tolist() == [1, 3, 5, 7, 9]
    text = f.lower(x).lowered.mir.nodes()
    before = [n.op for n in text]
    pending = rlx.arange(5, device=device) * 2
    rlx.eval(rlx.arange(5, device=device), pending)
    assert [n.op for n in text] == before and "buffer" not in before
    assert np.asarray(f(x)).tolist() == [1, 3, 5, 7, 9]


def test_constants_of_a_trace_are_part_of_its_program(device: str) -> None:
    traced = rlx.jit(lambda x: rlx.where(x > 0, x * 2, 0)).trace(rlx.asarray(np.ones(3), device=device))
    assert traced.captured == ()


def test_a_constant_may_be_looked_at_while_tracing() -> None:
    def f(x: Any) -> Any:
        return x + float(rlx.arange(4).sum())
    assert np.asarray(rlx.jit(f)(np.zeros(2))).tolist() == [6.0, 6.0]
    with pytest.raises(TraceError) as e:
        rlx.jit(lambda x: x + float(x.sum()))(np.zeros(2))
    assert e.value.where and e.value.why and e.value.do


# Long chains

def test_a_loop_of_many_small_steps_repeats_one_program() -> None:
    x, y, want = rlx.asarray(np.ones(8)), rlx.asarray(np.full(8, 0.5)), 1.0
    compiles = []
    for i in range(10_000):
        x = x * 0.999 + y * (i % 7)
        want = want * 0.999 + 0.5 * (i % 7)
        if i in (1000, 9999):
            compiles.append(PROGRAMS.compiles)
        assert x._value.node.depth <= build.MAX_PENDING
    assert compiles[0] == compiles[1], "later steps compiled again"
    assert np.asarray(x)[0] == pytest.approx(want, rel=1e-12)


def test_a_long_loop_does_not_keep_its_past() -> None:
    def nodes() -> int:
        gc.collect()
        from rlx.ir import graph
        return len(graph._table)

    def steps(n: int, state: tuple[Any, Any]) -> tuple[Any, Any]:
        p, r = state
        for _ in range(n):
            q = p * 0.5
            r = r - q
            p = r + p * 0.25
        return p, r
    state = steps(1000, (rlx.asarray(np.ones(4)), rlx.asarray(np.ones(4))))
    first = nodes()
    steps(4000, state)
    assert nodes() <= first + 2 * build.MAX_PENDING


# Threads and devices

def test_threads_evaluate_shared_arrays(device: str) -> None:
    base = rlx.asarray(np.arange(1000.0), device=device)
    rlx.eval(base + 1)  # a device without float64 says so here, not in a thread
    shared = [rlx.sin(base * k).cumsum() for k in range(8)]
    want = [np.sin(np.arange(1000.0) * k).cumsum() for k in range(8)]
    found: list[str] = []
    start = threading.Barrier(6)

    def work(me: int) -> None:
        start.wait()
        for k in range(len(shared)):
            i = (k + me) % len(shared)
            got = np.asarray(shared[i] + me)
            if not np.allclose(got, want[i] + me, rtol=1e-12, atol=1e-12):
                found.append(f"array {i} in thread {me}")
    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not found
    assert all(np.allclose(np.asarray(s), w) for s, w in zip(shared, want, strict=True))


def test_tracing_in_one_thread_leaves_another_eager() -> None:
    inside, done = threading.Event(), threading.Event()
    seen: list[bool] = []

    def f(x: Any) -> Any:
        inside.set()
        done.wait(10)
        return x + 1
    t = threading.Thread(target=lambda: rlx.jit(f)(np.zeros(2)))
    t.start()
    inside.wait(10)
    y = rlx.asarray(np.zeros(2)) + 1
    seen.append(y.is_traced or y._value.node.kept)
    done.set()
    t.join()
    assert seen == [False]


@pytest.mark.parametrize("mix", [lambda a, b: a + b, lambda a, b: rlx.concat([a, b]), lambda a, b: a @ b,
                                 lambda a, b: rlx.where(a > 0, b, 0), lambda a, b: rlx.jit(lambda x: x + b)(a),
                                 lambda a, b: rlx.jit(lambda x, y: x + y)(a, b), lambda a,
                                 b: rlx.cond(a.sum() > 0, lambda: b, lambda: b)])
def test_mixed_devices_raise(mix: Any) -> None:
    a, b = rlx.asarray(np.ones(3), device="cpu"), rlx.asarray(np.ones(3), device="python")
    with pytest.raises(DeviceError) as e:
        rlx.eval(mix(a, b))
    assert e.value.where and e.value.why and "to_device" in e.value.do
    assert np.asarray(a + b.to_device("cpu")).tolist() == [2, 2, 2]


def test_a_loop_that_looks_at_part_of_what_it_accumulates() -> None:
    """What the user holds is kept once an expression is deep: nothing grows with the number of steps."""
    x, acc = rlx.asarray(np.ones(50)), rlx.zeros(50)
    counts = []
    for k in range(60):
        acc = acc + x * 0.5
        assert float(acc[0]) == 0.5 * (k + 1)
        counts.append(PROGRAMS.compiles)
    assert counts[-1] == counts[29]


def test_block_until_ready_waits_for_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    waited = []
    kind = type(devices.find("cpu"))
    monkeypatch.setattr(kind, "synchronize", lambda self: waited.append(self.name))
    x = rlx.asarray([1.0, 2.0], device="cpu") + 1
    assert x.block_until_ready() is x and waited == ["cpu"]
