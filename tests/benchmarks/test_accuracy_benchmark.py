"""The comparison with alternatives: small data, going on after a kill, the tables and the report."""

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMClassifier, LGBMRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import log_loss, r2_score, roc_auc_score
from sklearn.preprocessing import OneHotEncoder
from typer.testing import CliRunner

from benchmarks.accuracy import __main__ as command, alternatives, neural
from benchmarks.accuracy.builtin import BUILT_IN, covertype_like, housing_like, load_built_in
from benchmarks.accuracy.cells import FITTED, MODELS, Cell, Settings, measure, named
from benchmarks.accuracy.neural import Pytabkit, find
from benchmarks.accuracy.ours import OURS
from benchmarks.accuracy.report import BEGIN, END, section, write_report
from benchmarks.accuracy.sources import SOURCES
from benchmarks.accuracy.table import Scores, alternatives as of_alternatives, translations
from benchmarks.accuracy.task import Task, prepare
from benchmarks.report import written
from benchmarks.sets import DataSet
from windtunnel.errors import BadInput

LOADER = """
import numpy as np
import pandas as pd

NAMES = ("toy", "toy_too")

def load(name):
    random = np.random.default_rng(NAMES.index(name))
    X = pd.DataFrame({"a": random.choice(list("uvwxyz"), 400), "n": random.normal(size=400).round(1)})
    y = ((X["a"] < "w") + X["n"] + random.logistic(size=400) > 0).astype(int).to_numpy()
    return X, y, np.resize(["train", "train", "valid", "test"], 400)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "datasets.py").write_text(LOADER)
    return tmp_path


@pytest.fixture
def few_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    """Boosting that takes no time."""
    for options in (alternatives.LIGHTGBM, alternatives.NATIVE, alternatives.XGBOOST):
        monkeypatch.setitem(options, "n_estimators", 60)
    monkeypatch.setitem(alternatives.CATBOOST, "iterations", 60)
    for name, value in (("outer_bags", 1), ("max_rounds", 200)):
        monkeypatch.setitem(alternatives.EBM, name, value)


def task(kind: str = "binary", rows: int = 240, noise: float = 1.0) -> Task:
    """Categories, one of them missing, one only in the test rows, and numbers, one of them missing."""
    random = np.random.default_rng(0)
    X = pd.DataFrame({"a": random.choice(list("uvwxyz"), rows), "n": random.normal(size=rows).round(1), "m": 1.0})
    score = (X["a"] < "w") + X["n"] + noise * random.logistic(size=rows)
    if kind != "binary":
        score = score if kind == "regression" else np.digitize(score, [-0.5, 1.0])
    y = (score > 0).astype(int) if kind == "binary" else score
    X.loc[::40, "a"], X.loc[::50, "n"] = np.nan, np.nan
    X.loc[rows - 3, "a"] = "new"
    split = np.repeat(["train", "valid", "test"], rows // 3).astype(object)
    return prepare(DataSet(kind, X, np.asarray(y), split))


# Tasks.


@pytest.mark.parametrize("kind", ["binary", "multiclass", "regression"])
def test_what_is_asked_follows_from_the_target(kind: str) -> None:
    given = task(kind)
    assert given.kind == kind and given.categories == ["a"] and given.numbers == ["n", "m"]
    assert len(given.train.y) == len(given.valid.y) == len(given.test.y) == 80


def test_many_training_rows_are_cut_and_it_is_told() -> None:
    rows = 400
    data = DataSet(
        "big",
        pd.DataFrame({"n": range(rows)}),
        np.arange(rows) % 2,
        np.resize(["train", "train", "valid", "test"], rows),
    )
    cut, again, whole = prepare(data, 150), prepare(data, 150), prepare(data, 200)
    assert cut.note == "big: 150 of 200 training rows, drawn at random with seed 0" and not whole.note
    assert len(cut.train.y) == 150 and len(cut.valid.y) == len(cut.test.y) == 100
    assert cut.train.X["n"].is_monotonic_increasing and (cut.train.X["n"] % 2 == cut.train.y).all()
    pd.testing.assert_frame_equal(cut.train.X, again.train.X)


def test_forms_of_categories() -> None:
    given = task()
    as_categories, as_text = given.as_categories(), given.as_text()
    known = set(given.train.X["a"].dropna())
    for part in (as_categories.train, as_categories.test):
        assert set(part.X["a"].cat.categories) == known
    assert (
        as_categories.test.X["a"].isna().sum()
        == (~given.test.X["a"].isin(known)).sum()
        > given.test.X["a"].isna().sum()
    )
    assert set(as_text.train.X["a"]) == known | {"NA"} and "new" in set(as_text.test.X["a"])
    assert given.train.X["a"].isna().any()  # which is as it was


FEW = {"n_estimators": 60, "num_leaves": 15, "min_child_samples": 50, "colsample_bytree": 0.5, "verbosity": -1}


@pytest.mark.parametrize(("make", "linear", "trees"), [
    (housing_like, LinearRegression(), LGBMRegressor(**FEW)),
    (covertype_like, LogisticRegression(max_iter=2000), LGBMClassifier(**FEW)),
])  # fmt: skip
def test_generated_sets_have_interactions_and_noise(make, linear, trees) -> None:
    X, y = make(16000)
    again = make(16000)
    pd.testing.assert_frame_equal(X, again[0])
    np.testing.assert_array_equal(y, again[1])
    text = X.select_dtypes("str").columns
    assert len(text) == 2 and X[text[0]].nunique() > 2
    encoded = OneHotEncoder(handle_unknown="ignore", sparse_output=False).fit_transform(X[text])
    numbers = X.drop(columns=text).to_numpy()
    columns = np.hstack([(numbers - numbers.mean(0)) / numbers.std(0), encoded])
    half = len(X) // 2
    scores = []
    for model in (linear, trees):
        model.fit(columns[:half], y[:half])
        if make is housing_like:
            scores.append(r2_score(y[half:], model.predict(columns[half:])))
        else:
            scores.append(-log_loss(y[half:], model.predict_proba(columns[half:])))
    assert scores[1] > scores[0] + 0.02
    assert scores[1] < 0.95 if make is housing_like else scores[1] < -0.2


@pytest.mark.parametrize("name", BUILT_IN)
def test_sets_that_are_built_in(name: str) -> None:
    given = prepare(load_built_in(name))
    kinds = {"breast_cancer": "binary", "diabetes": "regression", "housing_like": "regression"}
    assert given.kind == kinds.get(name, "multiclass")
    sizes = [len(part.y) for part in (given.train, given.valid, given.test)]
    assert sizes[0] > 0.69 * sum(sizes) and min(sizes[1:]) > 0.13 * sum(sizes)
    if given.kind == "multiclass":
        assert set(given.train.y) >= {*given.valid.y, *given.test.y}


# Models.


@pytest.mark.parametrize("kind", ["binary", "multiclass", "regression"])
@pytest.mark.parametrize("name", FITTED)
def test_every_model_learns_from_raw_rows(name: str, kind: str, few_trees: None) -> None:
    """Missing and unseen categories and missing numbers included; better than knowing nothing."""
    if name in ("xgboost", "catboost", "ebm"):
        pytest.importorskip("interpret" if name == "ebm" else name)
    given = task(kind, 900, noise=0.2)
    (line,) = measure(given, [Cell(kind, name, 0)], Settings())
    target = given.train.y
    if kind == "binary":
        assert min(line["test"], line["valid"]) > 0.7
    else:
        constant = np.full(300, target.mean()) if kind == "regression" else np.tile(np.bincount(target) / 300, (300, 1))
        assert line["test"] < 0.9 * given.score(given.test.y, constant)
        assert line["valid"] < 0.9 * given.score(given.valid.y, constant)
    assert ("log_loss" in line) == (kind != "regression")
    assert json.loads(json.dumps(line)) == line


def test_a_line_has_the_scores_of_the_model() -> None:
    given = task(rows=600)
    (line,) = measure(given, [Cell("binary", "strong", 3)], Settings())
    model = FITTED["strong"].fit(given, 3)
    chances = model.predict_proba(given.test.X)[:, 1]
    assert line["test"] == roc_auc_score(given.test.y, chances) and line["log_loss"] == log_loss(given.test.y, chances)
    assert line["valid"] == roc_auc_score(given.valid.y, model.predict_proba(given.valid.X)[:, 1])
    assert line["settings"]["options"]["patience"] == 30 and line["settings"]["seed"] == 3
    # A clone, as cross-fitting makes one, has the trees that were kept.
    assert model[-1].n_estimators == model[-1].best_iteration_ < 250


def test_the_best_of_several_penalties_is_taken() -> None:
    given = task(rows=600)
    best = alternatives.logistic(given, 0)
    scores = []
    for C in alternatives.LOGISTIC["C"]:
        model = LogisticRegression(C=C, max_iter=2000).fit(best[0].transform(given.train.X), given.train.y)
        scores.append(roc_auc_score(given.valid.y, model.predict_proba(best[0].transform(given.valid.X))[:, 1]))
    assert len(set(scores)) > 1
    assert roc_auc_score(given.valid.y, best.predict_proba(given.valid.X)[:, 1]) == max(scores)


def test_names_bring_their_sources_along() -> None:
    assert named(MODELS) == list(MODELS)
    assert named(["paper/warm"]) == ["paper", "paper/warm"]
    names = named(["default", "catboost"])
    assert names == [name for name in MODELS if name in (*SOURCES, *(f"{source}/default" for source in SOURCES))]
    assert {"catboost", "strong", "xgboost/default"} <= {*names} and not {"ebm", "strong/crossfit"} & {*names}
    with pytest.raises(BadInput, match="--model lightgbm_nativ: did you mean lightgbm_native"):
        named(["lightgbm_nativ"])


@pytest.mark.filterwarnings("ignore:on the validation rows the members")
def test_every_way_from_a_source_learns() -> None:
    given = task(rows=1200)
    cells = [Cell("binary", one, 0) for one in ("logistic", *(f"logistic/{way}" for way in OURS))]
    lines = list(measure(given, cells, Settings(paper_epochs=2)))
    source, warm, *tuned = (one["test"] for one in lines)
    assert warm == pytest.approx(source, abs=0.002) and min(tuned) > source - 0.02
    facts = dict(zip(OURS, lines[1:], strict=True))
    assert facts["warm"]["faithful_r2"] > 0.999 and "epochs" not in facts["warm"]
    assert facts["recipe_paper"]["epochs"] == 2
    assert "epochs" in facts["default"] and "epochs" in facts["crossfit"]


def test_settings_tell_apart_all_that_matters() -> None:
    cell, run = Cell("toy", "strong/recipe_paper", 0), Settings(paper_epochs=3)
    settings = [
        cell.settings(run),
        cell.settings(Settings(paper_epochs=4)),
        cell.settings(Settings(paper_epochs=3, most_rows=9)),
        Cell("toy", "strong/recipe_paper", 1).settings(run),
        Cell("toy", "strong/default", 0).settings(run),
        Cell("toy", "tabm", 0).settings(Settings(pytabkit=Pytabkit(Path("a"), {"pytabkit": "1"}))),
        Cell("toy", "tabm", 0).settings(Settings(pytabkit=Pytabkit(Path("a"), {"pytabkit": "2"}))),
        Cell("toy", "tabm", 0).settings(Settings(pytabkit=Pytabkit(Path("a"), {"pytabkit": "1"}, 5))),
    ]
    assert len({json.dumps(one, sort_keys=True) for one in settings}) == len(settings)
    assert set(settings[0]["versions"]) == {"lightgbm", "torch", "windtunnel"}
    assert Cell("toy", "strong", 0).settings(run) == Cell("toy", "strong", 0).settings(Settings())
    elsewhere = Cell("toy", "tabm", 0).settings(Settings(pytabkit=Pytabkit(Path("b"), {"pytabkit": "1"})))
    assert elsewhere == settings[5]


# The other Python.

STUB = """
import numpy as np

