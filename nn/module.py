"""Modules are frozen dataclasses, hence pytrees: arrays are fields, all else is a static field.

A module is called with arrays and gives arrays; nothing is changed in place. ``rlx.grad`` of a function of a module is
a module of gradients, an optimizer gives a new module, and ``rlx.jit`` takes modules as arguments.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import rlx
from rlx.array.array import Array
from rlx.array.tree import flatten, unflatten
from rlx.core.errors import ShapeError, ValueIssue

T = TypeVar("T")


def static(**options: Any) -> Any:
    """A dataclass field that is part of the structure, not an array: sizes, rates, functions. Must be hashable."""
    return dataclasses.field(metadata={"static": True}, **options)


class Module(ABC):
    """Base of layers and models. Subclasses are ``@dataclass(frozen=True)``."""

    @abstractmethod
    def __call__(self, x: Array, *, key: Array | None = None) -> Array:
        """The output for an input. ``key`` turns on what is random (dropout); without it, inference."""


def named(tree: Any) -> dict[str, Array]:
    """The arrays of a tree by path, for files and inspection.

    >>> from rlx import nn
    >>> sorted(nn.named(nn.Linear.create(2, 3, rng=0)))
    ['bias', 'weight']
    """
    return dict(_walk(tree, ""))


def _walk(x: Any, path: str) -> Iterator[tuple[str, Any]]:
    if x is None:
        return
    if isinstance(x, (tuple, list)):
        names = getattr(x, "_fields", range(len(x)))
        parts = [(str(n), v) for n, v in zip(names, x, strict=True)]
    elif isinstance(x, dict):
        # In the order of the pytree, so that paths and leaves agree.
        parts = [(str(k), x[k]) for k in sorted(x, key=lambda k: (str(type(k)), k))]
    elif dataclasses.is_dataclass(x) and not isinstance(x, type):
        parts = [(f.name, getattr(x, f.name)) for f in dataclasses.fields(x) if not f.metadata.get("static", False)]
    else:
        yield path, x
        return
    for name, v in parts:
        yield from _walk(v, f"{path}.{name}" if path else name)


def with_named(tree: T, arrays: Mapping[str, Any]) -> T:
    """The tree with its arrays replaced by those of the same paths; names, shapes must agree exactly."""
    places = named(tree)
    missing, extra = sorted(places.keys() - arrays.keys()), sorted(arrays.keys() - places.keys())
    if missing or extra:
        raise ValueIssue(f"{len(missing)} arrays of the module are missing and {len(extra)} are not its own",
                         why=f"missing {missing[:4]}, not its own {extra[:4]}",
                         do="pass the arrays of a module of the same structure")
    leaves, structure = flatten(tree)
    fitted = [fit(name, arrays[name], old) for name, old in zip(places, leaves, strict=True)]
    new: T = unflatten(structure, fitted)
    return new


def fit(name: str, new: Any, old: Array) -> Array:
    """``new`` as an array in the dtype of ``old``; a ShapeError naming ``name`` when the shapes differ."""
    found = rlx.asarray(new)
    if found.shape != old.shape:
        raise ShapeError(f"{name} has shape {found.shape}", why=f"the module's has shape {old.shape}",
                         do="make the module with the sizes of the file")
    return rlx.astype(found, old.dtype)


def parameters(tree: Any) -> int:
    """How many numbers the tree holds."""
    return sum(int(x.size) for x in flatten(tree)[0])


@dataclasses.dataclass(frozen=True)
class Activation(Module):
    """An elementwise function as a layer."""

    function: Callable[[Array], Array] = static()

    def __call__(self, x: Array, *, key: Array | None = None) -> Array:
        """``function(x)``."""
        return self.function(x)


@dataclasses.dataclass(frozen=True)
class Sequential(Module):
    """Layers applied one after another."""

    layers: tuple[Module, ...]

    @classmethod
    def of(cls, *layers: Module | Callable[[Array], Array]) -> Sequential:
        """A chain of modules and plain functions.

        >>> import rlx
        >>> from rlx import nn
        >>> net = nn.Sequential.of(nn.Linear.create(4, 8, rng=0), nn.relu, nn.Linear.create(8, 2, rng=1))
        >>> net(rlx.ones((3, 4), dtype=rlx.float32)).shape
        (3, 2)
        """
        return cls(tuple([x if isinstance(x, Module) else Activation(x) for x in layers]))

    def __call__(self, x: Array, *, key: Array | None = None) -> Array:
        """Every layer in turn; each gets its own key."""
        from rlx.random import fold_in
        for i, layer in enumerate(self.layers):
            x = layer(x, key=None if key is None else fold_in(key, i))
        return x
