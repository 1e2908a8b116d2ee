"""Floor 3: the ops, one file a family. Importing this package registers them all."""

from rlx.ops import (
    control,
    creation,
    derivative,
    diagonal,
    dtypes,
    einsum,
    elementwise,
    extra,
    fft,
    grids,
    index,
    io,
    joining,
    linear,
    manipulate,
    movement,
    numeric,
    padding,
    polygamma,
    polynomials,
    reduce,
    searching,
    sets,
    statistics,
    text,
    threefry,
    window,
    within,
)

from rlx.ops import aliases  # isort: skip  (names of what the others define)

__all__ = [
    "aliases", "control", "creation", "derivative", "diagonal", "dtypes", "einsum", "elementwise", "extra", "fft",
    "grids", "index", "io", "joining", "linear", "manipulate", "movement", "numeric", "padding", "polygamma",
    "polynomials", "reduce", "searching", "sets", "statistics", "text", "threefry", "window", "within",
]
