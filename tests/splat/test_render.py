"""Rendering against the float64 reference, its gradients against differences, and its refusals."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import reference
from scenes import arrays, random_scene, view

import rlx
from rlx import splat
from rlx.core.errors import RlxError, TraceError, ValueIssue


def expect(g: splat.Gaussians, c: splat.Camera, **kw: object) -> reference.Picture:
    return reference.render(*[a.astype(np.float64) for a in arrays(g)], np.asarray(c.world_to_camera, np.float64),
                            np.asarray(c.intrinsics, np.float64), c.width, c.height, **kw)


@pytest.mark.parametrize("degree", [0, 1, 2, 3])
@pytest.mark.parametrize("antialiased", [False, True])
def test_float64_equals_the_reference(degree: int, antialiased: bool) -> None:
    g, c = random_scene(degree=degree, seed=degree), view()
    back = (0.2, 0.5, 0.9)
    got = splat.render(g, c, splat.RenderSettings(background=back, antialiased=antialiased))
    want = expect(g, c, background=back, antialiased=antialiased)
    assert want.alpha.max() > 0.9 and want.alpha.min() < 0.1
    for name in ("rgb", "alpha", "depth"):
        np.testing.assert_allclose(np.asarray(getattr(got, name)), getattr(want, name), atol=1e-10)


def test_float32_equals_the_reference_but_at_thresholds() -> None:
    g, c = random_scene(300, seed=3, dtype=rlx.float32), view(70, 50, rlx.float32)
    got, want = splat.render(g, c), expect(g, c)
    for name in ("rgb", "alpha"):
        d = np.abs(np.asarray(getattr(got, name)) - getattr(want, name))
        assert d.max() < 2 / 255 and (d > 1e-4).mean() < 0.005


@pytest.mark.parametrize("tile", [8, 16, 32])
def test_the_tile_does_not_matter(tile: int) -> None:
    g, c = random_scene(seed=5), view(45, 31)
    got = splat.render(g, c, splat.RenderSettings(tile=tile))
    np.testing.assert_allclose(np.asarray(got.rgb), expect(g, c).rgb, atol=1e-10)


def test_nothing_to_draw_gives_the_background() -> None:
    c = view(20, 10, rlx.float32)
    empty = splat.Gaussians.create(
        np.zeros((0, 3)), np.zeros((0, 3)), np.zeros((0, 4)), np.zeros(0), np.zeros((0, 1, 3))
    )
    behind = splat.Gaussians.create([[0.4, 0.7, -9.0]], [[1, 1, 1]], [[1, 0, 0, 0]], [0.9], [[[1, 1, 1]]])
    for g in (empty, behind):
        image = splat.render(g, c, splat.RenderSettings(background=(0.25, 0.5, 1.0)))
        np.testing.assert_array_equal(np.asarray(image.rgb), np.broadcast_to(np.float32([0.25, 0.5, 1.0]), (10, 20, 3)))
        assert float(image.alpha.max()) == 0 and int(image.pairs) == 0


def test_a_nan_gaussian_is_not_drawn() -> None:
    g, c = random_scene(seed=6), view()
    bad = arrays(g)
    bad[0] = np.concatenate([bad[0], [[np.nan, 0, 0]]])
    rest = [np.concatenate([a, a[:1]]) for a in bad[1:]]
    got = splat.render(splat.Gaussians.create(bad[0], *rest, dtype=rlx.float64), c)
    np.testing.assert_allclose(np.asarray(got.rgb), expect(g, c).rgb, atol=1e-10)


def test_a_new_view_compiles_nothing() -> None:
    from rlx.runtime.execute import PROGRAMS
    g = random_scene(seed=7)
    cameras = splat.Camera.orbit(4, center=(0, 0, 0), radius=2.5, width=40, height=30)
    splat.render(g, cameras[0]).rgb.block_until_ready()
    before = PROGRAMS.compiles
    for c in cameras[1:]:
        splat.render(g, c, splat.RenderSettings(background=(0.1, 0.2, 0.3))).rgb.block_until_ready()
    assert before == PROGRAMS.compiles


def test_gradients_of_every_field_and_of_the_camera() -> None:
    """Along a random direction each, against central differences of the compiled loss."""
    rng = np.random.default_rng(0)
    g, c = random_scene(12, seed=8), view(24, 20)
    settings = splat.RenderSettings(capacity=4096, antialiased=True)
    w, wd = rlx.asarray(rng.standard_normal((20, 24, 3))), rlx.asarray(rng.standard_normal((20, 24)))

    def loss(g: splat.Gaussians, c: splat.Camera) -> rlx.Array:
        image = splat.render(g, c, settings)
        return (image.rgb * w).sum() + ((image.alpha + image.depth) * wd).sum()

    value, gradient = rlx.jit(loss), rlx.jit(rlx.grad(loss, argnums=(0, 1)))
    parts = (g, c)
    for which, got in enumerate(gradient(g, c)):
        names = ("means", "scales", "rotations", "opacities", "sh") if which == 0 else ("world_to_camera", "intrinsics")
        for name in names:
            at = np.asarray(getattr(parts[which], name))
            direction = rng.standard_normal(at.shape)
            if name == "world_to_camera":
                direction[3] = 0
            if name == "intrinsics":
                direction[[0, 1, 2, 2, 2], [1, 0, 0, 1, 2]] = 0
            moved = []
            for step in (1e-6, -1e-6):
                new = list(parts)
                new[which] = dataclasses.replace(parts[which], **{name: rlx.asarray(at + step * direction)})
                moved.append(float(value(*new)))
            numeric = (moved[0] - moved[1]) / 2e-6
            analytic = float((np.asarray(getattr(got, name)) * direction).sum())
            assert analytic == pytest.approx(numeric, rel=1e-5, abs=1e-5), name


def test_float32_gradients_are_those_of_float64() -> None:
    """The claim of the backward pass against its decomposition in float64."""
    settings = splat.RenderSettings(capacity=4096)
    loss = rlx.jit(rlx.grad(lambda g, c: (splat.render(g, c, settings).rgb ** 2).sum()))
    wide = loss(random_scene(20, seed=9), view())
    narrow = loss(random_scene(20, seed=9, dtype=rlx.float32), view(dtype=rlx.float32))
    for a, b in zip(arrays(narrow), arrays(wide), strict=True):
        np.testing.assert_allclose(a, b, atol=2e-3 * np.abs(b).max())


def test_a_traced_render_needs_room() -> None:
    g, c = random_scene(seed=1), view()
    with pytest.raises(TraceError, match="traced") as e:
        rlx.jit(lambda g: splat.render(g, c).rgb)(g)
    assert "capacity" in e.value.do
    room = splat.capacity(g, c)
    image = rlx.jit(lambda g: splat.render(g, c, splat.RenderSettings(capacity=room)))(g)
    splat.check_room(image, room)
    np.testing.assert_allclose(np.asarray(image.rgb), expect(g, c).rgb, atol=1e-10)
    with pytest.raises(ValueIssue, match="room for 8"):
        splat.check_room(splat.render(g, c, splat.RenderSettings(capacity=8)), 8)


@pytest.mark.parametrize("pairs", [0, 1, 4096, 4097, 5119, 5121, 100_001, 1 << 24])
def test_buckets_waste_little(pairs: int) -> None:
    room = splat.bucket(pairs)
    assert room >= pairs and (room <= pairs * 1.26 or room == 4096) and splat.bucket(room) == room


def test_cameras() -> None:
    c = splat.Camera.look_at((1, 2, 3), (1, 2, 8), width=64, height=48, fov=90)
    m = np.asarray(c.world_to_camera, np.float64)
    np.testing.assert_allclose(m @ [1, 2, 8, 1], [0, 0, 5, 1], atol=1e-6)
    np.testing.assert_allclose(m @ [1, 3, 8, 1], [0, -1, 5, 1], atol=1e-6)  # up is towards smaller y
    assert float(c.intrinsics[0, 0]) == pytest.approx(24)
    assert np.linalg.det(m[:3, :3]) == pytest.approx(1)
    for c in splat.Camera.orbit(5, center=(0, 1, 0), radius=2, width=8, height=8):
        np.testing.assert_allclose(np.asarray(c.world_to_camera) @ [0, 1, 0, 1], [0, 0, 2, 1], atol=1e-6)
    half = c.resized(16, 4)
    assert (half.width, half.height) == (16, 4)
    np.testing.assert_allclose(np.asarray(half.intrinsics)[[0, 1], [2, 2]], [8, 2])


@pytest.mark.parametrize("make", [
    lambda: splat.Camera.look_at((0, 0, 0), width=8, height=8),
    lambda: splat.Camera.look_at((0, 1, 0), width=8, height=8),
    lambda: splat.Camera.look_at((0, 0, 1), width=8, height=8, fov=200),
    lambda: splat.Camera.create(np.eye(3), np.eye(3), 8, 8),
    lambda: splat.Camera.create(np.eye(4), np.eye(3), 0, 8),
    lambda: splat.RenderSettings(near=-1),
    lambda: splat.RenderSettings(sh_degree=5),
    lambda: splat.RenderSettings(tile=17),
    lambda: splat.Gaussians.create([[0, 0]], [[1, 1, 1]], [[1, 0, 0, 0]], [1], [[[1, 1, 1]]]),
    lambda: splat.Gaussians.create([[0, 0, 0]], [[1, 1, 1]], [[1, 0, 0, 0]], [1], np.zeros((1, 5, 3))),
    lambda: splat.Gaussians.create([[0, 0, 0]], [[1, 1, 1]], [[1, 0, 0, 0]], [1], [[[1, 1, 1]]], dtype=rlx.int32),
])
def test_wrong_arguments_are_refused(make: object) -> None:
    with pytest.raises(RlxError) as e:
        make()
    assert e.value.why and e.value.do


def test_raw_parameters_come_back() -> None:
    g = random_scene(seed=2)
    for a, b in zip(arrays(splat.Gaussians.from_raw(*g.to_raw())), arrays(g), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
