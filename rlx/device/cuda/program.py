"""A program on the stream: replayed as one CUDA graph where the same buffers come again, else launched step by step.

``while``, ``if`` and ``repeat`` are nodes of the graph, so nothing waits for the host. Steps that cannot be recorded
(some library calls) split the program; a loop around one of those is run by the host, which reads its predicate.
"""

from __future__ import annotations

import ctypes
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx.compile.memory import place
from rlx.core import flags
from rlx.core.errors import ShapeError
from rlx.device.cuda import build, driver
from rlx.device.cuda.capture import Recorder
from rlx.ir import loop as L
from rlx.render.c import launch_shape, render

#: Buffers start on this boundary, as those of the allocator do.
ALIGN = 256
#: A counted loop of at most this many launches is recorded turn by turn; a longer one is a loop of the graph.
UNROLL = 256
#: Graphs kept for each part of a program, one for each set of buffers.
GRAPHS = 16
#: Sets of buffers that were seen once, and are recorded when they come again.
SEEN = 64
#: Kernels that steer loops: a handle is the value that a conditional node reads.
_HELPERS = """
extern "C" __device__ __cudart_builtin__ void cudaGraphSetConditional(unsigned long long handle, unsigned int value);
extern "C" __global__ void rlx_test(unsigned long long handle, const unsigned char* pred) {
  cudaGraphSetConditional(handle, pred[0] != 0);
}
extern "C" __global__ void rlx_first(unsigned long long handle, long long* counter, const long long* count) {
  counter[0] = 0;
  cudaGraphSetConditional(handle, 0 < count[0]);
}
extern "C" __global__ void rlx_next(unsigned long long handle, long long* counter, const long long* count) {
  counter[0] += 1;
  cudaGraphSetConditional(handle, counter[0] < count[0]);
}
extern "C" __global__ void rlx_count(unsigned long long k, long long* counter) { counter[0] = (long long)k; }
"""


@dataclass(frozen=True, slots=True)
class Library:
    """A claim's work on a stream and addresses; ``records`` says whether a graph may hold it."""

    run: Callable[[int, Sequence[int]], None]
    records: bool = False


@dataclass(frozen=True, slots=True)
class Home:
    """Where programs run: context, stream, architecture, the allocator, and the claims' lowerings by name."""

    context: Any
    stream: Any
    architecture: str
    allocate: Callable[[int], Any]
    lower: Mapping[str, Callable[[L.Native], Library]]


@dataclass(slots=True, eq=False)
class Part:
    """Steps that are recorded together, and the graphs made of them by the addresses of their buffers."""

    steps: tuple[L.Step, ...]
    names: tuple[str, ...]
    loops: bool
    launches: int
    graphs: OrderedDict[tuple[int, ...], Any]
    seen: OrderedDict[tuple[int, ...], None]


