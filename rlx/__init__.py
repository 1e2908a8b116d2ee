"""rlx: NumPy-style arrays whose every operation is an expression in one compiled IR."""

from rlx.runtime import execute as _execute

_execute.install()

from rlx import ops as _ops  # noqa: E402
from rlx.array.array import FUNCTIONS as _FUNCTIONS  # noqa: E402
from rlx.array.array import Array  # noqa: E402

globals().update({_n: _f for _n, _f in _FUNCTIONS.items() if not _n.startswith("_") and "." not in _n})

from rlx.array.array import eval_arrays as eval  # noqa: E402
from rlx.array.jit import jit  # noqa: E402
from rlx.array.tree import register_pytree, tree_map  # noqa: E402
from rlx.core.dtype import (  # noqa: E402
    bfloat16, complex64, complex128, float16, float32, float64, int8, int16, int32, int64, uint8, uint16, uint32, uint64,
)
from rlx.core.dtype import bool_ as bool  # noqa: E402
from rlx.core.flags import flags  # noqa: E402
from rlx.runtime.execute import explain  # noqa: E402
