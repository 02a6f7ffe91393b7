"""``windtunnel predict`` into a folder."""

import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMClassifier
from sklearn.compose import make_column_transformer
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from typer.testing import CliRunner

import windtunnel
from windtunnel.cli import app
from windtunnel.experiment import batch_scoring


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    generator = np.random.default_rng(0)
    frame = pd.DataFrame({"code": generator.choice(["007", "7"], 500), "x": generator.normal(size=500), "other": 1.0})
    parts = make_column_transformer((OneHotEncoder(), ["code"]), ("passthrough", ["x"]))
    pipeline = make_pipeline(parts, LogisticRegression()).fit(frame, frame.x + (frame.code == "7") > 0.5)
    windtunnel.translate(pipeline, calibrate=frame).save(folder / "model.windtunnel")
    frame[:300].to_parquet(folder / "a.parquet", row_group_size=64)
    frame[300:].to_csv(folder / "b.csv", index=False)
    return folder, pipeline, frame


def run(folder, *rows):
    paths = [str(folder / name) for name in rows]
    return CliRunner().invoke(
        app, ["predict", str(folder / "model.windtunnel"), *paths, "--output", str(folder / "scores")]
    )


def test_files_are_predicted_in_batches_and_left_out_once_they_are_there(files, monkeypatch):
    folder, pipeline, frame = files
    monkeypatch.setattr(batch_scoring, "BATCH_ROWS", 100)
    assert run(folder, "a.parquet").exit_code == 0
    (folder / "scores" / "a.parquet").touch()
    before = (folder / "scores" / "a.parquet").stat().st_mtime_ns
    done = run(folder, "a.parquet", "b.csv")
    assert "wrote 1 of 2 files" in done.stdout
    assert (folder / "scores" / "a.parquet").stat().st_mtime_ns == before
    scores = pd.concat([pd.read_parquet(folder / "scores" / f"{name}.parquet") for name in "ab"])
    np.testing.assert_allclose(scores.iloc[:, 1:], pipeline.predict_proba(frame), atol=1e-6)
    assert scores.prediction.tolist() == pipeline.predict(frame).tolist()
    assert sorted(path.name for path in (folder / "scores").iterdir()) == ["a.parquet", "b.parquet"]


def test_predictions_of_another_model_are_not_mixed_with_new_ones(tmp_path):
    frame = pd.DataFrame({"x": np.arange(40.0)})
    frame.to_parquet(tmp_path / "a.parquet")
    frame.to_parquet(tmp_path / "b.parquet")
    for first, rows, code in ((20, ["a.parquet"], 0), (10, ["a.parquet", "b.parquet"], 1), (20, ["b.parquet"], 0)):
        fitted = LogisticRegression().fit(frame, frame.x >= first)
        windtunnel.translate(fitted, calibrate=frame).save(tmp_path / "model.windtunnel")
        done = run(tmp_path, *rows)
        assert done.exit_code == code, done.output
        assert ("model.windtunnel: a.parquet" in " ".join(done.stderr.split())) == (code == 1)
        assert (tmp_path / "scores" / "b.parquet").exists() == (rows == ["b.parquet"])


def test_digits_that_a_vectorizer_counts_stay_texts(tmp_path):
    frame = pd.DataFrame({"note": ["007 x", "2024 x", "007", "y"] * 50, "x": np.arange(200.0)})
    parts = make_column_transformer((CountVectorizer(), "note"), ("passthrough", ["x"]))
    pipeline = make_pipeline(parts, LogisticRegression()).fit(frame, frame.note.str.contains("007"))
    windtunnel.translate(pipeline).save(tmp_path / "model.windtunnel")
    digits = pd.DataFrame({"note": ["007", "2024"], "x": [0.0, 1.0]})
    digits.to_csv(tmp_path / "digits.csv", index=False)
    done = run(tmp_path, "digits.csv")
    assert done.exit_code == 0, done.output
    scores = pd.read_parquet(tmp_path / "scores" / "digits.parquet")
    np.testing.assert_allclose(scores.iloc[:, 1:], pipeline.predict_proba(digits), atol=1e-9)


