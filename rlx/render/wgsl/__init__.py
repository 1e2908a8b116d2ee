"""WGSL: a portable kernel as the text of one compute shader."""

from rlx.render.wgsl.kernel import Shader, render_kernel

__all__ = ["Shader", "render_kernel"]
