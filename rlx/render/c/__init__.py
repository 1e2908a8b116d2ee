"""Kernels as C-like source: one printer, a table for each language."""

from rlx.render.c.kernel import launch_shape, render
from rlx.render.c.tables import DIALECTS
from rlx.render.spelling import spells

__all__ = ["DIALECTS", "launch_shape", "render", "spells"]
