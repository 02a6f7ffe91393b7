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


def test_a_link_leads_to_the_new_file(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    stored, link = tmp_path / "store" / "v1", tmp_path / "current.csv"
    write_atomically(stored, b"old")
    link.symlink_to(stored)
    with replacing(link) as temporary:
        assert temporary.parent == stored.parent and temporary.suffix == ".csv"
        temporary.write_bytes(b"new")
    assert link.is_symlink() and stored.read_bytes() == b"new" and os.listdir(tmp_path / "store") == ["v1"]


def test_the_new_file_has_the_permissions_of_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "model"
    write_atomically(path, b"old")
    path.chmod(0o600)
    write_atomically(path, b"new")
    assert path.stat().st_mode & 0o777 == 0o600 and path.read_bytes() == b"new"


def test_pipes_devices_and_folders_stay(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileExistsError, match="is a pipe or a device"):
        write_atomically(tmp_path / "pipe", b"new")
    for folder in (tmp_path, ""):
        with pytest.raises(IsADirectoryError, match=f"'{folder}'"):
            write_atomically(folder, b"new")
    assert os.listdir(tmp_path) == ["pipe"] and not (tmp_path / "pipe").is_file()


def test_a_path_that_cannot_be_written_is_named_as_it_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match="^'sub/model' cannot be written: there is no folder 'sub'"):
        write_atomically("sub/model", b"new")
    os.symlink("loop", "loop")
    write_atomically("loop", b"new")
    assert Path("loop").read_bytes() == b"new"


def test_a_new_file_is_not_readable_by_others_before_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "model"
    write_atomically(path, b"old")
    path.chmod(0o4400)
    with replacing(path) as temporary:
        assert temporary.stat().st_mode & 0o7777 == 0o600
        temporary.write_bytes(b"new")
    assert path.stat().st_mode & 0o7777 == 0o400
