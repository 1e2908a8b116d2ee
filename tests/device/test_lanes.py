"""Grid schedules without a driver: kernels of workgroups run lane by lane in NumPy, races and strays are errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import rlx
from rlx import device as devices
from rlx.core.dtype import float32, int32
from rlx.ir import loop as L
from rlx.ops.index import scatter
from rlx.ops.segments import segment_reduce
from rlx.runtime.execute import PROGRAMS
from rlx.tools import cases as C
from tests.conformance.test_values import run, wrong
from tests.device.lanes import LaneError, LanesDevice, run_kernel

RNG = np.random.default_rng(11)
#: A large GPU, one whose lanes cannot trade values, one without workgroup memory and atomics.
DEVICES = {
    "exchange": {"lanes": 64, "cores": 1},
    "wide": {"lanes": 256, "shared": 49_152},
    "shared": {"lanes": 64, "exchange": False, "overlap": True, "cores": 1},
    "bare": {"lanes": 32, "shared": 0, "exchange": False, "atomics": False},
}


@pytest.fixture(params=DEVICES)
def lanes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[LanesDevice]:
    """The device under the name ``lanes``; programs are compiled for it anew."""
    made = LanesDevice(**DEVICES[request.param])
    monkeypatch.setitem(devices._opened, "lanes", made)
    PROGRAMS.clear()
    yield made
    PROGRAMS.clear()


def normal(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.standard_normal(shape).astype(np.float32)


def powers(a: Any) -> Any:
    """Turns that need each other's sums, with small kernels between them."""
    def turn(s: Any) -> Any:
        k, x = s
        y = x * 0.5 + x.sum() / x.size
        return k + 1, y / rlx.sqrt((y * y).sum())
    return rlx.while_loop(lambda s: s[0] < 5, turn, (0, a))[1]


OFFSETS = np.concatenate([[0], np.cumsum(RNG.integers(0, 9, 300))]).astype(np.int64)
WIDE_OFFSETS = np.array([0, 40, 40, 111, 300], np.int64)
PROGRAMS_OF: dict[str, tuple[Callable[..., Any], tuple[np.ndarray[Any, Any], ...]]] = {
    "points": (lambda x: rlx.tanh(x) * 2 + 1, (normal(37, 5),)),
    "points side by side": (lambda x, y: x * y + 1, (normal(64, 256), normal(64, 256))),
    "total": (lambda x: (x * x).sum() + x.max(), (normal(30_000),)),
    "short rows": (lambda x: x / (1 + x.sum(axis=-1, keepdims=True)), (np.abs(normal(203, 7)),)),
    "rows in registers": (lambda x: rlx.softmax(x, axis=-1), (normal(40, 256),)),
    "rows by teams": (lambda x: rlx.softmax(x, axis=-1), (normal(51, 200),)),
    "rows by workgroups": (lambda x: rlx.softmax(x, axis=-1), (normal(3, 2003),)),
    "columns": (lambda x: x.sum(axis=0), (normal(50, 33),)),
    "product": (lambda x, y: rlx.tanh(x @ y), (normal(70, 33), normal(33, 65))),
    "matrix times vector": (lambda x, y: x @ y, (normal(70, 133), normal(133))),
    "long line scanned": (lambda x: rlx.cumulative_sum(x), (normal(3001),)),
    "lines scanned": (lambda x: rlx.cumulative_sum(x, axis=0), (normal(40, 7),)),
    "sorted": (lambda x: rlx.sort(x), (normal(700),)),
    "places of a sort": (lambda x: rlx.argsort(x, descending=True), (np.round(normal(300)),)),
    "short segments": (lambda x: segment_reduce(x, rlx.asarray(OFFSETS, device=x.device)), (normal(int(OFFSETS[-1])),)),
    "long segments": (lambda x: segment_reduce(x, rlx.asarray(WIDE_OFFSETS, device=x.device)), (normal(300),)),
    "scatter add": (lambda x, i: scatter(x, x[:40], (i,), "add"), (normal(50), (np.arange(40) * 7 % 11))),
    "scatter set": (lambda x, i: scatter(x, x[:40], (i,), "set"), (normal(50), (np.arange(40) * 7 % 11))),
    "loop of small steps": (powers, (np.abs(normal(60)),)),
    "a loop in a kernel": (lambda x: rlx.while_loop(lambda s: s < 9, lambda s: s * 2 + 1, x[0]),
                           (np.ones(1, np.int32),)),
}


@pytest.mark.parametrize("name", PROGRAMS_OF)
def test_schedules_agree_with_the_interpreter(name: str, lanes: LanesDevice) -> None:
    f, arrays = PROGRAMS_OF[name]
    got = np.asarray(rlx.jit(f, device="lanes")(*[rlx.asarray(x, device="lanes") for x in arrays]))
    want = np.asarray(f(*[rlx.asarray(x, device="python") for x in arrays]))
    assert got.dtype == want.dtype and got.shape == want.shape and lanes.launched
    np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-4)


