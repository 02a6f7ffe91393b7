"""Steps without a translation stay on the host: the source's own estimators compute them as further raw columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy import sparse

from windtunnel.encode import RowEncoder
from windtunnel.encode.columns import is_missing
from windtunnel.errors import BadInput
from windtunnel.pipeline.expressions import (
    Columns,
    Concatenated,
    Expression,
    MethodOutput,
    Raw,
    Step,
    Weighted,
    columns_read,
    steps_of,
)

if TYPE_CHECKING:  # loading a file without host steps needs no converters
    from windtunnel.translators.conversions import TokenCounts

MOST_LISTED = 50
"""Columns of a step on the host that explanations and drift list one by one; a table of more is an embedding."""


@dataclass(frozen=True, eq=False)
class HostStep:
    """One step kept on the host, with everything before it."""

    step: Step  # the expression that the fitted source computes
    columns: tuple[int, ...]  # its columns, which follow the raw ones
    reason: str  # the reason why it has no translation
    tokens: TokenCounts | None = None  # counts tokens instead of the step, whose weighting of the counts is translated
    source: str = ""  # the class of the step, if it was loaded from a file
    _labels: list[str] = field(default_factory=list, repr=False)

    def __deepcopy__(self, memo: Any) -> HostStep:
        """Itself: copies of a translation share fitted steps, which nothing changes and whose clients have no copy."""
        return self

    def within(self, path: str) -> HostStep:
        """The same step of a pipeline that is itself the step at ``path`` of another one."""
        return replace(self, step=replace(self.step, name=f"{path}.{self.name}"))

    @property
    def name(self) -> str:
        """Path of the step in the pipeline."""
        return self.step.name

    @property
    def steps_before(self) -> list[str]:
        """The steps that the source computes on the host before this one."""
        return [] if self.step.estimator is None else [step.name for step in steps_of(self.step.inputs)]

    @property
    def estimator(self) -> str:
        """The class of the step."""
        return self.source or self.step.estimator_name

    @property
    def is_listed(self) -> bool:
        """Whether explanations and drift may list its columns one by one: few numbers, and no counts of tokens."""
        return self.tokens is None and len(self.columns) <= MOST_LISTED

    @property
    def labels(self) -> dict[int, str]:
        """The name of each of its columns, as soon as it has computed rows as a table with names; else empty."""
        return dict(zip(self.columns, self._labels, strict=False))

    @property
    def terms(self) -> dict[int, str]:
        """The term that each of its columns counts, where that is known."""
        counter = self.tokens.counter if self.tokens else None
        return dict(zip(self.columns, (counter and counter.vocabulary) or (), strict=False))

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

    def output(self, rows: Any) -> pd.DataFrame:
        """The output of the source's step for raw rows, under ``columns``."""
        output = dense_frame(evaluate(self.step, rows))
        self._check(output.shape, len(rows))
        self._labels[:] = output.columns if all(isinstance(label, str) for label in output.columns) else []
        return output.set_axis(list(self.columns), axis=1)

    def count(self, rows: Any) -> sparse.coo_array:
        """The counts of each token, or of what ``tokens`` counts, in each row; sparse ``[rows, columns]``."""
        assert self.tokens is not None
        inputs = evaluate(self.step.inputs, rows)
        try:
            counts = self.tokens.counts(inputs)
        except Exception as error:  # a tokenizer may raise any error
            missing = sum(pd.api.types.is_scalar(row) and is_missing(row) for row in inputs)
            hint = f" ({missing} of {len(rows)} are missing; fill them, such as with an empty text)" if missing else ""
            raise BadInput(f"step {self.name!r} ({self.estimator}) rejects these rows: {error}{hint}") from error
        self._check(counts.shape, len(rows))
        # Sorted by row, as vectorizers return them.
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


def raw_columns_read(hosts: Iterable[HostStep]) -> set[int] | None:
    """The positions of the raw columns that any of the steps reads; None for all."""
    read = [columns_read(host.step.inputs) for host in hosts]
    return None if None in read else set[int]().union(*(columns for columns in read if columns is not None))


def computed_names(hosts: Sequence[HostStep], encoder: RowEncoder) -> dict[int, str]:
    """The names of the columns that steps on the host compute, where these differ.

    A column with the name of another one, or of a raw column that is read otherwise, is called "step__name", such as
    "functiontransformer__age". What a step makes of a single raw column under its name is that column.
    """
    listed = [host for host in hosts if host.is_listed and host.labels]
    read = raw_columns_read(host for host in hosts if host not in listed)
    raw = range(encoder.width) if read is None else read.union(encoder.used_columns())
    names = [] if encoder.names is None else [encoder.names[column] for column in raw]
    taken = Counter([*names, *(name for host in listed for name in host.labels.values())])
    labels = [
        {
            column: name if taken[name] == 1 else f"{_short_name(host, listed)}__{name}"
            for column, name in host.labels.items()
            if [encoder.names[only] for only in columns_read(host.step.inputs) or () if encoder.names] != [name]
        }
        for host in listed
    ]
    used = Counter([*names, *(name for each in labels for name in each.values())])
    unique = [each for each in labels if all(used[name] == 1 for name in each.values())]
    return {column: name for each in unique for column, name in each.items()}


def _short_name(host: HostStep, hosts: Sequence[HostStep]) -> str:
    """The last part of the name of a step, if no other one of the steps ends in it; else its whole name."""
    last = host.name.rpartition(".")[2]
    return last if [each.name.rpartition(".")[2] for each in hosts].count(last) == 1 else host.name


def evaluate(expression: Expression, rows: Any) -> Any:
    """The fitted source's output of an expression for raw rows."""
    match expression:
        case Raw():
            return rows
        case Step(name=name, estimator=estimator, inputs=inputs):
            columns = evaluate(inputs, rows)
            try:
                return estimator.transform(columns)
            except Exception as error:  # whatever the step of the user raises
                error.add_note(f"raised by step {name!r}, which stays on the host")
                raise
        case Concatenated(composite=None, parts=parts):
            return np.concatenate([dense_frame(evaluate(part, rows)).to_numpy() for part in parts], axis=1)
        case Concatenated(composite=composite, inputs=inputs):
            return composite.transform(evaluate(inputs, rows))
        case MethodOutput(inputs=Step() as step, method=method, columns=columns):
            output = dense_frame(getattr(step.estimator, method)(evaluate(step.inputs, rows))).to_numpy()
            return output if columns is None else output[:, list(columns)]
        case MethodOutput():
            raise BadInput("only a step has methods.")
        case Columns(inputs=inputs, positions=positions, flat=flat):
            output = evaluate(inputs, rows)
            selected: Any = positions[0] if flat else list(positions)
            return output.iloc[:, selected] if isinstance(output, pd.DataFrame) else output[:, selected]
        case Weighted(inputs=inputs, weight=weight):
            return evaluate(inputs, rows) * weight


def dense_frame(output: Any) -> pd.DataFrame:
    """The output of a host step (DataFrame, dense or sparse array) as a DataFrame with one row per row."""
    if isinstance(output, pd.DataFrame):
        return output.reset_index(drop=True)
    if hasattr(output, "toarray"):
        return pd.DataFrame(output.toarray())
    array = np.asarray(output)
    return pd.DataFrame(array.reshape(len(array), -1), dtype=object if array.dtype == object else None)
