"""The thread pool: every index exactly once, however it is called; and children of a fork."""

from __future__ import annotations

import ctypes
import os
import platform
import subprocess
import sys
import threading
from collections.abc import Callable

import numpy as np
import pytest

from rlx.core import flags
from rlx.device.cpu import jit, park, pool, threads

#: ``many(x, n, times)``: run ``x[i] += 1`` for i < n as a parallel loop, ``times`` over. ``nested(x, n,
#: times)``: the same from inside a parallel loop over ``times``, each over its own n elements. ``meet(x, n,
#: times)``: n chunks that wait for each other, so each needs a thread of its own; x[1] counts those that
#: gave up after ``times`` looks.
_DRIVERS = """
declare void @rlx_parallel_for(ptr, ptr, i64)
define internal void @bump(ptr %x, i64 %i) {
  %p = getelementptr i64, ptr %x, i64 %i
  %v = load i64, ptr %p
  %w = add i64 %v, 1
  store i64 %w, ptr %p
  ret void
}
define void @many(ptr %x, i64 %n, i64 %times) {
entry:
  br label %loop
loop:
  %k = phi i64 [ 0, %entry ], [ %k1, %loop ]
  call void @rlx_parallel_for(ptr @bump, ptr %x, i64 %n)
  %k1 = add i64 %k, 1
  %more = icmp slt i64 %k1, %times
  br i1 %more, label %loop, label %out
out:
  ret void
}
define internal void @outer(ptr %c, i64 %i) {
  %x = load ptr, ptr %c
  %np = getelementptr i64, ptr %c, i64 1
  %n = load i64, ptr %np
  %o = mul i64 %i, %n
  %at = getelementptr i64, ptr %x, i64 %o
  call void @rlx_parallel_for(ptr @bump, ptr %at, i64 %n)
  ret void
}
define internal void @arrive(ptr %x, i64 %i) {
entry:
  %a = atomicrmw add ptr %x, i64 1 seq_cst
  %np = getelementptr i64, ptr %x, i64 2
  %n = load i64, ptr %np
  %mp = getelementptr i64, ptr %x, i64 3
  %most = load i64, ptr %mp
  br label %look
look:
  %k = phi i64 [ 0, %entry ], [ %k1, %again ]
  %there = load atomic i64, ptr %x acquire, align 8
  %all = icmp sge i64 %there, %n
  br i1 %all, label %out, label %again
again:
  %k1 = add i64 %k, 1
  %y = call i32 @sched_yield()
  %patient = icmp slt i64 %k1, %most
  br i1 %patient, label %look, label %late
late:
  %lp = getelementptr i64, ptr %x, i64 1
  %b = atomicrmw add ptr %lp, i64 1 seq_cst
  ret void
out:
  ret void
}
declare i32 @sched_yield()
define void @meet(ptr %x, i64 %n, i64 %times) {
  %np = getelementptr i64, ptr %x, i64 2
  store i64 %n, ptr %np
  %mp = getelementptr i64, ptr %x, i64 3
  store i64 %times, ptr %mp
  call void @rlx_parallel_for(ptr @arrive, ptr %x, i64 %n)
  ret void
}
define void @nested(ptr %x, i64 %n, i64 %times) {
  %c = alloca { ptr, i64 }
  store ptr %x, ptr %c
  %np = getelementptr i64, ptr %c, i64 1
  store i64 %n, ptr %np
  call void @rlx_parallel_for(ptr @outer, ptr %c, i64 %times)
  ret void
}
"""

Call = Callable[[np.ndarray, int, int], None]


class Pool:
    """A pool of its own, with the drivers linked to it."""

    def __init__(self, futex: bool) -> None:
        host = park.Host(sys.platform, platform.machine().lower(), futex)
        self.library = threads.load_for(host)
        self.code = jit.load(_DRIVERS, ("many", "nested", "meet"), self.library.addresses.get)
        self.many, self.nested, self.meet = self._call("many"), self._call("nested"), self._call("meet")

    def _call(self, name: str) -> Call:
        f = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(self.code[name])
        return lambda x, n, times: f(x.ctypes.data, n, times)

    def limit(self, n: int) -> None:
        ctypes.CFUNCTYPE(None, ctypes.c_int)(self.library["rlx_pool_threads"])(n)


@pytest.fixture(scope="module", params=["futex", "cond"])
def workers(request: pytest.FixtureRequest) -> Pool:
    if request.param == "futex" and sys.platform != "linux":
        pytest.skip("futexes are Linux's")
    return Pool(request.param == "futex")


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_every_index_once(workers: Pool, count: int) -> None:
    """200,000 jobs in all; more threads than cores are allowed here, to meet in odd places."""
    workers.limit(count)
    for n, times in ((1, 100), (2, 30_000), (3, 15_000), (17, 4_000), (129, 900), (1000, 100)):
        x = np.zeros(n, np.int64)
        workers.many(x, n, times)
        assert (x == times).all(), (n, times)


