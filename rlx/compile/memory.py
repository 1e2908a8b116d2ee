"""Place temps in one arena: buffers whose lives do not overlap share bytes.

``t1: [0, 4000) live 0..2, t2: live 3..5`` -> both at offset 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rlx.ir import loop as L

#: Every buffer starts on a cache line.
ALIGN = 64


def place(program: L.Program, align: int = ALIGN) -> L.Program:
    """The program with every temp at an offset of the arena, a multiple of ``align``; unused temps are dropped.

    A device whose buffers must start on larger boundaries places a program again.
    """
    lives = _lives(program.steps)
    temps = [b for b in program.buffers if b.role == "temp" and b.name in lives]
    placed: list[tuple[int, int, int, int]] = []
    offsets: dict[str, int] = {}
    for b in sorted(temps, key=lambda b: (-b.nbytes, b.name)):
        first, last = lives[b.name]
        size = -(-max(b.nbytes, 1) // align) * align
        busy = sorted((o, s) for f, e, o, s in placed if not (e < first or last < f))
        at = 0
        for o, s in busy:
            if o - at >= size:
                break
            at = max(at, o + s)
        offsets[b.name] = at
        placed.append((first, last, at, size))
    arena = max((o + s for _, _, o, s in placed), default=0)
    buffers = tuple(replace(b, offset=offsets[b.name]) if b.role == "temp" else b
                    for b in program.buffers if b.role != "temp" or b.name in offsets)
    return replace(program, buffers=buffers, arena=arena)


def _lives(steps: Sequence[L.Step]) -> dict[str, tuple[int, int]]:
    """First and last step that touch each buffer. What a loop reads from outside lives through the whole loop."""
    lives: dict[str, tuple[int, int]] = {}
    clock = [0]

    def touch(names: Sequence[str]) -> None:
        for n in names:
            first, _ = lives.get(n, (clock[0], 0))
            lives[n] = (first, clock[0])

    def walk(block: Sequence[L.Step]) -> None:
        for s in block:
            clock[0] += 1
            match s:
                case L.Launch(buffers=names) | L.Native(buffers=names):
                    touch(names)
                    if isinstance(s, L.Native):
                        touch(s.scratch)
                case L.Copy(dst=d, src=c):
                    touch((d, c))
                case L.While(head=h, pred=p, body=b):
                    loop(h, (p,), b)
                case L.Repeat(count=n, counter=c, body=b):
                    touch((c, n) if isinstance(n, str) else (c,))
                    loop(b, (c,))
                    if isinstance(n, str):
                        touch((n,))
                case L.Branch(pred=p, then=t, orelse=o):
                    touch((p,))
                    loop(t, (), o)

    def loop(first_part: Sequence[L.Step], names: Sequence[str], second_part: Sequence[L.Step] = ()) -> None:
        start = clock[0]
        walk(first_part)
        touch(names)
        walk(second_part)
        clock[0] += 1
        for n, (first, last) in list(lives.items()):
            if first <= start < last:
                lives[n] = (first, clock[0])

    walk(steps)
    return lives
