"""``Cascade``: predicts with a small model where it is sure, and with the full one elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from windtunnel.encode import Rows
from windtunnel.encode.rows import as_frame
from windtunnel.errors import BadInput, InvalidOption
from windtunnel.program.translated import TranslatedPipeline
from windtunnel.serving.cascade.file import CascadeFacts, load, save
from windtunnel.serving.cascade.statistics import FeatureGroup
from windtunnel.serving.cascade.threshold import Threshold


@dataclass(frozen=True)
class TopK:
    """The rows with the highest scores.

    Attributes
    ----------
    rows : ndarray
        Their positions, the highest score first, int64 ``[k]``.
    scores : ndarray
        Their scores by the full model, ``[k]``.
    ranked : int
        How many rows the full model scored.
    """

    rows: NDArray[np.int64]
    scores: NDArray[np.float64]
    ranked: int


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
    """

    small: TranslatedPipeline
    full: TranslatedPipeline
    groups: Sequence[FeatureGroup]
    efficient: Sequence[str]
    gamma: float
    threshold: Threshold | None

    @property
    def classes_(self) -> Any:
        """Original labels in the order of the columns of ``predict_proba``; classifiers only."""
        return self.full.classes_

    @property
    def expected_cost(self) -> float:
        """Cost of the features of a row, divided by that of all groups.

        The small model's groups, plus all groups for the rows that go on: these are encoded anew.
        """
        total = sum(group.cost for group in self.groups) or 1.0
        first = sum(group.cost for group in self.groups if group.name in self.efficient) / total
        return first + 1.0 - (self.threshold.early if self.threshold else 0.0)

    def predict(self, rows: Rows) -> NDArray[Any]:
        """Labels of a classifier; values of a regressor, all by the full model."""
        if self.threshold is None:
            return np.asarray(self.full.predict(rows))
        labels: NDArray[Any] = np.asarray(self.classes_)[self.predict_proba(rows).argmax(axis=1)]
        return labels

    def predict_proba(self, rows: Rows) -> NDArray[np.float64]:
        """Probabilities ``[B, classes]``, of the small model where it is sure."""
        if self.threshold is None:
            raise AttributeError("a regressor has no predict_proba")
        probabilities = self.small.predict_proba(rows)
        unsure = np.flatnonzero(probabilities.max(axis=1) < self.threshold.confidence)
        if len(unsure) == len(probabilities):
            return self.full.predict_proba(rows)  # type: ignore[no-any-return]
        if len(unsure):
            probabilities[unsure] = self.full.predict_proba(take_rows(rows, unsure))
        return probabilities  # type: ignore[no-any-return]

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
        if k < 1 or ck < 1 or not 0 <= min_share <= 1:
            raise InvalidOption(
                f"top_k got k={k}, ck={ck}, min_share={min_share}; accepted are k and ck from 1 up, shares from 0 to 1."
            )
        guess = self._scores(self.small, rows, label)
        ranked = min(len(guess), max(int(np.ceil(ck * k)), int(np.ceil(min_share * len(guess)))))
        best = np.sort(np.argpartition(-guess, ranked - 1)[:ranked])
        scores = self._scores(self.full, take_rows(rows, best), label)
        order = np.argsort(-scores, kind="stable")[:k]
        return TopK(best[order].astype(np.int64), scores[order], ranked)

    def save(self, path: str | PathLike[str]) -> None:
        """Write both models and the threshold as one file, which ``Cascade.load`` reads; no code is in it."""
        facts = CascadeFacts(tuple(self.groups), tuple(self.efficient), self.gamma, self.threshold)
        save(path, self.small, self.full, facts)

    @classmethod
    def load(cls, path: str | PathLike[str], *, host: Any = None, trusted: bool = False) -> Self:
        """Read what ``save`` wrote; ``BadFile`` for anything else.

        Parameters
        ----------
        path : path
        host : fitted pipeline, optional
            The pipeline of the cascade, if steps of it stayed on the host; see ``windtunnel.load``.
        trusted : bool
            See ``windtunnel.load``.
        """
        small, full, facts = load(path, host, trusted)
        return cls(small, full, facts.groups, facts.efficient, facts.gamma, facts.threshold)

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
            chosen = self.threshold
            lines += [
                f"settled by the small model: {chosen.early:.1%} of the validation rows, from confidence "
                f"{chosen.confidence:g} on",
                f"accuracy {chosen.accuracy:.4f}, full model {chosen.full_accuracy:.4f} (difference "
                f"{chosen.accuracy - chosen.full_accuracy:+.4f} ± {chosen.standard_error:.4f}) on the rows that "
                "checked the choice",
                f"expected cost of features: {self.expected_cost:.1%} of the full model's",
            ]
        return "\n".join(lines)

    def _scores(self, net: TranslatedPipeline, rows: Rows, label: Any) -> NDArray[np.float64]:
        if self.threshold is None:
            return np.asarray(net.predict(rows), dtype=np.float64)
        labels = np.asarray(self.classes_).tolist()
        if label is not None and label not in labels:
            raise BadInput(f"label={label!r}; the classes are {', '.join(map(repr, labels))}.")
        probabilities: NDArray[np.float64] = net.predict_proba(rows)
        return probabilities[:, -1 if label is None else labels.index(label)]


def take_rows(rows: Rows, positions: NDArray[Any]) -> Rows:
    """Some of the rows, in the kind that they were given in where that is quick."""
    if hasattr(rows, "iloc"):
        return rows.iloc[positions]
    if isinstance(rows, np.ndarray) or hasattr(rows, "tocsr"):
        return rows[positions]
    if isinstance(rows, list) and not isinstance(rows[0], list | tuple):
        return [rows[position] for position in positions]
    return as_frame(rows).iloc[positions]
