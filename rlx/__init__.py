"""rlx: NumPy-style arrays whose every operation is an expression in one compiled IR.

The module is an Array API namespace. Its functions come from the registry of ops; ``__init__.pyi`` lists them all with
their signatures (written by ``python -m rlx.tools.stubs``).
"""

import importlib as _importlib

from rlx.runtime import eager as _eager

_eager.install()

from rlx import ops as _ops  # noqa: E402
from rlx.array import interop as _interop  # noqa: E402
from rlx.array.array import FUNCTIONS as _FUNCTIONS  # noqa: E402
from rlx.array.array import Array  # noqa: E402

globals().update({_n: _f for _n, _f in _FUNCTIONS.items() if not _n.startswith("_") and "." not in _n})

globals().update({**_ops.dtypes.NAMES, **_ops.grids.BRACKETS, "True_": True, "False_": False})

from rlx.array.array import eval_arrays as eval  # noqa: E402
from rlx.array.jit import jit, make_graph, spec  # noqa: E402
from rlx.array.tree import register_pytree, tree_map  # noqa: E402
from rlx.core.dtype import (  # noqa: E402
    DType,
    bfloat16,
    complex64,
    complex128,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)
from rlx.core.dtype import bool_ as bool  # noqa: E402
from rlx.core.flags import flags  # noqa: E402
from rlx.core.shape import dim  # noqa: E402
from rlx.ops.dtypes import e, euler_gamma, inf, nan, newaxis, pi  # noqa: E402
from rlx.runtime.execute import explain  # noqa: E402
from rlx.runtime.info import __array_namespace_info__  # noqa: E402
from rlx.runtime.inspect import explain_recompile, no_compile  # noqa: E402

__version__ = "0.1.0"
__array_api_version__ = "2025.12"

#: Transforms, imported when the first is named.
_TRANSFORMS = (
    "checkpoint",
    "custom_gradient",
    "custom_linear_solve",
    "custom_root",
    "fixed_point",
    "grad",
    "hessian",
    "hvp",
    "jacobian",
    "jvp",
    "linearize",
    "value_and_grad",
    "vjp",
    "vmap",
)
#: Functions of NumPy's namespace that stand on upper floors, with their modules.
_UPPER = {
    "apply_along_axis": "rlx.transform.vectorize",
    "vectorize": "rlx.transform.vectorize",
    "polyfit": "rlx.linalg.polynomials",
    "roots": "rlx.linalg.polynomials",
}
#: Packages beside this module, imported when they are first named.
_LAZY = ("fft", "linalg", "nn", "random", "sparse", "splat", "testing", "distributed", "formats")


def __getattr__(name: str) -> object:
    if name in _TRANSFORMS:
        found = globals()[name] = getattr(_importlib.import_module("rlx.transform"), name)
        return found
    if name in _UPPER:
        found = globals()[name] = getattr(_importlib.import_module(_UPPER[name]), name)
        return found
    if name in _LAZY:
        try:
            return _importlib.import_module(f"{__name__}.{name}")
        except ModuleNotFoundError as missing:
            if missing.name != f"{__name__}.{name}":
                raise
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({n for n in globals() if not n.startswith("_")} | set(_LAZY) | set(_TRANSFORMS) | set(_UPPER)
                  | {"__array_api_version__", "__array_namespace_info__", "__version__"})
