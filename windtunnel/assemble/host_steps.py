"""Steps that stay on the host: the source's own code computes their columns."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from windtunnel.assemble.graph_column import GraphColumn
from windtunnel.assemble.program_builder import ProgramBuilder
from windtunnel.encode import Rows
from windtunnel.errors import UnsupportedEstimator
from windtunnel.pipeline.expressions import Step
from windtunnel.pipeline.host_step import HostStep, dense_frame, evaluate
from windtunnel.translators.conversions import TokenCounts

WIDEST = 2**20
"""The largest number of columns of a step on the host: they become dense."""


class HostSteps:
    """Keeps steps on the host; their columns follow the raw ones."""

    def __init__(self, builder: ProgramBuilder, untranslated: str, sample: Rows | None) -> None:
        self.steps: list[HostStep] = []
        self._builder = builder
        self._untranslated = untranslated  # "cache", "stream" or "error"; see ``translate``
        self._sample = sample  # raw rows, which show the number of columns of a step

    def columns(self, step: Step, error: UnsupportedEstimator) -> list[GraphColumn]:
        """The columns of a step without a translation.

        Raises ``error`` if ``untranslated="error"`` or the step has no ``transform``.
        """
        if self._untranslated == "error" or not hasattr(step.estimator, "transform"):
            raise error
        return [self._builder.raw(column) for column in self._add(step, self._width(step, error), str(error)).columns]

    def token_columns(self, step: Step, tokens: TokenCounts) -> list[GraphColumn]:
        """The columns of a step whose tokens the host counts and whose counts a module weights."""
        estimator, reason = step.estimator_name, "its tokens are found and counted by the source's own code."
        if self._untranslated == "error":
            raise UnsupportedEstimator(f"step {step.name!r} ({estimator}) needs the host: {reason}")
        host = self._add(step, tokens.width, reason, tokens)
        counts = [GraphColumn(number=partial(self._builder.number, column)) for column in host.columns]
        return counts if tokens.then is None else self._builder.module(step.name, estimator, tokens.then, counts)

    def of_translation(self, host: HostStep, step: Step) -> list[GraphColumn]:
        """The columns of a step that the translation of ``step`` keeps on the host, over the same raw rows."""
        if self._untranslated == "error":
            raise UnsupportedEstimator(f"step {step.name!r} ({step.estimator_name}) keeps {host.name!r} on the host.")
        kept = self._keep(host.within(step.name), len(host.columns))
        return [self._builder.raw(column) for column in kept.columns]

    def _add(self, step: Step, width: int, reason: str, tokens: TokenCounts | None = None) -> HostStep:
        if width > WIDEST:
            raise UnsupportedEstimator(
                f"step {step.name!r} ({step.estimator_name}) gives {width:,} columns; they become dense, and "
                f"at most {WIDEST:,} are taken. Fit it with fewer (n_features, max_features, min_df)."
            )
        return self._keep(HostStep(step, (), reason, tokens), width)

    def _keep(self, host: HostStep, width: int) -> HostStep:
        """A step with columns of its own, after those of all steps so far."""
        first = self._builder.encoder.width + sum(len(other.columns) for other in self.steps)
        self.steps.append(replace(host, columns=tuple(range(first, first + width)), _labels=[]))
        return self.steps[-1]

    def _width(self, step: Step, reason: UnsupportedEstimator) -> int:
        if self._sample is not None:
            output = evaluate(step, self._builder.encoder.source_rows(self._sample)[:8])
            if np.ndim(output) == 1:  # a sequence, which is no table of columns
                raise reason
            return int(dense_frame(output).shape[1])
        if step.width is not None:
            return step.width
        try:
            return len(step.estimator.get_feature_names_out())
        except Exception:  # it may be missing, need names, or raise anything in a custom transformer
            raise UnsupportedEstimator(
                f"step {step.name!r} ({step.estimator_name}) stays on the host and does not tell how many "
                "columns it gives (get_feature_names_out); give a few raw rows as calibrate=."
            ) from reason
