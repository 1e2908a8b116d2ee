"""What this host's processor can do, as data."""

from __future__ import annotations

from rlx.core.caps import Caps
from rlx.core.dtype import ALL, float64
from rlx.device.cpu import jit, threads
from rlx.render.llvm.transcendental import LIBM
from rlx.render.spelling import spells


def read() -> Caps:
    """Capabilities of the host, from LLVM's feature list and the process's affinity."""
    target = jit.host()
    return Caps(name="cpu", dtypes=frozenset(ALL), schedule="nest", default_float=float64, spells=spells(ALL, LIBM),
                vector_bytes=vector_bytes(target), cores=threads.cores(),
                features=frozenset(f[1:] for f in target.features.split(",") if f.startswith("+")))


def vector_bytes(target: jit.Target) -> int:
    """Bytes of the widest vector register that code generation should fill."""
    if target.has("avx512f"):
        return 64
    return 32 if target.has("avx") else 16
