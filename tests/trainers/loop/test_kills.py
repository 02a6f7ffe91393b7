"""Two processes are killed at random moments of joint training, streamed training and sweeps, and continue."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("kind", ["joint", "streamed", "sweep"])
def test_killed_processes_end_as_if_nobody_had_killed_them(kind: str, tmp_path: Path) -> None:
    """As many kills as the environment variable says; the job asserts, and prints a line for each kill."""
    support = Path(__file__).parents[2] / "support"
    path = os.pathsep.join(map(str, (support, support / "jobs", support.parents[1])))
    command = [sys.executable, str(support / "jobs" / "killed_job.py"), kind, str(tmp_path)]
    command.append(os.environ.get("WINDTUNNEL_KILLS", "3"))
    ran = subprocess.run(command, env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}, text=True)
    assert ran.returncode == 0
