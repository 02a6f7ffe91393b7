"""What rows were encoded by, so that no other translation takes their ids for its own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from windtunnel.encode import RowEncoder
from windtunnel.errors import BadInput
from windtunnel.pipeline.host_step import HostStep
from windtunnel.program.head import Head
from windtunnel.trainers.data.order import behind

if TYPE_CHECKING:
    from windtunnel.api.translation import Translation

_NEED = "train on what this one encodes: windtunnel.loader(net, X, y), windtunnel.stream(net, ...) or (X, y)"


@dataclass(frozen=True)
class Encoding:
    """What a number and an id of a batch mean, and a target.

    Attributes
    ----------
    encoder : RowEncoder
        The columns, their order and their vocabularies.
    hosts : list of HostStep
        Whose answers are columns too.
    head : Head
        Its labels are the order of the targets.
    """

    encoder: RowEncoder
    hosts: list[HostStep]
    head: Head

    @classmethod
    def of(cls, net: Translation) -> Encoding:
        """That of a translation."""
        return cls(net.encoder, net.hosts, net.head)

    def check(self, net: Translation, what: str) -> None:
        """Reject to take for batches of a translation what another one has encoded otherwise.

        One of the same pipeline, translated or loaded again, encodes alike: what decides is that the columns, their
        vocabularies and the labels are equal, not that they are the same objects.
        """
        other = Encoding.of(net)
        if different := self._columns(other) or self._hosts(other) or self._labels(other):
            raise BadInput(f"{what} was encoded by another translation: {different}; {_NEED}")

    def _columns(self, other: Encoding) -> str:
        """How the columns of batches differ, in words; nothing where they do not."""
        ours, theirs = self.encoder, other.encoder
        if ours is theirs:
            return ""
        if ours.dtype != theirs.dtype:
            return f"its numbers are {ours.dtype}, and those of this one {theirs.dtype}"
        if (given := _names(ours, theirs, ours.numbers)) != (wanted := _names(theirs, ours, theirs.numbers)):
            return f"its numbers are the columns {_listed(given)}, and those of this one {_listed(wanted)}"
        columns = [[one.column for one in encoder.categories] for encoder in (ours, theirs)]
        if (given := _names(ours, theirs, columns[0])) != (wanted := _names(theirs, ours, columns[1])):
            return f"its ids are the columns {_listed(given)}, and those of this one {_listed(wanted)}"
        for one, two in zip(ours.categories, theirs.categories, strict=True):
            if one.vocabulary != two.vocabulary:
                counts = f"{len(one.vocabulary.values):,} and {len(two.vocabulary.values):,}"
                return f"the two have {counts} categories in column {theirs.name(two.column)}, with other ids for them"
        return ""

    def _hosts(self, other: Encoding) -> str:
        """How answers of steps on the host differ, in words."""
        if len(self.hosts) != len(other.hosts):
            return f"it keeps {len(self.hosts)} steps on the host, and this one {len(other.hosts)}"
        for ours, theirs in zip(self.hosts, other.hosts, strict=True):
            if not _alike(ours, theirs):
                return f"step {theirs.name!r}, kept on the host, is not the same fitted step"
        return ""

    def _labels(self, other: Encoding) -> str:
        """How targets differ, in words."""
        if self.head is other.head:
            return ""
        ours, theirs = self.head.classes, other.head.classes
        if (ours is None) != (theirs is None):
            task = ("a regression", "a classification")
            return f"its targets are those of {task[ours is not None]}, and this one is {task[theirs is not None]}"
        given, wanted = self.head.labels_in_order, other.head.labels_in_order
        if given != wanted:
            return f"its labels are {_listed(map(repr, given))}, and those of this one {_listed(map(repr, wanted))}"
        return ""


def encoding_of(loader: Any) -> Encoding | None:
    """What the batches of a loader were encoded by, or of one that it reads from; None where nobody knows."""
    while loader is not None:
        if isinstance(found := getattr(loader, "encoding", None), Encoding):
            return found
        loader = behind(loader)
    return None


def _names(encoder: RowEncoder, other: RowEncoder, columns: list[int]) -> list[str]:
    """What tells columns of two encoders apart: names where both have them, else positions."""
    named = encoder.names is not None and other.names is not None
    return [encoder.name(column) if named else str(column) for column in columns]


def _alike(ours: HostStep, theirs: HostStep) -> bool:
    """Whether two steps on the host are the same fitted one, or count the same terms as far as a file can say it."""
    from windtunnel.export.artefact.parts import host_data

    if ours.columns == theirs.columns and ours.step.estimator is theirs.step.estimator is not None:
        return True
    told = host_data(ours)
    return told.counter is not None and told == host_data(theirs)


def _listed(names: Iterable[str]) -> str:
    shown = list(names)
    return ", ".join(shown[:8]) + (f" and {len(shown) - 8} more" if len(shown) > 8 else "") or "none"
