"""Training against PyTorch: from the same weights, over the same batches in the same order, the same curve."""

from __future__ import annotations

import numpy as np
import pytest

import rlx
from rlx import nn
from rlx.nn.figures import seven_segment

torch = pytest.importorskip("torch", reason="PyTorch is not installed (pip install torch)")

X, Y = seven_segment(256, noise=0.05)
X = X[:, None]
ORDER = nn.batches(256, 32, rng=1, epochs=6)


def mlp():
    rng = np.random.default_rng(3)
    return nn.Sequential.of(nn.Flatten(), nn.Linear.create(144, 32, rng=rng), nn.gelu, nn.LayerNorm.create(32),
                            nn.Linear.create(32, 10, rng=rng))


def cnn():
    rng = np.random.default_rng(4)
    return nn.Sequential.of(
        nn.Conv2d.create(1, 6, 3, padding=1, rng=rng), nn.relu, nn.MaxPool2d(2),
        nn.Conv2d.create(6, 8, 3, stride=2, dilation=2, padding=2, groups=2, rng=rng), nn.silu,
        nn.AvgPool2d(2, stride=1), nn.Flatten(), nn.Linear.create(32, 10, rng=rng))


def torch_mlp():
    t = torch.nn
    return t.Sequential(t.Flatten(), t.Linear(144, 32), t.GELU(), t.LayerNorm(32), t.Linear(32, 10))


def torch_cnn():
    t = torch.nn
    return t.Sequential(t.Conv2d(1, 6, 3, padding=1), t.ReLU(), t.MaxPool2d(2),
                        t.Conv2d(6, 8, 3, stride=2, dilation=2, padding=2, groups=2), t.SiLU(),
                        t.AvgPool2d(2, stride=1), t.Flatten(), t.Linear(32, 10))


OPTIMIZERS = {
    "sgd": (nn.SGD(0.1, momentum=0.9, nesterov=True, weight_decay=1e-3),
            lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True, weight_decay=1e-3)),
    "adam": (nn.Adam(1e-2), lambda p: torch.optim.Adam(p, 1e-2)),
    "adamw": (nn.AdamW(1e-2, weight_decay=0.1), lambda p: torch.optim.AdamW(p, 1e-2, weight_decay=0.1)),
    "clipped": (nn.Adam(1e-2, clip=0.5), lambda p: torch.optim.Adam(p, 1e-2)),
}


def pairs(net, model):
    """The parameters of both, by their place: layer and field."""
    for name, v in nn.named(model).items():
        _, at, field = name.split(".")
        yield getattr(net[int(at)], field), v


def torch_curve(net, optimizer, clip):
    x, y = torch.from_numpy(X), torch.from_numpy(Y).long()
    losses = []
    for rows in ORDER:
        batch = torch.from_numpy(rows).long()
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(x[batch]), y[batch])
        loss.backward()
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(net.parameters(), clip)
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("kind", sorted(OPTIMIZERS))
@pytest.mark.parametrize("make, peer", [(mlp, torch_mlp), (cnn, torch_cnn)], ids=["mlp", "cnn"])
def test_the_training_curve_is_pytorchs(make, peer, kind):
    model, net = make(), peer()
    assert len(list(net.parameters())) == len(nn.named(model))
    with torch.no_grad():
        for p, v in pairs(net, model):
            p.copy_(torch.from_numpy(np.array(v)))
    ours, theirs = OPTIMIZERS[kind]
    run = nn.trainer(lambda m, x, y: nn.cross_entropy(m(x), y), ours)
    state, losses = run(nn.start(model, ours), (rlx.asarray(X), rlx.asarray(Y)), rlx.asarray(ORDER))
    want = torch_curve(net, theirs(net.parameters()), 0.5 if kind == "clipped" else None)
    # Rounding differs by the order of sums, and training spreads it: the first step agrees to float32's precision.
    np.testing.assert_allclose(losses[0], want[0], rtol=1e-6)
    np.testing.assert_allclose(losses, want, rtol=2e-4)
    assert want[-1] < 0.9 * want[0]
    for p, v in pairs(net, state.model):
        np.testing.assert_allclose(v, p.detach().numpy(), atol=5e-4)


def test_schedules_are_pytorchs():
    rate = torch.nn.Parameter(torch.zeros(1))
    for ours, make in ((nn.cosine(0.1, 20), lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 20)),
                       (nn.linear(0.1, 20), lambda o: torch.optim.lr_scheduler.LinearLR(o, 1.0, 1e-9, 20)),
                       (nn.exponential(0.1, 0.5, 10),
                        lambda o: torch.optim.lr_scheduler.ExponentialLR(o, 0.5 ** 0.1))):
        optimizer = torch.optim.SGD([rate], 0.1)
        schedule = make(optimizer)
        for step in range(20):
            assert float(ours(rlx.asarray(step))) == pytest.approx(schedule.get_last_lr()[0], rel=1e-5, abs=1e-7)
            optimizer.step()
            schedule.step()
