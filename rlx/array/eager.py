"""Operators and functions on arrays outside a trace: a call whose kinds of operands were seen makes one record."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any, TypeVar
from weakref import ref as ref_to

import numpy as np

from rlx.array.lazy import Cell, Kind, Step, Work, caller
from rlx.core import dtype as dt
from rlx.core.shape import Dim
from rlx.core.where import is_internal

#: An array.
A = TypeVar("A")
#: Public functions by name; filled by the floor that defines them, used by the methods and operators here.
FUNCTIONS: dict[str, Callable[..., Any]] = {}
#: What the methods of Array find by name and nobody else calls.
PROTOCOLS: dict[str, Callable[..., Any]] = {}
#: The class of arrays; set where it is defined.
ARRAY: Any = None

#: Length of a chain of pending operations from which it is run without being asked for: loops of many small steps
#: then repeat one program of this size, while expressions that people write stay whole.
MAX_PENDING = 200
#: Powers by integers of at most this size are products: each is a step of its own.
POWERS = 16
#: Functions of one array whose result depends on its kind and on plain arguments alone.
STEPPED = frozenset((
    "abs", "all", "any", "argmax", "argmin", "astype", "bitcast", "bitwise_invert", "broadcast_to", "ceil",
    "conj", "cumprod", "cumsum", "cumulative_prod", "cumulative_sum", "expand_dims", "flip", "floor", "imag",
    "isfinite", "isinf", "isnan", "logical_not", "matrix_transpose", "max", "mean", "min", "negative",
    "permute_dims", "prod", "ravel", "real", "reciprocal", "reshape", "round", "signbit", "square", "squeeze",
    "std", "sum", "trunc", "var"))


def pend(step: Step, args: tuple[Any, ...]) -> Any:
    """An array of the step on these cells and numbers, to be run later; long chains are run at once.

    Equal work that is still pending is one computation. Numbers make it another: each is an input of its own.
    """
    depth, key = 0, (step, *map(id, args))
    for a in args:
        if type(a) is Cell:
            work = a.work
            if work is not None and work[2] > depth:
                depth = work[2]
        else:
            key = ()
    if key:
        ref = _pending.get(key)
        same = None if ref is None else ref()
        if same is not None:
            work = same.work
            if work is not None and work[1] == args and work[0] is step:  # else the ids are those of others by now
                return ARRAY(same)
    frame: Any = sys._getframe(2)
    code = frame.f_code
    place = frame.f_lasti
    if is_internal(code.co_filename):
        code, place = caller(3)
    depth += step.height
    out = box(step.kind, None, (step, args, depth, code, place))
    if key:
        if len(_pending) >= REMEMBERED:
            _forget()
        _pending[key] = ref_to(out._cell)
    if depth > MAX_PENDING:
        out._evaluate()
    return out


#: Pending work by its step and the identities of its operands. Dead entries are swept when there are many.
_pending: dict[tuple[Any, ...], ref_to[Cell]] = {}
REMEMBERED = 1024


def _forget() -> None:
    for key, ref in list(_pending.items()):
        cell = ref()
        if cell is None or cell.work is None:
            _pending.pop(key, None)
    if len(_pending) >= REMEMBERED // 2:
        _pending.clear()


def _box(kind: Kind, storage: Any, work: Work | None) -> Any:
    return ARRAY(Cell(kind, storage, work))


#: An Array of a light record with these parts. A device with native calls puts its own here.
box: Callable[..., Any] = _box


def binary(name: str, reflected: bool = False) -> Callable[[A, Any], A]:
    """The operator of a function of two."""
    steps: dict[Any, Step | None] = {}
    power = stepped(name, lambda *args: FUNCTIONS[name](*args)) if name == "pow" and not reflected else None

    def method(self: Any, other: Any) -> Any:
        a = self._cell
        kind = a.kind
        if kind is not None:
            b: Any
            t = type(other)
            if t is ARRAY:
                b = other._cell
                of = b.kind
            elif t is float or t is int:
                if power is not None and t is int and -POWERS <= other <= POWERS:
                    return power(self, other)
                b, of = other, t
            else:
                of = None
            if of is not None:
                try:
                    step = steps[kind, of]
                except KeyError:
                    operands = (other, self) if reflected else (self, other)
                    step = PROTOCOLS["learn"](steps, (kind, of), name, operands, {})
                if step is not None and (of is not int or step.low <= b <= step.high):
                    return pend(step, (b, a) if reflected else (a, b))
        if not is_operand(other):
            return NotImplemented
        f = FUNCTIONS[name]
        return f(other, self) if reflected else f(self, other)
    return method


def is_operand(x: Any) -> bool:
    """Whether an operator takes it."""
    return isinstance(x, (ARRAY, bool, int, float, complex, Dim, np.ndarray, np.generic, list, tuple))


def method(name: str) -> Callable[..., Any]:
    """The method of a function."""
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return FUNCTIONS[name](self, *args, **kwargs)
    out = stepped(name, call) if name in STEPPED else call
    out.__name__ = name
    out.__doc__ = f"``rlx.{name}`` with this array first."
    return out


def within(name: str) -> Callable[..., None]:
    """The method that puts a function's result in place of the array's value."""
    def call(self: Any, *args: Any, **kwargs: Any) -> None:
        self._cell = FUNCTIONS[name](self, *args, **kwargs)._cell
    call.__name__ = name.lstrip("_")
    call.__doc__ = f"Put the result of ``rlx.{call.__name__}`` in place of this array's value, as NumPy does."
    return call


def stepped(name: str, slow: Callable[..., Any]) -> Callable[..., Any]:
    """The function of that name of one array and plain arguments; ``slow`` is what it is in full."""
    steps: dict[Any, Step | None] = {}

    def call(*args: Any, **kwargs: Any) -> Any:
        if args and type(args[0]) is ARRAY:
            a = args[0]._cell
            kind: Any = a.kind
            if kind is not None:
                key = kind
                if len(args) > 1 or kwargs:
                    plain = _plain(args[1:]) and _plain(kwargs.values())
                    key = (kind, args[1:], *kwargs.items()) if plain else None
                if key is not None:
                    try:
                        step = steps[key]
                    except KeyError:
                        step = PROTOCOLS["learn"](steps, key, name, args[:1], kwargs, args[1:])
                    if step is not None:
                        return pend(step, (a,))
        return slow(*args, **kwargs)
    return call


_PLAIN = frozenset((bool, int, str, dt.DType))


def _plain(values: Iterable[Any]) -> bool:
    """Whether each is equal only to arguments that mean the same."""
    for v in values:
        t = type(v)
        if t is tuple:
            for i in v:
                if type(i) is not int:
                    return False
        elif v is not None and t not in _PLAIN:
            return False
    return True


def elementwise(name: str, slow: Callable[..., Any]) -> Callable[..., Any]:
    """A function of one or two arrays, or an array and a number; ``slow`` is what it is in full."""
    one = stepped(name, slow)
    steps: dict[Any, Step | None] = {}

    def call(*args: Any) -> Any:
        if len(args) != 2:
            return one(*args)
        x, y = args
        a, of_a = _operand_of(x)
        b, of_b = _operand_of(y)
        if of_a is not None and of_b is not None and (type(a) is Cell or type(b) is Cell):
            try:
                step = steps[of_a, of_b]
            except KeyError:
                step = PROTOCOLS["learn"](steps, (of_a, of_b), name, args, {})
            if step is not None and (of_a is not int or step.low <= a <= step.high) and (
                    of_b is not int or step.low <= b <= step.high):
                return pend(step, (a, b))
        return slow(*args)
    return call


def _operand_of(x: Any) -> tuple[Any, Any]:
    """A cell and its kind, or a number and its type; no kind for anything else."""
    t = type(x)
    if t is ARRAY:
        cell = x._cell
        return cell, cell.kind
    return x, t if t is float or t is int else None
