from __future__ import annotations

import dataclasses
import json
import re
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
import torch
from catboost import CatBoostClassifier
from export_cases import PIPELINES, fitted, frame, target, translated, with_host_step
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import Ridge
from sklearn.metrics import log_loss, roc_auc_score, root_mean_squared_error

import windtunnel
from windtunnel.program.records.origin import Origin


@pytest.mark.parametrize("name", PIPELINES)
def test_every_parameter_is_counted_once(name: str) -> None:
    net = translated(name)
    rows = net.report().rows
    assert len({row.step for row in rows}) == len(rows)
    assert sum(row.parameters for row in rows) == sum(one.numel() for one in net.parameters())
    assert sum(row.trainable for row in rows) == sum(one.numel() for one in net.parameters() if one.requires_grad)
    assert all(row.drift in (0.0, None) for row in rows)


def test_steps_of_one_source_share_a_row() -> None:
    rows = {row.source: row for row in translated("logistic").report().rows}
    assert rows["OneHotEncoder"].became == "2 x CategoryTable"
    assert rows["LogisticRegression"].became == "Linear"


def test_drift_is_the_relative_distance_from_the_start() -> None:
    net = translated("logistic")
    weight = net.program.steps[-1].module.weight
    bias = net.program.steps[-1].module.bias
    before = torch.cat([weight.flatten(), bias]).detach().clone()
    with torch.no_grad():
        weight.mul_(1.5)
    rows = {row.source: row for row in net.report().rows}
    moved = float((torch.cat([weight.flatten(), bias]).detach() - before).norm() / before.norm())
    assert rows["LogisticRegression"].drift == pytest.approx(moved, rel=1e-6)
    assert rows["OneHotEncoder"].drift == 0
    bias.requires_grad_(False)
    weight.requires_grad_(False)
    assert net.report().rows[-1].drift is None


def test_drift_from_zero_is_how_far_it_went() -> None:
    net = translated("logistic")
    for name in net.initial_weights:
        net.initial_weights[name] = torch.zeros_like(net.initial_weights[name])
    row, last = net.report().rows[-1], net.program.steps[-1].module
    size = float(torch.cat([last.weight.flatten(), last.bias]).detach().norm())
    assert (row.from_zero, row.drift) == (True, pytest.approx(size, rel=1e-6))
    assert f"{size:.3g} from 0" in str(net.report()) and "inf" not in str(net.report())


@pytest.mark.parametrize(
    ("net", "words"),
    [
        (lambda: translated("logistic"), "exact: every step computes what its source does"),
        (lambda: windtunnel.compile(fitted("lightgbm_binary")), "exact"),
        (lambda: translated("lightgbm_binary", calibrate=None), "not measured: translate was given no calibrate rows"),
        (
            lambda: translated("lightgbm_binary"),
            r"R2 [01]\.\d{6} against the source.s own outputs on 200 calibr",
        ),
    ],
)
def test_the_fidelity_is_reported(net: Any, words: str) -> None:
    assert re.search(words, dict(net().report().facts)["fidelity"])


def test_host_steps_are_named_with_the_reason() -> None:
    report = windtunnel.translate(with_host_step(), calibrate=frame()).report()
    text = dict(report.facts)["on the host"]
    assert text.startswith("columns.custom: no translation for")
    assert "gradient ends there" in text
    assert report.rows[0].became == "kept on the host"


def test_fine_tuning_is_summed_up() -> None:
    net, rows = translated("logistic"), frame()
    labels = np.where(target(rows) > 0, "yes", "no")
    assert dict(net.report().facts)["fine-tuned"].startswith("no: untrained")
    net.fit((rows, labels), (rows, labels), epochs=2, learning_rate=0.01, progress=False, batch_size=64)
    text = dict(net.report().facts)["fine-tuned"]
    assert net.history is not None
    assert text == net.history.summary and "kept: " in text
    assert any(row.drift for row in net.report().rows) == (net.history.best != net.history.start)
    candidates = [text for name, text in net.report().facts if name == "candidate"]
    assert len(candidates) == len(net.history.candidates) > 1
    for result, text in zip(net.history.candidates, candidates, strict=True):
        assert text == result.text(net.history.metric) and result.reason in text
        assert result.metric is None or f": {net.history.metric} {result.metric:.6f}; " in text
        assert (result.gain is None) == (" ± " not in text)
    html = net.report().to_html()
    reader = Reader()
    reader.feed(html)
    assert not reader.open and "learning curve" in html and f"{net.history.best:.6g}</td>" in html


