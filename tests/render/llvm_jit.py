"""A small JIT for tests: LLVM text to callable kernels through llvmlite, optimised for this machine."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from rlx.core.dtype import DType, bfloat16
from rlx.ir import loop
from rlx.render.llvm import module, symbol

Array = np.ndarray[Any, Any]


def to_bf16(x: Array) -> Array:
    """float32 to bfloat16 bits, nearest even."""
    b = np.ascontiguousarray(x, np.float32).view(np.uint32).astype(np.uint64)
    rounded = ((b + 0x7FFF + (b >> np.uint64(16) & np.uint64(1))) >> np.uint64(16)).astype(np.uint16)
    return np.where(np.isnan(x), np.uint16(0x7FC0), rounded)


def from_bf16(x: Array) -> Array:
    return (x.astype(np.uint32) << np.uint32(16)).view(np.float32)


def plain(x: Array, d: DType) -> Array:
    """Stored values as NumPy numbers."""
    return from_bf16(x) if d == bfloat16 else x


def stored(x: Array, d: DType) -> Array:
    return to_bf16(np.asarray(x, np.float32)) if d == bfloat16 else np.asarray(x).astype(d.numpy)


@cache
def _machine() -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=3
    )


def optimised(text: str, level: int = 3) -> Any:
    """The verified module after the pipeline of ``level``, with both vectorisers on."""
    machine = _machine()
    parsed = llvm.parse_assembly(text)
    parsed.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=level)
    options.loop_vectorization = options.slp_vectorization = level > 1
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(parsed, builder)
    return parsed


class Jitted:
    """Compiled kernels, called by name with NumPy arrays in parameter order."""

    def __init__(self, kernels: Sequence[loop.Kernel], level: int = 3, *, fast: bool = False) -> None:
        self.kernels = {k.name: k for k in kernels}
        machine = (
            llvm.Target.from_default_triple().create_target_machine(
                cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=level
            )
            if _machine()
            else None
        )
        self.engine = llvm.create_mcjit_compiler(optimised(module(kernels, fast=fast), level), machine)
        self.engine.finalize_object()

    def __call__(self, name: str, *arrays: np.ndarray[Any, Any]) -> None:
        address = self.engine.get_function_address(f"{symbol(name)}.entry")
        function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(address)
        table = (ctypes.c_void_p * len(arrays))(*(a.ctypes.data for a in arrays))
        for g in range(int(np.prod(self.kernels[name].grid(), dtype=np.int64))):
            function(table, g)


def pointwise(name: str, op: str, args: Sequence[DType], result: DType, n: int) -> loop.Kernel:
    """``out[i] = op(a0[i], a1[i], ...)`` in a vector loop."""
    i = loop.var("i")
    params = [loop.Param(f"a{k}", d, n, "r") for k, d in enumerate(args)]
    value = loop.expr(op, tuple(loop.load(p.name, i, p.dtype) for p in params), result)
    body = loop.For("i", loop.const(0), loop.const(n), 1, loop.VECTOR, (loop.Store("out", i, value),))
    return loop.Kernel(name, (*params, loop.Param("out", result, n, "w")), (body,))
