"""Claims of the cuda device: one module each here, found by scanning. A module states ``CLAIMS``, a tuple of Claim.

A claim's ``lower(native)`` gives a :class:`~rlx.device.cuda.program.Library`: work on a stream and the addresses
of its buffers.
"""

from __future__ import annotations

import importlib
import pkgutil

from rlx.ir.claim import Claim


def claims() -> dict[str, tuple[Claim, ...]]:
    """Every claim, by op, in order of module name."""
    found: dict[str, tuple[Claim, ...]] = {}
    for name in sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_")):
        for claim in importlib.import_module(f"{__name__}.{name}").CLAIMS:
            found[claim.op] = (*found.get(claim.op, ()), claim)
    return found
