"""Large tables are trained by visited rows, with the results of the dense formulas."""

from __future__ import annotations

import gc
import shutil
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from torch import Tensor, nn

import windtunnel
from windtunnel.api.translation import Translation
from windtunnel.encode import Batch, CategoryColumn, RowEncoder, Vocabulary
from windtunnel.errors import BadInput
from windtunnel.modules.linear.linear import Linear
from windtunnel.modules.tables import large_tables
from windtunnel.modules.tables.category_table import CategoryTable
from windtunnel.program.head import Head
from windtunnel.program.program import IDS, Program, ProgramStep, Take
from windtunnel.program.records.origin import Origin
from windtunnel.trainers.data.encoded_rows import EncodedRows
from windtunnel.trainers.loop.best_checkpoint import CHECKPOINT
from windtunnel.trainers.optimizers.row_adam import RowAdam
from windtunnel.trainers.optimizers.visited_rows import VisitedRows

ROWS, WIDTH, VISITED = 500, 4, 60
TABLE = "steps.0.module.rows"
OPTIONS: dict[str, Any] = {
    "recipe": "joint",
    "epochs": 3,
    "learning_rate": 0.05,
    "table_rate": 1.0,
    "weight_decay": 0.0,
    "progress": False,
    "accelerator": "cpu",
    "metric": "rmse",
}


def steps(count: int, random: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
    """Ids and what their rows are multiplied by; few ids, so that rows come again, some of them twice in a batch."""
    for _ in range(count):
        yield torch.randint(0, 40, (12,), generator=random), torch.randn(12, WIDTH, generator=random)


def trained(optimizer: Any, table: nn.Parameter, *, sparse: bool) -> Iterator[Tensor]:
    """The table after each step."""
    for ids, factor in steps(30, torch.Generator().manual_seed(1)):
        optimizer.zero_grad()
        (nn.functional.embedding(ids, table, sparse=sparse) * factor).tanh().sum().backward()
        optimizer.step()
        yield table.detach().clone()


def table() -> nn.Parameter:
    return nn.Parameter(torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(0)))


def test_row_adam_equals_sparse_adam() -> None:
    ours, theirs = table(), table()
    visited = VisitedRows(ours, None)
    steps_of_ours = trained(RowAdam([{"params": [ours]}], [visited], lr=0.01), ours, sparse=True)
    steps_of_theirs = trained(torch.optim.SparseAdam([theirs], lr=0.01), theirs, sparse=True)
    for here, there in zip(steps_of_ours, steps_of_theirs, strict=True):
        torch.testing.assert_close(here, there, rtol=1e-5, atol=1e-7)
    assert not torch.allclose(ours[:40], table()[:40], atol=0.01) and torch.equal(ours[40:], table()[40:])
    assert visited.count == 40 and len(visited.first) <= 1.5 * visited.count


@pytest.mark.parametrize("decoupled", [False, True])
def test_decay_equals_that_of_adam_if_all_rows_are_visited(decoupled: bool) -> None:
    ours, theirs = table(), table()
    options = {"lr": 0.01, "weight_decay": 0.1, "eps": 1e-12}  # where SparseAdam adds eps matters no more
    row_adam = RowAdam([{"params": [ours]}], [VisitedRows(ours, None)], decoupled_weight_decay=decoupled, **options)
    adam = (torch.optim.AdamW if decoupled else torch.optim.Adam)([theirs], **options)
    for number in range(10):
        for one, optimizer, sparse in ((ours, row_adam, True), (theirs, adam, False)):
            optimizer.zero_grad()
            everything = nn.functional.embedding(torch.arange(ROWS), one, sparse=sparse)
            (everything * (number + 1.0)).cos().sum().backward()
            optimizer.step()
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    assert not torch.allclose(ours, table(), atol=0.01)


def test_other_parameters_get_updates_of_adam() -> None:
    ours, theirs = (nn.Linear(3, 2) for _ in range(2))
    theirs.load_state_dict(ours.state_dict())
    rows = table()
    groups = [{"params": [*ours.parameters(), rows], "lr": 0.1}]
    for net, optimizer in (
        (ours, RowAdam(groups, [VisitedRows(rows, None)])),
        (theirs, torch.optim.Adam(theirs.parameters(), lr=0.1)),
    ):
        for _ in range(3):
            optimizer.zero_grad()
            net(torch.ones(1, 3)).square().sum().backward()
            optimizer.step()
    assert all(torch.equal(one, other) for one, other in zip(ours.parameters(), theirs.parameters(), strict=True))


