"""A program on the stream: replayed as one CUDA graph where the same buffers come again, else launched step by step.

``while``, ``if`` and ``repeat`` are nodes of the graph, so nothing waits for the host. Steps that cannot be recorded
(some library calls) split the program; a loop around one of those is run by the host, which reads its predicate.
"""

from __future__ import annotations

import ctypes
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx.compile.memory import place
from rlx.core import flags
from rlx.core.caps import Caps
from rlx.core.errors import ShapeError
from rlx.device.cuda import build, driver
from rlx.device.cuda.capture import Recorder
from rlx.device.cuda.rotate import rotate
from rlx.device.cuda.steps import every, inside, launches_of, names_of
from rlx.device.cuda.text import overlapping, steering, steering_name, steers
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
#: Launches that cost less one by one than as a graph.
FEW = 2
#: Whether kernels of a graph are set up while the one before still runs.
OVERLAP = True
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
    caps: Caps
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
        self.program = place(rotate(program, home.caps), ALIGN)
        self._lock = threading.Lock()
        self._streams = [driver.told("make a stream", driver.api().cuStreamCreate(
            driver.api().CUstream_flags.CU_STREAM_NON_BLOCKING))]
        fast = flags.get("math") == "fast"
        kernels = self.program.kernels()
        shared = {s.kernel.name for s in every(self.program.steps) if isinstance(s, L.Launch)
                  and len(set(s.buffers)) < len(s.buffers)}
        # A kernel of one workgroup may be several parts that hand values on through memory.
        alone = frozenset(k.name for k in kernels if k.name not in shared and max(launch_shape(k).groups) > 1)
        text = render(kernels, "cuda", fast=fast, alone=alone)
        text = overlapping(text) if OVERLAP else text
        loops = [s for s in every(self.program.steps) if isinstance(s, L.While) and steers(s)]
        #: Loops whose last launch also steers them, and the kernel that does.
        self._steering = {id(s): steering_name(s) for s in loops}
        self.source = _HELPERS + text + steering(text, loops)
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
        self._counts = len(self._roles["input"]), len(self._roles["output"])
        self._slots = [b.name for role in ("input", "output") for b in self._roles[role]]
        only = self._parts[0] if len(self._parts) == 1 else None
        self._only = only if isinstance(only, Part) else None
        self._picked = [self._slots.index(n) for n in self._only.names] if self._only is not None else []

    # Loading

    def _load(self, kernels: Sequence[L.Kernel], fast: bool) -> dict[str, Any]:
        d = driver.api()
        code = build.cubin(self.source, self.home.architecture, fast=fast)
        self._module = driver.told(f"load program {self.program.name!r}", d.cuModuleLoadData(code))
        names = [k.name for k in kernels] + ["rlx_test", "rlx_first", "rlx_next", "rlx_count", *self._steering.values()]
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
            for inner in inside(s):
                self._find_natives(inner)

    def _records(self, s: L.Step) -> bool:
        if isinstance(s, L.Native):
            return self._natives[id(s)].records
        return all(self._records(x) for inner in inside(s) for x in inner)

    def _split(self, steps: Sequence[L.Step]) -> list[Part | L.Step]:
        """Runs of steps that can be recorded, and the steps between them."""
        out: list[Part | L.Step] = []
        run: list[L.Step] = []
        for s in (*steps, None):
            if s is not None and self._records(s):
                run.append(s)
                continue
            if run:
                names = tuple(sorted(n for n in set().union(*map(names_of, run)) if n not in self._fixed))
                loops = any(isinstance(x, L.While | L.Branch | L.Repeat) for x in run)
                out.append(Part(tuple(run), names, loops, sum(map(launches_of, run)), OrderedDict(), OrderedDict()))
                run = []
            if s is not None:
                out.append(s)
        return out

    # Running

    def run(self, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """Enqueue the program over these addresses."""
        if (len(inputs), len(outputs)) != self._counts:
            raise ShapeError(
                f"program {self.program.name!r} takes {self._counts[0]} inputs and {self._counts[1]} outputs",
                why=f"{len(inputs)} and {len(outputs)} were given",
                do="give one storage for each slot",
            )
        with self._lock:
            if self._only is not None and self._replayed(self._only, [*inputs, *outputs]):
                return
            env = dict(self._fixed)
            env.update(zip(self._slots, [*inputs, *outputs], strict=True))
            self._run(self._parts, env)

    def _replayed(self, p: Part, given: list[int]) -> bool:
        """Whether the whole program was recorded over these addresses, and is now under way."""
        graph = p.graphs.get(tuple([given[k] for k in self._picked]))
        if graph is None:
            return False
        result = driver.api().cuGraphLaunch(graph, self.home.stream)
        if result[0]:
            driver.fail(f"run program {self.program.name!r}", result[0])
        return True

    def _run(self, parts: Sequence[Part | L.Step], env: dict[str, int]) -> None:
        for p in parts:
            if isinstance(p, Part):
                self._part(p, env)
            else:
                self._by_host(p, env)

    def _part(self, p: Part, env: dict[str, int]) -> None:
        key = tuple([env[n] for n in p.names])
        graph = p.graphs.get(key)
        if graph is None and (p.loops or (p.launches > FEW and key in p.seen)):
            graph = self._recorded(p, key, env)
        if graph is not None:
            result = driver.api().cuGraphLaunch(graph, self.home.stream)
            if result[0]:
                driver.fail(f"run program {self.program.name!r}", result[0])
            return
        if p.launches > FEW:
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
                self._launch(s, env, stream, recorder is not None)
            case L.Copy():
                self._copy(s, env, stream)
            case L.Native():
                self._native(s, env, stream)
            case _:
                assert recorder is not None, "loops are recorded"
                self._control(s, env, recorder)

    def _launch(self, s: L.Launch, env: dict[str, int], stream: Any, recording: bool) -> None:
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
        if recording and OVERLAP:
            driver.launch_early(function, shape_, stream, pointer)
            return
        result = driver.api().cuLaunchKernel(function, *shape_, 0, stream, pointer, 0)
        if result[0]:
            driver.fail(f"launch kernel {s.kernel.name!r}", result[0])

    def _copy(self, s: L.Copy, env: dict[str, int], stream: Any) -> None:
        n, dst, src = self._bytes[s.dst], env[s.dst], env[s.src]
        if n and dst != src:
            driver.told("copy", driver.api().cuMemcpyDtoDAsync(dst, src, n, stream))

    def _native(self, s: L.Native, env: dict[str, int], stream: Any) -> None:
        self._natives[id(s)].run(int(stream), [env[n] for n in s.buffers])

    def _helper(self, name: str, stream: Any, first: int, *addresses: int, lanes: Sequence[int] = (1, 1, 1)) -> None:
        values = (ctypes.c_uint64 * (1 + len(addresses)))(first, *addresses)
        table = (ctypes.c_void_p * len(values))(*[ctypes.addressof(values) + 8 * k for k in range(len(values))])
        driver.told("steer a loop", driver.api().cuLaunchKernel(
            self._functions[name], 1, 1, 1, *lanes, 0, stream, ctypes.addressof(table), 0))

    # Control in graphs

    def _control(self, s: L.Step, env: dict[str, int], r: Recorder) -> None:
        match s:
            case L.While(head=head, pred=pred, body=body):
                handle = r.handle()

                def turn() -> None:
                    if (name := self._steering.get(id(s))) is not None:
                        self._steps(body[:-1], env, r)
                        last = body[-1]
                        assert isinstance(last, L.Launch)
                        self._helper(name, r.stream, int(handle), *[env[b] for b in last.buffers],
                                     lanes=launch_shape(last.kernel).lanes)
                        return
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
        if isinstance(s.count, int) and s.count * sum(map(launches_of, s.body)) <= UNROLL:
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
