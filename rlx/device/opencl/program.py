"""A program on the queue: every step is enqueued in order; the host waits only to learn how a loop goes on.

Kernels inside a ``while`` body or an arm of a branch exist a second time with a guard, a byte on the device:
they do nothing when it is zero. So both arms of a branch are enqueued, and several rounds of a ``while`` at
once; rounds after the last change nothing, and the result is the one of running round by round.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from rlx.compile.memory import place
from rlx.core import flags
from rlx.core.errors import DeviceError, ShapeError, VerifyError
from rlx.device.opencl import driver
from rlx.ir import loop as L
from rlx.render.c import launch_shape, render

#: Most rounds of a loop enqueued between two looks at its predicate.
MOST_ROUNDS = 32
#: Helper kernels: combine predicates, count rounds, copy under a guard.
_HELPERS = """
__kernel void rlx_flag(__global uchar* flag, __global const uchar* before, __global const uchar* pred, int want) {
  flag[0] = (before[0] != 0 && (pred[0] != 0) == (want != 0)) ? 1 : 0;
}
__kernel void rlx_count(__global long* counter, long k) { counter[0] = k; }
__kernel void rlx_copy_if(__global const uchar* go, __global const uchar* src, __global uchar* dst, ulong n) {
  if (go[0] == 0) { return; }
  for (ulong i = get_global_id(0); i < n; i += get_global_size(0)) { dst[i] = src[i]; }
}
"""
#: Lanes and workgroups of a guarded copy.
_COPY_SHAPE = ((16_384,), (64,))


class Loaded:
    """A built program, its arena and constants, and the kernels of every step."""

    def __init__(self, device: driver.Handles, program: L.Program) -> None:
        self.device = device
        align = max(int(device.device.mem_base_addr_align) // 8, 64)
        self.program = place(program, align)
        self._lock = threading.Lock()
        guarded = frozenset(_guarded(self.program.steps, False))
        self.source = (
            render(self.program.kernels(), "opencl", fast=flags.get("math") == "fast", guarded=guarded) + _HELPERS
        )
        self._built = self._build()
        self._fixed = self._memory()
        self._kernels: dict[tuple[int, bool], Any] = {}
        self._bytes: dict[int, Any] = {}
        cl = driver.pyopencl()
        with driver.told("make its kernels"):
            self._helpers = {n: cl.Kernel(self._built, n) for n in ("rlx_flag", "rlx_count", "rlx_copy_if")}
            self._true = self._byte(1)

    # Loading

    def _build(self) -> Any:
        cl = driver.pyopencl()
        d = self.device.device
        options = ["-cl-std=CL1.2"]
        if int(d.single_fp_config) & int(cl.device_fp_config.CORRECTLY_ROUNDED_DIVIDE_SQRT):
            options.append("-cl-fp32-correctly-rounded-divide-sqrt")
        try:
            return cl.Program(self.device.context, self.source).build(options, cache_dir=_cache())
        except cl.Error as e:
            raise DeviceError(
                f"opencl could not build program {self.program.name!r}",
                why=str(e),
                do="report this with the program's text (flag dump)",
            ) from e

    def _memory(self) -> dict[str, Any]:
        """Buffers that stay: constants, and temps as regions of the arena."""
        cl, context = driver.pyopencl(), self.device.context
        mf = cl.mem_flags
        fixed: dict[str, Any] = {}
        with driver.told("allocate a program's memory"):
            arena = cl.Buffer(context, mf.READ_WRITE, self.program.arena) if self.program.arena else None
            for b in self.program.buffers:
                if b.role == "temp" and arena is not None:
                    fixed[b.name] = arena.get_sub_region(b.offset, max(b.nbytes, 1))
                elif b.role == "const":
                    fixed[b.name] = cl.Buffer(context, mf.READ_ONLY | mf.COPY_HOST_PTR, hostbuf=_constant(b))
        self._arena = arena
        return fixed

    def _byte(self, value: int) -> Any:
        cl = driver.pyopencl()
        mf = cl.mem_flags
        return cl.Buffer(self.device.context, mf.READ_WRITE | mf.COPY_HOST_PTR, hostbuf=np.full(16, value, np.uint8))

    def _flag(self, step: L.Step, arm: int = 0) -> Any:
        """The guard byte of a loop or of an arm of a branch."""
        key = id(step) * 2 + arm
        if key not in self._bytes:
            self._bytes[key] = self._byte(0)
        return self._bytes[key]

    def _kernel(self, step: L.Launch, guard: bool) -> Any:
        """The kernel object of a step: its arguments in the arena are set once."""
        key = (id(step), guard)
        found = self._kernels.get(key)
        if found is None:
            cl = driver.pyopencl()
            kernel = cl.Kernel(self._built, step.kernel.name + ("_if" if guard else ""))
            varying = []
            for k, name in enumerate(step.buffers, int(guard)):
                if name in self._fixed:
                    kernel.set_arg(k, self._fixed[name])
                else:
                    varying.append((k, name))
            shape = launch_shape(step.kernel)
            total = tuple(g * n for g, n in zip(shape.groups, shape.lanes, strict=True))
            found = self._kernels[key] = (kernel, tuple(varying), total, shape.lanes)
        return found

    # Running

    def run(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Enqueue the program over these buffers."""
        env = dict(self._fixed)
        given = {"input": inputs, "output": outputs}
        for role, buffers in given.items():
            mine = [b for b in self.program.buffers if b.role == role]
            if len(mine) != len(buffers):
                raise ShapeError(
                    f"program {self.program.name!r} takes {len(mine)} {role}s",
                    why=f"{len(buffers)} were given",
                    do="give one storage for each slot",
                )
            env.update((b.name, buffers[b.slot]) for b in mine)
        with self._lock, driver.told(f"run program {self.program.name!r}"):
            self._steps(self.program.steps, env, None)
            self.device.queue.flush()

    def _steps(self, steps: Sequence[L.Step], env: dict[str, Any], guard: Any) -> None:
        for s in steps:
            match s:
                case L.Launch():
                    self._launch(s, env, guard)
                case L.Copy():
                    self._copy(s, env, guard)
                case L.While():
                    self._while(s, env, guard)
                case L.Branch():
                    self._branch(s, env, guard)
                case L.Repeat():
                    self._repeat(s, env, guard)
                case L.Native():
                    raise VerifyError(f"opencl has no claim {s.claim!r}", do="compile for this device's claims")

    def _launch(self, s: L.Launch, env: dict[str, Any], guard: Any) -> None:
        kernel, varying, total, lanes = self._kernel(s, guard is not None)
        if guard is not None:
            kernel.set_arg(0, guard)
        for k, name in varying:
            kernel.set_arg(k, env[name])
        driver.pyopencl().enqueue_nd_range_kernel(self.device.queue, kernel, total, lanes)

    def _copy(self, s: L.Copy, env: dict[str, Any], guard: Any) -> None:
        n = self.program.buffer(s.dst).nbytes
        if n == 0 or env[s.dst] is env[s.src]:
            return
        cl, queue = driver.pyopencl(), self.device.queue
        if guard is None:
            cl.enqueue_copy(queue, env[s.dst], env[s.src], byte_count=n)
            return
        kernel = self._helpers["rlx_copy_if"]
        kernel.set_args(guard, env[s.src], env[s.dst], np.uint64(n))
        lanes = _COPY_SHAPE[1][0]
        cl.enqueue_nd_range_kernel(queue, kernel, (min(_COPY_SHAPE[0][0], -(-n // lanes) * lanes),), _COPY_SHAPE[1])

    def _combine(self, flag: Any, before: Any, pred: Any, want: bool) -> None:
        """``flag = before and pred == want``, on the device."""
        kernel = self._helpers["rlx_flag"]
        kernel.set_args(flag, before, pred, np.int32(want))
        driver.pyopencl().enqueue_nd_range_kernel(self.device.queue, kernel, (1,), (1,))

    def _read(self, buffer: Any, dtype: Any) -> int:
        out = np.empty(1, dtype)
        driver.pyopencl().enqueue_copy(self.device.queue, out, buffer)
        return int(out[0])

    def _while(self, s: L.While, env: dict[str, Any], guard: Any) -> None:
        flag, before, rounds = self._flag(s), guard, 1
        many = not _waits(s.head) and not _waits(s.body)
        while True:
            for _ in range(rounds):
                self._steps(s.head, env, before)
                self._combine(flag, self._true if before is None else before, env[s.pred], True)
                before = flag
                if many:
                    self._steps(s.body, env, flag)
            if not self._read(flag, np.uint8):
                return
            if not many:
                self._steps(s.body, env, flag)
            rounds = min(rounds * 2, MOST_ROUNDS) if many else 1

    def _branch(self, s: L.Branch, env: dict[str, Any], guard: Any) -> None:
        flags_ = [self._flag(s, k) for k in (0, 1)]
        for flag, want in zip(flags_, (True, False), strict=True):
            self._combine(flag, self._true if guard is None else guard, env[s.pred], want)
        for flag, arm in zip(flags_, (s.then, s.orelse), strict=True):
            self._steps(arm, env, flag)

    def _repeat(self, s: L.Repeat, env: dict[str, Any], guard: Any) -> None:
        count = s.count if isinstance(s.count, int) else self._read(env[s.count], np.int64)
        counted = s.counter in env
        for k in range(count):
            if counted:
                kernel = self._helpers["rlx_count"]
                kernel.set_args(env[s.counter], np.int64(k))
                driver.pyopencl().enqueue_nd_range_kernel(self.device.queue, kernel, (1,), (1,))
            self._steps(s.body, env, guard)


def _guarded(steps: Sequence[L.Step], inside: bool) -> Iterator[str]:
    """Names of kernels that are launched under a guard."""
    for s in steps:
        match s:
            case L.Launch(kernel=k) if inside:
                yield k.name
            case L.While(head=h, body=b):
                yield from _guarded((*h, *b), True)
            case L.Branch(then=t, orelse=o):
                yield from _guarded((*t, *o), True)
            case L.Repeat(body=b):
                yield from _guarded(b, inside)
            case _:
                pass


def _waits(steps: Sequence[L.Step]) -> bool:
    """Whether enqueuing the steps needs the host to look at a result."""
    for s in steps:
        match s:
            case L.While():
                return True
            case L.Branch(then=t, orelse=o) if _waits((*t, *o)):
                return True
            case L.Repeat(count=n, body=b) if isinstance(n, str) or _waits(b):
                return True
            case _:
                pass
    return False


def _constant(b: L.Buffer) -> np.ndarray[Any, Any]:
    data = np.ascontiguousarray(b.data, b.dtype.numpy).reshape(-1)
    return data if data.size else np.zeros(1, b.dtype.numpy)


def _cache() -> Any:
    """Where pyopencl keeps driver binaries: flag ``cache_dir``, else its own directory; False when switched off."""
    if not flags.get("cache"):
        return False
    chosen = flags.get("cache_dir")
    if not chosen:
        return None
    path = os.path.join(str(chosen), "opencl")
    os.makedirs(path, exist_ok=True)
    return path