def columns(X):
    assert X["n"].dtype == np.float32 and not X["n"].isna().any()
    early = X["a"].map(lambda one: isinstance(one, str) and one < "w")
    return np.column_stack([np.ones(len(X)), X["n"], early.astype(float)])

class RealMLP_TD_Classifier:
    def __init__(self, device, random_state, val_metric_name, use_ls, n_epochs):
        assert (device, random_state, use_ls, n_epochs) == ("cpu", 7, False, 4)
    def fit(self, X, y, X_val, y_val, cat_col_names):
        assert cat_col_names == ["a"] and list(X) == ["a", "n", "m"] and len(X_val) == len(y_val)
        self.weights = np.linalg.lstsq(columns(X), y, rcond=None)[0]
    def predict_proba(self, X):
        chance = np.clip(columns(X) @ self.weights, 0.01, 0.99)
        return np.column_stack([1 - chance, chance])

class TabM_D_Regressor(RealMLP_TD_Classifier):
    def __init__(self, device, random_state, val_metric_name, n_epochs):
        assert val_metric_name == "rmse"
    def predict(self, X):
        return columns(X) @ self.weights
"""


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """This Python, with something that goes by the name of pytabkit."""
    (tmp_path / "pytabkit.py").write_text(STUB)
    facts = tmp_path / "pytabkit-9.9.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: pytabkit\nVersion: 9.9\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return Path(sys.executable)


def test_another_python_fits_and_predicts(stub: Path) -> None:
    other = find(stub, epochs=4)
    assert other.versions["pytabkit"] == "9.9"
    for model, kind in (("realmlp", "binary"), ("tabm", "regression")):
        given = task(kind, 600)
        (line,) = measure(given, [Cell(kind, model, 7)], Settings(pytabkit=other))
        assert line["settings"]["options"] == {"n_epochs": 4}
        linear = next(iter(measure(given, [Cell(kind, "logistic", 7)], Settings())))
        assert line["test"] == pytest.approx(linear["test"], rel=0.15)


def test_a_python_without_pytabkit_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neural, "ASK", "import no_such_pytabkit")
    with pytest.raises(BadInput, match=f"{sys.executable} cannot import pytabkit and pyarrow: ModuleNotFoundError"):
        find(Path(sys.executable))
    with pytest.raises(BadInput, match="does not start: No such file"):
        find(tmp_path / "python")


def test_what_goes_wrong_there_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "job.py").write_text("raise MemoryError('no room')")
    monkeypatch.setattr(neural, "JOB", tmp_path / "job.py")
    with pytest.raises(RuntimeError, match="(?s)tabm on binary, by .*failed.*MemoryError: no room"):
        Pytabkit(Path(sys.executable), {}).fit("tabm", task(), 0)


# The command.


def run(*arguments: object) -> tuple[str, str]:
    done = CliRunner().invoke(command.app, [str(one) for one in arguments])
    assert done.exit_code == 0, done.output
    return done.stdout, done.stderr


def lines_of(output: Path) -> list[dict]:
    return [json.loads(line) for line in (output / "results.jsonl").read_text().splitlines()]


def test_a_run_prints_tables_and_goes_on_where_it_was_killed(
    folder: Path, few_trees: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = folder / "out"
    arguments = ("--data", folder, "--set", "toy", "--output", output, "--model", "logistic/default")
    arguments += ("--model", "lightgbm_native", "--model", "tabm")
    printed, said = run(*arguments, "--seeds", 0, 1)
    assert "6 of 6 cells to run" in said
    assert "skipped tabm: give --pytabkit-python" in said
    lines = lines_of(output)
    assert [(one["settings"]["model"], one["settings"]["seed"]) for one in lines] == [
        *(("logistic", 0), ("logistic/default", 0), ("lightgbm_native", 0)),
        *(("logistic", 1), ("logistic/default", 1), ("lightgbm_native", 1)),
    ]
    scores = Scores(lines)
    for model in ("logistic", "logistic/default", "lightgbm_native"):
        assert written(list(scores.values("toy", model).values())) in printed
    assert written(scores.gains("toy", "logistic/default", "logistic"), sign=True) in printed

    # Killed in the middle of a line: that cell is run again, and no other.
    file = output / "results.jsonl"
    file.write_text(file.read_text()[:-20])
    ran = []
    monkeypatch.setattr(command, "measure", lambda *given: ran.extend(given[1]) or measure(*given))
    assert "1 of 6 cells to run" in run(*arguments, "--seeds", "0,1")[1]
    assert ran == [Cell("toy", "lightgbm_native", 1)]
    assert [one["test"] for one in lines_of(output)] == [one["test"] for one in lines]
    assert run(*arguments, "--seeds", "0 1")[1].startswith("skipped tabm") and len(ran) == 1
    assert (
        "2 of 4 cells to run"
        in run(*arguments[:6], "--set", "toy_too", "--model", "lightgbm_native", "--seeds", 0, 1)[1]
    )


def test_lines_and_report_of_what_there_is(folder: Path, few_trees: None) -> None:
    output, page = folder / "out", folder / "docs" / "accuracy.md"
    given = ("--data", folder, "--set", "toy", "--model", "lightgbm_native", "--seeds", "0", "--output", output)
    printed, _ = run(*given, "--json")
    assert [json.loads(line) for line in printed.splitlines()] == lines_of(output)
    again, said = run("--output", output, "--json", "--report", page)
    assert again == printed and said == f"wrote {page}\n"
    assert f"| toy | - | {lines_of(output)[0]['test']:.4f} |" in page.read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "nothing to do: no results in"),
        (
            ("--set", "toy"),
            "--set toy: choose from breast_cancer, digits, wine, diabetes, housing_like, covertype_like; or",
        ),
        (("--data", "FOLDER", "--set", "toi"), "--set toi: did you mean toy?"),
        (("--set", "wine", "--model", "stong"), "--model stong: did you mean strong?"),
        (("--set", "wine", "--seeds", "a"), "give whole numbers"),
        (("--data", "nowhere"), "no file nowhere/datasets.py"),
    ],
)
def test_wrong_arguments_are_one_line(folder: Path, arguments: tuple[str, ...], message: str) -> None:
    given = [str(folder) if one == "FOLDER" else one for one in arguments]
    done = CliRunner().invoke(command.app, [*given, "--output", str(folder / "out")])
    assert done.exit_code in (1, 2)
    assert message in done.stderr and done.stderr.count("\n") == 1


def test_a_name_of_ours_in_a_folder_is_rejected(folder: Path) -> None:
    (folder / "datasets.py").write_text("NAMES = ('wine',)")
    with pytest.raises(BadInput, match="sets wine, as are built in here"):
        command._sets(folder, None)


# Tables and report.


def line(set: str, model: str, seed: int, test: float, valid: float = 0.5, metric: str = "auc", **more: object) -> dict:
    """A result as a run writes it."""
    settings = {"set": set, "model": model, "seed": seed, "most_rows": 9, "options": {}, "versions": {"torch": "2"}}
    given = {"settings": settings, "metric": metric, "test": test, "valid": valid, "seconds": 2.0}
    return given | {"train_rows": 1000, "test_rows": 50} | more


STRONG, TUNED = {"one": (0.70, 0.72), "two": (0.80, 0.80)}, {"one": (0.71, 0.724), "two": (0.799, 0.799)}
RESULTS = [
    *(line(set, "strong", seed, test, valid=0.6) for set, tests in STRONG.items() for seed, test in enumerate(tests)),
    *(line(set, "strong/default", seed, test) for set, tests in TUNED.items() for seed, test in enumerate(tests)),
    *(line(set, "catboost", 0, test) for set, test in (("one", 0.71), ("two", 0.81))),
    line("diabetes", "strong", 0, 56.0, metric="rmse"),
    line("diabetes", "strong/default", 0, 55.0, metric="rmse"),
]


def test_sets_by_models_with_gains_by_seed() -> None:
    scores = Scores(RESULTS)
    grid = translations(scores, "strong")
    assert grid is not None and grid.rows[0] == ["set", "rows", "`strong`", "`default`", "gain"]
    gain = [0.71 - 0.70, 0.724 - 0.72]
    assert grid.rows[1] == ["one", "1,000", written([0.70, 0.72]), written([0.71, 0.724]), written(gain, sign=True)]
    assert [row[0] for row in grid.rows[1:]] == ["one", "two", "diabetes (RMSE)"]  # the largest gain first
    assert grid.rows[3][2:] == ["56.0000", "55.0000", "+1.0000"]  # less is better
    plain = of_alternatives(scores)
    assert plain is not None and plain.rows[0] == ["set", "`strong/default`", "`catboost`"]
    assert [row[2] for row in plain.rows[1:]] == ["0.7100", "0.8100", "-"]
    assert translations(scores, "paper") is None


def test_a_seed_without_its_source_is_no_gain_and_the_last_of_equals_counts() -> None:
    scores = Scores([*RESULTS, line("one", "strong/default", 2, 0.9), line("one", "strong/default", 0, 0.75)])
    assert scores.gains("one", "strong/default", "strong") == pytest.approx([0.05, 0.004])


def test_the_section_says_what_falls_short() -> None:
    told = section(RESULTS)
    assert "`strong/default` over `strong`, 2 sets with AUC: mean gain +0.0030 (-0.0010 without one), median" in told
    assert "least -0.0010 (two)" in told
    assert f"`strong/default` on two ({written([-0.001, -0.001], sign=True)})" in told
    assert "`strong/default` is better than `catboost` on 0 of 2 sets, not on one (+0.0000), two (-0.0110)." in told
    assert "among them, on 0 of 2 sets, not on one (+0.0000), two (-0.0110)." in told
    tuned = written([0.799, 0.799])
    assert f"| two | `strong` | 0.8000 ± 0.0000 | {tuned} | - | `catboost` | 0.8100 | -0.0110 | - |" in told
    assert "`crossfit` from that source" not in told
    told = section([*RESULTS, line("two", "strong/crossfit", 0, 0.815), line("one", "strong/crossfit", 0, 0.7)])
    assert f"| two | `strong` | 0.8000 ± 0.0000 | {tuned} | 0.8150 | `catboost` | 0.8100 | -0.0110 | +0.0050 |" in told
    assert "- `crossfit` from that source is above every other model on 1 of 2 sets, not on one (-0.0100)." in told
    better = [each for each in RESULTS if each["settings"]["set"] == "one"]
    assert "Worse than the source" not in section(better)


def test_other_sections_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "docs" / "accuracy.md"
    write_report(path, RESULTS)
    assert section(RESULTS) in path.read_text() and path.read_text().startswith("# Accuracy\n")
    path.write_text("# Accuracy\n\nof another\n")
    write_report(path, RESULTS[:1])
    assert path.read_text().startswith(f"# Accuracy\n\nof another\n\n{BEGIN}\nScores are on the test rows")
    path.write_text(path.read_text() + "\nafter\n")
    write_report(path, RESULTS)
    text = path.read_text()
    assert text == f"# Accuracy\n\nof another\n\n{BEGIN}\n{section(RESULTS)}\n{END}\n\nafter\n"
    path.write_text(f"{END}\n{BEGIN}\n")
    with pytest.raises(BadInput, match="once each, in order, or not at all"):
        write_report(path, RESULTS)
