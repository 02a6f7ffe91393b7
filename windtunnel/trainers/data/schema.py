"""The meaning of the columns and targets of encoded batches."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from windtunnel.encode import RowEncoder
from windtunnel.errors import BadInput
from windtunnel.pipeline.host_step import HostStep
from windtunnel.program.head import Head
from windtunnel.program.translated import TranslatedPipeline

_EXPECTED = "train on rows that this one encodes: windtunnel.loader(net, X, y), windtunnel.stream(net, ...) or (X, y)"


@dataclass(frozen=True)
class BatchSchema:
    """The meaning of numbers, ids and targets in a batch.

    Attributes
    ----------
    encoder : RowEncoder
        The columns, their order and their vocabularies.
    hosts : list of HostStep
        Steps on the host, whose outputs are further columns.
    head : Head
        Its labels, in the order of the encoded targets.
    """

    encoder: RowEncoder
    hosts: list[HostStep]
    head: Head

    @classmethod
    def of(cls, net: TranslatedPipeline) -> BatchSchema:
        """The schema of the batches that a translation encodes."""
        return cls(net.encoder, net.hosts, net.head)

    def check(self, net: TranslatedPipeline, what: str) -> None:
        """Raise ``BadInput`` if a translation encodes rows in another way.

        Columns, vocabularies and labels are compared by value, because another translation of the same pipeline, or a
        loaded one, encodes rows in the same way.
        """
        other = BatchSchema.of(net)
        if different := self._columns(other) or self._hosts(other) or self._labels(other):
            raise BadInput(f"{what} was encoded by another translation: {different}; {_EXPECTED}")

    def _columns(self, other: BatchSchema) -> str:
        """Describe how the columns of batches differ; empty where they are equal."""
        ours, theirs = self.encoder, other.encoder
        if ours is theirs:
            return ""
        if ours.dtype != theirs.dtype:
            return f"its numbers are {ours.dtype}, and those of this one {theirs.dtype}"
        ids = [[category.column for category in encoder.categories] for encoder in (ours, theirs)]
        for what, columns in (("numbers", (ours.numbers, theirs.numbers)), ("ids", ids)):
            names, expected = _names(ours, theirs, columns[0]), _names(theirs, ours, columns[1])
            if names != expected:
                return f"its {what} are the columns {_listed(names)}, and those of this one {_listed(expected)}"
        for category, same in zip(ours.categories, theirs.categories, strict=True):
            if category.vocabulary != same.vocabulary:
                counts = f"{len(category.vocabulary.values):,} and {len(same.vocabulary.values):,}"
                name = theirs.column_name(same.column)
                return f"the two have {counts} categories in column {name}, with other ids for them"
        return ""

    def _hosts(self, other: BatchSchema) -> str:
        """Describe how steps on the host differ; empty where they are equal."""
        if len(self.hosts) != len(other.hosts):
            return f"it keeps {len(self.hosts)} steps on the host, and this one {len(other.hosts)}"
        for ours, theirs in zip(self.hosts, other.hosts, strict=True):
            if not ours.same_fit(theirs):
                return f"step {theirs.name!r}, kept on the host, is not the same fitted step"
        return ""

    def _labels(self, other: BatchSchema) -> str:
        """Describe how targets differ; empty where they are equal."""
        if self.head is other.head:
            return ""
        ours, theirs = self.head.classes, other.head.classes
        if (ours is None) != (theirs is None):
            task = ("a regression", "a classification")
            return f"its targets are those of {task[ours is not None]}, and this one is {task[theirs is not None]}"
        labels, expected = self.head.labels_in_order, other.head.labels_in_order
        if labels != expected:
            return f"its labels are {_listed(map(repr, labels))}, and those of this one {_listed(map(repr, expected))}"
        return ""


def _names(encoder: RowEncoder, other: RowEncoder, columns: list[int]) -> list[str]:
    """Names of columns where both encoders have names, else positions."""
    named = encoder.names is not None and other.names is not None
    return [encoder.column_name(column) if named else str(column) for column in columns]


def _listed(names: Iterable[str]) -> str:
    shown = list(names)
    return ", ".join(shown[:8]) + (f" and {len(shown) - 8} more" if len(shown) > 8 else "") or "none"
