"""NVIDIA's run-time compiler through ctypes: text to machine code, with no GPU."""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Callable
from pathlib import Path


def load() -> Callable[[str, str], bytes] | None:
    """``compile(source, architecture) -> cubin``; None where the library is not installed.

    A source that does not compile is an AssertionError with the compiler's log.
    """
    library = _find()
    if library is None:
        return None
    lib = ctypes.CDLL(library)

    def compile_(source: str, architecture: str) -> bytes:
        program = ctypes.c_void_p()
        assert lib.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"k.cu", 0, None, None) == 0
        options = [f"--gpu-architecture={architecture}".encode(), b"--fmad=false", b"--std=c++17"]
        status = lib.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
        size = ctypes.c_size_t()
        lib.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        lib.nvrtcGetProgramLog(program, log)
        assert status == 0, log.value.decode()
        lib.nvrtcGetCUBINSize(program, ctypes.byref(size))
        code = ctypes.create_string_buffer(size.value)
        lib.nvrtcGetCUBIN(program, code)
        return code.raw

    return compile_


def _find() -> str | None:
    spec = importlib.util.find_spec("nvidia")
    for root in (spec.submodule_search_locations or []) if spec is not None else []:
        found = sorted(p for p in Path(root).glob("**/libnvrtc.so.*") if "alt" not in p.name)
        if found:
            return str(found[-1])
    return None
