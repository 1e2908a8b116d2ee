"""ONNX models as rlx programs: what a model is, what it is checked for, and what a hostile file meets."""

from __future__ import annotations

import os

import numpy as np
import pytest

import rlx
from rlx.core.errors import DTypeError, FormatError, ShapeError, TraceError, ValueIssue
from rlx.formats import safetensors

onnx = pytest.importorskip("onnx", reason="the onnx package is not installed")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

from rlx.formats import onnx as frontend  # noqa: E402

RNG = np.random.default_rng(0)


def info(name, shape, kind=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def model_of(nodes, inputs, outputs, held=None, version=18, functions=(), imports=()):
    arrays = [numpy_helper.from_array(np.asarray(v), n) for n, v in (held or {}).items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, arrays)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", version), *imports],
                             functions=list(functions))


def f32(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def convolutional():
    """Two convolutions with pooling, and a flattening whose size is computed by the model itself."""
    node = helper.make_node
    held = {"w1": f32(4, 1, 3, 3), "b1": f32(4), "w2": f32(6, 4, 3, 3), "d": f32(24, 10), "e": f32(10),
            "zero": np.array([0]), "rest": np.array([-1])}
    nodes = [node("Conv", ["x", "w1", "b1"], ["a"], pads=[1, 1, 1, 1]), node("Relu", ["a"], ["b"]),
             node("MaxPool", ["b"], ["c"], kernel_shape=[2, 2], strides=[2, 2]),
             node("Conv", ["c", "w2"], ["f"], auto_pad="SAME_UPPER"), node("Relu", ["f"], ["g"]),
             node("MaxPool", ["g"], ["h"], kernel_shape=[2, 2], strides=[2, 2]),
             node("Shape", ["h"], ["s"]), node("Gather", ["s", "zero"], ["n"]),
             node("Concat", ["n", "rest"], ["t"], axis=0), node("Reshape", ["h", "t"], ["r"]),
             node("Gemm", ["r", "d", "e"], ["y"])]
    return model_of(nodes, [info("x", ["N", 1, 8, 8])], [info("y", ["N", 10])], held)


def test_a_model_is_a_program_with_its_weights_as_leaves(tmp_path):
    proto = convolutional()
    path = tmp_path / "net.onnx"
    onnx.save(proto, path)
    model = frontend.load(path)
    x = f32(3, 1, 8, 8)
    want, = ReferenceEvaluator(proto).run(None, {"x": x})
    np.testing.assert_allclose(model(x), want, rtol=1e-4, atol=1e-5)
    assert sorted(model.weights) == ["b1", "d", "e", "w1", "w2"] and not model.program.stepwise
    assert [str(p) for p in (*model.inputs, *model.outputs)] == ["x: float32[N, 1, 8, 8]", "y: float32[N, 10]"]
    for source in (str(path), path.read_bytes(), proto):
        np.testing.assert_array_equal(frontend.load(source)(x=x), model(x))
    safetensors.save(tmp_path / "net.safetensors", model.weights)
    assert safetensors.load(tmp_path / "net.safetensors")["w2"].shape == (6, 4, 3, 3)


def test_a_model_is_differentiated_batched_and_compiled_into_other_programs():
    model = frontend.load(convolutional())
    x = rlx.asarray(f32(2, 1, 8, 8))

    def loss(model, x):
        return (model(x) ** 2).mean()
    slope = rlx.grad(loss)(model, x)
    step = 1e-2
    bias = np.asarray(model.weights["e"])

    def at(v):
        weights = {**model.weights, "e": rlx.asarray(v)}
        return float(loss(type(model)(weights, model.program), x))
    unit = np.eye(10, dtype=np.float32)[3] * step
    assert float(slope.weights["e"][3]) == pytest.approx((at(bias + unit) - at(bias - unit)) / (2 * step), rel=1e-2)
    assert slope.weights["w1"].shape == (4, 1, 3, 3) and float(abs(slope.weights["w1"]).max()) > 0
    each = rlx.vmap(lambda one: model(one[None])[0])(x)
    np.testing.assert_allclose(each, model(x), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(rlx.jit(lambda m, x: m(x) + 1)(model, x), np.asarray(model(x)) + 1, rtol=1e-6)


def test_a_model_runs_on_another_device():
    model, x = frontend.load(convolutional(), device="python"), f32(1, 1, 8, 8)
    assert model(x).device == "python"
    np.testing.assert_allclose(model(x), model.to_device("cpu")(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("given, error, words", [
    ({}, ValueIssue, "'x' is missing"),
    ({"x": f32(1, 1, 8, 8), "z": 1}, ValueIssue, "'z' is unknown"),
    ({"x": f32(1, 1, 8, 8).astype(np.float64)}, DTypeError, "'x' is of type float64"),
    ({"x": f32(1, 1, 8, 9)}, ShapeError, "'x' has shape"),
    ({"x": f32(1, 8, 8)}, ShapeError, r"float32\[N, 1, 8, 8\]"),
])
def test_wrong_inputs_are_named(given, error, words):
    with pytest.raises(error, match=words):
        frontend.load(convolutional())(**given)


def test_too_many_inputs_are_named():
    with pytest.raises(ValueIssue, match="2 inputs"):
        frontend.load(convolutional())(f32(1, 1, 8, 8), 1)


# Control flow

def branching():
    """Twice x or x's first half, by a flag: branches of different shapes."""
    node = helper.make_node
    then = helper.make_graph([node("Mul", ["x", "two"], ["t"])], "then", [], [info("t", None)],
                             [numpy_helper.from_array(np.float32(2), "two")])
    half = {"s": [0], "e": [2]}
    other = helper.make_graph([node("Slice", ["x", "s", "e"], ["u"])], "else", [], [info("u", None)],
                              [numpy_helper.from_array(np.array(v), n) for n, v in half.items()])
    nodes = [node("If", ["flag"], ["y"], then_branch=then, else_branch=other)]
    return model_of(nodes, [info("x", [4]), info("flag", [], TensorProto.BOOL)], [info("y", None)])


def test_shapes_that_depend_on_a_flag_are_programs_for_each_of_its_values():
    model, x = frontend.load(branching()), f32(4)
    np.testing.assert_allclose(model(x, True), 2 * x)
    np.testing.assert_allclose(model(x, False), x[:2])
    assert not model.program.stepwise and len(model.program.decided) == 2
    np.testing.assert_allclose(model(x, True), 2 * x)
    # One attempt to compile it for any flag, and one program for each flag.
    assert [len(p.compiled.misses) for p in (model.program, *model.program.decided.values())] == [1, 1, 1]
    bound = model.bind(flag=False)
    assert [p.name for p in bound.inputs] == ["x"]
    np.testing.assert_allclose(rlx.jit(lambda m, x: m(x))(bound, x), x[:2])
    with pytest.raises(TraceError, match="different types"):
        rlx.jit(lambda m, x, f: m(x, f))(model, rlx.asarray(x), rlx.asarray(True))
    with pytest.raises(ValueIssue, match="'other' to bind"):
        model.bind(other=1)


def test_shapes_that_depend_on_data_run_node_by_node():
    nodes = [helper.make_node("NonZero", ["x"], ["y"])]
    model = frontend.load(model_of(nodes, [info("x", [4])], [info("y", None, TensorProto.INT64)]))
    assert model(np.float32([0, 1, 0, 2])).tolist() == [[1, 3]] and model.program.stepwise
    assert model(np.float32([1, 1, 0, 2])).tolist() == [[0, 1, 3]]
    with pytest.raises(TraceError, match="NonZero"):
        rlx.jit(model)(rlx.ones(4, dtype=rlx.float32))


@pytest.mark.parametrize("count", [3, 40])
def test_a_loop_is_unrolled_or_one_of_the_program(count):
    node = helper.make_node
    body = helper.make_graph([node("Mul", ["a", "w"], ["b"]), node("Add", ["b", "x"], ["d"]),
                              node("Identity", ["go"], ["on"]), node("Identity", ["d"], ["row"])],
                             "body", [info("i", [], TensorProto.INT64), info("go", [], TensorProto.BOOL),
                                      info("a", [2])],
                             [info("on", [], TensorProto.BOOL), info("d", [2]), info("row", [2])])
    proto = model_of([node("Loop", ["m", "yes", "x"], ["last", "rows"], body=body)], [info("x", [2])],
                     [info("last", [2]), info("rows", [count, 2])],
                     {"w": np.float32([0.5]), "m": np.array(count), "yes": np.array(True)})
    x = f32(2)
    want = ReferenceEvaluator(proto).run(None, {"x": x})
    model = frontend.load(proto)
    for g, w in zip(model(x), want, strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-5)
    assert not model.program.stepwise
    slope = rlx.grad(lambda x: model(x)[0].sum())(rlx.asarray(x))
    np.testing.assert_allclose(slope, sum(0.5 ** k for k in range(count + 1)), rtol=1e-5)


def test_a_loop_that_ends_by_data_is_one_of_the_program():
    node = helper.make_node
    body = helper.make_graph([node("Add", ["a", "a"], ["b"]), node("Less", ["b", "top"], ["on"])], "body",
                             [info("i", [], TensorProto.INT64), info("go", [], TensorProto.BOOL), info("a", [])],
                             [info("on", [], TensorProto.BOOL), info("b", [])])
    proto = model_of([node("Less", ["x", "top"], ["first"]), node("Loop", ["", "first", "x"], ["y"], body=body)],
                     [info("x", [])], [info("y", [])], {"top": np.float32(100)})
    model = frontend.load(proto)
    assert float(model(np.float32(3))) == 192 and float(model(np.float32(200))) == 200
    assert not model.program.stepwise


def test_functions_of_the_model_and_of_the_standard_are_expanded():
    node = helper.make_node
    own = helper.make_function("mine", "Twice", ["a"], ["b"], [node("Add", ["a", "a"], ["c"]), node(
        "LeakyRelu", ["c"], ["b"])], [helper.make_opsetid("", 18)], ["alpha"])
    own.node[1].attribute.add(name="alpha", type=onnx.AttributeProto.FLOAT, ref_attr_name="alpha")
    nodes = [node("Twice", ["x"], ["t"], domain="mine", alpha=0.25),
             node("NegativeLogLikelihoodLoss", ["t", "k"], ["y"])]
    proto = model_of(nodes, [info("x", [2, 3]), info("k", [2], TensorProto.INT64)], [info("y", [])], functions=[own],
                     imports=[helper.make_opsetid("mine", 1)])
    x = np.float32([[1, -2, 3], [-4, 5, 6]])
    assert float(frontend.load(proto)(x, np.array([1, 0]))) == pytest.approx((1 + 2) / 2)


# Bad files

def refused(source, words, error=FormatError):
    with pytest.raises(error, match=words):
        frontend.load(source)


def test_an_unknown_operator_is_named_with_its_node_domain_and_version():
    def one(op, **more):
        return model_of([helper.make_node(op, ["x"], ["y"], name="here", **more)], [info("x", [2])], [info("y", [2])],
                        imports=[helper.make_opsetid("com.example", 3)])
    refused(one("Frobnicate"), r"(?s)'Frobnicate' of node .*'here'.*ONNX's own domain, operator set 18")
    refused(one("Add", domain="com.example"), r"(?s)'Add'.*'here'.*'com.example', operator set 3")


def test_operators_can_be_added_by_their_users():
    @frontend.operator("Triple", domain="test.rows", host=True)
    def triple(c, x):
        return x * 3
    try:
        proto = model_of([helper.make_node("Triple", ["x"], ["y"], domain="test.rows")], [info("x", [2])],
                         [info("y", [2])], imports=[helper.make_opsetid("test.rows", 1)])
        assert frontend.load(proto)(np.float32([1, 2])).tolist() == [3, 6]
    finally:
        del frontend.TABLE["test.rows", "Triple"]


def test_what_is_no_model_is_refused(tmp_path):
    refused(tmp_path / "none.onnx", "there is no file")
    refused(b"\xff\xff\xff\xffnot a model", "not an ONNX model")
    refused(b"", "not an ONNX model")
    refused(12, "of type int")
    raw = convolutional().SerializeToString()
    refused(raw[:len(raw) // 2], "not an ONNX model|bytes|no ")


def held_model(tensor):
    proto = model_of([helper.make_node("Add", ["x", "w"], ["y"])], [info("x", None)], [info("y", None)])
    proto.graph.initializer.append(tensor)
    return proto


@pytest.mark.parametrize("dims, raw, words", [
    ([2 ** 40], b"\0" * 8, "8 bytes, its header says"), ([2 ** 62, 4], b"\0" * 4, "its header says"),
    ([-3], b"\0" * 12, "negative"), ([3], b"\0" * 16, "16 bytes"),
])
def test_sizes_that_lie_are_refused_before_memory_is_taken(dims, raw, words):
    refused(held_model(TensorProto(name="w", data_type=1, dims=dims, raw_data=raw)), words)


def test_values_that_are_too_few_are_refused():
    refused(held_model(TensorProto(name="w", data_type=1, dims=[2 ** 50], float_data=[1.0, 2.0])), "'w' of shape")
    refused(held_model(TensorProto(name="w", data_type=17, dims=[1], raw_data=b"\0")), "FLOAT8E4M3FN")


def outside(location, size=8, **said):
    tensor = TensorProto(name="w", data_type=1, dims=[2], data_location=TensorProto.EXTERNAL)
    for k, v in {"location": location, "offset": 0, "length": size, **said}.items():
        tensor.external_data.add(key=k, value=str(v))
    return held_model(tensor)


def test_external_data_are_read_from_the_models_folder(tmp_path):
    (tmp_path / "w.bin").write_bytes(b"\0" * 4 + np.float32([5, 6]).tobytes())
    path = tmp_path / "m.onnx"
    path.write_bytes(outside("w.bin", offset=4).SerializeToString())
    assert frontend.load(path)(np.float32([1, 1])).tolist() == [6, 7]
    refused(path.read_bytes(), "bytes have no folder|in another file")


@pytest.mark.parametrize("location", ["../secret", "/etc/passwd", "a/../../secret", "..\\secret", "", "link",
                                      "C:secret"])
def test_external_data_elsewhere_are_refused(tmp_path, location):
    folder = tmp_path / "folder"
    folder.mkdir()
    (tmp_path / "secret").write_bytes(b"\0" * 8)
    os.symlink(tmp_path / "secret", folder / "link")
    path = folder / "m.onnx"
    path.write_bytes(outside(location).SerializeToString())
    refused(path, "in the file")


@pytest.mark.parametrize("said", [{"offset": 4}, {"size": 12}, {"offset": -8}, {"length": "x"}, {"offset": 2 ** 60}])
def test_external_data_past_their_file_are_refused(tmp_path, said):
    (tmp_path / "w.bin").write_bytes(b"\0" * 8)
    path = tmp_path / "m.onnx"
    path.write_bytes(outside("w.bin", **said).SerializeToString())
    refused(path, "'w'")


def test_graphs_that_make_no_sense_are_refused():
    node = helper.make_node
    x, y = [info("x", [2])], [info("y", [2])]
    refused(model_of([node("Add", ["x", "nothing"], ["y"])], x, y), "'nothing'")
    refused(model_of([node("Neg", ["x"], ["y"]), node("Abs", ["x"], ["y"])], x, y), "an earlier node gave that")
    refused(model_of([node("Neg", ["x"], ["z"])], x, y), "output 'y'")
    proto = convolutional()
    del proto.opset_import[:]
    refused(proto, "no operator set")


def test_a_function_that_calls_itself_is_refused():
    node = helper.make_node
    own = helper.make_function("mine", "Again", ["a"], ["b"], [node("Again", ["a"], ["b"], domain="mine")],
                               [helper.make_opsetid("", 18), helper.make_opsetid("mine", 1)])
    proto = model_of([node("Again", ["x"], ["y"], domain="mine")], [info("x", [2])], [info("y", [2])], functions=[own],
                     imports=[helper.make_opsetid("mine", 1)])
    with pytest.raises(FormatError, match="functions 64 deep"):
        frontend.load(proto)(f32(2))


@pytest.mark.parametrize("op, held, more, words", [
    ("ConstantOfShape", {"s": np.array([2 ** 40, 2 ** 30])}, {}, "ConstantOfShape"),
    ("Tile", {"x": f32(2), "s": np.array([2 ** 45])}, {}, "Tile"),
    ("Expand", {"x": f32(1), "s": np.array([2 ** 50])}, {}, "no memory"),
    ("Range", {"a": np.array(0), "b": np.array(2 ** 62), "c": np.array(1)}, {}, "Range"),
    ("Range", {"a": np.array(0), "b": np.array(5), "c": np.array(0)}, {}, "ZeroDivisionError"),
    ("OneHot", {"i": np.array([1]), "d": np.array(2 ** 50), "v": f32(2)}, {}, "no memory"),
    ("Conv", {"x": f32(1, 1, 4), "w": f32(1, 1, 2)}, {"strides": [0]}, "Conv"),
    ("Conv", {"x": f32(1, 1, 4), "w": f32(1, 1, 2)}, {"pads": [2 ** 50, 0]}, "no memory"),
    ("Split", {"x": f32(4)}, {"num_outputs": 0}, "Split"),
])
def test_sizes_that_a_model_computes_are_checked_too(op, held, more, words):
    model = frontend.load(model_of([helper.make_node(op, list(held), ["y"], **more)], [], [info("y", None)], held))
    with pytest.raises(FormatError, match=words):
        model()


def test_a_node_that_does_not_fit_is_named():
    nodes = [helper.make_node("MatMul", ["x", "x"], ["y"], name="product")]
    model = frontend.load(model_of(nodes, [info("x", None)], [info("y", None)]))
    with pytest.raises(ShapeError, match="MatMul 'product'"):
        model(f32(2, 3))


def test_without_the_package_the_error_says_what_to_install(monkeypatch, tmp_path):
    import rlx.formats.onnx.read as read

    def absent(name):
        raise ModuleNotFoundError(name)
    monkeypatch.setattr(read, "import_module", absent)
    with pytest.raises(FormatError, match="need a package"):
        frontend.load(tmp_path / "m.onnx")
