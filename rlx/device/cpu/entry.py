"""Native calls: the tables that :mod:`rlx.device.cpu.calls` reads, and whether this interpreter can have them.

The layouts that the caller relies on are measured and tested when it is first needed. Where one is not as expected, or
the interpreter runs without a global lock, calls go through Python, and :func:`absent` says why.
"""

from __future__ import annotations

import ctypes
import struct
import sys
import sysconfig
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np

from rlx.array import eager
from rlx.array.array import Array
from rlx.array.jit import Jitted
from rlx.array.lazy import Cell, Kind, kind_of
from rlx.array.tree import LEAF, Tree, unflatten
from rlx.core import dtype as dt
from rlx.core import flags
from rlx.core.errors import RlxError
from rlx.device.cpu import calls, jit
from rlx.device.cpu.storage import Storage
from rlx.ir.graph import Type

#: NumPy's C API: places of PyArray_NewFromDescr and PyArray_SetBaseObject in its table (part of its stable ABI).
_NEW, _BASE = 94, 282
_FASTCALL, _KEYWORDS = 0x80, 0x02
_WORD: Final = 8
_EXPORTS = ("rlx_run", "rlx_call", "rlx_box", "rlx_context", "rlx_probe")
_METHOD = b"Call the function: compiled programs are found and run natively."


class _MethodDef(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("meth", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p))


@dataclass(frozen=True, slots=True)
class _Native:
    """The linked caller, its context, and everything that they point to."""

    library: jit.Library
    context: ctypes.Array[ctypes.c_int64]
    run: _MethodDef
    call: _MethodDef
    box: _MethodDef
    method: Any
    keep: tuple[Any, ...]


@cache
def absent() -> str | None:
    """Why calls go through Python here, or None."""
    if sys.implementation.name != "cpython":
        return f"{sys.implementation.name} has other objects than CPython"
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return "this Python runs without a global lock"
    if struct.calcsize("P") != _WORD:
        return "addresses here do not have 64 bits"
    if not isinstance(flags.ENVIRON, dict):
        return "the environment is not a dict"
    try:
        _check_layouts()
        _check_calls()
    except (Unlike, RlxError, AttributeError, ImportError) as e:
        return f"{e}"
    return None


class Unlike(Exception):
    """A layout or a result is not what the caller expects."""


# Layouts

def _word(address: int) -> int:
    return ctypes.c_int64.from_address(address).value


def _expect(condition: bool, what: str) -> None:
    if not condition:
        raise Unlike(f"{what} is not laid out as in CPython {sys.version_info.major}.{sys.version_info.minor} "
                      f"with NumPy 2")


def _check_layouts() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    at = id(x)
    _expect(_word(at + 8) == id(np.ndarray), "an object")
    _expect(_word(at + 16) == x.ctypes.data and ctypes.c_int32.from_address(at + 24).value == 2, "an array")
    dims = _word(at + 32)
    _expect((_word(dims), _word(dims + 8)) == (2, 3) and _word(at + 56) == id(np.dtype(np.float32)), "an array")
    for y, plain in ((x, True), (x.T, False), (x[:, ::2], False)):
        _expect((ctypes.c_int32.from_address(id(y) + 64).value & 0x101 == 0x101) == plain, "an array's flags")
    odd = np.zeros(9, np.uint8)[1:].view(np.float32)
    _expect(ctypes.c_int32.from_address(id(odd) + 64).value & 0x100 == 0, "an array's flags")
    held = (b"01234567abcdefg", None)
    _expect(_word(id(held) + 24) == id(held[0]), "a tuple")
    _expect(ctypes.string_at(id(held[0]) + 32, 8) == b"01234567", "a bytes object")


def _offset(cls: Any, name: str) -> int:
    """Where a slot is: the one word that changes to a sentinel's address when the slot is set."""
    x, mark = cls.__new__(cls), object()
    size = cls.__basicsize__
    before = [_word(id(x) + i) for i in range(0, size, _WORD)]
    getattr(cls, name).__set__(x, mark)
    after = [_word(id(x) + i) for i in range(0, size, _WORD)]
    moved = [i * _WORD for i, (a, b) in enumerate(zip(before, after, strict=True)) if a != b and b == id(mark)]
    _expect(len(moved) == 1, f"{cls.__name__}.{name}")
    return moved[0]


