"""rlx under the name of a backend that SciPy's tests know: ``pytest -p array_api_strict`` puts it before a real one."""

import sys
from types import SimpleNamespace

import rlx
from rlx.array.hooks import hooks

__version__, __array_api_version__ = "9.9", "2024.12"
#: Packages of rlx that are no part of the standard.
_BEYOND = ("distributed", "formats", "nn", "random", "sparse", "splat", "testing")
globals().update({n: getattr(rlx, n) for n in dir(rlx) if not n.startswith("_") and n not in _BEYOND})
__array_namespace_info__ = rlx.__array_namespace_info__
fft = SimpleNamespace(**{n: getattr(rlx.fft, n) for n in rlx.fft.__all__})
hooks.namespace = lambda version: sys.modules[__name__]
set_array_api_strict_flags = dict
