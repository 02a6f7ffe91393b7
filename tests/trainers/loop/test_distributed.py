"""Two processes that train together end with what one process makes of their batches put together."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from distributed_job import KINDS, OPTIONS, small_fit
from sklearn.impute import SimpleImputer
from small_net import TASKS, SmallNet
from stream_rows import ROWS, click_net, numbers_of, table, valid_rows, write

import windtunnel
from windtunnel.encode import Batch
from windtunnel.errors import BadInput
from windtunnel.objectives.metrics import Metric
from windtunnel.trainers.processes import check_equal_weights, sum_processes

Done = tuple[Path, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Done:
    """The folder of a run of tests/support/jobs/distributed_job.py under torchrun, and what each process left there."""
    folder, here = tmp_path_factory.mktemp("together"), Path(__file__).parents[2] / "support"
    write(folder, table())
    environment = {**os.environ, "PYTHONPATH": f"{here}{os.pathsep}{here.parents[1]}", "OMP_WAIT_POLICY": "passive"}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    job = [str(here / "jobs" / "distributed_job.py"), str(folder)]
    ran = subprocess.run([*command, *job], env=environment, capture_output=True, text=True, timeout=240)
    assert ran.returncode == 0, ran.stderr
    return folder, [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in (0, 1)]


def close(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> None:
    assert first.keys() == second.keys()
    for name, value in first.items():
        torch.testing.assert_close(
            value, second[name], rtol=1e-4, atol=1e-6, msg=lambda text, name=name: f"{name}: {text}"
        )


def same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> None:
    assert first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("kind", KINDS)
def test_weights_are_those_of_one_process_with_the_whole_batch(kind: str, done: Done) -> None:
    net, _ = small_fit(kind, 64)
    first, second = (one[kind][0] for one in done[1])
    assert [one["world"] for one in done[1]] == [2, 2]
    same(first, second)
    close(first, net.state_dict())
    start = SmallNet(TASKS["binary"]).state_dict()
    assert not torch.allclose(first["first.weight"], start["first.weight"], atol=1e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_losses_and_metrics_are_of_all_rows(kind: str, done: Done) -> None:
    _, history = small_fit(kind, 64)
    first, second = (one[kind][1] for one in done[1])
    assert first == second
    for (train, valid, metric), one in zip(first, history.epochs, strict=True):
        assert (valid, metric) == pytest.approx((one.val_loss, one.metric), rel=1e-5)
        assert train == one.train_loss or train == pytest.approx(one.train_loss, rel=1e-5)


def test_streamed_rows_are_shared_out(done: Done) -> None:
    batches = [one["stream"][1] for one in done[1]]
    steps = [len(item[2]) for item in batches[0]]
    assert steps == [len(item[2]) for item in batches[1]] == [32, 32, 32, 32, 32, 15] * 2
    for epoch in (slice(0, 6), slice(6, 12)):
        rows = [number for own in batches for number in numbers_of([(item, item[2]) for item in own[epoch]])]
        assert sorted(rows) == list(range(ROWS))


def test_streamed_rows_teach_what_they_teach_one_process(done: Done) -> None:
    net, both = click_net(), zip(*(one["stream"][1] for one in done[1]), strict=True)
    whole = [[torch.cat(blocks) for blocks in zip(*pair, strict=True)] for pair in both]
    epochs = Epochs([(Batch(numbers, ids), target) for numbers, ids, target in whole], 6)
    net.fit(epochs, valid_rows(), recipe="joint", **OPTIONS, epochs=2)
    first, second = (one["stream"][0] for one in done[1])
    same(first, second)
    close(first, net.state_dict())


class Epochs:
    """Other batches in each epoch."""

    def __init__(self, items: list[Any], steps: int) -> None:
        self.items, self.steps, self.epoch = items, steps, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return self.steps

    def __iter__(self) -> Any:
        return iter(self.items[self.epoch * self.steps : (self.epoch + 1) * self.steps])


def test_the_first_process_writes_the_checkpoints(done: Done) -> None:
    folder, _ = done
    assert [path.name for path in (folder / "checkpoints-0").iterdir()] == ["last.ckpt"]
    assert not (folder / "checkpoints-1").exists()


def test_a_run_resumed_within_an_epoch_ends_with_the_same_bits(done: Done) -> None:
    for one in done[1]:
        same(one["resumed"][0], one["stream"][0])
        # The copy was taken in step 9, the third of the second epoch, with the checkpoint of step 8 in place.
        rest = one["stream"][1][8:]
        assert len(one["resumed"][1]) == len(rest)
        assert all(map(torch.equal, sum(map(list, one["resumed"][1]), []), sum(map(list, rest), [])))


def test_all_processes_train_the_same_residual_model(done: Done) -> None:
    first, second = (one["residual"] for one in done[1])
    same(first[0], second[0])
    assert any("factors" in name for name in first[0]) and torch.equal(first[1], second[1])


def test_different_nets_are_rejected(done: Done) -> None:
    for one in done[1]:
        assert "the translations of processes 1 differ from that of process 0" in one["rejected"]


def test_unequal_steps_are_rejected_and_not_waited_for(done: Done) -> None:
    first, second = (one["uneven"] for one in done[1])
    assert first["list"] == second["list"]
    assert first["list"].startswith("the training loaders of the processes have 5, 4 batches; each step takes one")
    assert first["generator"].startswith("after 4 batches this process has more, and 1 of 2 processes have; each step")
    assert second["generator"].startswith("this process has no further batch, and 1 of 2 processes have; each step")
    assert first["few"] == second["few"]
    assert first["few"].startswith("the 50 rows of a process, of 100 in all, make no full batch of 64 with drop_last")


def test_metrics_that_no_process_could_tell_by_itself(done: Done) -> None:
    assert [one["metrics"] for one in done[1]] == [(1, 1)] * 2


def test_buffers_that_are_empty_are_compared_too(monkeypatch: pytest.MonkeyPatch) -> None:
    net = windtunnel.compile(SimpleImputer().fit([[1.0, float("nan")], [2.0, 3.0]]))
    assert any(value.numel() == 0 for value in net.state_dict().values())
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    for other in (None, "another"):

        def gather(theirs: list[str], own: str, other: str | None = other) -> None:
            theirs[:] = [own, other or own]

        monkeypatch.setattr(torch.distributed, "all_gather_object", gather)
        with pytest.raises(BadInput, match="processes 1 differ") if other else nullcontext():
            check_equal_weights(net)


def test_one_process_has_nothing_to_agree_on() -> None:
    metric = Metric(None, TASKS["binary"])
    metric.update(torch.tensor([[0.1], [0.2]]), torch.tensor([0, 1]))
    assert metric.compute() == 1
    assert sum_processes(1.5, 2) == (1.5, 2)