def _offsets() -> calls.Offsets:
    return calls.Offsets(
        cell=_offset(Array, "_cell"), weak=_offset(Array, "_weak"), kind=_offset(Cell, "kind"),
        storage=_offset(Cell, "storage"), value=_offset(Cell, "value"), where=_offset(Cell, "where"),
        work=_offset(Cell, "work"), array=_offset(Storage, "array"), address=_offset(Storage, "address"),
        table=_offset(Jitted, "_table"))


# The caller

@cache
def _native() -> _Native:
    """Compile or load the caller, for this process."""
    text = calls.render(_offsets())
    library = jit.permanent(jit.load(text, _EXPORTS, lambda name: None))
    new, base = _numpy_api()
    slow = Jitted.call_in_python
    names = flags.WATCHED
    objects: dict[str, Any] = {
        "array": Array, "cell": Cell, "storage": Storage, "ndarray": np.ndarray, "float": float, "int": int,
        "bool": bool, "tuple": tuple, "list": list, "dict": dict, "none": None, "false": False, "slow": slow,
        "environ": flags.ENVIRON, "bytes_descr": np.dtype(np.uint8)}
    numbers = {"generation": ctypes.addressof(flags.GENERATION), "new": new, "base": base}
    words = [numbers[n] if n in numbers else id(objects[n]) for n in calls.CONTEXT[:-1]]
    context = (ctypes.c_int64 * (len(words) + len(names)))(*words, *map(id, names))
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(library["rlx_context"])(ctypes.addressof(context))
    run = _MethodDef(b"run", library["rlx_run"], _FASTCALL, None)
    call = _MethodDef(b"__call__", library["rlx_call"], _FASTCALL | _KEYWORDS, _METHOD)
    box = _MethodDef(b"box", library["rlx_box"], _FASTCALL, None)
    for kept in (context, run, call, box, objects, names):  # for ever: functions may be freed after this module
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))
    make = ctypes.pythonapi.PyDescr_NewMethod
    make.restype, make.argtypes = ctypes.py_object, [ctypes.py_object, ctypes.c_void_p]
    return _Native(library, context, run, call, box, make(Jitted, ctypes.addressof(call)), (objects, names))


def _numpy_api() -> tuple[int, int]:
    from numpy._core import _multiarray_umath  # type: ignore[attr-defined]
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    table = pointer(_multiarray_umath._ARRAY_API, None)
    return _word(table + _NEW * _WORD), _word(table + _BASE * _WORD)


def _bind(method: _MethodDef, held: tuple[Any, ...]) -> Callable[..., Any]:
    """The function bound to an object: to the table that it runs."""
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype = ctypes.py_object
    make.argtypes = [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]
    made: Callable[..., Any] = make(ctypes.addressof(method), held, None)
    return made


# Tables

@dataclass(frozen=True, slots=True)
class Entry:
    """One specialization as words, and the objects and memory that they point to."""

    words: tuple[int, ...]
    keep: tuple[Any, ...]


def table_of(entries: Sequence[Entry], guarded: bool = True) -> tuple[Any, ...]:
    """What the caller reads: the words of all entries, with the present flags as a guard; then what they point to."""
    keep: list[Any] = []
    head = [ctypes.addressof(_native().context), flags.GENERATION.value, 0]
    if guarded:
        values = [flags.ENVIRON.get(name) for name in flags.WATCHED]
        keep += values
        head[2] = len(values)
        head += [0 if v is None else id(v) for v in values]
    at = len(head) + 1
    words = [*head, at if entries else 0]
    for i, e in enumerate(entries):
        after = at + len(e.words)
        words += [e.words[0], after if i + 1 < len(entries) else 0, *e.words[2:]]
        keep += [e]
        at = after
    return (struct.pack(f"{len(words)}q", *[w - 2**64 if w >= 2**63 else w for w in words]), *keep)


