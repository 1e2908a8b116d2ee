"""Finding devices: by directory, by entry point; unknown, absent and broken ones."""

from __future__ import annotations

import subprocess
import sys
import types
from importlib.metadata import EntryPoint

import pytest

import rlx.device
from rlx.core.errors import DeviceError


def plug(monkeypatch: pytest.MonkeyPatch, name: str, **functions: object) -> None:
    """Install a device module under an entry point."""
    module = types.ModuleType(f"fake_{name}")
    vars(module).update(functions)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    entry = EntryPoint(name, module.__name__, rlx.device.GROUP)
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [entry] * (group == rlx.device.GROUP))


def test_a_device_is_opened_once() -> None:
    assert rlx.device.find("cpu") is rlx.device.find("cpu")
    assert rlx.device.available()["cpu"] is None


def test_unknown_device_names_the_known() -> None:
    with pytest.raises(DeviceError, match="no device 'gpuu'") as e:
        rlx.device.find("gpuu")
    assert "cpu" in e.value.do


def test_absent_device_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    plug(monkeypatch, "nowhere", absent=lambda: "libnowhere is not installed (pip install nowhere)")
    assert rlx.device.available()["nowhere"] == "libnowhere is not installed (pip install nowhere)"
    with pytest.raises(DeviceError, match="'nowhere' is absent") as e:
        rlx.device.find("nowhere")
    assert "pip install nowhere" in e.value.why


def test_cpu_without_llvmlite_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda n, *a: None if n == "llvmlite" else real(n, *a))
    assert "pip install llvmlite" in str(rlx.device.available()["cpu"])


def test_broken_plugin_hides_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    plug(monkeypatch, "broken")
    assert "AttributeError" in str(rlx.device.available()["broken"])
    assert rlx.device.available()["cpu"] is None


def test_plugin_that_opens_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    plug(monkeypatch, "odd", absent=lambda: None, open=lambda: 3)
    with pytest.raises(DeviceError, match="could not be opened") as e:
        rlx.device.find("odd")
    assert "int" in e.value.why


def test_plugin_device_opens(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = rlx.device.find("cpu")
    plug(monkeypatch, "other", absent=lambda: None, open=lambda: cpu)
    monkeypatch.setattr(rlx.device, "_opened", {})
    assert rlx.device.find("other") is cpu


def test_scanning_imports_no_optional_package() -> None:
    """Asking whether a device is there may import its library; finding and importing the devices may not."""
    script = ("import importlib, sys, rlx, rlx.device\n"
              "for name in rlx.device.names(): importlib.import_module(f'rlx.device.{name}.device')\n"
              "print({'llvmlite', 'cupy', 'wgpu', 'pyopencl', 'torch', 'numba'} & set(sys.modules))")
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60,
                            check=False)
    assert result.stdout == "set()\n", result.stderr
