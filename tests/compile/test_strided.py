"""Reads across rows are blocked, and what is computed does not change."""

from __future__ import annotations

import numpy as np
import pytest

import rlx
from rlx.compile.strided import BLOCK
from rlx.ir import loop as L


def loops(stmts: tuple[L.Stmt, ...]) -> list[L.For]:
    found = []
    for s in stmts:
        if isinstance(s, L.For):
            found += [s, *loops(s.body)]
    return found


def kernels(f, *args):
    return [s.kernel for s in rlx.jit(f).lower(*args).lowered.program.steps if isinstance(s, L.Launch)]


@pytest.mark.parametrize(("shape", "axes"), [((300, 500), (1, 0)), ((6, 260, 200), (0, 2, 1)),
                                             ((5, 300, 129), (2, 0, 1))])
def test_a_transposed_read_goes_in_blocks(shape, axes):
    host = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    f = lambda x: rlx.permute_dims(x, axes) * 2 + 1
    x = rlx.asarray(host)
    np.testing.assert_array_equal(np.asarray(rlx.jit(f)(x)), host.transpose(axes) * 2 + 1)
    assert BLOCK in {loop.step for k in kernels(f, x) for loop in loops(k.body)}


def test_reads_along_rows_and_short_rows_are_left_alone():
    x, small = rlx.ones((300, 500)), rlx.ones((200, 20))
    for f, a in ((lambda x: x * 2 + x, x), (lambda x: x.T + 1, small.T.T), (lambda x: x + x[0], x)):
        assert {loop.step for k in kernels(f, a) for loop in loops(k.body)} <= {1}


def test_a_matrix_and_its_transpose_in_place():
    host = np.random.default_rng(0).standard_normal((333, 333))
    x = rlx.asarray(host)

    def f(x):
        return rlx.fori_loop(0, 3, lambda i, x: (x + x.T) * 0.5 + 1, x)
    want = host
    for _ in range(3):
        want = (want + want.T) * 0.5 + 1
    np.testing.assert_array_equal(np.asarray(rlx.jit(f)(x)), want)


def test_columns_of_wide_rows_sum_as_those_of_narrow_ones():
    rng = np.random.default_rng(1)
    for shape in ((700, 5000), (9000, 130), (3, 9001)):
        host = rng.standard_normal(shape)
        found = np.asarray(rlx.sum(rlx.asarray(host), axis=0))
        np.testing.assert_allclose(found, host.sum(axis=0), rtol=1e-11, atol=1e-11)
