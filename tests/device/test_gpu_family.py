"""The devices with command buffers: memory, loops, reports, refusals. Each runs where its driver is installed."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading

import numpy as np
import pytest

import rlx
from rlx import device as devices
from rlx.core.errors import CompileError, DeviceError

NAMES = ("webgpu", "gpu", "vulkan", "opengl")
ABSENT = {n: devices.available()[n] for n in NAMES if n in devices.names()}
family = pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.skipif(why is not None, reason=str(why)))
                                          for n, why in ABSENT.items()])


@family
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "float16", "int32", "float32", "int64", "complex64"])
@pytest.mark.parametrize("n", [0, 1, 3, 257])
def test_upload_and_download(name: str, dtype: str, n: int) -> None:
    x = (np.arange(n) % 3).astype(dtype)
    got = np.asarray(rlx.asarray(x, device=name))
    assert got.dtype == x.dtype and np.array_equal(got, x)


@family
def test_freed_storage_is_used_again_in_order(name: str) -> None:
    x = rlx.asarray(np.arange(1000, dtype=np.float32), device=name)
    for k in range(30):
        y = x + k
        rlx.eval(y)
        del y
        gc.collect()
        z = rlx.asarray(np.full(1000, k, np.float32), device=name)
        assert np.array_equal(np.asarray(x + z), np.arange(1000, dtype=np.float32) + k)


@family
def test_a_loop_ends_where_it_should(name: str) -> None:
    """The device runs past the end in batches of turns, which must change nothing."""
    f = rlx.jit(lambda n, x: rlx.while_loop(lambda v: v[0] < n, lambda v: (v[0] + 1, v[1] * 2 + 1), (n * 0, x)),
                device=name)
    for n in (0, 1, 3, 4, 5, 13, 23):
        k, x = f(rlx.asarray(np.int32(n), device=name), rlx.asarray(np.array([0, 1, 5], np.int32), device=name))
        assert int(k) == n
        assert np.array_equal(np.asarray(x), np.array([0, 1, 5]) * 2**n + 2**n - 1)


@family
def test_a_loop_in_a_loop(name: str) -> None:
    def outer(v: tuple) -> tuple:
        i, x = v
        return i + 1, rlx.while_loop(lambda w: w[0] < i, lambda w: (w[0] + 1, w[1] + i), (i * 0, x))[1]
    f = rlx.jit(lambda n: rlx.while_loop(lambda v: v[0] < n, outer, (n * 0, n * 0))[1], device=name)
    assert int(f(rlx.asarray(np.int32(7), device=name))) == sum(i * i for i in range(7))


@family
def test_a_branch_in_a_loop(name: str) -> None:
    def body(v: tuple) -> tuple:
        i, x = v
        return i + 1, rlx.cond(i % 2 == 0, lambda y: y + 10, lambda y: y * 2, x)
    f = rlx.jit(lambda n: rlx.while_loop(lambda v: v[0] < n, body, (n * 0, n * 0 + 1))[1], device=name)
    want = 1
    for i in range(9):
        want = want + 10 if i % 2 == 0 else want * 2
    assert int(f(rlx.asarray(np.int32(9), device=name))) == want


@family
def test_a_counted_loop(name: str) -> None:
    f = rlx.jit(lambda n, x: rlx.fori_loop(0, n, lambda i, y: y + i, x), device=name)
    for n in (0, 1, 40):
        got = f(rlx.asarray(n, device=name), rlx.asarray(np.int64(2**40), device=name))
        assert int(got) == 2**40 + n * (n - 1) // 2


@family
def test_threads_share_a_program(name: str) -> None:
    f = rlx.jit(lambda x: rlx.cumulative_sum(rlx.sort(x)), device=name)
    wrong: list[int] = []

    def work(seed: int) -> None:
        x = np.random.default_rng(seed).integers(-50, 50, 500).astype(np.int32)
        for _ in range(5):
            if not np.array_equal(np.asarray(f(rlx.asarray(x, device=name))), np.cumsum(np.sort(x))):
                wrong.append(seed)
    threads = [threading.Thread(target=work, args=(k,)) for k in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


@family
def test_what_is_too_large_says_so(name: str) -> None:
    d = devices.find(name)
    with pytest.raises(DeviceError, match="does not fit") as e:
        d.empty(rlx.float32, (1 << 40,))
    assert "binds at most" in e.value.why and e.value.do


@family
def test_the_report_names_the_rules(name: str) -> None:
    def f(x: rlx.Array, z: rlx.Array) -> tuple:
        return rlx.exp(x).astype(rlx.float16) * 2, z * z
    args = [rlx.asarray(np.ones(3, np.float32), device=name), rlx.asarray(np.ones(3, np.complex64), device=name)]
    by = {r.by for r in rlx.explain(f, *args, device=name)}
    assert {"exp-expansion", "f32-arithmetic", "complex-to-pairs"} <= by


@pytest.mark.skipif(ABSENT.get("webgpu", "") is not None, reason=str(ABSENT.get("webgpu")))
def test_float64_without_hardware_is_refused_with_the_choices() -> None:
    x = rlx.asarray(np.ones(3, np.float32), device="webgpu")
    with pytest.raises(CompileError, match="f64") as e:
        rlx.eval(x.astype(rlx.float64))
    assert "no float64" in e.value.why and "float32" in e.value.do
    assert rlx.asarray([1.0, 2.0], device="webgpu").dtype == rlx.float32
    y = rlx.asarray(np.ones(3, np.int64), device="webgpu")
    by = {r.by for r in rlx.explain(lambda v: v + 1, y, device="webgpu")}
    assert "i64-to-u32-pairs" in by


@family
def test_no_kernel_binds_more_than_the_driver_allows(name: str) -> None:
    """Twenty sums over one domain would fuse into one kernel of forty buffers."""
    xs = [np.full(50, k, np.int32) for k in range(20)]
    f = rlx.jit(lambda a: [x + y for x, y in zip(a, a[1:] + a[:1], strict=True)], device=name)
    outs = f([rlx.asarray(x, device=name) for x in xs])
    assert [int(np.asarray(o)[7]) for o in outs] == [k + (k + 1) % 20 for k in range(20)]
    assert devices.find(name).caps.max_buffers >= 4


def test_without_drivers_the_reasons_are_one_line_with_a_remedy() -> None:
    """Each loader is pointed at a driver that is not there (or there is none to begin with)."""
    hidden = dict.fromkeys(("VK_ICD_FILENAMES", "VK_DRIVER_FILES", "OCL_ICD_VENDORS"), "/nonexistent.json")
    env = os.environ | hidden | {"CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run([sys.executable, "-m", "rlx", "doctor"], env=env, capture_output=True, text=True,
                          timeout=250, check=True)
    lines = {line.split(" ")[0]: line for line in done.stdout.splitlines()[2:]}
    assert set(lines) == set(devices.names())
    assert "absent" in lines["vulkan"] and "install" in lines["vulkan"], lines["vulkan"]
    assert "absent" in lines["cuda"], lines["cuda"]
