from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from lightgbm import LGBMClassifier, LGBMRegressor
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, PoissonRegressor, Ridge
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from torch.utils.data import DataLoader, IterableDataset

import windtunnel
from windtunnel.api.crossfit import _losses
from windtunnel.errors import BadInput
from windtunnel.modules.linear.residual_model import ResidualModel, interaction_cells
from windtunnel.trainers.recipe import Recipe
from windtunnel.trainers.residual.mean_residuals import PRIOR_ROWS, Interaction, Residuals, interaction_weights
from windtunnel.trainers.residual.screening import select_interactions

TEXTS, NUMBERS = ["city", "day"], ["age", "fee"]


def frame(count: int = 3000, seed: int = 0) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    X = pd.DataFrame({"age": random.normal(40, 12, count).round(), "fee": random.exponential(20, count)})
    X["city"] = random.choice([f"c{i}" for i in range(12)], count)
    X["day"] = random.choice(["mo", "tu", "we", "th", "fr"], count)
    X.loc[random.random(count) < 0.05, "fee"] = np.nan
    return X.fillna({"fee": -1.0}) if seed < 0 else X


def signal(X: pd.DataFrame) -> np.ndarray:
    """Mostly a product of two categories, which an additive model cannot have."""
    city, day = X["city"].str[1:].astype(int), X["day"].map({"mo": 0, "tu": 1, "we": 2, "th": 3, "fr": 4})
    return (2.5 * np.where((city + day) % 2 == 0, 1, -1) + 0.03 * (X["age"] - 40)).to_numpy()


def labelled(X: pd.DataFrame, kind: str, seed: int = 0) -> np.ndarray:
    random = np.random.default_rng(seed + 1)
    s = signal(X)
    if kind == "value":
        return 1000 + 50 * (s + random.normal(size=len(s)))
    if kind == "count":
        return random.poisson(np.exp(0.4 * s)).astype(float)
    if kind == "grade":
        return np.digitize(s + random.logistic(size=len(s)), [-1.5, 1.5]) * 10
    return np.where(s + random.logistic(size=len(s)) > 0, "yes", "no")


def encoded() -> Any:
    return make_column_transformer((OneHotEncoder(handle_unknown="ignore"), TEXTS), (StandardScaler(), NUMBERS[:1]))


def additive(final: Any, kind: str) -> Any:
    X = frame()
    return make_pipeline(encoded(), final).fit(X, labelled(X, kind))


def trees(model: Any) -> Any:
    return model(n_estimators=5, num_leaves=4, verbosity=-1, random_state=0)


SOURCES = {
    "logistic": (LogisticRegression(), "label"),
    "three classes": (LogisticRegression(), "grade"),
    "ridge": (Ridge(), "value"),
    "counts": (PoissonRegressor(), "count"),
    "forest": (RandomForestClassifier(n_estimators=5, max_depth=3, random_state=0), "label"),
    "lightgbm": (trees(LGBMClassifier), "label"),
    "lightgbm values": (trees(LGBMRegressor), "value"),
}
OPTIONS: dict[str, Any] = {"progress": False, "accelerator": "cpu"}


def fitted(name: str, **options: Any) -> tuple[Any, windtunnel.Translation]:
    final, kind = SOURCES[name]
    source = additive(final, kind)
    net = windtunnel.translate(source, calibrate=frame(500))
    X, held = frame(), frame(1500, seed=5)
    net.fit((X, labelled(X, kind)), (held, labelled(held, kind, 5)), **(OPTIONS | options))
    return source, net


def is_better(history: Any) -> bool:
    return bool(history.best > history.start if history.greater_is_better else history.best < history.start)


