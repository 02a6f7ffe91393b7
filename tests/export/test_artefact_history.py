"""The history of a fit in an artefact."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import windtunnel
from windtunnel.errors import BadFile
from windtunnel.program.records.history import CandidateResult, History


def test_a_history_keeps_one_candidate(tmp_path: Path) -> None:
    net = windtunnel.compile(LogisticRegression().fit(np.arange(4)[:, None], [0, 0, 1, 1]))
    kept = CandidateResult("translation", 0.5, 0.7, None, None, True, "best")
    record: dict[str, Any] = {
        "metric": "auroc",
        "greater_is_better": True,
        "start": 0.5,
        "start_loss": 0.7,
        "best": 0.5,
    }
    record |= {"epochs": [], "best_epoch": 0, "validated_on": "held-out rows", "seconds": 1.0}
    for candidates in ([], [kept, kept], [kept]):
        net.record(history=History(candidates=candidates, **record))
        net.save(tmp_path / "net.windtunnel")
        if len(candidates) == 1:
            assert windtunnel.load(tmp_path / "net.windtunnel").history.kept == kept
            continue
        with pytest.raises(BadFile, match="one candidate that was kept"):
            windtunnel.load(tmp_path / "net.windtunnel")
