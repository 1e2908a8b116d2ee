"""Which primitives the portable rewrite gives, by dtype: what such a device declares in its capabilities."""

from __future__ import annotations

from rlx.core.dtype import DType, float32, float64
from rlx.core.errors import CompileError
from rlx.ir.expand import FUNCTIONS
from rlx.ir.prim import POINTWISE, TRANSCENDENTAL
from rlx.render.pairs import pair_function

_PLAIN_COMPLEX = frozenset(("neg", "add", "sub", "real", "imag", "conj", "cast", "select", "eq", "ne", "isnan"))


def spells(dtypes: frozenset[DType]) -> dict[str, frozenset[DType]]:
    """For each elementwise primitive, the dtypes in which the rewrite computes it."""
    return {name: frozenset(d for d in dtypes if d.kind in p.kinds and _spelled(name, d))
            for name, p in POINTWISE.items()}


def _spelled(name: str, d: DType) -> bool:
    if d.is_complex:
        return name in _PLAIN_COMPLEX or _has_pairs(name, d.real)
    return not d.is_float or name not in TRANSCENDENTAL or name in FUNCTIONS


def _has_pairs(name: str, part: DType) -> bool:
    try:
        pair_function(name, part)
    except CompileError:
        return False
    return part in (float32, float64)
