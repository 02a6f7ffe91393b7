"""The labels of classes in an artefact."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from export_cases import translated

import windtunnel


@pytest.mark.parametrize(
    "labels",
    [
        np.array(["no", "yes"], dtype="<U7"),
        np.array(["no", "yes"], dtype=object),
        np.array([-1, 3], dtype=np.int16),
        np.array([1, 3], dtype=">u4"),
        np.array([False, True]),
        np.array([0.1, 2.5], dtype=np.float32),
        np.array([0.5, 2**60 + 0.0]),
        np.array([1, "two"], dtype=object),
    ],
    ids=lambda labels: str(labels.dtype),
)
def test_labels_keep_their_type(labels: Any, tmp_path: Path) -> None:
    net = translated("logistic")
    net.head = dataclasses.replace(net.head, classes=labels)
    net.save(tmp_path / "net")
    loaded = windtunnel.load(tmp_path / "net").classes_
    assert loaded.dtype == labels.dtype
    assert loaded.tolist() == labels.tolist()


def test_labels_of_a_very_wide_type_are_saved_as_wide_as_they_are(tmp_path: Path) -> None:
    net = translated("logistic")
    net.head = dataclasses.replace(net.head, classes=np.array(["no", "yes"], dtype="<U5000"))
    net.save(tmp_path / "net")
    loaded = windtunnel.load(tmp_path / "net").classes_
    assert loaded.dtype == "<U3" and loaded.tolist() == ["no", "yes"]
