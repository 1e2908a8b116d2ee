"""The table of operators: each is one function of a call and its inputs, registered under its ONNX name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx.array.array import FUNCTIONS, Array
from rlx.array.build import constant, from_numpy
from rlx.core import dtype as dt
from rlx.core.errors import FormatError, TraceError
from rlx.formats.onnx.graph import Node

#: What flows between nodes: an array, host data known before anything runs, a sequence of values, or nothing.
Value = Any


class _Functions:
    """rlx's public functions by name, as NumPy's module has its."""

    def __getattr__(self, name: str) -> Any:
        return FUNCTIONS[name]


X: Any = _Functions()


class ValuesNeeded(TraceError):
    """An operator asked for the values of an array that is not known while tracing: a shape depends on data."""


@dataclass(frozen=True)
class Operator:
    """A row of the table.

    ``static``: positions whose values must be known (shapes, axes). ``host``: the function works on NumPy arrays too,
    with ``call.x`` being NumPy: so sizes are computed while tracing, by the same code that computes with arrays.
    """

    run: Callable[..., Any]
    static: tuple[int, ...] = ()
    host: bool = False


#: Operators by domain and name.
TABLE: dict[tuple[str, str], Operator] = {}


def operator(*names: str, static: Sequence[int] = (), host: bool = False,
             domain: str = "") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function ``f(call, *inputs) -> value or tuple of values`` under ONNX names."""
    def wrap(f: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            TABLE[domain, name] = Operator(f, tuple(static), host)
        return f
    return wrap


class Call:
    """One node being evaluated, as its operator sees it."""

    def __init__(self, node: Node, attributes: Mapping[str, Any], env: Mapping[str, Value], run: Any, x: Any) -> None:
        self.node, self.attributes, self.env, self.run, self.x = node, attributes, env, run, x

    @property
    def version(self) -> int:
        """The version of the operator set that the model imports."""
        return self.node.version

    def attr(self, name: str, default: Any = None) -> Any:
        """An attribute, or its default."""
        return self.attributes.get(name, default)

    def refuse(self, what: str, why: str = "rlx has no such case",
               do: str = "export the model without it, or report the need") -> FormatError:
        """An error about this node."""
        return FormatError(f"{self.node.title}: {what}", why=f"{why} (operator set {self.version})", do=do)

    def static(self, value: Value, what: str = "an input") -> np.ndarray:
        """The value of an input on the host; a :class:`ValuesNeeded` where it is being traced."""
        if isinstance(value, Array):
            if value.is_traced:
                raise ValuesNeeded(f"{self.node.title} needs the values of {what}",
                                   why="a shape depends on data, and a compiled program has fixed shapes",
                                   do="bind the input that decides it (Model.bind), or call the model outside of jit, "
                                      "grad and vmap")
            return np.asarray(value)
        return np.asarray(value)

    def ints(self, value: Value, what: str = "an input") -> tuple[int, ...]:
        """Integers of a static input."""
        return tuple([int(v) for v in self.static(value, what).reshape(-1)])

    def array(self, value: Value) -> Array:
        """An array on the device of the run."""
        return upload(value, self.run.device)

    def full(self, shape: Sequence[int], value: Any, kind: dt.DType) -> Value:
        """Elements all alike, on the host where the node is evaluated there."""
        if self.x is X:
            return X.broadcast_to(constant(value, kind, self.run.device), tuple(shape))
        return np.full(tuple(shape), value, kind.numpy)

    def axes(self, value: Value, rank: int, default: Any = None) -> tuple[int, ...] | None:
        """Axes from an input, or from the attribute that older versions have; counted from 0."""
        found = self.attr("axes") if value is None else self.ints(value, "the axes")
        return default if found is None else tuple([self.axis(a, rank) for a in found])

    def axis(self, axis: int, rank: int) -> int:
        """An axis counted from 0."""
        if not -rank <= axis < max(rank, 1):
            raise self.refuse(f"axis {axis} of an array of {rank}", "there is no such axis")
        return axis % rank if rank else 0


def upload(value: Value, device: str | None) -> Array:
    """Host data as an array: one number is part of the program, more are stored on the device."""
    if isinstance(value, Array):
        return value
    host = np.asarray(value)
    kind = dt.bfloat16 if host.dtype.name == "bfloat16" else dt.as_dtype(host.dtype)
    if host.size == 1:
        one: Array = X.reshape(constant(host.reshape(()).item(), kind, device), host.shape)
        return one
    return from_numpy(host, kind, device)


def is_float(x: Value) -> bool:
    """Whether an array or host data are of a floating-point type."""
    return bool(x.dtype.is_float) if isinstance(x, Array) else x.dtype.kind == "f" or x.dtype.name == "bfloat16"


def dtype_of(x: Value) -> dt.DType:
    """The dtype of an array or of host data."""
    if isinstance(x, Array):
        return x.dtype
    return dt.bfloat16 if x.dtype.name == "bfloat16" else dt.as_dtype(x.dtype)


def cast(x: Value, kind: dt.DType, device: str | None = None) -> Value:
    """Another dtype; host data stay on the host unless NumPy has no such type."""
    if isinstance(x, Array) or kind is dt.bfloat16 or x.dtype.name == "bfloat16":
        return X.astype(upload(x, device), kind)
    return x.astype(kind.numpy)
