"""Claims of the cpu device: one module each here, found by scanning. A module states ``CLAIMS``, a tuple of
Claim.

A claim's ``lower(native) -> (symbol, text)`` gives LLVM IR that defines ``void @symbol(ptr %bufs)`` over
the table of its buffers; functions that the text declares are found by :func:`resolve`.
"""

from __future__ import annotations

import importlib
import pkgutil

from rlx.device.cpu import blas
from rlx.ir.claim import Claim


def claims() -> dict[str, tuple[Claim, ...]]:
    """Every claim, by op, in order of module name."""
    found: dict[str, tuple[Claim, ...]] = {}
    for name in sorted(m.name for m in pkgutil.iter_modules(__path__)):
        for claim in importlib.import_module(f"{__name__}.{name}").CLAIMS:
            found[claim.op] = (*found.get(claim.op, ()), claim)
    return found


def resolve(name: str) -> int | None:
    """The address of a library function that claims call, or None."""
    return blas.address(name)
