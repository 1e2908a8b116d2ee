"""Every splatting op against its oracle, by claim and by decomposition."""

from __future__ import annotations

import numpy as np
import pytest
import reference

import rlx
from rlx.array.define import OpFunction
from rlx.splat import ops

OPS = [ops.spherical_harmonics, ops.project, ops.count_tiles, ops.intersect, ops.rasterize, ops.rasterize_places]
CASES = [pytest.param(op, s, id=f"{op.name}-{s.name}") for op in OPS for s in op.all_samples()]


@pytest.mark.parametrize("dispatch", ["prefer_native", "common"])
@pytest.mark.parametrize(("op", "sample"), CASES)
def test_values(op: OpFunction, sample: object, dispatch: str) -> None:
    run = rlx.jit(lambda *a: op(*a, **sample.attrs), dispatch=dispatch)
    got = run(*[rlx.asarray(a) for a in sample.args])
    want = op.rules["ref"](*sample.args, **sample.attrs)
    for g, w in zip(
        got if isinstance(got, tuple) else (got,), want if isinstance(want, tuple) else (want,), strict=True
    ):
        assert np.asarray(g).dtype == w.dtype
        loose = 1e-12 if w.dtype == np.float64 else 3e-6
        np.testing.assert_allclose(np.asarray(g), w, rtol=loose, atol=loose * max(1.0, float(np.abs(w).max(initial=0))))


def test_the_python_device_agrees() -> None:
    sample = ops.rasterize.all_samples()[0]
    got = ops.rasterize(*[rlx.asarray(a, device="python") for a in sample.args], **sample.attrs)
    for g, w in zip(got, ops.rasterize.rules["ref"](*sample.args, **sample.attrs), strict=True):
        np.testing.assert_allclose(np.asarray(g), w, atol=1e-12)


@pytest.mark.parametrize("op", [ops.rasterize, ops.rasterize_places], ids=lambda o: o.name)
def test_cpu_claims_are_taken_or_decline_with_a_reason(op: OpFunction) -> None:
    double, single = op.all_samples()[:2]
    report = lambda s: rlx.explain(lambda *a: op(*a, **s.attrs), *[rlx.asarray(a) for a in s.args], device="cpu")
    assert "splat" in str(report(single).table()) and report(single).paths().get("native") == 1
    assert "needs float32" in str(report(double).table())


def test_claim_and_decomposition_agree_on_many_gaussians() -> None:
    """Odd image sizes, several batches a tile, pixels that end early, and conics that are not ellipses."""
    rng = np.random.default_rng(0)
    n, width, height = 400, 53, 37
    means = rng.uniform(-4, [width + 4, height + 4], (n, 2)).astype(np.float32)
    size = rng.uniform(0.005, 0.4, (n, 2))
    conics = np.stack([size[:, 0], rng.uniform(-0.9, 0.9, n) * np.sqrt(size.prod(1)), size[:, 1]], 1).astype(np.float32)
    conics[:3] = [[0.1, 0.5, 0.1], [-0.1, 0, 0.1], [0, 0, 0]]
    features = rng.uniform(0, 1, (n, 4)).astype(np.float32)
    opacities = rng.uniform(0.0, 1.2, n).astype(np.float32)
    tiles = -(-width // 16) * -(-height // 16)
    ids = np.concatenate([np.sort(rng.permutation(n)[:150]) for _ in range(tiles)]).astype(np.int32)
    offsets = np.arange(tiles + 1, dtype=np.int32) * 150
    args = [rlx.asarray(a) for a in (means, conics, features, opacities, ids, offsets)]
    size_ = {"width": width, "height": height}
    native, common = (
        rlx.jit(lambda *a: ops.rasterize(*a, **size_), dispatch=d)(*args) for d in ("prefer_native", "common")
    )
    ends = np.asarray(common[1]) > 0.999
    assert ends.any() and not ends.all()
    for a, b in zip(native, common, strict=True):
        # A contribution on either side of the threshold of 1/255 may differ: few pixels, and by at most that.
        d = np.abs(np.asarray(a) - np.asarray(b))
        assert d.max() < 2 / 255 and (d > 2e-5).mean() < 0.002
    d_image = rlx.asarray(rng.standard_normal((height, width, 4)).astype(np.float32))
    behind = (d_image * common[0]).sum(axis=2)
    one, two = (np.asarray(rlx.jit(lambda *a: ops.rasterize_places(*a, **size_), dispatch=d)(*args, d_image, behind))
                for d in ("prefer_native", "common"))
    d = np.abs(one - two) / (1 + np.abs(two).max(axis=0))
    assert (d > 1e-4).mean() < 0.002


def test_a_full_list_leaves_out_the_farthest() -> None:
    centres = np.full((4, 2), 8.0)
    radii = np.full((4, 2), 2, np.int32)
    ids, offsets = ops.intersect(
        rlx.asarray(centres),
        rlx.asarray(radii),
        rlx.asarray(np.array([4.0, 1.0, 3.0, 2.0])),
        width=16,
        height=16,
        capacity=3,
    )
    assert np.asarray(ids).tolist() == [1, 3, 2] and np.asarray(offsets).tolist() == [0, 3]


def test_harmonics_against_the_reference_at_every_degree() -> None:
    rng = np.random.default_rng(1)
    d, c = rng.standard_normal((50, 3)), rng.standard_normal((50, 16, 3))
    for degree in range(4):
        got = ops.spherical_harmonics(rlx.asarray(d), rlx.asarray(c), degree=degree)
        np.testing.assert_allclose(np.asarray(got), reference.harmonics(d, c[:, :(degree + 1) ** 2]), atol=1e-12)


@pytest.mark.parametrize(
    "call",
    [
        lambda: ops.spherical_harmonics(rlx.zeros((2, 3)), rlx.zeros((2, 4, 3)), degree=2),
        lambda: ops.spherical_harmonics(rlx.zeros((2, 3)), rlx.zeros((2, 4, 3)), degree=7),
        lambda: ops.project(
            rlx.zeros((2, 3)),
            rlx.zeros((2, 3)),
            rlx.zeros((2, 3)),
            rlx.zeros((2,)),
            rlx.zeros((4, 4)),
            rlx.zeros((3, 3)),
            width=8,
            height=8,
        ),
        lambda: ops.rasterize(
            rlx.zeros((2, 2)),
            rlx.zeros((2, 3)),
            rlx.zeros((2, 1)),
            rlx.zeros((2,)),
            rlx.zeros((4,), dtype=rlx.int32),
            rlx.zeros((3,), dtype=rlx.int32),
            width=8,
            height=8,
        ),
        lambda: ops.intersect(
            rlx.zeros((2, 2)), rlx.zeros((2, 2), dtype=rlx.int32), rlx.zeros((2,)), width=8, height=8, capacity=0
        ),
    ],
)
def test_wrong_shapes_are_refused(call: object) -> None:
    with pytest.raises(rlx.core.errors.RlxError) as e:
        call()
    assert e.value.why and e.value.do
