"""Random numbers from explicit keys: no hidden state, and the same key gives the same numbers on every device.

Values come from Threefry-2x32 (20 rounds) in integer arithmetic. Keys, ``bits``, ``integers``, ``bernoulli``,
``permutation``, and ``uniform`` on [0, 1), are bit for bit the same on every device. Other draws are elementary
functions of these: the same where devices compute ``log1p``, ``erfinv`` and the like by the same expansions and round
products and sums alike, else to a few units in the last place. Every draw works under ``jit`` and ``vmap``, and is
differentiable by its real parameters unless it says otherwise.

Arguments are ``(key, shape, parameters...)``. A key is used once: ``split`` it first for more.

>>> import rlx
>>> first, second = rlx.random.split(rlx.random.key(7))
>>> rlx.random.normal(first, (2, 3)).shape
(2, 3)
"""

from rlx.random.continuous import (
    exponential,
    gumbel,
    laplace,
    logistic,
    normal,
    truncated_normal,
    uniform,
)
from rlx.random.discrete import bernoulli, categorical, choice, integers, permutation
from rlx.random.keys import bits, fold_in, key, split
from rlx.random.rejection import gamma, poisson

__all__ = ["bernoulli", "bits", "categorical", "choice", "exponential", "fold_in", "gamma", "gumbel", "integers", "key",
           "laplace", "logistic", "normal", "permutation", "poisson", "split", "truncated_normal", "uniform"]
