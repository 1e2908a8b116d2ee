"""Which primitives renderers that expand functions themselves take, by dtype: what a device puts in ``Caps.spells``."""

from __future__ import annotations

from collections.abc import Iterable

from rlx.core.dtype import DType, float32, float64
from rlx.ir.expand import expansion
from rlx.ir.prim import POINTWISE, TRANSCENDENTAL
from rlx.render.pairs import has_pairs

#: Complex primitives that need no formula.
_COMPLEX = frozenset(("neg", "add", "sub", "real", "imag", "conj", "cast", "select", "eq", "ne", "isnan"))


def spells(dtypes: Iterable[DType], library: frozenset[str] = frozenset()) -> dict[str, frozenset[DType]]:
    """For each elementwise primitive, those of ``dtypes`` that can be rendered.

    ``library`` names functions that need no expansion, since the target's library has them.
    """
    known = tuple(dtypes)
    return {name: frozenset(d for d in known if d.kind in p.kinds and _renders(name, d, library))
            for name, p in POINTWISE.items()}


def _renders(name: str, d: DType, library: frozenset[str]) -> bool:
    if d.is_complex:
        return name in _COMPLEX or has_pairs(name)
    if name not in TRANSCENDENTAL or d.is_integer or name in library:
        return True
    return expansion(name, float64 if d == float64 else float32) is not None
