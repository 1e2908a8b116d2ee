"""From text to machine code by NVRTC, kept on disk by text, architecture and compiler."""

from __future__ import annotations

import hashlib
import importlib
from functools import cache
from typing import Any

from rlx.core.errors import CompileError
from rlx.device import _cache as disk

#: Changes when entries of older versions must not be read.
FORMAT = "cubin1"
#: IEEE arithmetic: nothing fused that the program does not fuse; division, roots and denormals as they should be.
OPTIONS = ("--fmad=false", "--prec-div=true", "--prec-sqrt=true", "--ftz=false", "--std=c++17")


@cache
def _nvrtc() -> Any:
    return importlib.import_module("cuda.bindings.nvrtc")


@cache
def _version() -> str:
    return ".".join(map(str, _nvrtc().nvrtcVersion()[1:]))


def cubin(source: str, architecture: str, *, fast: bool = False) -> bytes:
    """Machine code for a source. Raises CompileError with the compiler's log when it does not compile."""
    options = (f"--gpu-architecture={architecture}", *OPTIONS[0 if not fast else 1:])
    key = hashlib.sha256(f"{FORMAT} {_version()} {options}\n{source}".encode()).hexdigest()
    found = disk.read(key)
    if found is None:
        found = _compile(source, options)
        disk.write(key, found)
    return found


def _compile(source: str, options: tuple[str, ...]) -> bytes:
    n = _nvrtc()
    error, program = n.nvrtcCreateProgram(source.encode(), b"program.cu", 0, [], [])
    if error:
        raise CompileError("NVRTC could not begin", why=error.name, do="reinstall the CUDA packages")
    try:
        (error,) = n.nvrtcCompileProgram(program, len(options), [o.encode() for o in options])
        if error:
            raise CompileError("NVRTC does not take a program's text", why=_log(program),
                               do="report this as a bug, with the text (RLX_DUMP=directory)")
        _, size = n.nvrtcGetCUBINSize(program)
        code: bytes = b" " * size
        (error,) = n.nvrtcGetCUBIN(program, code)
        if error:
            raise CompileError("NVRTC gave no machine code", why=error.name, do="reinstall the CUDA packages")
        return code
    finally:
        n.nvrtcDestroyProgram(program)


def _log(program: Any) -> str:
    n = _nvrtc()
    _, size = n.nvrtcGetProgramLogSize(program)
    log: bytes = b" " * size
    n.nvrtcGetProgramLog(program, log)
    return log.rstrip(b"\0 ").decode(errors="replace")
