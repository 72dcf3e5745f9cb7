"""Trains models with LightGBM and XGBoost and writes what the libraries predict for thousands of rows.

make.py OUT: for each model a file OUT/NAME.{txt,json,ubj}, and OUT/NAME.expected: three little-endian 64-bit counts (rows,
raw scores a row, outputs a row), then rows of doubles, raw scores and outputs in the library's own type. OUT/list names
them: `NAME FILE`. Models in OUT/refused must be refused.
"""
import os
import struct
import sys

import lightgbm
import numpy as np
import xgboost

ROWS, FEATURES = 3000, 12
CATEGORICAL = [3, 7]
out = sys.argv[1]
os.makedirs(f"{out}/refused", exist_ok=True)
rng = np.random.default_rng(7)


def data(rows, holes=True):
    x = rng.normal(size=(rows, FEATURES))
    x[:, 1] = np.round(x[:, 1] * 3)
    x[:, 5] = np.where(rng.random(rows) < 0.5, 0.0, x[:, 5])
    for column in CATEGORICAL:
        x[:, column] = rng.integers(0, 70, size=rows)
    if holes:
        x[rng.random(x.shape) < 0.08] = np.nan
    return x


def ask(holes=True):
    """Rows to predict: as in training, and the odd ones."""
    x = data(ROWS, holes)
    odd = [0.0, -0.0, 1e-36, -1e-36, 1e-35, 1e-34, 1e30, -1e30, 5e-324, 0.1, np.float32(0.1)] + ([np.nan] if holes else [])
    numeric = [column for column in range(FEATURES) if column not in CATEGORICAL]
    for row in range(0, ROWS, 3):
        x[row, rng.choice(numeric)] = rng.choice(odd)
    for row in range(0, ROWS, 5):
        x[row, rng.choice(CATEGORICAL)] = rng.choice([0, 69, 70, 95, 96, 1000, 2.7] + ([np.nan] if holes else []))
    return x


train = data(2000)
full = data(2000, holes=False)
clean = lambda x: np.nan_to_num(x)
score = clean(train) @ rng.normal(size=FEATURES) * 0.3 + np.isin(clean(train)[:, 3], [1, 5, 9, 33, 64]) * 2
labels = {
    "regression": score,
    "binary": (score + rng.normal(size=2000) > 0).astype(float),
    "classes": np.clip(np.round(score + 2), 0, 3),
    "counts": rng.poisson(np.exp(np.clip(score, -2, 2) * 0.3)).astype(float),
    "positive": np.exp(np.clip(score, -3, 3) * 0.2),
    "ranks": np.clip(np.round(score + 2), 0, 4),
    "unit": 1 / (1 + np.exp(-score)),
}
listed = []


def write(name, file, x, raw, predicted, kind):
    raw, predicted = (np.asarray(a, kind).reshape(len(x), -1) for a in (raw, predicted))
    with open(f"{out}/{name}.expected", "wb") as to:
        to.write(struct.pack("<3q", len(x), raw.shape[1], predicted.shape[1]))
        to.write(np.asarray(x, "<f8").tobytes() + raw.tobytes() + predicted.tobytes())
    listed.append(f"{name} {file}")


def gbm(name, label, rounds=40, x=train, categorical=True, group=None, refused=False, y=None, rows=None, **parameters):
    parameters = {"verbose": -1, "num_threads": 1, "seed": 3, "deterministic": True, "num_leaves": 31, "min_data_in_leaf": 5,
                  "learning_rate": 0.1, **parameters}
    dataset = lightgbm.Dataset(x, labels[label] if y is None else y, group=group,
                               categorical_feature=CATEGORICAL if categorical else "auto", params=parameters)
    booster = lightgbm.train(parameters, dataset, rounds)
    path = f"{out}/refused/{name}.txt" if refused else f"{out}/{name}.txt"
    booster.save_model(path)
    if not refused:
        booster = lightgbm.Booster(model_file=path)
        rows = ask() if rows is None else rows
        write(name, f"{name}.txt", rows, booster.predict(rows, raw_score=True), booster.predict(rows), "<f8")


