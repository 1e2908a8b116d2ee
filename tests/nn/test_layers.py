"""Layers against the same formulas in NumPy, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special

import rlx
from rlx import nn
from rlx.core.errors import DTypeError, ShapeError, ValueIssue
from rlx.testing import check_grad

X = np.linspace(-4, 4, 41)
ACTIVATIONS = {
    "relu": (nn.relu, lambda x: np.maximum(x, 0)),
    "leaky_relu": (nn.leaky_relu, lambda x: np.where(x > 0, x, 0.01 * x)),
    "elu": (nn.elu, lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0)))),
    "sigmoid": (nn.sigmoid, special.expit),
    "silu": (nn.silu, lambda x: x * special.expit(x)),
    "gelu": (nn.gelu, lambda x: x * special.ndtr(x)),
    "gelu tanh": (lambda x: nn.gelu(x, "tanh"),
                  lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))),
    "softplus": (nn.softplus, lambda x: np.logaddexp(x, 0)),
    "log_softmax": (nn.log_softmax, special.log_softmax),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(device, name):
    f, ref = ACTIVATIONS[name]
    np.testing.assert_allclose(np.asarray(f(rlx.asarray(X, device=device))), ref(X), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_gradients_of_activations(name):
    check_grad(ACTIVATIONS[name][0], np.array([-3.1, -0.4, 0.3, 2.2]))


@pytest.mark.parametrize("name", ["elu", "sigmoid", "silu", "gelu", "softplus"])
def test_large_arguments_have_finite_gradients(name):
    g = np.asarray(rlx.grad(lambda x: ACTIVATIONS[name][0](x).sum())(rlx.asarray([-1e3, 1e3])))
    limit = [0, 0] if name == "sigmoid" else [0, 1]
    np.testing.assert_allclose(g, limit, atol=1e-12)


def test_gelu_has_two_forms():
    with pytest.raises(ValueIssue, match="approximate='erf'"):
        nn.gelu(rlx.ones(2), "erf")


def test_linear(device):
    layer = nn.Linear.create(5, 3, rng=0, device=device)
    x = np.random.default_rng(1).standard_normal((2, 4, 5)).astype(np.float32)
    want = x @ np.asarray(layer.weight).T + np.asarray(layer.bias)
    np.testing.assert_allclose(np.asarray(layer(rlx.asarray(x, device=device))), want, rtol=1e-5, atol=1e-6)
    assert np.abs(np.asarray(layer.weight)).max() <= 1 / np.sqrt(5)
    assert nn.Linear.create(5, 3, rng=0, bias=False).bias is None
    with pytest.raises(ShapeError, match=r"Linear of 5 inputs on an array of shape \(2, 4\)"):
        layer(rlx.ones((2, 4), dtype=rlx.float32, device=device))


def test_embedding():
    layer = nn.Embedding.create(7, 4, rng=0)
    w, i = np.asarray(layer.weight), np.array([[0, 6], [3, 3]])
    np.testing.assert_array_equal(np.asarray(layer(rlx.asarray(i))), w[i])
    np.testing.assert_array_equal(np.asarray(layer(rlx.asarray([-2, 99]))), w[[0, 6]])
    g = rlx.grad(lambda e: e(rlx.asarray([1, 1, 2])).sum())(layer)
    np.testing.assert_array_equal(np.asarray(g.weight)[:, 0], [0, 2, 1, 0, 0, 0, 0])
    with pytest.raises(DTypeError, match="Embedding of float64"):
        layer(rlx.asarray([1.0]))


def test_norms_start_at_identity_scale():
    x = np.random.default_rng(0).standard_normal((3, 64)).astype(np.float32) * 5 + 2
    y = np.asarray(nn.LayerNorm.create(64)(rlx.asarray(x)))
    np.testing.assert_allclose((y.mean(-1), y.std(-1)), ([0] * 3, [1] * 3), atol=1e-5)
    z = np.asarray(nn.RMSNorm.create(64)(rlx.asarray(x)))
    np.testing.assert_allclose(np.square(z).mean(-1), 1, atol=1e-5)
    with pytest.raises(ShapeError, match="scales are vectors"):
        nn.layer_norm(rlx.ones((2, 3)), rlx.ones(2), rlx.ones(2))


def test_dropout_is_off_without_a_key_and_keeps_the_mean_with_one():
    x, layer = rlx.ones((100, 100), dtype=rlx.float32), nn.Dropout(0.25)
    assert layer(x) is x
    y = np.asarray(rlx.jit(lambda k: layer(x, key=k))(rlx.random.key(1)))
    assert set(np.unique(y)) == {np.float32(0), np.float32(1 / 0.75)}
    assert abs((y == 0).mean() - 0.25) < 0.02
    assert (y != np.asarray(layer(x, key=rlx.random.key(2)))).any()
    with pytest.raises(ValueIssue, match="rate 1"):
        nn.Dropout(1)


def test_layers_of_a_chain_drop_different_elements():
    x = rlx.ones((1, 400), dtype=rlx.float32)
    both = np.asarray(nn.Sequential.of(nn.Dropout(0.5), nn.Dropout(0.5))(x, key=rlx.random.key(0)))
    assert abs((both == 4).mean() - 0.25) < 0.1


def test_attention_heads(device):
    layer = nn.Attention.create(6, 2, rng=0, dtype=rlx.float64, device=device)
    x = np.random.default_rng(0).standard_normal((2, 4, 6))
    mask = np.array([[True, True, False, False], [True] * 4])
    q, k, v = ((x @ np.asarray(p.weight).T + np.asarray(p.bias)).reshape(2, 4, 2, 3)
               for p in (layer.query, layer.key, layer.value))
    s = np.einsum("nihd,njhd->nhij", q, k) / np.sqrt(3)
    p = special.softmax(np.where(mask[:, None, None, :], s, -np.inf), -1)
    y = np.einsum("nhij,njhd->nihd", p, v).reshape(2, 4, 6)
    want = y @ np.asarray(layer.out.weight).T + np.asarray(layer.out.bias)
    got = layer(rlx.asarray(x, device=device), mask=rlx.asarray(mask, device=device))
    np.testing.assert_allclose(np.asarray(got), want, rtol=1e-10)


def test_causal_attention_does_not_see_the_future():
    layer = nn.Attention.create(4, 2, rng=0, causal=True, dtype=rlx.float64)
    x = np.random.default_rng(0).standard_normal((1, 5, 4))
    other = x.copy()
    other[:, 3:] += 1
    a, b = np.asarray(layer(rlx.asarray(x))), np.asarray(layer(rlx.asarray(other)))
    np.testing.assert_array_equal(a[:, :3], b[:, :3])
    assert (a[:, 3:] != b[:, 3:]).all()


@pytest.mark.parametrize(("call", "message"), [
    (lambda a: nn.attention(a((2, 3, 4)), a((2, 3, 5)), a((2, 3, 4))), "attention of q"),
    (lambda a: nn.attention(a((2, 3)), a((2, 3)), a((2, 3)), rlx.ones((2, 2), dtype=rlx.int32)), "mask of int32"),
    (lambda a: nn.attention(a((2, 3)), a((2, 3)), rlx.ones((2, 3), dtype=rlx.float32)), "float32"),
    (lambda a: nn.Attention.create(5, 2, rng=0), "size 5 in 2 heads"),
])
def test_attention_refuses(call, message):
    with pytest.raises((ShapeError, DTypeError), match=message):
        call(rlx.ones)


def test_convolution_layers():
    layer = nn.Conv2d.create(2, 4, 3, rng=0, padding="same", groups=2)
    x = rlx.ones((1, 2, 5, 6), dtype=rlx.float32)
    y = np.asarray(layer(x))
    w, b = np.asarray(layer.weight), np.asarray(layer.bias)
    assert y.shape == (1, 4, 5, 6)
    np.testing.assert_allclose(y[0, :, 2, 2], w.sum((1, 2, 3)) + b, rtol=1e-5)
    np.testing.assert_allclose(y[0, :, 0, 0], w[:, :, 1:, 1:].sum((1, 2, 3)) + b, rtol=1e-5)
    assert np.asarray(nn.AvgPool2d(2)(x)).tolist() == np.ones((1, 2, 2, 3)).tolist()
    assert nn.MaxPool2d(3, stride=1, padding=1)(x).shape == x.shape


@pytest.mark.parametrize(("call", "message"), [
    (lambda x, w: nn.conv2d(x, w[:, :1]), "in 1 groups"),
    (lambda x, w: nn.conv2d(x[0], w), "pictures are"),
    (lambda x, w: nn.conv2d(x, w, rlx.ones(3)), r"bias of shape \(3,\) for 4"),
    (lambda x, w: nn.conv2d(x, w, dilation=4), "a window spans"),
    (lambda x, w: nn.conv2d(x, w, stride=0), "stride=0"),
    (lambda x, w: nn.conv2d(x, w, padding=-1), "padding=-1"),
    (lambda x, w: nn.conv2d(x, w, padding="same", stride=2), "same"),
    (lambda x, w: nn.max_pool2d(x, 9), "a window spans"),
    (lambda x, w: nn.max_pool2d(x, 2, padding=2), "padding only"),
    (lambda x, w: nn.avg_pool2d(x[0], 2), "pictures are"),
    (lambda x, w: nn.Conv2d.create(3, 4, 3, rng=0, groups=2), "in 2 groups"),
])
def test_convolution_and_pooling_refuse(call, message):
    with pytest.raises((ShapeError, ValueIssue), match=message):
        call(rlx.ones((1, 2, 5, 5)), rlx.ones((4, 2, 3, 3)))


def test_equal_largest_elements_share_the_gradient():
    g = rlx.grad(lambda x: nn.max_pool2d(x, 2).sum())(rlx.asarray([[[[1.0, 1.0], [0.0, 1.0]]]]))
    np.testing.assert_allclose(np.asarray(g)[0, 0], [[1 / 3, 1 / 3], [0, 1 / 3]])


def net():
    return nn.Sequential.of(nn.Linear.create(4, 3, rng=0), nn.relu, nn.Flatten(),
                            nn.Linear.create(3, 2, rng=1, bias=False))


def test_modules_are_trees_with_named_arrays():
    model = net()
    assert list(nn.named(model)) == ["layers.0.weight", "layers.0.bias", "layers.3.weight"]
    assert nn.parameters(model) == 12 + 3 + 6
    doubled = nn.with_named(model, {k: v * 2 for k, v in nn.named(model).items()})
    np.testing.assert_array_equal(np.asarray(doubled.layers[3].weight), 2 * np.asarray(model.layers[3].weight))
    assert list(nn.named({"b": (1, [2]), "a": None})) == ["b.0", "b.1.0"]


@pytest.mark.parametrize(("change", "message"), [
    (lambda d: d.pop("layers.0.bias"), "1 arrays of the module are missing and 0 are not its own"),
    (lambda d: d.update(extra=1), "0 arrays of the module are missing and 1 are not its own"),
    (lambda d: d.update({"layers.0.bias": np.ones(4)}), r"layers.0.bias has shape \(4,\)"),
])
def test_arrays_of_another_module_are_refused(change, message):
    arrays = nn.named(net())
    change(arrays)
    with pytest.raises((ValueIssue, ShapeError), match=message):
        nn.with_named(net(), arrays)


def test_a_module_is_an_argument_of_a_compiled_function():
    f = rlx.jit(lambda m, x: m(x))
    x = rlx.ones((2, 4), dtype=rlx.float32)
    a, b = net(), rlx.tree_map(lambda w: w * 0, net())
    np.testing.assert_allclose(np.asarray(f(a, x)), np.asarray(a(x)), rtol=1e-6)
    assert not np.asarray(f(b, x)).any() and f.cache_size == 1


def test_numpy_batches_and_labels_are_taken():
    x, labels = np.ones((2, 4), np.float32), np.array([0, 1])
    net = nn.Sequential.of(nn.Flatten(), nn.Linear.create(4, 3, rng=0))
    out = net(x)
    assert out.dtype == rlx.float32
    np.testing.assert_array_equal(np.asarray(out), np.asarray(net(rlx.asarray(x))))
    assert nn.Embedding.create(5, 3, rng=0)(labels).shape == (2, 3)
    assert nn.cross_entropy(out, labels).item() == nn.cross_entropy(out, rlx.asarray(labels)).item()
    assert nn.accuracy(np.eye(2), labels).item() == 1.0 and nn.mse(x, x + 1).item() == 1.0


def test_a_linear_map_of_nothing():
    for sizes in ((0, 3), (-1, 3), (3, 0)):
        with pytest.raises(ValueIssue, match="Linear with"):
            nn.Linear.create(*sizes, rng=0)
