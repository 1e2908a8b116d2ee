"""OpenBLAS and LAPACK by pointer: scipy-openblas64, with 64-bit integers, on one thread.

Its own threads are switched off: two spinning pools in one process stall each other for milliseconds, so
work is split over rlx's pool instead. Only the factorization of one large matrix has them, for its duration:
nobody but LAPACK can split that, and they sleep soon after (``_SPIN``). This copy of the library is not the
one inside NumPy, whose threads stay as they are.
"""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from rlx.core.dtype import DType

_PACKAGE = "scipy_openblas64"
_SUFFIX = {"linux": ".so", "darwin": ".dylib"}
#: BLAS's letter for each dtype it computes in.
LETTER = {"float32": "s", "float64": "d", "complex64": "c", "complex128": "z"}


#: The library's function that says how many threads it may use: ``void (i32)``.
SET_THREADS = "scipy_openblas_set_num_threads64_"
#: A worker without work looks for it for 2^20 ticks of the processor's clock (0.3 ms: the pauses within a
#: factorization), not 2^26 as by default.
_SPIN = "20"


def absent() -> str | None:
    """Why there is no OpenBLAS here, or None."""
    if find_spec(_PACKAGE) is None:
        return "needs OpenBLAS, which is not installed (pip install scipy-openblas64)"
    return None


def letter(dtype: DType) -> str | None:
    """``s``, ``d``, ``c`` or ``z``; None for a dtype that BLAS does not compute in."""
    return LETTER.get(dtype.name)


def cblas(routine: str) -> str:
    """The symbol of a CBLAS routine: ``dgemm`` -> ``scipy_cblas_dgemm64_``."""
    return f"scipy_cblas_{routine}64_"


def lapack(routine: str) -> str:
    """The symbol of a LAPACK routine in Fortran's calling form: ``dpotrf`` -> ``scipy_dpotrf_64_``."""
    return f"scipy_{routine}_64_"


def address(name: str) -> int | None:
    """Where a symbol of the library is; None for a name of another library, or when there is no OpenBLAS."""
    if not name.startswith("scipy_") or absent() is not None:
        return None
    try:
        return ctypes.cast(getattr(_library(), name), ctypes.c_void_p).value
    except AttributeError:
        return None


@cache
def _library() -> ctypes.CDLL:
    """The library, loaded without threads of its own: it reads these variables once, while it is being loaded."""
    spec = find_spec(_PACKAGE)
    assert spec is not None and spec.origin is not None
    path = Path(spec.origin).parent / "lib" / f"libscipy_openblas64_{_SUFFIX.get(sys.platform, '.dll')}"
    wanted = {"OPENBLAS_NUM_THREADS": "1", "OPENBLAS_THREAD_TIMEOUT": _SPIN}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        library = ctypes.CDLL(str(path))
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
    library.scipy_openblas_set_num_threads64_(1)
    return library
