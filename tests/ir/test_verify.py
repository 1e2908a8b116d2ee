"""The verifier: every rule of every grammar, broken once, and what the message says; real programs pass."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rlx import device as devices
from rlx.compile import pipeline
from rlx.core import dtype as dt
from rlx.core import flags
from rlx.core.errors import FormatError, VerifyError
from rlx.core.shape import dim
from rlx.core.where import Where
from rlx.ir import loop as L
from rlx.ir.graph import Graph, Node, Type, Value, graph_scope, node, parameter
from rlx.ir.text import parse_graph, parse_kernel, parse_program, print_graph, print_program
from rlx.ir.verify import verify_hir, verify_kernel, verify_mir, verify_program
from tests.ir.programs import PROGRAMS, f64, graph, lowered

F, I, B = dt.float64, dt.int64, dt.bool_


# What the compiler makes passes

@pytest.mark.parametrize("on", ["cpu", "python"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_real_programs_pass(name: str, on: str) -> None:
    verify_hir(graph(name))
    low = lowered(name, on, "prefer_native")
    assert verify_hir(low.hir) is low.hir
    assert verify_mir(low.mir) is low.mir
    assert (low.program is None) == (devices.find(on).caps.schedule == "graph")
    if low.program is not None:
        assert verify_program(low.program) is low.program
        assert verify_program(parse_program(print_program(low.program))) == low.program
    verify_mir(parse_graph(print_graph(low.mir)))


# Graphs

def text_graph(body: str, inputs: str = "%0") -> str:
    lines = [f"graph main({inputs}) {{", "  %0 = input : f64[3, 4]", *("  " + line for line in body.split("\n")), "}"]
    return "\n".join(lines)


BROKEN_GRAPHS: dict[str, tuple[str, str]] = {
    # pointwise
    "arity": ("%1 = add(%0) : f64[3, 4]\nreturn %1", "it takes 2 operands, not 1"),
    "outputs": ("%1, %2 = neg(%0) : f64[3, 4], f64[3, 4]\nreturn %1", "it has 1 outputs, not 2"),
    "shapes": ("%1 = const {value = 1.0} : f64[]\n%2 = add(%0, %1) : f64[3, 4]\nreturn %2",
               "operands have shapes f64[3, 4], f64[]"),
    "dtypes": ("%1 = cast(%0) {dtype = f32} : f32[3, 4]\n%2 = add(%0, %1) : f64[3, 4]\nreturn %2",
               "operands of add have dtypes float64, float32"),
    "kinds": ("%1 = lt(%0, %0) : bool[3, 4]\n%2 = add(%1, %1) : bool[3, 4]\nreturn %2", "add does not take bool"),
    "result": ("%1 = lt(%0, %0) : f64[3, 4]\nreturn %1", "its type must be bool[3, 4]"),
    "condition": ("%1 = select(%0, %0, %0) : f64[3, 4]\nreturn %1", "the condition of select is float64, not bool"),
    "bitcast": ("%1 = bitcast(%0) {dtype = i32} : i32[3, 4]\nreturn %1", "changes the width"),
    "cast": ("%1 = cast(%0) : f32[3, 4]\nreturn %1", "cast needs a dtype"),
    # sources
    "const kind": ("%1 = const {value = 1} : f64[]\nreturn %1", "its value 1 is no float"),
    "const range": ("%1 = const {value = 300} : u8[]\nreturn %1", "its value 300 does not fit uint8"),
    "const shape": ("%1 = const {value = 1.0} : f64[2]\nreturn %1", "a constant is a scalar"),
    "iota type": ("%1 = iota {dtype = i64, size = 3} : i64[4]\nreturn %1", "its type rule gives i64[3]"),
    "iota dtype": ("%1 = iota {dtype = bool, size = 3} : bool[3]\nreturn %1", "an iota cannot be bool"),
    "iota axes": ("%1 = iota {dtype = i64, size = 3} : i64[3, 1]\nreturn %1", "an iota has one axis"),
    # movement
    "reshape": ("%1 = reshape(%0) {shape = (5, 2)} : f64[5, 2]\nreturn %1", "it turns 12 elements into 10"),
    "permute axes": ("%1 = permute(%0) {axes = (0, 0)} : f64[3, 3]\nreturn %1", "are not distinct axes"),
    "permute all": ("%1 = permute(%0) {axes = (0,)} : f64[3]\nreturn %1", "a permutation names every axis"),
    "broadcast": ("%1 = broadcast(%0) {shape = (4,)} : f64[4]\nreturn %1", "a broadcast cannot drop an axis"),
    "broadcast sizes": ("%1 = broadcast(%0) {shape = (5, 4)} : f64[5, 4]\nreturn %1",
                        "its type rule fails: ShapeError"),
    "slice end": ("%1 = slice(%0) {size = (2, 4), start = (2, 0), step = (1, 1)} : f64[2, 4]\nreturn %1",
                  "its last element 3 is past the end of an axis of 3"),
    "slice step": ("%1 = slice(%0) {size = (1, 1), start = (0, 0), step = (0, 1)} : f64[1, 1]\nreturn %1",
                   "step (0, 1) has an entry below 1"),
    "slice count": ("%1 = slice(%0) {size = (1,), start = (0, 0), step = (1, 1)} : f64[1]\nreturn %1",
                    "needs 2 entries"),
    "pad fill": ("%1 = pad(%0, %0) {high = (0, 0), low = (0, 0)} : f64[3, 4]\nreturn %1",
                 "the fill of f64[3, 4] is f64[3, 4]"),
    "flip": ("%1 = flip(%0) {axes = (2,)} : f64[3, 4]\nreturn %1", "are not distinct axes of an array of 2"),
    "concat sizes": ("%1 = permute(%0) {axes = (1, 0)} : f64[4, 3]\n%2 = concat(%0, %1) {axis = 0} : f64[7, 4]\n"
                     "return %2",
                     "it joins f64[3, 4] with f64[4, 3]"),
    "concat dtypes": ("%1 = cast(%0) {dtype = f32} : f32[3, 4]\n%2 = concat(%0, %1) {axis = 0} : f64[6, 4]\nreturn %2",
                      "it joins float64 with float32"),
    "concat none": ("%1 = concat {axis = 0} : f64[6, 4]\nreturn %1", "a concatenation needs an operand"),
    "window": ("%1 = window(%0) {axes = (0,), dilation = (1,), size = (0,), step = (1,)} : f64[4, 4, 0]\nreturn %1",
               "size (0,) has an entry below 1"),
    # indexing
    "gather dtype": ("%1 = gather(%0, %0) : f64[3, 4, 4]\nreturn %1", "indices of float64 are no integers"),
    "gather count": ("%1 = gather(%0) : f64[3, 4]\nreturn %1", "it has 0 indices for 2 axes"),
    "gather mode": ("%1 = iota {dtype = i64, size = 2} : i64[2]\n%2 = gather(%0, %1) {mode = \"wrap\"} : f64[2, 4]\n"
                    "return %2", "there is no mode 'wrap'"),
    "gather shapes": ("%1 = iota {dtype = i64, size = 2} : i64[2]\n%2 = iota {dtype = i64, size = 3} : i64[3]\n"
                      "%3 = gather(%0, %1, %2) : f64[2]\nreturn %3", "its indices have different shapes"),
    "scatter update": ("%1 = iota {dtype = i64, size = 2} : i64[2]\n"
    "%2 = scatter(%0, %0, %1) {kind = \"add\"} : f64[3, 4]\n"
                       "return %2", "its update is f64[3, 4], not f64[2, 4]"),
    "scatter kind": ("%1 = iota {dtype = i64, size = 3} : i64[3]\n"
    "%2 = scatter(%0, %0, %1) {kind = \"sub\"} : f64[3, 4]\n"
                     "return %2", "there is no scatter kind 'sub'"),
    # contraction
    "dot dtypes": ("%1 = cast(%0) {dtype = f32} : f32[3, 4]\n"
                   "%2 = dot(%0, %1) {batch = ((), ()), contract = ((0,), (0,))} : f64[4, 4]\nreturn %2",
                   "it contracts float64 with float32"),
    "dot axes": ("%1 = dot(%0, %0) {batch = ((0,), (0,)), contract = ((0,), (0,))} : f64[3]\nreturn %1",
                 "contracted and batch axes (0, 0)"),
    "dot sizes": ("%1 = dot(%0, %0) {batch = ((), ()), contract = ((0,), (1,))} : f64[4, 3]\nreturn %1",
                  "its type rule fails: ShapeError: cannot contract"),
    "reduce kind": ("%1 = reduce(%0) {axes = (0,), kind = \"mean\"} : f64[4]\nreturn %1",
                    "there is no reduction 'mean'"),
    "reduce axes": ("%1 = reduce(%0) {axes = (1, 0), kind = \"sum\"} : f64[]\nreturn %1",
                    "its axes must be some, in order"),
    "reduce dtype": ("%1 = reduce(%0) {axes = (0,), kind = \"and\"} : f64[4]\nreturn %1", "and does not take float64"),
    "reduce type": ("%1 = reduce(%0) {axes = (0,), kind = \"sum\"} : f64[3]\nreturn %1", "its type rule gives f64[4]"),
    "segment": ("%1 = iota {dtype = i64, size = 3} : i64[3]\n%2 = segment_reduce(%0, %1) {kind = \"or\"} : f64[2, 4]\n"
                "return %2", "there is no segment reduction 'or'"),
    "segment offsets": ("%1 = segment_reduce(%0, %0) {kind = \"sum\"} : f64[2, 4]\nreturn %1", "offsets of float64"),
    "scan": ("%1 = scan(%0) {axis = 2, kind = \"add\", reverse = false} : f64[3, 4]\nreturn %1", "axis (2,)"),
    "scan kind": ("%1 = scan(%0) {axis = 0, kind = \"sum\", reverse = false} : f64[3, 4]\nreturn %1",
                  "there is no scan 'sum'"),
    "sort": ("%1 = reduce(%0) {axes = (0,), kind = \"sum\"} : f64[4]\n"
             "%2, %3 = sort(%0, %1) {axis = 0, descending = false} : f64[3, 4], f64[4]\nreturn %2",
             "keys and payloads have different shapes"),
    "attribute": ("%1 = reduce(%0) {axes = (0,)} : f64[4]\nreturn %1", "its type rule fails: KeyError"),
    "extra attribute": ("%1 = flip(%0) {axes = (0,), what = 1} : f64[3, 4]\nreturn %1",
                        "its type rule fails: TypeError"),
    "twice": ("%1 = flip(%0) {axes = (0,), axes = (0,)} : f64[3, 4]\nreturn %1", "an attribute is given twice"),
    # control
    "while graphs": ("%1 = while(%0) {carry = 1} : f64[3, 4]\nreturn %1", "it has a condition and a body"),
    "while condition": ("%1 = while(%0) {carry = 1} : f64[3, 4]\n  graph c(%0) {\n  %0 = input : f64[3, 4]\n"
    "  return %0\n}\n"
                        "  graph b(%0) {\n  %0 = input : f64[3, 4]\n  return %0\n}\nreturn %1",
                        "graph c gives (f64[3, 4]), it must give (bool[])"),
    "while carry": ("%1 = while(%0) {carry = 2} : f64[3, 4]\nreturn %1", "it carries 2 of 1 operands"),
    "loop count": ("%1 = loop(%0, %0) {carry = 1} : f64[3, 4]\nreturn %1", "its count is f64[3, 4], not i64[]"),
    "loop body": ("%1 = const {value = 3} : i64[]\n%2 = loop(%1, %0) {carry = 1} : f64[3, 4]\n  graph b(%0) {\n"
                  "  %0 = input : f64[3, 4]\n  return %0\n}\nreturn %2",
                  "graph b takes (f64[3, 4]), its operands are (i64[], f64[3, 4])"),
    "cond branches": ("%1 = const {value = 0} : i32[]\n%2 = cond(%1) : f64[3, 4]\nreturn %2", "it has no branch"),
    "cond index": ("%1 = cond(%0) : f64[3, 4]\n  graph b() {\n  %0 = const {value = 1.0} : f64[]\n  return %0\n}\n"
                   "return %1",
                   "its index is f64[3, 4], not i32[]"),
    "cond outputs": ("%1 = const {value = 0} : i32[]\n%2 = cond(%1) : f64[3, 4]\n  graph b() {\n"
                     "  %0 = const {value = 1.0} : f64[]\n  return %0\n}\nreturn %2", "it must give (f64[3, 4])"),
    # structure
    "foreign input": ("%1 = input : f64[]\nreturn %1", "graph main uses an input that is not one of its parameters"),
    "open sub-graph": ("%1 = const {value = 0} : i32[]\n%2 = cond(%1) : f64[]\n  graph b() {\n  %0 = input : f64[]\n"
                       "  return %0\n}\nreturn %2", "graph b uses an input that is not one of its parameters"),
    "storage": ("%1 = scalar {value = 1.0} : f64[]\nreturn %1", "a scalar holds storage"),
    "no primitive": ("%1 = softmax(%0) {axis = -1} : f64[3, 4]\nreturn %1", "the op is no primitive"),
    "negative size": ("%1 = reshape(%0) {shape = (-3, -4)} : f64[-3, -4]\nreturn %1", "the size -3 is negative"),
    "native": ("%1 = native(%0) {op = \"dot\"} : f64[3, 4]\nreturn %1", "a native call names its claim"),
    "collective": ("%1 = all_reduce(%0) : f64[3, 4]\n  graph b() {\n  return\n}\nreturn %1",
                   "a collective has no sub-graph"),
}


@pytest.mark.parametrize("case", BROKEN_GRAPHS)
def test_broken_mir(case: str) -> None:
    body, why = BROKEN_GRAPHS[case]
    with pytest.raises(VerifyError) as e:
        verify_mir(parse_graph(text_graph(body)))
    assert why in e.value.why, e.value.why
    assert e.value.what.startswith("MIR: ") and " : " in e.value.what and e.value.do


def test_the_error_shows_the_node_and_its_line() -> None:
    with pytest.raises(VerifyError) as e:
        verify_mir(parse_graph(text_graph("%1 = add(%0, %0) : f32[3, 4]  # mine/code.py:7\nreturn %1")))
    assert e.value.what == "MIR: add(f64[3, 4], f64[3, 4]) : f32[3, 4]"
    assert e.value.where == "mine/code.py:7"


def made(op: str, args: tuple[Value, ...], types: tuple[Type, ...], **kw: Any) -> Node:
    with graph_scope():
        return node(op, args, types, **kw)


def refused(verify: Callable[[Any], Any], what: Any, why: str) -> None:
    with pytest.raises(VerifyError) as e:
        verify(what)
    assert why in e.value.why, e.value.why


def test_broken_structure() -> None:
    x = parameter(f64(3), 1)
    low = made("neg", (x,), (f64(3),), where=Where("a.py", 1))
    object.__setattr__(low, "level", 0)
    refused(verify_hir, Graph((x,), low.outs), "its level is 0, the highest level of its arguments 1")
    refused(verify_hir, Graph((x, x), (x,)), "its inputs are")
    refused(verify_hir, Graph(made("const", (), (f64(),), attrs=(("value", 1.0),)).outs, (x,)),
            "so it must be an input")
    refused(verify_hir, Graph((x,), made("no_such_op", (x,), (f64(3),)).outs), "nothing registered the op")
    refused(verify_hir, Graph((x,), made("softmax", (x,), (f64(4),), attrs=(("axis", -1),)).outs),
            "its type rule gives f64[3]")
    refused(verify_hir, Graph((x,), made("softmax", (x,), (f64(3),), attrs=(("axis", -1),),
                                         graphs=(Graph((), ()),)).outs), "only while, cond and loop have sub-graphs")
    zero = parameter(f64(3), 0)
    refused(verify_hir, Graph((zero,), (zero,)), "a parameter has a level of at least 1")
    wrong = made("neg", (x,), (f64(3),), attrs=(("odd", 1),))
    foreign = Value(x.node, 0)
    wrong._outs = (weakref.ref(foreign),)
    refused(verify_hir, Graph((x,), (Value(wrong, 0),)), "output 0 belongs to another node")
    refused(verify_hir, Graph((x,), made("neg", (Value(x.node, 1),), (f64(3),)).outs),
            "an argument is no output of a node")


def test_hir_may_hold_storage_and_symbols_and_other_ops() -> None:
    n = dim("n", 1)
    x = parameter(Type(F, (n, n * 2)), 1)
    y = made("softmax", (x,), (x.type,), attrs=(("axis", -1),))
    buffer = node("buffer", (), (f64(3),), payload=(None,))
    verify_hir(Graph((x,), (*y.outs, *buffer.outs)))


# Kernels

BROKEN_KERNELS: dict[str, tuple[str, str]] = {
    "undefined": ("let t = b[0]\nstore w[0] = t + q", "a variable defined above"),
    "twice": ("let t = b[0]\nlet t = b[1]", "t is already defined"),
    "shadow": ("for i in range(0, 3) serial {\nfor i in range(0, 3) serial {\n}\n}", "i is already defined"),
    "buffer name": ("let b = 1", "b is already defined"),
    "read only": ("store b[0] = 1.0", "b is read only"),
    "write only": ("let t = w[0]", "w is write only"),
    "store dtype": ("store w[0] = 1", "w holds float64, the value is int64"),
    "load dtype": ("let t = typed<f32>(b[0])", "b holds float64, not float32"),
    "variable dtype": ("let t = 1\nlet u = typed<f64>(t)", "t is int64, not float64"),
    "index dtype": ("let t = b[1.0]", "the index of b is no integer"),
    "store index": ("store w[1.0] = 1.0", "the index of w is float64"),
    "load bounds": ("let t = b[4]", "index 4 is outside b, which has 4 elements"),
    "store bounds": ("store w[-1] = 1.0", "index -1 is outside w, which has 4 elements"),
    "prim dtypes": ("let t = typed<f64>(1.0 + f32(1.0))", "operands of add have dtypes float64, float32"),
    "prim kinds": ("let t = sqrt(1)", "sqrt does not take int64"),
    "prim result": ("let t = typed<i64>(1.0 + 1.0)", "add gives float64, not int64"),
    "bitcast": ("let t = bitcast<i32>(1.0)", "a bitcast from float64 to int32 changes the width"),
    "select": ("let t = select(1, 2, 3)", "the condition of select is int64, not bool"),
    "constant kind": ("let t = f64(1)", "the float64 constant 1 is no float"),
    "constant range": ("let t = u8(256)", "256 does not fit uint8"),
    "no register": ("let t = 1\nset t = 2", "t is no register in scope"),
    "register scope": ("if true {\nvar t = 1\n}\nset t = 2", "t is no register in scope"),
    "register dtype": ("var t = 1\nset t = 2.0", "register t is int64, the value float64"),
    "combine": ("var t = 1\ncombine t = 2 + 3", "add does not combine t with a value in any order"),
    "combine op": ("var t = 1\ncombine t = t - 3", "sub does not combine t"),
    "vector": ("var t = 1\nfor i in range(0, 3) vector {\nset t = t + i\n}",
               "a vector loop sets the outer register t in order"),
    "loop kind": ("for i in range(0, 3) spiral {\n}", "there is no loop kind 'spiral'"),
    "loop dtypes": ("for i in range(0, i32(3)) serial {\n}", "it runs from int64 to int32"),
    "loop float": ("for i in range(0.0, 3.0) serial {\n}", "both must be one integer type"),
    "step": ("for i in range(0, 3, 0) serial {\n}", "its step is 0"),
    "grid inside": ("for i in range(0, 3) serial {\nfor g in range(0, 3) grid {\n}\n}",
                    "a grid loop inside a serial loop"),
    "grid extent": ("let n = 3\nfor g in range(0, n) grid {\n}", "the extent of a grid loop is a constant"),
    "grid start": ("for g in range(1, 3) grid {\n}", "from 0 in steps of 1"),
    "grid depth": ("for a in range(0, 2) grid {\nfor c in range(0, 2) grid {\nfor d in range(0, 2) grid {\n"
                   "for e in range(0, 2) grid {\n}\n}\n}\n}", "grid loops are at most 3 deep"),
    "grid beside": ("for g in range(0, 3) grid {\n}\nstore w[0] = 1.0",
                    "beside a grid loop only values may be defined"),
    "two grids": ("for g in range(0, 3) grid {\n}\nfor h in range(0, 3) grid {\n}", "beside a grid loop"),
    "block in vector": ("for i in range(0, 3) vector {\nfor l in range(0, 3) block {\n}\n}",
                        "a block loop inside a vector loop"),
    "vector in vector": ("for i in range(0, 3) vector {\nfor j in range(0, 3) vector {\n}\n}",
                         "a vector loop inside a vector"),
    "barrier alone": ("barrier", "a barrier outside any workgroup"),
    "barrier in vector": ("for g in range(0, 3) grid {\nfor i in range(0, 3) vector {\nbarrier\n}\n}",
                          "inside a vector loop"),
    "if": ("if 1 {\n}", "the condition is int64, not bool"),
    "while": ("while 1.0 {\n}", "the condition is float64, not bool"),
    "space": ("array a: f64[3] global", "there is no space 'global'"),
    "array size": ("array a: f64[0] local", "an array of 0 elements"),
    "array scope": ("if true {\narray a: f64[3] local\n}\nstore a[0] = 1.0", "there is no buffer a in scope"),
    "contract dtype": ("array a: f32[4] local\ncontract a 2 by 2 = b[0] stride 1 1 times b[0] depth 2",
                       "b holds float64, the contraction is in float32"),
    "contract access": ("array a: f64[4] local\ncontract a 2 by 2 = w[0] stride 1 1 times b[0] depth 2",
                        "w is write only"),
    "contract size": ("array a: f64[3] local\ncontract a 2 by 2 = b[0] stride 1 1 times b[0] depth 2",
                      "a has 3 elements for a tile of 2 by 2"),
    "contract tile": ("array a: f64[3] local\ncontract a 2 by 0 = b[0] stride 1 1 times b[0] depth 2",
                      "a tile of 2 by 0"),
    "atomic": ("atomic xor w[0] = 1.0", "there is no atomic 'xor'"),
}


@pytest.mark.parametrize("case", BROKEN_KERNELS)
def test_broken_kernels(case: str) -> None:
    body, why = BROKEN_KERNELS[case]
    text = f"kernel k(b: f64[4] r, w: f64[4] w) {{\n{body}\n}}"
    with pytest.raises((VerifyError, FormatError)) as e:
        verify_kernel(parse_kernel(text))
    assert why in e.value.why + e.value.what, str(e.value)
    if isinstance(e.value, VerifyError):
        assert e.value.what.startswith("LIR: ") and e.value.where == "kernel k"


def test_broken_kernels_that_have_no_text() -> None:
    p = L.Param("b", F, 4, "r")
    refused(verify_kernel, L.Kernel("k", (p, p), ()), "two parameters are named b")
    refused(verify_kernel, L.Kernel("k", (replace(p, access="x"),), ()), "parameter b has access 'x'")
    refused(verify_kernel, L.Kernel("k", (replace(p, size=-1),), ()), "parameter b has size -1")
    refused(verify_kernel, L.Kernel("a b", (), ()), "'a b' is not a name")
    refused(verify_kernel, L.Kernel("k", (replace(p, name="true"),), ()), "'true' is not a name")
    refused(verify_kernel, L.Kernel("k", (), (L.Let("t", L.var("q")),)), "q is used before it is defined")
    refused(verify_kernel, L.Kernel("k", (), (L.Let("t", L.load("q", L.const(0), F)),)),
            "there is no buffer q in scope")
    refused(verify_kernel, L.Kernel("k", (), (L.Store("q", L.const(0), L.const(1.0, F)),)),
            "there is no buffer q in scope")
    refused(verify_kernel, L.Kernel("k", (), (L.Let("t", L.expr("frob", (), F)),)), "frob is no elementwise primitive")


# Programs

GOOD = """
kernel k(b: f64[4] r, w: f64[4] w) {
  store w[0] = b[0]
}
program p arena 256 {
  buffer x: f64[4] input slot 0
  buffer y: f64[4] output slot 0
  buffer t: f64[4] temp offset 0
  buffer p: bool[1] temp offset 64
  buffer n: i64[1] temp offset 128
  buffer f: f64[1] temp offset 192
  STEPS
  launch k(x, y)
}
"""

BROKEN_STEPS: dict[str, tuple[str, str]] = {
    "count": ("launch k(x)", "it binds 1 buffers to 2 parameters"),
    "missing": ("launch k(x, z)", "there is no buffer z"),
    "size": ("launch k(x, f)", "w is f64[4], f is f64[1]"),
    "dtype": ("launch k(n, y)", "b is f64[4], n is i64[1]"),
    "unwritten": ("launch k(t, y)", "t is read before anything writes it"),
    "input": ("launch k(x, x)", "it writes x, which is an input"),
    "copy type": ("copy p = x", "it copies f64[4] to bool[1]"),
    "copy unwritten": ("copy y = t", "t is read before anything writes it"),
    "copy input": ("copy x = x", "it writes x, which is an input"),
    "native size": ('native "c" (x: f64[3]) to (y: f64[4])', "x is f64[4], its type f64[3]"),
    "native input": ('native "c" (t: f64[4]) to (y: f64[4])', "t is read before anything writes it"),
    "native output": ('native "c" (x: f64[4]) to (x: f64[4])', "it writes x, which is an input"),
    "native scratch": ('native "c" (x: f64[4]) to (y: f64[4]) scratch (z)', "there is no buffer z"),
    "predicate": ("if f {\n}", "the predicate f is f64[1], not one bool"),
    "predicate unwritten": ("if p {\n}", "p is read before anything writes it"),
    "branch": ('native "c" () to (p: bool[1])\nif p {\ncopy t = x\n} else {\n}\ncopy y = t',
               "t is read before anything writes it"),
    "while": ("while {\n} holds p {\n}", "p is read before anything writes it"),
    "while body": ('while {\nnative "c" () to (p: bool[])\n} holds p {\ncopy t = x\n}\ncopy y = t', "t is read before"),
    "repeat count": ("repeat f counter n {\n}", "the count f is f64[1], not an i64"),
    "repeat negative": ("repeat -1 counter n {\n}", "the count is -1"),
    "repeat counter": ("repeat 3 counter f {\n}", "the counter f is f64[1], not one i64"),
    "repeat zero": ("repeat 0 counter n {\ncopy t = x\n}\ncopy y = t", "t is read before anything writes it"),
}


def test_the_unbroken_program_passes() -> None:
    verify_program(parse_program(GOOD.replace("STEPS", "")))


@pytest.mark.parametrize("case", BROKEN_STEPS)
def test_broken_steps(case: str) -> None:
    steps, why = BROKEN_STEPS[case]
    with pytest.raises(VerifyError) as e:
        verify_program(parse_program(GOOD.replace("STEPS", steps)))
    assert why in e.value.why, e.value.why
    assert e.value.what.startswith("LIR: ") and e.value.where == "program p"


def test_broken_programs() -> None:
    good = parse_program(GOOD.replace("STEPS", ""))

    def change(**parts: Any) -> L.Program:
        return replace(good, buffers=tuple(replace(b, **parts) if b.name == "t" else b for b in good.buffers))

    refused(verify_program, change(name="x"), "two buffers are named x")
    refused(verify_program, change(role="spare"), "buffer t has role 'spare'")
    refused(verify_program, change(size=-1), "buffer t has size -1")
    refused(verify_program, change(offset=250), "temp t ends at byte 282 of an arena of 256")
    refused(verify_program, change(offset=4), "temp t is not aligned to its elements")
    refused(verify_program, change(role="const", offset=8), "is no temp, yet has an offset")
    refused(verify_program, change(role="input", slot=2), "input slots are [0, 2]")
    refused(verify_program, change(role="output", slot=1), "nothing writes the output t")
    refused(verify_program, replace(good, name="1"), "'1' is not a name")
    (launch,) = good.steps
    assert isinstance(launch, L.Launch)
    other = replace(launch, kernel=replace(launch.kernel, body=()))
    refused(verify_program, replace(good, steps=(launch, other)), "two kernels are named k")
    short = L.Native("c", ("x",), (), 1)
    refused(verify_program, replace(good, steps=(short,)), "it has 0 types for 1 buffers")
    refused(verify_program, replace(good, steps=(L.Native("c", ("x",), ((F, (4,)),), 2),)), "it reads 2 of 1 buffers")
    bad = replace(launch, kernel=replace(launch.kernel, body=(L.Barrier(),)))
    with pytest.raises(VerifyError) as e:
        verify_program(replace(good, steps=(bad,)))
    assert e.value.where == "kernel k"


# The flags

def test_the_pipeline_verifies_every_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    real = pipeline.simplify
    spoiled: list[str] = []

    def spoil(g: Graph) -> Graph:
        out = real(g)
        v = out.outputs[0]
        spoiled.append(v.node.op)
        wrong = made(v.node.op, v.node.args, (Type(dt.float32, v.shape),), attrs=v.node.attrs)
        return Graph(out.inputs, wrong.outs, out.name)

    monkeypatch.setattr(pipeline, "simplify", spoil)
    with flags.flags(verify=True), pytest.raises(VerifyError, match="HIR: softmax"):
        pipeline.compile_graph(graph("softmax"), devices.find("cpu"))
    assert spoiled == ["softmax"]


def test_dump_writes_every_level(tmp_path: Path) -> None:
    with flags.flags(dump=str(tmp_path / "here")):
        low = lowered.__wrapped__("softmax")
        lowered.__wrapped__("softmax")
    files = sorted((tmp_path / "here").iterdir())
    assert [f.name.split(".", 1)[1] for f in files] == ["hir.txt", "lir.txt", "mir.txt"]
    assert all(f.name.startswith("softmax-") for f in files)
    assert files[0].read_text() == print_graph(low.hir)
    assert files[1].read_text() == print_program(low.program)
