"""What stands around a kernel's body in each dialect: parameters, bindings, workgroup size."""

from __future__ import annotations

from rlx.render.c.dialect import Shape, Slot

Slots = tuple[Slot, ...]
Lines = tuple[str, ...]


def _body(head: str, body: Lines) -> str:
    return "\n".join([head + " {", *body, "}", ""])


def c(name: str, slots: Slots, shape: Shape, body: Lines) -> str:
    """A plain function that runs the whole grid."""
    params = ", ".join(f"{'' if s.written else 'const '}{s.type}* {s.name}" for s in slots)
    return _body(f"void {name}({params})", body)


def opencl(name: str, slots: Slots, shape: Shape, body: Lines) -> str:
    """``__kernel`` with its required workgroup size."""
    params = ", ".join(f"__global {'' if s.written else 'const '}{s.type}* {s.name}" for s in slots)
    lanes = ", ".join(map(str, shape.lanes))
    return _body(f"__kernel __attribute__((reqd_work_group_size({lanes})))\nvoid {name}({params})", body)


def cuda(name: str, slots: Slots, shape: Shape, body: Lines) -> str:
    """``__global__`` with its largest workgroup, so that registers are shared out for it."""
    params = ", ".join(
        f"{'' if s.written else 'const '}{s.type}* {'__restrict__ ' if s.alone else ''}{s.name}" for s in slots
    )
    x, y, z = shape.lanes
    return _body(f'extern "C" __global__ void __launch_bounds__({x * y * z}) {name}({params})', body)


def metal(name: str, slots: Slots, shape: Shape, body: Lines) -> str:
    """``kernel`` with buffers by index and the thread positions as arguments."""
    params = [f"device {'' if s.written else 'const '}{s.type}* {s.name} [[buffer({s.binding})]]" for s in slots]
    params += ["uint3 group_at [[threadgroup_position_in_grid]]", "uint3 lane_at [[thread_position_in_threadgroup]]"]
    return _body(f"kernel void {name}({', '.join(params)})", body)


def glsl(name: str, slots: Slots, shape: Shape, body: Lines) -> str:
    """Storage blocks by binding, and ``main``."""
    x, y, z = shape.lanes
    lines = [f"layout(local_size_x = {x}, local_size_y = {y}, local_size_z = {z}) in;"]
    lines += [
        f"layout(std430, binding = {s.binding}) {'' if s.written else 'readonly '}buffer B{s.binding} "
        f"{{ {s.type} {s.name}[]; }};"
        for s in slots
    ]
    return "\n".join(lines) + "\n" + _body("void main()", body)


def hlsl(name: str, slots: Slots, shape: Shape, body: Lines) -> str:
    """Structured buffers by register, and ``main`` with its thread counts."""
    lines = [f"RWStructuredBuffer<{s.type}> {s.name} : register(u{s.binding});" for s in slots]
    x, y, z = shape.lanes
    head = f"[numthreads({x}, {y}, {z})]\nvoid main(uint3 group_at : SV_GroupID, uint3 lane_at : SV_GroupThreadID)"
    return "\n".join(lines) + "\n" + _body(head, body)
