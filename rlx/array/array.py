"""The lazy Array: an expression until somebody looks, then compiled as a whole and cached by structure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from rlx.array import eager
from rlx.array.eager import PROTOCOLS, binary, is_operand, within
from rlx.array.hooks import default_device, hooks
from rlx.array.host import from_host
from rlx.array.lazy import Cell, leaf_of
from rlx.core import dtype as dt
from rlx.core.errors import DTypeError, RlxError, ShapeError, TraceError
from rlx.core.shape import count, is_static, numel
from rlx.ir.graph import Type, Value, outside

#: Public functions by name; filled by the floor that defines them, used by the methods and operators here. The type
#: is what nearly all return; a tuple of arrays unpacks like an array.
FUNCTIONS: dict[str, Callable[..., Array]] = eager.FUNCTIONS
#: Methods by the names of their functions.
method: Callable[[str], Callable[..., Array]] = eager.method


def _in_place(name: str) -> Callable[[Array, Any], Array]:
    def method(self: Array, other: Any) -> Array:
        if not is_operand(other):
            return NotImplemented  # type: ignore[no-any-return]
        out = FUNCTIONS[name](self, other)
        if out.shape != self.shape:
            raise ShapeError(f"{name} in place would change the shape from {self.shape} to {out.shape}",
                             why="an in-place operation keeps the array's shape", do=f"use x = rlx.{name}(x, y)")
        if out.dtype != self.dtype:
            if _ORDER[out.dtype.kind] > _ORDER[self.dtype.kind]:
                raise DTypeError(f"{name} in place would change the dtype from {self.dtype.name} to {out.dtype.name}",
                                 why="an in-place operation keeps the array's dtype", do=f"use x = rlx.{name}(x, y)")
            out = FUNCTIONS["astype"](out, self.dtype)
        self._cell = out._cell
        return self
    return method


#: Kinds in the order in which one holds the values of those before it; an in-place result may go back, never forward.
_ORDER = {"b": 0, "u": 1, "i": 1, "f": 2, "c": 3}


class Array:
    """An n-dimensional array on one device.

    Operations build an expression; looking at it (``numpy.asarray``, ``print``, ``bool``, ``.item()``, DLPack,
    :func:`rlx.eval`) compiles the whole expression to one program, runs it, and keeps the result.

    An Array is a box that holds a value, and values never change. ``x[i] = v`` and ``x += v`` put another value into
    the box, which everyone sees who holds this same object. Slices, reshapes and copies are boxes of their own: what is
    written to one is never seen through another.
    """

    __slots__ = ("_cell", "_weak", "__weakref__")
    __array_priority__ = 1000
    #: A value of the graph of nodes, or a light record of data or of work outside it.
    _cell: Value | Cell
    #: Stands for a Python number (an argument of a compiled function): takes the dtype of what it meets.
    _weak: bool

    def __init__(self, value: Value | Cell, weak: bool = False) -> None:
        self._cell = value
        self._weak = weak

    @property
    def _value(self) -> Value:
        """The value among the graph's nodes; made here for a light record."""
        cell = self._cell
        return cell if type(cell) is Value else cell.hand_over()  # type: ignore[union-attr]

    @_value.setter
    def _value(self, value: Value) -> None:
        self._cell = value

    @property
    def _home(self) -> str | None:
        """The device, where one is known."""
        kind = self._cell.kind
        return self._value.node.device if kind is None else kind.device

    @property
    def _type(self) -> Type:
        """dtype and shape."""
        kind = self._cell.kind
        return self._value.type if kind is None else kind.type

    # What it is

    @property
    def dtype(self) -> dt.DType:
        """Element type."""
        return self._type.dtype

    @property
    def shape(self) -> tuple[Any, ...]:
        """Sizes of the axes: integers, but symbolic :class:`Dim` objects in a function traced for any size."""
        return self._type.shape

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> Any:
        """Number of elements."""
        return numel(self.shape)

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return count(self.shape) * self.dtype.itemsize

    @property
    def device(self) -> str:
        """Name of the device that holds it, or will."""
        return self._home or default_device()

    @property
    def is_traced(self) -> bool:
        """Whether it stands for a value inside a function that is being traced."""
        return self._cell.kind is None and self._value.node.level > 0

    @property
    def is_evaluated(self) -> bool:
        """Whether it holds data (no work is pending)."""
        cell = self._cell
        return self._value.node.op == "buffer" if cell.kind is None else cell.storage is not None

    @property
    def T(self) -> Array:
        """The transpose: axes reversed."""
        return FUNCTIONS["permute_dims"](self, tuple(reversed(range(self.ndim))))

    @property
    def mT(self) -> Array:
        """The matrix transpose: the last two axes exchanged."""
        return FUNCTIONS["matrix_transpose"](self)

    @property
    def real(self) -> Array:
        """Real part."""
        return FUNCTIONS["real"](self)

    @property
    def imag(self) -> Array:
        """Imaginary part."""
        return FUNCTIONS["imag"](self)

    @property
    def at(self) -> Any:
        """Functional updates: ``x.at[i].set(v)``, ``.add``, ``.multiply``, ``.min``, ``.max``."""
        return PROTOCOLS["at"](self)

    # Looking at it

    def _evaluate(self) -> Any:
        """The storage, after running what is pending."""
        cell = self._cell
        if cell.kind is not None:
            if cell.storage is None:
                hooks.run((cell,))
            return cell.storage
        node = self._value.node
        if node.op != "buffer":
            if node.level > 0:
                kind = f"{self.dtype.name} array of shape {self.shape}"
                raise TraceError(f"the value of a traced {kind} is not known yet",
                                 where=node.where, why="it was looked at inside a function being compiled",
                                 do="use rlx.where, rlx.cond or rlx.while_loop instead of Python's if and while, or "
                                    "move this code out of the traced function")
            if node.kept:
                self._value = outside(self._value)
            hooks.evaluate((self._value,))
        value = self._value
        if type(cell) is Cell:
            cell.settle()
        elif not self._weak:
            self._cell = leaf_of(value) or value
        return value.node.payload[value.index]

    def _download(self) -> np.ndarray:
        """The content in host memory (raw bits for bfloat16), read-only."""
        storage = self._evaluate()
        t = self._type
        return hooks.fetch(storage, t.dtype, t.shape, self.device)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        host = from_host(self._download(), self.dtype)
        if dtype is not None and host.dtype != np.dtype(dtype):
            if copy is False:
                raise RlxError(f"cannot give {self.dtype.name} as {np.dtype(dtype)} without a copy",
                               why="the types differ", do="allow the copy, or ask for the array's own dtype")
            return host.astype(dtype)
        return host.copy() if copy else host

    def numpy(self) -> np.ndarray:
        """The values as a NumPy array (bfloat16 as float32)."""
        return np.asarray(self)

    def item(self, *index: Any) -> bool | int | float | complex:
        """The value of an array of one element as a Python scalar, or of the element at an index (flat, or by axis)."""
        if index:
            key = index[0] if len(index) == 1 else index
            return (self if isinstance(key, tuple) else self.reshape((-1,)))[key].item()
        if self.size != 1:
            raise ShapeError(f"item() of an array of shape {self.shape}", why=f"it has {self.size} elements",
                             do="index one element first")
        value: bool | int | float | complex = self._item()
        return value

    def _item(self) -> Any:
        storage = self._evaluate()
        t = self._type
        return from_host(hooks.peek(storage, t.dtype, t.shape, self.device), t.dtype).item()

    def tolist(self) -> Any:
        """Nested Python lists of the values."""
        return np.asarray(self).tolist()

    def _scalar(self, what: str) -> Any:
        if self._type.shape != () and self.size != 1:
            raise ShapeError(f"{what}() of an array of shape {self.shape}", why="only one element has one value",
                             do="reduce it first, for example with .any() or .all()")
        return self._item()

    def __bool__(self) -> bool:
        return bool(self._scalar("bool"))

    def __int__(self) -> int:
        return int(self._scalar("int"))

    def __float__(self) -> float:
        return float(self._scalar("float"))

    def __complex__(self) -> complex:
        return complex(self._scalar("complex"))

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        return hooks.namespace(api_version)

    def __dlpack__(self, *, stream: Any = None, max_version: tuple[int, int] | None = None,
                   dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> Any:
        return PROTOCOLS["to_dlpack"](self, stream, max_version, dl_device, copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        return hooks.dlpack_device(self.device)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return PROTOCOLS["array_ufunc"](self, ufunc, method, inputs, kwargs)

    def __array_function__(self, func: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return PROTOCOLS["array_function"](func, args, kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        return tuple(PROTOCOLS["reduce"](self))

    def __copy__(self) -> Array:
        return self.copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> Array:
        return self.copy()

    def __index__(self) -> int:
        if not self.dtype.is_integer:
            raise RlxError(f"a {self.dtype.name} array is not an index", why="an index is an integer",
                           do="cast it with .astype(rlx.int64)")
        return int(self._scalar("index"))

    def __contains__(self, value: Any) -> bool:
        return bool(FUNCTIONS["any"](FUNCTIONS["equal"](self, value)))

    def __len__(self) -> int:
        if self.ndim == 0:
            raise TypeError("len() of an array without axes")
        n = self.shape[0]
        return n if isinstance(n, int) else int(n.bounds()[0])

    def __iter__(self) -> Iterator[Array]:
        if self.ndim == 0:
            raise TypeError("iteration over an array without axes")
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        kind = f"{self.dtype.name}{list(self.shape)} on {self.device}"
        if self.is_traced or not is_static(self.shape):
            return f"Array({kind}, traced)"
        body = np.array2string(np.asarray(self), threshold=20, edgeitems=3, separator=", ", prefix="Array(")
        return f"Array({body}, {kind})"

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if self.ndim == 0 and spec else str(self)

    def __hash__(self) -> int:
        raise TypeError("arrays are not hashable: == compares them element by element")

    # Indexing

    def __getitem__(self, key: Any) -> Array:
        return FUNCTIONS["_getitem"](self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._value = FUNCTIONS["_setitem"](self, key, value)._value

    # Conversion and placement

    def astype(self, dtype: Any, /, *, copy: bool = True, device: str | None = None) -> Array:
        """The same values in another dtype."""
        return FUNCTIONS["astype"](self, dtype, copy=copy)

    def to_device(self, device: str, /, *, stream: Any = None) -> Array:
        """The same values on another device."""
        return FUNCTIONS["to_device"](self, device)

    def block_until_ready(self) -> Array:
        """Evaluate, wait for the device, and return the array."""
        self._evaluate()
        hooks.wait(self.device)
        return self

    # Operators

    __add__, __radd__ = binary("add"), binary("add", True)
    __sub__, __rsub__ = binary("subtract"), binary("subtract", True)
    __mul__, __rmul__ = binary("multiply"), binary("multiply", True)
    __truediv__, __rtruediv__ = binary("divide"), binary("divide", True)
    __floordiv__, __rfloordiv__ = binary("floor_divide"), binary("floor_divide", True)
    __mod__, __rmod__ = binary("remainder"), binary("remainder", True)
    __divmod__, __rdivmod__ = binary("divmod"), binary("divmod", True)
    __pow__, __rpow__ = binary("pow"), binary("pow", True)
    __matmul__, __rmatmul__ = binary("matmul"), binary("matmul", True)
    __and__, __rand__ = binary("bitwise_and"), binary("bitwise_and", True)
    __or__, __ror__ = binary("bitwise_or"), binary("bitwise_or", True)
    __xor__, __rxor__ = binary("bitwise_xor"), binary("bitwise_xor", True)
    __lshift__, __rlshift__ = binary("bitwise_left_shift"), binary("bitwise_left_shift", True)
    __rshift__, __rrshift__ = binary("bitwise_right_shift"), binary("bitwise_right_shift", True)
    __lt__, __le__ = binary("less"), binary("less_equal")
    __gt__, __ge__ = binary("greater"), binary("greater_equal")
    __eq__ = binary("equal")  # type: ignore[assignment]
    __ne__ = binary("not_equal")  # type: ignore[assignment]
    __neg__, __pos__ = method("negative"), method("positive")
    __abs__, __invert__ = method("abs"), method("bitwise_invert")

    # In place: the name keeps its object, whose value becomes another; dtype and shape stay

    __iadd__, __isub__, __imul__ = _in_place("add"), _in_place("subtract"), _in_place("multiply")
    __itruediv__, __ifloordiv__ = _in_place("divide"), _in_place("floor_divide")
    __imod__, __ipow__, __imatmul__ = _in_place("remainder"), _in_place("pow"), _in_place("matmul")
    __iand__, __ior__, __ixor__ = _in_place("bitwise_and"), _in_place("bitwise_or"), _in_place("bitwise_xor")
    __ilshift__, __irshift__ = _in_place("bitwise_left_shift"), _in_place("bitwise_right_shift")

    sum, prod, max, min = method("sum"), method("prod"), method("max"), method("min")
    mean, std, var = method("mean"), method("std"), method("var")
    any, all = method("any"), method("all")
    argmax, argmin, argsort = method("argmax"), method("argmin"), method("argsort")
    argpartition, choose = method("argpartition"), method("choose")
    cumsum, cumprod = method("cumsum"), method("cumprod")
    sort, partition, fill = within("sort"), within("partition"), within("full_like")
    nonzero, repeat, diagonal, trace = method("nonzero"), method("repeat"), method("diagonal"), method("trace")
    swapaxes, searchsorted, ptp = method("swapaxes"), method("searchsorted"), method("ptp")
    squeeze, conj, conjugate, round = method("squeeze"), method("conj"), method("conj"), method("round")
    take, dot, clip = method("take"), method("dot"), method("clip")

    def reshape(self, *shape: Any, order: str = "C", copy: bool | None = None) -> Array:
        """The same elements with another shape, of which one size may be -1, by rows ("C") or columns ("F")."""
        sizes = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
        return FUNCTIONS["reshape"](self, sizes, order=order, copy=copy)

    def transpose(self, *axes: Any) -> Array:
        """The axes in another order (reversed when none is given)."""
        order = axes[0] if len(axes) == 1 and isinstance(axes[0], (tuple, list)) else axes
        return FUNCTIONS["permute_dims"](self, tuple(order) or tuple(reversed(range(self.ndim))))

    def flatten(self, order: str = "C") -> Array:
        """The elements in one axis."""
        return FUNCTIONS["ravel"](self, order)

    ravel = flatten

    def compress(self, condition: Any, axis: int | None = None) -> Array:
        """The slices along an axis where a vector of conditions holds."""
        return FUNCTIONS["compress"](condition, self, axis)

    def put(self, indices: Any, values: Any, mode: str = "raise") -> None:
        """Set elements at indices of the flattened array, in place."""
        FUNCTIONS["put"](self, indices, values, mode)

    def tobytes(self) -> bytes:
        """The bytes of the elements, in row-major order."""
        return bytes(np.ascontiguousarray(self._download()).tobytes())

    def view(self, dtype: Any) -> Array:
        """The same bits read as another dtype of the same width; a value of its own, not a window on this one."""
        return FUNCTIONS["bitcast"](self, dtype)

    def copy(self) -> Array:
        """The same value; later ``x[i] = v`` on one is not seen by the other."""
        return Array(self._cell)


eager.ARRAY = Array


def eval_arrays(*arrays: Any) -> None:
    """Run what is pending of the arrays, together, as one program for each device."""
    from rlx.array.tree import flatten
    leaves, _ = flatten(arrays)
    pending = [a for a in leaves if isinstance(a, Array) and not a.is_evaluated]
    cells = [a._cell for a in pending if a._cell.kind is not None]
    if cells:
        hooks.run(cells)
    others = [a for a in pending if a._cell.kind is None]
    for a in others:
        if a.is_traced or a._value.node.kept:
            a._evaluate()
    if others:
        hooks.evaluate([a._value for a in others])
        for a in others:
            a._evaluate()


__all__ = ["FUNCTIONS", "PROTOCOLS", "Array", "eval_arrays"]
