"""Light records of eager work: what they cost a program (nothing new) and that they mean what nodes mean."""

from __future__ import annotations

import gc
import operator
import re
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.array import lazy
from rlx.array.hooks import hooks
from rlx.array.lazy import Cell
from rlx.core.errors import DeviceError, DTypeError, ShapeError, ValueIssue
from rlx.ir import graph
from rlx.runtime import eager
from rlx.runtime.execute import PROGRAMS

BINARY = [operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow,
          operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne]


def is_light(x: Any) -> bool:
    return type(x._cell) is Cell and x._cell.kind is not None


def test_a_seen_expression_makes_no_nodes() -> None:
    x, y = rlx.asarray(np.arange(5.0)), rlx.asarray(np.ones(5))

    def value(k: float) -> float:
        return float((x + y * k).sum())
    assert [value(2.0), value(3.0)] == [20.0, 25.0]
    made, compiled = next(graph._counter), PROGRAMS.compiles
    assert [value(float(k)) for k in range(50)] == [10.0 + 5 * k for k in range(50)]
    assert next(graph._counter) == made + 1 and PROGRAMS.compiles == compiled


def test_nothing_runs_before_it_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    x = rlx.asarray(np.arange(3.0))
    float((x * 2 + 1).sum())
    seen: list[int] = []
    run = eager.run
    monkeypatch.setattr(hooks, "run", lambda cells: (seen.append(len(cells)), run(cells)))
    z = (x * 2 + 1).sum()
    assert not seen and not z.is_evaluated and z.shape == () and z.dtype == rlx.float64 and z.device == x.device
    assert float(z) == 9.0 and z.is_evaluated and seen == [1]
    assert float(z) == 9.0 and seen == [1]


