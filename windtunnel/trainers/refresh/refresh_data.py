"""The rows of a refresh: new ones, validation rows and old ones, encoded in one block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from windtunnel.encode import UNKNOWN_ID, Batch, as_frame
from windtunnel.encode.row_values import to_arrays
from windtunnel.encode.rows import count_rows, dimensions
from windtunnel.encode.rows_with_targets import is_loader, rows_with_targets
from windtunnel.errors import BadInput
from windtunnel.program.translated import TranslatedPipeline
from windtunnel.trainers.data.class_weights import refresh_class_weights
from windtunnel.trainers.data.encoding import check_weights, encode
from windtunnel.trainers.data.hold_out import can_hold_out, hold_out_mask, why_not_held_out
from windtunnel.trainers.data.labelled_rows import LabelledRows, Targets
from windtunnel.trainers.data.loader_adapter import LoaderAdapter

HELD_OUT = 0.2
ACCEPTED = "refresh takes (X, y) or (X, y, weight), or a loader of such batches"


@dataclass(frozen=True)
class RefreshData:
    """New rows, validation rows and old rows, one after the other."""

    rows: Batch
    target: Tensor
    weight: Tensor
    # all of them bool ``[N]``
    new: Tensor  # new rows to fit
    tested: Tensor  # validation rows, or held-out new ones, whose loss must be lower
    old: Tensor  # old rows to fit again
    held_out_old: Tensor  # old rows whose loss must not be higher
    all_new: Tensor  # new rows, those that are held out too
    class_weights: Tensor | None  # ``[K]``, which ``weight`` is multiplied by

    @classmethod
    def of(cls, net: TranslatedPipeline, new: Any, valid: Any, replay: Any, seed: int) -> RefreshData:
        """Encode the rows; a fifth of the old rows is held out, and of the new ones without validation rows."""
        for name, data in (("new", new), ("valid", valid), ("replay", replay)):
            if data is not None and not isinstance(data[0], Batch) and count_rows(data[0]) == 0:
                raise BadInput(f"{name} has no rows; give at least one")
        parts = [_encode(net, *data) for data in (new, valid, replay) if data is not None]
        rows = Batch.concatenate(part.rows for part in parts)
        target, weight = map(torch.cat, zip(*(part.targets for part in parts), strict=True))
        at = torch.arange(len(target))
        is_new, is_old = at < len(parts[0]), at >= len(target) - (0 if replay is None else len(parts[-1]))
        known = LabelledRows(rows, Targets(target, weight)).take(is_old if is_old.any() else is_new)
        class_weights = refresh_class_weights(net, known)
        if class_weights is not None:
            weight = weight * class_weights.to(weight.dtype)[target]
        for part in (is_new | is_old, ~(is_new | is_old)):  # a common factor of weights changes nothing
            weight[part] /= weight[part & (weight > 0)].mean()
        tested = ~(is_new | is_old) if valid is not None else _hold_out(is_new, target, weight, seed)
        held_out = _hold_out(is_old, target, weight, seed) if is_old.any() else is_old
        return cls(rows, target, weight, is_new & ~tested, tested, is_old & ~held_out, held_out, is_new, class_weights)

    def take(self, mask: Tensor) -> LabelledRows:
        """Rows, targets and weights where ``mask``."""
        return LabelledRows(self.rows, Targets(self.target, self.weight)).take(mask)


def read_input(net: TranslatedPipeline, name: str, data: Any) -> tuple[Any, Any, Any] | None:
    """Rows, targets and weights, None where there are none: those of a tuple, or of all items of a loader.

    ``BadInput`` for anything else, and for a loader that another translation encodes.
    """
    if data is None and name != "new":
        return None
    if isinstance(data, tuple):
        return rows_with_targets(f"{name}= is", data, ACCEPTED)
    if isinstance(data, float):
        raise BadInput(
            f"{name}={data} is a fraction of rows, but a translation keeps no rows, only their counts and quantiles. "
            f"Give the rows themselves; a sample of them will do: {name}=(X_old, y_old)"
        )
    if not is_loader(data):
        raise BadInput(f"{name}= is a {type(data).__name__}; {ACCEPTED}")
    if (schema := LoaderAdapter(net, data).schema) is not None:
        schema.check(net, f"the loader {name}=")
    items = [rows_with_targets(f"the loader {name}= yielded", item) for item in data]
    if not items:
        raise BadInput(f"the loader {name}= yielded nothing; give at least one batch")
    rows, targets, weights = map(list, zip(*items, strict=True))
    if len({weight is None for weight in weights}) > 1:
        raise BadInput(f"the loader {name}= yielded weights with some batches only; give all of them weights, or none")
    return _concatenate(rows), _concatenate(targets), None if weights[0] is None else _concatenate(weights)


def _concatenate(parts: list[Any]) -> Any:
    """The rows, targets or weights of all batches."""
    first = parts[0]
    if isinstance(first, Batch):
        return Batch.concatenate(parts)
    if isinstance(first, Tensor):
        return torch.cat(parts)
    if isinstance(first, np.ndarray) or dimensions(first) == 1:
        return np.concatenate([np.asarray(part) for part in parts])
    return pd.concat([as_frame(to_arrays(part)) for part in parts], ignore_index=True)


def _encode(net: TranslatedPipeline, X: Any, y: Any, weight: Any) -> LabelledRows:
    """Encoded rows, with a weight of 1 where there are none."""
    if isinstance(X, Batch):  # encoded before ids for new categories were added
        added = len(net.encoder.categories) - X.ids.shape[1]
        X = Batch(X.numbers, torch.nn.functional.pad(X.ids, (0, max(added, 0)), value=UNKNOWN_ID))
    rows, target, weights = encode(net, X, y, weight, training=True)
    assert target is not None
    check_weights(weights)
    return LabelledRows(rows, Targets(target, torch.ones(len(target)) if weights is None else weights))


def _hold_out(rows: Tensor, target: Tensor, weight: Tensor, seed: int) -> Tensor:
    """A fifth of some rows, bool ``[N]``."""
    target, weight = target[rows], weight[rows]
    chosen = hold_out_mask(target, weight, HELD_OUT, seed)
    if not can_hold_out(chosen, target, weight):
        raise BadInput(f"a fifth of the rows cannot be held out: {why_not_held_out(target, weight)}; give more rows")
    mask = torch.zeros_like(rows)
    mask[rows] = chosen
    return mask
