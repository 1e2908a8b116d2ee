"""Execute: the program of an expression is compiled once for its structure, then run on whatever its leaves hold."""

from __future__ import annotations

import sys
import threading
from collections import Counter, OrderedDict
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from rlx import device as devices
from rlx.array.hooks import default_device, hooks
from rlx.array.host import to_host
from rlx.core import dtype as dt
from rlx.core import flags
from rlx.core.errors import DeviceError, ValueIssue
from rlx.device.base import Device, Storage
from rlx.ir.graph import (
    UNIQUE,
    Graph,
    Node,
    Value,
    become_buffer,
    graph_scope,
    parameter,
    postorder,
    rebuild,
    structure,
)
from rlx.ir.prim import MOVEMENT
from rlx.runtime import checks, inspect

# The compiler is imported by the first compile: importing rlx stays quick.
if TYPE_CHECKING:
    from rlx.compile.legalize import Policy
    from rlx.compile.pipeline import Lowered
    from rlx.compile.report import Report


class Compiled:
    """A program on a device: its report and text at every level, and how to run it on storages."""

    def __init__(self, lowered: Lowered, device: Device) -> None:
        self.lowered = lowered
        self.device = device
        #: How many of the last outputs say whether a result failed.
        self.watches = 0
        self.outputs = tuple([v.type for v in lowered.mir.outputs])
        self.executable = (device.load_graph(lowered.mir) if lowered.program is None else device.load(lowered.program))
        self._inputs = len(lowered.mir.inputs)

    @property
    def report(self) -> Report:
        """Where every node went."""
        return self.lowered.report

    def prepare(self, fixed: Sequence[Storage]) -> list[Storage]:
        """What the program keeps between calls, computed of the inputs that are the same in each: its last inputs."""
        setup = self.lowered.setup
        if setup is None:
            return []
        outputs = sorted((b for b in setup.buffers if b.role == "output"), key=lambda b: b.slot)
        kept = self.device.empty_together([(b.dtype, b.size) for b in outputs])
        self.device.load(setup).run(fixed, kept)
        return kept

    def run(self, inputs: Sequence[Storage]) -> list[Storage]:
        """The outputs, in fresh storage; ``inputs`` are the graph's, then what :meth:`prepare` gave, if called."""
        if self.lowered.setup is not None and len(inputs) == self._inputs:
            inputs = [*inputs, *self.prepare(inputs[self._inputs - self.lowered.fixed:])]
        outs = [self.device.empty(t.dtype, t.shape) for t in self.outputs]  # type: ignore[arg-type]
        self.executable.run(inputs, outs)
        if inspect.checks_nan():
            inspect.need_numbers(self.lowered.hir, self.device, inputs[:self._inputs], outs)
        return outs

    def text(self, level: str = "lir") -> str:
        """The program as text: ``hir``, ``mir`` or ``lir``."""
        from rlx.ir import text
        if level in ("hir", "mir"):
            return text.print_graph(getattr(self.lowered, level))
        if self.lowered.program is None:
            raise DeviceError(f"device {self.device.name!r} has no loop program", why="it takes graphs",
                              do="ask for the levels hir or mir")
        return text.print_program(self.lowered.program)


def compile_for(graph: Graph, device: str | None = None, policy: Policy | None = None, name: str = "main",
                fixed: int = 0) -> Compiled:
    """Compile a graph for a device. Raises CompileError when a node has no legal lowering there."""
    from rlx.compile.pipeline import compile_graph
    inspect.allow_compile(graph, name)
    target = devices.find(device or default_device())
    lowered = compile_graph(graph, target, policy or current_policy(), name, fixed)
    if flags.get("dispatch_report"):
        sys.stderr.write(lowered.report.table() + "\n")
    return Compiled(lowered, target)


def current_policy() -> Policy:
    """The policy that the flags ask for."""
    from rlx.compile.legalize import Policy
    return Policy(str(flags.get("kernel_dispatch")))


class ProgramCache:
    """Programs by structure, the least recently used dropped first."""

    def __init__(self, limit: int = 4096) -> None:
        self._programs: OrderedDict[Any, Compiled] = OrderedDict()
        self._limit = limit
        self.compiles = 0

    def get(self, key: Any) -> Compiled | None:
        """The program of that key, now the most recently used."""
        found = self._programs.get(key)
        if found is not None:
            self._programs.move_to_end(key)
        return found

    def put(self, key: Any, program: Compiled) -> None:
        """Keep a program."""
        self.compiles += 1
        self._programs[key] = program
        while len(self._programs) > self._limit:
            self._programs.popitem(last=False)

    def clear(self) -> None:
        """Forget every program."""
        self._programs.clear()


PROGRAMS = ProgramCache()
_nodes = threading.RLock()


