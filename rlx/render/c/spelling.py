"""Which primitives the C family renders, by dtype: what a device of the family puts in ``Caps.spells``."""

from __future__ import annotations

from collections.abc import Iterable

from rlx.core.dtype import DType, float32, float64
from rlx.core.errors import CompileError
from rlx.ir.expand import expansion
from rlx.ir.prim import POINTWISE, TRANSCENDENTAL
from rlx.render.pairs import pair_function

_COMPLEX = frozenset(("neg", "add", "sub", "real", "imag", "conj", "cast", "select", "eq", "ne", "isnan"))


def spells(dtypes: Iterable[DType]) -> dict[str, frozenset[DType]]:
    """For each elementwise primitive, those of ``dtypes`` that can be rendered."""
    known = tuple(dtypes)
    return {
        name: frozenset(d for d in known if d.kind in p.kinds and _renders(name, d)) for name, p in POINTWISE.items()
    }


def _renders(name: str, d: DType) -> bool:
    if d.is_complex:
        return name in _COMPLEX or _has_pairs(name, d.real)
    if name not in TRANSCENDENTAL or d.is_integer:
        return True
    return expansion(name, float64 if d == float64 else float32) is not None


def _has_pairs(name: str, part: DType) -> bool:
    try:
        pair_function(name, part)
    except CompileError:
        return False
    return True
