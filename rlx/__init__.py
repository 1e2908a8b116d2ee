"""rlx: NumPy-style arrays whose every operation is an expression in one compiled IR."""

from rlx.runtime import execute as _execute

_execute.install()

from rlx import ops as _ops  # noqa: E402
from rlx.array.array import FUNCTIONS as _FUNCTIONS  # noqa: E402
from rlx.array.array import Array  # noqa: E402

globals().update({_n: _f for _n, _f in _FUNCTIONS.items() if not _n.startswith("_") and "." not in _n})