def evaluate(values: Sequence[Value]) -> None:
    """Compute the values and turn their nodes into buffers; one program for each device."""
    by_device: dict[str, dict[int, Node]] = {}
    for v in values:
        if v.node.op != "buffer":
            by_device.setdefault(v.node.device or default_device(), {}).setdefault(id(v.node), v.node)
    for name, wanted in by_device.items():
        _evaluate_on(name, list(wanted.values()))


def _evaluate_on(name: str, nodes: list[Node]) -> None:
    """Nodes change under the lock only; programs run outside it. Of two threads that compute one value, one is kept."""
    with _nodes:
        nodes = [n for n in nodes if n.op != "buffer"]
        nodes += _held(nodes)
        values = [v for n in nodes for v in n.outs]
        if not values:
            return
        key, leaves = structure(values)
        program = program_of(name, key, values, leaves)
        watches = checks.watched(values) if program.watches else []
        storages = [storage_of(v, program.device) for v in leaves]
    made = program.run(storages)
    if watches:
        types = [w.info.type for w in watches]
        late = zip(made[-len(watches):], types, strict=True)
        checks.raise_failure(watches, [program.device.download(s, t.dtype, t.shape) for s, t in late])  # type: ignore[arg-type]
    outs = iter(made)
    with _nodes:
        for n in nodes:
            mine = tuple([next(outs) for _ in n.types])
            if n.op != "buffer":
                become_buffer(n, mine, name)


def program_of(device: str, key: Any, values: list[Value], leaves: list[Value]) -> Compiled:
    """The program of these values as a function of their leaves, by their structural key."""
    full_key = (device, key, flags.snapshot().key)
    program = PROGRAMS.get(full_key)
    if program is None:
        watches = checks.watched(values)
        program = compile_for(_abstract([*values, *[w.info for w in watches]], leaves), device)
        program.watches = len(watches)
        PROGRAMS.put(full_key, program)
    return program


#: Pending operations from which on values that somebody still holds are kept as well.
DEEP = 8


def _held(nodes: list[Node]) -> list[Node]:
    """Further nodes to evaluate: deep in a long expression, what the user still holds.

    A loop that looks at part of a value that it accumulates (``acc = acc + x; float(acc[0])``) would else compute, and
    compile, an ever longer expression. A value is held when more refer to it than the expression itself does.
    """
    if not any(n.depth > DEEP for n in nodes):
        return []
    mine = {id(n) for n in nodes}
    inside: Counter[int] = Counter()
    order = postorder([v for n in nodes for v in n.outs])
    for n in order:
        inside.update(id(a) for a in n.args)
    found = []
    for n in order:
        if n.op in UNIQUE or n.op in MOVEMENT or not n.args or id(n) in mine or n.depth <= DEEP // 2:
            continue
        for v in n.outs:
            # Two more hold it here: the loop's variable and the call's argument; the tuple of outs is a third.
            if sys.getrefcount(v) - 3 > inside[id(v)]:
                found.append(n)
                break
    return found


def watch(graph: Graph) -> tuple[Graph, tuple[checks.Watch, ...]]:
    """The graph of a compiled function with what may fail in it as further outputs, and the watches on them."""
    watches = tuple(checks.watched(graph.outputs, compiled=True))
    if not watches:
        return graph, ()
    return Graph(graph.inputs, (*graph.outputs, *[w.info for w in watches]), graph.name), watches


def raise_failure(watches: Sequence[checks.Watch], storages: Sequence[Storage], name: str) -> None:
    """Raise the error of the first watch whose storage is not zero."""
    device = devices.find(name)
    infos = [device.download(s, w.info.type.dtype, w.info.type.shape)  # type: ignore[arg-type]
             for s, w in zip(storages, watches, strict=True)]
    checks.raise_failure(watches, infos)


def _abstract(values: list[Value], leaves: list[Value]) -> Graph:
    """The expression as a function of its leaves."""
    with graph_scope():
        params = [parameter(v.type, 1, v.node.where, v.node.device) for v in leaves]
        return Graph(tuple(params), rebuild(values, dict(zip(leaves, params, strict=True))), "lazy")


def storage_of(v: Value, device: Device) -> Storage:
    """The storage of a leaf: what a buffer holds, or a scalar's value uploaded."""
    n = v.node
    if n.op == "scalar":
        return device.upload(to_host(np.asarray(n.payload), v.dtype))
    return n.payload[v.index]


def upload(host: np.ndarray[Any, Any], device: str, dtype: dt.DType) -> Storage:
    """Storage with a copy of the host's data."""
    return devices.find(device).upload(np.array(host, order="C", copy=True))


