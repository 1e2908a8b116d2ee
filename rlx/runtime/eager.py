"""Run light records of pending work: a structure seen before costs a walk, one look-up and one call."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx import device as devices
from rlx.array.hooks import hooks
from rlx.array.host import to_host
from rlx.array.lazy import Cell, Spelling, spell
from rlx.core import dtype as dt
from rlx.core import flags
from rlx.device.base import Device
from rlx.ir.graph import structure
from rlx.runtime import checks, execute

#: Pending operations from which on values that somebody still holds are kept as well.
DEEP = execute.DEEP


@dataclass(slots=True)
class Plan:
    """A program for a structure of records, and where each of its inputs comes from.

    ``inputs`` holds the place among the leaves, with the dtype of a number (None: a storage); ``pinned`` the storages
    of inputs that the steps themselves bring, by place among the program's inputs.
    """

    program: execute.Compiled
    inputs: tuple[tuple[int, dt.DType | None], ...]
    pinned: dict[int, Any]
    #: Calls it natively on the leaves, once it is run again; False where there is no such call.
    native: Any = None


class Plans:
    """Plans by structure, the least recently used dropped first."""

    def __init__(self, limit: int = 4096) -> None:
        self._plans: OrderedDict[Any, Plan] = OrderedDict()
        self._limit = limit

    def get(self, key: Any) -> Plan | None:
        """The plan of that key."""
        return self._plans.get(key)

    def put(self, key: Any, plan: Plan) -> None:
        """Keep a plan."""
        self._plans[key] = plan
        while len(self._plans) > self._limit:
            self._plans.popitem(last=False)

    def clear(self) -> None:
        """Forget every plan."""
        self._plans.clear()


PLANS = Plans()


def run(cells: Sequence[Cell]) -> None:
    """Compute the cells: one program for each device. Afterwards each holds data."""
    if len(cells) == 1 and _run_seen(cells[0]):
        return
    groups: dict[str, list[Cell]] = {}
    for c in cells:
        kind = c.kind
        if kind is not None and c.work is not None:
            groups.setdefault(kind.device, []).append(c)
    for device, group in groups.items():
        _run_on(devices.find(device), list({id(c): c for c in group}.values()))


def _run_seen(cell: Cell) -> bool:
    """Run a short chain of steps natively, if its structure has been seen; whether that was done."""
    work = cell.work
    if work is None or work[2] > DEEP:
        return work is None
    number: dict[Cell, int] = {}
    key: list[Any] = []
    leaves: list[Any] = []
    if not spell(work, number, key, leaves):
        return False
    key += (None, len(number), flags.snapshot())
    plan = PLANS.get(tuple(key))
    if plan is None or not plan.native:
        return False
    made = plan.native(*leaves)
    if made is None:
        return False
    cell.fill(made)
    return True


def _run_on(device: Device, cells: list[Cell]) -> None:
    spelling = Spelling(cells)
    if any(w[2] > DEEP for _, w, _ in spelling.order):
        held = spelling.held()
        if held:
            cells = [*cells, *held]
            spelling = Spelling(cells)
    if not spelling.light:
        _run_as_nodes(cells)
        return
    spelling.key.append(flags.snapshot())
    key = tuple(spelling.key)
    plan = PLANS.get(key)
    if plan is None:
        plan = _plan(spelling, device)
        if plan is None:
            _run_as_nodes(cells)
            return
        PLANS.put(key, plan)
    elif plan.native:
        made = plan.native(*spelling.leaves)
        if made is not None:
            if len(cells) == 1:
                cells[0].fill(made)
            else:
                for c, storage in zip(cells, made, strict=True):
                    c.fill(storage)
            return
    elif plan.native is None:
        plan.native = _native(plan, spelling.leaves, device) or False
    leaves, inputs = spelling.leaves, []
    for place, number in plan.inputs:
        if number is None:
            inputs.append(leaves[place])
        else:
            inputs.append(device.upload(to_host(np.asarray(leaves[place]), number)))
    for place, storage in plan.pinned.items():
        inputs[place] = storage
    for c, storage in zip(cells, plan.program.run(inputs), strict=True):
        c.fill(storage)


def _native(plan: Plan, leaves: Sequence[Any], device: Device) -> Any:
    """A native call of the plan, if the device has them and each input is a leaf, in order."""
    native = device.native_calls()
    if native is None or plan.program.watches or flags.snapshot().check:
        return None
    kinds = [None if number is None else (type(leaves[place]), number) for place, number in plan.inputs]
    native.install()
    call = native.runner(plan.program.executable, kinds, (), plan.program.outputs)
    if call is None or (not plan.pinned and [place for place, _ in plan.inputs] == list(range(len(leaves)))):
        return call
    sources = [(place, plan.pinned.get(i)) for i, (place, _) in enumerate(plan.inputs)]
    return lambda *leaves: call(*[leaves[place] if pinned is None else pinned for place, pinned in sources])


def _run_as_nodes(cells: list[Cell]) -> None:
    """Through the graph of nodes: some of what is needed is pending there."""
    for c in cells:
        if c.work is not None:
            c.hand_over()
    execute.evaluate([c.value for c in cells if c.value is not None])
    for c in cells:
        c.settle()


def _plan(spelling: Spelling, device: Device) -> Plan | None:
    """The program for a new structure; None where the outcome of an operation must be checked when it has run."""
    places: dict[int, int] = {}
    values = spelling.values(places)
    key, leaves = structure(values)
    if checks.watched(values):
        return None
    program = execute.program_of(device.name, key, values, leaves)
    inputs: list[tuple[int, dt.DType | None]] = []
    pinned: dict[int, Any] = {}
    for v in leaves:
        place = places.get(id(v.node))
        if place is None:
            pinned[len(inputs)] = execute.storage_of(v, device)
            inputs.append((0, None))
        else:
            inputs.append((place, v.dtype if v.node.op == "scalar" else None))
    return Plan(program, tuple(inputs), pinned)


def install() -> None:
    """Connect the arrays' floor with this one."""
    execute.install()
    hooks.run = run


__all__ = ["PLANS", "install", "run"]
