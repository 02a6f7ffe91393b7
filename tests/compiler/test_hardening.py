"""Hardening, and the trees that a translation ends in as models of LightGBM, XGBoost and ONNX Runtime."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import onnx
import pandas as pd
import pytest
import torch
import xgboost
from catboost import CatBoostClassifier
from lightgbm import LGBMClassifier, LGBMRegressor
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import (
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    IsolationForest,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from xgboost import XGBClassifier, XGBRegressor

import windtunnel
from windtunnel.errors import BadInput, UnfaithfulOption
from windtunnel.export import serving
from windtunnel.modules.trees import HardTrees, LeafOneHot

COUNT = 600


@cache
def rows(missing: bool = True) -> np.ndarray:
    draw = np.random.default_rng(0)
    x = draw.normal(size=(COUNT, 5)).astype(np.float32)
    x[:, 3] = draw.integers(0, 6, COUNT)  # also read as categories
    x[:, 4] *= 1000
    x[draw.random(x.shape) < 0.15] = 0.0
    if missing:
        x[draw.random(x.shape) < 0.1] = np.nan
    return x


@cache
def value() -> np.ndarray:
    x = np.nan_to_num(rows())
    return x[:, 0] * x[:, 1] + x[:, 2] + (x[:, 3] % 3 == 1) + np.random.default_rng(1).normal(size=COUNT) / 4


def binary() -> np.ndarray:
    return value() > 0.3


def several() -> np.ndarray:
    return np.array(["low", "middle", "top"])[np.digitize(value(), [0.0, 0.8])]


LGBM = {"n_estimators": 12, "num_leaves": 12, "min_child_samples": 10, "verbose": -1, "n_jobs": 1}
XGB = {"n_estimators": 10, "max_depth": 4, "n_jobs": 1}
FOREST = {"n_estimators": 7, "max_depth": 6, "random_state": 0}
HIST = {"max_iter": 10, "max_leaf_nodes": 10, "early_stopping": False}
# Name: the source, its target, and whether the rows have missing values.
SOURCES: dict[str, tuple[Callable[[], Any], Callable[[], Any], bool]] = {
    "lightgbm, binary": (lambda: LGBMClassifier(**LGBM), binary, True),
    "lightgbm, multiclass": (lambda: LGBMClassifier(**LGBM), several, True),
    "lightgbm, regression": (lambda: LGBMRegressor(**LGBM), value, True),
    "lightgbm, poisson": (lambda: LGBMRegressor(objective="poisson", **LGBM), lambda: np.abs(value()), True),
    "lightgbm, forest": (
        lambda: LGBMClassifier(boosting="rf", bagging_freq=1, bagging_fraction=0.7, **LGBM), binary, True,
    ),
    "lightgbm, missing as zero": (lambda: LGBMClassifier(use_missing=False, **LGBM), binary, True),
    "xgboost, binary": (lambda: XGBClassifier(**XGB), binary, True),
    "xgboost, multiclass": (lambda: XGBClassifier(**XGB), lambda: np.unique(several(), return_inverse=True)[1], True),
    "xgboost, regression": (lambda: XGBRegressor(**XGB), value, True),
    "histogram, binary": (lambda: HistGradientBoostingClassifier(**HIST), binary, True),
    "histogram, multiclass": (lambda: HistGradientBoostingClassifier(**HIST), several, True),
    "histogram, gamma": (lambda: HistGradientBoostingRegressor(loss="gamma", **HIST), lambda: np.exp(value()), True),
    "forest, binary": (lambda: RandomForestClassifier(**FOREST), binary, True),
    "forest, multiclass": (lambda: RandomForestClassifier(**FOREST), several, True),
    "forest, two targets": (
        lambda: RandomForestRegressor(**FOREST), lambda: np.stack([value(), -2 * value()], axis=1), True,
    ),
    "boosting, binary": (lambda: GradientBoostingClassifier(n_estimators=8), binary, False),
    "boosting, multiclass": (lambda: GradientBoostingClassifier(n_estimators=8), several, False),
    "boosting, regression": (lambda: GradientBoostingRegressor(n_estimators=8), value, False),
    "catboost, oblivious": (
        lambda: CatBoostClassifier(iterations=10, depth=4, verbose=0, allow_writing_files=False, thread_count=1),
        binary, True,
    ),
}  # fmt: skip


@cache
def source(name: str) -> Any:
    make, target, missing = SOURCES[name]
    return make().fit(rows(missing), target())


def outputs_of(fitted: Any, x: np.ndarray) -> np.ndarray:
    if not hasattr(fitted, "predict_proba"):
        return np.asarray(fitted.predict(x), np.float64)
    return np.asarray(fitted.predict_proba(x), np.float64)


def like_boosters(outputs: np.ndarray, found: np.ndarray) -> np.ndarray:
    """Of two classes boosters give the second one's probability."""
    return outputs[:, 1] if outputs.ndim == 2 and found.ndim == 1 else outputs


