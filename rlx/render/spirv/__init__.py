"""SPIR-V: a portable kernel as the words of one compute shader module, written here: no compiler is needed.

Of the sources of SPIR-V (a GLSL compiler, WGSL through naga inside wgpu, or direct) this one adds no dependency, and
says ``NoContraction`` on every float operation, which neither WGSL nor naga can.
"""

from rlx.render.spirv.kernel import PROMISES, Binary, render_kernel

__all__ = ["PROMISES", "Binary", "render_kernel"]
