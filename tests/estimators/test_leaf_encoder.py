"""Leaves of trees as columns: what the encoder gives, how it keeps to scikit-learn's manners, and its soft form."""

from __future__ import annotations

from typing import Any

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import torch
import xgboost as xgb
from case import NUMBERS, TEXTS, columns, quick, table, targets
from scipy import sparse
from sklearn.base import clone
from sklearn.ensemble import GradientBoostingRegressor, HistGradientBoostingClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import Pipeline
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

import windtunnel
from windtunnel import FactorizationMachineClassifier, LeafEncoder, TwoHotEncoder
from windtunnel.errors import BadInput, InvalidOption
from windtunnel.modules.trees import SoftLeaves
from windtunnel.modules.trees.soft.soften import soften_leaves
from windtunnel.translators.trees.lightgbm import tree_ensemble

MIXED = [*NUMBERS, *TEXTS]
COUNTS = "weights do not count as rows do for the least number of rows in a leaf"
WEIGHTS = {f"check_sample_weight_equivalence_on_{kind}_data": COUNTS for kind in ("dense", "sparse")}
NO_ROWS = {**WEIGHTS, "check_all_zero_sample_weights_error": "LightGBM fits on weights of 0"}


@parametrize_with_checks(
    [
        LeafEncoder(DecisionTreeClassifier(random_state=0)),
        LeafEncoder(HistGradientBoostingClassifier(max_iter=2), output="ids"),
        LeafEncoder(GradientBoostingRegressor(n_estimators=3, random_state=0)),
        LeafEncoder(quick(n_estimators=3)),
    ],
    expected_failed_checks=lambda one: {
        **(WEIGHTS if isinstance(one.estimator, GradientBoostingRegressor) else {}),
        **(NO_ROWS if isinstance(one.estimator, lgb.LGBMClassifier) else {}),
    },
)
def test_sklearn_checks(estimator: Any, check: Any) -> None:
    check(estimator)


def numbers(rows: int = 300) -> tuple[pd.DataFrame, np.ndarray]:
    frame = table(rows, missing=True)
    return frame[list(NUMBERS)], targets(frame)["label"]


def test_leaves_are_those_of_the_library() -> None:
    X, y = numbers()
    encoder = LeafEncoder(quick(), output="ids").fit(X, y)
    wanted = encoder.estimator_.predict(X, pred_leaf=True)
    ids = encoder.transform(X)
    assert ids.dtype == np.int64
    np.testing.assert_array_equal(ids, wanted)
    hot = clone(encoder).set_params(output="one_hot").fit(X, y).transform(X)
    assert sparse.issparse(hot) and hot.format == "csr" and hot.shape[1] == encoder.leaves_.sum()
    starts = np.cumsum(encoder.leaves_) - encoder.leaves_
    np.testing.assert_array_equal(hot.indices.reshape(ids.shape), ids + starts)
    assert (hot.data == 1).all()


def test_names_and_tables() -> None:
    X, y = numbers()
    encoder = LeafEncoder(quick(n_estimators=2), output="ids").set_output(transform="pandas").fit(X, y)
    assert encoder.transform(X).columns.tolist() == ["tree0", "tree1"]
    names = encoder.set_params(output="one_hot").get_feature_names_out()
    assert len(names) == encoder.leaves_.sum() and names[0] == "tree0_leaf0"


def test_the_default_is_that_of_the_paper() -> None:
    X, y = numbers(400)
    encoder = LeafEncoder().fit(X, y)
    assert isinstance(encoder.estimator_, lgb.LGBMClassifier) and len(encoder.leaves_) == 100
    assert encoder.estimator_.num_leaves == 64 and encoder.estimator is None


