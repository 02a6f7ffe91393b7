"""When a boosted residual is kept."""

from __future__ import annotations

import numpy as np
import pytest

from windtunnel.objectives.metrics import Metric
from windtunnel.program.head import Head
from windtunnel.trainers.candidates.boosted_candidate import replace_by_boosted
from windtunnel.trainers.candidates.candidate import Candidate, select
from windtunnel.trainers.candidates.candidate_results import candidate_results
from windtunnel.trainers.loop.evaluation import Evaluation
from windtunnel.trainers.significance.significance_test import SignificanceTest


@pytest.mark.parametrize(
    ("gain", "error", "significant", "worse"),
    [(0.2, 0.1, True, False), (0.05, 0.1, False, False), (-0.05, 0.1, False, False), (-0.2, 0.1, False, True),
     (0.2, 0.1, False, True), (0.2, float("nan"), False, True)],
)  # fmt: skip
def test_a_boosted_residual_is_rejected_only_where_it_is_worse(
    gain: float, error: float, significant: bool, worse: bool
) -> None:
    assert SignificanceTest(gain, error, 100, "" if significant else "no gain").worse == worse


@pytest.mark.parametrize(
    ("auroc", "rejected", "kept"),
    [(0.84, "", "mean"), (0.86, "", "mean"), (0.80, "", "interactions"), (0.79, "", "interactions"),
     (0.84, "it is worse", "interactions")],
)  # fmt: skip
def test_it_takes_the_place_of_others_unless_it_is_rejected_or_the_pipeline_is_better(
    auroc: float, rejected: str, kept: str
) -> None:
    test, failed = (SignificanceTest(0.1, 0.01, 100, reason) for reason in ("", "no gain"))
    candidates = [
        Candidate("translation", Evaluation(0.5, 0.80)),
        Candidate("tree-block weights", Evaluation(0.5, 0.87), test=failed, rejected="not significant"),
        Candidate("interactions", Evaluation(0.5, 0.85), test=test),
        Candidate("residual model", Evaluation(0.5, 0.83), test=test),
    ]
    metric = Metric("auroc", Head("binary", "sigmoid", "logistic", classes=np.arange(2)))
    boosted = Candidate("mean", Evaluation(0.5, auroc), test=test, rejected=rejected)
    of_all = replace_by_boosted(boosted, candidates, metric)
    assert [each.name for each in of_all] == [*(each.name for each in candidates), "mean"]
    assert select(of_all, metric).name == kept
    reasons = [each.rejected for each in of_all[2:4]]
    assert all(reason.startswith("mean is preferred") == (kept == "mean") for reason in reasons)
    assert of_all[1].rejected == "not significant"
    best = select(of_all, metric)
    (told,) = (each.reason for each in candidate_results(of_all, best, metric) if each.kept)
    assert told == "best auroc of those not rejected or replaced"  # tree-block weights have a better one
