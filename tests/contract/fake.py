"""A third-party device for tests: the interpreter with capabilities and claims of our choice, found as a plug-in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from rlx import device as devices
from rlx.core.caps import Caps
from rlx.device.base import Executable
from rlx.device.python import device as interpreter
from rlx.ir.claim import Call, Claim
from rlx.ir.graph import Graph, postorder


class FakeDevice(interpreter.PythonDevice):
    """The interpreter under another name; a claim's ``lower(attrs)`` gives a NumPy function."""

    def __init__(self, name: str, claims: Mapping[str, tuple[Claim, ...]], **caps: Any) -> None:
        super().__init__()
        self.name = name
        self.caps: Caps = replace(self.caps, name=name, **caps)
        self.claims = claims
        self.calls: list[str] = []

    def load_graph(self, graph: Graph) -> Executable:
        return _Run(graph, self.calls)


class _Run(Executable):
    def __init__(self, graph: Graph, calls: list[str]) -> None:
        self.graph, self.calls = graph, calls

    def run(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        env = dict(zip(self.graph.inputs, inputs, strict=True))
        for n in postorder(self.graph.outputs):
            if all(o in env for o in n.outs):
                continue
            args = [env[a] for a in n.args]
            if n.op == "native":
                self.calls.append(n.attr("claim"))
                results = n.payload.lower(dict(n.attr("attrs")))(*args)
            else:
                results = interpreter._apply(n, args)
            for o, r in zip(n.outs, results, strict=True):
                env[o] = np.asarray(r).astype(o.dtype.numpy)
        for out, v in zip(outputs, self.graph.outputs, strict=True):
            out[...] = env[v]


def claim(op: str, f: Callable[..., Any], accepts: Callable[[Call], str | None] = lambda call: None,
          name: str = "") -> Claim:
    """A claim that runs ``f(*arrays, **attrs)``."""
    return Claim(name or f"fake_{op}", op, f"libfake.{op}", accepts, lambda attrs: lambda *a: (f(*a, **attrs),),
                 "For tests.")


def plug_in(monkeypatch: pytest.MonkeyPatch, made: FakeDevice) -> None:
    """Make the device findable as one that an installed package provides by entry point."""
    module = ModuleType("third_party_device")
    module.open = lambda: made  # type: ignore[attr-defined]
    module.absent = lambda: None  # type: ignore[attr-defined]

    class Entry:
        name = made.name

        @staticmethod
        def load() -> ModuleType:
            return module
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [Entry] if group == devices.GROUP else [])
    monkeypatch.setattr(devices, "_opened", dict(devices._opened))
