"""The text of every level parses back to an equal object and prints the same; failures name line and column."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlx.compile.store import MAX_INLINE
from rlx.core import dtype as dt
from rlx.core.errors import FormatError, VerifyError
from rlx.core.shape import Apply, Dim, dim, largest
from rlx.core.where import Where
from rlx.ir import loop as L
from rlx.ir.graph import Graph, Node, Type, Value, graph_scope, node, parameter, postorder
from rlx.ir.prim import COLLECTIVE, POINTWISE, PRIMITIVES
from rlx.ir.text import parse_graph, parse_kernel, parse_program, print_graph, print_kernel, print_program
from rlx.ir.text.loop_parse import STATEMENTS
from rlx.ir.text.types import type_text
from tests.ir import programs
from tests.ir.programs import PROGRAMS, lowered

F, I = dt.float64, dt.int64


def places(g: Graph) -> list[str]:
    """Where every node came from, in order, sub-graphs too; constants are shared and have no place of their own."""
    out = []
    for n in postorder((*g.inputs, *g.outputs)):
        if n.op == "input" or any(a.node.level for a in n.args):
            out.append(n.where.short)
        for sub in n.graphs:
            out += places(sub)
    return out


def levels(g: Graph) -> list[tuple[int, str | None]]:
    return [(n.level, n.device) for n in postorder((*g.inputs, *g.outputs))] + \
        [x for n in g.nodes() for sub in n.graphs for x in levels(sub)]


def check_graph(g: Graph) -> Graph:
    text = print_graph(g)
    back = parse_graph(text)
    assert print_graph(back) == text
    assert back.key() == g.key()
    assert back.name == g.name
    assert [v.type for v in back.inputs] == [v.type for v in g.inputs]
    return back


def check_program(p: L.Program) -> None:
    text = print_program(p)
    back = parse_program(text)
    assert back == p
    assert print_program(back) == text
    for k in p.kernels():
        assert parse_kernel(print_kernel(k)) == k
        assert parse_kernel(print_kernel(k)).notes == k.notes


# Real programs

@pytest.mark.parametrize("policy", ["common", "prefer_native"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_round_trip(name: str, policy: str) -> None:
    low = lowered(name, "cpu", policy)
    for g in (low.hir, low.mir):
        back = check_graph(g)
        assert places(back) == places(g)
        assert levels(back) == levels(g)
    assert low.program is not None
    check_program(low.program)


def test_programs_use_every_primitive() -> None:
    used: set[str] = set()

    def visit(g: Graph) -> None:
        for n in g.nodes():
            used.add(n.op)
            for sub in n.graphs:
                visit(sub)

    for name in PROGRAMS:
        visit(programs.graph(name))
        visit(lowered(name).mir)
        visit(lowered(name, "cpu", "prefer_native").mir)
    assert PRIMITIVES - used == set(COLLECTIVE)


def test_native_calls_keep_their_claim_and_lose_their_payload() -> None:
    mir = lowered("cg", "cpu", "prefer_native").mir
    natives = [n for n in mir.nodes() if n.op == "native"]
    back = [n for n in parse_graph(print_graph(mir)).nodes() if n.op == "native"]
    assert natives and [n.attrs for n in natives] == [n.attrs for n in back]
    assert natives[0].payload is not None and back[0].payload is None


# Details

def one(type_: Type, name: str = "main") -> Value:
    return parameter(type_, 1, Where("a/b.py", 3))


@pytest.mark.parametrize("value", [
    0.0, -0.0, 1.5, 1e300, 5e-324, 0.1, math.inf, -math.inf, 3, -3, 2**63 - 1, True, False, None, 1j,
    complex(-0.0, math.inf), complex(1, -0.0), "", "a \"quoted\" # string\n\\", dt.float32, dt.bool_, dt.bfloat16,
    (), (1,), (1, 2.0, ("x", None)), ((), ()), dim("n") * 2 + 1, (dim("n"), 3)])
def test_attributes(value: object) -> None:
    def same(a: object, b: object) -> bool:
        if isinstance(a, tuple):
            return isinstance(b, tuple) and len(a) == len(b) and all(map(same, a, b))
        return type(a) is type(b) and a == b and repr(a) == repr(b)

    with graph_scope():
        x = one(Type(F, (3,)))
        n = node("neg", (x,), (x.type,), attrs=(("value", value),))
    back = check_graph(Graph((x,), n.outs))
    assert same(back.outputs[0].node.attr("value"), value)


def test_nan_attribute() -> None:
    for value in (math.nan, -math.nan, complex(math.nan, 1)):
        with graph_scope():
            n = node("const", (), (Type(F, ()),), attrs=(("value", value),))
        text = print_graph(Graph((), n.outs))
        back = parse_graph(text)
        assert print_graph(back) == text
        assert type(back.outputs[0].node.attr("value")) is type(value)


def test_an_attribute_without_a_text_is_shown_and_does_not_parse() -> None:
    with graph_scope():
        x = one(Type(F, (3,)))
        text = print_graph(Graph((x,), node("neg", (x,), (x.type,), attrs=(("how", frozenset((1,))),)).outs))
    assert 'how = opaque "frozenset({1})"' in text
    with pytest.raises(FormatError, match="an attribute that the text can hold"):
        parse_graph(text)


def test_symbolic_sizes_keep_their_bounds() -> None:
    n, m = dim("n", 1, 64), dim("batch size", 2)
    big = largest(n, m)
    shapes = [(n,), (n * 2 + 1, m), (n * n - m * 3,), (n // 3, n % m, 0), (big, n // m + 2), (m - 5,)]
    with graph_scope():
        xs = [one(Type(F, s)) for s in shapes]
    back = check_graph(Graph(tuple(xs), tuple(xs)))
    assert [v.shape for v in back.inputs] == shapes
    assert back.inputs[0].shape[0].bounds() == (1, 64)


def test_two_dimensions_of_one_name_are_refused() -> None:
    with graph_scope():
        xs = tuple(one(Type(F, (dim("n", low),))) for low in (0, 1))
    with pytest.raises(VerifyError, match="two dimensions are named n"):
        print_graph(Graph(xs, xs))


def test_leaves_devices_levels_and_places() -> None:
    a = parameter(Type(F, (2,)), 3, Where("some/file with space.py", 12, "softmax"), "python")
    foreign = parameter(Type(I, ()), 1)
    scalar = node("scalar", (), (Type(F, ()),), payload=-0.0).outs[0]
    buffer = node("buffer", (), (Type(F, (2,)), Type(I, ())), payload=(1, 2), device="cpu")
    other = node("neg", (a,), (a.type,), device="cpu", where=Where("x.py", 1)).outs[0]
    back = parse_graph(print_graph(Graph((a,), (a, foreign, scalar, *buffer.outs, other), "a name")))
    assert print_graph(back) == print_graph(Graph((a,), (a, foreign, scalar, *buffer.outs, other), "a name"))
    a2, foreign2, scalar2, b0, b1, other2 = (v.node for v in back.outputs)
    assert back.name == "a name"
    assert (a2.level, a2.device, a2.where) == (3, "python", Where("some/file with space.py", 12, "softmax"))
    assert (foreign2.op, foreign2.level) == ("input", 1)
    assert math.copysign(1, scalar2.payload) == -1
    assert b0 is b1 and b0.payload is None and b0.device == "cpu" and b0.types == buffer.types
    assert other2.device == "cpu" and other2.level == 3


# Random small graphs and kernels

SCALARS = st.one_of(st.integers(), st.floats(allow_nan=False), st.booleans(), st.text("a\"#\n\\é", max_size=4),
                    st.complex_numbers(allow_nan=False))


@st.composite
def graphs(draw: st.DrawFn, depth: int = 0) -> Graph:
    n = dim("n", 1)
    kinds = st.sampled_from([dt.float64, dt.float32, dt.int8, dt.uint64, dt.bool_, dt.complex64, dt.bfloat16])
    shape = st.lists(st.sampled_from([0, 1, 5, n, n * 2 - 1]), max_size=3).map(tuple)
    with graph_scope():
        inputs = [parameter(Type(draw(kinds), draw(shape)), depth + 1, Where("t.py", draw(st.integers(1, 9))))
                  for _ in range(draw(st.integers(1, 3)))]
        values = list(inputs)
        for _ in range(draw(st.integers(0, 6))):
            args = tuple(draw(st.lists(st.sampled_from(values), max_size=3)))
            attrs = tuple((k, draw(SCALARS)) for k in draw(st.lists(st.sampled_from("abc"), unique=True)))
            subs = (draw(graphs(depth=depth + 1)),) if depth < 2 and draw(st.integers(0, 4)) == 0 else ()
            types = tuple(Type(draw(kinds), draw(shape)) for _ in range(draw(st.integers(1, 2))))
            made: Node = node(draw(st.sampled_from(["add", "splat.render", "odd name"])), args, types, attrs=attrs,
                              graphs=subs, where=Where("u.py", 5))
            values += made.outs
        outputs = tuple(draw(st.lists(st.sampled_from(values), max_size=3)))
    return Graph(tuple(inputs), outputs, draw(st.sampled_from(["main", "<lambda>"])))


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(graphs())
def test_random_graphs(g: Graph) -> None:
    check_graph(g)


def expressions() -> st.SearchStrategy[L.Expr]:
    """Float, integer and boolean expressions over a float and an integer variable and a buffer."""
    floats = st.one_of(st.floats(allow_nan=False).map(lambda x: L.const(x, F)), st.just(L.var("x", F)),
                       st.just(L.load("b0", L.var("i"), F)))
    ints = st.one_of(st.integers(-(2**63), 2**63 - 1).map(L.const), st.just(L.var("i", I)))

    def grow(children: st.SearchStrategy[L.Expr]) -> st.SearchStrategy[L.Expr]:
        pair = st.tuples(children, children).map(lambda ab: (ab[0], ab[1] if ab[1].dtype == ab[0].dtype else ab[0]))

        def build(p: tuple[L.Expr, L.Expr], op: str) -> L.Expr:
            a, b = p
            row = POINTWISE[op]
            if a.dtype.kind not in row.kinds:
                return L.expr("cast", (a,), dt.float32 if a.dtype == F else F)
            out = dt.bool_ if row.result == "bool" else a.dtype
            return L.expr(op, (a, b)[:row.arity], out)
        ops = [n for n, r in POINTWISE.items() if r.arity <= 2 and r.result in ("same", "bool")]
        return st.builds(build, pair, st.sampled_from(ops))

    return st.recursive(st.one_of(floats, ints), grow, max_leaves=12)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(expressions(), min_size=1, max_size=4))
def test_random_expressions(es: list[L.Expr]) -> None:
    lets = tuple(L.Let(f"t{k}", e) for k, e in enumerate(es))
    loop = L.For("i", L.const(0), L.const(9), 2, L.SERIAL, (L.Let("x", L.load("b0", L.var("i"), F)), *lets))
    kernel = L.Kernel("k", (L.Param("b0", F, 9, "r"),), (loop,))
    text = print_kernel(kernel)
    assert parse_kernel(text) == kernel
    assert print_kernel(parse_kernel(text)) == text


def test_every_statement_step_and_constant() -> None:
    i, x = L.var("i"), L.var("r", dt.float32)
    consts = [L.const(v, d) for v, d in (
        (math.nan, F), (-math.inf, dt.float32), (-0.0, F), (0.1, dt.float16), (1, dt.float64), (-7, dt.int8),
        (True, dt.bool_), (complex(math.nan, -0.0), dt.complex64), (2**64 - 1, dt.uint64))]
    body = (
        L.Array("a", dt.float32, 4, "shared"),
        L.For("g", L.const(0), L.const(3), 1, L.GRID, (
            L.For("l", L.const(0), L.const(4), 1, L.BLOCK, (L.Barrier(),)),)),
        L.For("i", L.const(0), L.const(4), 2, L.UNROLL, (
            L.Register("r", L.load("a", i, dt.float32)),
            L.Assign("r", L.expr("fma", (x, x, x), dt.float32)), L.Assign("r", L.add(x, x), True),
            L.If(L.less(i, L.const(2)), (L.Store("a", i, x),), (L.Atomic("max", "b", i, L.expr("cast", (x,), F)),)),
            L.If(L.expr("not", (L.less(i, L.const(2)),), dt.bool_), ()),
            L.Contract("a", "b", i, (1, 3), "b", L.const(0), 2, 2, 2, dt.float32),
            L.Loop(L.less(L.load("c", L.const(0), I), L.const(5)), (L.Barrier(),)),
            L.Let("t", L.expr("bitcast", (x,), dt.uint32)))),
        *[L.Let(f"k{n}", c) for n, c in enumerate(consts)],
        L.Let("z", L.expr("real", (L.expr("complex", (L.const(1, F), L.const(2, F)), dt.complex128),), F)))
    params = (L.Param("b", F, 4, "rw"), L.Param("c", I, 1, "r"))
    k = L.Kernel("every.one", params, body, "notes \\ with\nlines # and signs")
    run = L.Launch(k, ("x", "n"))
    attrs = (("alpha", 2.0), ("t", (True, None)))
    native = L.Native("openblas.gemm", ("x", "y"), ((F, (2, 2)), (F, (4,))), 1, attrs, ("s",))
    steps = (run, native, L.Copy("y", "x"), L.While((run,), "p", (L.Copy("x", "y"),)), L.Branch("p", (run,), ()),
             L.Branch("p", (), (run,)), L.Repeat(3, "n", (run,)), L.Repeat("n", "m", ()))
    buffers = (L.Buffer("x", F, 4, "input", 0), L.Buffer("y", F, 4, "output", 1), L.Buffer("s", F, 4, "temp", 0, 64),
               L.Buffer("n", I, 1, "const"))
    check_program(L.Program("main", buffers, steps, 128))


def test_a_dtype_that_breaks_the_table_is_kept() -> None:
    wrong = L.expr("add", (L.const(1, F), L.load("b", L.const(0), dt.float32)), I)
    k = L.Kernel("k", (L.Param("b", F, 1, "r"),), (L.Let("t", wrong), L.Let("u", L.var("t", F))))
    assert "typed<i64>(1.0 + typed<f32>(b[0]))" in print_kernel(k)
    assert parse_kernel(print_kernel(k)) == k


def test_deep_expressions() -> None:
    """As deep as the largest expression that one kernel inlines."""
    e = L.load("b", L.const(0), F)
    for _ in range(MAX_INLINE // 2):
        e = L.expr("exp", (L.expr("sub", (L.const(1.0, F), e), F),), F)
    k = L.Kernel("k", (L.Param("b", F, 1, "r"),), (L.Let("t", e),))
    assert print_kernel(parse_kernel(print_kernel(k))) == print_kernel(k)


# Errors

@pytest.mark.parametrize(("text", "line", "column", "expected"), [
    ("", 1, 1, "'graph'"),
    ("graph main(%0) {\n  %0 = input : f65[3]\n  return %0\n}", 2, 16, "a dtype such as f64"),
    ("graph main() {\n  %0 = neg(%1) : f64[]\n  return %0\n}", 2, 12, "a value defined above"),
    ("graph main() {\n  %0 = input : f64[]\n  %0 = input : f64[]\n  return %0\n}", 3, 3, "a value not defined yet"),
    ("graph main() {\n  %0, %1 = input : f64[]\n  return %0\n}", 2, 3, "2 types, one for each output"),
    ("graph main() {\n  return %0\n}", 2, 10, "a value defined above"),
    ("graph main() {\n  %0 = input : f64[n]\n  return %0\n}", 2, 20, "a dimension that the graph's dims declare"),
    ("graph main() {\n  %0 = const {value = } : f64[]\n}", 2, 23, "an attribute"),
    ("graph main() {\n}", 2, 1, "a node such as '%1 = ...', or 'return'"),
    ("graph main() {\n  return\n} extra", 3, 3, "the end of the text"),
    ("graph main() {\n  ?", 2, 3, "a word of the IR text"),
    ('graph "\\q"() {\n}', 1, 7, "a string with JSON's escapes"),
])
def test_graph_errors(text: str, line: int, column: int, expected: str) -> None:
    with pytest.raises(FormatError) as e:
        parse_graph(text)
    assert e.value.what == f"line {line}, column {column} of the IR text: expected {expected}"
    assert e.value.why and e.value.do


@pytest.mark.parametrize(("body", "column", "expected"), [
    ("let t = x", 11, "a variable defined above"),
    ("let t = c[0]", 11, "a buffer of the kernel"),
    ("let t = frob(1)", 11, "an elementwise primitive"),
    ("let t = max(1)", 11, "2 arguments of max"),
    ("let t = cast(1)", 11, "cast<dtype>(...)"),
    ("let t = 1 < 2 < 3", 17, "parentheses around one of two comparisons"),
    ("let t = ", 3, "an expression"),
    ("goto x", 3, f"one of {', '.join(STATEMENTS)}"),
    ("contract c 2 by 2 = b[0] stride 1 1 times b[0] depth 3", 12, "a buffer of the kernel"),
    ("for i in range(0 9) serial {}", 20, "','"),
])
def test_kernel_errors(body: str, column: int, expected: str) -> None:
    with pytest.raises(FormatError) as e:
        parse_kernel(f"kernel k(b: f64[3] r) {{\n  {body}\n  }}")
    assert e.value.what.endswith(f"column {column} of the IR text: expected {expected}")


def test_program_errors() -> None:
    with pytest.raises(FormatError, match="a kernel defined above"):
        parse_program("program p arena 0 {\n  launch k(x)\n}")
    with pytest.raises(FormatError, match="one of input, output, const, temp"):
        parse_program("program p arena 0 {\n  buffer x: f64[3] spare\n}")


# Goldens and determinism

@pytest.mark.parametrize("name", ["softmax", "cg"])
@pytest.mark.parametrize("level", ["hir", "mir", "lir"])
def test_golden(name: str, level: str, golden) -> None:
    low = lowered(name)
    assert low.program is not None
    golden(f"ir/{name}.{level}.txt", print_program(low.program) if level == "lir" else print_graph(getattr(low, level)))


def test_text_does_not_depend_on_hashing() -> None:
    script = ("from rlx.ir.text import print_graph, print_program\nfrom tests.ir.programs import lowered\n"
              "for n in ('softmax', 'cg', 'control', 'contractions', 'indexing', 'columns'):\n"
              "    low = lowered(n)\n"
              "    print(print_graph(low.hir), print_graph(low.mir), print_program(low.program))\n")
    root = Path(__file__).parents[2]
    texts = []
    for seed in ("1", "2"):
        env = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(root)}
        run = subprocess.run([sys.executable, "-c", script], cwd=root, text=True, stdout=-1, check=True, env=env)
        texts.append(run.stdout)
    assert texts[0] == texts[1] and "kernel" in texts[0]


def test_apply_prints_as_a_call() -> None:
    n = dim("n")
    assert isinstance(n // 3, Dim) and isinstance((n // 3).terms[0][0][0], Apply)
    assert type_text(Type(F, (n // 3, 2))) == "f64[floordiv(n, 3), 2]"
