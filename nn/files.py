"""Modules in safetensors files: the arrays by their path in the module."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from rlx.formats import safetensors
from rlx.nn.module import Module, named, with_named

M = TypeVar("M")


def save(path: str | Path, module: Module | object, *, metadata: Mapping[str, str] | None = None) -> None:
    """Write the arrays of a module (or any pytree) under their paths, as :func:`rlx.nn.named` gives them."""
    safetensors.save(path, named(module), metadata=metadata)


def load(path: str | Path, module: M, *, device: str | None = None) -> M:
    """The module with the arrays of a file; names and shapes must agree, dtypes stay the module's.

    >>> import tempfile
    >>> from rlx import nn
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     nn.save(f"{folder}/a.safetensors", nn.Linear.create(2, 2, rng=5))
    ...     other = nn.load(f"{folder}/a.safetensors", nn.Linear.create(2, 2, rng=0))
    >>> other.bias.tolist() == nn.Linear.create(2, 2, rng=5).bias.tolist()
    True
    """
    return with_named(module, safetensors.load(path, device=device))
