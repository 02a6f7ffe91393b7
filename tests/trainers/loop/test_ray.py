"""Ray Train: two workers, of which one is killed; the run goes on from the last checkpoint."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

import windtunnel

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("ray") is None, reason="needs pip install 'windtunnel[ray]'"),
]


def test_a_killed_worker_goes_on_from_the_last_checkpoint(tmp_path: Path) -> None:
    here = Path(__file__).parents[2] / "support"
    environment = {**os.environ, "PYTHONPATH": f"{here}{os.pathsep}{here.parents[1]}", "OMP_WAIT_POLICY": "passive"}
    command = [sys.executable, str(here / "jobs" / "ray_job.py"), str(tmp_path)]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "killed").exists()
    assert [(tmp_path / f"starts-{rank}").read_text().split() for rank in (0, 1)] == [["fresh", "resumed"]] * 2
    nets = [windtunnel.load(tmp_path / f"net-{rank}") for rank in (0, 1)]
    first, second = (net.program.state_dict() for net in nets)
    assert all(torch.equal(value, second[name]) for name, value in first.items())
    assert [one.epoch for one in nets[0].history.epochs] == [0, 1, 2, 3, 4]
    first, second = (net.history for net in nets)
    # The worker was killed in the third epoch: what is kept was learned by those that came after it.
    assert first.best_epoch == second.best_epoch == 4
    assert first.best == second.best > first.start == second.start
