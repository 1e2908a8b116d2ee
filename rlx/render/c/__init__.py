"""Kernels as C-like source: one printer, a table for each language."""

from rlx.render.c.kernel import launch_shape, render
from rlx.render.c.spelling import spells
from rlx.render.c.tables import DIALECTS

__all__ = ["DIALECTS", "launch_shape", "render", "spells"]
