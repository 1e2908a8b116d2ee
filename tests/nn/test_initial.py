"""Initial weights."""

from __future__ import annotations

import numpy as np

import rlx
from rlx import nn


def test_initial_weights_come_from_a_seed_or_a_generator():
    first, again = nn.initial(4, (100, 3), 0.5), nn.initial(4, (100, 3), 0.5)
    assert first.dtype == rlx.float32 and first.tolist() == again.tolist()
    x = np.asarray(first)
    assert -0.5 <= x.min() < -0.45 and 0.45 < x.max() < 0.5
    rng = np.random.default_rng(0)
    assert nn.initial(rng, (3,), 1).tolist() != nn.initial(rng, (3,), 1).tolist()
    assert abs(np.std(np.asarray(nn.initial(0, (1000,), 2, normal=True, dtype=rlx.float64))) - 2) < 0.2
