"""Native calls on cpu: what they guard, what they give, and that no reference is lost or kept."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import weakref
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.array.jit import ENTRIES, Jitted
from rlx.array.lazy import Cell
from rlx.core import flags
from rlx.core.errors import RlxError, ShapeError, TraceError
from rlx.device import find
from rlx.device.cpu import calls, entry

pytestmark = pytest.mark.skipif(find("cpu").native_calls() is None, reason=f"no native calls: {entry.absent()}")


def warm(f: Any, *args: Any, **kwargs: Any) -> Any:
    """The result of a later call: the first compiles, the second gives the native call its entry."""
    f(*args, **kwargs)
    f(*args, **kwargs)
    return f(*args, **kwargs)


class Spy:
    """Counts the calls that reach Python."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        split = Jitted._split

        def counted(*args: Any) -> Any:
            self.count += 1
            return split(*args)
        monkeypatch.setattr(Jitted, "_split", counted)


@pytest.fixture
def spy(monkeypatch: pytest.MonkeyPatch) -> Spy:
    return Spy(monkeypatch)


def test_the_interpreter_is_not_entered(spy: Spy) -> None:
    f = rlx.jit(lambda a, b: a + b * 2)
    x, y = rlx.asarray(np.arange(6.0).reshape(2, 3)), rlx.asarray(np.ones((2, 3)))
    warm(f, x, y)
    before = spy.count
    outs = [f(x, y) for _ in range(100)]
    assert spy.count == before
    assert all(np.array_equal(np.asarray(o), np.asarray(x) + 2) for o in outs)
    assert len({o._cell.storage.address for o in outs}) == 100, "each call has memory of its own"


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64",
                                   "float16", "float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("shape", [(), (2, 3), (0, 3, 1)])
def test_every_dtype_and_rank(spy: Spy, dtype: str, shape: tuple[int, ...]) -> None:
    host = np.asarray(np.arange(int(np.prod(shape))).reshape(shape) % 2, dtype)
    f = rlx.jit(lambda a: rlx.where(a == a, a, a))
    for x in (host, rlx.asarray(host)):
        warm(f, x)
        before = spy.count
        out = f(x)
        assert spy.count == before
        assert out.shape == shape and out.dtype.name == dtype and np.array_equal(np.asarray(out), host)


