"""The cpu device runs LIR programs: every kind of step, storage, constants, threads, errors."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import rlx.device
from rlx.core.dtype import ALL, DType, as_dtype, bool_, float32, float64, int32, int64
from rlx.core.errors import DeviceError, ShapeError, VerifyError
from rlx.device.cpu.device import CpuDevice
from rlx.ir import loop
from rlx.ir.loop import (
    Branch,
    Buffer,
    Copy,
    For,
    Kernel,
    Launch,
    Native,
    Param,
    Program,
    Repeat,
    Store,
    While,
    add,
    const,
    expr,
    less,
    load,
    mul,
    var,
)
from rlx.ir.prim import POINTWISE
from rlx.render.llvm.helpers import Helpers
from rlx.render.llvm.kernel import render_kernel


@pytest.fixture(scope="module")
def cpu() -> CpuDevice:
    device = rlx.device.find("cpu")
    assert isinstance(device, CpuDevice)
    return device


def run(cpu: CpuDevice, program: Program, inputs: Sequence[Any],
        outputs: Sequence[tuple[DType, int]]) -> list[Any]:
    """Load and run once; outputs start as garbage, so that what is not written shows."""
    made = [cpu.empty(d, (n,)) for d, n in outputs]
    for s in made:
        s.array.view(np.uint8)[...] = 0xAB
    cpu.load(program).run([cpu.upload(np.asarray(x)) for x in inputs], made)
    return [cpu.download(s, d, (n,)) for s, (d, n) in zip(made, outputs, strict=True)]


def grid_kernel(name: str, d: DType, outer: int, inner: int, value: Any) -> Kernel:
    """``o[i] = value(i)`` of params a and b, for outer * inner elements; a grid point does ``inner``."""
    n = outer * inner
    i = add(mul(var("g"), const(inner)), var("j"))
    body = For("j", const(0), const(inner), 1, loop.VECTOR, (Store("o", i, value(i)),))
    return Kernel(name, (Param("a", d, n, "r"), Param("b", d, n, "r"), Param("o", d, n, "w")),
                  (For("g", const(0), const(outer), 1, loop.GRID, (body,)),))


def once(name: str, params: tuple[Param, ...], *stores: Store) -> Kernel:
    return Kernel(name, params, stores)


def bump(amount: Any, d: DType = int64) -> Kernel:
    """``x[0] += amount`` in place."""
    x = load("x", const(0), d)
    return once(f"bump_{amount}", (Param("x", d, 1, "rw"),), Store("x", const(0), add(x, const(amount, d))))


def below(limit: int) -> Kernel:
    """``p[0] = x[0] < limit``."""
    return once(f"below_{limit}", (Param("x", int64, 1, "r"), Param("p", bool_, 1, "w")),
                Store("p", const(0), less(load("x", const(0), int64), const(limit))))


@pytest.mark.parametrize("outer,inner", [(1, 7), (2, 5), (64, 33), (5000, 3)])
def test_axpy_over_a_grid(cpu: CpuDevice, outer: int, inner: int) -> None:
    n = outer * inner
    kernel = grid_kernel("axpy", float64, outer, inner, lambda i: expr(
        "add", (mul(load("a", i, float64), const(2.0, float64)), load("b", i, float64)), float64))
    program = Program("axpy", (Buffer("a", float64, n, "input", 0), Buffer("b", float64, n, "input", 1),
                               Buffer("o", float64, n, "output", 0)), (Launch(kernel, ("a", "b", "o")),))
    a, b = np.random.default_rng(0).standard_normal((2, n))
    out, = run(cpu, program, [a, b], [(float64, n)])
    np.testing.assert_array_equal(out, 2.0 * a + b)


def test_temps_and_constants(cpu: CpuDevice) -> None:
    """Two kernels through the arena, with a constant; the second reads what the first wrote at an offset."""
    n = 40
    k1 = grid_kernel("plus", float32, 4, 10, lambda i: add(load("a", i, float32), load("b", i, float32)))
    k2 = grid_kernel("times", float32, 4, 10, lambda i: expr(
        "mul", (load("a", i, float32), load("b", i, float32)), float32))
    c = np.linspace(1, 2, n, dtype=np.float32)
    program = Program("temps", (
        Buffer("c", float32, n, "const", data=c), Buffer("o", float32, n, "output", 0),
        Buffer("t", float32, n, "temp", offset=256), Buffer("x", float32, n, "input", 0),
    ), (Launch(k1, ("x", "c", "t")), Launch(k2, ("t", "x", "o"))), arena=256 + 4 * n)
    x = np.arange(n, dtype=np.float32)
    out, = run(cpu, program, [x], [(float32, n)])
    np.testing.assert_array_equal(out, (x + c) * x)


def test_wrong_constant_is_refused(cpu: CpuDevice) -> None:
    program = Program("bad", (Buffer("c", float32, 4, "const", data=np.zeros(3, np.float32)),), ())
    with pytest.raises(VerifyError, match="3 elements for a buffer of 4"):
        cpu.load(program)


def test_while_runs_until_its_predicate_fails(cpu: CpuDevice) -> None:
    program = Program("count", (Buffer("x", int64, 1, "output", 0), Buffer("x0", int64, 1, "input", 0),
                                Buffer("n", int64, 1, "output", 1),
                                Buffer("zero", int64, 1, "const", data=[0]),
                                Buffer("p", bool_, 1, "temp")),
                      (Copy("x", "x0"), Copy("n", "zero"),
                       While((Launch(below(20), ("x", "p")), Launch(bump(1), ("n",))), "p",
                             (Launch(bump(3), ("x",)),))), arena=64)
    for start in (0, 19, 20, -7):
        x, n = run(cpu, program, [np.array([start])], [(int64, 1), (int64, 1)])
        steps = max(0, -(-(20 - start) // 3))
        assert (x[0], n[0]) == (start + 3 * steps, steps + 1)


@pytest.mark.parametrize("value,expected", [(3, 103), (30, 1030)])
def test_branch_takes_one_side(cpu: CpuDevice, value: int, expected: int) -> None:
    program = Program("branch", (Buffer("x", int64, 1, "output", 0), Buffer("x0", int64, 1, "input", 0),
                                 Buffer("p", bool_, 1, "temp")),
                      (Copy("x", "x0"), Launch(below(10), ("x", "p")),
                       Branch("p", (Launch(bump(100), ("x",)),), (Launch(bump(1000), ("x",)),))), arena=64)
    x, = run(cpu, program, [np.array([value])], [(int64, 1)])
    assert x[0] == expected


@pytest.mark.parametrize("counter_type", [int32, int64])
def test_repeat_counts(cpu: CpuDevice, counter_type: DType) -> None:
    """Nested: a fixed count outside, a count from a buffer inside; the counter's values are summed."""
    i = expr("cast", (load("i", const(0), counter_type),), int64)
    total = once("total", (Param("i", counter_type, 1, "r"), Param("x", int64, 1, "rw")),
                 Store("x", const(0), add(load("x", const(0), int64), i)))
    program = Program("repeat", (
        Buffer("n", int32, 1, "input", 0), Buffer("x0", int64, 1, "input", 1),
        Buffer("x", int64, 1, "output", 0),
        Buffer("i", counter_type, 1, "temp", offset=0), Buffer("j", int64, 1, "temp", offset=64)),
        (Copy("x", "x0"), Repeat(3, "j", (Repeat("n", "i", (Launch(total, ("i", "x")),)),))), arena=128)
    for n in (0, 1, 5, -2):
        x, = run(cpu, program, [np.array([n], np.int32), np.array([7])], [(int64, 1)])
        assert x[0] == 7 + 3 * sum(range(n))


