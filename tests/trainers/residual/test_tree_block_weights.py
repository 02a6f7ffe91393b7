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
from windtunnel.objectives.losses import loss_for
from windtunnel.objectives.metrics import Metric
from windtunnel.program.head import Head
from windtunnel.trainers.data.labelled_rows import LabelledRows, Targets
from windtunnel.trainers.residual import tree_block_weights
from windtunnel.trainers.residual.tree_block_weights import TREE_BLOCKS, fit_block_weights

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


def tree_rows(net: windtunnel.Translation, kind: str) -> tuple[HardTrees, LabelledRows, Any]:
    X, y = rows(2000, 1, kind)
    trees: Any = net.program.steps[-1].module
    inputs = net.program.inputs_of(len(net.program.steps) - 1, *net.encode(X))
    return trees, LabelledRows(inputs, Targets(net.head.encode_target(y))), loss_for(None, net.head)


@pytest.mark.parametrize("kind", ["label", "grade", "value"])
def test_trees_that_overfit_get_weights_below_1(kind: str) -> None:
    net = windtunnel.translate(source(kind))
    trees, valid, loss = tree_rows(net, kind)
    scaled = fit_block_weights(trees, valid, loss, DRAWS)
    assert scaled is not None
    weighted = scaled.trees
    with torch.no_grad():
        before, after = (float(loss(one(valid.rows), *valid.targets)) for one in (trees, weighted))
    assert after < 0.9 * before
    ratio = weighted.ensemble().leaf_value / np.where(trees.ensemble().leaf_value == 0, 1, trees.ensemble().leaf_value)
    assert ratio.min() >= 0 and ratio.max() <= 1 + 1e-6
    found = np.unique(ratio[trees.ensemble().leaf_value != 0].round(4))
    assert set(found) <= set(scaled.weights.numpy().astype(float).round(4))
    classes = weighted.outputs
    assert len(np.unique(ratio.round(5))) <= TREE_BLOCKS + 1 and len(weighted.ensemble().output) == 60 * classes


def test_rows_sorted_by_their_target_give_weights_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_block_weights, "MAX_FITTED_ROWS", 1000)
    net = windtunnel.translate(source())
    trees, valid, loss = tree_rows(net, "label")
    by_target = valid.take(valid.targets.target.argsort(stable=True))
    target = by_target.random(1000, DRAWS).targets.target
    assert len(target) == 1000
    assert float(target.double().mean()) == pytest.approx(float(valid.targets.target.double().mean()), abs=0.05)
    scaled = fit_block_weights(trees, by_target, loss, DRAWS)
    assert scaled is not None
    with torch.no_grad():
        before, after = (float(loss(one(valid.rows), *valid.targets)) for one in (trees, scaled.trees))
    assert after < 0.9 * before


def test_trees_of_a_round_share_a_weight() -> None:
    net = windtunnel.translate(source("grade"))
    trees, valid, loss = tree_rows(net, "grade")
    scaled = fit_block_weights(trees, valid, loss, DRAWS)
    assert scaled is not None
    old, new = trees.ensemble(), scaled.trees.ensemble()
    first = old.leaf_start[:-1]
    per_tree = new.leaf_value[first] / old.leaf_value[first]
    rounds = per_tree.reshape(60, 3)  # LightGBM grows a tree of each class per round
    np.testing.assert_allclose(rounds, rounds[:, :1].repeat(3, axis=1), rtol=1e-6)


def test_few_trees_with_a_low_rate_get_none() -> None:
    net = windtunnel.translate(source(trees=10, rate=0.02))
    assert fit_block_weights(*tree_rows(net, "label"), DRAWS) is None


def test_leaf_values_add_up() -> None:
    net = windtunnel.translate(source("grade"))
    trees, valid, _ = tree_rows(net, "grade")
    values = trees.leaf_values(valid.rows)
    assert values.shape == (2000, 3, 60)
    torch.testing.assert_close(values.sum(2) + trees.base, trees(valid.rows.double()), rtol=1e-9, atol=1e-9)


def test_fit_keeps_significant_weights() -> None:
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
    trees: Any = net.program.steps[-1].module
    inputs = net.program.inputs_of(len(net.program.steps) - 1, *net.encode(X))
    valid = LabelledRows(inputs, Targets(head.encode_target(y)))
    assert fit_block_weights(trees, valid, loss_for("probabilities", head), DRAWS) is None


@pytest.mark.parametrize(("kind", "trees", "rate"), [("label", 60, 0.5), ("label", 10, 0.02), ("value", 60, 0.5)])
@pytest.mark.parametrize("temperature", ["auto", 1.0])
def test_the_history_has_the_metric_of_the_net(kind: str, trees: int, rate: float, temperature: Any) -> None:
    net = windtunnel.translate(source(kind, trees, rate), temperature=temperature)
    valid = rows(3000, 1, kind)

    def metric_of_net() -> float:
        metric = Metric(None, net.head)
        metric.update(net.scores(valid[0]), net.head.encode_target(valid[1]))
        return metric.compute()

    given = metric_of_net()
    net.fit(rows(800, 0, kind), valid, progress=False, accelerator="cpu")
    assert net.history.start == pytest.approx(given, rel=1e-5)
    assert net.history.best == pytest.approx(metric_of_net(), rel=1e-5)
    assert not Metric(None, net.head).better(given, metric_of_net())
