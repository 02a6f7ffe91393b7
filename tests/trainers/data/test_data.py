"""Rows in memory, adapters of loaders, held-out rows, and the errors for bad rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from small_net import TASKS, SmallNet, rows
from torch.utils.data import BatchSampler, DataLoader, Dataset, DistributedSampler, TensorDataset

from windtunnel.encode import Batch
from windtunnel.errors import BadInput
from windtunnel.objectives.losses import LOSSES
from windtunnel.objectives.metrics import Metric
from windtunnel.program.head import Head
from windtunnel.progress import show_progress
from windtunnel.trainers.data.encoded_rows import EncodedRows
from windtunnel.trainers.data.encoding import encode_item
from windtunnel.trainers.data.labelled_rows import Targets
from windtunnel.trainers.data.loader import loader
from windtunnel.trainers.data.loader_adapter import LoaderAdapter
from windtunnel.trainers.loop.data_module import DataModule, Loaders
from windtunnel.trainers.loop.evaluation import Evaluator
from windtunnel.trainers.recipe import Recipe


@pytest.fixture
def net() -> SmallNet:
    return SmallNet(TASKS["binary"])


def _joined(items: Any) -> tuple[torch.Tensor, ...]:
    parts = [(*item[0], *item[1:]) for item in items]
    return tuple(torch.cat(column) for column in zip(*parts, strict=True))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shuffle", [False, True])
def test_batches_hold_every_row_once(net: SmallNet, shuffle: bool, weighted: bool) -> None:
    X, y = rows(50)
    weight = np.arange(50.0) if weighted else None
    batches = loader(net, X, y, weight, batch_size=16, shuffle=shuffle)
    items = list(batches)
    assert [len(item[1]) for item in items] == [16, 16, 16, 2] and len(batches) == 4
    got = _joined(items)
    order = np.argsort(got[0][:, 0].numpy()) if shuffle else np.arange(50)
    wanted = np.argsort(X["x"].to_numpy(dtype=np.float32)) if shuffle else np.arange(50)
    np.testing.assert_array_equal(got[0][order], X[["x", "z"]].to_numpy(dtype=np.float32)[wanted])
    np.testing.assert_array_equal(got[1][order], X["c"].str[1:].astype(int).to_numpy()[wanted, None] + 2)
    np.testing.assert_array_equal(got[2][order], (y == "yes")[wanted])
    if weight is not None:
        np.testing.assert_array_equal(got[3][order], weight[wanted])


def test_unshuffled_batches_are_views(net: SmallNet) -> None:
    batches = loader(net, *rows(50), batch_size=16, shuffle=False)
    first = next(iter(batches))
    assert first[0].numbers.data_ptr() == batches.rows.numbers.data_ptr()


def test_each_epoch_has_its_own_order(net: SmallNet) -> None:
    X, y = rows(50)
    batches = loader(net, X, y, batch_size=16, seed=3)
    zero, one = _joined(batches)[0], _joined(batches)[0]
    assert not torch.equal(zero, one)
    again = loader(net, X, y, batch_size=16, seed=3)
    again.set_epoch(1)
    assert torch.equal(_joined(again)[0], one)
    other = loader(net, X, y, batch_size=16, seed=4)
    assert not torch.equal(_joined(other)[0], zero)


def test_the_sampler_inside_of_a_batch_sampler_is_told_the_epoch(net: SmallNet) -> None:
    sampler = DistributedSampler([*range(6)], num_replicas=1, rank=0)
    batches = DataLoader(TensorDataset(torch.arange(6)), batch_sampler=BatchSampler(sampler, 2, drop_last=False))
    LoaderAdapter(net, batches, training=True).set_epoch(3)
    assert sampler.epoch == 3


def test_shuffling_leaves_the_global_generator_alone(net: SmallNet) -> None:
    before = torch.get_rng_state()
    list(loader(net, *rows(50)))
    assert torch.equal(torch.get_rng_state(), before)


def test_drop_last(net: SmallNet) -> None:
    batches = loader(net, *rows(50), batch_size=16, drop_last=True)
    assert len(batches) == len(list(batches)) == 3


@pytest.mark.parametrize("count", [1, 3, 50])
def test_processes_share_the_rows(net: SmallNet, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = loader(net, *rows(count), np.arange(count) + 1.0, batch_size=8)
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 4)
    shares = []
    for rank in range(4):
        monkeypatch.setattr(torch.distributed, "get_rank", lambda rank=rank: rank)
        batches.set_epoch(0)
        shares.append(_joined(batches)[3].tolist())
        assert len(batches) == -(-len(shares[0]) // 8)
    assert {len(share) for share in shares} == {-(-count // 4)}
    assert {row for share in shares for row in share} == set(np.arange(count) + 1.0)


@pytest.mark.parametrize("free", [0, 2**40])
def test_rows_that_fill_a_gpu_come_from_pinned_memory(
    net: SmallNet, free: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = torch.randn(10, 3), torch.arange(10).float()
    train = EncodedRows(Batch(x, torch.zeros(10, 0, dtype=torch.int64)), y, batch_size=4, seed=3)
    expected, data, pinned, moved = list(train), Loaders(train, train.in_order()), [], []
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free, free))
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda given: pinned.append(given.shape) or given)
    monkeypatch.setattr(Loaders, "to", lambda self, device: moved.append(device))
    data.place(torch.device("cuda"))
    assert bool(moved) == bool(free)
    train.set_epoch(0)
    for batch, same in zip(data.train_dataloader(), expected, strict=True):
        torch.testing.assert_close(batch, same)
    assert len(pinned) == (0 if free else 3 * 3)  # numbers, ids and targets of three batches


def test_without_targets_the_rows_come_alone(net: SmallNet) -> None:
    assert all(isinstance(batch, Batch) for batch in loader(net, rows(50)[0]))


class _Rows(Dataset[tuple[Any, Any]]):
    def __init__(self, X: pd.DataFrame, y: Any) -> None:
        self.X, self.y = X, y

    def __len__(self) -> int:
        return len(self.X)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return self.X.iloc[index].to_dict(), self.y[index]


def _generator(X: pd.DataFrame, y: Any) -> Iterator[Any]:
    for start in range(0, len(X), 16):
        yield X[start : start + 16], y[start : start + 16]


def _frames(X: pd.DataFrame, y: Any) -> list[Any]:
    return list(_generator(X, y))


LOADERS: dict[str, Callable[[SmallNet, pd.DataFrame, Any], Any]] = {
    "frames": lambda net, X, y: _frames(X, y),
    "lists": lambda net, X, y: [[X, y.tolist()]],
    "series": lambda net, X, y: [(X, pd.Series(y, index=X.index[::-1]))],
    "generator": lambda net, X, y: _generator(X, y),
    "dicts": lambda net, X, y: [({name: X[name].to_numpy() for name in X}, y)],
    "data loader of dicts": lambda net, X, y: DataLoader(_Rows(X, y), batch_size=16),
    "batches in a list": lambda net, X, y: list(loader(net, X, y, batch_size=16, shuffle=False)),
}


@pytest.mark.parametrize("kind", LOADERS)
def test_all_kinds_of_loaders(net: SmallNet, kind: str) -> None:
    X, y = rows(50)
    encoded = LoaderAdapter(net, LOADERS[kind](net, X, y), training=True)
    wanted = _joined(loader(net, X, y, shuffle=False))
    for _ in range(2):  # epochs
        for got, want in zip(_joined(encoded), wanted, strict=True):
            torch.testing.assert_close(got, want)


def test_tensors_are_rows_too() -> None:
    class Plain(SmallNet):
        def encode(self, rows: Any, *, training: bool = False) -> Batch:
            assert isinstance(rows, np.ndarray)
            return Batch(torch.from_numpy(rows), torch.zeros(len(rows), 1, dtype=torch.int64))

    data = TensorDataset(torch.randn(20, 2), torch.randn(20))
    items = list(LoaderAdapter(Plain(TASKS["regression"]), DataLoader(data, batch_size=8), training=True))
    assert [len(item[1]) for item in items] == [8, 8, 4]


def test_weights_come_through(net: SmallNet) -> None:
    X, y = rows(10)
    item = encode_item(net, (X, y, pd.Series(np.arange(10))))
    assert len(item) == 3 and torch.equal(item[2], torch.arange(10.0))


def test_training_is_passed_on_to_encode(net: SmallNet) -> None:
    seen = []

    class Watching(SmallNet):
        def encode(self, rows: Any, *, training: bool = False) -> Batch:
            seen.append(training)
            return super().encode(rows)

    watching = Watching(TASKS["binary"])
    DataModule(watching, rows(50), rows(20))
    list(LoaderAdapter(watching, [rows(50)]))
    assert seen == [True, False, False]


@pytest.mark.parametrize("task", TASKS)
def test_rows_of_weight_0_are_not_held_out(task: str) -> None:
    net, (X, y) = SmallNet(TASKS[task]), rows(200, task)
    weight = np.where(np.arange(200) < 20, 1.0, 0.0)
    split = loader(net, X, y, weight).hold_out(0.1, seed=0)
    assert split is not None
    train, held_out = split
    assert held_out.weight is not None and held_out.weight.tolist() == [1.0] * held_out.size
    assert 2 <= held_out.size <= 4 and train.size == 200 - held_out.size
    assert loader(net, X[:2], y[:2], weight[:2]).hold_out(0.1, seed=0) is None or task == "regression"


@pytest.mark.parametrize("task", TASKS)
def test_hold_out(task: str) -> None:
    batches = loader(SmallNet(TASKS[task]), *rows(200, task), np.arange(1.0, 201.0))
    split = batches.hold_out(0.1, seed=0)
    assert split is not None
    train, valid = split
    assert train.shuffle and not valid.shuffle
    assert train.size + valid.size == 200
    assert torch.equal(torch.cat([train.weight, valid.weight]).sort()[0], torch.arange(1.0, 201.0))
    if task != "regression":
        assert batches.target is not None and valid.target is not None
        for label in batches.target.unique():
            assert int((valid.target == label).sum()) == round(0.1 * int((batches.target == label).sum()))
    again = batches.hold_out(0.1, seed=0)
    assert again is not None and torch.equal(again[1].weight, valid.weight)


@pytest.mark.parametrize("counts", [(1, 1), (5, 1), (1, 0)])
def test_too_few_rows_to_hold_any_out(net: SmallNet, counts: tuple[int, int]) -> None:
    X, _ = rows(sum(counts))
    assert loader(net, X, np.repeat(["no", "yes"], counts)).hold_out(0.1, seed=0) is None


def test_two_rows_of_each_class_are_enough(net: SmallNet) -> None:
    split = loader(net, rows(4)[0], ["no", "yes", "no", "yes"]).hold_out(0.1, seed=0)
    assert split is not None and split[0].target.unique().tolist() == split[1].target.unique().tolist() == [0, 1]


def test_which_rows_are_validated_on(net: SmallNet) -> None:
    X, y = rows(100)

    def validated(train: Any, valid: Any = None) -> tuple[str, int, int]:
        data = DataModule(net, train, valid, Recipe(validation_fraction=0.2))
        sizes = [part.size if isinstance(part, EncodedRows) else -1 for part in (data.train, data.valid)]
        return data.validated_on, *sizes

    assert validated((X, y), (X[:30], y[:30])) == ("validation rows", 100, 30)
    assert validated((X, y)) == ("held-out rows", 80, 20)
    assert validated(loader(net, X, y)) == ("held-out rows", 80, 20)
    assert validated(_frames(X, y)) == ("held-out rows", 80, 20)
    assert validated(_frames(X, y), _frames(X[:30], y[:30])) == ("validation rows", 100, 30)
    with pytest.warns(
        UserWarning, match="^fit cannot hold training rows out: 2 rows .* are too few. It validates on training rows"
    ) as told:
        assert validated((X[:2], ["no", "yes"])) == ("training rows", 2, 2)
    assert told[0].filename == __file__


def test_batches_are_those_of_a_recipe_unless_the_caller_made_them(net: SmallNet) -> None:
    X, y = rows(40_000)
    joint, residual = Recipe.named("joint"), Recipe()
    data = DataModule(net, (X, y), None, joint)  # a tenth of the rows is held out
    assert (data.train.batch_size, data.batched(residual).train.batch_size) == (36_000 // 256, 1024)
    assert data.batched(residual).batched(joint).train.batch_size == data.train.batch_size
    assert DataModule(net, (X, y), None, Recipe(batch_size=50)).train.batch_size == 50
    own = DataModule(net, loader(net, X, y, batch_size=70), None, joint)
    assert own.train.batch_size == own.batched(residual).train.batch_size == 70


class _Frames(Dataset[int]):
    """Row numbers, of which ``collate`` makes frames with targets."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> int:
        return index