def test_program_errors_name_the_culprit(cpu: CpuDevice) -> None:
    x, y = Buffer("x", int64, 1, "output", 0), Buffer("y", float32, 2, "temp")
    other = Kernel("bump_1", bump(1).params, ())
    for steps, message in (
        ((Launch(bump(1), ("z",)),), "no buffer 'z'"),
        ((Launch(bump(1), ("y",)),), "'y' does not fit 'x'"),
        ((Launch(bump(1), ("x", "x")),), "takes 1 buffers"),
        ((Launch(bump(1), ("x",)), Launch(other, ("x",))), "two kernels are named 'bump_1'"),
        ((Copy("y", "x"), Copy("y", "x0")), "no buffer 'x0'"),
        ((Native("nobody", ("x",), ((int64, (1,)),), 0),), "no claim 'nobody'"),
        ((Branch("x", (), ()),), "'x' decides a branch but holds i64"),
        ((Repeat("y", "x", ()),), "'y' counts a loop but holds f32"),
    ):
        with pytest.raises(VerifyError, match=message):
            cpu.load(Program("bad", (x, y), steps, arena=64))
    with pytest.raises(VerifyError, match="sizes differ"):
        cpu.load(Program("bad", (x, Buffer("w", int64, 2, "temp")), (Copy("w", "x"),), arena=64))


