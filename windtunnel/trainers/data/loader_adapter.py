"""Adapter that turns any loader into an ``EncodedLoader``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from typing import Any

from windtunnel.errors import BadInput
from windtunnel.program.translated import TranslatedPipeline
from windtunnel.trainers.data.encoded_loader import EncodedLoader, Item, share_steps
from windtunnel.trainers.data.encoded_rows import EncodedRows
from windtunnel.trainers.data.encoding import ACCEPTED, SeenClasses, encode_item
from windtunnel.trainers.processes import require_equal_lengths, world

_EMPTY = f"the loader yielded nothing; {ACCEPTED}: give at least one batch"


class LoaderAdapter(EncodedLoader):
    """Any loader as encoded batches: each item is checked and encoded when it is read.

    Items are ``(rows, target)`` or ``(rows, target, weight)``. Rows are what the translation encodes (DataFrame, Arrow
    table, array, dict of columns), a tensor ``[B, columns]``, or a ``Batch``. With a ``Batch``, a target that is a
    tensor counts as encoded, as ``windtunnel.loader`` yields it. An iterator, which can be read only once, is read
    to its end at the first pass; its encoded batches are cached. Rows for ``training`` need targets of two classes.
    """

    def __init__(self, net: TranslatedPipeline, loader: Iterable[Any], *, training: bool = False) -> None:
        if not isinstance(loader, Iterable):
            raise BadInput(f"a loader of type {type(loader).__name__} cannot be iterated; {ACCEPTED}")
        if isinstance(getattr(loader, "dataset", None), EncodedRows):
            raise BadInput(
                f"got a {type(loader).__name__} over windtunnel.loader, which yields batches itself: give that"
            )
        if isinstance(loader, Sized) and known_length(loader) == 0:
            raise BadInput(_EMPTY)
        self.net = net
        self.loader = loader
        self.training = training
        self.schema = None if self.source is None else self.source.schema
        self._cached: list[Item] | None = None

    @property
    def source(self) -> EncodedLoader | None:
        """The ``EncodedLoader`` that the loader is or reads from, such as a ``ParquetStream`` behind a DataLoader."""
        return next((part for part in _chain(self.loader) if isinstance(part, EncodedLoader)), None)

    def __len__(self) -> int:
        if self._cached is not None:
            return len(self._cached)
        return len(self.loader)  # type: ignore[arg-type]  # a TypeError says that the length is unknown

    def steps_of_process(self, processes: int) -> int:
        """The batches of a pass in each of so many processes; the rows of a source are shared among them."""
        return len(self) if self.source is None else share_steps(len(self), processes)

    def set_epoch(self, epoch: int) -> None:
        """Pass the epoch on to those of loader, samplers and data set that have a ``set_epoch``."""
        parts = [getattr(self.loader, name, None) for name in ("sampler", "batch_sampler", "dataset")]
        for part in (self.loader, *parts, getattr(parts[1], "sampler", None)):
            if callable(hook := getattr(part, "set_epoch", None)):
                hook(epoch)

    @property
    def order(self) -> dict[str, Any] | None:
        """The order of the source, and the number of workers that read it."""
        if self.source is None or self.source.order is None:
            return None
        workers = [getattr(part, "num_workers", 0) for part in _chain(self.loader)]
        return {**self.source.order, "workers": next(filter(None, workers), 0)}

    def skip(self, batches: int) -> None:
        """Let the next pass of the source leave out its first batches."""
        assert self.source is not None
        self.source.skip(batches)

    def in_order(self) -> EncodedLoader:
        """The same rows for validation, unshuffled where the loader is an ``EncodedLoader``."""
        inner = self.loader
        return LoaderAdapter(self.net, inner.in_order()) if isinstance(inner, EncodedLoader) else self

    def collect(self, limit: int) -> Any:
        """Rows that the loader collects, if it is an ``EncodedLoader``; else the first batches."""
        if isinstance(self.loader, EncodedLoader):
            return encode_item(self.net, self.loader.collect(limit))
        return super().collect(limit)

    def __iter__(self) -> Iterator[Item]:
        # A generator: a DataLoader draws its order when the first batch is read, after set_epoch.
        if isinstance(self.loader, Iterator) and self._cached is None:
            self._cached = list(self._encoded(self.loader))
        yield from self._encoded(self.loader) if self._cached is None else self._cached

    def _encoded(self, items: Iterable[Any]) -> Iterator[Item]:
        count, classes, parts = 0, SeenClasses(self.net), None
        length = (known_length(items) or 0) if isinstance(items, Sized) else 0
        if length and self.source is not None:
            length -= self.source.skipped
        if self.training and not length and world() > 1:
            items = require_equal_lengths(items)
        for count, item in enumerate(items, start=1):  # noqa: B007  # read after the loop
            encoded = encode_item(self.net, item, training=self.training)
            if len(encoded) != (parts := parts or len(encoded)):
                which = "weights and those before it none" if parts == 2 else "no weights and those before it some"
                raise BadInput(f"batch {count} of the loader has {which}; give all of them weights, such as 1, or none")
            if self.training:
                classes.see(*encoded[1:])
                # A caller that counts batches stops at the last one, before the check after the loop.
                if count == length:
                    classes.check()
            yield encoded
        if count == 0:
            raise BadInput(_EMPTY)
        # An epoch that ends before its length would have no validation.
        if count < length:
            raise BadInput(f"the loader yielded {count} batches and its len() is {length}; make the two agree")
        if self.training:
            classes.check()


def _chain(loader: Any) -> Iterator[Any]:
    """A loader and the loaders or data sets that it reads from: attributes ``loader`` or ``dataset``."""
    while loader is not None:
        yield loader
        inner = getattr(loader, "loader", None)
        loader = getattr(loader, "dataset", None) if inner is None else inner


def known_length(loader: Sized) -> int | None:
    """The number of batches of a loader; None where it is unknown."""
    try:
        return len(loader)
    except TypeError:  # the length of a DataLoader over an endless data set raises
        return None