def test_steps_that_do_not_visit_a_row_update_its_average() -> None:
    decay, rows = 0.8, table()
    visited, average = VisitedRows(rows, decay), table().detach()
    for now in trained(RowAdam([{"params": [rows]}], [visited], lr=0.01), rows, sparse=True):
        average = decay * average + (1 - decay) * now
    visited.put_average()
    torch.testing.assert_close(rows.detach(), average, rtol=1e-5, atol=1e-6)
    visited.put_back()
    assert torch.equal(rows, now)


def test_the_best_rows_are_restored() -> None:
    rows = table()
    visited, best = VisitedRows(rows, None), table().detach()
    visited.keep()
    for number, now in enumerate(trained(RowAdam([{"params": [rows]}], [visited], lr=0.1), rows, sparse=True)):
        if number in (0, 3):  # rows that are visited later get their initial weights
            visited.restore()
            assert torch.equal(rows, best)
            rows.data.copy_(now)
            visited.keep()
            best = now
    visited.restore()
    assert torch.equal(rows, best)


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a small table count as large."""
    monkeypatch.setattr(large_tables, "LARGE_TABLE", ROWS * WIDTH)


def translation() -> Translation:
    """A table of categories and a linear regression."""
    random = torch.Generator().manual_seed(0)
    rows, weight = torch.randn(ROWS, WIDTH, generator=random), torch.randn(1, WIDTH, generator=random)
    program = Program(
        [
            ProgramStep(CategoryTable(rows), [Take(IDS, [0])], "encode"),
            ProgramStep(Linear(weight, torch.zeros(1)), [Take(2, list(range(WIDTH)))], "regress"),
        ]
    )
    encoder = RowEncoder(
        None, 1, categories=[CategoryColumn(0, Vocabulary(tuple(str(number) for number in range(ROWS - 2))))]
    )
    return Translation(
        program, encoder, Head("regression", "identity", "squared"), [Origin("encode", ""), Origin("regress", "")]
    )


def batches(seed: int) -> EncodedRows:
    """Rows with ids below ``VISITED`` and a target that follows from them."""
    ids = torch.randint(0, VISITED, (256, 1), generator=torch.Generator().manual_seed(seed))
    return EncodedRows(Batch(torch.zeros(256, 0), ids), (ids[:, 0] % 7).float(), batch_size=32)


def fitted(**options: Any) -> Translation:
    return translation().fit(batches(0), batches(1), **OPTIONS | options)


def weights(net: Translation) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in net.program.state_dict().items()}


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("ema", [None, 0.9])
@pytest.mark.parametrize("optimizer", ["adam", "adamw"])
def test_fit_visits_few_rows(optimizer: str, ema: float | None) -> None:
    counts: list[int] = []
    net = fitted(optimizer=optimizer, ema=ema, callbacks=[Copies(counts)], epochs=1)
    before = translation().program.state_dict()[TABLE]
    now = net.program.state_dict()[TABLE]
    assert net.history is not None and net.history.best < 0.95 * net.history.start
    assert (
        torch.equal(now[VISITED:], before[VISITED:])
        and not torch.isclose(now[:VISITED], before[:VISITED]).any(dim=1).all()
    )
    assert counts == [1]  # the table itself
    assert not net.program.steps[0].module.sparse
    rmse = (net(*batches(1).rows)[:, 0].detach() - batches(1).target).square().mean().sqrt()
    assert net.history.best == pytest.approx(float(rmse), rel=1e-5)


def copies() -> set[int]:
    """Where the tensors lie that have the shape of the table."""
    gc.collect()
    tensors = [one for one in gc.get_objects() if type(one) in (Tensor, nn.Parameter)]
    return {one.data_ptr() for one in tensors if one.shape == (ROWS, WIDTH) and not one.is_sparse}


class Copies(pl.Callback):
    """How many copies of the table the epoch leaves that did not exist before."""

    def __init__(self, counts: list[int]) -> None:
        gc.freeze()  # later searches leave out all that is there
        self.counts = counts

    def on_train_epoch_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        assert isinstance(trainer.optimizers[0], RowAdam)
        self.counts.append(len(copies()))
        gc.unfreeze()


@pytest.mark.usefixtures("large")
def test_fit_without_an_average_equals_sparse_adam() -> None:
    net = fitted(ema=None, schedule="constant", epochs=1, patience=None)
    other = translation()
    other.program.steps[0].module.sparse = True
    table, *rest = other.program.parameters()
    optimizers = [torch.optim.SparseAdam([table], lr=0.05), torch.optim.Adam(rest, lr=0.05)]
    for rows, target in batches(0):
        other.zero_grad()
        (other(*rows)[:, 0] - target).square().mean().backward()
        for optimizer in optimizers:
            optimizer.step()
    for name, value in weights(net).items():
        torch.testing.assert_close(value, other.program.state_dict()[name], rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("weight_decay", [0.0, 1e-2])
def test_a_resumed_run_ends_with_the_same_bits(weight_decay: float, tmp_path: Path) -> None:
    options = {"weight_decay": weight_decay, "checkpoint_dir": tmp_path, "checkpoint_every": 3}
    whole = fitted(**options, callbacks=[CopyOf(tmp_path / CHECKPOINT, tmp_path / "middle.ckpt", 11)])
    resumed = fitted(resume_from=tmp_path / "middle.ckpt", weight_decay=weight_decay)
    assert all(torch.equal(value, weights(resumed)[name]) for name, value in weights(whole).items())
    assert all(torch.equal(value, resumed.initial_weights[name]) for name, value in whole.initial_weights.items())


class CopyOf(pl.Callback):
    """Keeps the checkpoint as it was in the middle of an epoch."""

    def __init__(self, source: Path, to: Path, step: int) -> None:
        self.source, self.to, self.step = source, to, step

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        if trainer.global_step == self.step:
            shutil.copy(self.source, self.to)


@pytest.mark.usefixtures("large")
def test_a_checkpoint_of_visited_rows_needs_row_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fitted(checkpoint_dir=tmp_path)
    monkeypatch.setattr(large_tables, "LARGE_TABLE", ROWS * WIDTH + 1)
    with pytest.raises(
        BadInput, match=r"large tables \['program.steps.0.module.rows'\] trained by rows, and now .* \[\]"
    ):
        fitted(resume_from=tmp_path)


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("options", [{}, {"optimizer": "sgd", "learning_rate": 1e-3}, {"clip": 1.0}], ids=str)
def test_drift_is_measured_from_the_initial_weights(options: dict[str, Any], tmp_path: Path) -> None:
    before = translation().program.state_dict()
    net = fitted(**options)
    net.fit(batches(2), batches(3), **OPTIONS | options)
    assert list(net.initial_weights) == list(before) and len(net.initial_weights) == len(before)
    assert all(torch.equal(value, before[name]) for name, value in net.initial_weights.items())
    change = net.program.state_dict()[TABLE] - before[TABLE]
    drift = {row.step: row.drift for row in net.report().rows}["encode"]
    assert drift == pytest.approx(float(change.norm() / before[TABLE].norm()), rel=1e-5) and drift > 0
    assert all(torch.equal(value, before[name]) for name, value in deepcopy(net).initial_weights.items())


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("options", [{}, {"optimizer": "sgd", "learning_rate": 1e-3}], ids=str)
def test_a_loaded_translation_can_be_fitted_again(options: dict[str, Any], tmp_path: Path) -> None:
    before, path = translation().program.state_dict(), tmp_path / "net"
    fitted(**options).save(path)
    net = windtunnel.load(path)
    net.fit(batches(2), batches(3), **OPTIONS | options)
    assert all(torch.equal(value, before[name]) for name, value in net.initial_weights.items())


@pytest.mark.usefixtures("large")
def test_tables_without_sparse_gradients_train_densely() -> None:
    dense = fitted(clip=1e6, ema=None)
    assert not torch.equal(dense.program.state_dict()[TABLE], fitted(ema=None).program.state_dict()[TABLE])
