"""Makes the small models of tests/data, with sample.json files of what their libraries predict. small.py OUT"""
import json
import sys

import lightgbm
import numpy as np
import xgboost

out = sys.argv[1]
rng = np.random.default_rng(11)
x = np.round(rng.normal(size=(400, 4)), 2)
x[:, 3] = rng.integers(0, 6, size=400)
asked = [[0.5, -1.25, 0.0, 2.0], [None, 3.0, -0.75, 5.0]]
rows = np.array(asked, dtype=float)


def sample(name, kind, outputs):
    tensor = lambda name, value: {"name": name, "datatype": kind, "shape": list(value.shape), "data": value.ravel().tolist()}
    data = [value for row in asked for value in row]
    text = {"inputs": [{"name": "input", "datatype": kind, "shape": [2, 4], "data": data}],
            "outputs": [tensor(name, np.asarray(value).reshape(2, -1)) for name, value in outputs.items()]}
    with open(f"{out}/{name}.sample.json", "w") as to:
        json.dump(text, to, indent=1)


def gbm(name, y, **parameters):
    parameters = {"verbose": -1, "num_threads": 1, "num_leaves": 5, "min_data_in_leaf": 5, "seed": 1, **parameters}
    booster = lightgbm.train(parameters, lightgbm.Dataset(x, y, categorical_feature=[3], params=parameters), 3)
    booster.save_model(f"{out}/{name}.txt")
    sample(name, "FP64", {"output": booster.predict(rows), "raw": booster.predict(rows, raw_score=True)})


gbm("one", (x[:, 0] + (x[:, 3] == 2) > 0.2).astype(float), objective="binary")
gbm("two", (x[:, 1] - (x[:, 3] == 4) > 0.0).astype(float), objective="binary")
matrix = xgboost.DMatrix(x, (x[:, 0] * x[:, 1] > 0).astype(float))
booster = xgboost.train({"objective": "binary:logistic", "max_depth": 3, "nthread": 1}, matrix, 3)
booster.save_model(f"{out}/three.json")
booster.save_model(f"{out}/three.ubj")
asked3 = xgboost.DMatrix(rows)
sample("three", "FP32", {"output": booster.predict(asked3), "raw": booster.predict(asked3, output_margin=True)})
