"""The meaning of the columns and targets of encoded batches."""

from __future__ import annotations

from dataclasses import dataclass

from windtunnel.encode import RowEncoder
from windtunnel.errors import BadInput, join_some
from windtunnel.pipeline.host_step import HostStep
from windtunnel.program.head import Head
from windtunnel.program.translated import TranslatedPipeline

_EXPECTED = "train on rows that this one encodes: windtunnel.loader(net, X, y), windtunnel.stream(net, ...) or (X, y)"


@dataclass(frozen=True)
class BatchSchema:
    """The meaning of numbers, ids and targets in a batch."""

    encoder: RowEncoder  # the columns, their order and their vocabularies
    hosts: list[HostStep]  # steps on the host, whose outputs are further columns
    head: Head  # labels, in the order of the encoded targets

    @classmethod
    def of(cls, net: TranslatedPipeline) -> BatchSchema:
        """The schema of the batches that a translation encodes."""
        return cls(net.encoder, net.hosts, net.head)

    def check(self, net: TranslatedPipeline, what: str) -> None:
        """Raise ``BadInput`` if a translation encodes rows in another way.

        Columns, vocabularies and labels are compared by value, because another translation of the same pipeline, or a
        loaded one, encodes rows in the same way.
        """
        if difference := self._difference(BatchSchema.of(net)):
            raise BadInput(f"{what} was encoded by another translation: {difference}; {_EXPECTED}")

    def _difference(self, other: BatchSchema) -> str:
        """How two schemas differ; empty where they are equal."""
        named = self.encoder.names is not None and other.encoder.names is not None
        facts, expected = self._facts(named), other._facts(named)
        for name, values in facts.items():
            if values != expected[name]:
                return f"its {name} are {_listed(values)}, and those of this one {_listed(expected[name])}"
        for category, same in zip(self.encoder.categories, other.encoder.categories, strict=True):
            if category.vocabulary != same.vocabulary:
                counts = f"{len(category.vocabulary.values):,} and {len(same.vocabulary.values):,}"
                name = other.encoder.column_name(same.column)
                return f"the two have {counts} categories in column {name}, with other ids for them"
        for host, same_host in zip(self.hosts, other.hosts, strict=True):
            if not host.same_fit(same_host):
                return f"step {same_host.name!r}, kept on the host, is not the same fitted step"
        return ""

    def _facts(self, named: bool) -> dict[str, list[str]]:
        """Facts that are equal in equal schemas; columns by name or, unless both encoders have names, by position."""
        encoder = self.encoder
        ids = [category.column for category in encoder.categories]
        numbers, categories = (
            [encoder.column_name(column) if named else str(column) for column in columns]
            for columns in (encoder.numbers, ids)
        )
        return {
            "numbers": [encoder.dtype],
            "columns of numbers": numbers,
            "columns of categories": categories,
            "steps on the host": [host.estimator for host in self.hosts],
            "labels": [repr(label) for label in self.head.labels_in_order],
        }


def _listed(names: list[str]) -> str:
    return join_some(names, 8) or "none"
