"""The open registry of ops: each op owns its rules, and subsystems read them here.

Rules an op may own: ``ref`` (an independent oracle in NumPy), ``decompose`` (in other ops, ending in primitives),
``infer`` (only primitives: a type rule), ``grad``, ``jvp``, ``batch`` (only where better than through the
decomposition), ``call`` (only primitives with sub-graphs: how samples use them) and ``samples``. An op that has no
gradient says why with :class:`NotDifferentiable`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from rlx.core.errors import RlxError
from rlx.ir.graph import Graph, Type

Rule = Callable[..., Any]
#: A rule keeps its type when an op takes it.
F = TypeVar("F")


@dataclass(frozen=True, slots=True)
class NotDifferentiable:
    """Stands in place of a gradient rule: the op has none, because ``why``."""

    why: str


@dataclass(frozen=True, slots=True)
class Sample:
    """One test input of an op: arguments, attributes, and a name. ``edge`` samples exercise special values.

    ``tolerance`` widens the table's tolerance for this sample; ``grad`` is False where the function is not smooth.
    """

    args: tuple[Any, ...]
    attrs: dict[str, Any] = field(default_factory=dict)
    name: str = ""
    edge: bool = False
    grad: bool = True
    tolerance: float = 1.0


class Op:
    """A named operation and the rules it owns."""

    def __init__(self, name: str, *, primitive: bool = False, doc: str = "") -> None:
        self.name = name
        self.primitive = primitive
        self.doc = doc
        self.rules: dict[str, Any] = {}
        self.sample_makers: list[Callable[[], list[Sample]]] = []
        self.signature: inspect.Signature | None = None
        #: Decompositions already traced, by argument types and attributes.
        self.traced: dict[Any, Graph] = {}

    def rule(self, name: str) -> Rule | None:
        """The rule of that name, if the op owns it."""
        found = self.rules.get(name)
        return None if isinstance(found, NotDifferentiable) else found

    def _set(self, name: str, f: F) -> F:
        if name in self.rules:
            raise RlxError(f"op {self.name} has two {name} rules", why="each rule is given once",
                           do="remove one of them")
        self.rules[name] = f
        return f

    def ref(self, f: F) -> F:
        """Set the oracle: the same function on NumPy arrays."""
        return self._set("ref", f)

    def infer(self, f: F) -> F:
        """Set the type rule: ``f(*types, **attrs) -> Type | tuple[Type, ...]``."""
        return self._set("infer", f)

    def decompose(self, f: F) -> F:
        """Set the decomposition: the same function in other ops."""
        return self._set("decompose", f)

    def grad(self, f: F) -> F:
        """Set the reverse rule ``f(ct, out, *args, **attrs) -> cotangent | None per array argument``."""
        return self._set("grad", f)

    def jvp(self, f: F) -> F:
        """Set the forward rule ``f(tangents, out, *args, **attrs) -> tangent of out``."""
        return self._set("jvp", f)

    def call(self, f: F) -> F:
        """Set how samples use the op, where a node of it cannot be written from arrays and attributes alone."""
        return self._set("call", f)

    def batch(self, f: F) -> F:
        """Set the batching rule ``f(axes, size, *args, **attrs) -> (out, out axes)``."""
        return self._set("batch", f)

    def samples(self, f: Callable[[], list[Sample]]) -> Callable[[], list[Sample]]:
        """Add a maker of test inputs, called only by tests, documentation and the coverage table."""
        self.sample_makers.append(f)
        return f

    def all_samples(self) -> list[Sample]:
        """Every sample, freshly made."""
        return [s for make in self.sample_makers for s in make()]

    def __repr__(self) -> str:
        return f"<op {self.name}>"


class Registry:
    """All ops by name."""

    def __init__(self) -> None:
        self._ops: dict[str, Op] = {}

    def add(self, op: Op) -> None:
        if op.name in self._ops:
            raise RlxError(f"there is already an op {op.name!r}", why="op names are unique",
                           do="pick another name, for example with your package's prefix")
        self._ops[op.name] = op

    def __getitem__(self, name: str) -> Op:
        found = self._ops.get(name)
        if found is None:
            raise RlxError(f"there is no op {name!r}", why="nothing registered it",
                           do="import the module that defines it")
        return found

    def get(self, name: str) -> Op | None:
        return self._ops.get(name)

    def __contains__(self, name: str) -> bool:
        return name in self._ops

    def __iter__(self) -> Iterator[Op]:
        return iter(sorted(self._ops.values(), key=lambda o: o.name))

    def __len__(self) -> int:
        return len(self._ops)


REGISTRY = Registry()


def infer_types(op: str, types: tuple[Type, ...], attrs: dict[str, Any]) -> tuple[Type, ...]:
    """Output types of a primitive by its own rule."""
    rule = REGISTRY[op].rules["infer"]
    out = rule(*types, **attrs)
    return out if isinstance(out, tuple) else (out,)
