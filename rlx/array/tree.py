"""Pytrees: nested tuples, lists, dicts, dataclasses and registered classes whose leaves are arrays."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from rlx.core.dtype import DType
from rlx.core.errors import ValueIssue
from rlx.ir.graph import Type

#: class -> (flatten(x) -> (children, static data), unflatten(static data, children) -> x)
_REGISTERED: dict[type, tuple[Callable[[Any], tuple[Iterable[Any], Any]], Callable[[Any, list[Any]], Any]]] = {}


def register_pytree(cls: type, flatten: Callable[[Any], tuple[Iterable[Any], Any]],
                    unflatten: Callable[[Any, list[Any]], Any]) -> None:
    """Make instances of ``cls`` trees: ``flatten(x) -> (children, data)``, ``unflatten(data, children) -> x``.

    ``data`` must be hashable: it is part of every cache key.
    """
    _REGISTERED[cls] = (flatten, unflatten)


@dataclasses.dataclass(frozen=True, slots=True)
class Tree:
    """The structure of a pytree without its leaves; hashable."""

    kind: Any
    data: Any
    children: tuple[Tree, ...]

    @property
    def leaves(self) -> int:
        """How many leaves the tree has."""
        return 1 if self.kind is None else sum(c.leaves for c in self.children)

    def __str__(self) -> str:
        """How errors spell it: ``*`` is a leaf."""
        if self.kind is None:
            return "*"
        inside = [str(c) for c in self.children]
        if self.kind is list:
            return f"[{', '.join(inside)}]"
        if self.kind is tuple:
            return f"({', '.join(inside)}{',' * (len(inside) == 1)})"
        if self.kind is dict:
            return "{" + ", ".join(f"{k!r}: {c}" for k, c in zip(self.data, inside, strict=True)) + "}"
        return "None" if self.kind is type(None) else f"{self.kind.__name__}({', '.join(inside)})"


LEAF = Tree(None, None, ())


def flatten(tree: Any) -> tuple[list[Any], Tree]:
    """Leaves in order, and the structure."""
    leaves: list[Any] = []
    return leaves, _flatten(tree, leaves)


def _flatten(x: Any, leaves: list[Any]) -> Tree:
    children, data = _children(x)
    if children is None:
        leaves.append(x)
        return LEAF
    return Tree(type(x), data, tuple([_flatten(c, leaves) for c in children]))


def _children(x: Any) -> tuple[Iterable[Any] | None, Any]:
    cls = type(x)
    if cls is tuple or cls is list:
        return x, None
    if cls is dict:
        keys = tuple(sorted(x, key=lambda k: (str(type(k)), k)))
        return [x[k] for k in keys], keys
    if x is None:
        return (), None
    if cls in _REGISTERED:
        return _REGISTERED[cls][0](x)
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return x, None
    if cls in (Type, DType):
        return None, None
    if dataclasses.is_dataclass(x) and not isinstance(x, type):
        fields = dataclasses.fields(x)
        moving = [f.name for f in fields if not f.metadata.get("static", False)]
        static = tuple((f.name, getattr(x, f.name)) for f in fields if f.metadata.get("static", False))
        return [getattr(x, n) for n in moving], (tuple(moving), static)
    return None, None


def unflatten(tree: Tree, leaves: Iterable[Any]) -> Any:
    """The tree with these leaves."""
    return _unflatten(tree, iter(leaves))


def _unflatten(t: Tree, it: Iterator[Any]) -> Any:
    if t.kind is None:
        return next(it)
    kids = [_unflatten(c, it) for c in t.children]
    if t.kind is tuple or t.kind is list:
        return t.kind(kids)
    if t.kind is dict:
        return dict(zip(t.data, kids, strict=True))
    if t.kind is type(None):
        return None
    if t.kind in _REGISTERED:
        return _REGISTERED[t.kind][1](t.data, kids)
    if issubclass(t.kind, tuple):
        return t.kind(*kids)
    moving, static = t.data
    new = object.__new__(t.kind)
    for name, value in (*zip(moving, kids, strict=True), *static):
        object.__setattr__(new, name, value)
    return new


def tree_map(f: Callable[..., Any], tree: Any, *rest: Any) -> Any:
    """Apply ``f`` leaf by leaf over trees of one structure.

    >>> tree_map(lambda a, b: a + b, {"w": 1, "b": 2}, {"w": 10, "b": 20})
    {'b': 22, 'w': 11}
    """
    leaves, structure = flatten(tree)
    others = []
    for r in rest:
        more, s = flatten(r)
        if s != structure:
            raise ValueIssue("trees of different structure", why=f"{structure} against {s}",
                             do="pass trees with the same containers, keys and lengths")
        others.append(more)
    return unflatten(structure, [f(*xs) for xs in zip(leaves, *others, strict=True)])