def _frame_loader(X: pd.DataFrame, y: Any, **options: Any) -> DataLoader[Any]:
    weight = np.arange(1.0, len(X) + 1)
    return DataLoader(_Frames(len(X)), 16, collate_fn=lambda index: (X.iloc[index], y[index], weight[index]), **options)


def test_a_loader_in_memory_is_its_rows(net: SmallNet) -> None:
    X, y = rows(200)
    weight = np.arange(1.0, 201)
    recipe = Recipe(batch_size=32, seed=3)
    for train, valid in (_frame_loader(X, y), None), (_frame_loader(X, y), _frame_loader(X[:30], y[:30])):
        read = DataModule(net, train, valid, recipe)
        given = DataModule(net, (X, y, weight), None if valid is None else (X[:30], y[:30], weight[:30]), recipe)
        for ours, theirs in (read.train, given.train), (read.valid, given.valid):
            assert ours.order == theirs.order
            for got, want in zip(_joined(ours), _joined(theirs), strict=True):
                assert torch.equal(got, want)


def test_a_shuffled_loader_is_read_in_the_order_of_the_seed(net: SmallNet) -> None:
    X, y = rows(200)
    before = torch.get_rng_state()
    first, again, other = (
        DataModule(net, _frame_loader(X, y, shuffle=True), None, Recipe(seed=seed)).train for seed in (0, 0, 1)
    )
    assert torch.equal(torch.get_rng_state(), before)
    assert first.order == again.order and torch.equal(first.rows.numbers, again.rows.numbers)
    assert not torch.equal(first.rows.numbers, other.rows.numbers)
    assert torch.equal(first.weight.sort()[0], again.weight.sort()[0])


