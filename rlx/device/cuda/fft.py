"""cuFFT by its C interface: plans own their workspace, so that their calls can be recorded in a graph."""

from __future__ import annotations

import ctypes
import importlib
from functools import cache

from rlx.core.errors import DeviceError

#: cufftType by (op, bits of a real part), and the function that runs it (cufft.h).
TYPES = {("c2c", 32): (0x29, "cufftExecC2C"), ("r2c", 32): (0x2A, "cufftExecR2C"), ("c2r", 32): (0x2C, "cufftExecC2R"),
         ("c2c", 64): (0x69, "cufftExecZ2Z"), ("r2c", 64): (0x6A, "cufftExecD2Z"), ("c2r", 64): (0x6C, "cufftExecZ2D")}
FORWARD, INVERSE = -1, 1


@cache
def absent() -> str | None:
    """Why cuFFT cannot be called, or None."""
    try:
        _library()
    except Exception as e:  # the finder raises what it likes
        return f"cuFFT was not found ({type(e).__name__}: {e})"
    return None


@cache
def _library() -> ctypes.CDLL:
    found = importlib.import_module("cuda.pathfinder").load_nvidia_dynamic_lib("cufft")
    library = ctypes.CDLL(found.abs_path)
    number, pointer = ctypes.c_int, ctypes.c_void_p
    sizes = ctypes.POINTER(number)
    library.cufftPlanMany.argtypes = [sizes, number, sizes, sizes, number, number, sizes, number, number, number,
                                      number]
    library.cufftSetStream.argtypes = [number, pointer]
    for kind, (_, name) in TYPES.items():
        getattr(library, name).argtypes = [number, pointer, pointer, *([number] if kind[0] == "c2c" else [])]
    return library


class Transforms:
    """``batch`` transforms of length n, ``stride`` elements between neighbours and ``apart`` between transforms."""

    def __init__(self, kind: str, bits: int, n: int, batch: int, stride: int, apart: tuple[int, int]) -> None:
        code, name = TYPES[kind, bits]
        self._call = getattr(_library(), name)
        self._plan, one = ctypes.c_int(), ctypes.c_int * 1
        # Sizes of storage count only as "not null": there is one axis.
        _told(_library().cufftPlanMany(ctypes.byref(self._plan), 1, one(n), one(n), stride, apart[0], one(n), stride,
                                       apart[1], code, batch))

    def __call__(self, stream: int, source: int, target: int, *direction: int) -> None:
        """Enqueue them; c2r overwrites its source."""
        _told(_library().cufftSetStream(self._plan, stream))
        _told(self._call(self._plan, source, target, *direction))


def _told(status: int) -> None:
    if status:
        raise DeviceError("cuFFT refused a transform", why=f"status {status} (cufft.h)",
                          do="use the policy common to do without it")
