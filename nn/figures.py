"""Pictures of figures made by formula, for demonstrations and tests of training."""

from __future__ import annotations

import numpy as np

#: Strokes of each figure: top, upper left, upper right, middle, lower left, lower right, bottom.
_SEGMENTS = ("1110111", "0010010", "1011101", "1011011", "0111010",
             "1101011", "1101111", "1010010", "1111111", "1111011")
#: Where the strokes are in a picture of 12x12.
_PLACES = ((slice(2, 3), slice(4, 8)), (slice(2, 6), slice(4, 5)), (slice(2, 6), slice(7, 8)),
           (slice(5, 6), slice(4, 8)), (slice(5, 10), slice(4, 5)),
           (slice(5, 10), slice(7, 8)), (slice(9, 10), slice(4, 8)))


def seven_segment(count: int = 3000, seed: int = 0, *, noise: float = 0.25) -> tuple[np.ndarray, np.ndarray]:
    """Seven-segment figures: pictures (count, 12, 12) float32 in [0, 1], and the figure of each (count,) int32.

    Each is moved by up to a pixel in both directions, and Gaussian noise of that standard deviation is added.

    >>> x, y = seven_segment(5)
    >>> x.shape, y.tolist()
    ((5, 12, 12), [8, 6, 5, 2, 3])
    """
    rng = np.random.default_rng(seed)
    shapes = np.zeros((10, 12, 12), np.float32)
    for shape, on in zip(shapes, _SEGMENTS, strict=True):
        for place, lit in zip(_PLACES, on, strict=True):
            shape[place] = np.maximum(shape[place], float(lit))
    y = rng.integers(0, 10, count)
    moved = [np.roll(shapes[c], rng.integers(-1, 2, 2), (0, 1)) for c in y]
    return np.clip(moved + rng.normal(0, noise, (count, 12, 12)), 0, 1).astype(np.float32), y.astype(np.int32)