def _entry(executable: Any, args: Sequence[int], nargs: int, leaves: int, fixed: Sequence[Storage],
           outputs: Sequence[Type], wrap: bool, form: int, need: Any, keep: Sequence[Any]) -> Entry | None:
    """The entry of a program; None for one that a native call does not run."""
    if executable.arena > calls.ARENA:
        return None
    consts = executable.consts
    buffers = leaves + len(fixed) + len(outputs) + len(consts)
    if buffers > calls.BUFFERS or max(leaves, nargs, len(outputs)) > calls.LEAVES:
        return None
    kinds = [kind_of(t.dtype, t.shape, "cpu") for t in outputs]
    specs: list[int] = []
    for k in kinds:
        shape = k.type.shape
        nbytes = k.type.dtype.itemsize
        for n in shape:
            nbytes *= int(n)  # type: ignore[arg-type]
        specs += [id(k), id(k.type.dtype.numpy), len(shape), nbytes, *map(int, shape)]  # type: ignore[arg-type]
    words = (leaves, 0, executable.address, len(fixed), len(outputs), len(consts), executable.arena,
             int(not executable.quick), int(wrap), form, 0 if need is None else id(need), nargs, *args,
             *[s.address for s in fixed], *consts, *specs)
    return Entry(words, (executable, tuple(fixed), tuple(kinds), need, tuple(keep)))


def runner(executable: Any, leaves: Sequence[Any], fixed: Sequence[Storage], outputs: Sequence[Type], *,
           checked: bool = False) -> Any:
    """A function of storages and numbers that runs a program and gives its outputs' storages, a tuple where several.

    ``leaves`` says what each argument is: None for a storage, else the Python type and dtype of a number. It gives None
    for arguments of other types; the result is None where there is no native call of this program.
    """
    if not (checked or absent() is None):
        return None
    args: list[int] = []
    for leaf in leaves:
        tag = calls.STORAGE if leaf is None else _NUMBERS.get(leaf)
        if tag is None:
            return None
        args += [tag, 0]
    form = calls.ONE if len(outputs) == 1 else calls.A_TUPLE
    entry = _entry(executable, args, len(leaves), len(leaves), fixed, outputs, False, form, None, ())
    return None if entry is None else _bind(_native().run, table_of([entry], guarded=False))


_NUMBERS = {(float, dt.float64): calls.FLOAT, (float, dt.float32): calls.FLOAT_AS_F32, (int, dt.int64): calls.INT,
            (int, dt.float64): calls.INT_AS_F64, (bool, dt.bool_): calls.BOOL}


def specialized(executable: Any, args: Sequence[Any], leaves: Sequence[Any], static: dict[int, Any],
                fixed: Sequence[Storage], outputs: Sequence[Type], result: Tree, *,
                checked: bool = False) -> Entry | None:
    """The entry of a compiled function called with these positional arguments; None where calls stay in Python.

    ``leaves`` are the leaves of the arguments, in order; ``static`` the arguments that are part of the program, by
    position: they are compared by identity. ``checked`` is for the test at start-up.
    """
    if not (checked or absent() is None):
        return None
    words: list[int] = []
    keep: list[Any] = []
    for i, x in enumerate(args):
        guards = _same(x, keep) if i in static else _guards(x, keep)
        if guards is None:
            return None
        words += guards
    form, need = _form(result)
    return _entry(executable, words, len(args), len(leaves), fixed, outputs, True, form, need, keep)


def _same(x: Any, keep: list[Any]) -> list[int]:
    keep.append(x)
    return [calls.SAME, id(x)]


