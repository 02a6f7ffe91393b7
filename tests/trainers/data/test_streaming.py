"""Parquet streams: every row once, shuffled, divided among processes, prefetched, resumed after a process is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import pytorch_lightning as pl
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from stream_rows import NUMBERS, PATTERN, ROWS, TEXTS, click_net, numbers_of, pipeline, table, valid_rows, write
from torch.utils.data import DataLoader

import windtunnel
from windtunnel.errors import BadFile, BadInput, InvalidOption
from windtunnel.trainers.data import parquet_stream
from windtunnel.trainers.data.loader_adapter import LoaderAdapter
from windtunnel.trainers.data.row_groups import RowGroups

QUICK: dict[str, Any] = {"progress": False, "accelerator": "cpu", "epochs": 2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("rows")
    write(place, table())
    return place


@pytest.fixture
def net() -> Any:
    return click_net()


def made(net: Any, folder: Path, **options: Any) -> parquet_stream.ParquetStream:
    return windtunnel.stream(net, folder / PATTERN, target="click", **{"batch_size": 32, "buffer": 96, **options})


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The row groups that were read, in order."""
    seen: list[int] = []
    read = RowGroups.read

    def counting(self: RowGroups, group: int, *rest: Any) -> Any:
        seen.append(group)
        return read(self, group, *rest)

    monkeypatch.setattr(RowGroups, "read", counting)
    return seen


@pytest.mark.parametrize("weight", [None, "weight"])
@pytest.mark.parametrize("shuffle", [False, True])
def test_a_pass_has_every_row_once_and_encodes_it_as_a_loader_does(
    net: Any, folder: Path, shuffle: bool, weight: str | None
) -> None:
    frame = table()
    batches = list(made(net, folder, shuffle=shuffle, weight=weight))
    assert [len(item[1]) for item in batches] == [32] * 10 + [30]
    numbers = numbers_of(batches)
    assert (numbers == list(range(ROWS))) is not shuffle
    wanted = windtunnel.loader(
        net, frame.iloc[numbers], frame["click"].iloc[numbers], weight and frame[weight].iloc[numbers], shuffle=False
    )
    got = [torch.cat(blocks) for blocks in zip(*[(*item[0], *item[1:]) for item in batches], strict=True)]
    blocks = [*wanted.rows, wanted.target, *([wanted.weight] if weight else [])]
    assert len(got) == len(blocks) and all(map(torch.equal, got, blocks))


def test_seed_and_epoch_determine_the_order(net: Any, folder: Path) -> None:
    def order(seed: int, epoch: int) -> list[int]:
        rows = made(net, folder, seed=seed)
        rows.set_epoch(epoch)
        return numbers_of(rows)

    orders = [order(seed, epoch) for seed in (0, 1) for epoch in (0, 1)]
    assert all(sorted(one) == list(range(ROWS)) for one in orders)
    assert len({tuple(one) for one in orders}) == 4 and order(1, 1) == orders[3]