def near(scores: np.ndarray) -> float:
    """1e-6 of the largest score."""
    return 1e-6 * max(1.0, float(np.abs(scores).max()))


def from_lightgbm(net: windtunnel.Translation, folder: Path, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    net.export(folder / "model.txt", format="lightgbm")
    booster = lightgbm.Booster(model_file=str(folder / "model.txt"))
    return booster.predict(x, raw_score=True), booster.predict(x)


def from_xgboost(net: windtunnel.Translation, folder: Path, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    net.export(folder / "model.json", format="xgboost")
    booster = xgboost.Booster(model_file=str(folder / "model.json"))
    data = xgboost.DMatrix(x, feature_types=booster.feature_types)
    return booster.predict(data, output_margin=True), booster.predict(data)


READERS = {"lightgbm": from_lightgbm, "xgboost": from_xgboost}


@pytest.mark.parametrize("format", READERS)
@pytest.mark.parametrize("name", SOURCES)
def test_a_file_of_another_library_gives_what_the_source_gives(name: str, format: str, tmp_path: Path) -> None:
    fitted, x = source(name), rows(SOURCES[name][2])
    net = windtunnel.compile(fitted)
    scores = net.scores(x).numpy()
    raw, outputs = READERS[format](net, tmp_path, x)
    np.testing.assert_allclose(raw.reshape(scores.shape), scores, rtol=0, atol=near(scores))
    wanted = like_boosters(outputs_of(fitted, x), outputs)
    np.testing.assert_allclose(outputs, wanted, rtol=0, atol=near(wanted))


def test_float64_rows_decide_in_lightgbm_as_the_source_that_rounds_them(tmp_path: Path) -> None:
    fitted = source("xgboost, regression")
    net = windtunnel.compile(fitted)
    of = net.program.steps[-1].module.ensemble()
    rounded = of.threshold.astype(np.float32)
    at = np.nextafter(rounded, np.float32(np.inf)).astype(float) / 2 + rounded.astype(float) / 2
    x = np.zeros((3 * len(at), 5))
    x[np.arange(len(x)), np.tile(of.feature, 3)] = np.r_[at, np.nextafter(at, -np.inf), np.nextafter(at, np.inf)]
    raw, _ = from_lightgbm(net, tmp_path, x)
    np.testing.assert_allclose(raw, fitted.predict(x), rtol=0, atol=near(raw))


def frame() -> pd.DataFrame:
    table = pd.DataFrame(rows(), columns=["a", "b", "c", "d", "e"])
    table["d"] = pd.Categorical(np.nan_to_num(rows()[:, 3]).astype(int))
    return table


@pytest.mark.parametrize("format", READERS)
def test_sets_of_categories(format: str, tmp_path: Path) -> None:
    fitted = LGBMClassifier(min_data_per_group=5, cat_smooth=1, **LGBM).fit(frame(), binary())
    net = windtunnel.compile(fitted)
    columns = net.tree_columns(frame())
    assert net.program.steps[-1].module.ensemble().categories
    columns[:3, 3] = [np.nan, 99, 2]
    wanted = net.program.steps[-1].module(torch.from_numpy(columns))[:, 0].numpy()
    raw, _ = READERS[format](net, tmp_path, columns)
    np.testing.assert_allclose(raw, wanted, rtol=0, atol=near(wanted))


def test_zeros_as_missing(tmp_path: Path) -> None:
    fitted = LGBMClassifier(zero_as_missing=True, **LGBM).fit(rows(), binary())
    net = windtunnel.compile(fitted)
    raw, _ = from_lightgbm(net, tmp_path, rows())
    np.testing.assert_array_equal(raw, fitted.predict(rows(), raw_score=True))
    with pytest.raises(UnfaithfulOption, match="zero_as_missing"):
        net.export(tmp_path / "model.json", format="xgboost")


def test_a_missing_category_that_goes_left_is_rejected_for_lightgbm(tmp_path: Path) -> None:
    x = rows()
    fitted = HistGradientBoostingClassifier(categorical_features=[3], **HIST).fit(x, np.isnan(x[:, 3]) | (x[:, 3] == 2))
    net = windtunnel.compile(fitted)
    with pytest.raises(UnfaithfulOption, match="every missing category to the right"):
        net.export(tmp_path / "model.txt", format="lightgbm")
    columns = net.tree_columns(x)
    raw, _ = from_xgboost(net, tmp_path, columns)
    np.testing.assert_allclose(raw, fitted.decision_function(x), rtol=0, atol=near(raw))


def test_names_of_raw_columns_stand_in_the_files(tmp_path: Path) -> None:
    table = pd.DataFrame(rows(), columns=["a", "b", "c", "d", "e"])
    net = windtunnel.compile(LGBMRegressor(**LGBM).fit(table, value()))
    net.export(tmp_path / "model.txt", format="lightgbm")
    net.export(tmp_path / "model.json", format="xgboost")
    assert lightgbm.Booster(model_file=str(tmp_path / "model.txt")).feature_name() == [*table.columns]
    booster = xgboost.Booster(model_file=str(tmp_path / "model.json"))
    found = booster.predict(xgboost.DMatrix(table))
    np.testing.assert_allclose(found, net.predict(table), rtol=0, atol=near(found))


def test_a_lightgbm_file_can_be_translated_again(tmp_path: Path) -> None:
    net = windtunnel.compile(source("forest, binary"))
    net.export(tmp_path / "model.txt", format="lightgbm")
    again = windtunnel.compile(lightgbm.Booster(model_file=str(tmp_path / "model.txt")))
    np.testing.assert_allclose(again.predict(rows()), net.predict_proba(rows()), rtol=0, atol=1e-12)


def moved(net: windtunnel.Translation, x: Any, y: np.ndarray, rate: float = 3e-3) -> windtunnel.Translation:
    """A few steps on everything that trains."""
    optimizer = torch.optim.Adam([one for one in net.parameters() if one.requires_grad], rate)
    batch, target = net.encode(x), torch.as_tensor(y).float()
    for _ in range(15):
        optimizer.zero_grad()
        torch.nn.functional.binary_cross_entropy_with_logits(net(*batch)[:, 0], target).backward()
        optimizer.step()
    net.finish_softening()
    return net


def at_temperature_zero(net: windtunnel.Translation) -> windtunnel.Translation:
    """The soft translation with every slope so steep that tanh is a sign."""
    steep = copy.deepcopy(net)
    trees = steep.program.steps[-1].module
    trees.slope *= 1e8
    trees.leaf_slope *= 1e8
    return steep


@pytest.mark.parametrize("level", ["L1", "L2"])
@pytest.mark.parametrize("name", ["lightgbm, binary", "xgboost, binary", "histogram, binary", "catboost, oblivious"])
def test_hardened_trees_are_the_limit_of_the_soft_ones(name: str, level: str, tmp_path: Path) -> None:
    x, y = rows(), binary()
    net = moved(windtunnel.translate(source(name), level=level, calibrate=x).soften(), x, y)
    assert net.program.steps[-1].module.leaf_value.grad.abs().max() > 0
    hard = net.harden()
    wanted = at_temperature_zero(net).scores(x).numpy()
    np.testing.assert_allclose(hard.scores(x).numpy(), wanted, rtol=0, atol=near(wanted))
    for reader in READERS.values():
        raw, outputs = reader(hard, tmp_path, hard.tree_columns(x))
        np.testing.assert_allclose(raw, wanted[:, 0], rtol=0, atol=near(wanted))
        np.testing.assert_allclose(outputs, hard.predict_proba(x)[:, 1], rtol=0, atol=1e-6)


def test_hardened_category_tables(tmp_path: Path) -> None:
    fitted = LGBMClassifier(min_data_per_group=5, cat_smooth=1, **LGBM).fit(frame(), binary())
    net = moved(windtunnel.translate(fitted, level="L2", calibrate=frame()).soften(), frame(), binary())
    trees = net.program.steps[-1].module
    with torch.no_grad():
        trees.category_table[0] *= -1  # an unknown category goes left now
        trees.category_table[1, 1] *= -1
    columns = net.tree_columns(frame())
    columns[:3, 3] = [np.nan, 99, 2]
    hard = net.harden()
    x = torch.from_numpy(columns)
    wanted = at_temperature_zero(net).program.steps[-1].module(x).detach().numpy()
    np.testing.assert_allclose(hard.program.steps[-1].module(x).numpy(), wanted, rtol=0, atol=near(wanted))
    raw, _ = from_xgboost(hard, tmp_path, columns)
    np.testing.assert_allclose(raw, wanted[:, 0], rtol=0, atol=near(wanted))


def test_every_float32_row_goes_the_way_its_soft_node_leans() -> None:
    net = moved(
        windtunnel.translate(source("lightgbm, binary"), level="L2", calibrate=rows()).soften(), rows(), binary()
    )
    trees = net.program.steps[-1].module
    of = net.harden().program.steps[-1].module.ensemble()
    real = trees.node_mask > 0
    at = torch.from_numpy(of.threshold).float()
    for x, right in ((at, False), (torch.nextafter(at, torch.tensor(np.inf)), True)):
        block = torch.zeros(len(at), 5)
        block[torch.arange(len(at)), torch.from_numpy(of.feature)] = x
        z = trees.scaled(block)[torch.arange(len(at)), torch.from_numpy(of.feature)]
        assert ((z > trees.threshold[real]) == right).all()


def test_what_hardening_costs_is_measured_shown_and_saved(tmp_path: Path) -> None:
    x, y = rows(), binary()
    net = moved(windtunnel.translate(source("lightgbm, binary"), level="L2", calibrate=x).soften(), x, y)
    weight = np.linspace(0.5, 2, COUNT)
    hard = net.harden((x, y, weight))
    found = hard.hardening
    assert found is not None and found.metric == "auroc" and found.rows == COUNT
    probability = [one.predict_proba(x)[np.arange(COUNT), y.astype(int)] for one in (net, hard)]
    wanted = [-np.average(np.log(one), weights=weight) for one in probability]
    np.testing.assert_allclose([found.loss_before, found.loss_after], wanted, rtol=1e-5)
    assert net.scores(x).mean().item() == pytest.approx(hard.scores(x).mean().item(), abs=1e-5)
    assert f"{found.after:.6f} after" in " ".join(str(hard.report()).split())
    assert "exact" not in str(hard.report()) and net.hardening is None
    hard.save(tmp_path / "net.windtunnel")
    assert windtunnel.load(tmp_path / "net.windtunnel").hardening == found


def test_without_targets_only_the_change_is_told() -> None:
    net = windtunnel.translate(source("lightgbm, binary"), level="L1", calibrate=rows()).soften()
    net.finish_softening()
    found = net.harden(rows()).hardening
    assert found is not None and np.isnan(found.before) and 0 < found.change < 0.05


@pytest.mark.parametrize("level", ["L1", "L4"])
def test_what_has_not_moved_becomes_the_source_again(level: str) -> None:
    fitted = source("lightgbm, binary")
    hard = windtunnel.translate(fitted, level=level, calibrate=rows()).soften().harden()
    np.testing.assert_allclose(hard.scores(rows())[:, 0], fitted.predict(rows(), raw_score=True), rtol=0, atol=1e-6)


@pytest.mark.parametrize(("level", "reason"), [("L3", "weigh several columns"), ("L4", "weigh several columns")])
def test_what_is_no_tree_any_more_is_rejected_by_name(level: str, reason: str) -> None:
    net = moved(
        windtunnel.translate(source("lightgbm, binary"), level=level, calibrate=rows()).soften(), rows(), binary()
    )
    with pytest.raises(UnfaithfulOption, match=f"'LGBMClassifier': trees trained at {level}.*{reason}"):
        net.harden()


def test_a_second_layer_that_has_moved_is_rejected() -> None:
    net = windtunnel.translate(source("lightgbm, binary"), level="L4", calibrate=rows()).soften()
    with torch.no_grad():
        net.program.steps[-1].module.path += 0.01
    net.finish_softening()
    with pytest.raises(UnfaithfulOption, match="none of their ancestors"):
        net.harden()


def test_a_hardened_model_in_onnx_runtime_is_tree_nodes(tmp_path: Path) -> None:
    net = moved(
        windtunnel.translate(source("lightgbm, binary"), level="L2", calibrate=rows()).soften(), rows(), binary()
    )
    hard = net.harden()
    hard.export(tmp_path / "model.onnx", format="onnx")
    graph = onnx.load(tmp_path / "model.onnx").graph
    assert "TreeEnsemble" in {node.op_type for node in graph.node}
    given = {str(column): rows()[:, column].astype(float) for column in range(5)}
    found = serving.load(tmp_path / "model.onnx").predict_proba(given)
    np.testing.assert_allclose(found, hard.predict_proba(rows()), rtol=0, atol=1e-6)


def test_leaves_harden_too_and_no_tree_file_holds_what_reads_them(tmp_path: Path) -> None:
    encoder = windtunnel.LeafEncoder(LGBMClassifier(**LGBM))
    pipeline = make_pipeline(encoder, LogisticRegression(max_iter=500)).fit(rows(), binary())
    net = windtunnel.translate(pipeline, level="L2", calibrate=rows()).soften()
    net.finish_softening()
    hard = net.harden(rows())
    assert any(isinstance(step.module, LeafOneHot) for step in hard.program.steps)
    np.testing.assert_allclose(hard.predict_proba(rows()), pipeline.predict_proba(rows()), rtol=0, atol=1e-5)
    with pytest.raises(UnfaithfulOption, match="'logisticregression', is a Linear"):
        hard.export(tmp_path / "model.txt", format="lightgbm")


def test_a_residual_model_is_named_as_what_cannot_go_into_a_tree_file(tmp_path: Path) -> None:
    draw = np.random.default_rng(2)
    x = draw.normal(size=(4000, 4)).astype(np.float32)
    y = (x[:, 0] > 0) ^ (x[:, 1] > 0)
    weak = LGBMClassifier(n_estimators=3, num_leaves=2, verbose=-1, n_jobs=1).fit(x[:2000], y[:2000])
    net = windtunnel.translate(weak, calibrate=x[:500])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        net.fit((x[:2000], y[:2000]), (x[2000:], y[2000:]), epochs=3)
    assert any(type(step.module).__name__ == "ResidualModel" for step in net.program.steps)
    hard = net.harden((x[2000:], y[2000:]))
    assert hard.hardening is not None and hard.hardening.change == 0
    with pytest.raises(UnfaithfulOption, match="has added a residual model"):
        hard.export(tmp_path / "model.txt", format="lightgbm")


def test_soft_trees_are_sent_to_harden_first(tmp_path: Path) -> None:
    net = windtunnel.translate(source("lightgbm, binary"), level="L2", calibrate=rows()).soften()
    with pytest.raises(UnfaithfulOption, match="soft trees at L2. Export net.harden"):
        net.export(tmp_path / "model.json", format="xgboost")


def test_a_final_step_that_is_no_sum_of_trees_is_named(tmp_path: Path) -> None:
    model = CalibratedClassifierCV(LGBMClassifier(**LGBM), cv=2).fit(rows(), binary())
    with pytest.raises(UnfaithfulOption, match="the last step of this translation"):
        windtunnel.compile(model).export(tmp_path / "model.txt", format="lightgbm")


@pytest.mark.parametrize("format", ["lightgbm", "xgboost"])
def test_a_forest_whose_leaves_do_not_add_up_to_1_is_rejected(format: str, tmp_path: Path) -> None:
    forest = RandomForestClassifier(5, max_depth=3, random_state=0).fit(rows(False), binary())
    net = windtunnel.translate(forest, level="L1", calibrate=rows(False))
    net.export(tmp_path / "model", format=format)
    options: dict[str, Any] = {"recipe": "joint", "epochs": 2, "learning_rate": 0.05, "progress": False}
    net.fit((rows(False), ~binary()), (rows(False)[:100], ~binary()[:100]), **options)
    with pytest.raises(UnfaithfulOption, match="divided by their sum"):
        net.harden(rows(False)).export(tmp_path / "model", format=format)
    with pytest.raises(UnfaithfulOption, match="no sum of its leaves"):
        isolation = IsolationForest(n_estimators=5, random_state=0).fit(rows(False))
        windtunnel.compile(isolation).export(tmp_path / "model", format=format)


def test_columns_that_reach_the_trees_are_those_of_the_pipeline_before_them(tmp_path: Path) -> None:
    pipeline = make_pipeline(StandardScaler(), LGBMRegressor(**LGBM)).fit(rows(False), value())
    net = windtunnel.compile(pipeline)
    before = pipeline[:-1].transform(rows(False).astype(np.float64))
    np.testing.assert_allclose(net.tree_columns(rows(False)), before, rtol=0, atol=1e-12)
    raw, _ = from_lightgbm(net, tmp_path, before)
    np.testing.assert_allclose(raw, pipeline.predict(rows(False)), rtol=0, atol=1e-6)


def test_hard_trees_stay_and_the_net_that_was_given_too() -> None:
    net = windtunnel.translate(source("lightgbm, binary"), level="L2", calibrate=rows()).soften()
    before = net.scores(rows())
    hard = net.harden()
    assert isinstance(hard.program.steps[-1].module, HardTrees)
    torch.testing.assert_close(net.scores(rows()), before, rtol=0, atol=0)
    again = hard.harden()
    torch.testing.assert_close(again.scores(rows()), hard.scores(rows()), rtol=0, atol=0)


def test_wrong_rows_are_rejected() -> None:
    net = windtunnel.translate(source("lightgbm, binary"), level="L2", calibrate=rows()).soften()
    with pytest.raises(BadInput, match="a tuple of 4"):
        net.harden((rows(), binary(), None, None))
    with pytest.raises(BadInput, match="y has 10 values for 600 rows"):
        net.harden((rows(), binary()[:10]))
    with pytest.raises(BadInput, match="weight has 10 values for 600 rows"):
        net.harden((rows(), binary(), np.ones(10)))
    for wrong in (-1, np.nan):
        with pytest.raises(BadInput, match="600 of 600 weights are negative, NaN or infinite"):
            net.harden((rows(), binary(), np.full(600, wrong)))


def test_weights_may_be_a_series() -> None:
    net = windtunnel.translate(source("lightgbm, binary"), level="L2", calibrate=rows()).soften()
    weight = pd.Series(np.arange(600.0), index=range(7, 607))
    assert net.harden((rows(), binary(), weight)).hardening == net.harden((rows(), binary(), weight.array)).hardening


def test_thresholds_that_float32_does_not_tell_apart_are_named(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    X = pd.DataFrame({"seconds": 1.7e9 + random.integers(0, 2000, 1000), "age": random.normal(size=1000)})
    source = LGBMClassifier(n_estimators=3, verbosity=-1).fit(X, (X["seconds"] // 100 % 2).astype(int))
    with pytest.warns(UserWarning, match="different thresholds of seconds are equal"):
        windtunnel.translate(source).export(tmp_path / "model.json")