def test_large_and_empty_jobs(workers: Pool) -> None:
    workers.limit(3)
    x = np.zeros(2_000_003, np.int64)
    workers.many(x, len(x), 1)
    assert (x == 1).all()
    workers.many(x, 0, 5)
    workers.many(x, -3, 5)
    assert (x == 1).all()


def test_a_job_inside_a_job(workers: Pool) -> None:
    workers.limit(3)
    x = np.zeros(40 * 25, np.int64)
    for _ in range(200):
        workers.nested(x, 25, 40)
    assert (x == 200).all()


def test_two_threads_at_once(workers: Pool) -> None:
    workers.limit(2)
    counts = [np.zeros(n, np.int64) for n in (2, 37, 300)]
    callers = [threading.Thread(target=workers.many, args=(x, len(x), 20_000)) for x in counts]
    for c in callers:
        c.start()
    for c in callers:
        c.join()
    assert all((x == 20_000).all() for x in counts)


@pytest.mark.parametrize("count", [2, 4])
def test_workers_wake_after_they_parked(workers: Pool, count: int) -> None:
    """Chunks that wait for each other need every thread to come, whether it spun or slept."""
    workers.limit(count)
    pause = threading.Event()
    for wait in (0.0, 0.0, 0.01, 0.02, 0.02):
        pause.wait(wait)
        x = np.zeros(4, np.int64)
        workers.meet(x, count, 3_000_000)
        assert list(x[:2]) == [count, 0]


def test_a_lower_limit_uses_fewer_threads(workers: Pool) -> None:
    """Three chunks cannot meet on two threads, though a third thread is there."""
    workers.limit(3)
    x = np.zeros(4, np.int64)
    workers.meet(x, 3, 3_000_000)
    assert list(x[:2]) == [3, 0]
    workers.limit(2)
    x = np.zeros(4, np.int64)
    workers.meet(x, 3, 20_000)
    assert x[0] == 3 and x[1] >= 1


@pytest.mark.parametrize("system,machine,triple", [
    ("linux", "aarch64", "aarch64-unknown-linux-gnu"), ("darwin", "arm64", "arm64-apple-macosx"),
    ("darwin", "x86_64", "x86_64-apple-macosx"), ("linux", "x86_64", "x86_64-unknown-linux-gnu")])
def test_text_for_other_hosts_is_code(system: str, machine: str, triple: str) -> None:
    import llvmlite.binding as llvm
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    for futex in {system == "linux", False}:
        module = llvm.parse_assembly(pool.render_pool(park.Host(system, machine, futex)))
        module.triple = triple
        module.verify()
        assembly = llvm.Target.from_triple(triple).create_target_machine(opt=2).emit_assembly(module)
        assert ("pause" if machine == "x86_64" else "yield") in assembly
        assert ("syscall" in assembly) == (system == "linux")


def test_thread_count_follows_flag_and_affinity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "cores", lambda: 6)
    for asked, expected in ((0, 6), (1, 1), (4, 4), (100, 6)):
        with flags.flags(threads=asked):
            assert threads.threads() == expected


_FORK = """
import ctypes, os, sys, threading
import numpy as np
from rlx.device.cpu import jit, threads
sys.path.insert(0, {folder!r})
from test_cpu_pool import _DRIVERS
library = threads.load()
code = jit.load(_DRIVERS, ("many",), library.addresses.get)
many = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(code["many"])
ctypes.CFUNCTYPE(None, ctypes.c_int)(library["rlx_pool_threads"])(2)
def check(times):
    x = np.zeros(50, np.int64)
    many(x.ctypes.data, 50, times)
    return bool((x == times).all())
assert check(1000)
busy = threading.Thread(target=check, args=(300_000,))
busy.start()  # a job is running, or the lock is held, at most of the forks
for _ in range(10):
    child = os.fork()
    if child == 0:
        here = len(os.listdir("/proc/self/task"))
        good = check(1000)
        os._exit(0 if good and here == 1 and len(os.listdir("/proc/self/task")) == 2 else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert check(100)
busy.join()
print("done")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="counts threads in /proc")
def test_forked_children_start_their_own_workers() -> None:
    script = _FORK.format(folder=os.path.dirname(__file__))
    result = subprocess.run([sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True,
                            timeout=120, cwd=os.getcwd(), check=False)
    assert result.stdout == "done\n", result.stderr
