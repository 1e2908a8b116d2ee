"""Ops of neural networks, one file each."""

from rlx.nn.ops.attention import attention as attention
from rlx.nn.ops.conv import conv2d as conv2d
from rlx.nn.ops.norm import layer_norm as layer_norm
from rlx.nn.ops.norm import rms_norm as rms_norm
from rlx.nn.ops.pool import avg_pool2d as avg_pool2d
from rlx.nn.ops.pool import max_pool2d as max_pool2d