@pytest.mark.parametrize("name", SOURCES)
def test_it_improves_an_additive_model(name: str) -> None:
    _, net = fitted(name)
    history = net.history
    assert is_better(history) and [origin.name for origin in net.origins][-1] == "residual"
    rows = frame(1500, seed=9)
    y = labelled(rows, SOURCES[name][1], 9)
    source = additive(*SOURCES[name])
    if hasattr(source, "predict_proba"):
        right = [(model.predict(rows) == y).mean() for model in (source, net)]
        assert right[1] > right[0] + 0.05
        np.testing.assert_allclose(net.predict_proba(rows).sum(axis=1), 1, atol=1e-6)
    else:
        wrong = [np.square(model.predict(rows) - y).mean() for model in (source, net)]
        assert wrong[1] < 0.8 * wrong[0]


@pytest.mark.parametrize("name", ["logistic", "lightgbm", "lightgbm values"])
def test_the_pipeline_is_exact(name: str) -> None:
    source, net = fitted(name)
    exact = windtunnel.compile(source)
    rows = frame(300, seed=7)
    residual = next(at for at, step in enumerate(net.program.steps) if isinstance(step.module, ResidualModel))
    values = [*net.encode(rows)]
    with torch.no_grad():
        for step in net.program.steps:
            values.append(step(values))
    torch.testing.assert_close(values[-1] - values[2 + residual], exact.scores(rows).float(), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("name", SOURCES)
def test_it_is_saved_and_exported(name: str, tmp_path: Path) -> None:
    _, net = fitted(name, epochs=1)
    rows = frame(200, seed=3)
    rows.loc[:3, ["city", "day"]] = "new"
    net.save(tmp_path / "net.windtunnel")
    loaded = windtunnel.load(tmp_path / "net.windtunnel")
    assert torch.equal(loaded.scores(rows), net.scores(rows))
    assert str(loaded.report()) == str(net.report())


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")
@pytest.mark.parametrize("name", ["logistic", "three classes", "lightgbm", "forest"])
def test_it_is_scripted(name: str) -> None:
    _, net = fitted(name, epochs=1)
    batch = net.encode(frame(200, seed=3))
    scripted = torch.jit.script(net.program)
    torch.testing.assert_close(scripted(*batch), net.program(*batch), rtol=0, atol=0)


def test_noise_gives_no_better_model() -> None:
    source = additive(LogisticRegression(), "label")
    net = windtunnel.translate(source, calibrate=frame(500))
    X, held = frame(600, seed=11), frame(600, seed=12)
    random = np.random.default_rng(0)
    before = net.scores(held)
    noise = [random.choice(["yes", "no"], len(rows)) for rows in (X, held)]
    net.fit((X, noise[0]), (held, noise[1]), **OPTIONS)
    assert net.history.best >= net.history.start
    if net.history.kept.name == "translation":
        assert torch.equal(net.scores(held), before)


def test_the_same_seed_gives_the_same_bits() -> None:
    rows = frame(200, seed=3)
    first, second, other = (fitted("lightgbm", epochs=2, seed=seed)[1].scores(rows) for seed in (1, 1, 2))
    assert torch.equal(first, second) and not torch.equal(first, other)


def test_a_loader_of_raw_rows_gives_nearly_the_same() -> None:
    X, held = frame(), frame(1500, seed=5)
    y, z = labelled(X, "label"), labelled(held, "label", 5)
    source = additive(LogisticRegression(), "label")
    nets = [windtunnel.translate(source) for _ in range(2)]
    batches = [(X[i : i + 150], y[i : i + 150]) for i in range(0, len(X), 150)]
    nets[0].fit((X, y), (held, z), batch_size=150, **OPTIONS)
    nets[1].fit(batches, [(held, z)], **OPTIONS)
    assert is_better(nets[1].history) and abs(nets[0].history.best - nets[1].history.best) < 0.02


class Parts(IterableDataset[Any]):
    """Batches of raw rows, of which nobody knows how many there are."""

    def __iter__(self) -> Iterator[Any]:
        X = frame(400)
        y = labelled(X, "label")
        return iter([(X[at : at + 100], y[at : at + 100]) for at in range(0, len(X), 100)])


@pytest.mark.parametrize("loader", [Parts(), DataLoader(Parts(), batch_size=None)], ids=["iterable", "data loader"])
def test_a_loader_without_a_length(loader: Any) -> None:
    net = windtunnel.translate(additive(*SOURCES["logistic"]), calibrate=frame(500))
    held = frame(400, seed=5)
    net.fit(loader, (held, labelled(held, "label", 5)), **OPTIONS, epochs=1)
    assert net.history is not None and len(net.history.epochs) == 2


def test_one_validation_row_trains_the_translation() -> None:
    # Tree-block weights are fitted on one half of the validation rows and tested on the other.
    X = frame(500)
    y = labelled(X, "label")
    source = make_pipeline(encoded(), LGBMClassifier(n_estimators=40, verbosity=-1)).fit(X, y)
    net = windtunnel.translate(source, calibrate=X)
    with pytest.raises(BadInput, match="before training, auroc over the validation rows is nan"):
        net.fit((X, y), (X[:1], y[:1]), **OPTIONS, epochs=1)
    net.fit((X, y), (X[:1], y[:1]), **OPTIONS, epochs=1, metric="accuracy")
    assert net.history is not None and net.history.validated_on == "validation rows"
    assert net.program.steps[-1].name != "residual"


def test_rows_of_weight_zero_do_not_count() -> None:
    X, held = frame(), frame(1500, seed=5)
    y, z = labelled(X, "label"), labelled(held, "label", 5)
    wrong = np.where(y == "yes", "no", "yes")
    both, labels = pd.concat([X, X], ignore_index=True), np.concatenate([y, wrong])
    weight = np.repeat([1.0, 0.0], len(X))
    source = additive(LogisticRegression(), "label")
    net, without = windtunnel.translate(source), windtunnel.translate(source)
    net.fit((both, labels, weight), (held, z), **OPTIONS)
    assert net.history.best > net.history.start + 0.1
    # The interactions are those of the rows with a weight.
    without.fit((X, y, weight[: len(X)]), (held, z), **OPTIONS)
    tables = [one.program.steps[-2].module.cross for one in (net, without)]
    torch.testing.assert_close(*tables)


@pytest.mark.parametrize("classes", [2, 3])
def test_a_forest_predicts_probabilities_after_any_fit(classes: int) -> None:
    random = np.random.default_rng(0)
    X = random.normal(size=(1200, 4))
    y = np.digitize(X[:, 0] + X[:, 1] * X[:, 2] + random.normal(size=1200), [-1, 1][: classes - 1])
    train, valid = (X[:600], y[:600]), (X[600:], y[600:])
    forest = RandomForestClassifier(5, max_depth=8, random_state=0).fit(*train)
    starts = []
    for options in ({}, {"recipe": "joint", "epochs": 1}):
        net = windtunnel.translate(forest, calibrate=X[:600]).soften()
        assert (net.program(*net.encode(valid[0])) < 0).any()  # the raw scores, of leaves that are not quite shut
        came = log_loss(valid[1], net.predict_proba(valid[0]))
        net.fit(train, valid, metric="log_loss", **OPTIONS, **options)
        now = net.predict_proba(valid[0])
        assert 0 <= now.min() and now.max() <= 1 and not np.isnan(net.predict_log_proba(valid[0])).any()
        np.testing.assert_allclose(now.sum(axis=1), 1, rtol=1e-12)
        starts.append((net.history.start, came))
        assert log_loss(valid[1], now) == pytest.approx(net.history.best, rel=1e-6)
    np.testing.assert_allclose(starts, starts[0][0], rtol=1e-6)
    exact = windtunnel.compile(forest)
    np.testing.assert_allclose(exact.predict_proba(X), forest.predict_proba(X), rtol=1e-12, atol=1e-15)


def test_an_error_installs_the_best_residual_model() -> None:
    import pytorch_lightning as pl

    class Stop(pl.Callback):
        def on_train_epoch_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
            if trainer.current_epoch == 2:
                raise RuntimeError("stop")

    source = additive(LogisticRegression(), "label")
    net = windtunnel.translate(source)
    X, held = frame(), frame(1500, seed=5)
    with pytest.raises(RuntimeError, match="stop"):
        net.fit((X, labelled(X, "label")), (held, labelled(held, "label", 5)), callbacks=[Stop()], **OPTIONS)
    assert any(isinstance(step.module, ResidualModel) for step in net.program.steps)


def test_outputs_that_do_not_come_from_scores_get_none() -> None:
    from sklearn.svm import SVC

    X = frame(200)
    net = windtunnel.translate(make_pipeline(encoded(), SVC()).fit(X, labelled(X, "grade")), calibrate=X)
    assert not net.takes_residual_model()


def reference_scores(residual: ResidualModel, x: np.ndarray) -> np.ndarray:
    edges, size = residual.edges.numpy(), residual.size.numpy()
    start, count = np.cumsum(size) - size, residual.cell_count.numpy()
    weight, factors, cross = (one.detach().numpy() for one in (residual.weight, residual.factors, residual.cross))
    scores = []
    for row in x:
        codes = [0 if np.isnan(v) else 1 + int((v > e).sum()) for v, e in zip(row, edges, strict=False)]
        codes = np.minimum([*codes, *row[len(edges) :].astype(int)], size - 1)
        at = codes + start
        total = weight[at].sum(axis=0)
        for one, other in combinations(at, 2):
            total = total + (factors[one] * factors[other]).sum(axis=1)
        for which, columns in enumerate(residual.interactions.tolist()):
            number = 0
            for column in columns:
                number = number if column < 0 else number * int(size[column]) + int(codes[column])
            total = total + cross[count[:which].sum() + number % count[which]]
        scores.append(total * residual.unit.numpy())
    return np.array(scores)


COMBINED = {(0, 1): 20, (1, 3): 17, (2,): 3, (0, 2, 3): 72}


def random_model(outputs: int = 2, rank: int = 3, combined: Any = COMBINED) -> ResidualModel:
    generator = torch.Generator().manual_seed(0)
    edges = torch.tensor([[0.0, 1.0, torch.inf], [-1.0, 0.5, 2.0]], dtype=torch.float64)
    unit = torch.arange(1.0, outputs + 1, dtype=torch.float64)
    residual = ResidualModel.zero(edges, [4, 5, 3, 6], unit, rank=rank, generator=generator).double()
    if combined:
        tables = [torch.zeros(count, outputs, dtype=torch.float64) for count in combined.values()]
        residual.set_interactions(list(combined), tables)
    with torch.no_grad():
        for parameter in residual.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return residual.requires_grad_()


@pytest.mark.parametrize("combined", [{}, COMBINED])
@pytest.mark.parametrize("rank", [0, 3])
def test_the_formula(rank: int, combined: Any) -> None:
    residual = random_model(rank=rank, combined=combined)
    x = torch.tensor(
        [[0.0, 0.5, 0, 5], [torch.nan, torch.inf, 2, 0], [1.0000001, -torch.inf, 1, 3], [9, 2, 0, 99]],
        dtype=torch.float64,
    )
    np.testing.assert_allclose(residual(x).detach().numpy(), reference_scores(residual, x.numpy()), rtol=1e-12)


def test_gradients() -> None:
    residual = random_model()
    x = torch.tensor([[0.3, 0.6, 1, 2], [2.0, -3.0, 0, 4]], dtype=torch.float64)
    names = [name for name, _ in residual.named_parameters()]
    given = [parameter.detach().clone().requires_grad_() for parameter in residual.parameters()]

    def score(*values: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(residual, dict(zip(names, values, strict=True)), (x,))

    assert torch.autograd.gradcheck(score, given)


def test_cells_are_distinct_where_there_are_enough_and_hashed_where_not() -> None:
    codes = torch.cartesian_prod(torch.arange(40), torch.arange(40))
    for count, distinct in ((1600, 1600), (801, 801)):
        at = interaction_cells(codes, torch.tensor([40, 40]), torch.tensor([[0, 1]]), torch.tensor([count]))
        assert len(torch.unique(at)) == distinct and at.max() < count


def test_wide_columns_do_not_overflow() -> None:
    wide = 2**31 - 1
    at = interaction_cells(
        torch.tensor([[wide - 1] * 4]), torch.tensor([wide] * 4), torch.arange(4)[None], torch.tensor([2**20 + 1])
    )
    number = 0
    for _ in range(4):
        number = number * wide + wide - 1
    assert int(at) == number % (2**20 + 1)


def codes_and_residuals(seed: int, planted: Any) -> Residuals:
    generator = torch.Generator().manual_seed(seed)
    codes = torch.randint(0, 6, (8000, 4), generator=generator)
    return Residuals(codes, planted(codes).unsqueeze(1) + torch.randn(8000, 1, generator=generator))


def parity(codes: torch.Tensor, *columns: int) -> torch.Tensor:
    return ((codes[:, list(columns)].sum(dim=1) % 2) * 2 - 1).float()


def test_screening_finds_a_pair_and_a_column() -> None:
    def planted(codes: torch.Tensor) -> torch.Tensor:
        return 0.3 * parity(codes, 0, 2) + 0.2 * (codes[:, 1] - 2.5)

    train, valid = (codes_and_residuals(seed, planted) for seed in (0, 1))
    selected = select_interactions(train, valid, [6] * 4, [0, 1, 2, 3])
    assert {0, 1, 2} <= set(selected.columns)
    assert {(1,), (0, 2)} <= {each.columns for each in selected.interactions}


def test_screening_extends_a_significant_pair_to_three_columns() -> None:
    def planted(codes: torch.Tensor) -> torch.Tensor:
        return (0.3 + 0.6 * (codes[:, 3] > 2)) * parity(codes, 0, 2)

    train, valid = (codes_and_residuals(seed, planted) for seed in (0, 1))
    assert (0, 2, 3) in {each.columns for each in select_interactions(train, valid, [6] * 4, [0, 1, 2, 3]).interactions}


def test_screening_rejects_what_validation_rows_contradict() -> None:
    train = codes_and_residuals(0, lambda codes: 0.5 * parity(codes, 0, 2))
    valid = codes_and_residuals(1, lambda codes: -0.5 * parity(codes, 0, 2))
    assert not select_interactions(train, valid, [6] * 4, [0, 1, 2, 3]).interactions


def test_mean_residuals_leave_the_row_itself_out() -> None:
    rows = codes_and_residuals(0, lambda codes: 0.5 * parity(codes, 0, 2))
    interaction = Interaction.of((0, 2), [6] * 4, len(rows.codes))
    fitted = interaction.mean_residuals(rows)
    for row in (0, 17, 4242):
        same = (rows.codes[:, [0, 2]] == rows.codes[row, [0, 2]]).all(dim=1)
        total = rows.values[same].sum(dim=0)
        torch.testing.assert_close(fitted.table[interaction.cells(rows.codes)[row]], total / (same.sum() + PRIOR_ROWS))
        others = (total - rows.values[row]) / (same.sum() - 1 + PRIOR_ROWS)
        torch.testing.assert_close(fitted.leave_one_out[row], others)


def test_interaction_weights_are_those_of_least_squares_where_these_are_above_0() -> None:
    generator = torch.Generator().manual_seed(0)
    parts = torch.randn(500, 1, 3, generator=generator)
    target = parts[:, :, :2] @ torch.tensor([2.0, 0.5]) - parts[:, :, 2] + torch.randn(500, 1, generator=generator)

    def squared(scores: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None) -> torch.Tensor:
        return (scores - target).square().mean()

    weights = interaction_weights(squared, 1.0, torch.zeros(500, 1), parts, target)
    least = torch.linalg.lstsq(parts[:, 0, :2], target).solution[:, 0]
    torch.testing.assert_close(weights[:2], least, atol=1e-2, rtol=1e-2)
    assert 0 <= weights[2] < 1e-3


@pytest.mark.parametrize("folds", ["random", "groups", "time"])
def test_crossfit(folds: str) -> None:
    X, held = frame(), frame(1500, seed=5)
    y, z = labelled(X, "label"), labelled(held, "label", 5)
    by: dict[str, Any] = {"random": {}, "groups": {"groups": X["city"]}, "time": {"time": X["age"]}}[folds]
    net = windtunnel.crossfit(unfitted(), X, y, valid=(held, z), folds=3, **by, **OPTIONS)
    assert net.history.best > net.history.start + 0.03 and list(net.classes_) == ["no", "yes"]
    members = [(one.predict(held) == z).mean() for one in source_members(X, y, **by)]
    assert (net.predict(held) == z).mean() > max(members)


def unfitted() -> Any:
    return make_pipeline(encoded(), trees(LGBMClassifier))


def source_members(X: pd.DataFrame, y: np.ndarray, **by: Any) -> list[Any]:
    return list(windtunnel.CrossFittedClassifier(unfitted(), folds=3).fit(X, y, **by).estimators_)


def test_crossfit_returns_a_fitted_pipeline_that_is_better_than_members() -> None:
    X, held = frame(90), frame(1500, seed=5)
    y, z = labelled(X, "value"), labelled(held, "value", 5)
    source = make_pipeline(encoded(), LGBMRegressor(min_child_samples=30, verbosity=-1)).fit(X, y)
    with pytest.warns(UserWarning, match="are worse than the fitted"):
        net = windtunnel.crossfit(source, X, y, valid=(held, z), folds=2, **OPTIONS)
    assert not any("estimators_" in origin.name for origin in net.origins)


@pytest.mark.parametrize("objective", ["poisson", "gamma", "regression_l1", "quantile"])
def test_members_are_compared_with_the_source_by_its_own_loss(objective: str) -> None:
    """Members that predict what the source predicts are exactly as good."""
    X = frame(400)
    y = np.exp(np.asarray(labelled(X, "value")) / 200)
    source = make_pipeline(encoded(), LGBMRegressor(objective=objective, n_estimators=10, verbosity=-1)).fit(X, y)
    members = windtunnel.CrossFittedRegressor(source, folds=2).fit(X, y)
    members.estimators_ = [source, source]
    net, members = windtunnel.compile(source), windtunnel.compile(members)
    ours, theirs = _losses(members, net, Recipe(), (X, y))
    assert len(theirs.loss) > 50 and theirs.loss.std() > 0
    torch.testing.assert_close(ours.loss, theirs.loss, rtol=1e-5, atol=1e-5)


def test_an_exact_translation_stays_without_significant_columns() -> None:
    X, held = frame(600), frame(300, seed=5)
    noise = np.random.default_rng(0)
    y, z = noise.poisson(0.05, len(X)).astype(float), noise.poisson(0.05, len(held)).astype(float)
    net = windtunnel.compile(make_pipeline(encoded(), PoissonRegressor(alpha=100)).fit(X, y))
    before = net.predict(held)
    net.fit((X, y), (held, z), **OPTIONS)
    assert net.history.best == net.history.start and net.history.best_epoch == 0
    np.testing.assert_array_equal(net.predict(held), before)


def test_crossfit_without_validation_rows() -> None:
    X = frame()
    net = windtunnel.crossfit(make_pipeline(encoded(), Ridge()), X, labelled(X, "value"), folds=3, **OPTIONS)
    assert net.history.validated_on == "held-out rows" and net.history.best < 0.8 * net.history.start


def test_out_of_fold_predictions_come_from_the_member_that_was_not_fitted_on_the_row() -> None:
    X = frame(400)
    y = labelled(X, "label")
    source = windtunnel.CrossFittedClassifier(unfitted(), folds=4).fit(X, y)
    answers = source.out_of_fold(X)
    for fold, member in enumerate(source.estimators_):
        rows = source.fold_ == fold
        np.testing.assert_array_equal(answers[rows], member.predict_proba(X[rows]))
        alone = make_pipeline(encoded(), trees(LGBMClassifier)).fit(X[~rows], y[~rows])
        np.testing.assert_array_equal(answers[rows], alone.predict_proba(X[rows]))


def test_groups_stay_together_and_time_comes_in_blocks() -> None:
    X = frame(400)
    y = labelled(X, "value")
    fit = windtunnel.CrossFittedRegressor(make_pipeline(encoded(), Ridge()), folds=4).fit
    fold = fit(X, y, groups=X["city"]).fold_
    assert (pd.Series(fold).groupby(X["city"]).nunique() == 1).all()
    order = fit(X, y, time=X["fee"].fillna(0)).fold_[np.argsort(X["fee"].fillna(0), kind="stable")]
    assert (np.diff(order) >= 0).all()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"folds": 1}, "folds=1 must be"),
        ({"groups": [1], "time": [1]}, "inconsistent numbers"),
        ({"groups": np.zeros(60), "time": np.zeros(60)}, "both given"),
    ],
)
def test_folds_that_cannot_be_made(options: dict[str, Any], why: str) -> None:
    X = frame(60)
    with pytest.raises((BadInput, ValueError), match=why):
        windtunnel.crossfit(unfitted(), X, labelled(X, "label"), **options)