def adopt(host: np.ndarray[Any, Any], device: str, dtype: dt.DType) -> Storage:
    """Storage over the host's own memory where the device can use it; else with a copy."""
    return devices.find(device).upload(host)


def give(v: Value) -> Any:
    """A buffer as an array of a library of its device, over the same memory; None where there is none."""
    target = devices.find(v.node.device or default_device())
    return target.give(v.node.payload[v.index], v.dtype, v.shape)  # type: ignore[arg-type]


def take(foreign: Any, kind: tuple[int, int]) -> tuple[str, Storage, str, tuple[int, ...]] | None:
    """(device, storage, dtype name, shape) over the memory of another library's array on a device of that kind."""
    for name in devices.names():
        if devices.available()[name] is None and devices.find(name).dlpack == kind:
            taken = devices.find(name).take(foreign)
            if taken is not None:
                return (name, *taken)
    return None


def dlpack_device(name: str) -> tuple[int, int]:
    """The DLPack (type, index) of a device."""
    return devices.find(name).dlpack


#: Versions of the Array API standard that the public names follow, newest last.
API_VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12", "2025.12")


def namespace(version: str | None) -> ModuleType:
    """The module of public names, which is an Array API namespace."""
    if version is not None and version not in API_VERSIONS:
        raise ValueIssue(f"version {version!r} of the Array API", why="it is not one that rlx follows",
                         do=f"ask for one of {', '.join(API_VERSIONS)}")
    return sys.modules[__name__.partition(".")[0]]


def download(v: Value) -> np.ndarray[Any, Any]:
    """A buffer's content in host memory (raw bits for bfloat16), read-only."""
    return fetch(v.node.payload[v.index], v.dtype, v.shape, v.node.device or default_device())


def peek(storage: Storage, dtype: dt.DType, shape: Any, device: str) -> np.ndarray[Any, Any]:
    """A storage's content in host memory, for reading at once."""
    return devices.find(device).download(storage, dtype, shape)


def fetch(storage: Storage, dtype: dt.DType, shape: Any, device: str) -> np.ndarray[Any, Any]:
    """A storage's content in host memory (raw bits for bfloat16), read-only."""
    out = peek(storage, dtype, shape, device).view()
    out.flags.writeable = False
    return out


def default_float(device: str) -> dt.DType:
    """The device's declared default float; float64 when the device cannot be opened to ask."""
    return devices.find(device).caps.default_float


def compile_traced(graph: Graph, device: str, dispatch: str | None, overrides: dict[str, str], name: str,
                   fixed: int = 0) -> Compiled:
    """The program of a traced function; one program serves all functions of the same structure.

    The last ``fixed`` inputs are the same in every call.
    """
    from rlx.compile.legalize import Policy
    policy = Policy(dispatch or str(flags.get("kernel_dispatch")), overrides)
    key = ("jit", device, graph.key(), policy.key(), flags.snapshot().key, fixed)
    found = PROGRAMS.get(key)
    if found is None:
        found = compile_for(graph, device, policy, name, fixed)
        PROGRAMS.put(key, found)
    return found


def explain(f: Any, *args: Any, device: str | None = None, dispatch: str | None = None, **kwargs: Any) -> Report:
    """Where every node of ``f(*args)`` would go, without running it.

    ``f`` is a function, a jitted function, or an Array whose pending expression is meant.

    >>> import rlx
    >>> print(rlx.explain(lambda x: rlx.tanh(x).sum(), rlx.arange(3.0)).paths())
    {'common': 1, 'rewritten': 1}
    """
    from rlx.array.array import Array
    from rlx.array.jit import Jitted
    from rlx.compile.legalize import Policy, legalize
    from rlx.compile.simplify import simplify
    if isinstance(f, Array):
        _, leaves = structure([f._value])
        graph, name = _abstract([f._value], leaves), device or f.device
    else:
        traced = Jitted(f._f if isinstance(f, Jitted) else f, (), (), None, None, {}).trace(*args, **kwargs)
        graph, name = traced.graph, device or traced.device
    target = devices.find(name)
    with graph_scope():
        return legalize(simplify(graph), target, Policy(dispatch or str(flags.get("kernel_dispatch"))))[1]


def install() -> None:
    """Connect the arrays' floor with this one."""
    hooks.evaluate = evaluate
    hooks.fetch = fetch
    hooks.peek = peek
    hooks.upload = upload
    hooks.download = download
    hooks.wait = lambda name: devices.find(name).synchronize()
    hooks.adopt = adopt
    hooks.give = give
    hooks.take = take
    hooks.dlpack_device = dlpack_device
    hooks.namespace = namespace
    hooks.default_float = default_float
    hooks.compile = compile_traced
    hooks.calls = lambda name: devices.find(name).native_calls()
    hooks.watch = watch
    hooks.raise_failure = raise_failure
