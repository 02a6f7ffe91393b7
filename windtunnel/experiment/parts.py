"""The rows of an experiment: training, validation and test parts, from files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from windtunnel.encode.labels import labels_of
from windtunnel.errors import BadInput
from windtunnel.experiment.config import DataConfig
from windtunnel.experiment.files import read_table_file
from windtunnel.program.translated import TranslatedPipeline

PARTS = ("train", "valid", "test")
Part = tuple[pd.DataFrame, NDArray[Any]]


@dataclass(frozen=True)
class Parts:
    """Rows and targets of each part."""

    train: Part
    valid: Part
    test: Part
    # The labels of the classes 0 and 1 that ``positive`` makes of the target; None without it.
    classes: NDArray[Any] | None = None

    @property
    def held_out(self) -> dict[str, Part]:
        """The parts to score, by name."""
        return {"valid": self.valid, "test": self.test}

    def name_classes(self, *nets: TranslatedPipeline) -> None:
        """Name the classes 0 and 1 of translations by their labels; without ``classes``, do nothing."""
        if self.classes is not None:
            for net in nets:
                dtypes = {method: dtype for method, dtype in net.head.dtypes.items() if method != "predict"}
                net.replace_head(replace(net.head, classes=self.classes, dtypes=dtypes))


def load_parts(data: DataConfig) -> Parts:
    """Read the rows and targets of each part.

    Raises
    ------
    BadInput
        Missing columns, parts without rows, missing targets.
    FileNotFoundError
    """
    train = _read(data, data.train)
    frames = {"train": train}
    if data.split is not None:
        frames = _split_by_column(train, data.split)
    else:
        # Texts of the training rows are texts, even if a part holds numbers alone.
        texts = [name for name in train.columns if pd.api.types.is_string_dtype(train[name])]
        others = (("valid", data.valid), ("test", data.test))
        frames |= {part: _read(data, name, texts) for part, name in others if name}
        frames = _hold_out(frames, data)
    parts = [_rows_and_target(frames[part], part, data) for part in PARTS]
    targets = pd.concat([frames[part][data.target] for part in PARTS])
    classes = None if data.positive is None else _classes(targets, data.positive)
    return Parts(parts[0], parts[1], parts[2], classes)


def _classes(target: pd.Series, positive: Any) -> NDArray[Any]:
    """The labels of the classes 0 and 1, as the target has them; texts, such as "not yes", for more than two values."""
    values = target.unique().tolist()
    others = [value for value in values if value != positive]
    (label,) = (value for value in values if value == positive)
    return np.array([others[0] if len(others) == 1 else f"not {label}", label])


def _read(data: DataConfig, name: str, text: Sequence[str] = ()) -> pd.DataFrame:
    frame = read_table_file(data.folder / name, text=[*data.categorical, *text])
    named = {data.target, *data.drop, *data.categorical, *([data.split] if data.split else [])}
    if named - set(frame.columns):
        try:
            labels = labels_of(frame, sorted(named), reader="The config names")
        except BadInput as error:
            raise BadInput(f"{name}: {error}") from error
        frame = frame.rename(columns=dict(zip(labels, sorted(named), strict=True)))
    return frame


def _split_by_column(frame: pd.DataFrame, split: str) -> dict[str, pd.DataFrame]:
    if unknown := sorted({str(value) for value in frame[split].unique()} - set(PARTS)):
        raise BadInput(f"column {split!r} holds {', '.join(unknown[:5])}; each row needs one of {', '.join(PARTS)}")
    return {part: frame[frame[split] == part].drop(columns=split) for part in PARTS}


def _hold_out(frames: dict[str, pd.DataFrame], data: DataConfig) -> dict[str, pd.DataFrame]:
    """Move a fraction of the training rows to each part without a file."""
    train = frames["train"]
    order = np.random.default_rng(data.seed).permutation(len(train))
    for part, fraction in (("valid", data.validation_fraction), ("test", data.test_fraction)):
        if part not in frames:
            count = round(fraction * len(train))
            frames[part], order = train.iloc[np.sort(order[:count])], order[count:]
    return {**frames, "train": train.iloc[np.sort(order)]}


def _rows_and_target(frame: pd.DataFrame, part: str, data: DataConfig) -> Part:
    if frame.empty:
        raise BadInput(f"the {part} part has no rows; give more rows, or other fractions, files or values of the split")
    y = frame[data.target]
    if y.isna().any():
        raise BadInput(f"{int(y.isna().sum())} of {len(y)} values of the target {data.target!r} are missing in {part}")
    if y.dtype.kind in "mM":
        raise BadInput(f"the target {data.target!r} holds {y.dtype} values; it must hold numbers or labels of classes")
    X = frame.drop(columns=[data.target, *data.drop]).reset_index(drop=True)
    if data.positive is None:
        return X, y.to_numpy()
    positive = (y == data.positive).to_numpy()
    if part == "train" and not 0 < positive.sum() < len(positive):
        quotes = '. YAML reads yes and no without quotation marks as True and False: write "yes"'
        raise BadInput(
            f"{positive.sum()} of {len(positive)} training rows have the target {data.target!r} = {data.positive!r} "
            f"(positive=). Some rows must have this value, and some another; the target holds "
            f"{', '.join(map(repr, y.unique().tolist()[:10]))}{quotes * isinstance(data.positive, bool)}"
        )
    return X, positive.astype(np.int64)
