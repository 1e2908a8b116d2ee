"""What the cuda device adds to the printed kernels: overlapping launches, and launches that steer a loop."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rlx.ir import loop as L
from rlx.render.c import launch_shape

#: A kernel lets the next one of its graph be set up while it runs, and waits for the one before to end.
BEGIN = 'asm volatile("griddepcontrol.launch_dependents;\\n\\tgriddepcontrol.wait;" ::: "memory");'
_HEAD = re.compile(r'^extern "C" __global__ void __launch_bounds__\(\d+\) \w+\([^\n]*\) \{$', re.MULTILINE)


def overlapping(text: str) -> str:
    """The kernels with :data:`BEGIN` first."""
    return _HEAD.sub(lambda m: f"{m.group(0)}\n  {BEGIN}", text)


def steers(s: L.While) -> bool:
    """Whether the loop's last launch is one workgroup that writes the predicate: it can steer the loop too."""
    last = s.body[-1] if s.body and not s.head else None
    if not isinstance(last, L.Launch) or s.pred not in last.buffers:
        return False
    param = last.kernel.params[last.buffers.index(s.pred)]
    return "w" in param.access and max(launch_shape(last.kernel).groups) == 1


def steering_name(s: L.While) -> str:
    """The kernel that does the loop's last launch and steers it."""
    last = s.body[-1]
    assert isinstance(last, L.Launch)
    return f"{last.kernel.name}_steers_{last.buffers.index(s.pred)}"


def steering(text: str, loops: Iterable[L.While]) -> str:
    """The text of those kernels: copies of the printed ones, with the handle first and a call at the end."""
    made: dict[str, str] = {}
    for s in loops:
        name, last = steering_name(s), s.body[-1]
        assert isinstance(last, L.Launch)
        start = text.index(f" {last.kernel.name}(")
        head = text.rindex('extern "C"', 0, start)
        whole = text[head:text.index("\n}\n", start)]
        pred = last.kernel.params[last.buffers.index(s.pred)].name
        whole = whole.replace(f" {last.kernel.name}(", f" {name}(unsigned long long handle, ", 1)
        made[name] = (f"{whole}\n  __syncthreads();\n"
                      f"  if (threadIdx.x == 0) cudaGraphSetConditional(handle, {pred}[0] != 0);\n}}\n")
    return "".join(made.values())
