import bz2
import gzip
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import TargetEncoder
from typer.testing import CliRunner

import windtunnel
from benchmarks import published, sets
from benchmarks.paper.__main__ import app
from benchmarks.paper.cells import CONFIGS, Cell, Limits, config, freeze_all_but_trees, halves, loaded, seeded
from benchmarks.paper.deepgbm import deepgbm, freeze_encoders_of_trees
from benchmarks.paper.report import BEGIN, END, section, write_report
from benchmarks.paper.tables import PAPER, TABLES
from benchmarks.report import mean_and_error
from benchmarks.sets import load
from benchmarks.stored import key
from windtunnel.clicklog import click_log
from windtunnel.errors import BadInput
from windtunnel.experiment.run import build_pipeline
from windtunnel.modules.trees import SoftTrees

# The files as published, small.


def write_criteo(path: Path, rows: int = 400) -> list[list[str]]:
    random = np.random.default_rng(0)
    lines = []
    for at in range(rows):
        numbers = ["" if random.random() < 0.3 else str(random.integers(-3, 5000)) for _ in range(12)]
        categories = ["" if random.random() < 0.2 else f"{random.integers(2**32):08x}" for _ in range(25)]
        # The first number is the position of the row; one category looks like a number, and one like nothing.
        lines.append([str(at % 2), str(at), *numbers, "00000123", *categories])
    path.write_text("\n".join(map("\t".join, lines)) + "\n")
    return lines


def test_criteo_is_read_as_it_stands_and_split_by_position(tmp_path: Path) -> None:
    lines = write_criteo(tmp_path / "train.txt")
    X, y, split = published.criteo(tmp_path)
    assert list(X) == [*published.CRITEO_NUMBERS, *published.CRITEO_CATEGORIES]
    assert y.tolist() == [int(line[0]) for line in lines]
    given = pd.DataFrame([line[1:] for line in lines], columns=list(X)).replace("", None)
    for name in published.CRITEO_NUMBERS:
        pd.testing.assert_series_equal(X[name], given[name].astype(float))
    for name in published.CRITEO_CATEGORIES:
        assert X[name].dtype == "str"
        assert X[name].isna().tolist() == given[name].isna().tolist()
        assert X[name].dropna().tolist() == given[name].dropna().tolist()
    assert split.tolist() == ["train"] * 360 + ["valid"] * 20 + ["test"] * 20


@pytest.mark.parametrize(("options", "rows"), [({"rows": 100}, 100), ({"share": 0.25}, 100), ({"rows": 9999}, 400)])
def test_a_part_of_the_rows_keeps_their_order_and_their_split(tmp_path: Path, options: dict, rows: int) -> None:
    write_criteo(tmp_path / "train.txt")
    X, y, split = published.criteo(tmp_path / "train.txt", **options)
    at = X["I1"].to_numpy()
    assert len(X) == rows and (np.diff(at) > 0).all()
    assert (y == at % 2).all()
    assert (split == np.select([at < 360, at < 380], ["train", "valid"], "test")).all()
    again, *_ = published.criteo(tmp_path / "train.txt", **options)
    pd.testing.assert_frame_equal(X, again)
    other, *_ = published.criteo(tmp_path / "train.txt", seed=1, **options)
    assert (rows == 400) == (other["I1"].tolist() == at.tolist())


def test_rows_are_read_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_criteo(tmp_path / "train.txt")
    whole = published.criteo(tmp_path, rows=150)
    monkeypatch.setattr(published, "BLOCK", 2000)
    in_blocks = published.criteo(tmp_path, rows=150)
    pd.testing.assert_frame_equal(whole[0], in_blocks[0])


def test_avazu_has_23_categories_and_a_random_split(tmp_path: Path) -> None:
    random, rows = np.random.default_rng(0), 400
    frame = pd.DataFrame({"id": [f"{at}.0e18" for at in range(rows)], "click": random.integers(0, 2, rows)})
    frame["hour"] = [f"1410{21 + at % 10:02d}{at % 24:02d}" for at in range(rows)]
    for name in published.AVAZU_CATEGORIES:
        frame[name] = random.integers(0, 9, rows)
    with gzip.open(tmp_path / "train.csv.gz", "wt") as file:
        frame.to_csv(file, index=False)
    X, y, split = published.avazu(tmp_path)
    assert X.shape == (rows, 23) and all(X.dtypes == "str")
    assert y.tolist() == frame["click"].tolist()
    when = pd.to_datetime(frame["hour"], format="%y%m%d%H")
    assert X["hour_of_day"].tolist() == [str(one.hour) for one in when]
    assert X["day_of_week"].tolist() == [str(one.weekday()) for one in when]
    assert X["C21"].tolist() == frame["C21"].astype(str).tolist()
    assert pd.Series(split).value_counts().to_dict() == {"train": 360, "valid": 20, "test": 20}
    assert set(split[:360]) == {"train", "valid", "test"}


