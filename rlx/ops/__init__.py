"""Floor 3: the ops, one file a family. Importing this package registers them all."""

from rlx.ops import (
    collective,
    composed,
    control,
    conv,
    creation,
    diagonal,
    dtypes,
    einsum,
    elementwise,
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
    power,
    reduce,
    scan,
    searching,
    segments,
    sets,
    sort,
    statistics,
    text,
    threefry,
    window,
    within,
)

from rlx.ops import aliases, derivative  # isort: skip  (names and rules of what the others define)

__all__ = [
    "aliases", "collective", "composed", "control", "conv", "creation", "derivative", "diagonal", "dtypes",
    "einsum", "elementwise", "fft", "grids", "index", "io", "joining", "linear", "manipulate", "movement",
    "numeric", "padding", "polygamma", "polynomials", "power", "reduce", "scan", "searching", "segments", "sets",
    "sort", "statistics", "text", "threefry", "window", "within",
]
