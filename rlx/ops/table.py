"""How a row of a table becomes an elementwise op: a primitive with its rules, and a public function."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from rlx.array.array import FUNCTIONS, Array
from rlx.array.build import broadcast, cast, emit1, promote
from rlx.array.define import primitive
from rlx.array.eager import elementwise as stepped
from rlx.array.hooks import default_float
from rlx.core import dtype as dt
from rlx.core.errors import DTypeError
from rlx.core.shape import broadcast_shapes
from rlx.ir.graph import Type
from rlx.ir.op import NotDifferentiable
from rlx.ir.prim import POINTWISE
from rlx.ops.samples import pointwise_samples

Partials = Callable[..., tuple[Any, ...]]
KIND_NAMES = {"b": "bool", "i": "signed integer", "u": "unsigned integer", "f": "floating", "c": "complex"}


def infer_pointwise(name: str) -> Callable[..., Type]:
    row = POINTWISE[name]
    same, at = row.result == "same", 1 if name == "select" else 0

    def infer(*types: Type, **attrs: Any) -> Type:
        first = types[at]
        if same:
            return first
        if row.result == "attr":
            return Type(attrs["dtype"], first.shape)
        dtype = {"bool": dt.bool_, "real": first.dtype.real,
                 "complex": first.dtype.complex}[row.result]
        return Type(dtype, first.shape)
    return infer


def _signature(*names: str) -> inspect.Signature:
    """Positional-only operands of these names, as the Array API standard spells them."""
    kind = inspect.Parameter.POSITIONAL_ONLY
    return inspect.Signature([inspect.Parameter(n, kind, annotation="Any") for n in names], return_annotation="Array")


_SIGNATURES = {1: _signature("x"), 2: _signature("x1", "x2"), 3: _signature("x1", "x2", "x3")}


def elementwise(name: str, prim: str, ref: Callable[..., Any], partials: Partials | NotDifferentiable | None, *,
                floats: bool = False, doc: str = "", domain: str = "any",
                logic: str | None = None) -> Callable[..., Array]:
    """Register a primitive with its rules and make its public function ``name``.

    ``partials(out, *args)`` gives the derivative with respect to each argument (None: its rules are in
    ``derivative.py``); ``floats`` promotes integers to the default float first; ``domain`` bounds the sample values;
    ``logic`` names what it is on booleans, as in NumPy.
    """
    row = POINTWISE[prim]
    holder = primitive(prim)
    holder.doc = doc
    holder.infer(infer_pointwise(prim))
    holder.ref(ref)
    if isinstance(partials, NotDifferentiable):
        holder.grad(partials)
    elif partials is not None:
        holder.rules["partials"] = partials
    holder.samples(lambda: pointwise_samples(row, domain))

    def full(*args: Any) -> Array:
        if len(args) != row.arity:
            raise TypeError(f"{name}() takes {row.arity} array arguments, got {len(args)}")
        arrays = promote(*args)
        dtype = arrays[0].dtype
        if floats and dtype.kind in "biu":
            dtype = default_float(arrays[0].device)
            arrays = [cast(a, dtype) for a in arrays]
        if logic is not None and dtype == dt.bool_:
            return FUNCTIONS[logic](*arrays)
        if dtype.kind not in row.kinds:
            allowed = ", ".join(KIND_NAMES[k] for k in row.kinds)
            raise DTypeError(f"{name}() of {dtype.name} arrays of shape {', '.join(str(a.shape) for a in arrays)}",
                             why=f"it takes {allowed} arrays", do="cast the argument with .astype(...)")
        shape = broadcast_shapes(*[a.shape for a in arrays])
        return emit1(prim, *[broadcast(a, shape) for a in arrays])

    call: Callable[..., Array] = full if row.arity > 2 or name.startswith("_") else stepped(name, full)
    call.__name__ = call.__qualname__ = name
    call.__doc__ = doc
    call.__signature__ = _SIGNATURES[row.arity]  # type: ignore[attr-defined]
    FUNCTIONS[name] = call
    return call
