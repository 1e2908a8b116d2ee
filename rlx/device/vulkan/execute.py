"""Programs on Vulkan: a straight program is recorded once for its storages and submitted again as it is."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, final

import numpy as np

from rlx.core.errors import ShapeError
from rlx.device.base import Executable
from rlx.device.vulkan.memory import Pool, Storage
from rlx.device.vulkan.queue import Pipeline, Queue, Recording
from rlx.ir.loop import Program
from rlx.render import commands as C
from rlx.render.spirv import Binary

#: Turns of a loop that are recorded before the host first asks whether it is done, and at most.
FIRST_TURNS, MOST_TURNS = 4, 64
#: Dispatches of one command buffer; a longer program is submitted in pieces.
MOST_DISPATCHES = 2048
#: Recordings kept by an executable.
MOST_RECORDINGS = 16


@final
class VulkanExecutable(Executable):
    """A plan with its pipelines and temporary storages. Runs take turns: temporaries are shared."""

    def __init__(self, program: Program, plan: C.Plan, kernels: Sequence[tuple[Binary, Pipeline, tuple[bool, ...]]],
                 queue: Queue, pool: Pool, host: Pool) -> None:
        self.name, self.plan, self.kernels = program.name, plan, kernels
        self.queue, self.pool, self.host = queue, pool, host
        self.slots = {role: {b.slot: b.name for b in program.buffers if b.role == role} for role in ("input", "output")}
        self.sizes = {b.name: -(-b.nbytes // 4) * 4 for b in program.buffers}
        self.fixed = self._fixed(program)
        self.bindings = max([len(w) for _, _, w in kernels] or [1])
        self.straight = C.is_straight(plan.commands)
        self._recordings: dict[tuple[Any, ...], Recording] = {}
        self._lock = threading.Lock()

    def _fixed(self, program: Program) -> dict[str, Storage]:
        """Constants, and one storage for each offset of the arena: temps at one offset never live together."""
        out: dict[str, Storage] = {}
        largest: dict[int, int] = {}
        for b in program.buffers:
            if b.role == "const":
                out[b.name] = upload(self.pool, self.host, self.queue, np.ascontiguousarray(b.data, b.dtype.numpy))
            elif b.role == "temp":
                largest[b.offset] = max(largest.get(b.offset, 0), b.nbytes)
        arena = {offset: self.pool.take(n) for offset, n in largest.items()}
        out.update((b.name, arena[b.offset]) for b in program.buffers if b.role == "temp")
        out[C.FLAGS] = self.host.take(4 * max(self.plan.flags, 1))
        out[C.ARGS] = self.pool.take(4 * max(self.plan.args, 1))
        for name in C.buffer_names(self.plan.commands) - out.keys() - self.sizes.keys():
            out[name] = self.pool.take(4)  # a predicate that the plan added
        return out

    def run(self, inputs: Sequence[Storage], outputs: Sequence[Storage]) -> None:
        """Submit; returns before the work is done unless a loop had to be asked."""
        for role, given in (("input", inputs), ("output", outputs)):
            if len(given) != len(self.slots[role]):
                raise ShapeError(f"program {self.name!r} takes {len(self.slots[role])} {role}s",
                                 why=f"{len(given)} were given", do="give one storage for each slot")
        with self._lock, self.queue.lock:
            bound = dict(self.fixed)
            bound.update((self.slots["input"][k], s) for k, s in enumerate(inputs))
            bound.update((self.slots["output"][k], s) for k, s in enumerate(outputs))
            if self.straight:
                self._replay(bound, tuple([s.key for s in (*inputs, *outputs)]))
            else:
                run = _Run(self, bound)
                run.commands(self.plan.commands)
                run.submit()

    def _replay(self, bound: dict[str, Storage], key: tuple[Any, ...]) -> None:
        found = self._recordings.get(key)
        if found is None:
            run = _Run(self, bound)
            run.commands(self.plan.commands)
            found = run.finished()
            if found is None:
                return
            # What a recording names may be given to others meanwhile: it is used only when the storages are the same.
            found.keep.clear()
            if len(self._recordings) >= MOST_RECORDINGS:
                self.queue.wait()
                for old in self._recordings.values():
                    old.free()
                self._recordings.clear()
            self._recordings[key] = found
        self.queue.submit(found, once=False)


class _Run:
    """Records the commands of one run, and submits them in pieces where it must."""

    def __init__(self, owner: VulkanExecutable, bound: dict[str, Storage]) -> None:
        self.owner, self.bound = owner, bound
        self.recording: Recording | None = None
        self.count = 0

    def commands(self, commands: Sequence[C.Command]) -> None:
        for c in commands:
            match c:
                case C.Dispatch():
                    self._dispatch(c)
                case C.CopyBuffer(dst=d, src=s):
                    self._copy(d, s)
                case C.Times(count=n, body=body):
                    for _ in range(n):
                        self.commands(body)
                case C.Batch():
                    self._batch(c)
                case C.HostWhile(head=head, pred=p, body=body):
                    self.commands(head)
                    while self._ask(p, 0, 0xFF):
                        self.commands(body)
                        self.commands(head)
                case C.HostIf(pred=p, then=t, orelse=e):
                    self.commands(t if self._ask(p, 0, 0xFF) else e)

    def finished(self) -> Recording | None:
        """The recording, ended."""
        done, self.recording, self.count = self.recording, None, 0
        if done is not None:
            done.finish()
        return done

    def submit(self) -> None:
        """Start what was recorded."""
        done = self.finished()
        if done is not None:
            self.owner.queue.submit(done, once=True)

    def _batch(self, c: C.Batch) -> None:
        self._dispatch(c.start)
        turns = FIRST_TURNS
        while True:
            for _ in range(turns):
                self.commands(c.body)
            if not self._ask(C.FLAGS, 4 * c.flag, 0xFFFFFFFF):
                return
            turns = min(2 * turns, MOST_TURNS)

    def _ask(self, name: str, offset: int, mask: int) -> bool:
        """Whether a word on the device is set; waits for everything recorded so far."""
        self.submit()
        data = download(self.owner.host, self.owner.queue, self.bound[name], offset + 4)
        return bool(int.from_bytes(data[offset:offset + 4].tobytes(), "little") & mask)

    def _open(self) -> Recording:
        if self.count >= MOST_DISPATCHES:
            self.submit()
        if self.recording is None:
            self.recording = Recording(self.owner.queue.context, self._room(), self.owner.bindings)
        return self.recording

    def _room(self) -> int:
        return min(C.dispatch_count(self.owner.plan.commands) * MOST_TURNS, MOST_DISPATCHES) if (
            not self.owner.straight) else min(C.dispatch_count(self.owner.plan.commands), MOST_DISPATCHES)

    def _dispatch(self, d: C.Dispatch) -> None:
        binary, pipeline, written = self.owner.kernels[d.kernel]
        if d.slot is None and not all(binary.groups):
            return
        indirect = None if d.slot is None else (self.bound[C.ARGS], 12 * d.slot)
        storages = [self.bound[b] for b in d.buffers]
        self._open().dispatch(pipeline, storages, written, binary.groups, indirect)
        self.count += 1

    def _copy(self, dst: str, src: str) -> None:
        n = min(self.owner.sizes[dst], self.owner.sizes[src])
        if n and self.bound[dst].key != self.bound[src].key:
            self._open().copy(self.bound[dst], self.bound[src], n)


def upload(pool: Pool, host: Pool, queue: Queue, array: np.ndarray[Any, Any]) -> Storage:
    """Storage with the array's bytes, row-major."""
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    storage = pool.take(data.nbytes)
    if not data.nbytes:
        return storage
    with queue.lock:
        if storage.chunk.address is not None:
            queue.wait()  # the range may still be in use by what was submitted before it was freed
            storage.chunk.view(storage.offset, data.nbytes)[:] = data
            return storage
        stage = host.take(data.nbytes)
        queue.wait()
        stage.chunk.view(stage.offset, data.nbytes)[:] = data
        recording = Recording(queue.context, 0)
        recording.copy(storage, stage, -(-data.nbytes // 4) * 4)
        recording.keep.add(stage)
        recording.finish()
        queue.submit(recording, once=True)
    return storage


def download(host: Pool, queue: Queue, storage: Storage, nbytes: int) -> np.ndarray[Any, Any]:
    """A copy of the first bytes, after everything submitted before."""
    if not nbytes:
        return np.empty(0, np.uint8)
    with queue.lock:
        if storage.chunk.address is not None:
            queue.wait()
            return storage.chunk.view(storage.offset, nbytes).copy()
        stage = host.take(nbytes)
        recording = Recording(queue.context, 0)
        recording.copy(stage, storage, -(-nbytes // 4) * 4)
        recording.finish()
        queue.submit(recording, once=True)
        queue.wait()
        return stage.chunk.view(stage.offset, nbytes).copy()
