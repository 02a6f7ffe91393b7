"""A cascade as one file: a zip of the two models and a JSON text, nothing compressed."""

from __future__ import annotations

from io import BytesIO
from math import isfinite
from os import PathLike, fspath
from pathlib import Path
from typing import Any
from zipfile import ZIP_STORED, BadZipFile, ZipFile

from pydantic import TypeAdapter
from pydantic.dataclasses import dataclass

from windtunnel.atomic_write import write_atomically
from windtunnel.errors import BadFile, WindTunnelError
from windtunnel.export.artefact import artefact
from windtunnel.export.artefact.container import CASCADE
from windtunnel.program.translated import TranslatedPipeline
from windtunnel.serving.cascade.statistics import FeatureGroup
from windtunnel.serving.cascade.threshold import Threshold
from windtunnel.serving.cascade.timing import RowSeconds

FACTS, SMALL, FULL = CASCADE, "small.windtunnel", "full.windtunnel"


@dataclass(frozen=True)
class CascadeFacts:
    """The facts of a cascade, without its models."""

    groups: tuple[FeatureGroup, ...]
    efficient: tuple[str, ...]
    gamma: float
    threshold: Threshold | None
    seconds: RowSeconds | None = None


_ADAPTER = TypeAdapter(CascadeFacts)


def save(path: str | PathLike[str], small: TranslatedPipeline, full: TranslatedPipeline, facts: CascadeFacts) -> None:
    """Write a cascade; the file is moved into place when it is complete."""
    data = BytesIO()
    with ZipFile(data, "w", ZIP_STORED) as archive:
        archive.writestr(FACTS, _ADAPTER.dump_json(facts))
        for name, net in ((SMALL, small), (FULL, full)):
            archive.writestr(name, artefact.pack(net))
    write_atomically(path, data.getvalue())


def load(
    path: str | PathLike[str], host: Any, trusted: bool
) -> tuple[TranslatedPipeline, TranslatedPipeline, CascadeFacts]:
    """Read what ``save`` wrote: the small model, the full one, and the facts; see ``windtunnel.load``.

    Raises
    ------
    BadFile
        The file is damaged, or no cascade.
    """
    try:
        with ZipFile(path) as archive:
            members = archive.infolist()
            whole = [member.filename for member in members] == [FACTS, SMALL, FULL]
            if not whole or any(member.compress_type != ZIP_STORED for member in members):
                raise BadFile(f"{fspath(path)!r} is no cascade. Write one with cascade.save(path).")
            nets = [
                artefact.unpack(Path(path, name), archive.read(name), TranslatedPipeline, host=host, trusted=trusted)
                for name in (SMALL, FULL)
            ]
            facts = _ADAPTER.validate_json(archive.read(FACTS), strict=False)
            _check(nets[0], nets[1], facts)
    except WindTunnelError:
        raise
    except (BadZipFile, NotImplementedError, EOFError, ValueError) as error:
        raise BadFile(
            f"{fspath(path)!r} is damaged, cut short, or no cascade ({error}). windtunnel.load reads a single model."
        ) from error
    return nets[0], nets[1], facts


def _check(small: TranslatedPipeline, full: TranslatedPipeline, facts: CascadeFacts) -> None:
    """Raise ``ValueError`` for parts that do not fit together."""
    threshold, seconds = facts.threshold, facts.seconds
    numbers = [group.cost for group in facts.groups]
    numbers += [] if threshold is None else [threshold.confidence, threshold.early]
    times = [] if seconds is None else [seconds.cascade, seconds.full]
    finite = all(isfinite(number) and number >= 0 for number in numbers + times)
    if not facts.groups or not finite or 0 in times:
        raise ValueError("its groups, confidence and times are not those of a cascade")
    classify = threshold is not None
    if any((net.head.classes is not None) != classify for net in (small, full)):
        raise ValueError("its models do not predict what its threshold is for")
    if small.head.labels_in_order != full.head.labels_in_order:
        raise ValueError("its models have different classes")


def is_cascade(path: str | PathLike[str]) -> bool:
    """Whether a file is a zip with the facts of a cascade; the rest of it may be damaged."""
    try:
        with ZipFile(path) as archive:
            return FACTS in archive.namelist()
    except (BadZipFile, NotImplementedError, ValueError, EOFError, OSError):
        return False
