"""Questions about the steps of a program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rlx.ir import loop as L


def every(steps: Sequence[L.Step]) -> Iterator[L.Step]:
    """Every step, those inside loops too."""
    for s in steps:
        yield s
        for inner in inside(s):
            yield from every(inner)


def inside(s: L.Step) -> tuple[tuple[L.Step, ...], ...]:
    """The bodies of a step."""
    match s:
        case L.While(head=a, body=b) | L.Branch(then=a, orelse=b):
            return a, b
        case L.Repeat(body=b):
            return (b,)
        case _:
            return ()


def names_of(s: L.Step) -> set[str]:
    """Buffers that a step names, those of its inner steps too."""
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
    return own.union(*[names_of(x) for inner in inside(s) for x in inner])


def launches_of(s: L.Step) -> int:
    """Launches of a step whose loops turn once."""
    inner = inside(s)
    return sum(launches_of(x) for body in inner for x in body) if inner else 1
