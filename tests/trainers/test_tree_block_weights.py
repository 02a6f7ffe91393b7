from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from lightgbm import LGBMClassifier, LGBMRegressor
from sklearn.ensemble import RandomForestClassifier

import windtunnel
from windtunnel.modules.trees.hard import HardTrees
from windtunnel.objectives.losses import pick
from windtunnel.objectives.metrics import Metric
from windtunnel.program.head import Head
from windtunnel.trainers.residual import tree_block_weights as gating
from windtunnel.trainers.residual.tree_block_weights import BLOCKS, Judged, gated

DRAWS = torch.Generator().manual_seed(0)


def rows(count: int, seed: int, kind: str = "label") -> tuple[pd.DataFrame, np.ndarray]:
    random = np.random.default_rng(seed)
    X = pd.DataFrame(random.normal(size=(count, 4)), columns=list("abcd"))
    s = X["a"] + np.sin(2 * X["b"]) + 2 * random.normal(size=count)
    if kind == "value":
        return X, s.to_numpy()
    return X, np.digitize(s, [0] if kind == "label" else [-1, 1])


def source(kind: str = "label", trees: int = 60, rate: float = 0.5) -> Any:
    model = LGBMRegressor if kind == "value" else LGBMClassifier
    fitted = model(n_estimators=trees, learning_rate=rate, num_leaves=31, verbosity=-1, random_state=0)
    return fitted.fit(*rows(800, 0, kind))


def held(net: windtunnel.Translation, kind: str) -> tuple[HardTrees, Judged, Any]:
    X, y = rows(2000, 1, kind)
    trees = net.exact_modules[len(net.program.steps) - 1]
    inputs = net.program.inputs_of(len(net.program.steps) - 1, *net.encode(X))
    return trees, Judged(inputs, net.head.encode_target(y)), pick(None, net.head)


@pytest.mark.parametrize("kind", ["label", "grade", "value"])
def test_gates_close_on_trees_that_went_on_too_long(kind: str) -> None:
    net = windtunnel.translate(source(kind))
    trees, judged, loss = held(net, kind)
    closed = gated(trees, judged, loss, DRAWS)
    assert closed is not None
    with torch.no_grad():
        before, after = (float(loss(one(judged.inputs), judged.target, None)) for one in (trees, closed))
    assert after < 0.9 * before
    ratio = closed.ensemble().leaf_value / np.where(trees.ensemble().leaf_value == 0, 1, trees.ensemble().leaf_value)
    assert ratio.min() >= 0 and ratio.max() <= 1 + 1e-6
    classes = closed.outputs
    assert len(np.unique(ratio.round(5))) <= BLOCKS + 1 and len(closed.ensemble().output) == 60 * classes


def test_rows_in_the_order_of_their_target_close_the_same_gates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gating, "MOST_ROWS", 1000)
    net = windtunnel.translate(source())
    trees, judged, loss = held(net, "label")
    by_target = judged.target.argsort(stable=True)
    some = Judged(judged.inputs[by_target], judged.target[by_target]).some(DRAWS)
    assert len(some.target) == 1000
    assert float(some.target.double().mean()) == pytest.approx(float(judged.target.double().mean()), abs=0.05)
    found = gated(trees, Judged(judged.inputs[by_target], judged.target[by_target]), loss, DRAWS)
    assert found is not None
    with torch.no_grad():
        before, after = (float(loss(one(judged.inputs), judged.target, None)) for one in (trees, found))
    assert after < 0.9 * before


def test_rounds_of_all_classes_share_a_gate() -> None:
    net = windtunnel.translate(source("grade"))
    trees, judged, loss = held(net, "grade")
    closed = gated(trees, judged, loss, DRAWS)
    assert closed is not None
    old, new = trees.ensemble(), closed.ensemble()
    first = old.leaf_start[:-1]
    per_tree = new.leaf_value[first] / old.leaf_value[first]
    rounds = per_tree.reshape(60, 3)  # LightGBM grows a tree of each class per round
    np.testing.assert_allclose(rounds, rounds[:, :1].repeat(3, axis=1), rtol=1e-6)


def test_a_few_careful_trees_are_left_alone() -> None:
    net = windtunnel.translate(source(trees=10, rate=0.02))
    assert gated(*held(net, "label"), DRAWS) is None


def test_leaf_values_add_up() -> None:
    net = windtunnel.translate(source("grade"))
    trees, judged, _ = held(net, "grade")
    values = trees.leaf_values(judged.inputs)
    assert values.shape == (2000, 3, 60)
    torch.testing.assert_close(values.sum(2) + trees.base, trees(judged.inputs.double()), rtol=1e-9, atol=1e-9)


def test_fit_uses_them_where_they_clearly_help() -> None:
    fitted = source()
    net = windtunnel.translate(fitted, calibrate=rows(800, 0)[0])
    net.fit(rows(800, 0), rows(3000, 1), progress=False, accelerator="cpu")
    X, y = rows(3000, 2)
    wrong = [np.mean(np.log(model.predict_proba(X)[np.arange(len(y)), y])) for model in (fitted, net)]
    assert wrong[1] > wrong[0] + 0.05


def test_forests_have_none() -> None:
    X, y = rows(800, 0)
    forest = RandomForestClassifier(n_estimators=20, random_state=0).fit(X, y)
    net = windtunnel.translate(forest)
    head: Head = net.head
    trees = net.exact_modules[len(net.program.steps) - 1]
    judged = Judged(net.program.inputs_of(len(net.program.steps) - 1, *net.encode(X)), head.encode_target(y))
    assert gated(trees, judged, pick("probabilities", head), DRAWS) is None


@pytest.mark.parametrize(("kind", "trees", "rate"), [("label", 60, 0.5), ("label", 10, 0.02), ("value", 60, 0.5)])
@pytest.mark.parametrize("temperature", ["auto", 1.0])
def test_the_history_tells_what_the_net_is_worth(kind: str, trees: int, rate: float, temperature: Any) -> None:
    net = windtunnel.translate(source(kind, trees, rate), temperature=temperature)
    valid = rows(3000, 1, kind)

    def worth() -> float:
        judge = Metric(None, net.head)
        judge.update(net.scores(valid[0]), net.head.encode_target(valid[1]))
        return judge.compute()

    given = worth()
    net.fit(rows(800, 0, kind), valid, progress=False, accelerator="cpu")
    assert net.history.start == pytest.approx(given, rel=1e-5)
    assert net.history.best == pytest.approx(worth(), rel=1e-5)
    assert not Metric(None, net.head).better(given, worth())
