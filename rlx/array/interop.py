"""Arrays among others: DLPack both ways, NumPy's protocols, pickling.

DLPack shares memory: what :func:`from_dlpack` gives without ``copy=True`` may see later changes by the producer, and
what an Array exports is read-only. A consumer too old to be told so (before DLPack 1.0) gets a copy.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from rlx.array import step as _step  # noqa: F401  (registers itself)
from rlx.array.array import FUNCTIONS, PROTOCOLS, Array
from rlx.array.build import as_array, concrete, from_numpy
from rlx.array.hooks import default_device, hooks
from rlx.core import dtype as dt
from rlx.core.errors import DTypeError, TraceError

_CPU = (1, 0)  # kDLCPU, device 0
_BFLOAT = 4    # kDLBfloat in dlpack.h
_UINT = 1      # kDLUInt

_names = ctypes.pythonapi.PyCapsule_IsValid
_names.argtypes, _names.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_int
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.argtypes, _pointer.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p

#: Bytes before DLTensor.dtype.code: 8 data, 8 device, 4 ndim; the versioned struct has 8 version, 8 context,
#: 8 deleter and 8 flags in front (dlpack.h 1.0).
_CODE = 20
_VERSIONED = 32


def _recode(capsule: Any, code: int) -> None:
    """Write another type code into the tensor of a capsule."""
    if _names(capsule, b"dltensor_versioned"):
        address = _pointer(capsule, b"dltensor_versioned") + _VERSIONED
    else:
        address = _pointer(capsule, b"dltensor")
    ctypes.c_uint8.from_address(address + _CODE).value = code


def _code(capsule: Any) -> int:
    if _names(capsule, b"dltensor_versioned"):
        address = _pointer(capsule, b"dltensor_versioned") + _VERSIONED
    else:
        address = _pointer(capsule, b"dltensor")
    return ctypes.c_uint8.from_address(address + _CODE).value


class _Carrier:
    """A producer that hands on a capsule it was given."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **_: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return _CPU


def dlpack_device(x: Array) -> tuple[int, int]:
    """The DLPack device (type, index) that holds the array."""
    return hooks.dlpack_device(x.device)


def to_dlpack(x: Array, stream: Any, max_version: tuple[int, int] | None, dl_device: tuple[int, int] | None,
              copy: bool | None) -> Any:
    """A capsule of the array's memory; read-only, or a copy where that cannot be said."""
    if x.is_traced:
        raise TraceError(f"DLPack of a traced {x.dtype.name} array of shape {x.shape}", where=x._value.node.where,
                         why="it has no memory while a function is being traced", do="return it, and export the result")
    home = dlpack_device(x)
    target = tuple(dl_device) if dl_device is not None else home
    if target == home != _CPU:
        return _shared(x, stream, copy)
    if target not in (home, _CPU) or (home != _CPU and target != _CPU):
        raise BufferError(f"cannot export an array on {x.device} to DLPack device {target}")
    if home != _CPU and copy is False:
        raise BufferError(f"an array on {x.device} reaches the host only as a copy")
    if stream is not None and home == _CPU:
        raise BufferError("a stream has no meaning for memory of the host")
    host = x._download()
    versioned = max_version is not None and max_version[0] >= 1
    if copy or not versioned:
        if copy is False:
            raise BufferError("a consumer of DLPack before 1.0 cannot be told that memory is read-only; allow the copy")
        host = host.copy()
    capsule = host.__dlpack__(max_version=max_version) if versioned else host.__dlpack__()
    if x.dtype == dt.bfloat16:
        _recode(capsule, _BFLOAT)
    return capsule


def _shared(x: Array, stream: Any, copy: bool | None) -> Any:
    """A capsule of memory that is not the host's, as a library of the device makes it."""
    x._evaluate()
    given = hooks.give(x._value)
    if given is None:
        raise BufferError(f"{x.device} does not share its memory; ask for the host's (dl_device=(1, 0))")
    if copy:
        given = given.copy()
    capsule = given.__dlpack__(stream=stream) if stream is not None else given.__dlpack__()
    if x.dtype == dt.bfloat16:
        _recode(capsule, _BFLOAT)
    return capsule


def cuda_array_interface(x: Array) -> dict[str, Any]:
    """``__cuda_array_interface__``: the array's memory for CuPy, Numba and PyTorch.

    Raises AttributeError for an array elsewhere, as the protocol wants.
    """
    if not x.is_traced and dlpack_device(x)[0] == 2:
        x._evaluate()
        given = hooks.give(x._value)
        if given is not None:
            found = dict(given.__cuda_array_interface__)
            found["owner"] = given
            return found
    raise AttributeError(f"an array on {x.device} has no memory of CUDA's")


# The protocol's name is looked up on the class.
Array.__cuda_array_interface__ = property(cuda_array_interface)  # type: ignore[attr-defined]


