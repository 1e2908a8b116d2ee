"""Light records of pending work: what an eager operation costs once its operand types have been seen.

An Array outside any trace holds a :class:`Cell`: either data on a device, or a function of other cells that is still
to be run. A seen operation makes one cell; no node of the graph is made until somebody needs one. Running a cell walks
the cells below it and finds the program by what it saw; only a structure that is new is built as a graph and compiled.

===========  =======  ========  ======  ==========================================================================
a cell is    kind     storage   work    meaning
===========  =======  ========  ======  ==========================================================================
a leaf       set      set       None    data on a device; ``value`` is its ``buffer``, once somebody asked for one
pending      set      None      set     a step, its operands, and where it was called
handed over  None     None      None    ``value`` says everything: the work is a node of the graph
===========  =======  ========  ======  ==========================================================================

Other threads read without a lock, so each change writes what will be read before the field that says to read it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from types import CodeType
from typing import Any, Final, final

from rlx.array.hooks import hooks
from rlx.core import dtype as dt
from rlx.core.shape import Shape, is_static
from rlx.core.where import UNKNOWN, Where, is_internal
from rlx.ir.graph import Type, Value, node, unscoped

#: Kinds that are remembered; a program that makes more learns its steps again.
LIMIT: Final = 50_000


@final
class Kind:
    """dtype, shape and device of data: one object each, compared by identity."""

    __slots__ = ("device", "type")
    type: Type
    device: str

    def __init__(self, type_: Type, device: str) -> None:
        self.type, self.device = type_, device

    def __repr__(self) -> str:
        return f"{self.type} on {self.device}"


_kinds: dict[tuple[Any, ...], Kind] = {}


def kind_of(dtype: dt.DType, shape: Shape, device: str) -> Kind:
    """The kind with these parts."""
    key = (dtype, shape, device)
    found = _kinds.get(key)
    if found is None:
        if len(_kinds) > LIMIT:
            _kinds.clear()
        found = _kinds.setdefault(key, Kind(Type(dtype, shape), device))
    return found


@final
class Step:
    """A function on operands of certain kinds: seen before, so that what it gives is known.

    Numbers among the operands become scalars of dtype ``number``; integers must lie in ``low`` to ``high``. ``height``
    is how many operations the function makes in a chain.
    """

    __slots__ = ("call", "height", "high", "kind", "low", "number", "options")

    def __init__(self, call: Callable[..., Any], options: dict[str, Any], kind: Kind, number: dt.DType,
                 bounds: tuple[int, int], height: int) -> None:
        self.call, self.options, self.kind, self.number, self.height = call, options, kind, number, height
        self.low, self.high = bounds


#: The step, its operands (cells and Python numbers), operations in the longest chain down to a leaf, the caller's code
#: and the place in it.
Work = tuple[Step, tuple[Any, ...], int, CodeType, int]


@final
class Cell:
    """What an Array outside a trace holds: see the module."""

    __slots__ = ("__weakref__", "kind", "storage", "value", "where", "work")
    kind: Kind | None
    storage: Any
    work: Work | None
    value: Value | None
    where: Where | None

    def __init__(self, kind: Kind | None, storage: Any, work: Work | None = None, value: Value | None = None,
                 where: Where | None = None) -> None:
        self.kind = kind
        self.storage = storage
        self.work = work
        self.value = value
        self.where = where

    def fill(self, storage: Any) -> None:
        """Become a leaf that holds the result. Of two threads that computed it, the first is kept."""
        if self.storage is None:
            self.storage = storage
        self.work = None

    def hand_over(self) -> Value:
        """The value that stands for this cell among the graph's nodes; pending work becomes a node for good."""
        value = self.value
        if value is None:
            found = Spelling([self])
            value = self.value = found.values()[0]
            if self.storage is None:
                self.kind = None
                self.work = None
        return value

    def settle(self) -> bool:
        """Whether the cell is light: not, while work that was handed over has not been run."""
        if self.kind is None:
            value = self.value
            n = None if value is None else value.node
            if value is None or n is None or n.op != "buffer" or n.device is None:
                return False
            self.storage = n.payload[value.index]
            self.kind = kind_of(value.dtype, value.shape, n.device)
        return True


def leaf_of(value: Value) -> Cell | None:
    """A leaf over the data of a value; None while it is pending, traced or on no device."""
    n = value.node
    if n.op != "buffer" or n.device is None or not is_static(value.shape):
        return None
    return Cell(kind_of(value.dtype, value.shape, n.device), n.payload[value.index], None, value)


def caller(depth: int) -> tuple[CodeType, int]:
    """The nearest code outside rlx that called, and the place in it; ``depth`` as of ``sys._getframe``."""
    frame: Any = sys._getframe(depth)
    code = frame.f_code
    while is_internal(code.co_filename) and frame.f_back is not None:
        frame = frame.f_back
        code = frame.f_code
    return code, frame.f_lasti


