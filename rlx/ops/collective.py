"""Collectives: the members of a named axis, under ``vmap(..., axis_name=)``, combine or exchange what they hold.

The size of an axis is known while its function is traced, and the place of a member is a value like any other: each
collective takes it as an operand, so that it belongs to the code under that axis and no other. A transform that maps
the axis replaces each node by what it means on the whole batch; a node that is left needs a mesh of devices, and is
refused without one.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rlx.array.array import FUNCTIONS, Array
from rlx.array.build import as_array, emit1
from rlx.array.define import primitive
from rlx.core import dtype as dt
from rlx.core.errors import DTypeError, TraceError, ValueIssue
from rlx.ir.graph import Type
from rlx.ops.index import gather

#: Ways to combine, as the reduction primitive names them.
KINDS = ("sum", "prod", "min", "max")

all_reduce_, all_gather_, shift_ = primitive("all_reduce"), primitive("all_gather"), primitive("shift")


class _Axes(threading.local):
    """The named axes around the code that is being traced, outermost first."""

    def __init__(self) -> None:
        self.members: dict[str, tuple[int, Array]] = {}


_axes = _Axes()


@contextmanager
def named_axis(name: str | None, size: int, place: Array | None) -> Iterator[None]:
    """Give an axis its name for a block: how many members it has, and the place of the one that is traced."""
    if name is None or place is None:
        yield
        return
    if name in _axes.members:
        raise ValueIssue(f"there is an axis named {name!r} already", why="an inner axis would hide it",
                         do="give one of them another name")
    _axes.members[name] = (size, place)
    try:
        yield
    finally:
        del _axes.members[name]


def _member(axis: str) -> tuple[int, Array]:
    if axis not in _axes.members:
        known = ", ".join(map(repr, _axes.members)) or "there is none"
        raise TraceError(f"no axis is named {axis!r} here", why=f"names in reach: {known}",
                         do=f"name it: rlx.vmap(f, axis_name={axis!r})")
    return _axes.members[axis]


def axis_size(axis: str) -> int:
    """How many members a named axis has."""
    return _member(axis)[0]


def axis_index(axis: str) -> Array:
    """The place of this member on a named axis, an int32 scalar."""
    return _member(axis)[1]


def all_reduce(x: Any, axis: str, kind: str = "sum") -> Array:
    """What all members of a named axis hold, combined: each gets ``sum_k x_k`` (or the prod, min or max).

    >>> import rlx
    >>> from rlx.distributed import all_reduce
    >>> rlx.vmap(lambda x: x / all_reduce(x, "i"), axis_name="i")(rlx.asarray([1.0, 3.0])).tolist()
    [0.25, 0.75]
    """
    place = axis_index(axis)
    if kind not in KINDS:
        raise ValueIssue(f"all_reduce() of kind {kind!r}", why="it is no way to combine",
                         do=f"use one of {', '.join(KINDS)}")
    return emit1("all_reduce", as_array(x), place, axis=axis, kind=kind)


def all_gather(x: Any, axis: str) -> Array:
    """What all members of a named axis hold, stacked along a new first axis: shape (members, ...)."""
    return emit1("all_gather", as_array(x), axis_index(axis), axis=axis, size=axis_size(axis))


def shift(x: Any, axis: str, offset: int = 1) -> Array:
    """What the member ``offset`` places before holds, around the end: member k gets ``x_(k - offset)``."""
    return emit1("shift", as_array(x), axis_index(axis), axis=axis, offset=int(offset) % axis_size(axis))


@all_reduce_.infer
def _(x: Type, place: Type, *, axis: str, kind: str) -> Type:
    if x.dtype.is_complex and kind in ("min", "max"):
        raise DTypeError(f"all_reduce({kind!r}) of {x}", why="complex numbers have no order", do="combine their parts")
    return x


@all_gather_.infer
def _(x: Type, place: Type, *, axis: str, size: int) -> Type:
    return Type(x.dtype, (size, *x.shape))


@shift_.infer
def _(x: Type, place: Type, *, axis: str, offset: int) -> Type:
    return x


@all_reduce_.grad
def _(ct: Array, out: Array, x: Array, place: Array, *, axis: str, kind: str) -> tuple[Array, None]:
    everyone = emit1("all_reduce", ct, place, axis=axis, kind="sum")
    if kind == "sum":
        return everyone, None
    if kind == "prod":
        return everyone * FUNCTIONS["conj"](_others(x, place, axis)), None
    hit = FUNCTIONS["equal"](x, out)
    ties = emit1("all_reduce", FUNCTIONS["astype"](hit, x.dtype), place, axis=axis, kind="sum")
    return FUNCTIONS["where"](hit, everyone / ties, 0), None


def _others(x: Array, place: Array, axis: str) -> Array:
    """The product of what the other members hold; right where some hold zero."""
    zero = FUNCTIONS["equal"](x, 0)
    one = FUNCTIONS["where"](zero, 1, x)
    whole = emit1("all_reduce", one, place, axis=axis, kind="prod")
    zeros = emit1("all_reduce", FUNCTIONS["astype"](zero, dt.int32), place, axis=axis, kind="sum")
    rest = zeros - FUNCTIONS["astype"](zero, dt.int32)
    return FUNCTIONS["where"](rest > 0, 0, whole / one)


@all_gather_.grad
def _(ct: Array, out: Array, x: Array, place: Array, *, axis: str, size: int) -> tuple[Array, None]:
    return gather(emit1("all_reduce", ct, place, axis=axis, kind="sum"), place), None


@shift_.grad
def _(ct: Array, out: Array, x: Array, place: Array, *, axis: str, offset: int) -> tuple[Array, None]:
    return emit1("shift", ct, place, axis=axis, offset=-offset % axis_size(axis)), None