def test_the_report_compares_with_the_source_on_test_rows() -> None:
    pipeline, rows = fitted("logistic"), frame()
    labels = np.where(target(rows) > 0, "yes", "no")
    net = windtunnel.translate(pipeline)
    scores = net.report((rows, labels), source=pipeline).test_scores
    expected = roc_auc_score(labels == pipeline.classes_[1], pipeline.predict_proba(rows)[:, 1])
    assert scores["source pipeline"]["auroc"] == expected == pytest.approx(scores["fine-tuned"]["auroc"], abs=1e-9)
    report = net.report((rows, labels), source=pipeline)
    assert f"source pipeline: auroc {expected:.4f}" in str(report)
    assert f'<td>test rows</td><td>auroc</td><td class="number">{expected:.6g}</td>' in report.to_html()
    assert json.loads(report.to_json())["test_scores"] == scores
    of_one_class = json.loads(net.report((rows, ["yes"] * len(rows))).to_json())["test_scores"]["fine-tuned"]
    assert of_one_class["auroc"] is None and of_one_class["log_loss"] > 0
    weight = np.linspace(0, 2, len(rows))
    weighted = net.report((rows, labels, weight)).test_scores["fine-tuned"]
    probabilities = pipeline.predict_proba(rows)
    assert weighted == pytest.approx(
        {
            "auroc": roc_auc_score(labels == pipeline.classes_[1], probabilities[:, 1], sample_weight=weight),
            "log_loss": log_loss(labels, probabilities, sample_weight=weight),
        },
        abs=1e-9,
    )
    with pytest.raises(windtunnel.InvalidOption, match=r"give test=\(X, y\) too"):
        net.report(source=pipeline)


@pytest.mark.parametrize(
    ("test", "message"),
    [
        (frame(), r"test= is a DataFrame; give \(X, y\) or \(X, y, weight\)"),
        ((frame(),), "test= is a tuple of 1"),
        ((frame(), [0]), "y has 1 values for"),
        ((frame(), ["maybe"] * len(frame())), "maybe"),
        ((frame(), ["yes"] * len(frame()), -np.ones(len(frame()))), "weights are negative"),
    ],
    ids=["rows alone", "rows in a tuple", "too few targets", "other labels", "negative weights"],
)
def test_test_rows_are_checked_as_those_of_fit(test: Any, message: str) -> None:
    with pytest.raises(windtunnel.BadInput, match=message):
        windtunnel.translate(fitted("logistic")).report(test)


def test_a_regressor_of_catboost_is_scored_as_one() -> None:
    catboost = pytest.importorskip("catboost")
    X = np.random.default_rng(0).normal(size=(100, 2))
    y = X[:, 0]
    source = catboost.CatBoostRegressor(iterations=3, verbose=False, allow_writing_files=False).fit(X, y)
    scores = windtunnel.translate(source).report((X, y), source=source).test_scores
    assert scores["source pipeline"]["rmse"] == pytest.approx(root_mean_squared_error(y, source.predict(X)))


class Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.cells = 0

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        assert tag not in ("script", "link", "img")
        self.cells += tag == "td"
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def awkward() -> windtunnel.Translation:
    net = translated("lightgbm_multiclass")
    net.origins[-1] = Origin("<script>alert(1)</script> [bold]" + "very_long_name." * 20, "A&B")
    net.head = dataclasses.replace(net.head, classes=np.array(["<b>", "[red]x", "c"]))
    return net


def test_html_is_whole_and_escaped() -> None:
    report = awkward().report()
    for html in (report.to_html(), report._repr_html_()):
        reader = Reader()
        reader.feed(html)
        assert not reader.open
        assert reader.cells == 6 * (len(report.rows) + 1)
        assert "&lt;script&gt;" in html and "A&amp;B" in html and "&lt;b&gt;" in html


def test_text_fits_and_shows_names_as_they_are() -> None:
    text = str(awkward().report())
    assert max(map(len, text.splitlines())) <= 100
    assert "[red]x" in text
    for heading in ("step", "class", "became", "parameters", "trainable", "change", "task", "fidelity"):
        assert heading in text


def test_the_report_scores_a_classifier_of_several_targets() -> None:
    X, Y = np.random.default_rng(0).normal(size=(80, 3)), np.arange(160).reshape(80, 2) % 3
    forest = RandomForestClassifier(3, random_state=0).fit(X, Y)
    scores = windtunnel.compile(forest).report((X, Y), source=forest).test_scores
    assert scores["source pipeline"] == scores["fine-tuned"] == {"accuracy": (forest.predict(X) == Y).mean()}


def test_the_log_loss_of_labels_in_an_order_of_their_own() -> None:
    X = np.random.default_rng(0).normal(size=(300, 3))
    y = np.where(X[:, 0] + np.random.default_rng(1).normal(size=300) > 0, "yes", "no")
    options = {"iterations": 20, "verbose": 0, "allow_writing_files": False}
    net = windtunnel.translate(CatBoostClassifier(class_names=["yes", "no"], **options).fit(X, y))
    found = net.report((X, y)).test_scores["fine-tuned"]["log_loss"]
    assert found == pytest.approx(log_loss(y == "yes", net.predict_proba(X)[:, 0]))


def test_the_learning_curve_of_a_training_that_diverged() -> None:
    X = np.random.default_rng(0).normal(size=(300, 3))
    net = windtunnel.translate(Ridge().fit(X, X[:, 0]))
    options = {"learning_rate": 1e6, "optimizer": "sgd", "ema": None, "max_steps": 40, "val_check_interval": 20}
    with pytest.warns(UserWarning, match="training diverged"):
        net.fit((X, X[:, 0] ** 2), (X, X[:, 0] ** 2), recipe="joint", progress=False, **options)
    assert net.history is not None and not np.isfinite(net.history.to_frame()["rmse"]).all()
    assert "nan" not in net.report().to_html()
