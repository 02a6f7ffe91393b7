"""CatBoost fitted on categories: their hashes, every kind of statistic, what is rejected, files, and training."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import catboost as cb
import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.compose import make_column_transformer
from sklearn.ensemble import VotingRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OrdinalEncoder, StandardScaler
from sklearn.utils import Bunch

import windtunnel
from windtunnel import RareCategories
from windtunnel.encode.cityhash import city_hash, city_hash_of_bytes
from windtunnel.errors import BadInput, UnfaithfulOption, UnsupportedEstimator
from windtunnel.estimators.fitting import clone_unfitted
from windtunnel.export import serving
from windtunnel.modules.tables.target_statistics import AboveBorders, TargetStatistics

CATS = ["city", "device", "zip", "plan", "member"]
QUICK: dict[str, Any] = {"iterations": 25, "depth": 5, "verbose": 0, "allow_writing_files": False, "thread_count": 1}
PLACES = ["x", "Bø", "a town " * 3, "東京", *(f"city {'of ' * (k % 30)}{k}" for k in range(25))]


def frame(count: int = 900, seed: int = 0, unseen: bool = False, kind: Any = "str") -> pd.DataFrame:
    random = np.random.default_rng(seed)
    rows = pd.DataFrame({"age": random.normal(size=count), "income": random.normal(size=count)})
    rows["city"] = random.choice(PLACES, count)
    rows["device"] = random.choice(["phone", "desk", "tv"], count)
    rows["zip"] = random.integers(-3, 60, count)
    rows["plan"] = random.choice(["free", "pro"], count)
    rows["member"] = random.random(count) < 0.5
    rows.loc[random.random(count) < 0.1, "age"] = np.nan
    if unseen:
        rows.loc[random.random(count) < 0.2, "city"] = "Atlantis"
        rows.loc[random.random(count) < 0.2, "zip"] = 10**12
    return rows.astype(dict.fromkeys(["city", "device", "plan"], kind))


def value(rows: pd.DataFrame) -> Any:
    far, tv, pro = (
        rows[name].astype(object).isin(of) for name, of in (("city", PLACES[:4]), ("device", ["tv"]), ("plan", ["pro"]))
    )
    latent = 2 * (far & (rows["age"] > 0)) + 1.5 * (tv & (rows["zip"] % 7 == 3)) + (pro & rows["member"])
    return (latent + 0.3 * rows["income"]).to_numpy()


def binary(rows: pd.DataFrame) -> Any:
    return np.where(value(rows) > 1, "yes", "no")


def three(rows: pd.DataFrame) -> Any:
    return np.digitize(value(rows), [0.2, 1.5])


def classifier(rows: pd.DataFrame | None = None, **options: Any) -> cb.CatBoostClassifier:
    rows = frame() if rows is None else rows
    return cb.CatBoostClassifier(**QUICK | {"cat_features": CATS} | options).fit(rows, binary(rows))


def assert_same(net: Any, fitted: Any, rows: Any) -> None:
    for method in ("predict_proba", "predict"):
        if hasattr(fitted, method):
            ours, theirs = getattr(net, method)(rows), np.asarray(getattr(fitted, method)(rows))
            assert ours.shape == theirs.shape
            if theirs.dtype.kind == "f":
                np.testing.assert_allclose(ours, theirs, 1e-9, 1e-9)
            else:
                np.testing.assert_array_equal(ours, theirs)


def of(net: Any, kind: type) -> Any:
    return next(step.module for step in net.program.steps if isinstance(step.module, kind))


# Hashes


def test_hashes_are_those_of_catboost(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    texts = ["".join(random.choice([*"abcXYZ 09-_éß東👍"], size)) for size in [*range(100), 400, 0, 1, 1, 1, 1, 2, 2]]
    rows = pd.DataFrame({"text": texts, "number": np.arange(len(texts)) % 7})
    pool = cb.Pool(rows, np.arange(len(texts)) % 2, cat_features=["text"])
    cb.CatBoost({**QUICK, "iterations": 1}).fit(pool).save_model(tmp_path / "net.json", format="json", pool=pool)
    told = json.loads((tmp_path / "net.json").read_text())["features_info"]["cat_features_hash"]
    wanted = {one["value"]: one["hash"] for one in told}
    assert [city_hash(text) for text in texts] == [wanted[text] for text in texts]

    class Hashes(torch.nn.Module):
        def forward(self, texts: list[str]) -> list[int]:
            return [city_hash_of_bytes([ord(byte) for byte in text]) for text in texts]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        scripted = torch.jit.script(Hashes())
    for _ in range(3):  # the interpreter optimises with what it has seen
        assert scripted(texts) == [wanted[text] for text in texts]


# Exact outputs


@pytest.mark.parametrize("known", [False, True], ids=["hashes alone", "rows given"])
@pytest.mark.parametrize("most", [2, 10], ids=["statistics", "one-hot"])
@pytest.mark.parametrize("complexity", [1, 4])
def test_combinations(complexity: int, most: int, known: bool) -> None:
    fitted = classifier(max_ctr_complexity=complexity, one_hot_max_size=most)
    net = windtunnel.compile(fitted, calibrate=frame() if known else None)
    assert_same(net, fitted, frame(300, 1, unseen=True))
    statistics = of(net, TargetStatistics)
    assert (len(statistics.column) > 1) == (complexity > 1)
    if complexity > 1:
        assert len(of(net, AboveBorders).border) and bool(statistics.compares.any())


@pytest.mark.parametrize("kind", ["object", "category", "string[pyarrow]"])
def test_kinds_of_columns(kind: str) -> None:
    rows = frame(kind=kind)
    fitted = classifier(rows)
    for given in (None, rows):
        assert_same(windtunnel.compile(fitted, calibrate=given), fitted, frame(200, 1, unseen=True, kind=kind))


STATISTICS: dict[str, dict[str, Any]] = {
    "one against all": {"loss_function": "MultiClassOneVsAll"},
    "several borders": {"simple_ctr": ["Borders:TargetBorderCount=2:Prior=0.3"]},
    "buckets": {"simple_ctr": ["Buckets"], "combinations_ctr": ["Buckets:CtrBorderCount=30"]},
    "counts of all rows": {"simple_ctr": ["Counter"], "counter_calc_method": "Full"},
    "means": {"simple_ctr": ["BinarizedTargetMeanValue"], "combinations_ctr": ["BinarizedTargetMeanValue"]},
    "few in a table": {"ctr_leaf_count_limit": 4},
    "level by level": {"grow_policy": "Depthwise"},
    "missing as greatest": {"nan_mode": "Max"},
}


@pytest.mark.parametrize("name", STATISTICS)
def test_statistics(name: str) -> None:
    rows, other = frame(), frame(300, 1, unseen=True)
    options = QUICK | {"cat_features": CATS, "combinations_ctr": ["Borders"]} | STATISTICS[name]
    fitted = cb.CatBoostClassifier(**options).fit(rows, three(rows), eval_set=(other, three(other)))
    assert_same(windtunnel.compile(fitted), fitted, other)
    if name != "one against all":
        fitted = cb.CatBoostRegressor(**options).fit(rows, value(rows), eval_set=(other, value(other)))
        assert_same(windtunnel.compile(fitted), fitted, other)


def test_arrays_and_categories_alone() -> None:
    rows, other = (one[["age", "city", "zip"]].to_numpy(dtype=object) for one in (frame(), frame(99, 1, unseen=True)))
    fitted = cb.CatBoostClassifier(**QUICK, cat_features=[1, 2]).fit(rows, binary(frame()))
    assert_same(windtunnel.compile(fitted), fitted, other)
    fitted = cb.CatBoostClassifier(**QUICK, cat_features=CATS).fit(frame()[CATS], binary(frame()))
    assert_same(windtunnel.compile(fitted), fitted, frame(99, 1, unseen=True)[CATS])


def test_a_model_from_a_file(tmp_path: Path) -> None:
    classifier().save_model(tmp_path / "net.cbm")
    fitted = cb.CatBoostClassifier().load_model(tmp_path / "net.cbm")
    rows = frame(99, 1)
    assert_same(windtunnel.compile(fitted), fitted, rows)
    other = windtunnel.compile(fitted).predict_proba(rows[rows.columns[::-1]])
    np.testing.assert_allclose(other, fitted.predict_proba(rows), 1e-9)


@pytest.mark.parametrize("known", [False, True], ids=["hashes alone", "rows given"])
def test_steps_in_front(known: bool) -> None:
    groups = make_pipeline(RareCategories(min_count=30), SimpleImputer(strategy="constant", fill_value="few"))
    parts = ((groups, ["city"]), ("passthrough", ["zip", "device"]), (StandardScaler(), ["age", "income"]))
    model = cb.CatBoostClassifier(**QUICK, cat_features=[0, 1, 2])
    fitted = make_pipeline(make_column_transformer(*parts), model).fit(frame(), binary(frame()))
    net = windtunnel.compile(fitted, calibrate=frame() if known else None)
    assert_same(net, fitted, frame(200, 1, unseen=True))


# Rejections


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"zip": 2.0}, "'zip' of dtype float64: .* by their text, and 2.0 is neither a text nor a whole"),
        ({"city": None}, "'city' holds missing values, which CatBoost rejects"),
        ({"city": np.nan}, "'city' holds missing values, which CatBoost rejects"),
    ],
    ids=["numbers", "None", "NaN"],
)
def test_values_that_catboost_rejects(wrong: dict[str, Any], message: str) -> None:
    fitted, rows = classifier(), frame(20, 1).assign(**wrong)
    with pytest.raises((cb.CatBoostError, TypeError)):
        fitted.predict(rows)
    with pytest.raises(BadInput, match=message):
        windtunnel.compile(fitted).predict(rows)


def test_whole_numbers_as_text() -> None:
    fitted, rows = classifier(), frame(50, 1)
    assert_same(windtunnel.compile(fitted, calibrate=frame()), fitted, rows.astype({"zip": str}))


def test_rejected_by_name() -> None:
    rows = frame(200)
    fitted = cb.CatBoostClassifier(**QUICK, text_features=["city"]).fit(rows[["age", "city"]], binary(rows))
    with pytest.raises(UnsupportedEstimator, match=r"text_features \(columns \[1\]\), which have no translation"):
        windtunnel.compile(fitted)
    constant = cb.CatBoostRegressor(**QUICK, cat_features=CATS, grow_policy="Depthwise", min_data_in_leaf=999)
    with pytest.raises(UnsupportedEstimator, match="splits by none of them"):
        windtunnel.compile(constant.fit(rows[CATS], value(rows)))
    parts = make_column_transformer((OrdinalEncoder(dtype=int), ["city"]))
    fitted = make_pipeline(parts, cb.CatBoostClassifier(**QUICK, cat_features=[0])).fit(rows, binary(rows))
    with pytest.raises(UnsupportedEstimator, match="reads column 'city' as a category, and there 0.0 is neither"):
        windtunnel.compile(fitted)


# Files


def given(rows: pd.DataFrame) -> dict[str, list[Any]]:
    return {name: rows[name].astype(object).tolist() for name in rows}


@pytest.mark.parametrize("known", [False, True], ids=["hashes alone", "rows given"])
def test_files_that_hash(known: bool, tmp_path: Path) -> None:
    fitted, rows = classifier(), frame(200, 1, unseen=True)
    net = windtunnel.compile(fitted, calibrate=frame() if known else None)
    net.save(tmp_path / "net.windtunnel")
    np.testing.assert_array_equal(windtunnel.load(tmp_path / "net.windtunnel").scores(rows), net.scores(rows))
    net.export(tmp_path / "net.ts")
    # Without rows to tell what they are, the columns are those of texts, and whole numbers go in as both.
    texts = rows if known else rows.astype(dict.fromkeys(("zip", "member"), int)).astype({"zip": str, "member": str})
    model = serving.load(tmp_path / "net.ts", trusted=True)
    for either in (texts, rows):
        np.testing.assert_allclose(model.predict_proba(given(either)), fitted.predict_proba(rows), 1e-9, 1e-9)
    if not known:
        with pytest.raises(serving.BadRows, match="column 'zip' holds 0.5; texts are read there"):
            model.predict_proba(given(rows.assign(zip=0.5)))
    with pytest.raises(serving.BadRows, match="rejects missing values"):
        model.predict_proba(given(texts.astype({"city": object}).assign(city=None)))


@pytest.mark.parametrize("format", ["onnx", "exported"])
def test_files_that_look_up(format: str, tmp_path: Path) -> None:
    fitted, path = classifier(iterations=5), tmp_path / ("net.onnx" if format == "onnx" else "net.pt2")
    with pytest.raises(UnfaithfulOption, match="'city', .* are known by the hash of their text.* as calibrate="):
        windtunnel.compile(fitted).export(path, format=format)
    # Of a category that was not shown nobody can tell whether the model knows it.
    some, rows = frame()[lambda rows: rows["city"] != PLACES[2]], frame(200, 1, unseen=True)
    windtunnel.compile(fitted, calibrate=some).export(path, format=format)
    model = serving.load(path, trusted=True)
    told = rows[rows["city"].isin(PLACES) & (rows["city"] != PLACES[2])]
    assert 10**12 in told["zip"].tolist()
    np.testing.assert_allclose(model.predict_proba(given(told)), fitted.predict_proba(told), 1e-9, 1e-9)
    for city in (PLACES[2], "Atlantis"):
        with pytest.raises(serving.BadRows, match="rejects"):
            model.predict_proba(given(told.assign(city=city)))


@pytest.mark.parametrize("known", [False, True], ids=["hashes alone", "rows given"])
@pytest.mark.parametrize("suffix", [".onnx", ".pt2", ".ts"])
def test_a_tuned_model_in_a_file_knows_the_texts_of_hashes(suffix: str, known: bool, tmp_path: Path) -> None:
    rows, valid, later = frame(3000), frame(1500, 1), frame(400, 2, unseen=True)
    fitted = cb.CatBoostRegressor(**QUICK | {"iterations": 6, "depth": 3}, cat_features=CATS).fit(rows, value(rows))
    net = windtunnel.translate(fitted, calibrate=rows if known else None)
    net.fit((rows, value(rows)), (valid, value(valid)), epochs=2, progress=False)
    assert net.history.changed and any(f"city={city}" in str(net.report()) for city in PLACES)
    net.save(tmp_path / "net.windtunnel")
    loaded = windtunnel.load(tmp_path / "net.windtunnel")
    for each in (net, loaded):
        each.export(tmp_path / f"net{suffix}")
        model = serving.load(tmp_path / f"net{suffix}", trusted=True)
        np.testing.assert_allclose(model.predict(given(later)), net.predict(later), 1e-6, 1e-6)
    if not known:
        assert windtunnel.translate(fitted).encoder.categories[0].vocabulary == net.encoder.categories[0].vocabulary


@pytest.mark.parametrize("format, suffix", [("torchscript", ".ts"), ("onnx", ".onnx"), ("exported", ".pt2")])
def test_files_that_know_whole_numbers_as_text(format: str, suffix: str, tmp_path: Path) -> None:
    known, path = frame().astype({"zip": str}), tmp_path / f"net{suffix}"
    fitted, rows = classifier(iterations=5).fit(known, binary(frame())), frame(50, 1)
    windtunnel.compile(fitted, calibrate=known).export(path, format=format)
    found = serving.load(path, trusted=True).predict_proba(given(rows))
    np.testing.assert_allclose(found, fitted.predict_proba(rows), 1e-9, 1e-9)


@pytest.mark.parametrize("backend", ["torchscript", "onnx"])
def test_backends(backend: str) -> None:
    fitted = classifier()
    assert_same(windtunnel.compile(fitted, backend=backend), fitted, frame(99, 1, unseen=True))


# Training


@pytest.mark.parametrize("known", [False, True], ids=["hashes alone", "rows given"])
def test_a_warm_start(known: bool) -> None:
    fitted, rows = classifier(), frame(300, 1, unseen=True)
    net = windtunnel.translate(fitted, calibrate=frame(seed=2) if known else None).soften()
    ours, theirs = net.scores(rows)[:, 0], torch.from_numpy(fitted.predict(rows, prediction_type="RawFormulaVal"))
    assert float(torch.corrcoef(torch.stack([ours, theirs]))[0, 1] ** 2) > 0.999
    net.train()(*net.encode(rows)).square().mean().backward()
    assert of(net, TargetStatistics).rows.grad.any()


@pytest.mark.parametrize("known", [False, True], ids=["hashes alone", "rows given"])
def test_fit_learns_of_categories_that_have_no_text(known: bool) -> None:
    """A weak source leaves most to a residual model, which reads the categories by their ids."""
    rows, valid, test = frame(4000), frame(2000, 1), frame(2000, 2, unseen=True)
    fitted = cb.CatBoostRegressor(**QUICK | {"iterations": 3, "depth": 2}, cat_features=CATS).fit(rows, value(rows))
    net = windtunnel.translate(fitted, calibrate=frame(500) if known else None)
    net.fit((rows, value(rows)), (valid, value(valid)), progress=False)
    before, after = (np.square(one.predict(test) - value(test)).mean() for one in (fitted, net))
    assert after < 0.8 * before


def test_an_unfitted_copy_knows_its_categories() -> None:
    fitted = cb.CatBoostClassifier(**QUICK).fit(frame(), binary(frame()), cat_features=CATS)
    again = clone_unfitted(make_pipeline("passthrough", fitted)).fit(frame(), binary(frame()))
    np.testing.assert_array_equal(again.predict_proba(frame(50, 1)), fitted.predict_proba(frame(50, 1)))


@pytest.mark.filterwarnings("ignore:on the validation rows the members")
def test_crossfit() -> None:
    rows = frame(1200)
    net = windtunnel.crossfit(classifier(rows), rows, binary(rows), folds=2, progress=False)
    assert net.predict(frame(99, 1, unseen=True)).shape == (99,)


def vote_over_zip(rows: pd.DataFrame, target: Any) -> VotingRegressor:
    """A booster that hashes a column, and a line that reads it as numbers."""
    booster = cb.CatBoostRegressor(**QUICK | {"iterations": 6, "depth": 3}, cat_features=["zip"]).fit(rows, target)
    line = make_pipeline(SimpleImputer(), StandardScaler(), LinearRegression()).fit(rows, target)
    vote = VotingRegressor([("line", line)]).fit(rows, target)  # which cannot clone a list of cat_features
    vote.estimators, vote.estimators_ = [("booster", booster), ("line", line)], [booster, line]
    vote.named_estimators_ = Bunch(booster=booster, line=line)
    return vote


@pytest.mark.parametrize("suffix", [".onnx", ".pt2", ".ts"])
def test_hashed_categories_that_another_member_reads_as_numbers(suffix: str, tmp_path: Path) -> None:
    rows, valid, later = (frame(count, seed)[["age", "zip"]] for count, seed in ((3000, 0), (1500, 1), (300, 2)))
    target, of_valid = (np.sin(each["zip"] * 3.0) + (each["age"] > 0) for each in (rows, valid))
    net = windtunnel.translate(vote_over_zip(rows, target)).fit(
        (rows, target), (valid, of_valid), epochs=1, progress=False
    )
    net.export(tmp_path / f"net{suffix}")
    model = serving.load(tmp_path / f"net{suffix}", trusted=True)
    np.testing.assert_allclose(model.predict(given(later)), net.predict(later), 1e-6, 1e-6)


@pytest.mark.parametrize("suffix", [".onnx", ".pt2", ".ts"])
def test_hashed_numbers_that_float64_does_not_tell_apart_are_rejected(suffix: str, tmp_path: Path) -> None:
    rows = frame(3000)[["age", "zip"]].assign(zip=lambda given: given["zip"] % 9 + 2**53)
    target = np.sin((rows["zip"] - 2**53) * 3.0)
    net = windtunnel.translate(vote_over_zip(rows, target)).fit((rows, target), epochs=1, progress=False)
    with pytest.raises(UnfaithfulOption, match="whole numbers of 2\\^53 and more"):
        net.export(tmp_path / f"net{suffix}")