def early(cls: type, **options: Any) -> Any:
    """A model that stopped long before its last tree."""
    random = np.random.default_rng(0)
    X, y = random.normal(size=(200, 3)), random.integers(2, size=200)
    if cls is lgb.LGBMClassifier:
        stop = [lgb.early_stopping(3, verbose=False)]
        return cls(n_estimators=50, verbosity=-1, n_jobs=1).fit(X[:100], y[:100], eval_X=X[100:], eval_y=y[100:],
                                                                callbacks=stop)  # fmt: skip
    model = cls(n_estimators=50, early_stopping_rounds=3, n_jobs=1)
    return model.fit(X[:100], y[:100], eval_set=[(X[100:], y[100:])], verbose=False)


@pytest.mark.parametrize("cls", [lgb.LGBMClassifier, xgb.XGBClassifier])
def test_fitted_trees_are_not_fitted_again(cls: type) -> None:
    fitted = early(cls)
    X = np.random.default_rng(1).normal(size=(50, 3))
    encoder = LeafEncoder(FrozenEstimator(fitted)).fit(X, np.zeros(50))
    used = fitted.best_iteration_ if cls is lgb.LGBMClassifier else fitted.best_iteration + 1
    assert encoder.estimator_ is fitted and len(encoder.leaves_) == used < 50
    np.testing.assert_array_equal(windtunnel.compile(encoder).transform(X), encoder.transform(X).toarray())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"estimator": LogisticRegression()}, r"LogisticRegression\(\) exposes no leaves; give a model of trees"),
        ({"estimator": xgb.XGBClassifier(booster="gblinear", n_estimators=1)}, "exposes no leaves"),
    ],
)
def test_models_without_leaves_are_rejected(options: dict[str, Any], message: str) -> None:
    frame = table(60)
    with pytest.raises(BadInput, match=message):
        LeafEncoder(**options).fit(frame[["income", "visits"]], targets(frame)["label"] == "yes")


def test_other_outputs_are_rejected() -> None:
    with pytest.raises(InvalidOption, match="output='dense'; give 'one_hot' or 'ids'"):
        LeafEncoder(output="dense").fit([[0.0], [1.0]], [0, 1])


def pipeline(trees: Any = None) -> Pipeline:
    encode = columns((TwoHotEncoder(), list(TEXTS)), ("passthrough", list(NUMBERS)))
    leaves = LeafEncoder(trees or quick(n_estimators=30, num_leaves=16))
    machine = FactorizationMachineClassifier(8, epochs=4, random_state=0)
    return Pipeline([("encode", encode), ("leaves", leaves), ("machine", machine)])


def test_a_pipeline_from_end_to_end() -> None:
    """Categories, trees, leaves and a machine: exact, nearly as exact when soft, and all of it trains."""
    frame, others = table(2000, missing=True), table(1000, seed=1, missing=True, unseen=True)
    y, wanted = targets(frame)["label"], targets(others, seed=1)["label"]
    source = pipeline().fit(frame[MIXED], y)
    compiled = windtunnel.compile(source)
    np.testing.assert_allclose(compiled.predict_proba(others), source.predict_proba(others[MIXED]), 1e-9)

    net = windtunnel.translate(source, level="L4", calibrate=frame[MIXED]).soften()
    for rows, labels in ((frame, y), (others, wanted)):
        ours, theirs = (roc_auc_score(labels, one.predict_proba(rows[MIXED])[:, 1]) for one in (net, source))
        assert ours == pytest.approx(theirs, abs=0.005)

    net.train()
    (batch,) = [net.encode(frame[MIXED])]
    loss = torch.nn.functional.binary_cross_entropy_with_logits(
        net(*batch)[:, 0], torch.from_numpy((y == "yes").astype(np.float32))
    )
    loss.backward()
    learned = {name: one for name, one in net.named_parameters() if one.requires_grad and one.numel()}
    ends = {name.rsplit(".", 1)[-1] for name in learned}
    assert ends >= {"rows", "threshold", "node_weight", "path", "path_bias", "weight", "factors"}
    still = [name for name, one in learned.items() if one.grad is None or not one.grad.any()]
    assert not still
    net.zero_grad()

    before = {name: one.detach().clone() for name, one in learned.items()}
    rates = {"learning_rate": 1e-3, "dropout": 0.0, "batch_size": 200}
    net.fit((frame[MIXED], y), (frame[MIXED], y), recipe="paper", epochs=2, progress=False, **rates)
    assert net.history.best > net.history.start
    assert not [name for name, one in learned.items() if torch.equal(one, before[name])]


