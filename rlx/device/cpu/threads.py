"""The process's thread pool: loaded once, sized by flag and affinity, forgotten by forked children."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from functools import cache

from rlx.core import flags
from rlx.device.cpu import jit, park, pool

_QUOTA = "/sys/fs/cgroup/cpu.max"


def absent() -> str | None:
    """Why there is no thread pool for this system, or None."""
    system, machine = sys.platform, platform.machine().lower()
    if system not in ("linux", "darwin") or machine not in park.MACHINES:
        return f"runs on Linux and macOS with an x86-64 or 64-bit ARM processor, not on {system} {machine}"
    return None


def cores() -> int:
    """The cores this process may use: its affinity mask, and the quota of its control group where there is
    one.
    """
    try:
        count = len(os.sched_getaffinity(0))
    except AttributeError:  # not every system has affinity
        count = os.cpu_count() or 1
    try:
        with open(_QUOTA) as f:
            quota, period = f.read().split()
        if quota != "max":
            count = min(count, max(1, -(-int(quota) // int(period))))
    except (OSError, ValueError):
        pass
    return count


def threads() -> int:
    """The threads of a parallel loop: flag ``threads``, never more than :func:`cores`."""
    asked = int(flags.get("threads"))
    return min(asked, cores()) if asked > 0 else cores()


def resolve(name: str) -> int | None:
    """The address of a function of the pool, or None."""
    return load().addresses.get(name) if name.startswith("rlx_p") else None


def apply_flag() -> None:
    """Let the pool follow flag ``threads``; called when a program is loaded."""
    _call("rlx_pool_threads", ctypes.c_int)(threads())


@cache
def load() -> jit.Library:
    """The pool, started by its first job."""
    library = load_for(park.Host(sys.platform, platform.machine().lower(), sys.platform == "linux"))
    _run_in_children(library["rlx_pool_reset"])
    return library


def load_for(host: park.Host) -> jit.Library:
    """A pool for that host form, with all its state; each call gives one more pool."""
    exports = ["rlx_parallel_for", "rlx_pool_threads", "rlx_pool_reset"]
    if host.system == "linux":
        exports.append("rlx_pool_allowed")
    library = jit.permanent(jit.load(pool.render_pool(host), tuple(exports), lambda name: None))
    ctypes.CFUNCTYPE(None)(library["rlx_pool_reset"])()
    if host.system == "linux":
        mask = (ctypes.c_uint8 * 128)()
        for cpu in os.sched_getaffinity(0):
            if cpu < 1024:
                mask[cpu // 8] |= 1 << cpu % 8
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(library["rlx_pool_allowed"])(ctypes.addressof(mask))
    return library


def _run_in_children(address: int) -> None:
    """Have the function run in every forked child: a child has none of its parent's threads."""
    process = ctypes.CDLL(None)
    for name in ("pthread_atfork", "__register_atfork"):  # the second is what glibc exports
        if hasattr(process, name):
            register = getattr(process, name)
            register.argtypes = [ctypes.c_void_p] * (3 if name == "pthread_atfork" else 4)
            if register(*([None, None, address, None][:len(register.argtypes)])) == 0:
                return
    os.register_at_fork(after_in_child=ctypes.CFUNCTYPE(None)(address))


def _call(name: str, *argtypes: type) -> ctypes._FuncPointer:
    return ctypes.CFUNCTYPE(None, *argtypes)(load()[name])
