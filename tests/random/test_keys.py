"""Keys and bits: known answers, the same on every device, independent streams."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from rlx.core.errors import DTypeError, ShapeError
from rlx.ops.threefry import threefry

random = rlx.random


def _words(*values: int) -> Any:
    return rlx.asarray(np.array(values, np.uint32))


#: From Random123's table of known answers for threefry2x32 with 20 rounds: counter, key, result.
KNOWN = [
    ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
    ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
    ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
]


@pytest.mark.parametrize(("counter", "key", "want"), KNOWN)
def test_known_answers(counter: tuple[int, int], key: tuple[int, int], want: tuple[int, int], device: str) -> None:
    with rlx.flags(device=device):
        a, b = threefry(_words(*key), _words(counter[0]), _words(counter[1]))
        assert (int(a[0]), int(b[0])) == want


def test_a_key_is_the_words_of_its_seed() -> None:
    assert random.key(0x0123456789ABCDEF).tolist() == [0x01234567, 0x89ABCDEF]
    assert random.key(-1).tolist() == [0xFFFFFFFF, 0xFFFFFFFF]
    assert rlx.jit(random.key)(rlx.asarray(5, dtype=rlx.int32)).tolist() == [0, 5]
    assert random.key(rlx.asarray(-1)).tolist() == random.key(-1).tolist()


def test_bits_are_counted_in_row_major_order_whatever_the_shape() -> None:
    k = random.key(1)
    flat = np.asarray(random.bits(k, 24))
    np.testing.assert_array_equal(np.asarray(random.bits(k, (2, 3, 4))).ravel(), flat)
    np.testing.assert_array_equal(np.asarray(random.bits(k, 7)), flat[:7])


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32, np.uint64])
def test_every_bit_is_fair(dtype: type) -> None:
    x = np.asarray(random.bits(random.key(3), 4000, dtype=dtype))
    assert x.dtype == dtype
    width = np.dtype(dtype).itemsize * 8
    ones = ((x[:, None] >> np.arange(width, dtype=dtype)) & 1).mean(axis=0)
    assert np.abs(ones - 0.5).max() < 5 * 0.5 / np.sqrt(4000)
    both = np.corrcoef(((x[:, None] >> np.arange(width, dtype=dtype)) & 1).T.astype(float)) - np.eye(width)
    assert np.abs(both).max() < 6 / np.sqrt(4000)


def test_streams_share_nothing() -> None:
    """Children, folded keys and values of one key are all different; so are those of neighbouring seeds."""
    k = random.key(0)
    n = 200
    children = np.asarray(random.split(k, n)).astype(np.uint64)
    folded = np.stack([np.asarray(random.fold_in(k, i)) for i in range(5)]).astype(np.uint64)
    values = np.asarray(random.bits(k, n, dtype=rlx.uint64))
    seeds = np.concatenate([np.asarray(random.bits(random.key(s), n, dtype=rlx.uint64)) for s in (1, 2, 1 << 32)])
    every = np.concatenate([children[:, 0] << 32 | children[:, 1], folded[:, 0] << 32 | folded[:, 1], values, seeds])
    assert len(np.unique(every)) == len(every)


def test_streams_are_not_correlated() -> None:
    n = 5000
    keys = [random.key(0), random.key(1), *random.split(random.key(0), 3),
            random.fold_in(random.key(0), 0), random.fold_in(random.key(0), 1)]
    rows = np.stack([np.asarray(random.uniform(k, n)) for k in keys])
    both = np.corrcoef(rows) - np.eye(len(rows))
    assert np.abs(both).max() < 5 / np.sqrt(n)
    lagged = [np.corrcoef(rows[0][:-lag], rows[0][lag:])[0, 1] for lag in (1, 2, 3, 16, 64)]
    assert np.abs(lagged).max() < 5 / np.sqrt(n)


def test_split_has_the_shape_asked_for() -> None:
    k = random.key(9)
    assert random.split(k).shape == (2, 2) and random.split(k, (3, 4)).shape == (3, 4, 2)
    np.testing.assert_array_equal(np.asarray(random.split(k, (3, 4))).reshape(12, 2), np.asarray(random.split(k, 12)))


def test_fold_in_of_an_array_is_that_of_its_number() -> None:
    k = random.key(9)
    for number in (0, 3, -1, (1 << 40) + 5):
        want = random.fold_in(k, number).tolist()
        assert random.fold_in(k, rlx.asarray(number)).tolist() == want
        assert rlx.jit(random.fold_in)(k, rlx.asarray(number)).tolist() == want


def test_errors_say_what_to_do() -> None:
    k = random.key(0)
    for kind, f in ((DTypeError, lambda: random.bits(0, 3)), (DTypeError, lambda: random.bits(k, 3, dtype=rlx.int32)),
                    (DTypeError, lambda: random.bits(random.split(k), 3)), (ShapeError, lambda: random.bits(k, (-1,))),
                    (DTypeError, lambda: random.key(rlx.asarray(1.5)))):
        with pytest.raises(kind) as caught:
            f()
        assert caught.value.why and caught.value.do
