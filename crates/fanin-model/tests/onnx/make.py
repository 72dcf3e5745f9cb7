"""Makes ONNX models and what ONNX Runtime's own Python says of them.

make.py OUT: for each model a folder OUT/NAME with model.onnx and sample.json (inputs, and the outputs that were computed).
OUT/refused/NAME.onnx must be refused.
"""
import json
import os
import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto as T
from onnx import helper as h

out = sys.argv[1]
rng = np.random.default_rng(3)
NAMES = {"float32": "FP32", "float64": "FP64", "int64": "INT64", "int32": "INT32", "int8": "INT8", "uint8": "UINT8",
         "uint16": "UINT16", "bool": "BOOL", "object": "BYTES"}


def model(nodes, inputs, outputs, constants=(), domains=()):
    graph = h.make_graph(nodes, "g", inputs, outputs, constants)
    imports = [h.make_opsetid("", 17), h.make_opsetid("ai.onnx.ml", 3)] + [h.make_opsetid(name, 1) for name in domains]
    return h.make_model(graph, opset_imports=imports, ir_version=8)


def tensor(name, value):
    data = [bytes(one).decode() if isinstance(one, bytes) else one for one in value.ravel().tolist()]
    return {"name": name, "datatype": NAMES[str(value.dtype)], "shape": list(value.shape), "data": data}


def write(name, made, inputs):
    os.makedirs(f"{out}/{name}")
    onnx.save(made, f"{out}/{name}/model.onnx")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(f"{out}/{name}/model.onnx", options, providers=["CPUExecutionProvider"])
    answers = session.run(None, inputs)
    names = [one.name for one in session.get_outputs()]
    sample = {"inputs": [tensor(*one) for one in inputs.items()],
              "outputs": [tensor(name, np.asarray(value)) for name, value in zip(names, answers)]}
    with open(f"{out}/{name}/sample.json", "w") as to:
        json.dump(sample, to)


def info(name, kind, shape):
    return h.make_tensor_value_info(name, kind, shape)


# Two layers, rows of any number.
weights = [rng.normal(size=size).astype(np.float32) for size in [(20, 64), (64,), (64, 3), (3,)]]
constants = [onnx.numpy_helper.from_array(value, name) for value, name in zip(weights, ["w1", "b1", "w2", "b2"])]
net = model(
    [h.make_node("MatMul", ["x", "w1"], ["a"]), h.make_node("Add", ["a", "b1"], ["c"]), h.make_node("Relu", ["c"], ["d"]),
     h.make_node("MatMul", ["d", "w2"], ["e"]), h.make_node("Add", ["e", "b2"], ["logits"]),
     h.make_node("Softmax", ["logits"], ["p"], axis=1)],
    [info("x", T.FLOAT, ["rows", 20])], [info("p", T.FLOAT, ["rows", 3]), info("logits", T.FLOAT, ["rows", 3])], constants)
x = rng.normal(size=(500, 20)).astype(np.float32)
x[0, 0] = np.float32(1e-30)
write("net", net, {"x": x})

# Trees, as converters write them.
kind, depth = "BRANCH_LEQ", 6
nodes = 2 ** depth - 1
attributes = dict(nodes_treeids=[], nodes_nodeids=[], nodes_featureids=[], nodes_modes=[], nodes_values=[], nodes_truenodeids=[],
                  nodes_falsenodeids=[], target_treeids=[], target_nodeids=[], target_ids=[], target_weights=[])
for tree in range(30):
    for node in range(nodes):
        leaf = node >= nodes // 2
        for key, value in dict(nodes_treeids=tree, nodes_nodeids=node, nodes_featureids=int(rng.integers(20)),
                               nodes_modes="LEAF" if leaf else kind, nodes_values=float(np.float32(rng.normal())),
                               nodes_truenodeids=0 if leaf else 2 * node + 1, nodes_falsenodeids=0 if leaf else 2 * node + 2).items():
            attributes[key].append(value)
        if leaf:
            for key, value in dict(target_treeids=tree, target_nodeids=node, target_ids=0,
                                   target_weights=float(np.float32(rng.normal()))).items():
                attributes[key].append(value)
trees = model([h.make_node("TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", n_targets=1, **attributes)],
              [info("x", T.FLOAT, [None, 20])], [info("y", T.FLOAT, [None, 1])])
write("trees", trees, {"x": x})

# Every type that is taken, each given back.
kinds = {"float32": T.FLOAT, "float64": T.DOUBLE, "int64": T.INT64, "int32": T.INT32, "int8": T.INT8, "uint8": T.UINT8,
         "uint16": T.UINT16, "bool": T.BOOL}
types = model([h.make_node("Identity", [name], [f"{name}_out"]) for name in [*kinds, "text"]],
              [*(info(name, kind, [None, 2]) for name, kind in kinds.items()), info("text", T.STRING, [None])],
              [*(info(f"{name}_out", kind, [None, 2]) for name, kind in kinds.items()), info("text_out", T.STRING, [None])])
given = {name: np.array([[0, 1], [1, 100 if name != "bool" else 0]]).astype(name) for name in kinds}
write("types", types, {**given, "text": np.array(["one", "zwölf"], dtype=object)})

os.makedirs(f"{out}/refused")
custom = model([h.make_node("Guess", ["x"], ["y"], domain="my.own")], [info("x", T.FLOAT, [None])], [info("y", T.FLOAT, [None])],
               domains=["my.own"])
onnx.save(custom, f"{out}/refused/custom.onnx")
half = model([h.make_node("Identity", ["x"], ["y"])], [info("x", T.FLOAT16, [None])], [info("y", T.FLOAT16, [None])])
onnx.save(half, f"{out}/refused/half.onnx")
sequence = model([h.make_node("SequenceConstruct", ["x"], ["y"])], [info("x", T.FLOAT, [None])],
                 [h.make_tensor_sequence_value_info("y", T.FLOAT, [None])])
onnx.save(sequence, f"{out}/refused/sequence.onnx")
with open(f"{out}/refused/cut.onnx", "wb") as to:
    to.write(net.SerializeToString()[:-100])
with open(f"{out}/refused/text.onnx", "wb") as to:
    to.write(b"no model at all")
