"""Default ``fit``: the residual model improves the pipeline, is saved, exported and reproducible."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from city_rows import OPTIONS, additive, encoded, frame, labelled, trees
from lightgbm import LGBMClassifier, LGBMRegressor
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, PoissonRegressor, Ridge
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from torch.utils.data import DataLoader, IterableDataset

import windtunnel
from windtunnel.errors import BadInput
from windtunnel.modules.linear.residual_model import ResidualModel, ResidualSum
from windtunnel.objectives.losses import logistic
from windtunnel.trainers.data.labelled_rows import Targets
from windtunnel.trainers.residual.interactions import negative_gradient

SOURCES = {
    "logistic": (LogisticRegression(), "label"),
    "three classes": (LogisticRegression(), "grade"),
    "ridge": (Ridge(), "value"),
    "counts": (PoissonRegressor(), "count"),
    "forest": (RandomForestClassifier(n_estimators=5, max_depth=3, random_state=0), "label"),
    "lightgbm": (trees(LGBMClassifier), "label"),
    "lightgbm values": (trees(LGBMRegressor), "value"),
}


@cache
def fitted(name: str, **options: Any) -> tuple[Any, windtunnel.Translation]:
    final, kind = SOURCES[name]
    source = additive(final, kind)
    net = windtunnel.translate(source, calibrate=frame(500))
    X, held = frame(), frame(1500, seed=5)
    net.fit((X, labelled(X, kind)), (held, labelled(held, kind, 5)), **(OPTIONS | options))
    return source, net


def test_gradients_of_weighted_rows_do_not_depend_on_their_order() -> None:
    scores, target, weight = torch.zeros(8192, 1), torch.ones(8192), torch.ones(8192)
    weight[4096:] = 10.0
    sorted_rows = negative_gradient(logistic, scores, Targets(target, weight))
    torch.testing.assert_close(sorted_rows[:, 0], 0.5 * weight / weight.mean())
    shuffled = torch.randperm(8192, generator=torch.Generator().manual_seed(0))
    of_shuffled = negative_gradient(logistic, scores, Targets(target, weight).take(shuffled))
    torch.testing.assert_close(of_shuffled, sorted_rows[shuffled])


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
    values = [*net.encode(rows)]
    with torch.no_grad():
        for step in net.program.steps:
            values.append(step(values))
    slot = len(values) - 1
    while isinstance((step := net.program.steps[slot - 2]).module, ResidualSum):
        slot = step.takes[0].slot
    assert slot < len(values) - 1
    torch.testing.assert_close(values[slot], exact.scores(rows), rtol=1e-9, atol=1e-9)


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
    # TorchScript may round a product and a sum of the network's layers at once.
    torch.testing.assert_close(scripted(*batch), net.program(*batch), rtol=1e-14, atol=1e-14)


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


def test_one_validation_row_trains_nothing() -> None:
    # Tree-block weights are fitted on one half of the validation rows and tested on the other.
    X = frame(500)
    y = labelled(X, "label")
    source = make_pipeline(encoded(), LGBMClassifier(n_estimators=40, verbosity=-1)).fit(X, y)
    net = windtunnel.translate(source, calibrate=X)
    with pytest.raises(BadInput, match="before training, auroc over the validation rows is nan"):
        net.fit((X, y), (X[:1], y[:1]), **OPTIONS, epochs=1)
    net.fit((X, y), (X[:1], y[:1]), **OPTIONS, epochs=1, metric="accuracy")
    assert net.history is not None and net.history.validated_on == "validation rows"
    assert net.history.stopped == "before it began: a residual model needs two validation rows"
    np.testing.assert_allclose(net.predict_proba(X), source.predict_proba(X), rtol=1e-12)
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


def test_an_exact_translation_stays_without_significant_columns() -> None:
    X, held = frame(600), frame(300, seed=5)
    noise = np.random.default_rng(0)
    y, z = noise.poisson(0.05, len(X)).astype(float), noise.poisson(0.05, len(held)).astype(float)
    net = windtunnel.compile(make_pipeline(encoded(), PoissonRegressor(alpha=100)).fit(X, y))
    before = net.predict(held)
    net.fit((X, y), (held, z), **OPTIONS)
    assert net.history.best == net.history.start and net.history.best_epoch == 0
    np.testing.assert_array_equal(net.predict(held), before)
    net.fit((X, y), (held[:1], z[:1]), **OPTIONS)
    assert net.history.stopped == "before it began: a residual model needs two validation rows"
    assert "Training ended before it began: a residual model needs two validation rows." in str(net.history)