gbm("lgb_binary", "binary", objective="binary")
gbm("lgb_sigmoid", "binary", objective="binary", sigmoid=0.7, is_unbalance=True)
gbm("lgb_regression", "regression", objective="regression")
gbm("lgb_sqrt", "regression", objective="regression", reg_sqrt=True)
gbm("lgb_zero_missing", "regression", objective="regression", zero_as_missing=True)
gbm("lgb_no_missing", "regression", objective="regression", use_missing=False)
gbm("lgb_none_missing", "regression", objective="regression", x=full)
gbm("lgb_multiclass", "classes", objective="multiclass", num_class=4)
gbm("lgb_ova", "classes", objective="multiclassova", num_class=4)
gbm("lgb_onehot", "classes", objective="multiclass", num_class=4, max_cat_to_onehot=100)
gbm("lgb_dart", "counts", objective="poisson", boosting="dart", drop_rate=0.3)
gbm("lgb_rf", "binary", objective="binary", boosting="rf", bagging_freq=1, bagging_fraction=0.6, feature_fraction=0.7)
gbm("lgb_rf_classes", "classes", objective="multiclass", num_class=4, boosting="rf", bagging_freq=1, bagging_fraction=0.6)
gbm("lgb_goss", "regression", objective="huber", data_sample_strategy="goss")
gbm("lgb_gamma", "positive", objective="gamma")
gbm("lgb_tweedie", "positive", objective="tweedie")
gbm("lgb_quantile", "regression", objective="quantile", alpha=0.8)
gbm("lgb_rank", "ranks", objective="lambdarank", group=[100] * 20)
gbm("lgb_xentlambda", "unit", objective="cross_entropy_lambda")
gbm("lgb_xent", "unit", objective="cross_entropy")
gbm("lgb_stump", "binary", objective="binary", num_leaves=2, rounds=3)
gbm("lgb_constant", "binary", objective="regression", y=np.full(2000, 0.25), rounds=3)
gbm("lgb_monotone", "regression", objective="regression", categorical=False, monotone_constraints=[1, -1] + [0] * 10)
gbm("lgb_large", "binary", objective="binary", rounds=303, num_leaves=63, extra_trees=True)
gbm("lgb_linear", "regression", objective="regression", x=full, linear_tree=True, refused=True)


def xgb(name, label, rounds=40, categorical=True, group=None, refused=False, y=None, file="json", base=None, **parameters):
    parameters = {"nthread": 1, "seed": 3, "max_depth": 6, "eta": 0.2, "tree_method": "hist", **parameters}
    kinds = ["c" if column in CATEGORICAL and categorical else "q" for column in range(FEATURES)]
    matrix = lambda x, **more: xgboost.DMatrix(x, feature_types=kinds, enable_categorical=True, nthread=1, **more)
    dataset = matrix(train, label=labels[label] if y is None else y)
    if group:
        dataset.set_group(group)
    booster = xgboost.train({**parameters, **({"base_score": base} if base is not None else {})}, dataset, rounds)
    path = f"{out}/refused/{name}.{file}" if refused else f"{out}/{name}.{file}"
    booster.save_model(path)
    if not refused:
        booster = xgboost.Booster(model_file=path)
        booster.set_param({"nthread": 1})
        rows = ask()
        rows[:, CATEGORICAL] = np.floor(rows[:, CATEGORICAL])
        asked = matrix(rows)
        write(name, f"{name}.{file}", rows, booster.predict(asked, output_margin=True), booster.predict(asked), "<f4")


xgb("xgb_binary", "binary", objective="binary:logistic")
xgb("xgb_binary_ubj", "binary", objective="binary:logistic", file="ubj", base=0.3)
xgb("xgb_onehot", "binary", objective="binary:logistic", max_cat_to_onehot=100)
xgb("xgb_logitraw", "binary", objective="binary:logitraw", base=0.2)
xgb("xgb_hinge", "binary", objective="binary:hinge", file="ubj")
xgb("xgb_regression", "regression", objective="reg:squarederror", file="ubj")
xgb("xgb_base", "regression", objective="reg:squarederror", base=-7.25)
xgb("xgb_unit", "unit", objective="reg:logistic")
xgb("xgb_softprob", "classes", objective="multi:softprob", num_class=4)
xgb("xgb_softmax", "classes", objective="multi:softmax", num_class=4, file="ubj")
xgb("xgb_dart", "binary", objective="binary:logistic", booster="dart", rate_drop=0.3)
xgb("xgb_dart_classes", "classes", objective="multi:softprob", num_class=4, booster="dart", rate_drop=0.3, file="ubj")
xgb("xgb_forest", "binary", objective="binary:logistic", num_parallel_tree=7, subsample=0.6, rounds=6)
xgb("xgb_poisson", "counts", objective="count:poisson")
xgb("xgb_gamma", "positive", objective="reg:gamma")
xgb("xgb_tweedie", "positive", objective="reg:tweedie", tweedie_variance_power=1.3, file="ubj")
xgb("xgb_rank", "ranks", objective="rank:ndcg", group=[100] * 20)
xgb("xgb_targets", "regression", objective="reg:squarederror", y=np.stack([labels["regression"], labels["unit"]], 1))
xgb("xgb_exact", "binary", objective="binary:logistic", tree_method="exact", categorical=False)
xgb("xgb_lossguide", "regression", objective="reg:absoluteerror", grow_policy="lossguide", max_leaves=40, max_depth=0)
xgb("xgb_pruned", "regression", objective="reg:squarederror", gamma=3.0, tree_method="exact", categorical=False)
xgb("xgb_large", "binary", objective="binary:logistic", rounds=301, file="ubj")
xgb("xgb_linear", "binary", objective="binary:logistic", booster="gblinear", categorical=False, refused=True)
xgb("xgb_vector", "regression", objective="reg:squarederror", y=np.stack([labels["regression"], labels["unit"]], 1),
    multi_strategy="multi_output_tree", categorical=False, refused=True)
xgb("xgb_quantile", "regression", objective="reg:quantileerror", quantile_alpha=0.3)

with open(f"{out}/list", "w") as to:
    to.write("\n".join(listed) + "\n")
