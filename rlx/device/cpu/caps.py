"""What this host's processor can do, as data."""

from __future__ import annotations

from rlx.core.caps import Caps
from rlx.core.dtype import ALL, DType, float32, float64
from rlx.device.cpu import jit, threads
from rlx.ir.prim import POINTWISE, TRANSCENDENTAL

#: Transcendentals that the C library computes to within a few units in the last place, and that nobody expands.
LIBM = ("lgamma",)


def read() -> Caps:
    """Capabilities of the host, from LLVM's feature list and the process's affinity."""
    target = jit.host()
    return Caps(name="cpu", dtypes=frozenset(ALL), schedule="nest", default_float=float64, storage=frozenset(),
                spells=spells(), vector_bytes=vector_bytes(target), cores=threads.cores(),
                features=frozenset(f[1:] for f in target.features.split(",") if f.startswith("+")))


def vector_bytes(target: jit.Target) -> int:
    """Bytes of the widest vector register that code generation should fill."""
    if target.has("avx512f"):
        return 64
    return 32 if target.has("avx") else 16


def spells() -> dict[str, frozenset[DType]]:
    """The primitives that LLVM IR states exactly, with the dtypes the primitive table allows.

    Transcendentals are left to their expansions, but for those in ``LIBM``.
    """
    found = {name: frozenset(d for d in ALL if d.kind in p.kinds)
             for name, p in POINTWISE.items() if name not in TRANSCENDENTAL}
    found.update({name: frozenset((float32, float64)) for name in LIBM})
    return found


