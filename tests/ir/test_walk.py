"""Walks reach every expression, statement and step, and each expression object once."""

import dataclasses
from typing import get_args

import pytest

from rlx.core.dtype import bool_, int64
from rlx.ir import loop as L
from rlx.ir.walk import bottom_up, expressions, inside, statements, steps

#: A value for each field of a statement or step that is no expression and no block, by its annotation.
PLAIN = {"str": "n", "int": 1, "int | str": 1, "bool": False, "DType": int64, "tuple[int, int]": (1, 1),
         "Kernel": L.Kernel("k", (), ())}


def fields(kind, prefix, leaf):
    """Arguments for a statement or a step of the kind: different expressions, and in its blocks a ``leaf`` each."""
    values, parts, blocks = {}, [], []
    for f in dataclasses.fields(kind):
        if f.type == "Expr":
            values[f.name] = L.var(prefix + f.name, bool_ if f.name == "cond" else int64)
            parts.append(values[f.name])
        elif f.type in ("tuple[Stmt, ...]", "tuple[Step, ...]"):
            inner = leaf(prefix + f.name)
            values[f.name] = (inner,)
            blocks.append(inner)
        elif f.default is dataclasses.MISSING:
            values[f.name] = PLAIN.get(f.type, ())
    return values, parts, blocks


@pytest.mark.parametrize("kind", get_args(L.Stmt))
def test_statements_and_their_expressions(kind):
    values, parts, blocks = fields(kind, "v_", lambda name: L.Let(name, L.var("x", int64)))
    s = kind(**values)
    assert list(expressions(s)) == parts
    assert list(statements((s, s))) == [s, *blocks] * 2


@pytest.mark.parametrize("kind", get_args(L.Step))
def test_steps(kind):
    values, _, blocks = fields(kind, "b_", lambda name: L.Copy(name, "x"))
    s = kind(**values)
    assert list(steps((s, s))) == [s, *blocks] * 2


def chain(depth):
    """``depth`` doublings of one object: a tree of it would have 2 ** depth nodes."""
    e = L.var("x", int64)
    for _ in range(depth):
        e = L.expr("add", (e, e), int64)
    return e


def test_an_object_is_visited_once_at_any_depth():
    e = chain(5000)
    assert len(list(inside(e, e))) == 5001
    done = {}
    for x in bottom_up((e, e), done):
        assert all(id(a) in done for a in x.args)
        done[id(x)] = x
    assert len(done) == 5001


def test_bottom_up_passes_over_what_is_done_or_not_needed():
    a, b = L.var("a", int64), L.var("b", int64)
    both = L.expr("add", (a, b), int64)
    done = {id(a)}
    found = []
    for x in bottom_up((both,), done):
        found.append(x)
        done.add(id(x))
    assert found == [b, both]
    done, found = set(), []
    for x in bottom_up((both,), done, lambda e: e.args[:1]):
        found.append(x)
        done.add(id(x))
    assert found == [a, both]


def test_a_key_joins_equal_expressions():
    twice = L.expr("add", (L.var("a", int64), L.var("a", int64)), int64)
    done = {}
    for x in bottom_up((twice,), done, key=lambda e: e):
        done[x] = True
    assert len(done) == 2