class _Counted:
    """Batches that count how often they are read."""

    def __init__(self, batches: list[Any], *, sized: bool) -> None:
        self.batches, self.sized, self.read = batches, sized, 0

    def __len__(self) -> int:
        if not self.sized:
            raise TypeError("the length is unknown")
        return len(self.batches)

    def __iter__(self) -> Iterator[Any]:
        for batch in self.batches:
            self.read += 1
            yield batch


@pytest.mark.parametrize(("sized", "read"), [(True, 1), (False, 4)])
def test_a_loader_beyond_the_memory_is_read_anew(net: SmallNet, sized: bool, read: int) -> None:
    X, y = rows(100)
    batches = _Counted(_frames(X, y), sized=sized)
    per_row = 2 * 4 + 8 + 8  # two numbers, an id, a target
    recipe = Recipe(loader_memory=(3 * 16 * per_row + 1) / 2**30)
    with pytest.raises(BadInput, match=r"anew in each epoch, as its rows take more than .* valid=; recipe='joint' t"):
        DataModule(net, batches, None, recipe)
    assert batches.read == read
    with pytest.warns(UserWarning, match=r"anew in each epoch, as its rows take more than .* valid=\.$"):
        data = DataModule(net, batches, None, replace(recipe, residual=False))
    assert isinstance(data.train, LoaderAdapter) and data.validated_on == "training rows" and batches.read == 2 * read
    DataModule(net, batches, rows(20), recipe)  # no warning
    assert DataModule(net, iter(_frames(X, y)), None, recipe).validated_on == "held-out rows"


