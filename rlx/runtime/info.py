"""``rlx.__array_namespace_info__()``: what the namespace offers, as the Array API standard asks."""

from __future__ import annotations

from typing import Any

from rlx import device as devices
from rlx.array.hooks import default_device, default_float
from rlx.core import dtype as dt
from rlx.core.dtype import DType
from rlx.core.errors import ValueIssue

_KINDS = {"bool": "b", "signed integer": "i", "unsigned integer": "u", "integral": "iu", "real floating": "f",
          "complex floating": "c", "numeric": "iufc"}
#: The standard has no half precision.
_BEYOND = ("float16", "bfloat16")


class Names(tuple[str, ...]):
    """A tuple, as the standard has it since 2025; it adds to a list, as callers of earlier versions do."""

    __slots__ = ()

    def __add__(self, other: Any) -> Any:
        return [*self, *other] if isinstance(other, list) else Names((*self, *other))


class Info:
    """Capabilities, default device and dtypes, devices and dtypes of the namespace."""

    def capabilities(self) -> dict[str, Any]:
        """What the standard leaves open: masks and data-dependent shapes work (eagerly), 64 dimensions at most."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> str:
        """The device used when none is named."""
        return default_device()

    def default_dtypes(self, *, device: str | None = None) -> dict[str, DType]:
        """The dtypes of new arrays on a device."""
        real = default_float(device)
        return {"real floating": real, "complex floating": real.complex, "integral": dt.int64, "indexing": dt.int64}

    def dtypes(self, *, device: str | None = None, kind: str | tuple[str, ...] | None = None) -> dict[str, DType]:
        """The standard's dtypes that a device stores, by name, of one kind or several."""
        caps = devices.find(device or default_device()).caps
        kinds = (kind,) if isinstance(kind, str) else kind if kind is not None else tuple(_KINDS)
        for k in kinds:
            if k not in _KINDS:
                raise ValueIssue(f"{k!r} is not a kind of dtypes", why="kinds are a fixed set",
                                 do=f"use one of {', '.join(_KINDS)}")
        letters = "".join(_KINDS[k] for k in kinds)
        return {d.name: d for d in dt.ALL if d.kind in letters and d.name not in _BEYOND and caps.stores(d)}

    def devices(self) -> tuple[str, ...]:
        """The devices that can be opened here."""
        return Names(n for n, absent in devices.available().items() if absent is None)


def __array_namespace_info__() -> Info:
    """What the namespace offers: see the Array API standard, *Inspection*."""
    return Info()
