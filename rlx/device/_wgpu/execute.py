"""Programs on a wgpu device: pipelines made at load, one command buffer a run, loops gated on the device."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, final

import numpy as np

from rlx.core.errors import ShapeError
from rlx.device._wgpu.memory import Pool, Storage
from rlx.device.base import Executable
from rlx.ir.loop import Buffer, Program
from rlx.render import commands as C
from rlx.render.wgsl import Shader

#: Turns of a loop that are recorded before the host first asks whether it is done, and at most.
FIRST_TURNS, MOST_TURNS = 4, 64
#: Dispatches of one command buffer; a longer program is submitted in pieces.
MOST_DISPATCHES = 2048
#: Bind groups kept by an executable.
MOST_GROUPS = 512


class Pipelines:
    """Compiled shaders by text, shared by all programs of a device."""

    def __init__(self, device: Any) -> None:
        self.device = device
        self._pipelines: dict[tuple[str, tuple[bool, ...]], tuple[Any, Any]] = {}
        self._layouts: dict[tuple[bool, ...], Any] = {}
        self._lock = threading.Lock()

    def get(self, shader: Shader, written: tuple[bool, ...]) -> tuple[Any, Any]:
        """(pipeline, bind group layout); ``written`` says which bindings the shader stores to."""
        key = (shader.text, written)
        with self._lock:
            if key not in self._pipelines:
                self._pipelines[key] = self._make(shader, written)
            return self._pipelines[key]

    def _make(self, shader: Shader, written: tuple[bool, ...]) -> tuple[Any, Any]:
        layout = self._layouts.get(written)
        if layout is None:
            layout = self._layouts[written] = self.device.create_bind_group_layout(entries=[
                {"binding": k, "visibility": 4, "buffer": {"type": "storage" if w else "read-only-storage"}}
                for k, w in enumerate(written)])
        module = self.device.create_shader_module(code=shader.text)
        whole = self.device.create_pipeline_layout(bind_group_layouts=[layout])
        return self.device.create_compute_pipeline(
            layout=whole, compute={"module": module, "entry_point": "main"}), layout


@final
class WgpuExecutable(Executable):
    """A program's plan, its pipelines, and its temporary buffers. Runs take turns: temporaries are shared."""

    def __init__(self, program: Program, plan: C.Plan, shaders: Sequence[tuple[Shader, tuple[bool, ...]]],
                 pipelines: Pipelines, pool: Pool) -> None:
        self.name = program.name
        self.plan, self.pool, self.device = plan, pool, pool.device
        self.shaders = shaders
        self.pipelines = [pipelines.get(s, w) for s, w in shaders]
        self.slots = {role: {b.slot: b.name for b in program.buffers if b.role == role} for role in ("input", "output")}
        self.sizes = {b.name: -(-b.nbytes // 4) * 4 for b in program.buffers}
        self.fixed = self._fixed(program)
        self._groups: dict[tuple[int, tuple[int, ...]], Any] = {}
        self._lock = threading.Lock()

    def _fixed(self, program: Program) -> dict[str, Storage]:
        """Constants, and one buffer for each offset of the arena: temps at one offset never live together."""
        out: dict[str, Storage] = {}
        largest: dict[int, int] = {}
        for b in program.buffers:
            if b.role == "const":
                out[b.name] = self.pool.upload(_constant(b))
            elif b.role == "temp":
                largest[b.offset] = max(largest.get(b.offset, 0), b.nbytes)
        arena = {offset: self.pool.take(n) for offset, n in largest.items()}
        for b in program.buffers:
            if b.role == "temp":
                out[b.name] = arena[b.offset]
        out[C.FLAGS] = self.pool.take(4 * max(self.plan.flags, 1))
        out[C.ARGS] = self.pool.take(4 * max(self.plan.args, 1))
        for name in C.buffer_names(self.plan.commands) - out.keys() - self.sizes.keys():
            out[name] = self.pool.take(4)  # a predicate that the plan added
        return out

    def run(self, inputs: Sequence[Storage], outputs: Sequence[Storage]) -> None:
        """Record and submit; returns before the work is done unless a loop had to be asked."""
        for role, given in (("input", inputs), ("output", outputs)):
            if len(given) != len(self.slots[role]):
                raise ShapeError(f"program {self.name!r} takes {len(self.slots[role])} {role}s",
                                 why=f"{len(given)} were given", do="give one storage for each slot")
        with self._lock:
            bound = dict(self.fixed)
            bound.update((self.slots["input"][k], s) for k, s in enumerate(inputs))
            bound.update((self.slots["output"][k], s) for k, s in enumerate(outputs))
            recorder = _Recorder(self, bound)
            recorder.commands(self.plan.commands)
            recorder.submit()

    def group(self, kernel: int, storages: tuple[Storage, ...]) -> Any:
        """The bind group of a kernel over buffers."""
        key = (kernel, tuple([id(s.buffer) for s in storages]))
        found = self._groups.get(key)
        if found is None:
            if len(self._groups) >= MOST_GROUPS:
                self._groups.clear()
            found = self._groups[key] = self.device.create_bind_group(layout=self.pipelines[kernel][1], entries=[
                {"binding": k, "resource": {"buffer": s.buffer, "offset": 0, "size": s.capacity}}
                for k, s in enumerate(storages)])
        return found


class _Recorder:
    """Records commands of one run, and submits them."""

    def __init__(self, owner: WgpuExecutable, bound: dict[str, Storage]) -> None:
        self.owner, self.bound = owner, bound
        self.encoder: Any = None
        self.open: Any = None
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
                    while self._ask(self.bound[p], 0, 0xFF):
                        self.commands(body)
                        self.commands(head)
                case C.HostIf(pred=p, then=t, orelse=e):
                    self.commands(t if self._ask(self.bound[p], 0, 0xFF) else e)

    def submit(self) -> None:
        """Hand what was recorded to the queue."""
        if self.encoder is not None:
            self._end_pass()
            self.owner.device.queue.submit([self.encoder.finish()])
            self.encoder, self.count = None, 0

    def _batch(self, c: C.Batch) -> None:
        self._dispatch(c.start)
        turns = FIRST_TURNS
        while True:
            for _ in range(turns):
                self.commands(c.body)
            if not self._ask(self.bound[C.FLAGS], 4 * c.flag, 0xFFFFFFFF):
                return
            turns = min(2 * turns, MOST_TURNS)

    def _ask(self, storage: Storage, offset: int, mask: int) -> bool:
        """Whether a word on the device is set; waits for everything recorded so far."""
        self.submit()
        word = self.owner.device.queue.read_buffer(storage.buffer, offset, 4)
        return bool(int.from_bytes(bytes(word), "little") & mask)

    def _dispatch(self, d: C.Dispatch) -> None:
        shader = self.owner.shaders[d.kernel][0]
        if d.slot is None and not all(shader.groups):
            return
        if self.count >= MOST_DISPATCHES:
            self.submit()
        if self.open is None:
            self.encoder = self.encoder or self.owner.device.create_command_encoder()
            self.open = self.encoder.begin_compute_pass()
        self.count += 1
        self.open.set_pipeline(self.owner.pipelines[d.kernel][0])
        self.open.set_bind_group(0, self.owner.group(d.kernel, tuple([self.bound[b] for b in d.buffers])))
        if d.slot is None:
            self.open.dispatch_workgroups(*shader.groups)
        else:
            self.open.dispatch_workgroups_indirect(self.bound[C.ARGS].buffer, 12 * d.slot)

    def _copy(self, dst: str, src: str) -> None:
        n = min(self.owner.sizes[dst], self.owner.sizes[src])
        if not n or self.bound[dst].buffer is self.bound[src].buffer:
            return
        self._end_pass()
        self.encoder = self.encoder or self.owner.device.create_command_encoder()
        self.encoder.copy_buffer_to_buffer(self.bound[src].buffer, 0, self.bound[dst].buffer, 0, n)

    def _end_pass(self) -> None:
        if self.open is not None:
            self.open.end()
            self.open = None


def _constant(b: Buffer) -> np.ndarray[Any, Any]:
    return np.ascontiguousarray(b.data, b.dtype.numpy)
