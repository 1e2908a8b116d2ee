"""The opencl device: programs against the interpreter, loops without the host, guards, capabilities, errors,
races.
"""

from __future__ import annotations

import gc
import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx import device as devices
from rlx.core.errors import CompileError, DeviceError
from rlx.device.opencl import driver
from rlx.ir import loop as L
from rlx.ops.index import scatter
from rlx.render.c import render
from rlx.runtime.execute import PROGRAMS, compile_traced
from tests.render.c_samples import row_sum

pytestmark = pytest.mark.skipif(driver.absent() is not None, reason=f"no OpenCL here: {driver.absent()}")
RNG = np.random.default_rng(7)


def wide() -> bool:
    return "float64" in {d.name for d in devices.find("opencl").caps.dtypes}


def both(f: Callable[..., Any], *arrays: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """What the device and the interpreter give for the same program."""
    found = [np.asarray(f(*[rlx.asarray(x, device=d) for x in arrays])) for d in ("opencl", "python")]
    return found[0], found[1]


def normal(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.standard_normal(shape).astype(np.float32)


SHAPES: dict[str, tuple[Callable[..., Any], tuple[np.ndarray[Any, Any], ...]]] = {
    "points": (lambda x: rlx.tanh(x) * 2 + 1, (normal(37, 5),)),
    "points of nothing": (lambda x: x + 1, (normal(0, 3),)),
    "total of one workgroup": (lambda x: (x * x).sum(), (normal(100),)),
    "total of many": (lambda x: (x * x).sum() + x.max(), (normal(300_000),)),
    "total of nothing": (lambda x: x.sum(), (normal(0),)),
    "short rows": (lambda x: x / x.sum(axis=-1, keepdims=True), (np.abs(normal(203, 7)),)),
    "rows by teams": (lambda x: rlx.softmax(x, axis=-1), (normal(101, 200),)),
    "rows by workgroups": (lambda x: rlx.softmax(x, axis=-1), (normal(3, 5003),)),
    "more rows than workgroups": (lambda x: x.sum(axis=-1), (normal(70_001, 40),)),
    "columns": (lambda x: x.sum(axis=0), (normal(50, 33),)),
    "long columns": (lambda x: x.max(axis=0), (normal(5000, 3),)),
    "matrix product": (lambda x, y: rlx.tanh(x @ y), (normal(70, 33), normal(33, 65))),
    "batched product": (lambda x, y: x @ y, (normal(3, 40, 50), normal(3, 50, 33))),
    "matrix times vector": (lambda x, y: x @ y, (normal(70, 333), normal(333))),
    "vector times matrix": (lambda x, y: x @ y, (normal(333), normal(333, 270))),
    "short lines scanned": (lambda x: rlx.cumulative_sum(x, axis=0), (normal(40, 7),)),
    "long line scanned": (lambda x: rlx.cumulative_sum(x), (normal(5001),)),
    "padded": (lambda x: rlx.concat([x, x[::-1]])[1:-3], (normal(50),)),
}


@pytest.mark.parametrize("name", SHAPES)
def test_schedules_agree_with_the_interpreter(name: str) -> None:
    f, arrays = SHAPES[name]
    got, want = both(f, *arrays)
    assert got.dtype == want.dtype and got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize(("lanes", "shared"), [(32, 2048), (256, 0)])
@pytest.mark.parametrize("name", ["total of many", "rows by teams", "rows by workgroups", "matrix product"])
def test_schedules_fit_a_device_with_little(
    name: str, lanes: int, shared: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    d = devices.find("opencl")
    monkeypatch.setattr(d, "caps", replace(d.caps, max_workgroup=lanes, shared_bytes=shared))
    f, arrays = SHAPES[name]
    inputs = [rlx.asarray(x, device="opencl") for x in arrays]
    program = compile_traced(rlx.jit(f, device="opencl").trace(*inputs).graph, "opencl", None, {}, f"{lanes}")
    PROGRAMS.clear()
    text = program.executable.text
    assert ("__local" not in text or shared > 0) and f"reqd_work_group_size({lanes * 2}," not in text
    got = np.asarray(f(*inputs))
    PROGRAMS.clear()
    want = np.asarray(f(*[rlx.asarray(x, device="python") for x in arrays]))
    np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("n", [1, 2, 15, 16, 17, 33, 1000])
def test_sort_is_stable_and_puts_nan_last(n: int) -> None:
    x = np.round(normal(n))
    x[::7] = np.nan
    for f in (rlx.sort, rlx.argsort, lambda a: rlx.argsort(a, descending=True)):
        got, want = both(f, x)
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("kind", ["set", "add", "min", "max", "mul"])
@pytest.mark.parametrize("dtype", ["int32", "float32", "int64"])
@pytest.mark.parametrize("updates", [5, 700])
def test_scatter_is_as_if_one_after_another(kind: str, dtype: str, updates: int) -> None:
    base = RNG.integers(1, 9, (40, 3)).astype(dtype)
    at = RNG.integers(-5, 45, updates).astype(np.int64)
    new = RNG.integers(1, 3, (updates, 3)).astype(dtype)
    if kind == "mul":
        new[:] = 1
        new[0] = 2
    got, want = both(lambda x, i, u: scatter(x, u, (i,), kind), base, at, new)
    np.testing.assert_array_equal(got, want)


def test_integers_floor_wrap_and_shift_as_specified() -> None:
    x = np.array([-7, -1, 0, 1, 7, 2**31 - 1, -(2**31)], np.int32)
    y = np.array([2, 0, -3, 31, 32, -1, -1], np.int32)
    for f in (lambda a, b: a // b, lambda a, b: a % b, lambda a, b: a * b, lambda a, b: a << b, lambda a, b: a >> b):
        got, want = both(f, x, y)
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_16_bit_floats_are_stored_in_16_bits_and_summed_in_32(dtype: str) -> None:
    x = rlx.astype(rlx.asarray(np.full(5000, 0.1, np.float32), device="opencl"), dtype)
    total = float(rlx.astype(x.sum(), rlx.float32))
    assert abs(total - 500.0) < 4.0, total


def test_a_while_loop_runs_exactly_as_often_as_its_predicate_says() -> None:
    def f(n: Any) -> Any:
        return rlx.while_loop(
            lambda s: s[0] < n, lambda s: (s[0] + 1, s[1] * 1.5), (rlx.asarray(0), rlx.asarray(1.0))
        )

    g = rlx.jit(f, device="opencl")
    for n in (0, 1, 2, 3, 7, 40, 100):
        count, value = g(rlx.asarray(n, device="opencl"))
        assert (int(count), float(value)) == (n, 1.5**n)


def test_a_branch_takes_one_arm_and_changes_nothing_in_the_other() -> None:
    g = rlx.jit(lambda k, x: rlx.switch(k, [lambda v: v + 1, lambda v: v * 10, lambda v: -v], x), device="opencl")
    for k, want in ((0, 4.0), (1, 30.0), (2, -3.0)):
        assert float(g(rlx.asarray(k, device="opencl"), rlx.asarray(3.0, device="opencl"))) == want


def test_conjugate_gradients_run_as_one_program() -> None:
    sparse = pytest.importorskip("scipy.sparse")
    n = 200
    a = sparse.diags([-1.0, 2.1, -1.0], [-1, 0, 1], shape=(n, n)).tocsr()
    b = RNG.standard_normal(n)
    x, info = rlx.sparse.cg(a, b, device="opencl", rtol=1e-5)
    assert info == 0 and np.linalg.norm(a @ np.asarray(x) - b) <= 1.01e-5 * np.linalg.norm(b)


def test_the_source_is_the_same_every_time() -> None:
    def text() -> str:
        x = rlx.asarray(normal(30, 40), device="opencl")
        traced = rlx.jit(lambda a: rlx.softmax(a, axis=-1) @ a.T, device="opencl").trace(x)
        PROGRAMS.clear()
        return compile_traced(traced.graph, "opencl", None, {}, "p").executable.text

    assert text() == text()


def test_loops_and_branches_have_guarded_kernels_only_where_needed() -> None:
    """A loop of a point at a time runs inside its kernel; one whose turns wait for each other's sums is enqueued."""
    x = rlx.asarray(np.ones(5000, np.float32), device="opencl")
    in_a_kernel = lambda a: rlx.while_loop(lambda s: s[0] < 9.0, lambda s: s * 2.0, a)
    enqueued = lambda a: rlx.while_loop(lambda s: s.sum() < 1e6, lambda s: s * 2.0 + s.max(), a)
    found = []
    for f in (lambda a: a + 1, in_a_kernel, enqueued):
        graph = rlx.jit(f, device="opencl").trace(x[:1] if f is in_a_kernel else x).graph
        found.append(compile_traced(graph, "opencl", None, {}, "p").executable.text)
    assert [s.count("_if(__global const uchar* go, __global") > 1 for s in found] == [False, False, True]


def test_capabilities_come_from_the_driver() -> None:
    d = devices.find("opencl")
    assert d.caps.schedule == "grid" and not d.claims
    assert d.caps.max_workgroup == d.cl_device.max_work_group_size
    assert wide() == bool(d.cl_device.double_fp_config)


def test_a_missing_dtype_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    d = devices.find("opencl")
    narrow = frozenset(t for t in d.caps.dtypes if t.real.name != "float64")
    monkeypatch.setattr(d, "caps", replace(d.caps, dtypes=narrow))
    with rlx.flags(cache=False), pytest.raises(CompileError, match="opencl") as e:
        np.asarray(rlx.asarray(np.ones(7), device="opencl") * 3.25)
    assert "no float64" in str(e.value) and "float32" in str(e.value)


def test_a_buffer_beyond_the_limit_is_refused() -> None:
    d = devices.find("opencl")
    with pytest.raises(DeviceError, match="too large"):
        d.empty(rlx.float32, (d.caps.max_binding_bytes,))


def test_an_absent_driver_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver.importlib.util, "find_spec", lambda name: None)
    assert "pip install" in str(driver.absent())


def test_memory_is_used_again() -> None:
    d = devices.find("opencl")
    gc.collect()
    before = d._pool.active_bytes
    for _ in range(50):
        np.asarray(rlx.asarray(normal(1000), device="opencl") + 1)
    gc.collect()
    assert d._pool.active_bytes <= before + 64_000


RACES = """
import numpy as np, rlx
x = rlx.asarray(np.arange(120, dtype=np.float32).reshape(3, 40), device="opencl")
y = rlx.asarray(np.arange(800, dtype=np.float32).reshape(40, 20), device="opencl")
print(float(x.sum()), np.asarray(rlx.softmax(x, axis=-1)).sum(), np.asarray(rlx.asarray(
    np.ones((32, 20), np.float32), device="opencl") @ y.T[:, :32][:20]).sum())
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("oclgrind") is None, reason="no oclgrind on this machine")
def test_shared_memory_kernels_have_no_races(tmp_path: Path) -> None:
    script = tmp_path / "races.py"
    script.write_text(textwrap.dedent(RACES))
    root = Path(rlx.__file__).parents[1]
    env = dict(os.environ, PYTHONPATH=str(root), RLX_CACHE="0", PYOPENCL_NO_CACHE="1")
    done = subprocess.run(
        ["oclgrind", "--data-races", sys.executable, str(script)],
        capture_output=True,
        text=True,
        timeout=280,
        env=env,
    )
    assert done.returncode == 0 and "race" not in done.stderr.lower(), done.stderr[-3000:]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("oclgrind") is None, reason="no oclgrind on this machine")
def test_the_race_check_finds_a_missing_barrier(tmp_path: Path) -> None:
    source = re.sub(r"\n *barrier\(.*?;", "", render([row_sum(2, 50, rlx.float32, team=32)], "opencl"))
    script = tmp_path / "missing.py"
    script.write_text(f"""
import numpy as np, pyopencl as cl
context = cl.create_some_context(interactive=False)
queue = cl.CommandQueue(context)
x = cl.Buffer(context, cl.mem_flags.COPY_HOST_PTR, hostbuf=np.ones(100, np.float32))
y = cl.Buffer(context, cl.mem_flags.READ_WRITE, 8)
cl.Program(context, {source!r}).build(cache_dir=False).row_sum(queue, (64,), (32,), x, y)
queue.finish()
""")
    done = subprocess.run(
        ["oclgrind", "--data-races", sys.executable, str(script)], capture_output=True, text=True, timeout=280
    )
    assert "race" in done.stderr.lower(), done.stderr[-2000:]


def test_the_program_has_no_step_the_device_cannot_run() -> None:
    x = rlx.asarray(normal(50), device="opencl")
    traced = rlx.jit(lambda a: rlx.sort(a), device="opencl").trace(x)
    steps = compile_traced(traced.graph, "opencl", None, {}, "p").lowered.program.steps
    assert all(isinstance(s, L.Launch | L.Copy) for s in steps)