def test_a_file_that_fails_leaves_no_part_of_its_predictions(files):
    folder, _, frame = files
    frame.assign(x=np.nan)[:200].to_parquet(folder / "bad.parquet")
    (folder / "broken.parquet").write_bytes(b"PAR1")
    for name, said in (("bad", "'x'"), ("broken", "cannot be read")):
        done = run(folder, f"{name}.parquet")
        assert done.exit_code == 1 and said in done.stderr
    assert not [path for path in (folder / "scores").iterdir() if "b" == path.name[0] and path.stem != "b"]
    assert run(folder, "a.parquet", "a.parquet").exit_code == 1


def test_whole_numbers_are_texts_without_a_decimal_point(files, monkeypatch):
    folder, pipeline, frame = files
    monkeypatch.setattr(batch_scoring, "BATCH_ROWS", 100)
    rows = frame[frame.code == "7"].reset_index(drop=True)
    numbers = rows.assign(code=pd.array([7] * len(rows), dtype="Int64"))
    numbers.loc[10, "code"] = pd.NA  # in the first batch alone
    numbers.to_parquet(folder / "numbers.parquet")
    done = run(folder, "numbers.parquet")
    assert done.exit_code == 1 and "'code'" in done.stderr  # the encoder has seen no missing value
    numbers.drop(index=10).to_parquet(folder / "numbers.parquet")
    assert run(folder, "numbers.parquet").exit_code == 0
    scores = pd.read_parquet(folder / "scores" / "numbers.parquet")
    np.testing.assert_allclose(scores.iloc[:, 1:], pipeline.predict_proba(rows.drop(index=10)), atol=1e-6)
    missing = run(folder, "nothing.parquet")
    assert missing.exit_code == 2 and "nothing.parquet" in missing.stderr


def test_names_with_dots_are_different_files(files):
    folder, _, frame = files
    for month in ("2024.01", "2024.02"):
        frame[:20].to_parquet(folder / f"{month}.parquet")
    done = run(folder, "2024.01.parquet", "2024.02.parquet")
    assert "wrote 2 of 2 files" in done.stdout and "the others" not in done.stdout
    assert (folder / "scores" / "2024.01.parquet").is_file() and (folder / "scores" / "2024.02.parquet").is_file()


def test_a_file_is_never_its_own_predictions(tmp_path):
    frame = pd.DataFrame({"x": np.arange(40.0)})
    windtunnel.compile(LogisticRegression().fit(frame, frame.x > 20)).save(tmp_path / "model.windtunnel")
    (tmp_path / "v1.2").mkdir()
    frame.to_parquet(tmp_path / "v1.2" / "a.parquet")
    arguments = ["predict", str(tmp_path / "model.windtunnel"), str(tmp_path / "v1.2" / "a.parquet"), "--output"]
    done = CliRunner().invoke(app, [*arguments, str(tmp_path / "v1.2")])
    assert done.exit_code == 1 and "is the folder of a.parquet" in " ".join(done.stderr.split())
    (tmp_path / "v1.3").mkdir()
    assert CliRunner().invoke(app, [*arguments, str(tmp_path / "v1.3")]).exit_code == 0
    assert [path.name for path in (tmp_path / "v1.3").iterdir()] == ["a.parquet"]


def test_a_blank_in_a_name_that_the_source_writes_as_an_underscore(tmp_path):
    rows = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 2)), columns=["a b", "c"])
    net = windtunnel.compile(LGBMClassifier(n_estimators=2, verbosity=-1).fit(rows, rows["a b"] > 0))
    net.save(tmp_path / "m.windtunnel")
    rows.to_parquet(tmp_path / "rows.parquet")
    (path,) = batch_scoring.predict_files(tmp_path / "m.windtunnel", [tmp_path / "rows.parquet"], tmp_path / "out")
    np.testing.assert_array_equal(pd.read_parquet(path)["prediction"], net.predict(rows))
