"""The profile of the training rows as data and three tensors, and back."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from windtunnel.errors import BadFile
from windtunnel.export.artefact.layout import ColumnProfileData, ProfileData
from windtunnel.program.records.training_profile import ColumnProfile, TrainingProfile

NAMES = ("counts", "edges", "means")
DTYPES = (torch.int64, torch.float64, torch.float64)


def profile_data(profile: TrainingProfile) -> ProfileData:
    """The sizes of a profile."""
    columns = [
        ColumnProfileData(column=each.column, counts=len(each.counts), edges=len(each.edges) if each.numeric else None)
        for each in profile.columns
    ]
    return ProfileData(rows=profile.rows, columns=columns)


def profile_tensors(profile: TrainingProfile) -> dict[str, Tensor]:
    """Counts, edges and means, column after column."""
    return {
        name: torch.cat([torch.empty(0, dtype=dtype), *(getattr(each, name) for each in profile.columns)])
        for name, dtype in zip(NAMES, DTYPES, strict=True)
    }


def read_profile(data: ProfileData | None, tensors: Mapping[str, Tensor]) -> TrainingProfile | None:
    """Build a profile; ``BadFile`` for tensors that do not fit its sizes."""
    if data is None:
        if tensors:
            raise BadFile("tensors of a profile of training rows, which the JSON does not have.")
        return None
    counts = [each.counts for each in data.columns]
    edges = [each.edges or 0 for each in data.columns]
    means = [0 if each.edges is None else each.counts for each in data.columns]
    wrong = [each.column for each in data.columns if each.edges is not None and each.counts != each.edges + 2]
    sizes = {name: sum(part) for name, part in zip(NAMES, (counts, edges, means), strict=True)}
    dtypes = dict(zip(NAMES, DTYPES, strict=True))
    if wrong or {name: (len(v), v.dtype) for name, v in tensors.items() if v.ndim == 1} != {
        name: (sizes[name], dtypes[name]) for name in NAMES
    }:
        raise BadFile("the tensors of the profile of the training rows do not fit its columns.")
    if (tensors["counts"] < 0).any() or not tensors["edges"].isfinite().all() or not tensors["means"].isfinite().all():
        raise BadFile("the profile of the training rows has negative counts or numbers that are not finite.")
    parts = [tensors[name].split(part) for name, part in zip(NAMES, (counts, edges, means), strict=True)]  # type: ignore[no-untyped-call]
    columns = zip(data.columns, *parts, strict=True)
    return TrainingProfile(data.rows, tuple(ColumnProfile(each.column, *blocks) for each, *blocks in columns))