#: Ops whose kernels have more than one lane work on one result.
SHARED_WORK = ("dot", "reduce", "scan", "scatter", "segment_reduce", "sort", "softmax", "logsumexp",
               "linalg.cholesky", "fft.c2c")


@pytest.mark.parametrize("name", SHARED_WORK)
def test_ops_answer_the_oracle(name: str, lanes: LanesDevice) -> None:
    op = next(o for o in C.ops() if o.name == name)
    made = run([c for c in C.cases(op) if c.half is None], "lanes")
    bad = [line for c, outs in zip(made.group, made.outputs, strict=True) for line in wrong(c, outs)]
    assert not bad, "\n".join(bad)


def test_what_the_schedules_are_made_of_is_among_the_programs(lanes: LanesDevice) -> None:
    """Exchanges, workgroup memory and atomics really occur in the kernels above, where the device has them."""
    for name in ("rows by teams", "rows by workgroups", "scatter add", "loop of small steps", "product"):
        f, arrays = PROGRAMS_OF[name]
        np.asarray(rlx.jit(f, device="lanes")(*[rlx.asarray(x, device="lanes") for x in arrays]))
    found = {type(s).__name__ for k in lanes.launched for s in statements(k.body)}
    shared = any(isinstance(s, L.Array) and s.space == "shared" for k in lanes.launched for s in statements(k.body))
    assert ("Exchange" in found) == ("exchange" in lanes.caps.features)
    assert shared == (lanes.caps.shared_bytes > 0) and ("Barrier" in found or not shared)
    assert "Atomic" in found or "atomic-add-f32" not in lanes.caps.features


def test_lanes_compute_several_points_where_loads_overlap(lanes: LanesDevice) -> None:
    f, arrays = PROGRAMS_OF["points side by side"]
    np.asarray(rlx.jit(f, device="lanes")(*[rlx.asarray(x, device="lanes") for x in arrays]))
    (k,) = lanes.launched
    stores = sum(isinstance(s, L.Store) for s in statements(k.body))
    assert stores == (4 if lanes.caps.features & {"exchange", "overlap"} else 1)


def statements(body: tuple[L.Stmt, ...]) -> Iterator[L.Stmt]:
    for s in body:
        yield s
        for part in ("body", "then", "orelse"):
            yield from statements(getattr(s, part, ()))


# What the device objects to

I = L.var("l", int32)
ZERO, ONE = L.const(0, int32), L.const(1, int32)


def kernel(*body: L.Stmt, lanes: int = 16) -> None:
    """Run one workgroup over ``b0`` (read) and ``b1`` (written), sixteen floats each."""
    block = L.For("l", ZERO, L.const(lanes, int32), 1, L.BLOCK, body)
    params = (L.Param("b0", float32, 16, "r"), L.Param("b1", float32, 16, "rw"))
    k = L.Kernel("k", params, (L.For("g", ZERO, ONE, 1, L.GRID, (block,)),))
    run_kernel(k, [np.arange(16, dtype=np.float32), np.zeros(16, np.float32)], 8)


def read(name: str, index: L.Expr) -> L.Expr:
    return L.load(name, index, float32)


SHARED = L.Array("s", float32, 16, "shared")
MIRROR = L.expr("sub", (L.const(15, int32), I), int32)
HALF = L.less(I, L.const(4, int32))
WRONG = {
    "two lanes store to one element": (L.Store("b1", ZERO, read("b0", I)),),
    "reads what another lane wrote": (SHARED, L.Store("s", I, read("b0", I)), L.Store("b1", I, read("s", MIRROR))),
    "overwrites what another lane reads": (
        SHARED, L.Store("s", I, read("b0", I)), L.Barrier(), L.Let("x", read("s", MIRROR)),
        L.Store("s", I, L.var("x", float32))),
    "barrier that not all lanes": (L.If(HALF, (L.Barrier(),)),),
    "exchange that not all lanes": (L.If(HALF, (L.Exchange("w", read("b0", I), 4),)),),
    "of 16": (L.Store("b1", I, read("b0", L.add(I, ONE))),),
    "which it only reads": (L.Store("b0", I, read("b1", I)),),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_some_hardware_would_punish_is_an_error(what: str) -> None:
    with pytest.raises(LaneError, match=what):
        kernel(*WRONG[what])


def test_barriers_and_chosen_arms_make_it_right() -> None:
    last = L.expr("eq", (I, L.const(15, int32)), L.bool_)
    kernel(SHARED, L.Store("s", I, read("b0", I)), L.Barrier(), L.Let("x", read("s", MIRROR)), L.Barrier(),
           L.Store("s", I, L.var("x", float32)),
           L.Store("b1", I, L.select(last, read("b0", ZERO), read("b0", L.add(I, ONE)))))
