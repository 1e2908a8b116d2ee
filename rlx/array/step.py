"""Learn what a function gives for operands of certain kinds, so that the next such call costs one light record."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from rlx.array.array import FUNCTIONS, PROTOCOLS, Array
from rlx.array.build import as_array, at_line, tracing
from rlx.array.hooks import default_float, hooks
from rlx.array.lazy import Kind, Step, kind_of
from rlx.core import dtype as dt
from rlx.core.errors import RlxError
from rlx.core.shape import is_static
from rlx.core.where import Where
from rlx.ir.graph import Type, Value, parameter, postorder

#: Steps that one function remembers.
LIMIT = 4096
#: Functions that choose what to do by the value of a Python number.
_BY_VALUE = frozenset(("pow", "matmul"))


def learn(steps: dict[Any, Step | None], key: Any, name: str, operands: tuple[Any, ...], options: dict[str, Any],
          rest: tuple[Any, ...] = ()) -> Step | None:
    """The step of a call, remembered by its key; None where the call has to be made in full each time.

    The function is traced on parameters of the operands' kinds: it must give one new array, of those alone. A call
    that fails is not remembered: made in full it raises its error.
    """
    step = None
    if name not in _BY_VALUE or all(isinstance(x, Array) for x in operands):
        try:
            step = _try(name, operands, options, rest)
        except (RlxError, TypeError, ValueError, IndexError):
            return None
    if len(steps) > LIMIT:
        steps.clear()
    steps[key] = step
    return step


def _try(name: str, operands: tuple[Any, ...], options: dict[str, Any], rest: tuple[Any, ...]) -> Step | None:
    kinds: list[Kind] = [x._cell.kind for x in operands if isinstance(x, Array) and x._cell.kind is not None]
    devices = {k.device for k in kinds}
    if len(devices) != 1:
        return None
    device = devices.pop()
    number = _meeting(kinds[0], next((x for x in operands if not isinstance(x, Array)), None), device)
    function = FUNCTIONS[name]

    def call(*arrays: Array, **named: Any) -> Any:
        return function(*arrays, *rest, **named)

    with tracing() as depth:
        params = [parameter(x._type if isinstance(x, Array) else Type(number, ()), depth, device=device)
                  for x in operands]
        out = call(*[Array(p) for p in params], **options)
    if not isinstance(out, Array) or out._cell.kind is not None:
        return None
    value = out._value
    if any(value is p for p in params) or not is_static(value.shape) or value.node.device != device:
        return None
    if any(n.op in ("buffer", "scalar") for n in postorder((value,))):
        return None
    bounds = (-(2**63), 2**63 - 1)
    if number.is_integer:
        info = np.iinfo(number.numpy)
        bounds = (int(info.min), int(info.max))
    return Step(call, options, kind_of(value.dtype, value.shape, device), number, bounds, value.node.depth)


def _meeting(kind: Kind, x: Any, device: str) -> dt.DType:
    """The dtype that a Python number takes beside an array of that kind."""
    return kind.type.dtype if x is None else dt.weak_type(kind.type.dtype, x, default_float(device))


def _make(step: Step, values: Iterable[Value], where: Where) -> Value:
    with at_line(where):
        return as_array(step.call(*[Array(v) for v in values], **step.options))._value


PROTOCOLS["learn"] = learn
hooks.make = _make
