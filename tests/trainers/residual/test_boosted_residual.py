"""The boosted residual: target statistics, boosting with any loss, and a fit that keeps it."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from c_library import CLibrary
from lightgbm import LGBMRegressor
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import windtunnel
from windtunnel.export import serving
from windtunnel.modules.linear.multilayer import MultilayerPerceptron
from windtunnel.modules.tables.cell_statistics import CellStatistics
from windtunnel.modules.trees.hard import HardTrees
from windtunnel.objectives.losses import LOSSES
from windtunnel.trainers.data.labelled_rows import Targets
from windtunnel.trainers.residual.boosted.boosting import Datasets, boost, boosting_derivatives
from windtunnel.trainers.residual.boosted.cell_tables import TARGET_PRIOR_ROWS, CellTables, TargetRows, block_of_rows
from windtunnel.trainers.residual.boosted.fit_boosted import BoostedResidual
from windtunnel.trainers.residual.boosted.fit_targets import FitTargets
from windtunnel.trainers.residual.init_scores import ResidualInputs
from windtunnel.trainers.residual.screening import SelectedInteractions
from windtunnel.trainers.significance.validation_halves import ValidationHalves

ROWS, TRAIN, VALID = 9000, slice(0, 6000), slice(6000, 8500)


def rows_and_target() -> tuple[pd.DataFrame, np.ndarray[Any, Any]]:
    """Two pairs of columns have a latent sign per pair of values; the target is their product, which no sum gives."""
    random = np.random.default_rng(0)
    X = pd.DataFrame({name: random.integers(0, 12, ROWS).astype(str) for name in "abcd"})
    signs = random.choice([-1.0, 1.0], size=(2, 12, 12))
    first, second = (signs[k][X[p].astype(int), X[q].astype(int)] for k, (p, q) in enumerate(("ab", "cd")))
    logit = 1.2 * first + 1.2 * second + 2.0 * first * second
    return X, random.random(ROWS) < 1 / (1 + np.exp(-logit))


def numbers_and_target() -> tuple[pd.DataFrame, np.ndarray[Any, Any]]:
    """The sign of the product of two numbers, some of which are missing, and a category that adds to it."""
    random = np.random.default_rng(1)
    category = random.integers(0, 12, ROWS)
    X = pd.DataFrame({"u": random.normal(size=ROWS), "v": random.normal(size=ROWS), "c": category.astype(str)})
    logit = 2.0 * np.sign(X["u"] * X["v"]) + random.normal(size=12)[category]
    X.loc[::17, "u"] = np.nan
    return X, random.random(ROWS) < 1 / (1 + np.exp(-logit))


def fit_on_numbers() -> windtunnel.Translation:
    X, y = numbers_and_target()
    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    columns = make_column_transformer((numbers, ["u", "v"]), (OneHotEncoder(), ["c"]))
    source = make_pipeline(columns, LogisticRegression()).fit(X[TRAIN], y[TRAIN])
    net = windtunnel.translate(source)
    return net.fit((X[TRAIN], y[TRAIN]), (X[VALID], y[VALID]), epochs=1, progress=False, accelerator="cpu")


@pytest.fixture(scope="module")
def fitted_on_numbers() -> windtunnel.Translation:
    return fit_on_numbers()


@pytest.fixture(scope="module")
def fitted() -> windtunnel.Translation:
    X, y = rows_and_target()
    source = make_pipeline(OneHotEncoder(), LogisticRegression()).fit(X[TRAIN], y[TRAIN])
    net = windtunnel.translate(source)
    return net.fit((X[TRAIN], y[TRAIN]), (X[VALID], y[VALID]), epochs=1, progress=False, accelerator="cpu")


def test_two_threads_fit_what_one_fits(fitted_on_numbers: windtunnel.Translation) -> None:
    X, _ = numbers_and_target()
    before, random_state = torch.get_num_threads(), torch.get_rng_state()
    torch.set_num_threads(3 - before if before < 3 else 1)
    try:
        net = fit_on_numbers()
    finally:
        torch.set_num_threads(before)
    np.testing.assert_allclose(net.predict_proba(X), fitted_on_numbers.predict_proba(X), atol=1e-4)
    assert torch.equal(torch.get_rng_state(), random_state)


def test_features_leave_the_block_of_a_row_out() -> None:
    random = np.random.default_rng(0)
    codes = torch.from_numpy(random.integers(0, 4, (300, 3)))
    target, weight = random.normal(size=(300, 2)), random.random(300) + 0.5
    rows = TargetRows(codes, target, weight)
    tables = CellTables.of([(0, 2), (1,)], [4, 4, 4], rows)
    block = block_of_rows("contiguous", 300, 0)
    features = tables.out_of_block_features(rows, block, torch.arange(300))
    mean = np.average(target, axis=0, weights=weight)
    for row in (0, 57, 299):
        for interaction, columns in enumerate(([0, 2], [1])):
            same = (codes[:, columns] == codes[row, columns]).all(dim=1).numpy()
            cell, other = same, same & (block != block[row])
            for part, values in ((other, features), (cell, tables.features(codes))):
                total = (target[part] * weight[part, None]).sum(axis=0) + TARGET_PRIOR_ROWS * mean
                expected = [*total / (weight[part].sum() + TARGET_PRIOR_ROWS), weight[part].sum()]
                assert np.allclose(values[row, 3 * interaction : 3 * interaction + 3], expected, rtol=1e-5)


def test_random_blocks_do_not_follow_the_order_of_the_rows() -> None:
    assert np.all(np.diff(block_of_rows("contiguous", 500, 0)) >= 0)
    assert sorted(block_of_rows("random", 500, 0)) == sorted(block_of_rows("random", 500, 1))
    assert np.any(np.diff(block_of_rows("random", 500, 0)) < 0)


def test_derivatives_of_the_logistic_loss() -> None:
    random = np.random.default_rng(0)
    scores, target = torch.from_numpy(random.normal(size=(50, 1))), torch.from_numpy(random.integers(0, 2, 50))
    weight = torch.from_numpy(random.random(50))
    chance, scale = 1 / (1 + np.exp(-scores[:, 0].numpy())), (weight / weight.mean()).numpy()
    first, second = boosting_derivatives(LOSSES["logistic"], scores, target, weight, unit=torch.ones(1))
    assert np.allclose(first, (chance - target.numpy()) * scale)
    assert np.allclose(second, chance * (1 - chance) * scale)


def test_derivatives_of_several_scores_and_of_a_loss_without_curvature() -> None:
    random = np.random.default_rng(0)
    scores, target = torch.from_numpy(random.normal(size=(50, 3))), torch.from_numpy(random.integers(0, 3, 50))
    chance = torch.softmax(scores, dim=1).numpy()
    first, second = boosting_derivatives(LOSSES["softmax"], scores, target, unit=torch.ones(3))
    assert np.allclose(first, chance - np.eye(3)[target.numpy()])
    assert np.allclose(second, chance * (1 - chance))
    values = torch.from_numpy(random.normal(size=50))
    absolute = LOSSES["absolute"], scores[:, :1].detach(), values
    first, second = boosting_derivatives(*absolute, unit=torch.tensor([2.0]))
    assert np.array_equal(first, 2 * np.sign((scores[:, 0].detach() - values).numpy())) and np.all(second == 1)


def test_boosting_lowers_the_loss_of_several_scores() -> None:
    random = np.random.default_rng(0)
    features = random.normal(size=(1500, 2)).astype(np.float32)
    target = torch.from_numpy((features[:, 0] > 0).astype(int) + (features[:, 1] > 0))
    parts = slice(0, 1000), slice(1000, 1500)
    binned = Datasets.of(*(features[part] for part in parts), threads=1)
    train, valid = (Targets(target[part]) for part in parts)
    split = ValidationHalves([*torch.arange(500).tensor_split(2)], torch.arange(500))
    targets = FitTargets(torch.zeros(3), train, valid, split, LOSSES["softmax"], torch.ones(3), seed=0)
    boosting = boost(targets, binned, max_trees=60)
    rounds = boosting.rounds()
    scores = boosting.scores(features[parts[1]], rounds, 3)
    loss = LOSSES["softmax"](scores, valid.target, None)
    assert boosting.losses[0] == pytest.approx([np.log(3)] * 3) and boosting.lowest() < 0.5 * np.log(3)
    assert float(loss) == pytest.approx(boosting.lowest(), rel=1e-5)


def test_fit_keeps_a_boosted_residual_where_no_sum_of_tables_suffices(fitted: windtunnel.Translation) -> None:
    X, y = rows_and_target()
    history = fitted.history
    assert history is not None and history.kept is not None and "boosted" in history.kept.name
    by_name = {candidate.name: candidate for candidate in history.candidates}
    loss, sums = by_name[history.kept.name].loss, by_name["interactions"].loss
    assert loss is not None and sums is not None and loss < sums - 0.01
    test = slice(8500, ROWS)
    signal = fitted.predict_proba(X[test])[:, 1]
    assert roc_auc_score(y[test], signal) > history.start + 0.1


def test_its_trees_read_numbers_too(fitted_on_numbers: windtunnel.Translation, tmp_path: Path) -> None:
    net, (X, y) = fitted_on_numbers, numbers_and_target()
    assert net.history is not None and net.history.kept is not None and "boosted" in net.history.kept.name
    (statistics,) = (step.module for step in net.program.steps if isinstance(step.module, CellStatistics))
    (trees,) = (step.module for step in net.program.steps if isinstance(step.module, HardTrees))
    first_number = trees.width - len(statistics.edges)
    assert statistics.number_codes and trees.ensemble().feature.max() >= first_number
    rows, scores = X[8500:], net.scores(X[8500:]).double().numpy()
    assert rows["u"].isna().any() and roc_auc_score(y[8500:], scores[:, 0]) > net.history.start + 0.2
    explanation = net.explain(rows[:50])
    np.testing.assert_allclose(explanation.base + explanation.values.sum(axis=1), scores[:50], atol=1e-5)
    np.testing.assert_allclose(windtunnel.compile(net).scores(rows).double().numpy(), scores, atol=1e-12)
    for suffix in ("ts", "onnx"):
        net.export(tmp_path / f"net.{suffix}")
        exported = serving.load(tmp_path / f"net.{suffix}", trusted=suffix != "onnx")
        of_file = exported.scores({name: rows[name].tolist() for name in rows})
        np.testing.assert_allclose(of_file, scores, rtol=1e-5, atol=1e-6)


def test_it_is_a_weighted_mean_whose_change_can_be_shrunken(fitted: windtunnel.Translation) -> None:
    steps: Any = fitted.program.steps
    (position,) = (at for at, step in enumerate(steps) if isinstance(step.module, CellStatistics))
    statistics, trees, network, _, total = (step.module for step in steps[position : position + 5])
    inputs = ResidualInputs([], [column for _, column in steps[position].places()])
    boosted = BoostedResidual(statistics, trees, network, inputs, total.weight, torch.zeros(0, 1))
    rows, start = fitted.encode(rows_and_target()[0][-50:]), torch.full((50, 1), 2.0)
    assert 0 <= boosted.weight < 1
    whole, half, none = (boosted.shrunken(factor).scores(rows, start) for factor in (1.0, 0.5, 0.0))
    assert not torch.equal(whole, start) and torch.equal(none, start)
    torch.testing.assert_close(half, (whole + start) / 2, check_dtype=False)


def test_compiled_it_is_explained_though_its_trees_read_few_features(fitted: windtunnel.Translation) -> None:
    X = rows_and_target()[0][-50:]
    net = deepcopy(fitted)
    (position,) = (at for at, step in enumerate(net.program.steps) if isinstance(step.module, HardTrees))
    step: Any = net.program.steps[position]
    step.module = HardTrees.of(replace(step.module.ensemble(), feature=np.zeros_like(step.module.ensemble().feature)))
    compiled = windtunnel.compile(net)
    (trees,) = (step for step in compiled.program.steps if isinstance(step.module, HardTrees))
    assert len(trees.places()) == 1
    for each in (net, compiled):
        explanation = each.explain(X)
        total = explanation.base + explanation.values.sum(axis=1)
        np.testing.assert_allclose(total, each.scores(X).double().numpy(), atol=1e-5)


def test_contributions_of_its_network_start_from_the_mean_of_its_training_rows(fitted: windtunnel.Translation) -> None:
    (network,) = (step.module for step in fitted.program.steps if isinstance(step.module, MultilayerPerceptron))
    (statistics,) = (step for step in fitted.program.steps if isinstance(step.module, CellStatistics))
    X = rows_and_target()[0][TRAIN]
    features = fitted.step_inputs([*fitted.program.steps].index(statistics), fitted.encode(X))
    values = statistics.module(features).double()
    # The training features leave the block of a row out, so that they differ a little.
    away = (network.reference - values.mean(dim=0)).abs() / values.std(dim=0).clamp_min(1e-3)
    assert float(away.median()) < 0.1


def test_a_loss_without_curvature_gains_as_much_in_any_unit() -> None:
    random = np.random.default_rng(0)
    X = pd.DataFrame(random.integers(0, 7, (5000, 2)), columns=["c", "d"]).assign(u=random.normal(size=5000))
    values = (X["c"] - 3) * (X["d"] - 3) / 3 + X["u"] + random.normal(size=5000)
    losses = []
    for unit in (1e-4, 1e4):
        source = LGBMRegressor(objective="regression_l1", n_estimators=2, verbosity=-1).fit(
            X[:500], values[:500] * unit
        )
        parts = [(X[part], values[part] * unit) for part in (slice(3500), slice(3500, None))]
        history = windtunnel.translate(source).fit(*parts, epochs=1, progress=False, accelerator="cpu").history
        losses.append([candidate.loss / unit for candidate in history.candidates if "boosted" in candidate.name])
    assert losses[0] and np.allclose(*losses, rtol=0.1)


def test_it_is_trained_on_a_program_in_float32() -> None:
    X, y = rows_and_target()
    source = make_pipeline(OneHotEncoder(), LogisticRegression()).fit(X[TRAIN], y[TRAIN])
    net = windtunnel.compile(source, dtype="float32")
    net.fit((X[TRAIN], y[TRAIN]), (X[VALID], y[VALID]), epochs=1, progress=False, accelerator="cpu")
    assert net.history.kept is not None and "boosted" in net.history.kept.name


def test_saved_it_scores_the_same(fitted: windtunnel.Translation, tmp_path: Path) -> None:
    X = rows_and_target()[0][-50:]
    fitted.save(tmp_path / "net.windtunnel")
    assert np.array_equal(windtunnel.load(tmp_path / "net.windtunnel").predict_proba(X), fitted.predict_proba(X))


@pytest.mark.parametrize("suffix", ["ts", "pt2"])  # ONNX: test_its_trees_read_numbers_too
def test_exported_it_scores_the_same(suffix: str, fitted: windtunnel.Translation, tmp_path: Path) -> None:
    X, path = rows_and_target()[0][-50:], tmp_path / f"net.{suffix}"
    fitted.export(path)
    model = serving.load(path, trusted=True)
    scores = model.scores({name: X[name].tolist() for name in X})
    np.testing.assert_allclose(scores, fitted.scores(X).detach().numpy(), rtol=1e-5, atol=1e-6)


def test_in_c_it_predicts_the_same(fitted: windtunnel.Translation, tmp_path: Path) -> None:
    X = rows_and_target()[0][-50:]
    of_c = CLibrary(fitted, tmp_path).predict_proba(X)
    np.testing.assert_allclose(of_c, fitted.predict_proba(X), rtol=1e-9)


def test_contributions_add_up_to_the_score(fitted: windtunnel.Translation) -> None:
    X = rows_and_target()[0][-50:]
    explanation = fitted.explain(X)
    total = explanation.base + explanation.values.sum(axis=1)
    np.testing.assert_allclose(total, fitted.scores(X).double().numpy(), atol=1e-5)
    assert "boosted residual" in explanation.method
    size = np.abs(explanation.values).mean(axis=(0, 2))
    assert {"a", "b"} <= set(explanation.columns[int(size.argmax())]) or {"c", "d"} <= set(
        explanation.columns[int(size.argmax())]
    )


def test_a_second_fit_replaces_it_and_refresh_keeps_it(fitted: windtunnel.Translation) -> None:
    X, y = rows_and_target()
    net = deepcopy(fitted)
    names = [type(step.module).__name__ for step in net.program.steps]
    net.refresh((X[-500:], y[-500:]))
    assert [type(step.module).__name__ for step in net.program.steps][: len(names)] == names
    net.fit((X[TRAIN], y[TRAIN]), (X[VALID], y[VALID]), epochs=1, progress=False, accelerator="cpu")
    assert sum(type(step.module).__name__ == "CellStatistics" for step in net.program.steps) <= 1
    assert net.history is not None and net.history.best >= net.history.start


def test_refresh_moves_the_leaves_of_the_boosted_residual(fitted: windtunnel.Translation) -> None:
    net, (X, y) = deepcopy(fitted), rows_and_target()
    (trees,) = [step.module for step in fitted.program.steps if isinstance(step.module, HardTrees)]
    before = trees.leaf_value.clone()
    net.refresh((X[TRAIN], ~y[TRAIN]), valid=(X[VALID], ~y[VALID]), anchor=5)
    assert net.history is not None and net.history.refresh is not None
    (moved,) = [step.module for step in net.program.steps if isinstance(step.module, HardTrees)]
    assert not torch.equal(before, moved.leaf_value)
    change = net.history.refresh.changes[0]
    assert change.loss_after < change.loss_before
    np.testing.assert_allclose(change.loss_after, log_loss(~y[VALID], net.predict_proba(X[VALID])), rtol=1e-5)


def test_it_needs_no_column_of_the_residual_model(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = SelectedInteractions([], [])
    monkeypatch.setattr("windtunnel.trainers.residual.interactions.select_interactions", lambda *_: nothing)
    X, y = rows_and_target()
    source = make_pipeline(OneHotEncoder(), LogisticRegression()).fit(X[TRAIN], y[TRAIN])
    net = windtunnel.translate(source)
    history = net.fit((X[TRAIN], y[TRAIN]), (X[VALID], y[VALID]), progress=False, accelerator="cpu").history
    assert history is not None and history.stopped == "before it began: no column explains the residuals"
    candidates = {candidate.name: candidate for candidate in history.candidates}
    assert candidates["residual model"].reason == "no column explains the residuals"
    assert candidates["boosted residual"].kept and history.best > history.start + 0.1
    assert len(history.epochs) == 1 and net.report()
