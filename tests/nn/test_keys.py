"""Keys: the published answers of Threefry, and what drawn numbers promise."""

from __future__ import annotations

import numpy as np
import pytest

import rlx
from rlx import nn
from rlx.core.errors import ShapeError, ValueIssue
from rlx.nn.keys import _threefry

# Random123 1.14, tests/kat_vectors, threefry2x32 with 20 rounds: counter, key, result.
KNOWN = [((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
         ((0xFFFFFFFF,) * 2, (0xFFFFFFFF,) * 2, (0x1CB996FC, 0xBB002BE7)),
         ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0))]


@pytest.mark.parametrize(("counter", "key", "result"), KNOWN)
def test_known_answers(device, counter, key, result):
    words = [rlx.asarray(np.uint32(c), device=device) for c in counter]
    out = _threefry(rlx.asarray(np.array(key, np.uint32), device=device), *words)
    assert tuple(int(x) for x in out) == result


def test_uniform_is_uniform_and_the_same_on_every_device(device):
    x = np.asarray(nn.uniform(nn.key(3, device=device), (50, 100)))
    assert x.dtype == np.float32 and x.min() >= 0 and x.max() < 1
    np.testing.assert_allclose(np.histogram(x, 10, (0, 1))[0], 500, atol=5 * np.sqrt(450))
    np.testing.assert_array_equal(x, np.asarray(nn.uniform(nn.key(3, device="python"), (50, 100))))


def test_folding_in_a_number_gives_another_key():
    keys = {tuple(nn.fold_in(nn.key(0), i).tolist()) for i in range(20)} | {tuple(nn.key(0).tolist())}
    assert len(keys) == 21
    traced = rlx.jit(nn.fold_in)(nn.key(0), 5)
    assert traced.tolist() == nn.fold_in(nn.key(0), 5).tolist()


def test_seeds_and_keys_are_checked():
    assert nn.key((1 << 64) - 1).tolist() == [0xFFFFFFFF, 0xFFFFFFFF]
    with pytest.raises(ValueIssue, match="seed -1"):
        nn.key(-1)
    with pytest.raises(ShapeError, match=r"a key of type float64\[2\]"):
        nn.uniform(rlx.asarray([0.0, 1.0]), (3,))


def test_initial_weights_come_from_a_seed_or_a_generator():
    first, again = nn.initial(4, (100, 3), 0.5), nn.initial(4, (100, 3), 0.5)
    assert first.dtype == rlx.float32 and first.tolist() == again.tolist()
    x = np.asarray(first)
    assert -0.5 <= x.min() < -0.45 and 0.45 < x.max() < 0.5
    rng = np.random.default_rng(0)
    assert nn.initial(rng, (3,), 1).tolist() != nn.initial(rng, (3,), 1).tolist()
    assert abs(np.std(np.asarray(nn.initial(0, (1000,), 2, normal=True, dtype=rlx.float64))) - 2) < 0.2
