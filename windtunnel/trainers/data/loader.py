"""Rows as ready batches: encoded once and sliced, or encoded on the fly from any loader."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from typing import Any

import numpy as np
import torch

from windtunnel.encode import Batch, as_column, as_frame, indexable
from windtunnel.errors import BadInput
from windtunnel.program.translated import TranslatedPipeline
from windtunnel.trainers.data.batches import Batches, Item, Streamed
from windtunnel.trainers.data.items import ACCEPTED, Classes, encode, encode_item, plain
from windtunnel.trainers.data.order import resumable
from windtunnel.trainers.data.schema import BatchSchema
from windtunnel.trainers.loop.processes import in_step, world

_EMPTY = f"the loader yielded nothing; {ACCEPTED}: give at least one batch"


class Encoded:
    """A loader of raw rows, seen as one of encoded batches: each item is encoded when it comes.

    Items are ``(rows, target)`` or ``(rows, target, weight)``. Rows are what the translation encodes (DataFrame, Arrow
    table, array, dict of columns), a tensor ``[B, columns]``, or a ``Batch``; beside a ``Batch``, a target that is a
    tensor is taken as encoded, as ``windtunnel.loader`` yields it. An iterator, which can be read only once, is read
    to its end at the first pass and its encoded batches are kept.

    Parameters
    ----------
    net : TranslatedPipeline
        Encodes rows and targets.
    loader : iterable
        A DataLoader, a list, a generator, anything that yields such items.
    training : bool
        Whether the rows are for training; then targets of one class only are rejected.
    """

    def __init__(self, net: TranslatedPipeline, loader: Iterable[Any], *, training: bool = False) -> None:
        if not isinstance(loader, Iterable):
            raise BadInput(f"a loader of type {type(loader).__name__} cannot be iterated; {ACCEPTED}")
        if isinstance(loader, Sized) and _length(loader) == 0:
            raise BadInput(_EMPTY)
        self.net = net
        self.loader = loader
        self.training = training
        self._kept: list[Item] | None = None

    def __len__(self) -> int:
        if self._kept is not None:
            return len(self._kept)
        return len(self.loader)  # type: ignore[arg-type]  # a TypeError says that the length is not known

    def set_epoch(self, epoch: int) -> None:
        """Pass the epoch on to the loader, its samplers and its rows, where they ask for it."""
        parts = (getattr(self.loader, name, None) for name in ("sampler", "batch_sampler", "dataset"))
        for part in (self.loader, *parts):
            if callable(hook := getattr(part, "set_epoch", None)):
                hook(epoch)

    def sample(self, count: int) -> Item | None:
        """At most ``count`` rows from all over, where the loader can give them."""
        return encode_item(self.net, self.loader.sample(count)) if hasattr(self.loader, "sample") else None

    def in_order(self) -> Encoded:
        """The same rows to judge by: unshuffled, where the loader can."""
        # torch's own DataLoader has a setting of that name.
        hook = getattr(self.loader, "in_order", None)
        return Encoded(self.net, hook()) if callable(hook) else self

    def __iter__(self) -> Iterator[Item]:
        # A generator: a DataLoader draws its order when the first batch is asked for, not when the epoch is prepared.
        if isinstance(self.loader, Iterator) and self._kept is None:
            self._kept = list(self._encoded(self.loader))
        yield from self._encoded(self.loader) if self._kept is None else self._kept

    def _encoded(self, items: Iterable[Any]) -> Iterator[Item]:
        count, classes, parts = 0, Classes(self.net), None
        announced = (_length(items) or 0) if isinstance(items, Sized) else 0
        if announced and (source := resumable(items)) is not None:
            announced -= source.skipped
        if self.training and not announced and world() > 1:
            items = in_step(items)
        for count, item in enumerate(items, start=1):  # noqa: B007  # read after the loop
            encoded = encode_item(self.net, item, training=self.training)
            if len(encoded) != (parts := parts or len(encoded)):
                which = "weights and those before it none" if parts == 2 else "no weights and those before it some"
                raise BadInput(f"batch {count} of the loader has {which}; give all of them weights, such as 1, or none")
            if self.training:
                classes.see(encoded[1])
                # Whoever knows the length asks for no more than that, and would never come past the loop.
                if count == announced:
                    classes.check()
            yield encoded
        if count == 0:
            raise BadInput(_EMPTY)
        # An epoch that ends before its announced length would go unjudged.
        if count < announced:
            raise BadInput(f"the loader yielded {count} batches and its len() is {announced}; make the two agree")
        if self.training:
            classes.check()


def loader(
    net: TranslatedPipeline,
    X: Any,
    y: Any = None,
    weight: Any = None,
    *,
    batch_size: int = 4096,
    shuffle: bool = True,
    seed: int = 0,
    drop_last: bool = False,
    training: bool = True,
) -> Batches:
    """Encode rows and targets once, and hand them out as batches that are slices of tensors.

    Where steps of the translation stay on the host and ``untranslated="stream"``, rows are encoded batch by batch.

    Parameters
    ----------
    net : TranslatedPipeline
        Encodes rows and targets.
    X : DataFrame, Arrow table, array or dict of columns
        Raw rows.
    y : array-like, optional
        Original targets, one per row; without them the bare ``Batch`` is yielded.
    weight : array-like, optional
        Row weights, from 0.
    batch_size, shuffle, seed, drop_last
        See ``Batches``.
    training : bool
        Passed on to ``net.encode``.

    Returns
    -------
    Batches

    Raises
    ------
    BadInput
        For no rows, for targets or weights of another length, missing or unknown targets, weights below 0.
    """
    raw = _sliceable(plain(X), net.encoder.flat) if _streams(net) and not isinstance(X, Batch) else None
    given, labels = (X, y) if raw is None else (_numbered(raw.shape[0]), plain(y))
    rows, target, weights = encode(net, given, labels, weight, training=training)
    if rows.numbers.shape[0] == 0:
        raise BadInput("X has no rows; give at least one")
    if weights is not None and not weights.any():
        raise BadInput(f"all {len(weights)} weights are 0; give at least one row a weight above 0")
    options: dict[str, Any] = {"batch_size": batch_size, "shuffle": shuffle, "seed": seed, "drop_last": drop_last}
    made = Batches(rows, target, weights, **options)
    if raw is not None:
        made = Streamed(net, raw, rows, target, weights, training=training, **options)
    made.schema = BatchSchema.of(net)
    return made


def _streams(net: TranslatedPipeline) -> bool:
    return getattr(net, "untranslated", "cache") == "stream" and len(net.hosts) > 0


def _sliceable(rows: Any, flat: bool) -> Any:
    """Rows that a list of row numbers picks from: arrays and sparse matrices as they are, the rest as a DataFrame."""
    if flat:
        return indexable(as_column(rows))
    if hasattr(rows, "tocsr"):
        return rows.tocsr()
    if isinstance(rows, np.ndarray) and rows.ndim == 2:
        return rows
    return as_frame(rows).to_numpy() if isinstance(rows, (list, tuple)) else as_frame(rows)


def _numbered(count: int) -> Batch:
    return Batch(torch.empty(count, 0), torch.arange(count).unsqueeze(1))


def _length(loader: Sized) -> int | None:
    try:
        return len(loader)
    except TypeError:  # DataLoaders over endless data sets have a length that raises
        return None