STREAMED: dict[str, tuple[dict[str, Any], int, str]] = {
    "no memory": ({"loader_memory": 0}, 1, "loader_memory=0 rules out reading it into memory"),
    "custom loss": ({"loss": lambda scores, target, weight: scores.mean()}, 1, "which rows are in a batch"),
    "processes": ({}, 2, "it yields the rows of one of several processes"),
}


@pytest.mark.parametrize("kind", STREAMED)
def test_loaders_that_are_read_in_each_epoch(net: SmallNet, kind: str) -> None:
    options, processes, reason = STREAMED[kind]
    X, y = rows(100)
    with pytest.raises(BadInput, match=reason):
        DataModule(net, _frames(X, y), None, Recipe(**options), processes)
    with pytest.warns(UserWarning, match=reason):
        data = DataModule(net, _frames(X, y), None, Recipe(residual=False, **options), processes)
    assert isinstance(data.train, LoaderAdapter) and data.validated_on == "training rows"
    assert isinstance(DataModule(net, _frames(X, y), _frames(X, y), Recipe(**options), processes).train, LoaderAdapter)


def test_a_loader_in_memory_is_checked_as_its_rows_are(net: SmallNet) -> None:
    X, y = rows(20)
    with pytest.raises(BadInput, match="all 20 weights are 0"):
        DataModule(net, [(X[:10], y[:10], np.zeros(10)), (X[10:], y[10:], np.zeros(10))])


