"""Floor 3: the ops, one file a family. Importing this package registers them all."""

from rlx.ops import control, creation, derivative, elementwise, index, linear, movement, reduce

__all__ = ["control", "creation", "derivative", "elementwise", "index", "linear", "movement", "reduce"]
