"""The rows of a sweep, encoded once for all of its trials."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sklearn.utils import resample

from windtunnel.encode import Batch, as_frame, count_rows
from windtunnel.encode.rows_with_targets import rows_with_targets
from windtunnel.errors import BadInput, InvalidOption
from windtunnel.program.translate_options import MAX_CALIBRATION_ROWS
from windtunnel.program.translated import TranslatedPipeline
from windtunnel.trainers.data.encoded_rows import EncodedRows
from windtunnel.trainers.data.loader import loader
from windtunnel.trainers.recipe import Recipe

FINGERPRINTED_ROWS = 10_000
"""Rows of each part that the fingerprint covers, evenly spaced, if rows are encoded when they are read; else all."""
COSTED_ROWS = 256
"""Validation rows whose operations are counted, as the cost of inference."""


class SharedRows:
    """Training and validation rows as tensors, with the outputs of host steps.

    The encoding depends on the pipeline and the calibration rows, not on swept options; ``batches`` checks that. So any
    translation of the pipeline can encode them.
    """

    def __init__(self, net: TranslatedPipeline, train: Any, valid: Any) -> None:
        self._layout = _layout(net)
        self.train = loader(net, *_checked_rows(train, "train"), training=True)
        self.train.check_classes(net)
        self.valid = loader(net, *_checked_rows(valid, "valid"), training=False).in_order()
        self._categories = net.encoder.categories

    def batches(self, net: TranslatedPipeline, recipe: Recipe) -> tuple[EncodedRows, EncodedRows]:
        """The training rows in the recipe's order and batch size, and the validation rows."""
        if _layout(net) != self._layout:
            raise InvalidOption("the options of this trial change how rows are encoded; give them as fixed values")
        # Training rows may hold categories that the source rejects; the encoder of the trial has to accept them too.
        net.replace_categories([replace(category) for category in self._categories])
        train = copy.copy(self.train)
        train.batch_size, train.seed = recipe.rows_per_step(train.size), recipe.seed
        train.set_epoch(0)
        return train, copy.copy(self.valid)

    def first_valid(self) -> Batch:
        """The first validation rows, for the cost of inference."""
        valid = copy.copy(self.valid)
        valid.batch_size = COSTED_ROWS
        rows: Batch = next(iter(valid))[0]
        return rows

    def fingerprint(self) -> dict[str, Any]:
        """Numbers of rows, and hashes of the targets and of the encoded rows and weights, as JSON values.

        Of rows that are encoded when they are read, evenly spaced ones count.
        """
        targets, rows = hashlib.sha256(), hashlib.blake2b(digest_size=32)
        for part in (self.train, self.valid):
            assert part.target is not None
            targets.update(part.target.numpy(force=True).tobytes())
            for block in (*part.in_order().collect(FINGERPRINTED_ROWS)[0], part.weight):
                rows.update(b"" if block is None else block.contiguous().numpy(force=True).tobytes())
        sizes = {"train_rows": self.train.size, "valid_rows": self.valid.size}
        return {**sizes, "targets": targets.hexdigest(), "rows": rows.hexdigest()}


def digest(rows: Batch) -> str:
    """A hash of encoded rows."""
    return hashlib.blake2b(b"".join(block.contiguous().numpy(force=True).tobytes() for block in rows)).hexdigest()


def calibration_rows(train: Any, seed: int) -> Any:
    """Draw up to 5,000 training rows."""
    X = _checked_rows(train, "train")[0]
    rows = as_frame(X) if isinstance(X, Mapping) or hasattr(X, "to_pandas") else X
    return resample(rows, replace=False, n_samples=min(MAX_CALIBRATION_ROWS, count_rows(rows)), random_state=seed)


def _layout(net: TranslatedPipeline) -> Any:
    encoder = net.encoder
    categories = [replace(category) for category in encoder.categories]
    return list(encoder.numbers), categories, encoder.names, encoder.width, encoder.dtype


def _checked_rows(part: Any, name: str) -> tuple[Any, Any, Any]:
    accepted = "a sweep takes (X, y) or (X, y, weight) with raw rows"
    if isinstance(part, list):  # of batches
        raise BadInput(f"{name} is a list; {accepted}")
    return rows_with_targets(f"{name} is", part, accepted)
