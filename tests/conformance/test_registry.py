"""What every op must own, seen at collection: an oracle, samples, a way to run, a derivative or the reason for none."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import rlx
from rlx.array.array import FUNCTIONS
from rlx.array.define import OpFunction
from rlx.core import dtype as dt
from rlx.ir.graph import postorder
from rlx.ir.op import REGISTRY, NotDifferentiable, Op
from rlx.ir.prim import COLLECTIVE, CONTROL, PRIMITIVES
from rlx.tools import cases as C

#: Nodes that only a transform makes: ``call`` holds a user's function together with its own derivative.
STRUCTURAL = {"call"}
OPS = [o for o in C.ops() if o.name not in {*STRUCTURAL, *COLLECTIVE}]
#: Primitives without a rules holder: a parameter and a literal compute nothing, ``native`` stands for any claimed op,
#: and collectives need several members: those that vmap gives a meaning have their own tests.
NO_OP = {"input", "const", "native", *COLLECTIVE}
#: Differentiated by the transforms through their sub-graphs; and the one primitive that has no arguments.
BY_TRANSFORM = {*CONTROL, "iota"}
every_op = pytest.mark.parametrize("op", OPS, ids=[o.name for o in OPS])


def test_every_primitive_is_registered() -> None:
    assert {o.name for o in OPS if o.primitive} == PRIMITIVES - NO_OP


@every_op
def test_it_has_an_oracle(op: Op) -> None:
    assert callable(op.rules.get("ref")), f"{op.name} has no @{op.name}.ref"


@every_op
def test_it_has_samples(op: Op) -> None:
    assert op.all_samples(), f"{op.name} has no @{op.name}.samples"


@every_op
def test_sample_names_are_unique(op: Op) -> None:
    names = [c.id for c in C.cases(op)]
    assert len(set(names)) == len(names)


@every_op
def test_it_is_a_primitive_or_decomposes(op: Op) -> None:
    assert op.primitive or isinstance(op, OpFunction)
    if op.primitive and op.name != "cond":  # the types of a cond are those of its branches
        assert op.rule("infer") is not None


@every_op
def test_its_gradient_is_a_rule_or_a_reason(op: Op) -> None:
    """A decomposition is differentiated through; a primitive needs a rule of its own, or says why there is none."""
    if not op.primitive or op.name in BY_TRANSFORM:
        return
    found = {r: op.rules[r] for r in ("grad", "jvp", "partials") if r in op.rules}
    assert found, f"{op.name} has neither a derivative nor NotDifferentiable"
    assert all(callable(f) or (isinstance(f, NotDifferentiable) and f.why) for f in found.values())


@every_op
def test_it_is_documented(op: Op) -> None:
    if op.primitive and op.name not in {p for p in PRIMITIVES if op.doc}:
        return  # primitives are documented by the grammar of rlx.ir.prim
    assert (op.doc or "").strip(), f"{op.name} has no docstring"


@every_op
def test_every_decomposition_ends_in_primitives(op: Op) -> None:
    """Followed to the end, with the types of its first sample."""
    if op.primitive:
        return
    case = C.cases(op)[0]
    todo = [rlx.jit(C.function([case])).trace([case.arrays("cpu")]).graph]
    while todo:
        for n in postorder(todo.pop().outputs):
            todo.extend(n.graphs)
            if n.op == "input" or n.op in PRIMITIVES:
                continue
            todo.append(REGISTRY[n.op].graph(tuple(a.type for a in n.args),
                                             dict(n.attrs)))  # type: ignore[attr-defined]


@every_op
def test_integers_and_float32_are_kept(op: Op) -> None:
    """An op given float32 answers in 32 bits: no constant in a decomposition promotes it."""
    for case in C.cases(op):
        hosts = case.hosts()
        attr = case.sample.attrs.get("dtype")
        if op.primitive or attr is not None or not any(h.dtype == np.float32 for h in hosts):
            continue
        if any(h.dtype in (np.float64, np.complex128) for h in hosts):
            continue
        program = rlx.jit(C.function([case])).trace([case.arrays("cpu")]).graph
        assert not [v.type for v in program.outputs if v.dtype in (dt.float64, dt.complex128)], case.id


PUBLIC = sorted(n for n in FUNCTIONS if not n.startswith("_"))


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_function_is_documented(name: str) -> None:
    assert (inspect.getdoc(FUNCTIONS[name]) or "").strip()


def test_every_public_function_is_in_the_namespace() -> None:
    """Those of the ops' floor; a domain's functions are in the domain's module."""
    own = [n for n in PUBLIC if "." not in n and FUNCTIONS[n].__module__.startswith("rlx.ops.")]
    assert own
    assert not [n for n in own if getattr(rlx, n, None) is not FUNCTIONS[n]]
