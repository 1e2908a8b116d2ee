"""Recording and submitting command buffers, and waiting for them."""

from __future__ import annotations

import ctypes as C
import threading
from collections.abc import Iterable, Sequence
from typing import Any

from rlx.device.vulkan import api as V
from rlx.device.vulkan.context import Context
from rlx.device.vulkan.memory import Storage

#: Stages: indirect arguments, compute, transfer, host; accesses: indirect read, shader read and write, transfer, host.
_STAGES = 0x2 | 0x800 | 0x1000
_ACCESS = 0x1 | 0x20 | 0x40 | 0x800 | 0x1000
_HOST_STAGE, _HOST_ACCESS = 0x4000, 0x2000 | 0x4000


class Pipeline:
    """A compiled kernel and the layouts that its descriptor sets need."""

    def __init__(self, context: Context, words: bytes, bindings: int) -> None:
        device = context.device
        code = C.create_string_buffer(words, len(words))
        self.layout_set, self.layout, self.handle = C.c_uint64(), C.c_uint64(), C.c_uint64()
        module = C.c_uint64()
        info = V.ShaderInfo(sType=16, size=len(words), code=C.cast(code, C.c_void_p))
        V.check(V.call("vkCreateShaderModule", device, C.byref(info), None, C.byref(module)), "load a shader")
        each = (V.LayoutBinding * bindings)(*[V.LayoutBinding(k, 7, 1, 0x20, None) for k in range(bindings)])
        sets = V.SetLayoutInfo(sType=32, count=bindings, bindings=C.cast(each, C.c_void_p))
        V.check(V.call("vkCreateDescriptorSetLayout", device, C.byref(sets), None, C.byref(self.layout_set)),
                "make a descriptor layout")
        whole = V.PipelineLayoutInfo(sType=30, count=1, layouts=V.ref(self.layout_set))
        V.check(V.call("vkCreatePipelineLayout", device, C.byref(whole), None, C.byref(self.layout)),
                "make a pipeline layout")
        stage = V.StageInfo(sType=18, stage=0x20, module=module.value, name=b"main")
        pipeline = V.PipelineInfo(sType=29, stage=stage, layout=self.layout.value, index=-1)
        V.check(V.call("vkCreateComputePipelines", device, C.c_uint64(0), 1, C.byref(pipeline), None,
                       C.byref(self.handle)), "compile a kernel")
        V.library().vkDestroyShaderModule(device, module, None)