def test_a_class_that_a_member_lacks() -> None:
    X = frame(60)
    y = np.array(["no"] * 59 + ["yes"])
    with pytest.raises(BadInput, match="every member needs rows of every class"):
        windtunnel.crossfit(unfitted(), X, y, folds=2)


@pytest.mark.parametrize("library", ["lightgbm", "lightgbm by a parameter", "xgboost", "catboost"])
def test_members_have_as_many_trees_as_a_source_that_stopped_early(library: str) -> None:
    X = frame(900)[NUMBERS].fillna(0)
    y = (X["age"] + np.random.default_rng(0).normal(0, 12, 900) > 40).astype(int)
    parts = (X[:600], y[:600]), (X[600:], y[600:])
    if library.startswith("lightgbm"):
        import lightgbm

        by_itself = library == "lightgbm by a parameter"
        stop = None if by_itself else [lightgbm.early_stopping(3, verbose=False)]
        rounds = {"early_stopping_round": 3} if by_itself else {}
        source: Any = LGBMClassifier(n_estimators=200, verbosity=-1, random_state=0, **rounds)
        source.fit(*parts[0], eval_X=parts[1][0], eval_y=parts[1][1], callbacks=stop)
        count = [source.best_iteration_, lambda one: one.n_estimators_]
    elif library == "xgboost":
        xgboost = pytest.importorskip("xgboost")
        source = xgboost.XGBClassifier(n_estimators=200, early_stopping_rounds=3)
        source.fit(*parts[0], eval_set=[parts[1]], verbose=False)
        count = [source.best_iteration + 1, lambda one: one.get_booster().num_boosted_rounds()]
    else:
        catboost = pytest.importorskip("catboost")
        source = catboost.CatBoostClassifier(
            iterations=200, early_stopping_rounds=3, verbose=False, allow_writing_files=False
        )
        source.fit(*parts[0], eval_set=parts[1])
        count = [source.tree_count_, lambda one: one.tree_count_]
    assert 0 < count[0] < 200
    members = windtunnel.CrossFittedClassifier(source, folds=2).fit(X, y).estimators_
    assert [count[1](one) for one in members] == [count[0]] * 2
