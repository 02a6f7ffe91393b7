"""The rows of fine-tuning as Lightning takes them: training batches, and validation batches in order."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import Any

import pytorch_lightning as pl
import torch

from windtunnel.encode import Batch
from windtunnel.errors import warn_caller
from windtunnel.program.records.fit_record import HELD_OUT, OUT_OF_FOLD
from windtunnel.program.records.history_notes import MUCH_SHARED, shared_rows_note
from windtunnel.program.translated import TranslatedPipeline
from windtunnel.progress import announce
from windtunnel.trainers.data.class_weights import source_class_weights
from windtunnel.trainers.data.encoded_loader import EncodedLoader
from windtunnel.trainers.data.encoded_rows import EncodedRows, LazilyEncodedRows
from windtunnel.trainers.data.fit_input import FitInput
from windtunnel.trainers.data.hold_out import why_not_held_out
from windtunnel.trainers.data.shared_rows import shared_fraction
from windtunnel.trainers.processes import world
from windtunnel.trainers.recipe import Recipe


class Loaders(pl.LightningDataModule):
    """Training and validation rows as loaders of encoded batches."""

    def __init__(self, train: EncodedLoader, valid: EncodedLoader) -> None:
        super().__init__()
        self.train, self.valid = train, valid

    def train_dataloader(self) -> EncodedLoader:
        """The training batches."""
        return self.train

    def val_dataloader(self) -> EncodedLoader:
        """The validation batches, in order."""
        return self.valid

    def to(self, device: torch.device) -> None:
        """Move rows in memory to a device, once for all epochs."""
        self.train, self.valid = self.train.to(device), self.valid.to(device)

    def place(self, device: torch.device) -> None:
        """Move rows in memory to a GPU if they take under a quarter of its free memory; else pin their batches."""
        if device.type != "cuda":
            return
        if self.train.nbytes + self.valid.nbytes < torch.cuda.mem_get_info(device)[0] / 4:
            self.to(device)
            return
        self.train.pin()
        self.valid.pin()


class DataModule(Loaders):
    """Training and validation rows, encoded.

    Without validation rows, a part of the training rows is held out if they are in memory: ``(X, y)``, a
    ``windtunnel.loader``, or a loader whose rows fit in ``loader_memory``. For larger loaders, and for too few rows to
    hold any out, training rows are the validation rows. With several processes that train together, a loader yields the
    rows of its process, and is read in each epoch.
    """

    def __init__(
        self, net: TranslatedPipeline, train: Any, valid: Any = None, recipe: Recipe | None = None, processes: int = 1
    ) -> None:
        recipe, processes = recipe or Recipe(), max(processes, world())
        rows = FitInput(net, recipe, "train", train, processes, validated=valid is not None).encoded()
        rows.check_classes(net)
        others = None if valid is None else FitInput(net, recipe, "valid", valid, processes).encoded()
        if isinstance(rows, EncodedRows):
            rows = rows.counted()
        rows, valid_rows, self.validated_on = _with_validation_rows(rows, others, recipe)
        if isinstance(rows, EncodedRows):
            rows.check_batches("train, without rows of weight 0 and rows held out,")
        self.shared_fraction = None if others is None else _shared_fraction(rows, others)
        self._is_batched = isinstance(train, EncodedRows) and train.is_batched  # by the caller
        weights = source_class_weights(net, rows, valid_rows) if recipe.class_weight == "source" else None
        self.class_weights = weights  # float64 ``[K]``, which the weights of rows are multiplied by; or None
        if weights is not None:
            assert isinstance(rows, EncodedRows) and isinstance(valid_rows, EncodedRows)
            rows, valid_rows = rows.with_class_weights(weights), valid_rows.with_class_weights(weights)
        super().__init__(self._in_batches(rows, recipe), valid_rows.in_order())

    def batched(self, recipe: Recipe) -> DataModule:
        """The same rows, the training rows in the batches of a recipe; as they are if the caller made the batches."""
        data = copy(self)
        data.train = self._in_batches(self.train, recipe)
        return data

    def _in_batches(self, rows: EncodedLoader, recipe: Recipe) -> EncodedLoader:
        if self._is_batched or not isinstance(rows, EncodedRows):
            return rows
        return replace(rows, batch_size=recipe.rows_per_step(rows.size))

    @property
    def validates_on_training_rows(self) -> bool:
        """Whether there are no other rows, so that no gain can be tested."""
        return self.validated_on == "training rows"

    @property
    def encoded_rows(self) -> Batch | None:
        """Encoded training rows in memory; None if they are streamed, or encoded batch by batch."""
        return None if isinstance(self.train, LazilyEncodedRows) else self.train.rows


def _with_validation_rows(
    rows: EncodedLoader, valid: EncodedLoader | None, recipe: Recipe
) -> tuple[EncodedLoader, EncodedLoader, str]:
    """Training rows, validation rows, and what the latter are: those of the caller, held-out ones, or training rows."""
    if valid is not None:
        return rows, valid, "validation rows"
    if (split := rows.hold_out(recipe.validation_fraction, recipe.seed)) is not None:
        return *split, HELD_OUT if split[1].scores is None else OUT_OF_FOLD
    if isinstance(rows, EncodedRows) and rows.target is not None:  # FitInput warns of loaders
        warn_caller(
            f"fit cannot hold training rows out: {why_not_held_out(rows.target, rows.weight)}. It validates on "
            f"training rows{', and trains nothing' if recipe.residual else ''}. Give validation rows as valid=.",
        )
    return rows, rows, "training rows"


def _shared_fraction(train: EncodedLoader, valid: EncodedLoader) -> float | None:
    """Return the fraction of validation rows that are training rows; write a line if it is ``MUCH_SHARED`` or more."""
    if not (isinstance(train, EncodedRows) and isinstance(valid, EncodedRows)):
        return None
    fraction = shared_fraction(train, valid)
    if fraction is not None and fraction >= MUCH_SHARED:
        announce(f"fit: {shared_rows_note(fraction)}")
    return fraction