def line_of(code: CodeType, place: int) -> Where:
    """The line of a place in code."""
    for start, end, line in code.co_lines():
        if start <= place < end and line is not None:
            return Where(code.co_filename, line)
    return Where(code.co_filename, code.co_firstlineno)


def spell(work: Work, number: dict[Cell, int], key: list[Any], leaves: list[Any]) -> bool:
    """What :class:`Spelling` finds below one cell, for short chains; False where that takes more."""
    tail: list[Any] = [work[0]]
    for a in work[1]:
        if type(a) is Cell:
            place = number.get(a)
            if place is None:
                below = a.work
                if below is None:
                    kind = a.kind
                    if kind is None:
                        return False
                    key.append(kind)
                    leaves.append(a.storage)
                elif not spell(below, number, key, leaves):
                    return False
                place = number[a] = len(number)
            tail.append(place)
        else:
            leaves.append(a)
            tail.append(type(a))
    key += tail
    return True


@final
class Spelling:
    """The cells below some cells, as a key that is equal for equal structures, with the leaves in its order.

    ``key`` lists kinds of leaves, and steps, each followed by its operands: places in the walk, or types of numbers.
    ``leaves`` holds storages and numbers. ``light`` is False where a leaf is pending among the nodes of the graph.
    """

    __slots__ = ("cells", "key", "leaves", "light", "number", "order", "roots")

    def __init__(self, roots: Sequence[Cell]) -> None:
        self.roots = roots
        self.number: dict[int, int] = {}
        self.leaves: list[Any] = []
        #: Leaf cells by place among the leaves.
        self.cells: dict[int, Cell] = {}
        #: Pending cells with their work and the places of its numbers, operands first.
        self.order: list[tuple[Cell, Work, list[int]]] = []
        self.light = True
        self.key: list[Any] = []
        for root in roots:
            self._walk(root)
        self.key.append(None)
        self.key.extend([self.number[id(c)] for c in roots])

    def _walk(self, root: Cell) -> None:
        """Depth first, operands in order, as the nodes that the steps make will be walked."""
        number, key, leaves = self.number, self.key, self.leaves
        if id(root) in number:
            return
        if root.work is None:
            self._leaf(root)
            return
        frames: list[tuple[Cell, Work, list[int], Iterator[Any]]] = [(root, root.work, [], iter(root.work[1]))]
        while frames:
            c, work, places, operands = frames[-1]
            for a in operands:
                if type(a) is not Cell:
                    places.append(len(leaves))
                    leaves.append(a)
                elif id(a) not in number:
                    below = a.work
                    if below is None:
                        self._leaf(a)
                    else:
                        frames.append((a, below, [], iter(below[1])))
                        break
            else:
                key.append(work[0])
                for a in work[1]:
                    key.append(number[id(a)] if type(a) is Cell else type(a))
                number[id(c)] = len(number)
                self.order.append((c, work, places))
                frames.pop()

    def _leaf(self, c: Cell) -> None:
        if c.kind is None and not c.settle():
            self.light = False
        self.number[id(c)] = len(self.number)
        self.key.append(c.kind)
        self.cells[len(self.leaves)] = c
        self.leaves.append(c.storage)

    def held(self) -> list[Cell]:
        """Pending cells that more refer to than the expression itself: somebody still holds them."""
        inside: dict[int, int] = {}
        for _, work, _ in self.order:
            for a in work[1]:
                inside[id(a)] = inside.get(id(a), 0) + 1
        roots = {id(c) for c in self.roots}
        found = []
        for row in self.order:
            c = row[0]
            # Three more hold it here: the row, the variable, and the call's argument.
            if id(c) not in roots and sys.getrefcount(c) - 3 > inside.get(id(c), 0):
                found.append(c)
        return found

    def values(self, leaves: dict[int, int] | None = None) -> list[Value]:
        """The roots as values of the graph; ``leaves`` takes, by id of a leaf's node, its place among the leaves.

        The cells in between stay as they are.
        """
        known: dict[int, Value] = {}
        with unscoped():
            for at, c in self.cells.items():
                known[id(c)] = v = _buffer(c)
                if leaves is not None:
                    leaves[id(v.node)] = at
            for c, (step, args, _, code, lasti), places in self.order:
                where, numbers = line_of(code, lasti), iter(places)
                operands: list[Any] = []
                for a in args:
                    if type(a) is Cell:
                        operands.append(known[id(a)])
                        continue
                    v = node("scalar", types=(Type(step.number, ()),), payload=a, where=where,
                             device=step.kind.device).outs[0]
                    operands.append(v)
                    if leaves is not None:
                        leaves[id(v.node)] = next(numbers)
                known[id(c)] = hooks.make(step, operands, where)
        return [known[id(c)] for c in self.roots]


def _buffer(cell: Cell) -> Value:
    value = cell.value
    if value is None:
        kind = cell.kind
        assert kind is not None
        value = cell.value = node("buffer", types=(kind.type,), payload=(cell.storage,), device=kind.device,
                                  where=cell.where or UNKNOWN).outs[0]
    return value