class Recording:
    """A command buffer being recorded, with the barriers that its reads and writes need."""

    def __init__(self, context: Context, dispatches: int, bindings: int = 1) -> None:
        self.context = context
        self.commands = C.c_void_p()
        self.keep: set[Storage] = set()
        self._written: set[tuple[int, int]] = set()
        self._read: set[tuple[int, int]] = set()
        device = context.device
        info = V.CommandInfo(sType=40, pool=context.pool.value, count=1)
        V.check(V.call("vkAllocateCommandBuffers", device, C.byref(info), C.byref(self.commands)),
                "allocate a command buffer")
        self.descriptors = C.c_uint64()
        sizes = V.PoolSize(7, max(dispatches * bindings, 1))
        pool = V.DescriptorPoolInfo(sType=33, sets=max(dispatches, 1), count=1, sizes=V.ref(sizes))
        V.check(V.call("vkCreateDescriptorPool", device, C.byref(pool), None, C.byref(self.descriptors)),
                "make a descriptor pool")
        # Simultaneous use: a program may be submitted again before its last run is done.
        V.check(V.call("vkBeginCommandBuffer", self.commands, C.byref(V.BeginInfo(sType=42, flags=4))), "record")
        self._barrier(_STAGES | _HOST_STAGE, _ACCESS | _HOST_ACCESS, _STAGES, _ACCESS)

    def dispatch(self, pipeline: Pipeline, storages: Sequence[Storage], written: Sequence[bool],
                 groups: tuple[int, int, int], indirect: tuple[Storage, int] | None) -> None:
        """One kernel over storages; ``indirect`` is where its workgroup counts are."""
        reads = [s for s, w in zip(storages, written, strict=True) if not w] + ([indirect[0]] if indirect else [])
        self._order(reads, [s for s, w in zip(storages, written, strict=True) if w])
        vk = V.library()
        vk.vkCmdBindPipeline(self.commands, 1, pipeline.handle)
        group = self._descriptor_set(pipeline, storages)
        vk.vkCmdBindDescriptorSets(self.commands, 1, pipeline.layout, 0, 1, C.byref(group), 0, None)
        if indirect is None:
            vk.vkCmdDispatch(self.commands, *groups)
        else:
            base, offset = indirect
            vk.vkCmdDispatchIndirect(self.commands, C.c_uint64(base.chunk.buffer), C.c_uint64(base.offset + offset))

    def copy(self, dst: Storage, src: Storage, nbytes: int) -> None:
        """Bytes from one storage to another."""
        self._order([src], [dst])
        region = V.CopyRegion(src.offset, dst.offset, nbytes)
        V.library().vkCmdCopyBuffer(self.commands, C.c_uint64(src.chunk.buffer), C.c_uint64(dst.chunk.buffer), 1,
                                    C.byref(region))

    def finish(self) -> None:
        """End recording: what was written is visible to the host."""
        self._barrier(_STAGES, _ACCESS, _HOST_STAGE, _HOST_ACCESS)
        V.check(V.call("vkEndCommandBuffer", self.commands), "end a command buffer")

    def free(self) -> None:
        """Give the command buffer and its descriptors back."""
        V.library().vkFreeCommandBuffers(self.context.device, self.context.pool, 1, C.byref(self.commands))
        V.library().vkDestroyDescriptorPool(self.context.device, self.descriptors, None)

    def _descriptor_set(self, pipeline: Pipeline, storages: Sequence[Storage]) -> Any:
        out = C.c_uint64()
        info = V.SetInfo(sType=34, pool=self.descriptors.value, count=1, layouts=V.ref(pipeline.layout_set))
        V.check(V.call("vkAllocateDescriptorSets", self.context.device, C.byref(info), C.byref(out)),
                "allocate a descriptor set")
        n = len(storages)
        ranges = (V.BufferRange * n)(*[V.BufferRange(s.chunk.buffer, s.offset, s.capacity) for s in storages])
        step = C.sizeof(V.BufferRange)
        writes = (V.WriteSet * n)(*[
            V.WriteSet(sType=35, set=out.value, binding=k, count=1, type=7, buffers=C.addressof(ranges) + k * step)
            for k in range(n)])
        V.library().vkUpdateDescriptorSets(self.context.device, n, writes, 0, None)
        self.keep.update(storages)
        return out

    def _order(self, reads: Iterable[Storage], writes: Iterable[Storage]) -> None:
        """A barrier where this command touches what an earlier one wrote, or writes what one read."""
        r, w = {s.key for s in reads}, {s.key for s in writes}
        if (r | w) & self._written or w & self._read:
            self._barrier(_STAGES, _ACCESS, _STAGES, _ACCESS)
            self._written, self._read = set(), set()
        self._written |= w
        self._read |= r

    def _barrier(self, from_stage: int, from_access: int, to_stage: int, to_access: int) -> None:
        b = V.MemoryBarrier(sType=46, source=from_access, target=to_access)
        V.library().vkCmdPipelineBarrier(self.commands, from_stage, to_stage, 0, 1, C.byref(b), 0, None, 0, None)


class Queue:
    """Submits recordings in order."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.pending = False
        self.lock = threading.RLock()
        self._after: list[Recording] = []

    def submit(self, recording: Recording, once: bool) -> None:
        """Start a recording; one that runs ``once`` is freed after the next wait."""
        info = V.SubmitInfo(sType=4, count=1, commands=V.ref(recording.commands))
        with self.lock:
            V.check(V.call("vkQueueSubmit", self.context.queue, 1, C.byref(info), C.c_uint64(0)), "submit")
            self.pending = True
            if once:
                self._after.append(recording)
                if len(self._after) > 256:
                    self.wait()

    def wait(self) -> None:
        """Until everything submitted is done."""
        with self.lock:
            if not self.pending:
                return
            V.check(V.call("vkQueueWaitIdle", self.context.queue), "finish")
            self.pending = False
            done, self._after = self._after, []
            for r in done:
                r.free()
