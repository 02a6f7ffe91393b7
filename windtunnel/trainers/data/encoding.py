"""Checks and encodes the rows, targets and weights that loaders yield."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from windtunnel.encode import Batch
from windtunnel.encode.row_values import check_length, encode_weights, to_arrays
from windtunnel.encode.rows_with_targets import rows_with_targets
from windtunnel.errors import BadInput
from windtunnel.program.translated import TranslatedPipeline
from windtunnel.trainers.data.encoded_loader import Item

ACCEPTED = (
    "fit takes an iterable of (rows, target) or (rows, target, weight), where rows are a DataFrame, an Arrow table, "
    "an array, a dict of columns or an encoded Batch; all rows at once are a tuple (X, y) or (X, y, weight)"
)


def encode_item(net: TranslatedPipeline, item: Any, *, training: bool = False) -> Item:
    """Encode an item of a loader, ``(rows, target)`` or ``(rows, target, weight)``."""
    rows, target, weight = encode(net, *rows_with_targets("the loader yielded", item, ACCEPTED), training=training)
    assert target is not None
    if rows.numbers.shape[0] == 0:
        raise BadInput("the loader yielded a batch without rows; leave it out")
    return (rows, target) if weight is None else (rows, target, weight)


def encode(
    net: TranslatedPipeline, X: Any, y: Any = None, weight: Any = None, *, training: bool
) -> tuple[Batch, Tensor | None, Tensor | None]:
    """Encode rows, and targets and weights if there are any, as tensors."""
    encoded = isinstance(X, Batch)
    rows = X if isinstance(X, Batch) else net.encode(to_arrays(X), training=training)
    if y is not None and not encoded and not training:  # training rows are checked by net.encode
        net.check_rows(rows)
    count = rows.numbers.shape[0]
    target = None
    if y is not None:
        check_length("y", y, count)
        target = _checked_target(net, y) if encoded and isinstance(y, Tensor) else net.head.encode_target(to_arrays(y))
    return rows, target, None if weight is None else encode_weights(weight, count)


def check_weights(weights: Tensor | None) -> None:
    """Raise ``BadInput`` if all rows have weight 0."""
    if weights is not None and not weights.any():
        raise BadInput(f"all {len(weights)} weights are 0; give at least one row a weight above 0")


def _checked_target(net: TranslatedPipeline, target: Tensor) -> Tensor:
    """The encoded target, checked: class indices in range, or finite values."""
    if net.head.classes is None:
        if not target.isfinite().all():
            bad = int((~target.isfinite()).sum())
            raise BadInput(f"y has {bad} values that are NaN or infinite; drop these rows")
        return net.head.repeat_target(target.float())
    classes = len(net.head.classes)
    in_range = target.numel() == 0 or (target.min() >= 0 and target.max() < classes)
    if target.is_floating_point() or target.ndim != 1 or not in_range:
        raise BadInput(
            f"with encoded rows, the target is a tensor of shape {tuple(target.shape)} and dtype {target.dtype} with "
            f"values from {target.min().item()} to {target.max().item()}; give class indices int64 [B] from 0 to "
            f"{classes - 1}, as windtunnel.loader yields them, or original labels as an array"
        )
    return target.long()


class SeenClasses:
    """Checks that a classifier's targets hold at least two classes; stops looking once there are two."""

    def __init__(self, net: TranslatedPipeline) -> None:
        self._labels = net.head.labels_in_order or None
        self._only: int | None = None
        self._enough = self._labels is None

    def see(self, target: Tensor, weight: Tensor | None = None) -> None:
        """Look at the encoded targets of a batch; rows of weight 0 do not count."""
        if self._enough:
            return
        if weight is not None:
            target = target[weight > 0]
        if target.numel() == 0:
            return
        low, high = int(target.min()), int(target.max())
        self._enough = low != high or self._only not in (None, low)
        self._only = low

    def check(self) -> None:
        """Raise ``BadInput`` if the targets of a classifier hold one class only."""
        if not self._enough and self._labels is not None and self._only is not None:
            raise BadInput(
                f"every training target is {self._labels[self._only]!r}; a classifier is fine-tuned on rows of at "
                f"least two of its classes {', '.join(map(repr, self._labels[:10]))}: give rows of another one"
            )
