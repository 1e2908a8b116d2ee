"""What a device claims to do itself: a library call or a tuned kernel in place of an op's decomposition."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rlx.core.dtype import DType

#: The type of one value: (dtype, shape).
ValueType = tuple[DType, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Call:
    """One use of an op, as a claim's predicate sees it: types and attributes, never data.

    ``inputs`` and ``outputs`` are (dtype, shape) pairs in the op's order; ``attrs`` are its static
    attributes.
    """

    op: str
    inputs: tuple[ValueType, ...]
    outputs: tuple[ValueType, ...]
    attrs: dict[str, Any] = field(default_factory=dict, hash=False)
    #: Inputs that are the same in every call of the program: what is computed of them alone is computed once.
    fixed: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Claim:
    """A device's own way to do ``op``: ``name`` (unique on the device) calls ``symbol`` of a library.

    ``accepts(call)`` returns None to accept, or the *reason* it declines: a fragment that reads on from the
    claim's name, such as ``"needs contiguous float32 or float64, got int64"``. ``lower`` turns an accepted
    use into what the device executes; its type is the device's own. ``doc`` is one sentence for the
    reports. ``scratch(call)`` is how many bytes of memory that means nothing before and after the use needs: where
    that is not 0, a buffer of so many follows the operands (``Native.scratch``).
    """

    name: str
    op: str
    symbol: str
    accepts: Callable[[Call], str | None]
    lower: Any
    doc: str = ""
    scratch: Callable[[Call], int] | None = None
