"""Build nodes from arrays and Python scalars: constants, tracing levels, and tracing of functions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from rlx.array.array import FUNCTIONS, Array
from rlx.array.eager import MAX_PENDING
from rlx.array.hooks import default_device, default_float, hooks
from rlx.array.host import to_host
from rlx.array.lazy import Cell, kind_of
from rlx.core import dtype as dt
from rlx.core.errors import DeviceError, DTypeError
from rlx.core.shape import Dim, Shape, is_static
from rlx.core.where import Where, here
from rlx.ir.graph import Graph, Type, Value, close, graph_scope, node, parameter
from rlx.ir.op import infer_types

Scalar = bool | int | float | complex | Dim



class _State(threading.local):
    level = 0
    #: The line that nodes are given, where another than the caller's is meant.
    line: Where | None = None


_state = _State()


@contextmanager
def at_line(where: Where) -> Iterator[None]:
    """Nodes made in here are of that line, and none is run however long their chain."""
    before, _state.line = _state.line, where
    try:
        yield
    finally:
        _state.line = before


def level() -> int:
    """How deep in tracing this thread is; 0 outside any traced function."""
    return _state.level


@contextmanager
def tracing() -> Iterator[int]:
    """One level deeper; yields the level of the parameters to make."""
    _state.level += 1
    try:
        with graph_scope():
            yield _state.level
    finally:
        _state.level -= 1


def emit(op: str, args: Sequence[Array], attrs: dict[str, Any] | None = None, graphs: tuple[Graph, ...] = (),
         types: tuple[Type, ...] | None = None, device: str | None = None) -> tuple[Array, ...]:
    """A node of ``op`` on arrays of one device; its outputs as arrays. Types come from the primitive's own rule."""
    values = tuple([a._value for a in args])
    for v in values:
        d = v.node.device
        if d is not None:
            if device is not None and d != device:
                raise DeviceError(f"{op} mixes arrays on {device} and {d}", why="an operation runs on one device",
                                  do=f"move one of them, for example x.to_device({device!r})")
            device = d
    attrs = attrs or {}
    if types is None:
        types = infer_types(op, tuple([v.type for v in values]), attrs)
    n = node(op, values, types, attrs=tuple(sorted(attrs.items())), graphs=graphs, device=device,
             where=_state.line or here(2))
    if n.depth > MAX_PENDING and n.level == 0 and not n.kept and _state.line is None:
        hooks.evaluate(n.outs)
    return tuple([Array(v) for v in n.outs])


def emit1(op: str, *args: Array, **attrs: Any) -> Array:
    """A single-output node."""
    return emit(op, args, attrs)[0]


def constant(value: Scalar, dtype: dt.DType, device: str | None = None) -> Array:
    """A scalar: a constant while tracing, else an input of the program, so that a new number never recompiles."""
    if isinstance(value, Dim):
        return literal(value, dtype, device)
    conv: Any = {"b": bool, "i": int, "u": int, "f": float, "c": complex}[dtype.kind]
    v = conv(value)
    if dtype.is_integer:
        info = np.iinfo(dtype.numpy)
        if not info.min <= v <= info.max:
            raise DTypeError(f"{value} does not fit {dtype.name}", why=f"it holds {info.min} to {info.max}",
                             do="use a wider dtype")
    if _state.level:
        return literal(v, dtype, device)
    where = _state.line or here(2)
    return Array(node("scalar", types=(Type(dtype, ()),), payload=v, where=where, device=device).outs[0])


def literal(value: Scalar, dtype: dt.DType, device: str | None = None) -> Array:
    """A scalar that is part of the program."""
    conv: Any = {"b": bool, "i": int, "u": int, "f": float, "c": complex}[dtype.kind]
    if isinstance(value, Dim):  # a size that is not known yet: bound with the shapes
        conv = lambda size: size
    return Array(node("const", types=(Type(dtype, ()),), attrs=(("value", conv(value)),), where=_state.line or here(2),
                      device=device).outs[0])


def is_scalar(x: object) -> bool:
    """A Python number or a symbolic size (NumPy scalars are arrays: they carry a dtype)."""
    return isinstance(x, (bool, int, float, complex, Dim)) and not isinstance(x, np.generic)


