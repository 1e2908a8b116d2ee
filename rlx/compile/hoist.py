"""Hoist: steps of a loop that compute the same in every iteration run once, before it; of a program, before its calls.

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


#: Bytes written for each byte read up to which a step moves to the setup: what is kept takes memory for good.
GROWTH = 2


def split_setup(program: L.Program, first: int) -> tuple[L.Program | None, L.Program]:
    """(what depends only on the inputs from slot ``first`` on, the rest), or (None, the program).

    ``pack(w, t); tiles(x, t, y)`` with ``w`` the same in every call -> a setup whose output is ``t``, and a program
    with ``t`` as one more input. The setup's inputs are those inputs; its outputs are the last inputs of the rest, in
    order.
    """
    buffers = {b.name: b for b in program.buffers}
    writers = Counter(n for s in steps(program.steps) for n in _written(s))
    fixed = [b for b in program.buffers if b.role == "input" and b.slot >= first]
    known = {b.name for b in fixed}
    setup: list[L.Step] = []
    rest: list[L.Step] = []
    for s in program.steps:
        if isinstance(s, (L.Launch, L.Native)) and _settles(s, known, buffers, writers):
            setup.append(s)
            known.update(_written(s))
        else:
            rest.append(s)
    read = {n for s in steps(rest) for n in _touched(s)}
    kept = [n for s in setup for n in _written(s) if n in read]
    if not kept:
        return None, program
    needed = {n for s in setup for n in _touched(s)}
    inputs = max(b.slot for b in program.buffers if b.role == "input") + 1
    there = [replace(b, slot=b.slot - first) for b in fixed]
    there += [replace(b, role="output", slot=kept.index(b.name)) if b.name in kept else b
              for b in program.buffers if b.name in needed and b.role not in ("input", "output")]
    here = [replace(b, role="input", slot=inputs + kept.index(b.name)) if b.name in kept else b
            for b in program.buffers if b.name in kept or b.role != "temp" or b.name in read]
    return (replace(program, name=f"{program.name}_setup", buffers=tuple(there), steps=tuple(setup)),
            replace(program, buffers=tuple(here), steps=tuple(rest)))


def _settles(s: L.Launch | L.Native, known: set[str], buffers: dict[str, L.Buffer], writers: Counter[str]) -> bool:
    """Whether a step reads what is known only, and writes temps of its own that are not much larger."""
    read, written = set(_read(s)), set(_written(s))
    if not read or not read - written <= known or read & written:
        return False
    if any(buffers[n].role != "temp" or writers[n] != 1 for n in written):
        return False
    return sum(buffers[n].nbytes for n in written) <= GROWTH * sum(buffers[n].nbytes for n in read)


def _touched(s: L.Step) -> tuple[str, ...]:
    """Buffers that a step itself names."""
    match s:
        case L.Launch(buffers=names):
            return names
        case L.Native(buffers=names, scratch=more):
            return (*names, *more)
        case L.Copy(dst=d, src=c):
            return d, c
        case L.While(pred=p) | L.Branch(pred=p):
            return (p,)
        case L.Repeat(count=n, counter=c):
            return (c, n) if isinstance(n, str) else (c,)


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
