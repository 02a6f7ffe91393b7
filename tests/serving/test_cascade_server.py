"""``Server`` with a cascade: batches at each step, and what a file of a cascade gives over HTTP."""

import asyncio
import shutil
from dataclasses import replace
from pathlib import Path
from threading import Event

import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMClassifier
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.experimental import enable_iterative_imputer  # noqa: F401  # makes IterativeImputer importable
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import IterativeImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import windtunnel
from tests.support.http_server import request, running
from windtunnel.api.serve import application
from windtunnel.errors import BadFile, BadInput, InvalidOption
from windtunnel.serving.queue_steps import FullModelStep, NetStep, SmallModelStep, kind_of


@pytest.fixture(scope="module")
def frame():
    generator = np.random.default_rng(0)
    return pd.DataFrame({"x": generator.normal(size=900), "title": generator.choice(["red", "blue", "oak"], 900)})


@pytest.fixture(scope="module")
def cascade(frame):
    columns = make_column_transformer((StandardScaler(), ["x"]), (TfidfVectorizer(analyzer="char"), "title"))
    target = np.where(4 * frame.x + 3 * (frame.title == "oak") > 1, "yes", "no")
    train, valid = (frame[:400], target[:400]), (frame[400:800], target[400:800])
    pipeline = make_pipeline(columns, LogisticRegression()).fit(*train)
    cost = {"standardscaler": 1e-6, "tfidfvectorizer": 1e-4}
    return windtunnel.cascade(pipeline, train, valid, accuracy_loss=0.02, cost=cost)


@pytest.fixture(scope="module")
def rows(cascade, frame):
    """Single rows that the small model predicts alone, and rows that it does not."""
    rest = frame[800:]
    confident = cascade.confident(cascade.small.predict_proba(rest))
    assert 0.1 < confident.mean() < 0.9
    return [rest[confident].iloc[[at]].to_dict("list") for at in range(5)], [
        rest[~confident].iloc[[at]].to_dict("list") for at in range(5)
    ]


def test_requests_get_what_the_cascade_predicts(cascade, frame):
    rest = frame[800:]
    parts = [rest.iloc[start : start + 7].to_dict("list") for start in range(0, 98, 7)]

    async def main():
        async with windtunnel.Server(cascade) as server:
            labels = await asyncio.gather(*(server.predict(part) for part in parts))
            return labels, await asyncio.gather(*(server.predict_proba(part) for part in parts))

    labels, probabilities = asyncio.run(main())
    np.testing.assert_allclose(np.concatenate(probabilities), cascade.predict_proba(rest[:98]), atol=1e-12)
    assert np.concatenate(labels).tolist() == cascade.predict(rest[:98]).tolist()


def test_confident_requests_leave_and_late_ones_join_at_the_next_step(cascade, rows, monkeypatch):
    confident, unsure = rows
    entered, opened, batches, left = Event(), Event(), [], []
    small, full = SmallModelStep.run, FullModelStep.run

    def small_run(step, tasks):
        batches.append(("small", len(tasks)))
        return small(step, tasks)

    def full_run(step, tasks):
        batches.append(("full", len(tasks)))
        entered.set()
        assert opened.wait(30)
        left.append([future.done() for future in futures])
        return full(step, tasks)

    monkeypatch.setattr(SmallModelStep, "run", small_run)
    monkeypatch.setattr(FullModelStep, "run", full_run)
    with windtunnel.Server(cascade) as server:
        futures = [server.submit(["predict_proba"], unsure[0])]
        assert entered.wait(30)
        futures += [server.submit(["predict_proba"], row) for row in (confident[0], unsure[1], unsure[2])]
        opened.set()
        outputs = [future.result(30)[0] for future in futures]
    assert batches == [("small", 1), ("full", 1), ("small", 3), ("full", 2)]
    assert left == [[False] * 4, [True, True, False, False]]
    wanted = [cascade.predict_proba(row) for row in (unsure[0], confident[0], unsure[1], unsure[2])]
    np.testing.assert_allclose(np.concatenate(outputs), np.concatenate(wanted), atol=1e-12)


