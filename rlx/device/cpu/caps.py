"""What this host's processor can do, as data."""

from __future__ import annotations

from rlx.core.caps import Caps
from rlx.core.dtype import ALL, DType, complex64, complex128, float32, float64
from rlx.core.errors import CompileError
from rlx.device.cpu import jit, threads
from rlx.ir.expand import expansion
from rlx.ir.prim import POINTWISE, TRANSCENDENTAL
from rlx.render.pairs import pair_function

#: Functions of the C library that do for a transcendental without an expansion.
LIBM = frozenset((
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan",
    "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "lgamma", "pow", "atan2", "hypot"))


def read() -> Caps:
    """Capabilities of the host, from LLVM's feature list and the process's affinity."""
    target = jit.host()
    return Caps(name="cpu", dtypes=frozenset(ALL), schedule="nest", default_float=float64, spells=spells(),
                vector_bytes=vector_bytes(target), cores=threads.cores(),
                features=frozenset(f[1:] for f in target.features.split(",") if f.startswith("+")))


def vector_bytes(target: jit.Target) -> int:
    """Bytes of the widest vector register that code generation should fill."""
    if target.has("avx512f"):
        return 64
    return 32 if target.has("avx") else 16


def spells() -> dict[str, frozenset[DType]]:
    """The primitives the renderer takes, by dtype: it expands transcendentals and complex ones itself."""
    return {name: frozenset(d for d in ALL if d.kind in p.kinds and _spelled(name, d))
            for name, p in POINTWISE.items()}


def _spelled(name: str, dtype: DType) -> bool:
    if dtype in (complex64, complex128):
        return name in _COMPLEX or _has_pairs(name, dtype.real)
    if name not in TRANSCENDENTAL or dtype.is_integer:
        return True
    wide = float64 if dtype == float64 else float32
    return name in LIBM or expansion(name, wide) is not None


#: Complex primitives that need no formula.
_COMPLEX = frozenset(("neg", "add", "sub", "real", "imag", "conj", "cast", "select", "eq", "ne", "isnan"))


def _has_pairs(name: str, part: DType) -> bool:
    """Whether there is a formula for the complex primitive in real ones."""
    try:
        pair_function(name, part)
    except CompileError:
        return False
    return True
