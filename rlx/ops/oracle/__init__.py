"""Oracles and samples of the primitives that have no row in a table."""

from rlx.ops.oracle import contraction, control, conversion, index, movement

__all__ = ["contraction", "control", "conversion", "index", "movement"]