def test_run_checks_the_number_of_storages(cpu: CpuDevice) -> None:
    executable = cpu.load(Program("one", (Buffer("x", int64, 1, "output", 0),), (Launch(bump(1), ("x",)),)))
    with pytest.raises(ShapeError, match="takes 0 inputs and 1 outputs"):
        executable.run([], [])


def test_an_unused_slot_keeps_its_number(cpu: CpuDevice) -> None:
    program = Program("gap", (Buffer("b", int64, 1, "input", 2), Buffer("o", int64, 1, "output", 1)),
                      (Copy("o", "b"),))
    _, out = run(cpu, program, [[1], [2], [3]], [(int64, 1), (int64, 1)])
    assert out[0] == 3


def test_threads_run_one_executable_at_once(cpu: CpuDevice) -> None:
    """Each thread has an arena of its own: results through a temp never mix."""
    n = 1 << 16
    k = grid_kernel("triple", float64, 8, n // 8, lambda i: add(
        add(load("a", i, float64), load("a", i, float64)), load("b", i, float64)))
    program = Program("arena", (Buffer("a", float64, n, "input", 0), Buffer("t", float64, n, "temp"),
                                Buffer("o", float64, n, "output", 0)),
                      (Launch(k, ("a", "a", "t")), Launch(k, ("t", "t", "o"))), arena=8 * n)
    executable, wrong = cpu.load(program), []

    def work(seed: int) -> None:
        a, out = cpu.upload(np.full(n, float(seed))), cpu.empty(float64, (n,))
        for _ in range(100):
            executable.run([a], [out])
            if not (out.array == 9.0 * seed).all():
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(s,)) for s in range(1, 5)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_storage(cpu: CpuDevice) -> None:
    a = np.arange(12.0).reshape(3, 4)
    assert cpu.upload(a).address == a.ctypes.data
    for copied in (a.T, a[:, ::2], a.astype(">f8")):
        s = cpu.upload(copied)
        assert not np.shares_memory(s.array, a) and s.address % 64 == 0
        np.testing.assert_array_equal(cpu.download(s, float64, copied.shape), copied)
    for n in (1, 1000):
        assert cpu.empty(float32, (n, 3)).address % 64 == 0
    np.testing.assert_array_equal(cpu.download(cpu.upload(a), float64, (4, 3)), a.reshape(4, 3))
    with pytest.raises(ShapeError, match="holds no f64"):
        cpu.download(cpu.upload(a), float64, (13,))


def test_scalar_storage(cpu: CpuDevice) -> None:
    s = cpu.upload(np.asarray(3.5))
    assert cpu.download(s, float64, ())[()] == 3.5


def results_of(name: str, d: DType) -> list[DType]:
    """The dtypes a primitive can give for arguments of dtype ``d``."""
    if name == "bitcast":
        return [t for t in ALL if t.bits == d.bits and t.kind in "iuf" and d.kind in "iuf"]
    by_rule = {"same": [d], "bool": [bool_], "real": [d.real], "complex": [d.complex], "attr": list(ALL)}
    return by_rule[POINTWISE[name].result]


def test_what_is_spelled_renders(cpu: CpuDevice) -> None:
    """A kernel of each primitive and dtype that the capabilities name has LLVM text."""
    for name, dtypes in cpu.caps.spells.items():
        for d in dtypes:
            args = [load(f"a{i}", const(0), bool_ if name == "select" and i == 0 else d)
                    for i in range(POINTWISE[name].arity)]
            for out in results_of(name, d):
                params = (*(Param(f"a{i}", a.dtype, 1, "r") for i, a in enumerate(args)),
                          Param("o", out, 1, "w"))
                kernel = once("k", params, Store("o", const(0), expr(name, tuple(args), out)))
                assert "store" in render_kernel(kernel, Helpers()), (name, d, out)
    assert cpu.caps.spells["erf"] == {as_dtype(n) for n in ("float16", "bfloat16", "float32", "float64")}


def test_capabilities(cpu: CpuDevice) -> None:
    assert cpu.caps.name == "cpu" and cpu.caps.schedule == "nest" and cpu.caps.cores >= 1
    assert cpu.caps.computes(as_dtype("complex128")) and cpu.caps.vector_bytes in (16, 32, 64)
    with pytest.raises(DeviceError, match="does not load a graph"):
        cpu.load_graph(None)
