"""Attention without its scores: the values, what is stored, and when it is left alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from rlx.nn.ops import attention

SHAPES = {"one block": ((2, 3), 20, 20, 16, 16), "blocks of both": ((2,), 130, 300, 33, 40), "few": ((), 9, 8, 8, 8),
          "one key over": ((1, 2), 257, 193, 64, 20), "whole blocks": ((2, 2), 16, 384, 32, 64)}


def draw(shape: str, dtype: Any, mask: str) -> tuple[Any, ...]:
    rng = np.random.default_rng(len(shape))
    batch, s, t, d, e = SHAPES[shape]
    q, k, v = (rng.standard_normal((*batch, n, m)).astype(dtype) for n, m in ((s, d), (t, d), (t, e)))
    made = {"none": None, "seen": rng.random((*batch[:1], *([1] * (len(batch) > 1)), 1, t)) > 0.3,
            "added": rng.standard_normal((s, t)).astype(dtype)}
    return q, k, v, made[mask]


def formula(q: Any, k: Any, v: Any, mask: Any, causal: bool) -> Any:
    q, k, v = (x.astype(np.longdouble) for x in (q, k, v))
    s = np.einsum("...id,...jd->...ij", q, k) / np.sqrt(np.longdouble(q.shape[-1]))
    if causal:
        s = np.where(np.tri(*s.shape[-2:], dtype=bool), s, -1e300)
    if mask is not None:
        s = np.where(mask, s, -1e300) if mask.dtype == bool else s + mask
    e = np.exp(s - s.max(-1, keepdims=True))
    return np.einsum("...ij,...je->...ie", e, v) / e.sum(-1, keepdims=True)


def notes(f: Any, *args: Any) -> list[str]:
    return [s.kernel.notes for s in f.lower(*args).lowered.program.steps if hasattr(s, "kernel")]


@pytest.mark.parametrize("mask", ["none", "seen", "added"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", SHAPES)
def test_blocks_give_the_formulas_values(shape: str, dtype: Any, causal: bool, mask: str) -> None:
    args = draw(shape, dtype, mask)
    f = rlx.jit(lambda q, k, v, m: attention(q, k, v, m, causal=causal))
    got = np.asarray(f(*args))
    assert any(n.startswith("attention of") for n in notes(f, *args))
    assert np.max(np.abs(got - formula(*args, causal))) < (2e-6 if dtype == np.float32 else 2e-14)


def test_long_sequences_need_no_memory_for_scores() -> None:
    q = rlx.zeros((1, 12, 2048, 64), dtype=rlx.float32)
    program = rlx.jit(lambda q, k, v: attention(q, k, v, causal=True)).lower(q, q, q).lowered.program
    assert program.arena <= 2 * 4 * 12 * 2048 * 64
    other = rlx.jit(lambda q, k, v: attention(q, k, v), overrides={"dot": "common"}).lower(q, q, q).lowered.program
    assert other.arena <= 2 * 4 * 12 * 2048 * 64


def test_heads_are_read_where_they_lie() -> None:
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((2, 40, 3, 16)).astype(np.float32) for _ in range(3))
    heads = lambda x: rlx.permute_dims(x, (0, 2, 1, 3))
    f = rlx.jit(lambda q, k, v: attention(heads(q), heads(k), heads(v)))
    want = formula(*(np.swapaxes(x, 1, 2) for x in (q, k, v)), None, False)
    assert np.max(np.abs(np.asarray(f(q, k, v)) - want)) < 2e-6
    assert len(notes(f, q, k, v)) == 1


def test_a_formula_written_by_hand_is_attention_too() -> None:
    rng = np.random.default_rng(1)
    q, k, v = (rng.standard_normal((3, 50, 24)).astype(np.float32) for _ in range(3))

    def by_hand(q: Any, k: Any, v: Any) -> Any:
        s = rlx.tanh(q @ rlx.matrix_transpose(k) * 0.1) * 3
        return rlx.softmax(s) @ v

    f = rlx.jit(by_hand)
    s = np.tanh(q @ np.swapaxes(k, 1, 2) * np.float32(0.1)) * 3
    e = np.exp(s)
    assert np.allclose(np.asarray(f(q, k, v)), e @ v / e.sum(-1, keepdims=True), rtol=1e-5, atol=1e-6)
    assert any(n.startswith("attention of") for n in notes(f, q, k, v))


def test_minus_infinity_hides_a_key_and_a_row_of_it_is_nan() -> None:
    rng = np.random.default_rng(2)
    q, k, v = (rng.standard_normal((400, 16)) for _ in range(3))
    mask = np.zeros((400, 400))
    mask[5, :300] = -np.inf
    mask[6] = -np.inf
    got = np.asarray(rlx.jit(lambda q, k, v, m: attention(q, k, v, m))(q, k, v, mask))
    assert np.isnan(got[6]).all()
    rest = np.delete(np.arange(400), 6)
    assert np.max(np.abs(got[rest] - formula(q[rest], k, v, mask[rest], False))) < 1e-14


def test_nan_stays_in_its_row() -> None:
    rng = np.random.default_rng(3)
    q, k, v = (rng.standard_normal((300, 16)).astype(np.float32) for _ in range(3))
    q[7, 3] = np.nan
    got = np.asarray(rlx.jit(lambda q, k, v: attention(q, k, v))(q, k, v))
    assert np.isnan(got[7]).all() and np.isfinite(np.delete(got, 7, 0)).all()


def test_weights_that_are_wanted_are_stored() -> None:
    rng = np.random.default_rng(4)
    q, k, v = (rng.standard_normal((20, 16)).astype(np.float32) for _ in range(3))

    def both(q: Any, k: Any, v: Any) -> Any:
        p = rlx.softmax(q @ rlx.matrix_transpose(k))
        return p, p @ v

    p, out = rlx.jit(both)(q, k, v)
    assert np.allclose(np.asarray(p).sum(-1), 1, rtol=1e-6)
    assert np.allclose(np.asarray(p) @ v, np.asarray(out), atol=1e-5)


def test_gradients_are_those_of_the_formula() -> None:
    rng = np.random.default_rng(5)
    q, k, v = (rng.standard_normal((2, 20, 16)) for _ in range(3))
    f = lambda q, k, v: (attention(q, k, v, causal=True) ** 2).sum()
    got = rlx.jit(rlx.grad(f))(q, k, v)
    step = np.zeros_like(q)
    step[1, 3, 5] = 1e-5
    want = (float(f(q + step, k, v)) - float(f(q - step, k, v))) / 2e-5
    assert abs(float(got[1, 3, 5]) - want) < 1e-7


def test_the_report_says_why_the_library_does_not_compute_the_products() -> None:
    q = rlx.zeros((2, 64, 32), dtype=rlx.float32)
    report = rlx.jit(lambda q: attention(q, q, q)).lower(q).lowered.report
    rows = [r for r in report if r.op == "dot"]
    assert len(rows) == 2 and all(r.path == "common" for r in rows)
    assert all("without storing its scores" in why for r in rows for _, why in r.declined)
