"""Kernels written by hand in CUDA C++, for claims: compiled once for each text, launched on addresses."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any

from rlx.device.cuda import build, driver


class Kernel:
    """One kernel of a source; every parameter is an address. Multiplications and additions may be fused."""

    def __init__(self, source: str, name: str) -> None:
        self._name = name
        self._function = driver.told("find a kernel", driver.api().cuModuleGetFunction(_module(source), name.encode()))

    def __call__(self, stream: int, groups: int, lanes: int, addresses: Sequence[int]) -> None:
        """Enqueue it on a stream, whose graph may record it."""
        n = len(addresses)
        values = (ctypes.c_uint64 * n)(*addresses)
        table = (ctypes.c_void_p * n)(*[ctypes.addressof(values) + 8 * k for k in range(n)])
        driver.told(f"launch kernel {self._name!r}", driver.api().cuLaunchKernel(
            self._function, groups, 1, 1, lanes, 1, 1, 0, stream, ctypes.addressof(table), 0))


@cache
def _module(source: str) -> Any:
    architecture = driver.architecture(int(driver.cupy().cuda.Device().id))
    code = build.cubin(source, architecture, fast=True)
    return driver.told("load a claim's kernels", driver.api().cuModuleLoadData(code))
