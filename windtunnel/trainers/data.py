"""Rows as ready batches: encoded once and sliced, or encoded on the fly from any loader."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import Tensor

from windtunnel.encode import Batch, as_column, as_frame, objects
from windtunnel.errors import BadInput
from windtunnel.trainers.processes import rank, world

if TYPE_CHECKING:
    from windtunnel.translation import Translation

Item = tuple[Batch, Tensor] | tuple[Batch, Tensor, Tensor]


class Batches:
    """Encoded rows in memory, handed out as ``(Batch, target)`` or ``(Batch, target, weight)``.

    Batches are slices of contiguous tensors. Shuffling draws one permutation per epoch from ``seed + epoch``, so that
    an epoch sees the same order however often it is run; an epoch is named with ``set_epoch`` and otherwise counts up.
    In a distributed run process r of R takes every R-th row of that order, from the r-th on, and as many steps as the
    others: where N is no multiple of R, fewer than R of the first rows come a second time at the end.

    Parameters
    ----------
    rows : Batch
        ``numbers`` float32 ``[N, n]`` and ``ids`` int64 ``[N, m]``.
    target : Tensor or None
        Encoded targets ``[N]`` or ``[N, K]``; None yields the bare ``Batch``.
    weight : Tensor or None
        Row weights ``[N]``, from 0.
    batch_size : int
        Rows per batch; the last one may be smaller.
    shuffle, drop_last : bool
        Whether to permute the rows, and whether to leave out a smaller last batch.
    seed : int
        Of the order of the rows.

    Attributes
    ----------
    scores : Tensor or None
        ``[N, K]``, raw scores that a branch learns beside, in the place of those of the translation.
    equal : bool
        Whether the processes take as many rows each; without it no row comes twice.
    skipped : int
        Batches that the next pass leaves out at its start.
    """

    def __init__(
        self,
        rows: Batch,
        target: Tensor | None = None,
        weight: Tensor | None = None,
        *,
        batch_size: int = 4096,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        if batch_size < 1:
            raise BadInput(f"batch_size={batch_size} must be at least 1")
        self.rows = Batch(*(block.contiguous() for block in rows))
        self.target = target
        self.weight = weight
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.seed = seed
        self.drop_last = drop_last
        self.scores: Tensor | None = None
        self.equal = True
        self.skipped = 0
        self._epoch = 0

    @property
    def size(self) -> int:
        """The number of rows N."""
        return self.rows.numbers.shape[0]

    def set_epoch(self, epoch: int) -> None:
        """Name the epoch whose order the next pass takes."""
        self._epoch, self.skipped = epoch, 0

    def skip(self, batches: int) -> None:
        """Let the next pass begin after so many batches."""
        self.skipped = batches

    @property
    def order(self) -> dict[str, Any]:
        """What the order of the rows follows from, but for the epoch."""
        facts = {"rows": self.size, "batch_size": self.batch_size, "shuffle": self.shuffle, "seed": self.seed}
        return {**facts, "drop_last": self.drop_last}

    def __len__(self) -> int:
        rows = len(self._share()) if world() > 1 else self.size
        return rows // self.batch_size if self.drop_last else -(-rows // self.batch_size)

    def __iter__(self) -> Iterator[Any]:
        # A generator: nothing is drawn before the first batch is asked for, hence after set_epoch.
        order, skipped = self._order(), self.skipped
        self._epoch, self.skipped = self._epoch + 1, 0
        for start in range(skipped * self.batch_size, len(self) * self.batch_size, self.batch_size):
            yield self._take(order, start, start + self.batch_size)

    def _order(self) -> Tensor | None:
        """Row numbers in the order of this epoch; None for the order in which they lie."""
        if not self.shuffle and world() == 1:
            return None
        generator = torch.Generator().manual_seed(self.seed + self._epoch)
        order = torch.randperm(self.size, generator=generator) if self.shuffle else torch.arange(self.size)
        if world() > 1:
            order = order[self._share()]
        return order.to(self.rows.numbers.device)

    def _share(self) -> Tensor:
        """The places of this process in the order of the rows, int64."""
        if self.equal:
            return torch.arange(rank(), -(-self.size // world()) * world(), world()) % self.size
        return torch.arange(min(rank(), self.size - 1), self.size, world())

    def _take(self, order: Tensor | None, start: int, stop: int) -> Any:
        def part(block: Tensor) -> Tensor:
            return block[start:stop] if order is None else block.index_select(0, order[start:stop])

        rows = Batch(part(self.rows.numbers), part(self.rows.ids))
        if self.target is None:
            return rows
        if self.weight is None:
            return rows, part(self.target)
        return rows, part(self.target), part(self.weight)

    def subset(self, index: Tensor, *, shuffle: bool) -> Batches:
        """Pick the rows of these numbers, int64 ``[n]``."""
        picked = self._with(
            Batch(self.rows.numbers[index], self.rows.ids[index]),
            None if self.target is None else self.target[index],
            None if self.weight is None else self.weight[index],
            shuffle=shuffle,
        )
        picked.scores = None if self.scores is None else self.scores[index]
        return picked

    def in_order(self) -> Batches:
        """Give the same rows unshuffled, to judge by."""
        ordered = self._with(self.rows, self.target, self.weight, shuffle=False)
        ordered.scores, ordered.equal = self.scores, False
        return ordered

    def to(self, device: torch.device) -> Batches:
        """Give the same rows on a device."""
        rows = Batch(self.rows.numbers.to(device), self.rows.ids.to(device))
        target = None if self.target is None else self.target.to(device)
        weight = None if self.weight is None else self.weight.to(device)
        return self._with(rows, target, weight, shuffle=self.shuffle)

    def _with(self, rows: Batch, target: Tensor | None, weight: Tensor | None, *, shuffle: bool) -> Batches:
        made = Batches(
            rows,
            target,
            weight,
            batch_size=self.batch_size,
            shuffle=shuffle,
            seed=self.seed,
            drop_last=self.drop_last and shuffle,
        )
        made.equal = self.equal
        return made

    @property
    def nbytes(self) -> int:
        """Bytes of all blocks."""
        blocks = [*self.rows, self.target, self.weight]
        return sum(block.nbytes for block in blocks if block is not None)


class Streamed(Batches):
    """Raw rows in memory, each batch encoded when it is asked for; ``rows.ids`` hold no more than the row numbers.

    For translations with ``untranslated="stream"``: what a step on the host makes of all rows need never fit in memory.

    Parameters
    ----------
    net : Translation
        Encodes the rows.
    raw : DataFrame, array or sparse matrix
        All rows.
    rows : Batch
        Row numbers int64 ``[N, 1]`` as ``ids``, no ``numbers``.
    training : bool
        Passed on to ``net.encode``.
    target, weight, **options
        See ``Batches``.
    """

    def __init__(
        self,
        net: Translation,
        raw: Any,
        rows: Batch,
        target: Tensor | None = None,
        weight: Tensor | None = None,
        *,
        training: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(rows, target, weight, **options)
        self.net, self.raw, self.training = net, raw, training

    def _take(self, order: Tensor | None, start: int, stop: int) -> Any:
        item = super()._take(order, start, stop)
        numbers, *rest = (item,) if self.target is None else item
        index = numbers.ids[:, 0].numpy(force=True)
        given = self.raw.iloc[index] if hasattr(self.raw, "iloc") else self.raw[index]
        batch = Batch(*(block.to(numbers.ids.device) for block in self.net.encode(given, training=self.training)))
        return (batch, *rest) if rest else batch

    def _with(self, rows: Batch, target: Tensor | None, weight: Tensor | None, *, shuffle: bool) -> Streamed:
        made = Streamed(
            self.net,
            self.raw,
            rows,
            target,
            weight,
            training=self.training,
            batch_size=self.batch_size,
            shuffle=shuffle,
            seed=self.seed,
            drop_last=self.drop_last and shuffle,
        )
        made.equal = self.equal
        return made


class Encoded:
    """A loader of raw rows, seen as one of encoded batches: each item is encoded when it comes.

    Items are ``(rows, target)`` or ``(rows, target, weight)``. Rows are what the translation encodes (DataFrame, Arrow
    table, array, dict of columns), a tensor ``[B, columns]``, or a ``Batch``; beside a ``Batch``, a target that is a
    tensor is taken as encoded, as ``windtunnel.loader`` yields it. An iterator, which can be read only once, is read
    to its end at the first pass and its encoded batches are kept.

    Parameters
    ----------
    net : Translation
        Encodes rows and targets.
    loader : iterable
        A DataLoader, a list, a generator, anything that yields such items.
    training : bool
        Whether the rows are for training; then targets of one class only are refused.
    """

    def __init__(self, net: Translation, loader: Iterable[Any], *, training: bool = False) -> None:
        if not isinstance(loader, Iterable):
            raise BadInput(f"a loader of type {type(loader).__name__} cannot be iterated; {_ACCEPTED}")
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
        if not hasattr(self.loader, "in_order"):
            return self
        return Encoded(self.net, self.loader.in_order())

    def __iter__(self) -> Iterator[Item]:
        # A generator: a DataLoader draws its order when the first batch is asked for, not when the epoch is prepared.
        if isinstance(self.loader, Iterator) and self._kept is None:
            self._kept = list(self._encoded(self.loader))
        yield from self._encoded(self.loader) if self._kept is None else self._kept

    def _encoded(self, items: Iterable[Any]) -> Iterator[Item]:
        count, classes = 0, _Classes(self.net)
        announced = (_length(items) or 0) if isinstance(items, Sized) else 0
        if announced and (source := resumable(items)) is not None:
            announced -= source.skipped
        for count, item in enumerate(items, start=1):  # noqa: B007  # read after the loop
            encoded = encode_item(self.net, item, training=self.training)
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
    net: Translation,
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
    net : Translation
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
    raw = _sliceable(_plain(X), net.encoder.flat) if _streams(net) and not isinstance(X, Batch) else None
    given, labels = (X, y) if raw is None else (_numbered(raw.shape[0]), _plain(y))
    rows, target, weights = _encode(net, given, labels, weight, training=training)
    if rows.numbers.shape[0] == 0:
        raise BadInput("X has no rows; give at least one")
    if weights is not None and not weights.any():
        raise BadInput(f"all {len(weights)} weights are 0; give at least one row a weight above 0")
    options: dict[str, Any] = {"batch_size": batch_size, "shuffle": shuffle, "seed": seed, "drop_last": drop_last}
    if raw is not None:
        return Streamed(net, raw, rows, target, weights, training=training, **options)
    return Batches(rows, target, weights, **options)


class Resumable(Protocol):
    """Batches in an order that follows from a few facts, so that a pass can begin in the middle of an epoch."""

    skipped: int

    @property
    def order(self) -> dict[str, Any]:
        """The facts, as JSON values."""
        ...

    def skip(self, batches: int) -> None:
        """Let the next pass begin after so many batches."""
        ...


def resumable(loader: Any) -> Resumable | None:
    """The batches behind a loader that can begin in the middle of an epoch; None where there are no such."""
    while loader is not None and not hasattr(loader, "skip"):
        loader = _behind(loader)
    return loader  # type: ignore[no-any-return]


def order_of(loader: Any, processes: int) -> dict[str, Any] | None:
    """What the order of its batches follows from, but for the epoch; None where it cannot be resumed."""
    source, workers = resumable(loader), 0
    while loader is not source:
        workers = getattr(loader, "num_workers", workers)
        loader = _behind(loader)
    return None if source is None else {**source.order, "workers": workers, "processes": processes}


def _behind(loader: Any) -> Any:
    """What a loader reads from, which may be empty or have no length; None where it reads from nothing else."""
    inner = getattr(loader, "loader", None)
    return getattr(loader, "dataset", None) if inner is None else inner


def _streams(net: Translation) -> bool:
    return getattr(net, "untranslated", "cache") == "stream" and len(net.hosts) > 0


def _sliceable(rows: Any, flat: bool) -> Any:
    """Rows that a list of row numbers picks from: arrays and sparse matrices as they are, the rest as a DataFrame."""
    if flat:
        return objects(as_column(rows))
    if hasattr(rows, "tocsr"):
        return rows.tocsr()
    if isinstance(rows, np.ndarray) and rows.ndim == 2:
        return rows
    return as_frame(rows).to_numpy() if isinstance(rows, (list, tuple)) else as_frame(rows)


def _numbered(count: int) -> Batch:
    return Batch(torch.empty(count, 0), torch.arange(count).unsqueeze(1))


def encode_item(net: Translation, item: Any, *, training: bool = False) -> Item:
    """One item of a loader, ``(rows, target)`` or ``(rows, target, weight)``, encoded."""
    if not isinstance(item, (tuple, list)) or isinstance(item, Batch) or len(item) not in (2, 3):
        got = f"{type(item).__name__} of {len(item)}" if isinstance(item, (tuple, list)) else type(item).__name__
        raise BadInput(f"the loader yielded a {got}; {_ACCEPTED}")
    rows, target, weight = _encode(net, *item, training=training)
    if target is None:
        raise BadInput(f"the loader yielded None as a target; {_ACCEPTED}")
    if rows.numbers.shape[0] == 0:
        raise BadInput("the loader yielded a batch without rows; leave it out")
    return (rows, target) if weight is None else (rows, target, weight)


def hold_out(batches: Batches, fraction: float, seed: int) -> tuple[Batches, Batches] | None:
    """Split rows into a training and a held-out part, class by class where the target is one of classes.

    Of each class ``round(fraction * count)`` rows are held out, at least one where the class has two. None where that
    leaves nothing to judge by: too few rows, or fewer than two classes among them.
    """
    target = batches.target
    assert target is not None
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(batches.size, generator=generator)
    strata = target[order].cpu() if _is_classes(target) else torch.zeros(batches.size, dtype=torch.int64)
    out = torch.cat([_share(order[strata == stratum], fraction) for stratum in _distinct(strata)])
    held = torch.zeros(batches.size, dtype=torch.bool)
    held[out] = True
    if not held.any() or held.all() or (_is_classes(target) and len(_distinct(target[held.to(target.device)])) < 2):
        return None
    index = torch.arange(batches.size)
    return batches.subset(index[~held], shuffle=batches.shuffle), batches.subset(index[held], shuffle=False)


def check_classes(net: Translation, batches: Batches) -> None:
    """Refuse to train a classifier on rows of one class."""
    assert batches.target is not None
    classes = _Classes(net)
    classes.see(batches.target)
    classes.check()


class _Classes:
    """Whether more than one class was seen; looks no further once two were."""

    def __init__(self, net: Translation) -> None:
        self._labels = net.head.labels_in_order or None
        self._only: int | None = None
        self._enough = self._labels is None

    def see(self, target: Tensor) -> None:
        if self._enough or target.numel() == 0:
            return
        low, high = int(target.min()), int(target.max())
        self._enough = low != high or self._only not in (None, low)
        self._only = low

    def check(self) -> None:
        if not self._enough and self._labels is not None and self._only is not None:
            raise BadInput(
                f"every training target is {self._labels[self._only]!r}; a classifier is fine-tuned on rows of at "
                f"least two of its classes {', '.join(map(repr, self._labels[:10]))}: give rows of another one"
            )


_ACCEPTED = (
    "fit takes an iterable of (rows, target) or (rows, target, weight), where rows are a DataFrame, an Arrow table, "
    "an array, a dict of columns or an encoded Batch; all rows at once are a tuple (X, y) or (X, y, weight)"
)
_EMPTY = f"the loader yielded nothing; {_ACCEPTED}: give at least one batch"


def _encode(
    net: Translation, X: Any, y: Any = None, weight: Any = None, *, training: bool
) -> tuple[Batch, Tensor | None, Tensor | None]:
    encoded = isinstance(X, Batch)
    rows = X if isinstance(X, Batch) else net.encode(_plain(X), training=training)
    count = rows.numbers.shape[0]
    target = None
    if y is not None:
        _check_length("y", y, count)
        target = _checked_target(net, y) if encoded and isinstance(y, Tensor) else net.head.encode_target(_plain(y))
    return rows, target, None if weight is None else _weights(weight, count)


def _plain(values: Any) -> Any:
    """Tensors, alone or as columns of a dict, as the arrays that the encoder takes."""
    if isinstance(values, Tensor):
        return values.numpy(force=True)
    if isinstance(values, dict):
        return {name: _plain(column) for name, column in values.items()}
    return values


def _check_length(name: str, values: Any, count: int) -> None:
    if not hasattr(values, "__len__") or (isinstance(values, Tensor) and values.ndim == 0):
        raise BadInput(f"{name}={values!r} is one value; give one per row, {count} in all")
    if len(values) != count:
        raise BadInput(f"{name} has {len(values)} values for {count} rows; give one per row, in the same order")


def _checked_target(net: Translation, target: Tensor) -> Tensor:
    """Check an already encoded target: class indices in range, or finite values."""
    if net.head.classes is None:
        if not target.isfinite().all():
            bad = int((~target.isfinite()).sum())
            raise BadInput(f"y has {bad} values that are NaN or infinite; drop these rows")
        return target.float()
    classes = len(net.head.classes)
    in_range = target.numel() == 0 or (target.min() >= 0 and target.max() < classes)
    if target.is_floating_point() or target.ndim != 1 or not in_range:
        raise BadInput(
            f"beside encoded rows the target is a tensor of shape {tuple(target.shape)} and dtype {target.dtype} with "
            f"values from {target.min().item()} to {target.max().item()}; give class indices int64 [B] from 0 to "
            f"{classes - 1}, as windtunnel.loader yields them, or original labels as an array"
        )
    return target.long()


def _weights(weight: Any, count: int) -> Tensor:
    _check_length("weight", weight, count)
    try:
        values = torch.from_numpy(np.array(_plain(weight), dtype=np.float32))
    except (TypeError, ValueError) as error:
        raise BadInput(f"weight is not made of numbers ({error}); give one finite number from 0 per row") from error
    if values.ndim != 1:
        raise BadInput(f"weight has the shape {tuple(values.shape)}; give one finite number from 0 per row")
    if wrong := int((~(values.isfinite() & (values >= 0))).sum()):
        raise BadInput(
            f"{wrong} of {count} weights are negative, NaN or infinite; give one finite number from 0 per row"
        )
    return values


def _share(rows: Tensor, fraction: float) -> Tensor:
    count = len(rows)
    return rows[: max(round(fraction * count), 1) if count > 1 else 0]


def _distinct(values: Tensor) -> list[int]:
    return sorted(set(values.tolist()))


def _is_classes(target: Tensor) -> bool:
    return not target.is_floating_point()


def _length(loader: Sized) -> int | None:
    try:
        return len(loader)
    except TypeError:  # DataLoaders over endless data sets have a length that raises
        return None
