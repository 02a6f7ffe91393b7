"""The two stages of a cascade: the second takes over what the first has computed, and computes only the rest."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMClassifier, LGBMRegressor
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_transformer
from sklearn.decomposition import PCA
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

import windtunnel
from windtunnel.serving.cascade.groups import GroupedPipeline
from windtunnel.serving.cascade.host_features import row_keys
from windtunnel.serving.cascade.split import split_cascade

COMPUTED = []
"""Name of a step on the host, and the number of its rows, for each call."""


def first_step(columns):
    COMPUTED.append(("first", len(columns)))
    return np.abs(np.asarray(columns, dtype=float))


def second_step(columns):
    COMPUTED.append(("second", len(columns)))
    return np.asarray(columns, dtype=float) ** 2


@pytest.fixture(scope="module")
def rows():
    generator = np.random.default_rng(1)
    frame = pd.DataFrame(generator.normal(size=(900, 6)), columns=list("abcdef"))
    frame["colour"] = generator.choice(["red", "green", "blue"], 900)
    words = generator.choice([f"word{number}" for number in range(300)], (900, 6))
    frame["title"] = [" ".join(row) for row in words]
    score = np.abs(frame.a) + frame.c**2 + frame.d + (frame.colour == "red") + generator.normal(size=900) / 4
    return frame, np.where(score > score.median(), "yes", "no")


HOSTS = [
    (FunctionTransformer(first_step), ["a", "b"]),
    (make_pipeline(FunctionTransformer(second_step), StandardScaler()), ["c"]),
]
TEXTS = [(TfidfVectorizer(), "title"), (TfidfVectorizer(analyzer="char", ngram_range=(2, 3)), "title")]
CASES = {
    "host steps, trees": (HOSTS, LGBMClassifier(n_estimators=5, verbosity=-1, n_jobs=1), 1),
    "host steps, linear": (HOSTS, LogisticRegression(), 1),
    "texts, linear": (TEXTS, LogisticRegression(), 1),
    "counts without weights, linear": ([(CountVectorizer(), "title"), TEXTS[1]], LogisticRegression(), 1),
    "texts and numbers, linear": (
        [TEXTS[0], (StandardScaler(), ["a", "b"]), (OneHotEncoder(), ["colour"])],
        LogisticRegression(),
        1,
    ),
    "texts, trees": ([TEXTS[0], HOSTS[0]], LGBMClassifier(n_estimators=5, verbosity=-1, n_jobs=1), None),
    "components, trees": (
        [(PCA(2), ["a", "b", "d"]), (PCA(1), ["e", "f"])],
        LGBMClassifier(n_estimators=5, verbosity=-1, n_jobs=1),
        2,
    ),
    "calibrated": (
        [(PCA(2), ["a", "b", "d"]), (PCA(1), ["e", "f"])],
        CalibratedClassifierCV(LGBMClassifier(n_estimators=5, verbosity=-1, n_jobs=1), cv=2),
        2,
    ),
    "regressor": (HOSTS, LGBMRegressor(n_estimators=5, verbosity=-1, n_jobs=1), 1),
}


@pytest.mark.parametrize("case", CASES)
def test_stages_give_what_both_models_give(case, rows):
    parts, model, least = CASES[case]
    frame, target = rows
    target = frame.a + frame.b**2 if case == "regressor" else target
    method = "predict" if case == "regressor" else "predict_proba"
    full = make_pipeline(make_column_transformer(*parts), model).fit(frame[:600], target[:600])
    grouped = GroupedPipeline.of(full)
    small = grouped.smaller(frame[:600], target[:600], grouped.names[:1])
    stages = split_cascade(windtunnel.compile(small), windtunnel.compile(full), method)
    queried = frame[600:]
    if least is None:
        assert stages is None  # more counts than are handed on
        return
    first, second = stages
    output = first.run(first.encode(queried))
    np.testing.assert_allclose(output.predictions, getattr(small, method)(queried), atol=1e-9)
    assert output.shared.shape[1] >= least
    few = queried.iloc[5:50]
    batch = second.encode(few, output.shared[5:50])
    np.testing.assert_allclose(second.run(batch).predictions, getattr(full, method)(few), atol=1e-9)
    one = queried.iloc[[7]].to_dict("list")
    np.testing.assert_allclose(first.run(first.encode(one)).predictions, output.predictions[[7]], atol=1e-12)


@pytest.fixture(scope="module")
def made(rows):
    frame, target = rows
    pipeline = make_pipeline(make_column_transformer(*HOSTS), LogisticRegression()).fit(frame[:400], target[:400])
    train, valid = (frame[:400], target[:400]), (frame[400:600], target[400:600])
    cost = {"functiontransformer": 1e-6, "pipeline": 1e-3}
    return pipeline, windtunnel.cascade(pipeline, train, valid, accuracy_loss=0.1, cost=cost)


def test_the_full_model_computes_only_missing_groups(made, rows):
    pipeline, cascade = made
    queried = rows[0][600:]
    COMPUTED.clear()
    probabilities = cascade.predict_proba(queried)
    rest = int((~cascade.confident(cascade.small.predict_proba(queried))).sum())
    assert 0 < rest < 300 and COMPUTED[:2] == [("first", 300), ("second", rest)]
    full = pipeline.predict_proba(queried)
    confident = cascade.confident(cascade.small.predict_proba(queried))
    np.testing.assert_allclose(probabilities[~confident], full[~confident], atol=1e-9)
    assert "only the missing groups" in cascade.report()


def test_a_loaded_cascade_computes_only_missing_groups(made, rows, tmp_path):
    pipeline, cascade = made
    cascade.save(tmp_path / "cascade")
    loaded = windtunnel.Cascade.load(tmp_path / "cascade", host=pipeline)
    assert loaded.reuses and (loaded.predict_proba(rows[0]) == cascade.predict_proba(rows[0])).all()


def test_dense_groups_beside_sparse_ones(rows):
    frame, target = rows
    parts = make_column_transformer(TEXTS[0], (StandardScaler(), ["a"]), (StandardScaler(), ["c"]))
    pipeline = make_pipeline(parts, LogisticRegression()).fit(frame[:400], target[:400])
    grouped = GroupedPipeline.of(pipeline)
    for names in (grouped.names[1:2], grouped.names[1:]):
        small = grouped.smaller(frame[:400], target[:400], names)
        expected = small.predict_proba(frame[400:])
        np.testing.assert_allclose(windtunnel.compile(small).predict_proba(frame[400:]), expected, atol=1e-9)


def test_steps_of_another_fit_are_not_reused(made, rows):
    frame, target = rows
    _, cascade = made
    other = make_pipeline(make_column_transformer(*HOSTS), LogisticRegression()).fit(frame[400:], target[400:])
    full = windtunnel.compile(other)
    assert split_cascade(cascade.small, full, "predict_proba") is None
    caches = replace(cascade, full=full, cache={"pipeline": 10})
    assert caches.stages[1] is caches.whole  # with the same cache


def test_features_of_rows_seen_before_come_from_the_cache(made, rows, tmp_path):
    pipeline, cascade = made
    cascade.save(tmp_path / "cascade")
    sizes = {"functiontransformer": 50, "pipeline": 1000}
    cached = windtunnel.Cascade.load(tmp_path / "cascade", host=pipeline, cache=sizes)
    queried = rows[0][600:700]
    expected = cascade.predict_proba(queried)
    COMPUTED.clear()
    twice = pd.concat([queried[:40], queried[:40]])
    np.testing.assert_allclose(cached.predict_proba(twice), np.vstack([expected[:40]] * 2), atol=1e-12)
    assert COMPUTED[0] == ("first", 40)
    COMPUTED.clear()
    np.testing.assert_allclose(cached.predict_proba(queried[:40]), expected[:40], atol=1e-12)
    assert COMPUTED == [] and "66.7% of 120 rows found" in cached.report()
    cached.predict_proba(queried[40:])  # pushes the earlier ones out of the smaller cache
    COMPUTED.clear()
    np.testing.assert_allclose(cached.predict_proba(queried[:40]), expected[:40], atol=1e-12)
    assert COMPUTED == [("first", 40)]


def test_a_row_with_nan_is_found_in_the_cache():
    frame = pd.DataFrame({"a": [1.0, np.nan], "b": ["x", None]})
    first, again = (row_keys(frame.copy(), [0, 1]) for _ in range(2))
    assert first == again and {*map(hash, first)} == {*map(hash, again)}
    nullable = pd.DataFrame({"a": pd.array([1, None], dtype="Int64")})
    assert row_keys(nullable, [0]) == row_keys(nullable.copy(), [0])
    with_nan, with_none = (pd.DataFrame({"a": pd.Series([value], dtype=object)}) for value in (np.nan, None))
    assert row_keys(with_nan, [0]) != row_keys(with_none, [0])


def test_equal_values_of_other_types_are_other_rows_in_the_cache():
    values = [1, 1.0, True, 0.0, -0.0, 0, False, "1"]
    assert len({*row_keys(pd.Series(values, dtype=object), [0])}) == len(values)


def test_caches_of_other_names_and_sizes_are_rejected(made, rows):
    pipeline, cascade = made
    pair = (rows[0][:400], rows[1][:400])
    for cache, message in (({"nothing": 5}, "functiontransformer"), ({"pipeline": 0}, "from 1 up")):
        with pytest.raises(windtunnel.InvalidOption, match=message):
            windtunnel.cascade(pipeline, pair, pair, cache=cache)
