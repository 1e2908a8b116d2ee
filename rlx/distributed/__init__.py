"""Floor 8: collectives over the members of a named axis; meshes and shardings over several devices stand on them.

>>> import rlx
>>> from rlx.distributed import all_gather, axis_index
>>> rlx.vmap(lambda x: all_gather(x, "i")[axis_index("i") - 1], axis_name="i")(rlx.arange(3)).tolist()
[2, 0, 1]
"""

from rlx.ops.collective import all_gather, all_reduce, axis_index, axis_size, shift

__all__ = ["all_gather", "all_reduce", "axis_index", "axis_size", "shift"]