def test_a_stream_of_validation_rows_without_weight() -> None:
    metric, targets = Metric("loss", Head("regression")), Targets(torch.ones(4), torch.zeros(4))
    with pytest.raises(BadInput, match="the weights of the validation rows are all 0"):
        Evaluator(metric, LOSSES["squared"]).evaluate_scores(torch.ones(4, 1), targets)


X, y = rows(10)
BAD_ROWS: dict[str, tuple[Any, str]] = {
    "short targets": ((X, y[:9]), r"y has 9 values for 10 rows; give one per row"),
    "long targets": ((X[:9], y), "y has 10 values for 9 rows"),
    "one target": ((X, 1), "y=1 is one value; give one per row, 10 in all"),
    "unknown label": ((X, ["maybe", *y[1:]]), "maybe"),
    "missing label": ((X, [None, *y[1:]]), "1 of 10 targets are missing"),
    "no rows": ((X[:0], y[:0]), "train has no rows"),
    "short weights": ((X, y, np.ones(9)), "weight has 9 values for 10 rows"),
    "negative weights": ((X, y, -np.ones(10)), "10 of 10 weights are negative, NaN or infinite"),
    "missing weights": ((X, y, [np.nan, *np.ones(9)]), "1 of 10 weights are negative, NaN or infinite"),
    "weights of two columns": ((X, y, np.ones((10, 2))), r"weight has the shape \(10, 2\)"),
    "words as weights": ((X, y, ["much"] * 10), "weight is not made of numbers"),
    "no weight at all": ((X, y, np.zeros(10)), "all 10 weights are 0"),
    "one class": ((X, ["no"] * 10), "every training target is 'no'; .* at least two of its classes 'no', 'yes'"),
    "rows alone": (X, "train is a DataFrame; give"),
    "rows without targets": ((X, None), "train is a tuple with None in the place of targets"),
    "rows in a tuple": ((X,), "train is a tuple of 1"),
    "a path": ("rows.csv", "train is a str"),
    "a number": (3, "train is a int"),
    "empty loader": ([], "the loader yielded nothing"),
}


@pytest.mark.parametrize("kind", BAD_ROWS)
def test_bad_rows(net: SmallNet, kind: str) -> None:
    data, message = BAD_ROWS[kind]
    with pytest.raises(BadInput, match=message):
        DataModule(net, data)


def test_nan_among_values() -> None:
    with pytest.raises(BadInput, match="1 of 10 targets are NaN"):
        DataModule(SmallNet(TASKS["regression"]), (X, [np.nan, *range(9)]))


def test_a_loader_that_makes_no_batch(net: SmallNet) -> None:
    with pytest.raises(BadInput, match="10 rows make no full batch of 4096"):
        DataModule(net, loader(net, X, y, drop_last=True))
    with pytest.raises(BadInput, match="train is a loader without targets"):
        DataModule(net, loader(net, X))
    with pytest.raises(BadInput, match="got a DataLoader over windtunnel.loader"):
        DataModule(net, DataLoader(loader(net, X, y)))