def write_flights(folder: Path) -> None:
    random = np.random.default_rng(0)
    for year in (2005, 2006, 2007, 2008):
        rows = 60
        frame = pd.DataFrame({"Year": year, "Month": np.arange(rows) % 12 + 1, "DayofMonth": 3, "DayOfWeek": 5})
        frame["CRSDepTime"], frame["DepTime"] = 1345, 1400
        frame["UniqueCarrier"], frame["TailNum"] = "AA", "N1"
        frame["DepDelay"] = np.resize([14.0, 15.0, np.nan], rows)
        frame["Origin"], frame["Dest"], frame["Distance"] = "NAS", "JFK", random.integers(100, 999, rows)
        if year == 2008:
            frame = frame.rename(columns=published.NEWER_NAMES)
            (folder / "2008.csv.bz2").write_bytes(bz2.compress(frame.to_csv(index=False, na_rep="NA").encode()))
        else:
            frame.to_csv(folder / f"{year}.csv", index=False, na_rep="NA")


def test_flights_leave_late_and_are_split_by_year_and_half(tmp_path: Path) -> None:
    write_flights(tmp_path)
    X, y, split = published.flight(tmp_path)
    assert list(X) == [*published.FLIGHT_CATEGORIES, *published.FLIGHT_NUMBERS]
    assert len(X) == 120  # three years, a third of the flights cancelled
    assert y.tolist() == [0, 1] * 60
    assert X["CRSDepTime"].unique().tolist() == [13 * 60 + 45]
    assert [X[name].dtype for name in published.FLIGHT_CATEGORIES] == ["str"] * 6
    month = X["Month"].astype(int).to_numpy()
    assert (split == np.select([np.arange(120) < 80, month <= 6], ["train", "valid"], "test")).all()
    part, target, _ = published.flight(tmp_path, rows=30)
    assert len(part) == len(target) == 30


def test_files_in_another_form_are_rejected_by_name(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"train\.txt"):
        published.criteo(tmp_path)
    with pytest.raises(FileNotFoundError, match="on-time files"):
        published.flight(tmp_path)
    (tmp_path / "train.txt").write_text("1\t2\n")
    with pytest.raises(BadInput, match="cannot be read in its published form"):
        published.criteo(tmp_path)
    (tmp_path / "train.csv").write_text("click,hour\n1,14102100\n")
    with pytest.raises(BadInput, match="no column C1, C14"):
        published.avazu(tmp_path)


# Data sets by name.

LOADER = """
import pandas as pd
def load(name):
    if name != "toy":
        raise ValueError(f"no data set {name!r}")
    split = ["train"] * 20 + ["valid"] * 5 + ["test"] * 5
    return pd.DataFrame({"a": ["x", "y"] * 15, "b": range(30)}), [0, 1] * 15, split
"""


def test_a_folder_with_loaders(tmp_path: Path) -> None:
    (tmp_path / "datasets.py").write_text(LOADER)
    data = load(f"toy={tmp_path}")
    X, y = data.part("valid")
    assert (
        X["b"].tolist() == [20, 21, 22, 23, 24]
        and X.index.tolist() == [0, 1, 2, 3, 4]
        and y.tolist() == [0, 1, 0, 1, 0]
    )
    few = load(f"toy={tmp_path}", rows=20)
    assert len(few.X) == 20 and few.X["b"].is_monotonic_increasing
    assert (few.y == few.X["b"] % 2).all()
    with pytest.raises(BadInput, match="does not load 'other': no data set 'other'"):
        load(f"other={tmp_path}")


