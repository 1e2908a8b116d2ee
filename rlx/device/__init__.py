"""Devices, found by scanning: one sub-directory each here, and the entry points in group ``rlx.devices``.

A device package has a module ``device`` with ``open() -> Device`` and ``absent() -> str | None``: the
reason why it cannot be opened here and what to install, or None. Importing that module imports no optional
package.
"""

from __future__ import annotations

import importlib
import pkgutil
import threading
from types import ModuleType
from typing import TYPE_CHECKING

from rlx.core.errors import DeviceError
from rlx.device.base import Device, Executable

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "rlx.devices"
_opened: dict[str, Device] = {}
_lock = threading.RLock()


def find(name: str) -> Device:
    """The device of that name, opened once.

    Raises DeviceError for a name that nobody provides, and for a device that is absent on this machine.
    """
    found = _opened.get(name)
    if found is not None:
        return found
    with _lock:
        if name not in _opened:
            _opened[name] = _open(name)
        return _opened[name]


def available() -> dict[str, str | None]:
    """Every device by name, with the reason why it is absent, or None where it can be opened."""
    return {name: _absence(name) for name in names()}


def names() -> tuple[str, ...]:
    """The names of all devices, present or absent."""
    return tuple(sorted({*_packages(), *_plugins()}))


def _open(name: str) -> Device:
    if name not in names():
        raise DeviceError(f"there is no device {name!r}", why="no package provides it",
                          do=f"use one of {', '.join(names())}")
    if (reason := _absence(name)) is not None:
        raise DeviceError(f"device {name!r} is absent", why=reason,
                          do="install what is named, or choose another device (see python -m rlx doctor)")
    device = _module(name).open()
    if not isinstance(device, Device):
        raise DeviceError(f"device {name!r} could not be opened",
                          why=f"its open() gave {type(device).__name__}, not a Device",
                          do="report this to the package that provides the device")
    return device


def _absence(name: str) -> str | None:
    """Why the device cannot be opened; a provider that cannot even be imported is absent for that reason."""
    try:
        reason = _module(name).absent()
    except Exception as e:  # a broken plug-in must not hide the other devices
        return f"its module failed: {type(e).__name__}: {e}"
    return None if reason is None else str(reason)


def _module(name: str) -> ModuleType:
    if name in _packages():
        return importlib.import_module(f"{__name__}.{name}.device")
    loaded: ModuleType = _plugins()[name].load()
    return loaded


def _packages() -> tuple[str, ...]:
    return tuple(m.name for m in pkgutil.iter_modules(__path__) if m.ispkg and not m.name.startswith("_"))


def _plugins() -> dict[str, EntryPoint]:
    from importlib import metadata  # slow to import, and needed only once a device is looked for
    return {p.name: p for p in metadata.entry_points(group=GROUP)}


__all__ = ["Device", "Executable", "available", "find", "names"]