@pytest.mark.parametrize("f", BINARY, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", ["uint8", "int32", "int64", "float32", "float64"])
def test_operators_give_what_the_functions_give(f: Any, dtype: str) -> None:
    a = np.array([1, 2, 3, 5], dtype)
    x = rlx.asarray(a)
    others: list[Any] = [rlx.asarray(a[::-1].copy()), rlx.asarray(np.array(2, dtype)), 2, 3, 0.5, 2.0, True,
                         np.float32(2)]
    for other in others:
        for left, right in ((x, other), (other, x)):
            if isinstance(left, np.generic):
                continue
            host = [np.asarray(v) if isinstance(v, rlx.Array) else v for v in (left, right)]
            want = f(*host)
            for _ in range(3):
                got = f(left, right)
                assert got.dtype.name == want.dtype.name, (f, left, right)
                assert np.allclose(np.asarray(got), want, rtol=1e-6)


@pytest.mark.parametrize("name", ["exp", "sqrt", "tanh", "floor", "sign", "negative", "abs", "isnan", "square",
                                  "reciprocal", "logical_not", "sin", "log1p"])
def test_functions_of_one(name: str) -> None:
    a = np.array([0.5, 1.0, 2.5])
    f = getattr(rlx, name)
    for x in (rlx.asarray(a), rlx.asarray(a.astype(np.float32)), rlx.asarray(np.array([1, 2, 3]))):
        want = np.asarray(rlx.jit(f)(x))
        for _ in range(3):
            got = f(x)
            assert np.allclose(np.asarray(got), want, rtol=1e-6) and got.dtype.name == want.dtype.name
        assert is_light(f(x))


@pytest.mark.parametrize("call", [
    lambda x: x.sum(), lambda x: x.sum(axis=0), lambda x: x.sum(0), lambda x: x.sum(axis=(0, 1)),
    lambda x: x.sum(axis=1, keepdims=True), lambda x: x.mean(), lambda x: x.mean(axis=-1), lambda x: x.max(axis=1),
    lambda x: x.std(), lambda x: x.var(axis=0), lambda x: x.argmax(), lambda x: x.any(axis=0), lambda x: x.all(),
    lambda x: rlx.permute_dims(x, (1, 0)), lambda x: rlx.expand_dims(x, axis=0), lambda x: x.T,
    lambda x: x.reshape(3, 2),
    lambda x: x.reshape((-1,)), lambda x: x.astype(rlx.float32), lambda x: x.round(), lambda x: -x, lambda x: abs(x),
    lambda x: x**2, lambda x: x**-1, lambda x: x**0, lambda x: x**3 + x**2, lambda x: x @ x.T,
    lambda x: 2 - x, lambda x: 1 / x])
def test_methods_with_arguments(call: Any) -> None:
    a = np.arange(1.0, 7.0).reshape(2, 3)
    x = rlx.asarray(a)
    want = np.asarray(rlx.jit(call)(x))
    for _ in range(4):
        assert np.allclose(np.asarray(call(x)), want, rtol=1e-12)


def test_arguments_that_are_equal_are_not_taken_for_the_same() -> None:
    x = rlx.asarray(np.arange(6.0).reshape(2, 3))
    assert x.sum(axis=1).shape == (2,) and x.sum(axis=1, keepdims=True).shape == (2, 1)
    assert x.sum(axis=0).shape == (3,) and x.sum(axis=1, keepdims=False).shape == (2,)
    assert rlx.reshape(x, (3, 2)).shape == (3, 2)
    assert [(x**k).shape for k in (1, True, 1.0)] == [(2, 3)] * 3
    assert (x * 1).dtype == (x * 1.0).dtype == rlx.float64
    i = rlx.asarray(np.arange(3))
    assert (i * 1).dtype == rlx.int64 and (i * 1.0).dtype == rlx.float64 and (i * True).dtype == rlx.int64


def test_errors_are_raised_at_the_call_with_its_line() -> None:
    x, y = rlx.ones(4), rlx.ones(3)
    for _ in range(3):
        with pytest.raises(ShapeError) as e:
            x + y
        assert "test_eager_calls.py" in str(e.value)
    for _ in range(3):
        with pytest.raises(ShapeError):
            x.sum(axis=3)
        with pytest.raises(DTypeError):
            rlx.asarray(np.ones(3, np.float32)) & rlx.asarray(np.ones(3, np.float32))
    small = rlx.asarray(np.ones(3, np.uint8))
    assert (small + 200).tolist() == [201] * 3
    for bad in (256, -1, 2**70):
        with pytest.raises((DTypeError, OverflowError)):
            small + bad
    with pytest.raises(DeviceError):
        x + rlx.ones(4, device="python")


def test_nodes_made_later_have_the_line_of_the_call() -> None:
    x = rlx.asarray(np.ones(3))
    a = x * 2.0
    b = a + x
    lines = sorted(n.where.line for n in graph.postorder((b._value,)) if n.op in ("mul", "add"))
    first = test_nodes_made_later_have_the_line_of_the_call.__code__.co_firstlineno
    assert lines == [first + 2, first + 3]
    assert all(n.where.file == __file__ for n in graph.postorder((b._value,)))


def test_records_and_nodes_mix() -> None:
    """Work that was handed to the graph of nodes, run there, and used by records again; and the reverse."""
    x = rlx.asarray(np.arange(4.0))
    t = x * 2.0                      # a record
    z = t + 1.0                      # on top of it
    assert t._value.node.op == "mul" and not is_light(t)
    u = rlx.concat([t, t])           # a node
    w = u * 2.0
    assert np.asarray(z).tolist() == [1, 3, 5, 7]
    assert np.asarray(w).tolist() == [0, 4, 8, 12] * 2
    assert np.asarray(t).tolist() == [0, 2, 4, 6] and is_light(t)
    assert float((t + u[:4]).sum()) == 24.0
    a, b = x + 1.0, rlx.concat([x, x])
    rlx.eval(a, b, [t])
    assert a.is_evaluated and b.is_evaluated and is_light(a) and is_light(b)


def test_shared_work_is_done_once_in_a_program() -> None:
    x = rlx.asarray(np.full(3, 1.0))
    for _ in range(30):
        x = x + x
    assert len(lazy.Spelling([x._cell]).order) == 30
    assert x.tolist() == [2.0**30] * 3


def test_equal_pending_work_is_one_computation() -> None:
    x, y = rlx.asarray(np.arange(3.0)), rlx.ones(3)
    x + y, y + x
    a, b, c = x + y, x + y, y + x
    assert a._cell is b._cell and a is not b and a._cell is not c._cell
    assert (x * 2.0)._cell is not (x * 2.0)._cell, "numbers are inputs"
    b += 1.0
    assert a.tolist() == [1, 2, 3] and b.tolist() == [2, 3, 4]
    for i in range(3000):   # identities are used again: what is gone is not taken for what is there
        u = rlx.asarray(np.full(3, float(i)))
        assert (u + y).tolist() == [i + 1.0] * 3
        v = u + y
        del u
    assert v.tolist() == [3000.0] * 3
    from rlx.array import eager as fast
    assert len(fast._pending) <= fast.REMEMBERED


def test_boxes_of_one_value_are_separate() -> None:
    x = rlx.asarray(np.arange(3.0))
    y = x + 1.0
    z = y.copy()
    y[0] = 100.0
    y += 1.0
    assert z.tolist() == [1, 2, 3] and y.tolist() == [101, 3, 4] and x.tolist() == [0, 1, 2]
    p = +x
    p *= 3.0
    assert x.tolist() == [0, 1, 2] and p.tolist() == [0, 3, 6]


def test_intermediate_memory_goes_when_nobody_holds_it() -> None:
    x = rlx.asarray(np.zeros(1000))
    z = ((x + 1.0) * 2.0).sum()
    float(z)
    work = z._cell.work
    assert work is None and z._cell.storage is not None
    gc.collect()
    before = sum(type(o) is Cell for o in gc.get_objects())
    for _ in range(500):
        float(((x + 1.0) * 2.0).sum())
    gc.collect()
    assert sum(type(o) is Cell for o in gc.get_objects()) <= before + 2


def test_a_loop_neither_compiles_nor_grows() -> None:
    x, y = rlx.asarray(np.ones(8)), rlx.asarray(np.full(8, 0.5))
    compiles, blocks = [], []
    for i in range(10_001):
        x = x * 0.999 + y * (i % 7)
        if i % 2000 == 0:
            gc.collect()
            compiles.append(PROGRAMS.compiles)
            float(x[0])
            blocks.append(sys.getallocatedblocks())
    assert compiles[2] == compiles[-1]
    assert blocks[-1] - blocks[2] < 3000


def test_what_is_held_deep_in_an_expression_is_kept() -> None:
    x = rlx.asarray(np.ones(3))
    held = []
    for k in range(12):
        x = x * 1.5 + float(k)
        held.append(x)
    float(x.sum())
    assert all(h.is_evaluated for h in held[4:])
    assert held[0].tolist() == [1.5] * 3


def test_threads_build_and_run_shared_records() -> None:
    x = rlx.asarray(np.arange(100.0))
    shared = [x * float(k) + 1.0 for k in range(20)]
    wrong: list[Any] = []
    start = threading.Barrier(5)

    def work(me: int) -> None:
        start.wait()
        for r in range(20):
            for k, s in enumerate(shared):
                if float((s + float(me)).sum()) != 4950.0 * k + 100 * (me + 1):
                    wrong.append((me, k, r))
    threads = [threading.Thread(target=work, args=(m,)) for m in range(5)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_flags_choose_another_plan() -> None:
    x = rlx.asarray(np.array([1.0, -1.0]))
    assert np.isnan(float(rlx.log(x).sum()))
    assert np.isnan(float(rlx.log(x).sum()))
    with rlx.flags(check="nan"), pytest.raises(ValueIssue, match="NaN"):
        float(rlx.log(x).sum())


def test_the_steps_of_a_function_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    from rlx.array import step
    monkeypatch.setattr(step, "LIMIT", 8)
    monkeypatch.setattr(lazy, "LIMIT", 16)
    for n in range(1, 60):
        x = rlx.asarray(np.ones(n % 30 + 1))
        assert float((x * 2.0 + 1.0).sum()) == 3.0 * (n % 30 + 1)
    assert len(lazy._kinds) <= 18


def test_the_page_on_calls_runs() -> None:
    text = (Path(__file__).parents[2] / "docs" / "calls.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, "calls.md", "exec"), names)
    assert len(blocks) == 3