def test_the_click_log_and_wrong_names(tmp_path: Path) -> None:
    data = load("clicklog=50")
    X, y = click_log(50)
    pd.testing.assert_frame_equal(data.X, X)
    assert data.y.tolist() == y.tolist()
    assert [len(data.part(name)[1]) for name in sets.PARTS] == [40, 5, 5]
    for spec, message in [("clicklog", "write NAME=PATH"), ("clicklog=many", "the number of rows to generate")]:
        with pytest.raises(BadInput, match=message):
            load(spec)
    with pytest.raises(BadInput, match="'rest'; give one of train"):
        data.part("rest")
    with pytest.raises(FileNotFoundError, match=r"datasets\.py"):
        load(f"toy={tmp_path}")


def test_a_set_becomes_the_file_that_the_configs_read(tmp_path: Path) -> None:
    done = CliRunner().invoke(sets.app, ["--data", "clicklog=200", "--output", str(tmp_path)])
    assert done.exit_code == 0, done.output
    frame = pd.read_parquet(tmp_path / "rows.parquet")
    assert frame["split"].value_counts().to_dict() == {"train": 160, "valid": 20, "test": 20}
    assert frame["target"].tolist() == click_log(200)[1].tolist()


# Cells.


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_pipeline_is_translated_whole_and_warm(path: Path) -> None:
    """The paper's pipelines with few trees: every step inside the translation, and the start near the source."""
    pre, pipe = (int(one[-1]) for one in path.stem.split("_"))
    X, y = click_log(500, seed=1)
    pipeline = seeded(build_pipeline(config(pre, pipe)[0].pipeline, X), 0)
    quick = {"n_estimators": 4, "num_leaves": 5, "epochs": 2}
    for name in pipeline.get_params():
        if (option := name.rpartition("__")[2]) in quick:
            pipeline.set_params(**{name: quick[option]})
    source = pipeline.fit(X, y)
    net = windtunnel.translate(source, calibrate=X, untranslated="error")
    assert net.fidelity.r2 > 0.999
    # And on rows that neither has seen.
    probabilities = [one.predict_proba(click_log(1000, seed=1)[0].tail(500))[:, 1] for one in (net, source)]
    assert np.corrcoef(probabilities)[0, 1] > 0.995


def test_there_are_nine_pipelines() -> None:
    assert len(list(CONFIGS.glob("*.yaml"))) == 9


def test_seeds_reach_every_step_that_draws() -> None:
    X, y = click_log(400)
    config_ = config(3, 2)[0].pipeline
    first, again, other = (seeded(build_pipeline(config_, X), seed) for seed in (1, 1, 2))
    assert first.get_params()["model__random_state"] == 1
    encoded = [one[0].fit_transform(X, y) for one in (first, again, other)]
    np.testing.assert_array_equal(encoded[0], encoded[1])
    assert (encoded[0] != encoded[2]).any()


def test_a_translation_of_the_trees_alone_trains_nothing_else() -> None:
    X, y = click_log(300)
    trees = LGBMClassifier(n_estimators=3, num_leaves=4, verbosity=-1)
    net = windtunnel.translate(make_pipeline(windtunnel.TwoHotEncoder(), trees).fit(X, y))
    freeze_all_but_trees(net)
    for step in net.program.steps:
        assert any(one.requires_grad for one in step.module.parameters()) == isinstance(step.module, SoftTrees)


def test_deepgbm_trains_its_trees_and_its_categories_alone() -> None:
    X, y = click_log(400)
    pipeline = build_pipeline(config(2, 2)[0].pipeline, X).set_params(model__n_estimators=3, model__num_leaves=4)
    source = deepgbm(pipeline.fit(X, y), seed=0).fit(X, y)
    net = windtunnel.translate(source, calibrate=X, level="L1").soften()
    np.testing.assert_allclose(net.predict_proba(X), source.predict_proba(X), atol=0.02)
    freeze_encoders_of_trees(net)
    trained = {
        origin.name.split(".")[1]: type(step.module).__name__
        for step, origin in zip(net.program.steps, net.origins, strict=True)
        if any(one.requires_grad for one in step.module.parameters())
    }
    assert trained == {"gbdt2nn": "SoftTrees", "catnn": "FactorizationMachine", "final_estimator_": "Linear"}


