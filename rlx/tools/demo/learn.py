"""A network learns to read figures: every epoch is one program, its batches and its optimizer included."""

from __future__ import annotations

from time import perf_counter

import numpy as np

import rlx
from rlx import nn
from rlx.nn.figures import seven_segment
from rlx.tools.demo.setting import Setting

PICTURES, EPOCHS, BATCH = 4000, 12, 64


def loss(model: nn.Module, x: rlx.Array, y: rlx.Array) -> rlx.Array:
    """Cross entropy of the figures."""
    return nn.cross_entropy(model(x), y)


def main(setting: Setting) -> bool:
    """Train, print and draw: true when nine of ten unseen figures are read."""
    x, y = seven_segment(PICTURES + 1000)
    known, unseen = [[rlx.asarray(a[part], device=setting.device) for a in (x.reshape(len(x), -1), y)]
                     for part in (slice(PICTURES), slice(PICTURES, None))]
    model = nn.Sequential.of(nn.Linear.create(144, 64, rng=0, device=setting.device), nn.relu,
                             nn.Linear.create(64, 10, rng=1, device=setting.device))
    optimizer = nn.AdamW(nn.cosine(1e-2, EPOCHS * (PICTURES // BATCH)), weight_decay=1e-3)
    run, right = nn.trainer(loss, optimizer), rlx.jit(lambda model, x, y: nn.accuracy(model(x), y))
    state, rng, curve, shares = nn.start(model, optimizer), np.random.default_rng(0), [], []
    seconds = 0.0
    for epoch in range(EPOCHS):
        order = rlx.asarray(nn.batches(PICTURES, BATCH, rng=rng), device=setting.device)
        begin = perf_counter()
        state, losses = run(state, tuple(known), order)
        curve.extend(np.asarray(losses).tolist())
        seconds = perf_counter() - begin if epoch else 0.0
        shares.append(float(right(state.model, *unseen)))
    print(f"{PICTURES} pictures, {EPOCHS} epochs: loss {curve[0]:.2f} to {np.mean(curve[-20:]):.3f}, {shares[-1]:.1%} "
          f"of 1000 unseen figures read, {PICTURES // BATCH * BATCH / seconds:,.0f} pictures/s")
    setting.show(rlx.explain(run, state, tuple(known), order, device=setting.device), "the program of one epoch")
    _plot(curve, shares, setting)
    return shares[-1] > 0.9


def _plot(curve: list[float], shares: list[float], setting: Setting) -> None:
    drawn = setting.axes()
    if drawn is None:
        return
    figure, ax = drawn
    steps = len(curve) // len(shares)
    ax.plot(curve, linewidth=0.8)
    ax.set_xlabel("step")
    ax.set_ylabel("cross entropy")
    other = ax.twinx()
    other.plot(np.arange(1, len(shares) + 1) * steps, shares, "o-", color="C1", markersize=3)
    other.set_ylim(0, 1)
    other.set_ylabel("share of unseen figures read", color="C1")
    ax.set_title(f"144-64-10, AdamW, batches of {BATCH}, on {setting.device}", fontsize=10)
    ax.grid(alpha=0.25)
    setting.save(figure, "training.png")
