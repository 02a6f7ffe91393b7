"""Files are replaced as a whole: on a full disk, after a kill, and with several writers at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from windtunnel.atomic_write import replacing, write_atomically

KILLED = """
import os, signal, sys
from windtunnel.atomic_write import replacing
with replacing(sys.argv[1]) as temporary:
    temporary.write_bytes(b"half a fi")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_process_left_is_removed_by_the_next_save(tmp_path: Path) -> None:
    path = tmp_path / "model"
    write_atomically(path, b"old")
    killed = subprocess.run([sys.executable, "-c", KILLED, str(path)])
    assert killed.returncode == -signal.SIGKILL
    assert len(os.listdir(tmp_path)) == 2 and path.read_bytes() == b"old"
    write_atomically(tmp_path / "another", b"new")
    assert sorted(os.listdir(tmp_path)) == ["another", "model"]


def test_files_that_others_write_now_stay(tmp_path: Path) -> None:
    with replacing(tmp_path / "model.csv.gz") as first, replacing(tmp_path / "model.csv.gz") as second:
        first.write_bytes(b"first")
        second.write_bytes(b"second")
        assert first.name.endswith(".csv.gz")  # the suffix decides how pandas writes
        write_atomically(tmp_path / "model", b"third")
    assert sorted(os.listdir(tmp_path)) == ["model", "model.csv.gz"]
    assert (tmp_path / "model.csv.gz").read_bytes() == b"first"


def test_an_error_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "model"
    write_atomically(path, b"old")
    with pytest.raises(KeyError), replacing(path) as temporary:
        temporary.write_bytes(b"new")
        raise KeyError
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["model"]
