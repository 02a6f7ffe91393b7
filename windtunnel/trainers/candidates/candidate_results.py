"""What the history says of the candidates, and why one was kept and the others were not."""

from __future__ import annotations

import math
from collections.abc import Sequence

from windtunnel.objectives.metrics import Metric
from windtunnel.program.records.history import CandidateResult
from windtunnel.program.records.number_text import value_text
from windtunnel.trainers.candidates.candidate import Candidate


def candidate_results(candidates: Sequence[Candidate], best: Candidate, metric: Metric) -> list[CandidateResult]:
    """The numbers of all candidates, and the reason why each was kept or not."""
    return [
        CandidateResult(
            name=candidate.name,
            metric=_computed(candidate.shown.metric),
            loss=_computed(candidate.shown.loss),
            gain=None if candidate.test is None else candidate.test.gain,
            standard_error=None if candidate.test is None else candidate.test.standard_error,
            kept=candidate is best,
            reason=_reason(candidate, candidates, best, metric),
            rows=None if candidate.test is None else candidate.test.rows,
            tested_against=candidate.tested_against,
            details=candidate.details,
            epoch=candidate.epoch,
            installed_part=1.0 if candidate.installed is None else candidate.installed_part,
        )
        for candidate in candidates
    ]


def _computed(value: float) -> float | None:
    return None if math.isnan(value) else value


def _reason(candidate: Candidate, candidates: Sequence[Candidate], best: Candidate, metric: Metric) -> str:
    shrinkage = f" before shrinkage ({value_text(best.metric)})"
    if candidate is best:
        reason = f"best {metric.name}"
        if any(metric.better(each.metric, best.metric) for each in candidates):
            reason += " of those not rejected or replaced"
        if any(_is_better_than_installed(each, best, metric) for each in candidates):
            reason += shrinkage
        if candidate.test is None or candidate.test.significant:
            return reason
        if candidate.boosted is not None:
            return f"{reason}, and not worse by more than 1 standard error"
        if candidate.installed_part < 1:
            return f"{reason}, and the loss gets lower on rows that had no part in fitting"
        return f"{reason}, whatever the test says"
    if candidate.rejected:
        return candidate.rejected
    if metric.better(best.metric, candidate.metric):
        reason = f"{best.name} has the better {metric.name}"
        return reason + shrinkage if _is_better_than_installed(candidate, best, metric) else reason
    return f"no better {metric.name} than {best.name}, which is simpler"


def _is_better_than_installed(candidate: Candidate, best: Candidate, metric: Metric) -> bool:
    """Whether the metric of a candidate is better than that of the part of the best one that is installed."""
    if candidate is best or best.installed is None or candidate.rejected:
        return False
    return metric.better(candidate.metric, best.installed.metric)
