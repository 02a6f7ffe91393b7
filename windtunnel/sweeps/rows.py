"""The rows of a sweep, encoded once for all of its trials."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sklearn.utils import resample

from windtunnel.api.translation import Translation
from windtunnel.encode import Batch, as_frame, count_rows
from windtunnel.errors import BadInput
from windtunnel.trainers.data.batches import Batches
from windtunnel.trainers.data.items import check_classes
from windtunnel.trainers.data.loader import loader
from windtunnel.trainers.recipe import Recipe

CALIBRATE_ROWS = 5000


class SharedRows:
    """Training and validation rows as tensors, with what steps on the host answer for them.

    How rows are encoded goes by the pipeline and the calibration rows alone, not by anything that is swept; ``batches``
    makes certain of it.

    Parameters
    ----------
    net : Translation
        Any translation of the pipeline; encodes the rows.
    train, valid : (X, y) or (X, y, weight)
    """

    def __init__(self, net: Translation, train: Any, valid: Any) -> None:
        self._before = _layout(net)
        self.train = _encoded(net, train, "train", training=True)
        check_classes(net, self.train)
        self.valid = _encoded(net, valid, "valid", training=False).in_order()
        self._categories = net.encoder.categories

    def batches(self, net: Translation, recipe: Recipe) -> tuple[Batches, Batches]:
        """Give the rows to a trial: in its order, in batches of its size."""
        if _layout(net) != self._before:
            raise BadInput("the options of this trial change how rows are encoded; give them as fixed values")
        # Categories that the source rejects and that were let through to be trained on are no longer rejected.
        net.encoder.categories = [replace(one) for one in self._categories]
        train = copy.copy(self.train)
        train.batch_size, train.seed = recipe.rows_per_step(train.size), recipe.seed
        train.set_epoch(0)
        return train, copy.copy(self.valid)

    def some(self, count: int = 256) -> Batch:
        """The first validation rows."""
        few = copy.copy(self.valid)
        few.batch_size = count
        rows: Batch = next(iter(few))[0]
        return rows

    def facts(self) -> dict[str, Any]:
        """What tells these rows from others."""
        digest = hashlib.sha256()
        for part in (self.train, self.valid):
            assert part.target is not None
            digest.update(part.target.numpy(force=True).tobytes())
        return {"train_rows": self.train.size, "valid_rows": self.valid.size, "targets": digest.hexdigest()}


def calibration_rows(train: Any, seed: int) -> Any:
    """Up to 5,000 of the training rows."""
    X = _pair(train, "train")[0]
    rows = as_frame(X) if isinstance(X, Mapping) or hasattr(X, "to_pandas") else X
    return resample(rows, replace=False, n_samples=min(CALIBRATE_ROWS, count_rows(rows)), random_state=seed)


def _layout(net: Translation) -> Any:
    encoder = net.encoder
    categories = [replace(category) for category in encoder.categories]
    return list(encoder.numbers), categories, encoder.names, encoder.width, encoder.dtype


def _encoded(net: Translation, part: Any, role: str, *, training: bool) -> Batches:
    return loader(net, *_pair(part, role), training=training)


def _pair(part: Any, role: str) -> tuple[Any, ...]:
    if not isinstance(part, tuple) or isinstance(part, Batch) or len(part) not in (2, 3) or part[1] is None:
        raise BadInput(f"{role} is a {type(part).__name__}; a sweep takes (X, y) or (X, y, weight), rows raw")
    return part
