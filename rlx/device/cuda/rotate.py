"""Loops test at the end of a turn: the test's few scalars then join the last launch of the body.

``while (head) body`` -> ``head; while () {body; head}``
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rlx.compile.grid_join import join
from rlx.core.caps import Caps
from rlx.core.dtype import int32, int64
from rlx.ir import loop as L


def rotate(program: L.Program, caps: Caps) -> L.Program:
    """The program with its loops turned, where their tests are launches."""
    work = _Rotation(program, caps)
    return replace(program, steps=work.steps(program.steps))


class _Rotation:
    def __init__(self, program: L.Program, caps: Caps) -> None:
        self.buffers = {b.name: b for b in program.buffers}
        self.caps = caps
        self.index = int64 if caps.index_bits == 64 else int32
        self.kernels: dict[Any, L.Kernel] = {}

    def steps(self, steps: Sequence[L.Step]) -> tuple[L.Step, ...]:
        return tuple([t for s in steps for t in self.step(s)])

    def step(self, s: L.Step) -> list[L.Step]:
        match s:
            case L.While(head=head, body=body):
                body = self.steps(body)
                if not head or not all(isinstance(x, L.Launch | L.Copy) for x in head):
                    return [replace(s, head=self.steps(head), body=body)]
                turn = join([*body, *head], self.buffers, self.index, self.caps, self.kernel)
                return [*head, replace(s, head=(), body=tuple(turn))]
            case L.Branch(then=then, orelse=orelse):
                return [replace(s, then=self.steps(then), orelse=self.steps(orelse))]
            case L.Repeat(body=body):
                return [replace(s, body=self.steps(body))]
            case _:
                return [s]

    def kernel(self, k: L.Kernel, label: str) -> L.Kernel:
        """One kernel for equal bodies."""
        key = (k.params, k.body)
        if key not in self.kernels:
            digest = hashlib.sha256(repr(key).encode()).hexdigest()[:8]
            self.kernels[key] = replace(k, name=f"{label[:36]}_turn_{digest}")
        return self.kernels[key]