def test_large_outputs_start_at_a_cache_line() -> None:
    f = rlx.jit(lambda a: a + 1)
    for n in (calls.LARGE // 8 - 1, calls.LARGE // 8, 100_003):
        out = warm(f, np.zeros(n))
        assert out._cell.storage.address % 64 == 0 or n < calls.LARGE // 8
        assert out._cell.storage.address == out._cell.storage.array.ctypes.data
        assert np.asarray(out).sum() == n


# Guards

def test_what_differs_is_not_taken_for_the_same() -> None:
    f = rlx.jit(lambda a, b: a + b)
    x, y = np.arange(6, dtype=np.float32).reshape(2, 3), np.ones((2, 3), np.float32)
    warm(f, x, y)
    others: list[tuple[Any, Any]] = [
        (x.astype(np.float64), y), (x, y.astype(np.int32)), (x[:1], y), (x.reshape(3, 2), y.reshape(3, 2)),
        (np.arange(24, dtype=np.float32).reshape(4, 6)[::2, ::2], y), (x.T.copy().T, y), (x[::-1], y),
        (x.astype(">f4"), y), (rlx.asarray(x), y), (x, rlx.asarray(y)), (rlx.asarray(x) * 2, y), (x, 2.0), (2, y),
        (True, y), (x, np.float32(3)), (np.ma.masked_array(x), y), (x.ravel(), np.float32(1)),
        (np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(np.float32).reshape(2, 3), y),
    ]
    for a, b in others:
        for _ in range(4):
            want = np.asarray(a) + np.asarray(b)
            got = np.asarray(f(a, b))
            assert got.shape == want.shape and np.array_equal(got, want), (type(a), type(b))
    assert np.array_equal(np.asarray(f(x, y)), x + y)
    assert "argument 0 changed from f32[2, 3] to f64[2, 3]" in rlx.explain_recompile(f)


def test_wrong_calls_raise_as_before() -> None:
    f = rlx.jit(lambda a, b: a + b)
    x = rlx.asarray(np.ones(3))
    warm(f, x, x)
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        f(x)
    with pytest.raises(TypeError, match="positional arguments but 3"):
        f(x, x, x)
    with pytest.raises(TypeError, match="unexpected keyword"):
        f(x, c=x)
    with pytest.raises(ShapeError):
        f(x, rlx.ones(4))
    with pytest.raises(RlxError):
        f(x, object())
    assert np.asarray(f(x, b=x)).tolist() == [2, 2, 2]
    assert np.asarray(f(x, x)).tolist() == [2, 2, 2]


def test_numbers_are_arguments() -> None:
    f = rlx.jit(lambda a, s: a * s)
    x = rlx.asarray(np.ones(2))
    warm(f, x, 1.5), warm(f, x, 2), warm(f, x, True)
    count = f.cache_size
    assert np.asarray(f(x, 2.5)).tolist() == [2.5, 2.5]
    assert np.asarray(f(x, -(2**62))).tolist() == [-(2.0**62)] * 2
    assert np.asarray(f(x, False)).tolist() == [0, 0]
    assert f.cache_size == count
    with pytest.raises((RlxError, OverflowError)):
        f(x, 2**70)
    ints = rlx.jit(lambda n: n + 1)
    warm(ints, 1)
    assert int(ints(2**62)) == 2**62 + 1 and int(ints(-5)) == -4


def test_static_arguments_are_part_of_the_entry() -> None:
    f = rlx.jit(lambda a, n: a * n, static_argnums=1)
    x = rlx.asarray(np.ones(2))
    assert [float(warm(f, x, n)[0]) for n in (2, 3, 2)] == [2.0, 3.0, 2.0]
    assert f.cache_size == 2
    g = rlx.jit(lambda a, t: a + len(t), static_argnums=1)
    for i in range(20):  # equal, and another object each time: entries are bounded
        assert float(g(x, tuple(range(int(str(3)))))[0]) == 4.0, i
    assert g.cache_size == 1 and len(g._entries) <= ENTRIES


def test_flags_are_guards(monkeypatch: pytest.MonkeyPatch) -> None:
    f = rlx.jit(lambda a: rlx.exp(a))
    x = rlx.asarray(np.ones(4))
    warm(f, x)
    assert f.cache_size == 1
    with rlx.flags(kernel_dispatch="common"):
        warm(f, x)
        assert f.cache_size == 2
    warm(f, x)
    assert f.cache_size == 2
    monkeypatch.setenv("RLX_KERNEL_DISPATCH", "strict")
    with pytest.raises(RlxError):
        f(x)
    monkeypatch.delenv("RLX_KERNEL_DISPATCH")
    assert np.allclose(np.asarray(f(x)), np.e)


def test_checks_are_not_passed_by() -> None:
    f = rlx.jit(lambda a: rlx.log(a))
    x = rlx.asarray(np.array([1.0, -1.0]))
    warm(f, x)
    with rlx.flags(check="nan"), pytest.raises(RlxError, match="NaN"):
        f(x)
    assert np.isnan(np.asarray(f(x))[1])


# Trees

@dataclass(frozen=True)
class Point:
    x: Any
    y: Any


def test_trees_in_and_out(spy: Spy) -> None:
    def body(p: dict[str, Any], rest: list[Any]) -> Any:
        return {"b": p["w"] + rest[0][0], "a": p["v"][1] * rest[1]}
    f = rlx.jit(body)
    p = {"w": rlx.asarray(np.ones(2)), "v": (np.zeros(3), np.arange(3.0))}
    rest = [(np.full(2, 5.0),), 2.0, None]
    warm(f, p, rest)
    before = spy.count
    out = f(dict(reversed(p.items())), rest)
    assert spy.count == before
    assert list(out) == ["a", "b"] and np.asarray(out["a"]).tolist() == [0, 2, 4]
    assert np.asarray(out["b"]).tolist() == [6, 6]
    for wrong in ({"w": p["w"]}, {**p, "z": 1.0}, {"w": p["w"], "u": p["v"]}, {"w": p["w"], "v": list(p["v"])}):
        try:
            other = f(wrong, rest)
        except KeyError:
            continue
        assert np.asarray(other["a"]).tolist() == [0, 2, 4]
    assert spy.count > before


@pytest.mark.parametrize("make", [lambda a: (a, a + 1), lambda a: [a + 1, a], lambda a: {"z": a, "y": a + 1},
                                  lambda a: (a, [a + 1, {"k": a}]), lambda a: Point(a, a + 1), lambda a: (),
                                  lambda a: None, lambda a: [], lambda a: {}, lambda a: ((), a)])
def test_results_have_the_structure_that_the_function_gives(make: Any) -> None:
    f = rlx.jit(make)
    x = rlx.asarray(np.arange(3.0))
    first, later = f(x), warm(f, x)
    a, b = [], []
    rlx.tree_map(lambda u, v: (a.append(np.asarray(u)), b.append(np.asarray(v))), first, later)
    assert type(first) is type(later)
    assert all(np.array_equal(u, v) for u, v in zip(a, b, strict=True))


def test_other_trees_go_through_python() -> None:
    f = rlx.jit(lambda p: p.x * p.y)
    for _ in range(4):
        assert np.asarray(f(Point(np.ones(2), 3.0))).tolist() == [3, 3]


# Lifetimes

def drift(f: Any, watched: list[Any], times: int) -> list[int]:
    gc.collect()
    before = [sys.getrefcount(w) for w in watched]
    for _ in range(times):
        f()
    gc.collect()
    return [sys.getrefcount(w) - n for w, n in zip(watched, before, strict=True)]


def test_references_balance_over_many_calls() -> None:
    f = rlx.jit(lambda a, b, c: (a + b, {"k": c * 2.0}))
    g = rlx.jit(lambda a: [a + 1, a])
    x, y = rlx.asarray(np.ones(4)), np.ones(4)
    big = rlx.asarray(np.ones(1000))
    warm(f, x, y, 1.5), warm(g, big)
    cell = x._cell
    assert isinstance(cell, Cell)
    watched = [x, cell, cell.storage, cell.storage.array, cell.kind, y, y.dtype, None, False, f, f._table, 1.5, big,
               np.dtype(np.uint8), rlx.Array, Cell, type(cell.storage), np.ndarray, "k"]
    found = drift(lambda: (f(x, y, 1.5), g(big)), watched, 50_000)
    assert all(abs(n) < 40 for n in found), found


def test_memory_does_not_grow() -> None:
    f = rlx.jit(lambda a: (a + 1, a * 2))
    x = rlx.asarray(np.ones(4))
    warm(f, x)

    def blocks(n: int) -> int:
        for _ in range(n):
            f(x)
        gc.collect()
        return sys.getallocatedblocks()
    first = blocks(1000)
    assert blocks(100_000) - first < 500


def test_misses_and_errors_leave_nothing_behind() -> None:
    def body(a: Any, b: Any) -> Any:
        return a + b
    f = rlx.jit(body)
    x, bad = rlx.asarray(np.ones(4)), rlx.asarray(np.ones(3))
    warm(f, x, x)

    def once() -> None:
        with pytest.raises(ShapeError):
            f(x, bad)
        with pytest.raises(TypeError):
            f(x, x, x)
    once()
    watched = [x, x._cell, bad._cell, f._table]
    assert all(abs(n) < 5 for n in drift(once, watched, 30))


def test_a_dropped_function_goes() -> None:
    f = rlx.jit(lambda a: a + 1)
    warm(f, rlx.asarray(np.ones(4)))
    gone = weakref.ref(f)
    out = f(rlx.asarray(np.ones(4)))
    del f
    gc.collect()
    assert gone() is None and np.asarray(out).tolist() == [2, 2, 2, 2]


def test_results_can_be_collected_in_cycles() -> None:
    f = rlx.jit(lambda a: a + 1)
    warm(f, np.ones(4))

    class Holder:
        pass
    gc.collect()
    refs = []
    for _ in range(100):
        h: Any = Holder()
        h.me, h.out = h, f(np.ones(4))
        refs.append(weakref.ref(h.out))
        del h
    gc.collect()
    assert all(r() is None for r in refs)


def test_arguments_may_be_replaced_while_a_call_runs() -> None:
    """The lock is let go in a long program: another thread drops the memory that it reads."""
    f = rlx.jit(lambda p: (p["a"] @ p["a"]).sum())
    n = 300
    box = {"a": rlx.asarray(np.ones((n, n)))}
    warm(f, box)
    stop = threading.Event()

    def churn() -> None:
        while not stop.is_set():
            box["a"] = rlx.asarray(np.ones((n, n)))
    t = threading.Thread(target=churn)
    t.start()
    try:
        assert all(float(f(box)) == n**3 for _ in range(50))
    finally:
        stop.set()
        t.join()


def test_threads_share_a_function() -> None:
    f = rlx.jit(lambda a, b: a * 2 + b)
    wrong: list[Any] = []
    start = threading.Barrier(6)

    def work(me: int) -> None:
        start.wait()
        for i in range(3000):
            n = 1 + (me + i) % 3
            a = np.full(n, float(i))
            out = np.asarray(f(a, float(me)))
            if out.shape != (n,) or not np.all(out == 2.0 * i + me):
                wrong.append((me, i, out))
    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
    assert f.cache_size == 3


def test_calls_nest() -> None:
    """A compiled function inside another, inside itself while tracing, and a recursion that goes too deep."""
    inner = rlx.jit(lambda a: a + 1)
    x = rlx.asarray(np.ones(2))
    warm(inner, x)
    outer = rlx.jit(lambda a: inner(inner(a)) * 2)
    assert np.asarray(warm(outer, x)).tolist() == [6, 6]
    holder: list[Any] = []
    endless = rlx.jit(lambda a: holder[0](a))
    holder.append(endless)
    with pytest.raises(RecursionError):
        endless(x)
    assert np.asarray(inner(x)).tolist() == [2, 2]


def test_a_concrete_call_inside_a_trace() -> None:
    inner = rlx.jit(lambda a: a.sum())
    x = rlx.asarray(np.arange(4.0))
    warm(inner, x)
    outer = rlx.jit(lambda b: b + inner(x) + float(inner(x)))
    assert np.asarray(warm(outer, rlx.zeros(2))).tolist() == [12, 12]
    with pytest.raises(TraceError):
        rlx.jit(lambda b: b + float(inner(b)))(x)


def test_captured_arrays_are_inputs() -> None:
    w = rlx.asarray(np.arange(3.0))
    f = rlx.jit(lambda a: a + w)
    assert np.asarray(warm(f, np.ones(3))).tolist() == [1, 2, 3]


def test_pending_arguments_are_run_first(spy: Spy) -> None:
    f = rlx.jit(lambda a: a + 1)
    x = rlx.asarray(np.ones(3))
    warm(f, x)
    for k in range(5):
        assert np.asarray(f(x * float(k))).tolist() == [k + 1] * 3
    assert f.cache_size == 1


def test_in_place_changes_are_seen() -> None:
    f = rlx.jit(lambda a: a * 10)
    x = rlx.asarray(np.arange(3.0))
    warm(f, x)
    x[0] = 7.0
    assert np.asarray(f(x)).tolist() == [70, 10, 20]
    x += 1
    assert np.asarray(f(x)).tolist() == [80, 20, 30]
    host = np.arange(3.0)
    warm(f, host)
    host[0] = 5
    assert np.asarray(f(host)).tolist() == [50, 10, 20]
    y = f(host)
    host[0] = 6
    assert np.asarray(y).tolist() == [50, 10, 20]


# Where it cannot be

def test_without_native_calls_all_is_the_same() -> None:
    """In a process where the test at start-up fails, everything goes through Python, and says why."""
    program = """
import ctypes, numpy as np, rlx
from rlx.device.cpu import entry
def broken():
    raise entry.Unlike("an array is not laid out as expected")
entry._check_layouts = broken
f = rlx.jit(lambda a, b: {"s": a + b})
x = rlx.asarray(np.ones(3))
for _ in range(4):
    assert f(x, x)["s"].tolist() == [2, 2, 2]
    assert float((x * 2.0 + x).sum()) == 9.0
from rlx.tools import doctor
assert "called through Python: an array is not laid out" in doctor._describe("cpu")
print(entry.absent(), type(rlx.jit(lambda a: a).__call__).__name__)
"""
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=250)
    assert out.returncode == 0, out.stderr
    assert out.stdout.strip() == "an array is not laid out as expected method"


def test_the_generation_of_the_flags_comes_back() -> None:
    before = flags.GENERATION.value
    with rlx.flags(math="fast"):
        inside = flags.GENERATION.value
        assert inside != before
    assert flags.GENERATION.value == before
    with rlx.flags(math="fast"):
        assert flags.GENERATION.value not in (before, inside)