def _guards(x: Any, keep: list[Any]) -> list[int] | None:
    """The words for an argument and all below it; None for one that is not flattened natively."""
    t = type(x)
    if t is Array:
        kind = x._cell.kind
        if kind is None or kind.device != "cpu":
            return None
        keep.append(kind)
        return [calls.ARRAY, id(kind)]
    if t is np.ndarray:
        if x.dtype not in _DESCRS:
            return None
        keep.append(x.dtype)
        return [calls.NDARRAY, id(x.dtype), x.ndim, *x.shape]
    if t in _PLAIN:
        return [_PLAIN[t], 0]
    if x is None:
        return _same(x, keep)
    if t is dict:
        keys = sorted(x) if all(type(k) is str for k in x) else None
        if keys is None:
            return None
        own = {k: k for k in x}
        keep.extend(own[k] for k in keys)
        return _below([calls.DICT, len(keys), *[id(own[k]) for k in keys]], [x[k] for k in keys], keep)
    if t is tuple or t is list:
        return _below([calls.TUPLE if t is tuple else calls.LIST, len(x)], x, keep)
    return None


def _below(words: list[int], children: Sequence[Any], keep: list[Any]) -> list[int] | None:
    for child in children:
        more = _guards(child, keep)
        if more is None:
            return None
        words += more
    return words


_PLAIN = {float: calls.FLOAT, int: calls.INT, bool: calls.BOOL}
#: The descrs of arrays whose memory programs read as it is, by value.
_DESCRS = {d.numpy for d in dt.ALL if d is not dt.bfloat16}


def _form(tree: Tree) -> tuple[int, Any]:
    """How the result is made of the outputs, and what that needs."""
    if tree == LEAF:
        return calls.ONE, None
    flat = all(c == LEAF for c in tree.children)
    if flat and tree.kind is tuple:
        return calls.A_TUPLE, None
    if flat and tree.kind is list:
        return calls.A_LIST, None
    if flat and tree.kind is dict:
        return calls.A_DICT, tuple(tree.data)
    return calls.MADE, lambda leaves: unflatten(tree, leaves)


def install() -> None:
    """Let compiled functions be called, and Arrays of pending work be made, natively from now on."""
    if Jitted.__call__ is not _native().method:
        Jitted.__call__ = _native().method  # type: ignore[method-assign]
        eager.box = _bind(_native().box, ())


# The test at start-up

def _check_calls() -> None:
    """Call a small program in every way, and look at the results and at what is left behind."""
    probe = _Probe(_native().library["rlx_probe"])
    out = Type(dt.float64, ())
    cell = Cell(kind_of(dt.float64, (), "cpu"), Storage(np.array(2.5)))
    x, host = Array(cell), np.array(4.5)
    run = runner(probe, (None, (float, dt.float64)), (), (out,), checked=True)
    boxed: Any = _bind(_native().box, ())(cell.kind, cell.storage, (1, 2))
    _expect(type(boxed) is Array and not boxed._weak and _parts(boxed) == (cell.kind, cell.storage, (1, 2)),
            "a box")
    _expect(run(cell.storage, 1.5).array == 4.0 and run(1.5, 1.5) is None and run(cell.storage) is None, "a call")
    entry = specialized(probe, (x, host), (x, host), {}, (), (out,), LEAF, checked=True)
    assert entry is not None
    f = Jitted.__new__(Jitted)
    f._table = table_of([entry])
    watch = (cell.storage, host, host.dtype, cell.kind, None, False, f._table)
    before = [sys.getrefcount(w) for w in watch]
    for _ in range(64):
        y: Any = _native().method(f, x, host)
        kind, storage, work = _parts(y)
        _expect(type(y) is Array and kind is cell.kind and storage.array == 7.0 and work is None, "an Array")
        _expect(storage.address == storage.array.ctypes.data, "a storage")
    del y, kind, storage, work
    for w, n in zip(watch, before, strict=True):
        _expect(abs(sys.getrefcount(w) - n) < 32, f"the count of references to {type(w).__name__}")


def _parts(x: Any) -> tuple[Any, Any, Any]:
    cell = x._cell
    return cell.kind, cell.storage, cell.work


@dataclass(frozen=True, slots=True)
class _Probe:
    """What a table needs of an executable."""

    address: int
    arena: int = 64
    consts: tuple[int, ...] = ()
    quick: bool = True


__all__ = ["Entry", "Kind", "absent", "install", "runner", "specialized", "table_of"]