def from_dlpack(x: Any, /, *, device: str | None = None, copy: bool | None = None) -> Array:
    """An Array over the memory of another library's array, without a copy where the devices agree.

    Without ``copy=True`` later changes by the owner may be seen. Raises BufferError when ``copy=False`` cannot be kept.
    """
    where = device or default_device()
    if isinstance(x, Array):
        moved = x if device is None or device == x.device else FUNCTIONS["to_device"](x, device)
        return moved.copy()
    if not hasattr(x, "__dlpack__"):
        raise DTypeError(f"from_dlpack of a {type(x).__name__}", why="it has no __dlpack__ method",
                         do="use rlx.asarray, or pass an array of a library with DLPack")
    kind = tuple(x.__dlpack_device__())
    if kind[0] != _CPU[0] and (device is None or tuple(hooks.dlpack_device(device)) == kind):
        taken = hooks.take(x, kind)
        if taken is not None:
            name, storage, spelled, shape = taken
            out = concrete(storage, dt.as_dtype(spelled), shape, name)
            return out.copy() if copy else out
    capsule = _capsule(x, None if kind[0] == 1 else _CPU, copy)
    bf16 = _code(capsule) == _BFLOAT
    if bf16:
        _recode(capsule, _UINT)
    host = np.from_dlpack(_Carrier(capsule))
    dtype = dt.bfloat16 if bf16 else dt.as_dtype(host.dtype)
    shared = hooks.dlpack_device(where) == _CPU and host.flags.c_contiguous
    if copy is False and not shared:
        raise BufferError(f"{where} cannot use this memory as it is; allow the copy")
    storage = hooks.adopt(host, where, dtype) if shared and not copy else hooks.upload(host, where, dtype)
    return concrete(storage, dtype, tuple(host.shape), where)


def _capsule(x: Any, dl_device: tuple[int, int] | None, copy: bool | None) -> Any:
    """The producer's capsule, by the newest form of the call that it understands."""
    try:
        return x.__dlpack__(max_version=(1, 0), dl_device=dl_device, copy=copy)
    except TypeError:
        if dl_device is not None:
            raise BufferError(f"a {type(x).__name__} on another device cannot come to the host by DLPack") from None
        return x.__dlpack__()


FUNCTIONS["from_dlpack"] = from_dlpack


# NumPy's protocols

def array_ufunc(x: Array, ufunc: np.ufunc, method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``numpy.add(x, y)`` and the like on Arrays: the rlx function of that name, or an error that names it."""
    name = ufunc.__name__
    if kwargs.get("out") is not None or kwargs.get("where", True) is not True:
        raise TypeError(f"numpy.{name} with out= or where= does not take rlx arrays; use rlx.{name} and rlx.where")
    if method == "__call__":
        dtype = kwargs.pop("dtype", None)
        result = _function(f"numpy.{name}", name)(*inputs)
        return result if dtype is None else result.astype(dtype)
    if method == "reduce" and name in _REDUCTIONS:
        kwargs = {k: v for k,
                  v in kwargs.items() if (k in ("axis", "dtype", "keepdims") and v is not None) or k == "axis"}
        kwargs.setdefault("axis", 0)
        return FUNCTIONS[_REDUCTIONS[name]](*inputs, **kwargs)
    if method == "accumulate" and name in ("add", "multiply"):
        a = as_array(inputs[0])
        return FUNCTIONS[f"cumulative_{'sum' if name == 'add' else 'prod'}"](a, axis=kwargs.get("axis", 0))
    if method == "outer" and len(inputs) == 2:
        a, b = (as_array(v) for v in inputs)
        return _function(f"numpy.{name}", name)(a.reshape((*a.shape, *(1,) * b.ndim)), b)
    raise TypeError(f"numpy.{name}.{method} does not take rlx arrays; convert with numpy.asarray first")


_REDUCTIONS = {"add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min", "logical_and": "all",
               "logical_or": "any"}


def array_function(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``numpy.concatenate([x, y])`` and the like on Arrays: the rlx function of that name, or an error."""
    module = (getattr(func, "__module__", None) or "numpy").partition(".")[2]
    name = f"{module}.{func.__name__}" if module in ("linalg", "fft") else func.__name__
    f = _function(f"numpy.{name}", name)
    out = kwargs.get("out")
    if out is not None:
        raise TypeError(f"numpy.{name} with out= does not take rlx arrays; use rlx.{name}")
    kwargs = {_RENAMED.get(k, k): v for k, v in kwargs.items() if k != "out" and v is not np._NoValue}
    return f(*args, **kwargs)


#: NumPy's keywords that the standard names otherwise.
_RENAMED = {"a_min": "min", "a_max": "max"}


def _function(spelled: str, name: str) -> Any:
    module, _, plain = name.rpartition(".")
    space = getattr(hooks.namespace(None), module) if module else None
    found = FUNCTIONS.get(name) if space is None else getattr(space, plain, None)
    if found is None or plain.startswith("_"):
        raise TypeError(f"{spelled} does not take rlx arrays: rlx has no function {name!r}; "
                        "convert with numpy.asarray to compute on the host")
    return found


# Pickling

def reduce_array(x: Array) -> tuple[Any, ...]:
    """What pickle and copy need: the values as NumPy data, the dtype, and the device."""
    return _restore, (np.array(x._download()), x.dtype.name, x.device)


def _restore(raw: np.ndarray[Any, Any], dtype: str, device: str) -> Array:
    d = dt.as_dtype(dtype)
    if d == dt.bfloat16:
        return concrete(hooks.upload(raw, device, d), d, tuple(raw.shape), device)
    return from_numpy(raw, d, device)


PROTOCOLS.update(to_dlpack=to_dlpack, array_ufunc=array_ufunc, array_function=array_function, reduce=reduce_array)