def test_cells_share_what_tables_have_in_common() -> None:
    cells = {name: set(table.cells("clicklog=9", [0, 1])) for name, table in TABLES.items()}
    assert [len(one) for one in cells.values()] == [36, 12, 16, 24, 108, 234]
    whole = Cell("clicklog=9", 2, 2, "L1", 0)
    assert all((whole if name not in ("half", "5.6") else whole.source) in one for name, one in cells.items())
    for numbers in PAPER.values():
        assert [len(line) for line in numbers] == [len(TABLES["5.3"].columns)] * len(TABLES["5.3"].lines)


def test_a_source_of_one_half_serves_both_halves() -> None:
    """Joint training has the rows of the source, or those between them."""
    whole = Cell("clicklog=9", 1, 1, "L4", 0)
    seen, unseen = (replace(whole, trained_on=half) for half in ("seen", "unseen"))
    assert seen.source == unseen.source != whole.source
    assert len({key(cell.settings(Limits())) for cell in (whole, seen, unseen)}) == 3
    X, y = click_log(400)
    parts = halves(X, y)
    both = pd.concat([parts[half][0] for half in ("seen", "unseen")])
    assert parts["all"][0] is X and [len(parts[half][1]) for half in ("seen", "unseen")] == [200, 200]
    assert sorted(map(tuple, both.astype(str).to_numpy())) == sorted(map(tuple, X.astype(str).to_numpy()))


def test_settings_tell_apart_all_that_matters_and_no_place() -> None:
    cell, limits = Cell("toy=/somewhere", 2, 1, "L4", 0), Limits(rows=10, max_steps=3)
    settings = cell.settings(limits)
    assert "somewhere" not in key(settings)
    assert settings["recipe"]["max_steps"] == 3 and settings["recipe"]["learning_rate"] == [1e-4]
    assert Cell("criteo=x", 2, 1, "L4", 0).settings(limits)["recipe"]["learning_rate"] == [1e-5]
    other = [
        Cell("toy=/somewhere", 2, 1, "L4", 1).settings(limits),
        Cell("toy=/somewhere", 2, 1, "L3", 0).settings(limits),
        cell.settings(Limits(rows=11, max_steps=3)),
        cell.settings(Limits(rows=10, max_steps=4)),
        cell.settings(Limits(rows=10, max_steps=3, learning_rates=(0.1,))),
        cell.settings(Limits(rows=10, max_steps=3, mixed=True)),
    ]
    assert len({key(one) for one in [settings, *other]}) == 7
    # A source knows nothing of the training.
    assert cell.source.settings(limits) == cell.source.settings(Limits(rows=10, max_steps=4))