def as_array(x: Any, dtype: dt.DType | None = None, device: str | None = None) -> Array:
    """An Array from an Array, a NumPy array, a Python scalar or nested sequences of them."""
    if isinstance(x, Array):
        return x
    if is_scalar(x):
        where = device or default_device()
        return constant(x, dtype or dt.default_of(x, default_float(where)), device)
    if isinstance(x, (list, tuple)) and _has_array(x):
        return FUNCTIONS["stack"]([as_array(v, dtype, device) for v in x])
    return from_numpy(x, dtype, device)


def _has_array(x: Any) -> bool:
    return isinstance(x, Array) or (isinstance(x, (list, tuple)) and any(map(_has_array, x)))


def from_numpy(x: Any, dtype: dt.DType | None = None, device: str | None = None) -> Array:
    """A concrete Array on a device from anything NumPy reads; later changes of ``x`` are not seen."""
    where = device or default_device()
    host = x if isinstance(x, np.ndarray) else np.asarray(x)
    if not isinstance(x, (np.ndarray, np.generic)) and dtype is None and host.dtype.kind in "fc":
        float_ = default_float(where)
        dtype = float_ if host.dtype.kind == "f" else float_.complex
    if dtype is None:
        dtype = dt.as_dtype(host.dtype)
    if host.dtype != dtype.numpy or dtype is dt.bfloat16:
        host = to_host(host, dtype)
    return concrete(hooks.upload(host, where, dtype), dtype, tuple(host.shape), where)


def concrete(storage: Any, dtype: dt.DType, shape: Shape, device: str) -> Array:
    """An Array over storage that a device owns."""
    where = _state.line or here(2)
    if is_static(shape):
        return Array(Cell(kind_of(dtype, shape, device), storage, None, None, where))
    return Array(node("buffer", types=(Type(dtype, shape),), payload=(storage,), device=device, where=where).outs[0])


def promote(*xs: Any) -> list[Array]:
    """Arrays of one dtype (NumPy 2 rules; Python scalars are weak); NumPy data goes to the device of the arrays."""
    device = next((x._home for x in xs if isinstance(x, Array) and x._home), None)
    arrays = [x if is_scalar(x) else as_array(x, device=device) for x in xs]
    dtype: dt.DType | None = None
    for a in arrays:
        if isinstance(a, Array):
            device = device or a._home
            if not a._weak:
                dtype = a.dtype if dtype is None else dt.common_type(dtype, a.dtype)
    floats = default_float(device or default_device())
    for a in arrays:
        if not isinstance(a, Array) or a._weak:
            dtype = _meet(dtype, a, floats)
    assert dtype is not None
    return [cast(a, dtype) if isinstance(a, Array) else constant(a, dtype, device) for a in arrays]


#: A Python number of each kind, for the weak type of a traced one.
_SAMPLES: dict[str, Scalar] = {"b": True, "i": 1, "u": 1, "f": 1.0, "c": 1j}


def _meet(dtype: dt.DType | None, x: Any, floats: dt.DType) -> dt.DType:
    """The dtype after meeting a weak number, or an array that stands for one."""
    if isinstance(x, Array) and dtype is None:
        return x.dtype
    number: Any = _SAMPLES[x.dtype.kind] if isinstance(x, Array) else x
    return dt.default_of(number, floats) if dtype is None else dt.weak_type(dtype, number, floats)


def cast(x: Array, dtype: dt.DType) -> Array:
    """``x`` in another dtype."""
    return x if x.dtype == dtype else emit("cast", (x,), {"dtype": dtype})[0]


def broadcast(x: Array, shape: Shape) -> Array:
    """``x`` repeated along missing and size-1 axes."""
    if x.shape == shape:
        return x
    return emit("broadcast", (x,), {"shape": shape})[0]


def trace(f: Callable[..., Any], types: Sequence[Type], device: str | None = None,
          name: str = "main") -> tuple[Graph, Any, list[Value]]:
    """Run ``f`` on parameters of these types. Returns the closed graph, what f returned, and captured values.

    ``f`` returns an Array or a (nested) sequence of them; the graph's outputs are its leaves in order.
    """
    from rlx.array.tree import flatten
    with tracing() as depth:
        params = [parameter(t, depth, here(2), device) for t in types]
        result = f(*[Array(p) for p in params])
        leaves, structure = flatten(result)
        outputs = [as_array(x)._value for x in leaves]
        graph, captured = close(outputs, params, depth, name)
    return graph, structure, captured
