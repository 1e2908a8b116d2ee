"""Hoist: steps of a loop that compute the same in every iteration run once, before it.

``repeat { pack(w, t); tiles(x, t, y); ... }`` -> ``pack(w, t); repeat { tiles(x, t, y); ... }``
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from rlx.ir import loop as L
from rlx.ir.walk import steps


def hoist(program: L.Program) -> L.Program:
    """The program with loop-invariant kernels and calls moved out of loops, as far as they can go.

    A step moves when no step of the loop writes what it reads, and what it writes are temps that no other step of the
    program writes. It may then run although the loop runs no iteration, which changes nothing that is read.
    """
    writers = Counter(n for s in steps(program.steps) for n in _written(s))
    temps = {b.name for b in program.buffers if b.role == "temp" and writers[b.name] == 1}
    return replace(program, steps=tuple(_block(program.steps, temps)))


def _block(block: Sequence[L.Step], temps: set[str]) -> list[L.Step]:
    """The steps with every loop among them preceded by what leaves it; inner loops first."""
    out: list[L.Step] = []
    for s in block:
        match s:
            case L.Repeat(counter=c, body=b):
                moved, kept = _split(_block(b, temps), {c}, temps)
                out += [*moved, replace(s, body=tuple(kept))]
            case L.While(head=h, body=b):
                # The test comes first in every iteration, so what leaves it may be needed by what leaves the body.
                head, body = _block(h, temps), _block(b, temps)
                written = {n for x in steps(body) for n in _written(x)}
                first, head = _split(head, written, temps)
                moved, body = _split(body, {n for x in steps(head) for n in _written(x)}, temps)
                out += [*first, *moved, replace(s, head=tuple(head), body=tuple(body))]
            case L.Branch(then=t, orelse=o):
                out.append(replace(s, then=tuple(_block(t, temps)), orelse=tuple(_block(o, temps))))
            case _:
                out.append(s)
    return out


def _split(body: list[L.Step], also_written: set[str], temps: set[str]) -> tuple[list[L.Step], list[L.Step]]:
    """Steps that leave the loop, in order, and those that stay; ``also_written`` changes elsewhere in the loop."""
    changes = Counter(also_written)
    changes.update(n for s in steps(body) for n in _written(s))
    moved: list[L.Step] = []
    kept: list[L.Step] = []
    for s in body:
        if isinstance(s, (L.Launch, L.Native)) and _movable(s, changes, temps):
            moved.append(s)
            changes.subtract(_written(s))
        else:
            kept.append(s)
    return moved, kept


def _movable(s: L.Launch | L.Native, changes: Counter[str], temps: set[str]) -> bool:
    written = set(_written(s))
    return written <= temps and not written & set(_read(s)) and not any(changes[n] > 0 for n in _read(s))


def _written(s: L.Step) -> tuple[str, ...]:
    """Buffers that the step itself writes."""
    match s:
        case L.Launch(kernel=k, buffers=names):
            return tuple(n for p, n in zip(k.params, names, strict=True) if "w" in p.access)
        case L.Native():
            return (*s.buffers[s.inputs:], *s.scratch)
        case L.Copy(dst=d):
            return (d,)
        case L.Repeat(counter=c):
            return (c,)
        case _:
            return ()


def _read(s: L.Launch | L.Native) -> tuple[str, ...]:
    if isinstance(s, L.Native):
        return s.buffers[:s.inputs]
    return tuple(n for p, n in zip(s.kernel.params, s.buffers, strict=True) if "r" in p.access)