# The command.


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Table 5.4 over logistic regressions, which take no time."""
    table = TABLES["5.4"]
    lines = [(label, {**fields, "pipe": 1}) for label, fields in table.lines if fields["variant"] != "trees"]
    smaller = type(table)(table.title, lines, table.columns[:1])
    monkeypatch.setitem(TABLES, "5.4", smaller)


def run(*arguments: object) -> str:
    done = CliRunner().invoke(app, [str(one) for one in arguments])
    assert done.exit_code == 0, done.output
    return done.output


def test_mixed_rows_are_dealt_to_parts_of_the_same_size() -> None:
    given, dealt = (loaded("clicklog=400", None, mixed) for mixed in (False, True))
    pd.testing.assert_frame_equal(dealt.X, given.X)
    np.testing.assert_array_equal(np.unique(dealt.split, return_counts=True)[1], [40, 320, 40])
    assert (dealt.split != given.split).any()


def test_a_run_prints_the_table_and_goes_on_where_it_was_killed(small: None, tmp_path: Path) -> None:
    command = ("--table", "5.4", "--data", "clicklog=400", "--max-steps", 20, "--output", tmp_path)
    first = run(*command, "--seeds", "0")
    assert "2 of 2 cells to run" in first
    assert "at most 20 steps where the paper trains until convergence: the cap ended 1 of 1 trainings" in first
    file = tmp_path / "results.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    source, whole = (line["auc"] for line in lines)
    assert f"| ML (Pipe2) | {source:.4f} |\n| W.T. (Pipe2) | {whole:.4f} |\n" in first

    # Killed in the middle of a line: that cell is run again, the others are not.
    text = file.read_text()
    file.write_text(text[:-20])
    assert "1 of 2 cells to run" in run(*command, "--seeds", "0")
    again = [json.loads(line) for line in file.read_text().splitlines()]
    assert [one["auc"] for one in again] == [source, whole]
    more = run(*command, "--seeds", "0,1")
    assert "2 of 4 cells to run" in more and "±" in more
    assert "0 of 4 cells to run" in run(*command, "--seeds", "0 1")


def test_a_residual_model_stands_beside_its_source(tmp_path: Path) -> None:
    options = ("--pipe", 1, "--pre", 2, "--variant", "source", "--variant", "residual", "--seeds", 0)
    printed = run("--table", "more rows", "--data", "clicklog=400", *options, "--output", tmp_path)
    assert "No joint training." in printed and printed.count("\n| residual ") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "nothing to do"),
        (("--table", "5.2", "--data", "clicklog=9"), "--table 5.2: there are 5.3, 5.4, 5.5, 5.6"),
        (("--table", "5.3"), "no --data"),
        (("--table", "5.3", "--data", "clicklog=9", "--seeds", "a"), "give whole numbers"),
        (("--report", "nowhere.md"), "no results to report"),
    ],
)
def test_wrong_arguments_are_one_line(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    done = CliRunner().invoke(app, [*arguments, "--output", str(tmp_path)])
    assert done.exit_code == 1
    assert message in done.stderr and done.stderr.count("\n") == 1


# The report.


def result(auc: float, seed: int, **fields: object) -> dict[str, object]:
    """A result as a run writes it."""
    cell = Cell(**{"data": "avazu=x", "seed": seed, "pre": 2, "pipe": 2, "variant": "L1"} | fields)
    result = {"settings": cell.settings(Limits(max_steps=500)), "auc": auc, "train_rows": 1234}
    if cell.variant == "source":
        return result | {"train_auc": 0.9, "valid_auc": 0.6}
    return result | {"start_auc": 0.5, "start_valid_auc": 0.51, "valid_auc": 0.62, "curve": [[0, 0.51], [200, 0.59]]}


RESULTS = [
    *(result(auc, seed, variant="source") for seed, auc in enumerate((0.70, 0.72))),
    *(result(auc, seed) for seed, auc in enumerate((0.705, 0.721))),
    *(result(auc, seed, trained_on="seen", variant="source") for seed, auc in enumerate((0.66, 0.67))),
    *(result(auc, seed, trained_on="unseen") for seed, auc in enumerate((0.65, 0.67))),
    result(0.69, 0, pre=1),
]


def test_the_section_has_the_gain_beside_the_paper_s_and_how_far_the_source_is_overfitted() -> None:
    text = section(RESULTS)
    gain, error = mean_and_error([0.005, 0.001])
    whole = "| Pre2 Pipe2 | 1,234 | L1 | 0.0001 | 500 | 0.7100 ± 0.0100 | 0.5000 ± 0.0000 | 0.7130 ± 0.0080 |"
    assert f"{whole} +0.0200 ± 0.0000 | {gain:+.4f} ± {error:.4f} | {0.7742 - 0.7550:+.4f} |" in text
    assert "| 1,234, not seen | L1 | 0.0001 |" in text
    assert "| 0.9000 ± 0.0000 | 0.6000 ± 0.0000 | 0.5100 ± 0.0000 | 0.5900 ± 0.0000 | 0.7100 ± 0.0100 |" in text
    assert "Pre1" not in text  # its source was not measured


def test_other_sections_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "joint_training.md"
    path.write_text(f"# Accuracy\n\nbefore\n\n{BEGIN}\nearlier\n{END}\n\nafter\n")
    write_report(path, RESULTS)
    text = path.read_text()
    assert text.startswith("# Accuracy\n\nbefore\n\n") and text.endswith("\n\nafter\n") and "earlier\n" not in text
    write_report(path, RESULTS)
    assert path.read_text() == text
    write_report(tmp_path / "docs" / "new.md", RESULTS)
    assert section(RESULTS) in (tmp_path / "docs" / "new.md").read_text()
    path.write_text(f"# Accuracy\n{END}\n")
    with pytest.raises(BadInput, match="has to have the lines"):
        write_report(path, RESULTS)


def test_the_target_encoder_is_one_that_cross_fits() -> None:
    parts = build_pipeline(config(3, 1)[0].pipeline, click_log(100)[0]).get_params().values()
    assert sum(isinstance(part, TargetEncoder) for part in parts) == 2
