"""The one place where initial weights are drawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import rlx
from rlx.array.array import Array


def initial(rng: np.random.Generator | int, shape: Sequence[int], bound: float, *, normal: bool = False,
            dtype: Any = None, device: str | None = None) -> Array:
    """Initial weights: uniform in ``[-bound, bound)``, or normal with that deviation; float32 without ``dtype``.

    A generator gives new numbers at each call; a seed gives the same again.
    """
    source = rng if isinstance(rng, np.random.Generator) else np.random.default_rng(rng)
    drawn = source.standard_normal(tuple(shape)) * bound if normal else source.uniform(-bound, bound, tuple(shape))
    return rlx.asarray(drawn, dtype=dtype if dtype is not None else rlx.float32, device=device)
