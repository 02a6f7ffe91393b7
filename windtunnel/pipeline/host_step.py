"""Steps without a translation stay on the host: the source's own estimators answer for them, as further raw columns."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse

from windtunnel.errors import BadInput
from windtunnel.pipeline.graph import Columns, Concatenated, Expression, MethodOutput, Raw, Step, Weighted
from windtunnel.translators.categories.probe_inputs import is_missing
from windtunnel.translators.registry import TokenCounts


@dataclass(frozen=True, eq=False)
class HostStep:
    """One step kept on the host, with everything before it.

    Attributes
    ----------
    step : Step
        The expression whose answer is computed by the fitted source.
    columns : tuple of int
        The columns, after the raw ones, that its answer takes.
    reason : str
        Why there is no translation.
    tokens : Tokens or None
        What counts tokens in the place of the step, whose weighting of the counts is translated.
    source : str
        The class of the step, where it was read from a file.
    """

    step: Step
    columns: tuple[int, ...]
    reason: str
    tokens: TokenCounts | None = None
    source: str = ""

    @property
    def name(self) -> str:
        """Path of the step in the pipeline."""
        return self.step.name

    @property
    def estimator(self) -> str:
        """The class of the step."""
        return self.source or type(self.step.estimator).__name__

    def facts(self) -> dict[str, Any]:
        """The step as JSON values; ``counter`` describes term counts, and is None for all other steps."""
        counter, column, terms = self.tokens.counter if self.tokens else None, None, None
        match self.step.inputs:
            case Raw():
                column = 0
            case Columns(inputs=Raw(), positions=(only,), flat=True):
                column = only
        if counter is not None and column is not None:
            terms = {"column": column, **asdict(counter), "ngram_range": list(counter.ngram_range)}
        return {
            "name": self.name,
            "estimator": self.estimator,
            "columns": list(self.columns),
            "reason": self.reason,
            "counts": self.tokens is not None,
            "counter": terms,
        }

    def same_fit(self, other: HostStep) -> bool:
        """Whether two steps are the same fitted estimator, or count the same terms."""
        if self.columns == other.columns and self.step.estimator is other.step.estimator is not None:
            return True
        facts = self.facts()
        return facts["counter"] is not None and facts == other.facts()

    def answer(self, rows: Any) -> pd.DataFrame:
        """What the source's step makes of raw rows, under ``columns``."""
        answer = dense_frame(evaluate(self.step, rows))
        self._check(answer.shape, len(rows))
        return answer.set_axis(list(self.columns), axis=1)

    def count(self, rows: Any) -> sparse.coo_array:
        """How often each token is in each row, or what else ``tokens`` counts; sparse ``[rows, columns]``."""
        assert self.tokens is not None
        inputs = evaluate(self.step.inputs, rows)
        try:
            counts = self.tokens.counts(inputs)
        except Exception as error:  # a tokenizer may raise whatever it likes
            missing = sum(pd.api.types.is_scalar(one) and is_missing(one) for one in inputs)
            hint = f" ({missing} of {len(rows)} are missing; fill them, such as with an empty text)" if missing else ""
            raise BadInput(f"step {self.name!r} ({self.estimator}) rejects these rows: {error}{hint}") from error
        self._check(counts.shape, len(rows))
        # By rows, as vectorizers give them, so that nothing has to be sorted.
        if not (isinstance(counts, sparse.csr_array) and counts.has_canonical_format):
            counts = sparse.csr_array(counts, copy=True)
            counts.sum_duplicates()
        return counts.tocoo(copy=False)

    def _check(self, shape: tuple[int, ...], rows: int) -> None:
        if shape[1] != len(self.columns):
            raise BadInput(
                f"step {self.name!r}, kept on the host, gave {shape[1]} columns; "
                f"it gave {len(self.columns)} when the pipeline was translated."
            )
        if shape[0] != rows:
            raise BadInput(f"step {self.name!r}, kept on the host, gave {shape[0]} rows for {rows}.")


def evaluate(expression: Expression, rows: Any) -> Any:
    """What the fitted source makes of raw rows at one place of the graph."""
    match expression:
        case Raw():
            return rows
        case Step(estimator=estimator, inputs=inputs):
            return estimator.transform(evaluate(inputs, rows))
        case Concatenated(composite=None, parts=parts):
            return np.concatenate([dense_frame(evaluate(part, rows)).to_numpy() for part in parts], axis=1)
        case Concatenated(composite=composite, inputs=inputs):
            return composite.transform(evaluate(inputs, rows))
        case MethodOutput(inputs=Step() as step, method=method, columns=columns):
            answer = dense_frame(getattr(step.estimator, method)(evaluate(step.inputs, rows))).to_numpy()
            return answer if columns is None else answer[:, list(columns)]
        case MethodOutput():
            raise BadInput("only a step has answers.")
        case Columns(inputs=inputs, positions=positions, flat=flat):
            answer = evaluate(inputs, rows)
            selected: Any = positions[0] if flat else list(positions)
            return answer.iloc[:, selected] if isinstance(answer, pd.DataFrame) else answer[:, selected]
        case Weighted(inputs=inputs, weight=weight):
            return evaluate(inputs, rows) * weight


def dense_frame(answer: Any) -> pd.DataFrame:
    """An answer of a host step (DataFrame, dense or sparse array) as a DataFrame with one row per row."""
    if isinstance(answer, pd.DataFrame):
        return answer.reset_index(drop=True)
    if hasattr(answer, "toarray"):
        return pd.DataFrame(answer.toarray())
    array = np.asarray(answer)
    return pd.DataFrame(array.reshape(len(array), -1), dtype=object if array.dtype == object else None)