class _Short:
    def __len__(self) -> int:
        return 3

    def __iter__(self) -> Iterator[Any]:
        yield X, y


BAD_LOADERS: dict[str, tuple[Any, str]] = {
    "nothing": (iter([]), "the loader yielded nothing"),
    "rows alone": ([X], "the loader yielded a DataFrame; fit takes an iterable of"),
    "four things": ([(X, y, y, y)], "the loader yielded a tuple of 4"),
    "no targets": ([(X, None)], "the loader yielded a tuple with None in the place of targets"),
    "empty batch": ([(X, y), (X[:0], y[:0])], "a batch without rows"),
    "short targets": ([(X, y[:9])], "y has 9 values for 10 rows"),
    "one class": ([(X, ["no"] * 10), (X, ["no"] * 10)], "every training target is 'no'"),
    "weights now and then": ([(X, y, np.ones(10)), (X, y)], "batch 2 of the loader has no weights and those before it"),
    "weights too late": ([(X, y), (X, y, np.ones(10))], "batch 2 of the loader has weights and those before it none"),
    "shorter than it says": (_Short(), r"yielded 1 batches and its len\(\) is 3"),
}


@pytest.mark.parametrize("kind", BAD_LOADERS)
def test_bad_loaders(net: SmallNet, kind: str) -> None:
    items, message = BAD_LOADERS[kind]
    with pytest.raises(BadInput, match=message):
        list(LoaderAdapter(net, items, training=True))


@pytest.mark.parametrize("target", [torch.tensor([0, 2]), torch.tensor([-1, 0]), torch.tensor([0.0, 1.0])])
def test_bad_targets_with_encoded_rows(net: SmallNet, target: torch.Tensor) -> None:
    with pytest.raises(BadInput, match=r"give class indices int64 \[B\] from 0 to 1"):
        encode_item(net, (net.encode(X[:2]), target))


def test_validation_rows_and_single_batches_may_hold_one_class(net: SmallNet) -> None:
    list(LoaderAdapter(net, [(X, ["no"] * 10)]))
    list(LoaderAdapter(net, [(X, ["no"] * 10), (X, ["yes"] * 10)], training=True))


def test_the_order_identifies_targets_and_weights() -> None:
    rows, target = Batch(torch.zeros(4, 1), torch.zeros(4, 0, dtype=torch.int64)), torch.tensor([0.0, 1.0, 1.0, 0.0])
    orders = [
        EncodedRows(rows, *rest).order for rest in ([target], [target.clone()], [1 - target], [target, target + 1])
    ]
    assert orders[0] == orders[1]
    assert orders[0] != orders[2] and orders[0] != orders[3]


def test_validation_rows_that_are_the_training_rows(net: SmallNet, caplog: pytest.LogCaptureFixture) -> None:
    X, y = rows(50)
    X.loc[0, "x"] = np.nan
    others, of_others = rows(50, seed=1)
    with caplog.at_level("INFO", "windtunnel"), show_progress(True):
        assert DataModule(net, (X, y), (others, of_others)).shared_fraction == 0.0
        assert not caplog.messages
        for shared in ((X[::-1], y[::-1]), (X[:20], y[:20])):
            assert DataModule(net, (X, y), shared).shared_fraction == 1.0
        mixed = pd.concat([X[:25], others[:25]]), np.concatenate([y[:25], of_others[:25]])
        assert DataModule(net, (X, y), mixed).shared_fraction == 0.5
    told = [message.split(" are training rows too")[0] for message in caplog.messages]
    assert told == [f"fit: {percent}% of the validation rows" for percent in (100, 100, 50)]


def test_rows_that_are_equal_by_chance_are_not_shared(net: SmallNet) -> None:
    X, y = rows(400)
    X = X.assign(x=X["x"].round(0), z=0.0)
    of_few_values = DataModule(net, (X[:300], y[:300]), (X[300:], y[300:])).shared_fraction
    assert of_few_values == 0.0
    assert DataModule(net, (X[:300], y[:300]), (X[:300], y[:300])).shared_fraction == 1.0
    weight = np.arange(400) < 300
    by_weight = DataModule(net, (X, y, weight), (X, y, ~weight)).shared_fraction
    assert by_weight == 0.0
