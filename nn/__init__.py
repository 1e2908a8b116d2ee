"""Neural networks: modules as pytrees, losses, optimizers in the graph, training loops that stay on the device.

>>> import rlx
>>> from rlx import nn
>>> net = nn.Sequential.of(nn.Linear.create(4, 16, rng=0), nn.gelu, nn.Linear.create(16, 3, rng=1))
>>> labels = rlx.asarray([0, 1])
>>> loss = lambda net, x: nn.cross_entropy(net(x), labels)
>>> rlx.grad(loss)(net, rlx.ones((2, 4), dtype=rlx.float32)).layers[0].weight.shape
(16, 4)
"""

from rlx.nn.activations import elu, gelu, leaky_relu, log_softmax, relu, sigmoid, silu, softplus
from rlx.nn.bert import Bert, BertConfig, BertLayer, mean_pool
from rlx.nn.files import load, save
from rlx.nn.initial import initial
from rlx.nn.layers import (
    Attention,
    AvgPool2d,
    Conv2d,
    Dropout,
    Embedding,
    Flatten,
    LayerNorm,
    Linear,
    MaxPool2d,
    RMSNorm,
)
from rlx.nn.losses import accuracy, binary_cross_entropy, cross_entropy, huber, mae, mse
from rlx.nn.module import Activation, Module, Sequential, named, parameters, static, with_named
from rlx.nn.ops import attention, avg_pool2d, conv2d, layer_norm, max_pool2d, rms_norm
from rlx.nn.optim import (
    SGD,
    Adam,
    AdamW,
    Optimizer,
    OptimState,
    clip_by_norm,
    constant,
    cosine,
    exponential,
    global_norm,
    linear,
)
from rlx.nn.sentences import SentenceEncoder
from rlx.nn.train import TrainState, batches, start, step_of, trainer

__all__ = [
    "Module", "Sequential", "Activation", "static", "named", "with_named", "parameters",
    "Linear", "Embedding", "LayerNorm", "RMSNorm", "Dropout", "Flatten", "Conv2d", "MaxPool2d", "AvgPool2d",
    "Attention",
    "attention", "avg_pool2d", "conv2d", "layer_norm", "max_pool2d", "rms_norm",
    "elu", "gelu", "leaky_relu", "log_softmax", "relu", "sigmoid", "silu", "softplus",
    "accuracy", "binary_cross_entropy", "cross_entropy", "huber", "mae", "mse",
    "Optimizer", "OptimState", "SGD", "Adam", "AdamW", "clip_by_norm", "global_norm",
    "constant", "cosine", "exponential", "linear",
    "TrainState", "batches", "start", "step_of", "trainer",
    "Bert", "BertConfig", "BertLayer", "SentenceEncoder", "mean_pool", "load", "save",
    "initial",
]
