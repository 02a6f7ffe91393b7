"""``Cascade``: predicts with a small model where it is sure, and with the full one elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from numbers import Real
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from windtunnel.encode import Rows, count_rows
from windtunnel.errors import BadInput, InvalidOption, UnfaithfulOption, is_whole_number
from windtunnel.export import c_file, onnx_cascade
from windtunnel.program.translated import TranslatedPipeline
from windtunnel.serving.cascade.file import CascadeFacts, load, save
from windtunnel.serving.cascade.host_features import FeatureCache
from windtunnel.serving.cascade.split import single_stage, split_cascade
from windtunnel.serving.cascade.stage import Stage, StageOutput, UnsureRows, WholeStage
from windtunnel.serving.cascade.statistics import FeatureGroup
from windtunnel.serving.cascade.take_rows import take_rows
from windtunnel.serving.cascade.threshold import NEVER, Threshold
from windtunnel.serving.cascade.timing import TIMED_ROWS, RowSeconds, least_seconds
from windtunnel.serving.cascade.top_k import TopK, TopKQuality, top_k_quality

RECOMPUTED_ROWS = 32
"""Up to so many rows, the native engine computes features twice in less time than it takes to hand them on."""


@dataclass(frozen=True, eq=False)
class Cascade:
    """A small model in front of a full one; made by ``windtunnel.cascade``.

    Attributes
    ----------
    small, full : Translation
        The small model reads some groups of features, the full one all.
    groups : list of FeatureGroup
        All groups, with cost and importance.
    efficient : list of str
        The names of the groups that the small model reads.
    gamma : float
        The value of algorithm 1 that chose them.
    threshold : Threshold or None
        None for a regressor, which always predicts with the full model.
    cache : dict
        Step on the host -> the most rows whose features are kept in memory.
    seconds : RowSeconds or None
        The time per row; None for a regressor, and if the small model predicts no rows.
    """

    small: TranslatedPipeline
    full: TranslatedPipeline
    groups: Sequence[FeatureGroup]
    efficient: Sequence[str]
    gamma: float
    threshold: Threshold | None
    cache: Mapping[str, int] = field(default_factory=dict)
    seconds: RowSeconds | None = None

    def __post_init__(self) -> None:
        """Check the names of caches."""
        if not self.cache:
            return
        names = list(dict.fromkeys(host.host.name for stage in self.stages for host in stage.hosts))
        for name, size in self.cache.items():
            if size < 1:
                raise InvalidOption(f"cache= gives {name!r} {size} rows; accepted are whole numbers from 1 up.")
            if not any(_covers(name, host) for host in names):
                steps = f"these are {', '.join(map(repr, names))}" if names else "there are none"
                raise InvalidOption(
                    f"cache= names {name!r}; only features of steps on the host are worth a cache, and {steps}."
                )

    @cached_property
    def stages(self) -> tuple[Stage | WholeStage, Stage | WholeStage]:
        """The small model, and the full one, which takes over the features that the first has computed.

        They hold the weights that the models had when the stages were first used.
        """
        if (stages := split_cascade(self.small, self.full, self._method)) is not None:
            return self._with_caches(stages[0]), self._with_caches(stages[1])
        return self._alone(self.small), self.whole

    @cached_property
    def whole(self) -> Stage | WholeStage:
        """The full model alone, for rows that the small one has not seen."""
        return self._alone(self.full)

    def _alone(self, net: TranslatedPipeline) -> Stage | WholeStage:
        """A stage that shares nothing with another."""
        stage = single_stage(net, self._method)
        return self._with_caches(stage) if stage else WholeStage(net, self._method)

    def _with_caches(self, stage: Stage) -> Stage:
        for features in stage.hosts:
            size = max((size for name, size in self.cache.items() if _covers(name, features.host.name)), default=0)
            features.cache = FeatureCache(size) if size else None
        return stage

    @property
    def reuses(self) -> bool:
        """Whether the full model takes over features of the small one."""
        return self.stages[1].shared > 0

    @property
    def uses_small_model(self) -> bool:
        """Whether the small model predicts some rows alone."""
        return self.threshold is not None and not self.threshold.full_model_only

    def confident(self, probabilities: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Whether the small model with probabilities ``[B, classes]`` predicts a row alone, bool ``[B]``."""
        confidence = NEVER if self.threshold is None else self.threshold.confidence
        return probabilities.max(axis=1) >= confidence  # type: ignore[no-any-return]

    @property
    def classes_(self) -> Any:
        """Original labels in the order of the columns of ``predict_proba``; classifiers only."""
        return self.full.classes_

    @property
    def expected_cost(self) -> float:
        """Cost of the features of a row, divided by that of all groups.

        That is the small model's groups, and the others for the rows that go on; all groups for these if the full
        model cannot take over features.
        """
        if self.threshold is None or not self.uses_small_model:
            return 1.0
        total = sum(group.cost for group in self.groups) or 1.0
        first = sum(group.cost for group in self.groups if group.name in self.efficient) / total
        return first + (1.0 - self.threshold.early) * (1.0 - first if self.reuses else 1.0)

    def timed(self, rows: Rows, declared: Mapping[str, float]) -> Self:
        """The same cascade with its time per row, of some validation rows; without caches, which save more later.

        ``declared`` has the seconds per row of groups that are not timed; they are added.
        """
        if self.threshold is None or not self.uses_small_model:
            return self
        without_caches = replace(self, cache={})
        timed_rows = take_rows(rows, np.arange(min(TIMED_ROWS, count_rows(rows))))
        small = sum(seconds for name, seconds in declared.items() if name in self.efficient)
        all_groups = sum(declared.values())
        late = (1 - self.threshold.early) * (all_groups - small if self.reuses else all_groups)
        seconds = RowSeconds(
            least_seconds(without_caches.predict_proba, timed_rows) + small + late,
            least_seconds(without_caches.whole.score, timed_rows) + all_groups,
        )
        return replace(self, seconds=seconds)

    def predict(self, rows: Rows) -> NDArray[Any]:
        """Labels of a classifier; values of a regressor, all by the full model."""
        if self.threshold is None:
            return self.whole.score(rows).predictions
        labels: NDArray[Any] = np.asarray(self.classes_)[self.predict_proba(rows).argmax(axis=1)]
        return labels

    def predict_proba(self, rows: Rows) -> NDArray[np.float64]:
        """Probabilities ``[B, classes]``, of the small model where it is sure."""
        if self.threshold is None:
            raise AttributeError("a regressor has no predict_proba")
        if not self.uses_small_model:
            return self.whole.score(rows).predictions
        first = self._first(rows)
        unsure = self.unsure_rows(first)
        if not len(unsure):
            return first.predictions
        return unsure.filled(self._second(rows, unsure.positions, unsure.shared))

    def unsure_rows(self, first: StageOutput) -> UnsureRows:
        """The rows of an output of the small model that the full model has to predict."""
        positions = np.flatnonzero(~self.confident(first.predictions))
        return UnsureRows(first.predictions, positions, first.shared[positions])

    def check_columns(self, rows: Rows) -> None:
        """Raise ``BadInput`` for rows without a column of the full model, even if no row goes on to it."""
        if isinstance(rows, dict) and self._names <= rows.keys():
            return
        first = rows[0] if isinstance(rows, list) and rows else rows  # a list of dicts, or columns
        names: Any = first.keys() if isinstance(first, dict) else None
        for kind in ("column_names", "columns"):  # of Arrow, whose ``columns`` are values; of pandas and Polars
            if names is None and hasattr(type(rows), kind):
                names = getattr(rows, kind)
        if names is not None and not self._names <= {*map(str, names)}:
            self.full.encode(rows)  # raises

    @cached_property
    def _names(self) -> set[str]:
        """The names of the columns that the full model reads; none if it takes them by position."""
        names = self.full.encoder.names
        return set() if names is None else {names[column] for column in self.full.read_columns}

    def _first(self, rows: Rows) -> StageOutput:
        """The output of the small model for all rows."""
        self.check_columns(rows)
        stage = self.stages[0]
        if not stage.hosts and count_rows(rows) <= RECOMPUTED_ROWS:
            return WholeStage(self.small, self._method).run(rows)
        return stage.score(rows)

    def _second(self, rows: Rows, positions: NDArray[np.intp], shared: NDArray[np.float64]) -> NDArray[np.float64]:
        """The output of the full model for the rows at some positions, and the columns that it takes over for these."""
        stage, selected = self.stages[1], take_rows(rows, positions)
        if shared.shape[1] == 0:
            return self.whole.score(selected).predictions
        return stage.run(stage.encode(selected, shared)).predictions

    @property
    def _method(self) -> str:
        return "predict" if self.threshold is None else "predict_proba"

    def top_k(self, rows: Rows, k: int, *, ck: float = 10, min_share: float = 0.05, label: Any = None) -> TopK:
        """The ``k`` rows with the highest scores, of a regressor or of one class.

        The small model scores all rows; the full one ranks the best ``max(ck k, min_share B)`` of them.

        Parameters
        ----------
        rows : raw rows
        k : int
        ck, min_share : float
            How many rows the full model ranks: a multiple of ``k``, and at least this share of all.
        label : optional
            The class; by default the last one, as of two classes the positive one.

        Source
        ------
        Kraft et al., Willump, MLSys 2020, section 4.3.
        """
        numbers = isinstance(ck, Real) and isinstance(min_share, Real)
        if not (is_whole_number(k, 1) and numbers and 1 <= ck < np.inf and 0 <= min_share <= 1):
            raise InvalidOption(
                f"top_k got k={k!r}, ck={ck!r}, min_share={min_share!r}; accepted are whole numbers k from 1 up, ck "
                "from 1 up, shares from 0 to 1."
            )
        first = self._first(rows)
        guess = self._scores(first.predictions, label)
        ranked = min(len(guess), max(int(np.ceil(ck * k)), int(np.ceil(min_share * len(guess)))))
        best = np.sort(np.argpartition(-guess, ranked - 1)[:ranked])
        scores = self._scores(self._second(rows, best, first.shared[best]), label)
        order = np.argsort(-scores, kind="stable")[:k]
        return TopK(best[order].astype(np.int64), scores[order], ranked)

    def top_k_quality(
        self, rows: Rows, k: int, *, ck: float = 10, min_share: float = 0.05, label: Any = None
    ) -> TopKQuality:
        """How near ``top_k`` comes to the rows that the full model alone selects; the full model scores all rows.

        The parameters are those of ``top_k``.
        """
        selected = self.top_k(rows, k, ck=ck, min_share=min_share, label=label)
        scores = self._scores(self.whole.score(rows).predictions, label)
        return top_k_quality(selected, scores)

    def save(self, path: str | PathLike[str]) -> None:
        """Write both models and the threshold as one file, which ``Cascade.load`` reads; no code is in it."""
        facts = CascadeFacts(tuple(self.groups), tuple(self.efficient), self.gamma, self.threshold, self.seconds)
        save(path, self.small, self.full, facts)

    @classmethod
    def load(
        cls,
        path: str | PathLike[str],
        *,
        host: Any = None,
        trusted: bool = False,
        cache: Mapping[str, int] | None = None,
    ) -> Self:
        """Read what ``save`` wrote; ``BadFile`` for anything else.

        Parameters
        ----------
        path : path
        host : fitted pipeline, optional
            The pipeline of the cascade, if steps of it stayed on the host; see ``windtunnel.load``.
        trusted : bool
            See ``windtunnel.load``.
        cache : mapping, optional
            See ``windtunnel.cascade``; a file holds no caches.
        """
        small, full, facts = load(path, host, trusted)
        return cls(small, full, facts.groups, facts.efficient, facts.gamma, facts.threshold, cache or {}, facts.seconds)

    def export(self, path: str | PathLike[str]) -> None:
        """Write one file that predicts without windtunnel, called like that of a translation.

        Parameters
        ----------
        path : path
            ``.c`` for C or ``.onnx`` for ONNX.

        Raises
        ------
        InvalidOption
            Another suffix, or a regressor: its predictions are those of ``full``.
        UnfaithfulOption
            The format cannot hold one of the models, such as steps on the host; or the small model reads a column that
            the full one does not.
        """
        writers = {".c": c_file.export_cascade, ".onnx": onnx_cascade.export}
        suffix = Path(path).suffix.lower()
        if suffix not in writers:
            raise InvalidOption(
                f"{fspath(path)!r}: a cascade is exported as .c or .onnx; cascade.save takes other names."
            )
        if self.threshold is None:
            raise InvalidOption("a regressor predicts with its full model alone; export cascade.full.")
        encoder = self.small.encoder
        if columns := set(encoder.used_columns()) - set(self.full.encoder.used_columns()):
            names = ", ".join(sorted(encoder.column_name(column) for column in columns))
            raise UnfaithfulOption(
                f"the full model does not read {names}, which the small one reads, and the columns of the file are "
                "those of the full one. Export cascade.small and cascade.full."
            )
        writers[suffix](self.small, self.full, self.threshold.confidence, path)

    def report(self) -> str:
        """Groups, threshold, accuracy and expected cost as text."""
        width = max(len(group.name) for group in self.groups)
        lines = [
            f"cascade: the small model reads {len(self.efficient)} of {len(self.groups)} feature groups (gamma "
            f"{self.gamma:g})",
            f"{'group':<{width}}  cost per row, us  importance  small model",
        ]
        lines += [
            f"{group.name:<{width}}  {1e6 * group.cost:16.2f}  {group.importance:10.4g}  "
            f"{'yes' if group.name in self.efficient else 'no'}"
            for group in self.groups
        ]
        if self.threshold is not None:
            lines += self.threshold.report()
            if not self.threshold.full_model_only:
                lines.append(
                    f"expected cost of features: {self.expected_cost:.1%} of the full model's; it "
                    f"{'computes only the missing groups' if self.reuses else 'computes all groups anew'}"
                )
        if self.seconds is not None:
            lines.append(self.seconds.report())
        return "\n".join(lines + (self._caches() if self.cache else []))

    def _caches(self) -> list[str]:
        """A line for each cache that was asked for rows."""
        return [
            f"cache of {features.host.name}: {features.cache.hit_rate:.1%} of "
            f"{features.cache.hits + features.cache.misses} rows found"
            for stage in dict.fromkeys((*self.stages, self.whole))
            for features in stage.hosts
            if features.cache is not None and features.cache.hits + features.cache.misses
        ]

    def _scores(self, predictions: NDArray[np.float64], label: Any) -> NDArray[np.float64]:
        """The scores to rank by: values, or the probability of a class."""
        if self.threshold is None:
            return predictions
        labels = np.asarray(self.classes_).tolist()
        if label is not None and label not in labels:
            raise BadInput(f"label={label!r}; the classes are {', '.join(map(repr, labels))}.")
        return predictions[:, -1 if label is None else labels.index(label)]


def _covers(name: str, host: str) -> bool:
    """Whether a name is that of a host step, of a step that it is in, or the last part of one of these."""
    return f".{name}." in f".{host}."