def soft(net: windtunnel.Translation) -> SoftLeaves:
    (leaves,) = [step.module for step in net.program.steps if isinstance(step.module, SoftLeaves)]
    return leaves


def test_levels() -> None:
    frame = table()
    source = pipeline(quick()).fit(frame[MIXED], targets(frame)["label"])
    trained = {}
    for level in ("L0", "L1", "L2", "L3", "L4"):
        leaves = soft(windtunnel.translate(source, level={"leaves": level}).soften())
        trained[level] = {name for name, one in leaves.named_parameters() if one.requires_grad and one.numel()}
    assert trained["L0"] == trained["L1"] == set()
    assert trained["L2"] == {"threshold"} and trained["L3"] == {"threshold", "node_weight"}
    assert trained["L4"] == {"threshold", "node_weight", "path", "path_bias"}
    assert "SoftLeaves L4" in str(windtunnel.translate(source).soften().report())
    with pytest.raises(InvalidOption, match="steps with trees are 'leaves'"):
        windtunnel.translate(source, level={"machine": "L2"}).soften()


def test_one_temperature_is_the_form_of_the_paper() -> None:
    frame = table()
    source = pipeline(quick()).fit(frame[MIXED], targets(frame)["label"])
    leaves = soft(windtunnel.translate(source, temperature=0.5).soften())
    assert (leaves.slope[leaves.node_mask > 0] == 2).all() and (leaves.leaf_slope == 2).all()
    cold = soft(windtunnel.translate(source, start="cold"))
    assert cold.path.shape == leaves.path.shape and not torch.allclose(cold.path, leaves.path, atol=1e-2)


def test_ids_stay_on_the_host_in_translate_only() -> None:
    X, y = numbers()
    source = Pipeline([("ids", LeafEncoder(quick(), output="ids")), ("last", quick())]).fit(X, y)
    net = windtunnel.translate(source, calibrate=X)
    assert [host.name for host in net.hosts] == ["ids"] and "no differentiable form" in net.hosts[0].reason
    assert not windtunnel.compile(source).hosts


def softened(level: str) -> tuple[SoftLeaves, torch.Tensor]:
    """Soft leaves, and rows with missing values and categories."""
    frame = table(missing=True)
    X, y = frame[[*NUMBERS, "plan"]], targets(frame)["label"]
    booster = quick(n_estimators=6, num_leaves=5).fit(X, y).booster_
    random = torch.Generator().manual_seed(0)
    rows = torch.randn(8, 4, dtype=torch.float64, generator=random)
    rows[:, 3] = torch.randint(0, 3, (8,), generator=random).double()
    rows[::3, 0] = torch.nan
    return soften_leaves(tree_ensemble(booster), level=level, temperature=2.0).double(), rows


@pytest.mark.parametrize("level", ["L2", "L3", "L4"])
def test_the_recomputed_gradient_is_that_of_autograd(level: str) -> None:
    leaves, rows = softened(level)
    leaves.padded = False  # ``plain_leaves`` gives those that pad smaller trees too
    learned = [one for one in leaves.parameters() if one.requires_grad and one.numel()]
    outputs = leaves(rows), leaves.plain_leaves(rows)
    torch.testing.assert_close(*outputs)
    weight = torch.randn_like(outputs[0])
    ours, theirs = (torch.autograd.grad((one.square() * weight).sum(), learned) for one in outputs)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other)


def test_dropout_drops_all_of_a_leaf() -> None:
    leaves, rows = softened("L4")
    leaves.train().dropout = 0.3

    def dropped(path: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(0)
        return leaves(rows)

    assert (dropped(leaves.path) == 0).double().mean() == pytest.approx(0.3, abs=0.15)
    assert torch.autograd.gradcheck(dropped, (leaves.path,), atol=1e-5)