class Loaded:
    """A built program: its kernels, its arena and constants, and the parts it runs as."""

    def __init__(self, home: Home, program: L.Program) -> None:
        self.home = home
        self.program = place(program, ALIGN)
        self._lock = threading.Lock()
        self._streams = [driver.told("make a stream", driver.api().cuStreamCreate(
            driver.api().CUstream_flags.CU_STREAM_NON_BLOCKING))]
        fast = flags.get("math") == "fast"
        kernels = self.program.kernels()
        shared = {s.kernel.name for s in _all(self.program.steps) if isinstance(s, L.Launch)
                  and len(set(s.buffers)) < len(s.buffers)}
        # A kernel of one workgroup may be several parts that hand values on through memory.
        alone = frozenset(k.name for k in kernels if k.name not in shared and max(launch_shape(k).groups) > 1)
        self.source = render(kernels, "cuda", fast=fast, alone=alone) + _HELPERS
        self._functions = self._load(kernels, fast)
        self._roles = {role: tuple(sorted((b for b in self.program.buffers if b.role == role), key=lambda b: b.slot))
                       for role in ("input", "output")}
        self._bytes = {b.name: b.nbytes for b in self.program.buffers}
        self._natives: dict[int, Library] = {}
        self._find_natives(self.program.steps)
        self._keep: list[Any] = []
        self._fixed = self._memory()
        self._launches: dict[int, tuple[Any, ...]] = {}
        self._parts = self._split(self.program.steps)

    # Loading

    def _load(self, kernels: Sequence[L.Kernel], fast: bool) -> dict[str, Any]:
        d = driver.api()
        code = build.cubin(self.source, self.home.architecture, fast=fast)
        self._module = driver.told(f"load program {self.program.name!r}", d.cuModuleLoadData(code))
        names = [k.name for k in kernels] + ["rlx_test", "rlx_first", "rlx_next", "rlx_count"]
        return {n: driver.told("find a kernel", d.cuModuleGetFunction(self._module, n.encode())) for n in names}

    def _memory(self) -> dict[str, int]:
        """Addresses that stay: constants, and temps in the arena."""
        fixed: dict[str, int] = {}
        arena = self._block(self.program.arena) if self.program.arena else 0
        for b in self.program.buffers:
            if b.role == "temp":
                fixed[b.name] = arena + b.offset
            elif b.role == "const":
                fixed[b.name] = self._filled(np.ascontiguousarray(b.data, b.dtype.numpy).reshape(-1))
        return fixed

    def _block(self, nbytes: int) -> int:
        block = self.home.allocate(nbytes)
        self._keep.append(block)
        return int(block.ptr)

    def _filled(self, data: np.ndarray[Any, Any]) -> int:
        at = self._block(data.nbytes)
        if data.nbytes:
            driver.told("copy a constant", driver.api().cuMemcpyHtoD(at, data.ctypes.data, data.nbytes))
        return at

    def _find_natives(self, steps: Sequence[L.Step]) -> None:
        for s in steps:
            if isinstance(s, L.Native):
                self._natives[id(s)] = self.home.lower[s.claim](s)
            for inner in _inside(s):
                self._find_natives(inner)

    def _records(self, s: L.Step) -> bool:
        if isinstance(s, L.Native):
            return self._natives[id(s)].records
        return all(self._records(x) for inner in _inside(s) for x in inner)

    def _split(self, steps: Sequence[L.Step]) -> list[Part | L.Step]:
        """Runs of steps that can be recorded, and the steps between them."""
        out: list[Part | L.Step] = []
        run: list[L.Step] = []
        for s in (*steps, None):
            if s is not None and self._records(s):
                run.append(s)
                continue
            if run:
                names = tuple(sorted(n for n in set().union(*map(_names, run)) if n not in self._fixed))
                loops = any(isinstance(x, L.While | L.Branch | L.Repeat) for x in run)
                out.append(Part(tuple(run), names, loops, sum(map(_launches, run)), OrderedDict(), OrderedDict()))
                run = []
            if s is not None:
                out.append(s)
        return out

    # Running

    def run(self, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """Enqueue the program over these addresses."""
        if len(inputs) != len(self._roles["input"]) or len(outputs) != len(self._roles["output"]):
            raise ShapeError(
                f"program {self.program.name!r} takes {len(self._roles['input'])} inputs and "
                f"{len(self._roles['output'])} outputs",
                why=f"{len(inputs)} and {len(outputs)} were given",
                do="give one storage for each slot",
            )
        env = dict(self._fixed)
        for role, given in (("input", inputs), ("output", outputs)):
            for b, address in zip(self._roles[role], given, strict=True):
                env[b.name] = address
        with self._lock:
            self._run(self._parts, env)

    def _run(self, parts: Sequence[Part | L.Step], env: dict[str, int]) -> None:
        for p in parts:
            if isinstance(p, Part):
                self._part(p, env)
            else:
                self._by_host(p, env)

    def _part(self, p: Part, env: dict[str, int]) -> None:
        key = tuple([env[n] for n in p.names])
        graph = p.graphs.get(key)
        if graph is None and (p.loops or (p.launches > 2 and key in p.seen)):
            graph = self._recorded(p, key, env)
        if graph is not None:
            result = driver.api().cuGraphLaunch(graph, self.home.stream)
            if result[0]:
                driver.fail(f"run program {self.program.name!r}", result[0])
            return
        p.seen[key] = None
        if len(p.seen) > SEEN:
            p.seen.popitem(last=False)
        for s in p.steps:
            self._step(s, env, self.home.stream, None)

    def _recorded(self, p: Part, key: tuple[int, ...], env: dict[str, int]) -> Any:
        recorder = Recorder(self.home.context, self._streams)

        def work() -> None:
            for s in p.steps:
                self._step(s, env, recorder.stream, recorder)

        p.graphs[key] = graph = recorder.record(work)
        if len(p.graphs) > GRAPHS:
            _, old = p.graphs.popitem(last=False)
            driver.api().cuGraphExecDestroy(old)
        return graph

    def _steps(self, steps: Sequence[L.Step], env: dict[str, int], recorder: Recorder) -> None:
        for s in steps:
            self._step(s, env, recorder.stream, recorder)

    def _step(self, s: L.Step, env: dict[str, int], stream: Any, recorder: Recorder | None) -> None:
        match s:
            case L.Launch():
                self._launch(s, env, stream)
            case L.Copy():
                self._copy(s, env, stream)
            case L.Native():
                self._native(s, env, stream)
            case _:
                assert recorder is not None, "loops are recorded"
                self._control(s, env, recorder)

    def _launch(self, s: L.Launch, env: dict[str, int], stream: Any) -> None:
        found = self._launches.get(id(s))
        if found is None:
            shape = launch_shape(s.kernel)
            n = len(s.buffers)
            values = (ctypes.c_void_p * n)()
            table = (ctypes.c_void_p * n)(*[ctypes.addressof(values) + 8 * k for k in range(n)])
            found = self._launches[id(s)] = (
                self._functions[s.kernel.name], (*shape.groups, *shape.lanes), values, table, ctypes.addressof(table))
        function, shape_, values, _, pointer = found
        for k, name in enumerate(s.buffers):
            values[k] = env[name]
        result = driver.api().cuLaunchKernel(function, *shape_, 0, stream, pointer, 0)
        if result[0]:
            driver.fail(f"launch kernel {s.kernel.name!r}", result[0])

    def _copy(self, s: L.Copy, env: dict[str, int], stream: Any) -> None:
        n, dst, src = self._bytes[s.dst], env[s.dst], env[s.src]
        if n and dst != src:
            driver.told("copy", driver.api().cuMemcpyDtoDAsync(dst, src, n, stream))

    def _native(self, s: L.Native, env: dict[str, int], stream: Any) -> None:
        self._natives[id(s)].run(int(stream), [env[n] for n in s.buffers])

    def _helper(self, name: str, stream: Any, first: int, *addresses: int) -> None:
        values = (ctypes.c_uint64 * (1 + len(addresses)))(first, *addresses)
        table = (ctypes.c_void_p * len(values))(*[ctypes.addressof(values) + 8 * k for k in range(len(values))])
        driver.told("steer a loop", driver.api().cuLaunchKernel(
            self._functions[name], 1, 1, 1, 1, 1, 1, 0, stream, ctypes.addressof(table), 0))

    # Control in graphs

    def _control(self, s: L.Step, env: dict[str, int], r: Recorder) -> None:
        match s:
            case L.While(head=head, pred=pred, body=body):
                handle = r.handle()

                def turn() -> None:
                    self._steps(body, env, r)
                    self._steps(head, env, r)
                    self._helper("rlx_test", r.stream, int(handle), env[pred])

                self._steps(head, env, r)
                self._helper("rlx_test", r.stream, int(handle), env[pred])
                r.repeat(handle, turn)
            case L.Branch(pred=pred, then=then, orelse=orelse):
                handle = r.handle()
                self._helper("rlx_test", r.stream, int(handle), env[pred])
                r.choose(handle, lambda: self._steps(then, env, r), lambda: self._steps(orelse, env, r))
            case L.Repeat():
                self._repeat(s, env, r)

    def _repeat(self, s: L.Repeat, env: dict[str, int], r: Recorder) -> None:
        if isinstance(s.count, int) and s.count * sum(map(_launches, s.body)) <= UNROLL:
            for k in range(s.count):
                if s.counter in env:
                    self._helper("rlx_count", r.stream, k, env[s.counter])
                self._steps(s.body, env, r)
            return
        counter = env[s.counter] if s.counter in env else self._own(s, "counter", 0)
        count = self._own(s, "count", s.count) if isinstance(s.count, int) else env[s.count]
        handle = r.handle()

        def turn() -> None:
            self._steps(s.body, env, r)
            self._helper("rlx_next", r.stream, int(handle), counter, count)

        self._helper("rlx_first", r.stream, int(handle), counter, count)
        r.repeat(handle, turn)

    def _own(self, s: L.Step, what: str, value: int) -> int:
        """The address of a word that the program has no buffer for."""
        name = f"{what} {id(s)}"
        if name not in self._fixed:
            self._fixed[name] = self._filled(np.array([value], np.int64))
        return self._fixed[name]

    # Control by the host, around what cannot be recorded

    def _by_host(self, s: L.Step, env: dict[str, int]) -> None:
        match s:
            case L.While(head=head, pred=pred, body=body):
                test, work = self._inner(s, 0, head), self._inner(s, 1, body)
                self._run(test, env)
                while self._read(env[pred], np.uint8):
                    self._run(work, env)
                    self._run(test, env)
            case L.Branch(pred=pred, then=then, orelse=orelse):
                arms = self._inner(s, 0, then), self._inner(s, 1, orelse)
                self._run(arms[0] if self._read(env[pred], np.uint8) else arms[1], env)
            case L.Repeat(count=count, counter=counter, body=body):
                work = self._inner(s, 0, body)
                for k in range(count if isinstance(count, int) else self._read(env[count], np.int64)):
                    if counter in env:
                        self._helper("rlx_count", self.home.stream, k, env[counter])
                    self._run(work, env)
            case _:
                self._step(s, env, self.home.stream, None)

    def _inner(self, s: L.Step, k: int, steps: Sequence[L.Step]) -> list[Part | L.Step]:
        key = id(s) * 2 + k
        if key not in self._launches:
            self._launches[key] = tuple(self._split(steps))
        return list(self._launches[key])

    def _read(self, address: int, dtype: Any) -> int:
        out = np.empty(1, dtype)
        d = driver.api()
        driver.told("read", d.cuMemcpyDtoHAsync(out.ctypes.data, address, out.nbytes, self.home.stream))
        driver.told("wait", d.cuStreamSynchronize(self.home.stream))
        return int(out[0])


def _all(steps: Sequence[L.Step]) -> Iterator[L.Step]:
    """Every step, those inside loops too."""
    for s in steps:
        yield s
        for inner in _inside(s):
            yield from _all(inner)


def _inside(s: L.Step) -> tuple[tuple[L.Step, ...], ...]:
    """The bodies of a step."""
    match s:
        case L.While(head=a, body=b) | L.Branch(then=a, orelse=b):
            return a, b
        case L.Repeat(body=b):
            return (b,)
        case _:
            return ()


def _names(s: L.Step) -> set[str]:
    """Buffers that a step names."""
    match s:
        case L.Launch(buffers=names) | L.Native(buffers=names):
            return set(names)
        case L.Copy(dst=a, src=b):
            return {a, b}
        case L.While(pred=p) | L.Branch(pred=p):
            own = {p}
        case L.Repeat(count=str(c)):
            own = {c}
        case _:
            own = set()
    return own.union(*[_names(x) for inner in _inside(s) for x in inner])


def _launches(s: L.Step) -> int:
    """Launches of a step whose loops turn once."""
    inner = _inside(s)
    return sum(_launches(x) for body in inner for x in body) if inner else 1
