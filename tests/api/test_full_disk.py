"""A full disk is an ``OSError`` that names the user's file, whatever writes it; nothing stays but the old files."""

from __future__ import annotations

import errno
import os
import re
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from export_cases import frame, logistic, target, translated

from windtunnel.experiment.batch_scoring import predict_files
from windtunnel.experiment.files import write_table_file
from windtunnel.serving.cascade.file import CascadeFacts, save


@contextmanager
def disk_of(size: int) -> Iterator[None]:
    """No file grows beyond a number of bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def _fit(path: Path) -> None:
    y = target(frame()).to_numpy() > 0
    translated("ridge").fit((frame(), y * 1.0), epochs=1, residual=False, progress=False, checkpoint_dir=path.parent)


WRITERS: dict[str, Callable[[Path], Any]] = {
    "net.pt2": lambda path: logistic().export(path, format="exported"),
    **dict.fromkeys(("net.ts", "net.c"), lambda path: logistic().export(path)),
    "net.windtunnel": lambda path: logistic().save(path),
    "cascade.windtunnel": lambda path: save(path, logistic(), logistic(), CascadeFacts((), (), 0.0, None)),
    "rows.csv": lambda path: write_table_file(frame(), path),
    "scores/rows.parquet": lambda path: predict_files(
        path.parents[1] / "model", [path.parents[1] / "rows.parquet"], path.parent
    ),
    "last.ckpt": _fit,
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_full_disk_is_an_error_that_names_the_file(name: str, tmp_path: Path) -> None:
    rows = tmp_path / "rows.parquet"
    frame().to_parquet(rows)
    logistic().save(tmp_path / "model")
    with disk_of(500), pytest.raises(OSError, match=re.escape(str(tmp_path / name))) as error:
        WRITERS[name](tmp_path / name)
    assert error.value.errno == errno.EFBIG
    assert "resume_from" not in str(getattr(error.value, "__notes__", ""))  # there is no checkpoint
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == {rows, tmp_path / "model"}
    assert os.listdir(tmp_path / "scores") == [] if name.startswith("scores") else True
