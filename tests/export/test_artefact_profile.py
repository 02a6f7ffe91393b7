"""Files whose profile of the training rows does not fit together are rejected."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

import windtunnel
from windtunnel.errors import BadFile
from windtunnel.export.artefact import container


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    X = np.random.default_rng(0).normal(size=(200, 3))
    path = tmp_path_factory.mktemp("profile") / "model.windtunnel"
    windtunnel.translate(LogisticRegression().fit(X, X[:, 0] > 0), calibrate=X).save(path)
    text, tensors = container.unpack(path, path.read_bytes())
    return json.loads(text), tensors


def change_size(graph: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
    graph["profile"]["columns"][0]["counts"] += 1


def drop_the_description(graph: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
    graph["profile"] = None


def make_counts_negative(graph: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
    tensors["profile.counts"] = -1 - tensors["profile.counts"]


def make_counts_fractions(graph: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
    tensors["profile.counts"] = tensors["profile.counts"].double()


def put_nan_among_edges(graph: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
    tensors["profile.edges"] = tensors["profile.edges"] * torch.nan


@pytest.mark.parametrize(
    "damage", [change_size, drop_the_description, make_counts_negative, make_counts_fractions, put_nan_among_edges]
)
def test_damaged_profiles_are_rejected(parts: Any, damage: Any, tmp_path: Path) -> None:
    graph, tensors = json.loads(json.dumps(parts[0])), dict(parts[1])
    damage(graph, tensors)
    (tmp_path / "damaged.windtunnel").write_bytes(container.pack(json.dumps(graph), tensors))
    with pytest.raises(BadFile, match="profile"):
        windtunnel.load(tmp_path / "damaged.windtunnel")


def test_files_of_earlier_versions_have_no_profile(parts: Any, tmp_path: Path) -> None:
    graph = {name: value for name, value in parts[0].items() if name != "profile"}
    tensors = {name: value for name, value in parts[1].items() if not name.startswith("profile.")}
    (tmp_path / "old.windtunnel").write_bytes(container.pack(json.dumps(graph), tensors))
    net = windtunnel.load(tmp_path / "old.windtunnel")
    assert net.profile is None
    X = np.random.default_rng(1).normal(size=(300, 3))
    net.refresh((X, X[:, 1] > 0))  # its rows become the profile
    assert net.history is not None and "not measured" in net.history.refresh.drift_text(3)  # type: ignore[union-attr]
    assert net.profile is not None and net.profile.rows == 300