@pytest.mark.parametrize(("batch_size", "buffer"), [(32, 1), (32, 96), (50, 1000), (1000, 10), (1, 7)])
def test_any_sizes(net: Any, folder: Path, batch_size: int, buffer: int) -> None:
    rows = made(net, folder, batch_size=batch_size, buffer=buffer)
    batches = list(rows)
    assert len(batches) == len(rows) == -(-ROWS // batch_size)
    assert sorted(numbers_of(batches)) == list(range(ROWS))


@pytest.mark.parametrize("paths", ["folder", "files", "pattern below"])
def test_paths(net: Any, folder: Path, paths: str) -> None:
    given = {
        "folder": folder,
        "files": [str(folder / f"{number}.parquet") for number in (0, 1, 2, 0)],
        "pattern below": str(folder / "**" / PATTERN),
    }
    rows = windtunnel.stream(net, given[paths], target="click", shuffle=False)
    assert numbers_of(rows) == list(range(ROWS))


def test_a_pipeline_fitted_on_arrays_reads_all_columns_in_their_order(tmp_path: Path) -> None:
    from sklearn.linear_model import Ridge

    frame = table()[["row", "x", "weight"]]
    write(tmp_path, frame)
    net = windtunnel.translate(Ridge().fit(frame[["row", "x"]].to_numpy(), frame["weight"]))
    ((rows, target),) = windtunnel.stream(net, tmp_path, target="weight", shuffle=False)
    assert torch.equal(rows.numbers, torch.tensor(frame[["row", "x"]].to_numpy(), dtype=torch.float64))
    assert torch.equal(target, torch.arange(1.0, ROWS + 1))


def test_one_window_is_prefetched(net: Any, folder: Path, reads: list[int]) -> None:
    rows = iter(made(net, folder, batch_size=10, buffer=80, shuffle=False))
    next(rows)
    rows.close()
    assert reads == [0, 1, 2, 3, 4]  # 80 rows and the next 80, of row groups of 40, 40, 37, 40 and 40 rows


def test_a_row_group_is_read_once_a_pass(net: Any, folder: Path, reads: list[int]) -> None:
    list(made(net, folder, batch_size=10, buffer=20))
    assert sorted(reads) == list(range(9))


def test_an_aborted_pass_leaves_no_thread(net: Any, folder: Path) -> None:
    rows = iter(made(net, folder, buffer=32))
    next(rows)
    rows.close()
    assert not [one for one in threading.enumerate() if one.name.startswith("windtunnel-stream")]


def test_collected_rows_come_from_all_row_groups(net: Any, folder: Path, reads: list[int]) -> None:
    sample = numbers_of([made(net, folder).collect(60)])
    assert 50 <= len(sample) <= 60 and len(set(sample)) == len(sample)
    assert sorted(reads) == list(range(9))
    assert numbers_of([made(net, folder).collect(60)]) == sample
    assert sorted(numbers_of([made(net, folder).collect(10**6)])) == list(range(ROWS))


@pytest.fixture
def be(monkeypatch: pytest.MonkeyPatch) -> Any:
    def be(rank: int, world: int) -> None:
        monkeypatch.setattr(parquet_stream, "rank", lambda: rank)
        monkeypatch.setattr(parquet_stream, "world", lambda: world)

    return be


@pytest.mark.parametrize("world", [2, 3, 4, 700])
def test_processes_take_equal_parts(net: Any, folder: Path, world: int, be: Any) -> None:
    rows, steps, seen = made(net, folder), [], []
    for rank in range(0, world, 1 if world < 9 else 69):
        be(rank, world)
        batches = list(rows)
        assert len(batches) == len(rows)
        steps.append([len(item[1]) for item in batches])
        seen += numbers_of(batches)
    assert all(one == steps[0] for one in steps)
    if world < 9:
        assert set(seen) == set(range(ROWS)) and len(seen) - ROWS == -ROWS % world


@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_validation_rows_come_once_and_in_order(net: Any, folder: Path, world: int, be: Any) -> None:
    rows, seen = made(net, folder), []
    for rank in range(world):
        be(rank, world)
        seen += numbers_of(rows.in_order())
    assert seen == list(range(ROWS))


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
@pytest.mark.parametrize("skipped", [0, 5])
def test_workers_of_a_data_loader_share_the_rows(net: Any, folder: Path, skipped: int) -> None:
    rows = made(net, folder)
    loader = LoaderAdapter(net, DataLoader(rows, batch_size=None, num_workers=2), training=True)
    loader.set_epoch(4)
    whole = [numbers_of([item]) for item in loader]
    assert len(whole) == len(loader) == 11 and sorted(sum(whole, [])) == list(range(ROWS))
    loader.skip(skipped)
    assert [numbers_of([item]) for item in loader] == whole[skipped:]


@pytest.mark.parametrize("skipped", [0, 1, 3, 7, 10])
def test_a_pass_can_begin_anywhere(net: Any, folder: Path, skipped: int, reads: list[int]) -> None:
    rows = made(net, folder)
    rows.set_epoch(3)
    whole = [numbers_of([item]) for item in rows]
    reads.clear()
    rows.skip(skipped)
    assert [numbers_of([item]) for item in rows] == whole[skipped:]
    # Windows of three batches, the third of four being that from which row 192 on is read.
    assert len(reads) <= 9 - max(skipped // 3 * 96 // 40 - 1, 0)
    rows.set_epoch(3)
    assert rows.skipped == 0


def test_wrong_arguments_are_rejected(net: Any, folder: Path, tmp_path: Path) -> None:
    def wrong(match: str, paths: Any = folder, error: type[Exception] = BadInput, **options: Any) -> None:
        with pytest.raises(error, match=match):
            windtunnel.stream(net, paths, **{"target": "click", **options})

    wrong("no Parquet file at '.*nowhere'", tmp_path / "nowhere")
    wrong("no Parquet file at", tmp_path)
    wrong("no paths", [])
    wrong("no column 'clik' in .*: did you mean click", target="clik")
    wrong("no column 'wait'", weight="wait")
    wrong("no column 'z'", columns=["x", "z"])
    wrong("batch_size=0 must be a whole number from 1", error=InvalidOption, batch_size=0)
    wrong("batch_size=32.0 must be a whole number", error=InvalidOption, batch_size=32.0)
    wrong("buffer=0", error=InvalidOption, buffer=0)
    wrong("seed=-1 must be a whole number from 0", error=InvalidOption, seed=-1)
    (tmp_path / "text.parquet").write_text("row,x")
    wrong("text.parquet is damaged or no Parquet file", tmp_path, BadFile)
    (tmp_path / "text.parquet").unlink()
    write(tmp_path, table()[:0])
    wrong("hold no rows", tmp_path)
    write(tmp_path, table(9).drop(columns="x"), files=1)
    wrong(r"1.parquet and .*0.parquet differ in their columns: \['x'\]", tmp_path)
    arrow = pa.Table.from_pandas(table(9))
    pq.write_table(arrow.append_column("x", arrow["x"]), tmp_path / "0.parquet")
    wrong(r"0.parquet has several columns of one name: \['x'\]", tmp_path)


def of_types(frame: Any, **types: pa.DataType) -> pa.Table:
    """Rows as a table, some columns in other types."""
    arrow = pa.Table.from_pandas(frame, preserve_index=False)
    for name, kind in types.items():
        arrow = arrow.set_column(arrow.schema.get_field_index(name), name, pa.array(frame[name].tolist(), kind))
    return arrow


@pytest.mark.parametrize("first", [0, 1])
def test_files_that_hold_the_same_in_other_types(net: Any, tmp_path: Path, first: int) -> None:
    frame = table().astype({"c": object, "d": object})
    frame.loc[::7, "c"], frame.loc[175:, "d"] = None, None
    parts = frame[:175], frame[:0], frame[175:]
    words = pa.dictionary(pa.int8(), pa.string())
    kinds: Any = [{}, dict.fromkeys(["c", "d", "x"], pa.null()), {"c": words, "d": pa.null(), "row": pa.float32()}]
    for number, (part, types) in enumerate(zip(parts, kinds, strict=True)):
        place = tmp_path / f"{(number + first) % 3}.parquet"
        pq.write_table(of_types(part, **types), place, row_group_size=[40, 1, 77][number])
    (got,) = made(net, tmp_path, batch_size=ROWS, buffer=ROWS)
    numbers = numbers_of([got])
    assert sorted(numbers) == list(range(ROWS))
    wanted = windtunnel.loader(net, frame.iloc[numbers], frame["click"].iloc[numbers], shuffle=False)
    assert all(map(torch.equal, [*got[0], got[1]], [*wanted.rows, wanted.target]))


def test_rows_that_are_rejected_are_said_where(net: Any, tmp_path: Path) -> None:
    frame = table().astype({"click": float})
    frame.loc[340, "click"] = np.nan
    write(tmp_path, frame)
    with pytest.raises(BadInput, match="1 of 30 targets are missing") as rejected:
        list(made(net, tmp_path, buffer=32, shuffle=False))
    assert rejected.value.__notes__ == [f"These are 30 rows of row group 2 of {tmp_path / '2.parquet'}."]


@pytest.mark.parametrize(
    ("now", "match"),
    [
        ("gone", "row group 0 of .*0.parquet cannot be read .*Failed to open"),
        ("damaged", "(?s)row group 0 of .*0.parquet cannot be read .*it is damaged"),
        ("lists", "row group 0 of .*0.parquet cannot be read .*of other types than the first file"),
        ("fewer rows", r"row group 0 of .*0.parquet had 40 rows of \['c', .*\] and now has 9 of"),
        ("fewer groups", "row group 1 of .*0.parquet cannot be read .*was written anew"),
        ("fewer columns", r"row group 0 of .*0.parquet had 40 rows of .* and now has 40 of \['c', 'd', 'row', 'x'\]"),
    ],
)
def test_files_that_change_while_they_are_read(net: Any, tmp_path: Path, now: str, match: str) -> None:
    write(tmp_path, table())
    rows, file = made(net, tmp_path, shuffle=False), tmp_path / "0.parquet"
    match now:
        case "gone":
            file.unlink()
        case "damaged":
            data = bytearray(file.read_bytes())
            data[4:400] = bytes(396)
            file.write_bytes(data)
        case "lists":
            pq.write_table(of_types(table(40).assign(c=[["c1"]] * 40)), file)
        case "fewer rows":
            pq.write_table(of_types(table(117)), file, row_group_size=9)
        case "fewer groups":
            pq.write_table(of_types(table(40)), file)
        case "fewer columns":
            pq.write_table(of_types(table(117).drop(columns="click")), file, row_group_size=40)
    with pytest.raises(BadFile, match=match):
        list(rows)


def test_what_the_thread_meets_is_raised(net: Any, tmp_path: Path) -> None:
    write(tmp_path, table().assign(click=7))
    with pytest.raises(BadInput, match="7"):
        next(iter(made(net, tmp_path)))
    write(tmp_path, table().assign(click=1))
    with pytest.raises(BadInput, match="every training target is 1"):
        net.fit(made(net, tmp_path), valid_rows(), **QUICK)


def test_a_stream_without_validation_rows_trains_the_translation_alone(net: Any, tmp_path: Path) -> None:
    write(tmp_path, table())
    with pytest.raises(BadInput, match=r"anew in each epoch, as it is made for that.* valid=; recipe='joint' trains"):
        net.fit(made(net, tmp_path), epochs=1, progress=False)
    with pytest.warns(UserWarning, match=r"anew in each epoch, as it is made for that.* valid=\.$"):
        net.fit(made(net, tmp_path), recipe="joint", **QUICK)
    assert net.history.validated_on == "training rows"


def test_rows_without_a_score_are_rejected(net: Any, tmp_path: Path) -> None:
    frame = table()
    frame.loc[340, "x"] = np.nan
    write(tmp_path, frame)
    for training in (True, False):
        with pytest.raises(BadInput, match="1 of 1 rows have no finite score: .*'x'"):
            list(made(net, tmp_path, training=training))


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_categories_that_the_source_rejects(tmp_path: Path) -> None:
    strict = pipeline(handle_unknown="error")
    frame = table().replace({"c": {"c3": "new"}})
    write(tmp_path, frame)
    with pytest.raises(BadInput, match="categories that were not there in fitting"):
        list(made(windtunnel.translate(strict), tmp_path, training=False))
    with pytest.raises(BadInput, match="a worker of a DataLoader cannot change the translation"):
        list(DataLoader(made(windtunnel.translate(strict), tmp_path), batch_size=None, num_workers=1))
    net = windtunnel.translate(strict)
    list(made(net, tmp_path))
    assert net.predict(frame[[*TEXTS, *NUMBERS]]).shape == (ROWS,)


def test_a_stream_trains_as_its_batches_do(folder: Path) -> None:
    def trained(batches: Any) -> Any:
        net = click_net()
        net.fit(batches(net), valid_rows(), recipe="joint", loader_memory=0, **QUICK | {"epochs": 1})
        return net

    streamed = trained(lambda net: made(net, folder))
    listed = trained(lambda net: list(made(net, folder)))
    assert streamed.history.best > streamed.history.start
    assert [one.train_loss for one in streamed.history.epochs] == [one.train_loss for one in listed.history.epochs]
    for name, value in streamed.state_dict().items():
        assert torch.equal(value, listed.state_dict()[name]), name


def test_a_residual_model_trains_on_streamed_rows(tmp_path: Path) -> None:
    write(tmp_path, table(4000), row_group=500)
    streamed, in_memory = click_net(), click_net()
    streamed.fit(made(streamed, tmp_path, batch_size=256, buffer=1024), valid_rows(3000), **QUICK | {"epochs": 6})
    frame = table(4000)
    in_memory.fit((frame, frame["click"]), valid_rows(3000), batch_size=256, **QUICK | {"epochs": 6})
    assert [origin.name for origin in streamed.origins][-1] == "residual"
    gain, wanted = (net.history.best - net.history.start for net in (streamed, in_memory))
    assert wanted > 0.01 and gain > wanted / 2


class Told(pl.Callback):
    """Writes down the rows of each step, and kills the process in one of them."""

    def __init__(self, file: Path, kill_at: int | None = None) -> None:
        self.file, self.kill_at = file, kill_at

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        with self.file.open("a") as told:
            told.write(json.dumps([trainer.current_epoch, numbers_of([batch])]) + "\n")
        if trainer.global_step == self.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)


# Where rows come from, the recipe, the step in which the process is killed, and the last checkpoint before that.
KILLED = {
    "stream": ("stream", "joint", 18, 16),
    "first epoch": ("stream", "joint", 6, 5),
    "end of an epoch": ("stream", "joint", 11, 10),
    "start of an epoch": ("stream", "joint", 12, 11),
    "loader": ("loader", "joint", 18, 16),
    "residual": ("stream", "default", 18, 16),
}


def fitted(name: str, folder: Path, told: Path, kill_at: int | None = None, **options: Any) -> Any:
    kind, recipe, *_ = KILLED[name]
    net, frame = click_net(), table()
    train = made(net, folder) if kind == "stream" else windtunnel.loader(net, frame, frame["click"], batch_size=32)
    chosen = {**QUICK, "epochs": 3, "ema": 0.9, **options}
    return net.fit(train, valid_rows(), recipe=recipe, callbacks=[Told(told, kill_at)], **chosen)


SCRIPT = """
import os, signal, sys
from pathlib import Path
from test_streaming import KILLED, fitted
rows, place = map(Path, sys.argv[1:])
for name, (_, _, kill_at, _) in KILLED.items():
    child = os.fork()
    if child == 0:
        fitted(name, rows, place / f"{name}.killed", kill_at, checkpoint_dir=place / name, checkpoint_every=5)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, (name, status)
"""


@pytest.fixture(scope="module")
def killed(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint folders of runs that were killed, by name."""
    place, here = tmp_path_factory.mktemp("killed"), Path(__file__).parents[2] / "support"
    folders = (Path(__file__).parent, here, here.parents[1])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders)), "OMP_WAIT_POLICY": "passive"}
    command = [sys.executable, "-c", SCRIPT, str(folder), str(place)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return place


@pytest.mark.parametrize("name", KILLED)
def test_a_killed_run_sees_every_row_once_and_ends_with_the_same_bits(
    name: str, folder: Path, killed: Path, tmp_path: Path
) -> None:
    _, recipe, kill_at, written = KILLED[name]
    once = fitted(name, folder, tmp_path / "once")
    again = fitted(name, folder, tmp_path / "again", resume_from=killed / name)
    steps = [[json.loads(line) for line in path.read_text().splitlines()]
             for path in (tmp_path / "once", killed / f"{name}.killed", tmp_path / "again")]  # fmt: skip
    whole, before, after = steps
    assert len(before) == kill_at and before[:written] + after == whole
    for epoch in range(3 if recipe == "joint" else 0):  # a residual model reads no more than it needs
        assert sorted(sum((rows for of, rows in before[:written] + after if of == epoch), [])) == list(range(ROWS))
    assert [(one.train_loss, one.val_loss, one.metric) for one in again.history.epochs] == [
        (one.train_loss, one.val_loss, one.metric) for one in once.history.epochs
    ]
    for key, value in once.state_dict().items():
        assert torch.equal(value, again.state_dict()[key]), key


def test_rows_in_another_order_are_rejected(folder: Path, killed: Path, tmp_path: Path) -> None:
    def rejected(match: str, train: Any, **options: Any) -> None:
        options |= {"recipe": "joint", "resume_from": killed / "stream", "epochs": 3, "ema": 0.9, "progress": False}
        with pytest.raises(BadInput, match=match):
            net.fit(train, valid_rows(), **options)

    net = click_net()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    rejected(r"after 5 batches, .* in another order: batch_size=32 \(now 16\)", made(net, folder, batch_size=16))
    rejected(r"seed=0 \(now 1\)", made(net, folder, seed=1))
    rejected(r"buffer=96 \(now 352\)", made(net, folder, buffer=352))
    frame = table(400)
    write(tmp_path, frame)
    rejected(r"rows=350 \(now 400\)", made(net, tmp_path))
    rejected("was written with loader_memory=None", list(made(net, folder)), loader_memory=0)
    # As many rows in as many row groups, of files in another order.
    files = [folder / f"{number}.parquet" for number in (1, 0, 2)]
    rejected("row_groups=", windtunnel.stream(net, files, target="click", batch_size=32, buffer=96))
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


def test_checkpoints_within_an_epoch_that_cannot_be(net: Any, folder: Path, tmp_path: Path) -> None:
    frame = table()
    rows, anew = (frame, frame["click"]), {"loader_memory": 0}
    for train, options, match in [
        (rows, {"checkpoint_every": 5}, "checkpoint_every=5 needs a checkpoint_dir"),
        (rows, {"checkpoint_every": 0, "checkpoint_dir": tmp_path}, "checkpoint_every=0 must be a whole number"),
        (
            [rows],
            {"checkpoint_every": 5, "checkpoint_dir": tmp_path, **anew},
            "needs rows that can be read on from the middle",
        ),
    ]:
        with pytest.raises(InvalidOption, match=match):
            net.fit(train, valid_rows(), **options, **QUICK)
    options = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "accelerator": "cpu"}
    trainer = pl.Trainer(accumulate_grad_batches=2, **options)
    with pytest.raises(InvalidOption, match="checkpoint_every=5 would lose gradients .* over 2 batches"):
        net.fit(rows, valid_rows(), trainer=trainer, checkpoint_every=5, checkpoint_dir=tmp_path)


def test_infinite_numbers_are_told_apart_by_their_sign(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    X = pd.DataFrame({"a": random.normal(size=1000), "b": random.normal(size=1000)})
    y = (X["a"] > 0).astype(int)
    net = windtunnel.translate(make_pipeline(FunctionTransformer(np.exp), LogisticRegression()).fit(X, y))
    X.loc[0, "a"], X.loc[900, "a"] = -np.inf, np.inf
    assert net.predict(X[:1]) == 0
    pq.write_table(pa.Table.from_pandas(X.assign(y=y)), tmp_path / "rows.parquet")
    stream = windtunnel.stream(net, tmp_path / "rows.parquet", target="y", batch_size=200, shuffle=False)
    with pytest.raises(BadInput, match="1 of 200 rows have no finite score"):
        net.fit(stream, (X[1:800], y[1:800]), residual=False, epochs=1, progress=False)


def test_the_order_identifies_the_columns_of_targets_and_weights(tmp_path: Path) -> None:
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(50, 2)), columns=["a", "b"])
    frame["y"] = frame["z"] = frame["a"] > 0
    frame["w"] = 1.0
    frame.to_parquet(tmp_path / "rows.parquet")
    net = windtunnel.translate(LogisticRegression().fit(frame[["a", "b"]], frame["y"]))
    options = [{"target": "y"}, {"target": "y"}, {"target": "z"}, {"target": "y", "weight": "w"}]
    orders = [windtunnel.stream(net, tmp_path / "rows.parquet", columns=["a", "b"], **each).order for each in options]
    assert orders[0] == orders[1] and orders[0] != orders[2] and orders[0] != orders[3]
