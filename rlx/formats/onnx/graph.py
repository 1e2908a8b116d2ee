"""What an ONNX file says, as plain data: graphs of nodes, and the types of what goes in and out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx.core.dtype import DType


@dataclass(frozen=True)
class Port:
    """An input or output: its name, its dtype (None where the file does not say), and its shape.

    A size is a number, a name (equal names are equal sizes), or None for any; a shape of None is any shape. ``kind`` is
    "tensor", "sequence" or "optional".
    """

    name: str
    dtype: DType | None = None
    shape: tuple[int | str | None, ...] | None = None
    kind: str = "tensor"

    def __str__(self) -> str:
        sizes = "..." if self.shape is None else ", ".join("?" if n is None else str(n) for n in self.shape)
        found = f"{self.dtype.name if self.dtype else 'any'}[{sizes}]"
        return f"{self.name}: " + (found if self.kind == "tensor" else f"{self.kind} of {found}")


@dataclass(frozen=True, eq=False)
class Reference:
    """An attribute within a function whose value is one of the call's attributes."""

    name: str


@dataclass(frozen=True, eq=False)
class Node:
    """One operation. ``version`` is the version of its domain's set of operations; the empty domain is ONNX's own."""

    op: str
    domain: str
    version: int
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]

    @property
    def title(self) -> str:
        """How errors name the node."""
        kind = f"{self.domain}.{self.op}" if self.domain else self.op
        return f"{kind} {self.name!r}" if self.name else f"{kind} (giving {', '.join(self.outputs)!r})"


@dataclass(frozen=True, eq=False)
class Graph:
    """Nodes in an order in which they can run, with constant values by name."""

    name: str
    nodes: tuple[Node, ...]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    constants: Mapping[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class Function:
    """A graph that nodes of its name call: values and attributes are parameters."""

    graph: Graph
    defaults: Mapping[str, Any]


#: Functions by domain and name.
Functions = Mapping[tuple[str, str], Function]