def test_a_row_without_a_column_of_the_full_model_is_rejected_at_once(cascade, rows):
    with windtunnel.Server(cascade) as server, pytest.raises(BadInput, match="'title'"):
        server.submit(["predict"], {"x": rows[0][0]["x"]})


def test_rows_are_joined_only_where_that_changes_no_value():
    assert kind_of({"a": [1], "b": ["x"]}) == kind_of({"a": [7, 8], "b": ["y", "z"]})
    for other in ({"a": [1.5]}, {"a": ["1"]}, {"a": [None]}, {"a": [True]}, {"b": [1]}, {"a": [1, 2.5]}):
        assert kind_of(other) != kind_of({"a": [1]})
    assert kind_of({"a": [1, 2.5]}) != kind_of({"a": [1, 2.5]})


def test_a_file_of_a_cascade_is_served_and_a_damaged_one_is_named(cascade, rows, tmp_path):
    path = tmp_path / "model.cascade"
    cascade.save(path)
    with running(application([path])) as port:
        for row in (rows[0][0], rows[1][0]):
            status, answer = request(port, "POST", "/predict", [{name: value[0] for name, value in row.items()}])
            assert status == 200
            np.testing.assert_allclose(answer["probabilities"], cascade.predict_proba(row), atol=1e-9)
        inputs = request(port, "GET", "/v2/models/model")[1]["inputs"]
    assert [(column["name"], column["datatype"]) for column in inputs] == [("x", "FP64"), ("title", "BYTES")]
    damaged = Path(shutil.copy(path, tmp_path / "damaged.cascade"))
    damaged.write_bytes(damaged.read_bytes()[:-2000])
    with pytest.raises(BadFile):
        application([damaged])


def test_methods_that_a_cascade_lacks_are_rejected(cascade, frame):
    with windtunnel.Server(cascade) as server, pytest.raises(InvalidOption, match="it has predict, predict_proba"):
        server.submit(["decision_function"], frame[:1])


def test_a_column_that_only_the_small_model_reads_is_taken_from_the_request(cascade, tmp_path):
    generator = np.random.default_rng(0)
    rows = pd.DataFrame({"x": generator.normal(size=300), "city": generator.choice(["Rome", "Oslo"], 300)})
    y = np.where(rows.x + (rows.city == "Oslo") > 0.5, "yes", "no")
    columns = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), ["city"]), remainder="passthrough")
    tree = LGBMClassifier(n_estimators=5, verbosity=-1)
    small = windtunnel.compile(make_pipeline(clone(columns), LogisticRegression()).fit(rows, y))
    full = windtunnel.compile(make_pipeline(columns, tree).fit(rows.assign(city="Rome"), y))
    assert [*full.read_columns] == [0] and [*small.read_columns] == [0, 1]
    both = replace(cascade, small=small, full=full)
    both.save(tmp_path / "both.cascade")
    with running(application([tmp_path / "both.cascade"])) as port:
        status, answer = request(port, "POST", "/predict", rows.to_dict("records"))
    assert status == 200
    np.testing.assert_allclose(answer["probabilities"], both.predict_proba(rows), atol=1e-9)


def test_requests_whose_rows_depend_on_each_other_share_no_batch(cascade):
    """A request without any number is imputed by another rule than the same row beside others."""
    rows = pd.DataFrame(np.random.default_rng(0).normal(size=(300, 2)), columns=["x", "z"])
    y = np.where(rows.x + rows.z > 0, "yes", "no")
    net = windtunnel.compile(make_pipeline(IterativeImputer(random_state=0), LogisticRegression()).fit(rows, y))
    for step in (SmallModelStep(replace(cascade, small=net, full=net)), NetStep(net)):
        first, second = (step.task(("predict",), rows[:3]) for _ in range(2))
        assert not first.joins(second)
