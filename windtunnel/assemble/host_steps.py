"""Steps that stay on the host: the source's own code gives their columns."""

from __future__ import annotations

from functools import partial

import numpy as np

from windtunnel.assemble.draft import Draft
from windtunnel.assemble.wires import Wire
from windtunnel.encode import Rows
from windtunnel.errors import UnsupportedEstimator
from windtunnel.pipeline.graph import Step
from windtunnel.pipeline.host_step import HostStep, dense_frame, evaluate
from windtunnel.translators.registry import TokenCounts

WIDEST = 2**20
"""The most columns that a step on the host may give: every row of them is dense."""


class Hosts:
    """Keeps steps on the host, whose answers come after the raw columns.

    Parameters
    ----------
    draft : Draft
    untranslated : str
        "cache", "stream" or "error"; see ``translate``.
    sample : rows, optional
        Raw rows, by which a step tells how many columns it gives.

    Attributes
    ----------
    steps : list of HostStep
    """

    def __init__(self, draft: Draft, untranslated: str, sample: Rows | None) -> None:
        self.steps: list[HostStep] = []
        self._draft = draft
        self._untranslated = untranslated
        self._sample = sample

    def kept(self, step: Step, error: UnsupportedEstimator) -> list[Wire]:
        """The columns of a step that has no translation, for the reason given; raised where none may be kept."""
        if self._untranslated == "error" or not hasattr(step.estimator, "transform"):
            raise error
        return [self._draft.raw(column) for column in self._keep(step, self._width(step, error), str(error)).columns]

    def tokens(self, step: Step, tokens: TokenCounts) -> list[Wire]:
        """Tokens are counted on the host, and the counts, which are no categories, weighted here."""
        estimator, reason = type(step.estimator).__name__, "its tokens are found and counted by the source's own code."
        if self._untranslated == "error":
            raise UnsupportedEstimator(f"step {step.name!r} ({estimator}) needs the host: {reason}")
        host = self._keep(step, tokens.width, reason, tokens)
        wires = [Wire(number=partial(self._draft.number, column)) for column in host.columns]
        return wires if tokens.then is None else self._draft.module(step.name, estimator, tokens.then, wires)

    def _keep(self, step: Step, width: int, reason: str, tokens: TokenCounts | None = None) -> HostStep:
        """Keep a step on the host, whose answer takes the next ``width`` columns."""
        if width > WIDEST:
            raise UnsupportedEstimator(
                f"step {step.name!r} ({type(step.estimator).__name__}) gives {width:,} columns; they become dense, and "
                f"at most {WIDEST:,} are taken. Fit it with fewer (n_features, max_features, min_df)."
            )
        first = self._draft.encoder.width + sum(len(host.columns) for host in self.steps)
        self.steps.append(HostStep(step, tuple(range(first, first + width)), reason, tokens))
        return self.steps[-1]

    def _width(self, step: Step, reason: UnsupportedEstimator) -> int:
        if self._sample is not None:
            answer = evaluate(step, self._draft.encoder.source_rows(self._sample)[:8])
            if np.ndim(answer) == 1:  # a sequence, which no columns of the host's can be
                raise reason
            return int(dense_frame(answer).shape[1])
        try:
            return len(step.estimator.get_feature_names_out())
        except Exception:  # it may be missing, want names, or raise whatever a custom transformer raises
            raise UnsupportedEstimator(
                f"step {step.name!r} ({type(step.estimator).__name__}) stays on the host and does not tell how many "
                "columns it gives (get_feature_names_out); give a few raw rows as calibrate=."
            ) from reason
