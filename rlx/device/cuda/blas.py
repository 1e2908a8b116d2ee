"""cuBLAS by its C interface: a handle with a workspace of its own, so that its calls can be recorded in a graph."""

from __future__ import annotations

import ctypes
import importlib
from functools import cache
from typing import Any

from rlx.core.dtype import DType
from rlx.core.errors import DeviceError
from rlx.device.cuda import driver

#: cudaDataType and cublasComputeType of each dtype (library_types.h, cublas_api.h): IEEE float32, 16-bit floats
#: summed in float32.
TYPES: dict[str, tuple[int, int]] = {
    "f16": (2, 68), "bf16": (14, 68), "f32": (0, 68), "f64": (1, 70), "c64": (4, 68), "c128": (5, 70),
}
#: Workspace that NVIDIA recommends for Hopper.
WORKSPACE = 32 << 20
_NORMAL, _TRANSPOSED, _DEFAULT_ALGORITHM = 0, 1, -1


@cache
def absent() -> str | None:
    """Why cuBLAS cannot be called, or None."""
    try:
        _library()
    except Exception as e:  # the finder raises what it likes
        return f"cuBLAS was not found ({type(e).__name__}: {e})"
    return None


@cache
def _library() -> ctypes.CDLL:
    found = importlib.import_module("cuda.pathfinder").load_nvidia_dynamic_lib("cublas")
    library = ctypes.CDLL(found.abs_path)
    long, pointer, number = ctypes.c_longlong, ctypes.c_void_p, ctypes.c_int
    library.cublasGemmStridedBatchedEx.argtypes = [
        pointer, number, number, number, number, number, pointer, pointer, number, number, long,
        pointer, number, number, long, pointer, pointer, number, number, long, number, number, number]
    for letter in "SDCZ":
        getattr(library, f"cublas{letter}trsm_v2").argtypes = [
            pointer, number, number, number, number, number, number, pointer, pointer, number, pointer, number]
    library.cublasSetStream_v2.argtypes = [pointer, pointer]
    library.cublasSetWorkspace_v2.argtypes = [pointer, pointer, ctypes.c_size_t]
    return library


@cache
def _handle() -> tuple[ctypes.c_void_p, Any]:
    """The handle, and its workspace's memory."""
    handle = ctypes.c_void_p()
    _told(_library().cublasCreate_v2(ctypes.byref(handle)))
    memory = driver.cupy().cuda.alloc(WORKSPACE)
    return handle, memory


def _ready(stream: int) -> ctypes.c_void_p:
    """The handle, on a stream; setting that takes the workspace away."""
    handle, memory = _handle()
    _told(_library().cublasSetStream_v2(handle, stream))
    _told(_library().cublasSetWorkspace_v2(handle, memory.ptr, WORKSPACE))
    return handle


def _told(status: int) -> None:
    if status:
        raise DeviceError("cuBLAS refused a call", why=f"status {status} (cublas_api.h)",
                          do="use the policy common to do without it")


class Product:
    """``out[b] = lhs[b] @ rhs[b]`` for row-major results; an operand may lie transposed.

    Row-major matrices are the transposes of column-major ones, so the library computes ``out^T = rhs^T lhs^T``.
    """

    def __init__(self, dtype: DType, batch: int, m: int, n: int, k: int, lhs: tuple[bool, int, int],
                 rhs: tuple[bool, int, int]) -> None:
        data, compute = TYPES[dtype.short]
        part = ctypes.c_double if compute == 70 else ctypes.c_float
        self._scale = (part * 2)(1, 0), (part * 2)(0, 0)
        (ta, lda, step_a), (tb, ldb, step_b) = lhs, rhs
        self._ops = (_TRANSPOSED if tb else _NORMAL, _TRANSPOSED if ta else _NORMAL, n, m, k)
        self._a, self._b, self._c = (data, lda, step_a), (data, ldb, step_b), (data, n, m * n)
        self._tail = (batch, compute, _DEFAULT_ALGORITHM)

    def __call__(self, stream: int, a: int, b: int, c: int) -> None:
        """Enqueue the product of the matrices at these addresses."""
        handle, library = _ready(stream), _library()
        one, zero = self._scale
        _told(library.cublasGemmStridedBatchedEx(handle, *self._ops, one, b, *self._b, a, *self._a, zero, c, *self._c,
                                                 *self._tail))


class Triangular:
    """``X <- op(A)^-1 X`` for row-major A (n, n) and X (n, k); ``trans`` 0, 1, 2 is A, A^T, A^H.

    The library sees A^T and X^T: it solves ``X^T op(A)^T = B^T`` from the right, where ``op(A)^T`` is the op of A^T.
    """

    def __init__(self, dtype: DType, n: int, k: int, *, lower: bool, trans: int, unit: bool) -> None:
        letter = {"f32": "S", "f64": "D", "c64": "C", "c128": "Z"}[dtype.short]
        self._call = getattr(_library(), f"cublas{letter}trsm_v2")
        part = ctypes.c_float if letter in "SC" else ctypes.c_double
        self._one = (part * 2)(1, 0)
        # Side right is 1; A^T of a lower triangle is an upper one, 1; a unit diagonal is 1 (cublas_api.h).
        self._args = 1, int(lower), trans, int(unit), k, n
        self._n, self._k = n, k

    def __call__(self, stream: int, a: int, x: int) -> None:
        """Enqueue the solution in place of the right sides."""
        _told(self._call(_ready(stream), *self._args, self._one, a, self._n, x, self._k))
