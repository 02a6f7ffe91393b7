"""Rows from Parquet files that need not fit in memory, as ready batches: shuffled, shared out, read ahead."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor
from torch.utils.data import IterableDataset, get_worker_info

from windtunnel.encode import MISSING_ID, UNKNOWN_ID, Batch
from windtunnel.errors import BadInput, nearest
from windtunnel.program.translated import TranslatedPipeline
from windtunnel.trainers.data.items import encode_item
from windtunnel.trainers.data.order import whole
from windtunnel.trainers.data.row_groups import Paths, RowGroups
from windtunnel.trainers.data.schema import BatchSchema
from windtunnel.trainers.loop.processes import rank, world

BUFFER = 2**18
AT_ONCE = 2**16
"""Rows that are encoded at once."""
SAMPLED = 32
"""Row groups that a sample comes from, at most."""


class Stream(IterableDataset[Any]):
    """Batches ``(Batch, target)`` or ``(Batch, target, weight)`` of the rows of Parquet files; see ``stream``.

    Row groups are put in an order drawn from ``seed`` and the epoch, and make one sequence of N rows. Process r of R
    takes the rows from r S to (r + 1) S of it, where S = ceil(N / R): as many steps in each process, and every row
    once, except that the first R S - N < R rows of the sequence come a second time at its end. Workers of a DataLoader
    take whole batches of the share of their process, one after the other. A share is read in windows of ``buffer``
    rows, each in an order of its own. All of that follows from the metadata of the files, so that a pass can begin at
    any batch without reading what comes before (``skip``).

    A thread reads and encodes the next window while the batches of one are used, which are slices of its tensors;
    where there is a GPU they are in pinned memory.

    Attributes
    ----------
    schema : BatchSchema
        What the rows are encoded by.
    skipped : int
        Batches that the next pass leaves out at its start.
    """

    def __init__(
        self,
        net: TranslatedPipeline,
        groups: RowGroups,
        columns: list[str],
        target: str,
        weight: str | None,
        *,
        batch_size: int,
        shuffle: bool,
        seed: int,
        buffer: int,
        training: bool,
    ) -> None:
        self.net, self.groups, self.schema = net, groups, BatchSchema.of(net)
        self.read, self.target, self.weight = columns, target, weight
        self.batch_size, self.shuffle, self.seed, self.training = batch_size, shuffle, seed, training
        self.window = max(buffer // batch_size, 1) * batch_size
        # What steps on the host are given is what the source was given: texts.
        self.coded = [] if net.hosts else groups.texts(columns)
        self.equal = True
        self._finite: set[bytes] = set()
        # Epoch, batches to leave out, process and processes: in memory that the workers of a DataLoader see too.
        self._state = _shared([0, 0, 0, 1])

    def set_epoch(self, epoch: int) -> None:
        """Name the epoch whose order the next passes take; without it every pass has the order of epoch 0."""
        self._state[:] = torch.tensor([epoch, 0, rank(), world()])

    def skip(self, batches: int) -> None:
        """Let the passes of this epoch begin after so many batches."""
        self._state[1] = batches

    @property
    def skipped(self) -> int:
        """Batches that the next pass leaves out at its start."""
        return int(self._state[1])

    @property
    def order(self) -> dict[str, Any]:
        """What the order of the rows follows from, but for the epoch."""
        facts = {"batch_size": self.batch_size, "shuffle": self.shuffle, "seed": self.seed, "buffer": self.window}
        return {**facts, "rows": self.groups.rows, "row_groups": self.groups.fingerprint}

    def __len__(self) -> int:
        first, last = self._share()
        return -(-(last - first) // self.batch_size)

    def __iter__(self) -> Iterator[Any]:
        # A generator: nothing is drawn or read before the first batch is asked for, hence after set_epoch.
        first, last, skipped = self._part()
        one = _Pass(self, int(self._state[0]))
        starts = range(first, last, self.window)[skipped // self.window :]
        skipped %= self.window
        with ThreadPoolExecutor(1, "windtunnel-stream") as ahead:
            coming = [(start, min(start + self.window, last)) for start in starts]
            waiting = [ahead.submit(one.window, *bounds) for bounds in coming[:1]]
            for number in range(len(coming)):
                blocks = waiting.pop().result()
                waiting += [ahead.submit(one.window, *bounds) for bounds in coming[number + 1 : number + 2]]
                for start in range(skipped, len(blocks[0]), self.batch_size):
                    yield self._item([block[start : start + self.batch_size] for block in blocks])
                skipped = 0

    def sample(self, count: int) -> Any:
        """At most ``count`` rows from up to ``SAMPLED`` row groups at random; the same ones in every process."""
        random = np.random.default_rng([self.seed, 1])
        groups = random.permutation(len(self.groups.sizes))[:SAMPLED]
        sizes = self.groups.sizes[groups]
        wanted = np.minimum(sizes, -(-count * sizes // sizes.sum()))
        parts = []
        for group, size, few in zip(groups, sizes, wanted, strict=True):
            rows = np.sort(random.permutation(size)[:few])
            parts.append(self._encoded(self._table(group).take(pa.array(rows)), group))
        return self._item([torch.cat(blocks)[:count] for blocks in zip(*parts, strict=True)])

    def in_order(self) -> Stream:
        """The same rows unshuffled, to judge by: every row once, in shares that may differ by a row."""
        ordered = copy.copy(self)
        ordered.shuffle, ordered.equal, ordered._state = False, False, _shared(self._state.tolist())
        return ordered

    def _item(self, blocks: list[Tensor]) -> Any:
        rows = Batch(*blocks[:2])
        self._check(rows)
        return rows, *blocks[2:]

    def _check(self, rows: Batch) -> None:
        """Reject rows as ``check_rows`` does, but those that miss the same values as some that were taken.

        Not in the thread that reads: it runs the program, which is being trained.
        """
        numbers, ids = rows
        odd = torch.cat([numbers.isnan(), numbers.isinf(), ids == UNKNOWN_ID, ids == MISSING_ID], dim=1)
        (index,) = odd.any(dim=1).nonzero(as_tuple=True)
        kinds = [kind.tobytes() for kind in np.packbits(odd[index].numpy(), axis=1)]
        new = [place for place, kind in enumerate(kinds) if kind not in self._finite]
        if new:
            self.net.check_rows(Batch(numbers[index[new]], ids[index[new]]))
            self._finite.update(kinds)

    def _place(self) -> tuple[int, int]:
        """The number of this process and how many there are; a worker of a DataLoader knows from ``set_epoch``."""
        if get_worker_info() is None:
            return rank(), world()
        return int(self._state[2]), int(self._state[3])

    def _share(self) -> tuple[int, int]:
        """The rows of this process, as places in the sequence."""
        (number, count), rows = self._place(), self.groups.rows
        if self.equal:
            size = -(-rows // count)
            return number * size, (number + 1) * size
        first = min(number * rows // count, rows - 1)
        return first, max((number + 1) * rows // count, first + 1)

    def _part(self) -> tuple[int, int, int]:
        """The rows of this worker, and how many of them are left out at the start."""
        first, last = self._share()
        worker = get_worker_info()
        if worker is None:
            return first, last, self.skipped * self.batch_size
        # Batches come from one worker after the other; those that are left out were the turns of the first ones.
        count, steps = worker.num_workers, len(self)
        number = (worker.id + self.skipped) % count
        before, own = number * (steps // count) + min(number, steps % count), steps // count + (number < steps % count)
        start = first + before * self.batch_size
        done = max(-(-(self.skipped - number) // count), 0)
        return start, min(start + own * self.batch_size, last), done * self.batch_size

    def _table(self, group: int) -> pa.Table:
        columns = [*self.read, self.target, *([self.weight] if self.weight else [])]
        return self.groups.read(group, list(dict.fromkeys(columns)), self.coded)

    def _encoded(self, table: pa.Table, group: int) -> list[Tensor]:
        """Numbers, ids, targets and weights of raw rows of a row group, which errors name."""
        try:
            return self._tensors(table)
        except BadInput as error:
            error.add_note(f"These are {len(table)} rows of {self.groups.where(group)}.")
            raise

    def _tensors(self, table: pa.Table) -> list[Tensor]:
        rejected = [(one.rejects_unknown, one.rejects_missing) for one in self.net.encoder.categories]
        (rows,) = self.net.encoded_parts(table.select(self.read).to_pandas(), training=self.training)
        given = [table.column(name).to_pandas() for name in (self.target, self.weight) if name is not None]
        (numbers, ids), *rest = encode_item(self.net, (rows, *given), training=self.training)
        now = [(one.rejects_unknown, one.rejects_missing) for one in self.net.encoder.categories]
        if now != rejected and get_worker_info() is not None:
            raise BadInput(
                "the rows hold categories that their encoder rejects; training lets them through, and a worker of a "
                "DataLoader cannot tell the translation: stream without workers, or fit the encoder with "
                "handle_unknown='ignore' or a value for unknown ones"
            )
        return [numbers, ids, *rest]


def _shared(values: list[int]) -> Tensor:
    return torch.tensor(values).share_memory_()  # type: ignore[no-untyped-call,no-any-return]


class _Pass:
    """One pass in the order of one epoch."""

    def __init__(self, stream: Stream, epoch: int) -> None:
        self.stream, self.epoch = stream, epoch
        sizes = stream.groups.sizes
        self.groups = self._random(0).permutation(len(sizes)) if stream.shuffle else np.arange(len(sizes))
        self.ends = sizes[self.groups].cumsum()
        self._held: tuple[int, pa.Table] | None = None

    def window(self, first: int, last: int) -> list[Tensor]:
        """The rows from one place in the sequence to another, encoded and shuffled."""
        blocks: list[Tensor] = []
        places = self._places(first, last)
        done = 0
        for group, start, stop in self._slices(first, last):
            for at in range(start, stop, AT_ONCE):
                parts = self.stream._encoded(self._table(group).slice(at, min(AT_ONCE, stop - at)), group)
                if not blocks:
                    pin = torch.cuda.is_available() and get_worker_info() is None
                    blocks = [part.new_empty((last - first, *part.shape[1:]), pin_memory=pin) for part in parts]
                here = places[done : done + len(parts[0])]
                for block, part in zip(blocks, parts, strict=True):
                    block[here] = part
                done += len(here)
        return blocks

    def _places(self, first: int, last: int) -> Tensor:
        """Where each row of a window goes."""
        if not self.stream.shuffle:
            return torch.arange(last - first)
        return torch.from_numpy(self._random(1 + first).permutation(last - first))

    def _slices(self, first: int, last: int) -> Iterator[tuple[int, int, int]]:
        """The parts of row groups between two places in the sequence, which begins anew at its end."""
        sizes, rows = self.stream.groups.sizes, self.stream.groups.rows
        while first < last:
            place = int(np.searchsorted(self.ends, first % rows, side="right"))
            group, end = int(self.groups[place]), int(self.ends[place])
            start = first % rows - (end - int(sizes[group]))
            stop = min(start + last - first, int(sizes[group]))
            yield group, start, stop
            first += stop - start

    def _table(self, group: int) -> pa.Table:
        """A row group; the last one is held, as the next window may begin within it."""
        if self._held is None or self._held[0] != group:
            self._held = None
            self._held = group, self.stream._table(group)
        return self._held[1]

    def _random(self, purpose: int) -> np.random.Generator:
        return np.random.default_rng([self.stream.seed, self.epoch, purpose])


def stream(
    net: TranslatedPipeline,
    paths: Paths,
    *,
    target: str,
    weight: str | None = None,
    columns: Sequence[str] | None = None,
    batch_size: int = 4096,
    shuffle: bool = True,
    seed: int = 0,
    buffer: int = BUFFER,
    training: bool = True,
) -> Stream:
    """Read the rows of Parquet files as batches for ``fit``, without ever having all of them in memory.

    In memory are about two windows of ``buffer`` encoded rows and one row group. Files of small row groups (a hundred
    thousand rows) are read best.

    Parameters
    ----------
    net : TranslatedPipeline
        Encodes rows and targets.
    paths : path or list of paths
        Files, folders of ``*.parquet``, or patterns such as ``"folder/*.parquet"``, of one table.
    target, weight : str
        The columns with the original targets, and with the weights of the rows, from 0.
    columns : list of str, optional
        The columns that make the raw rows; by default those that the translation reads by name, and else all but the
        target and the weight.
    batch_size : int
        Rows per batch and process; the last batch of an epoch may be smaller.
    shuffle : bool
        Whether row groups, and rows within a window, come in random order.
    seed : int
        Of that order, with the number of the epoch.
    buffer : int
        Rows that are shuffled together, rounded down to whole batches.
    training : bool
        Passed on to ``net.encode``.

    Returns
    -------
    Stream

    Raises
    ------
    BadInput
        For paths without Parquet files, files of different columns, no rows, and columns that are not there.
    BadFile
        For a file that is no Parquet file.
    """
    batch_size, buffer, seed = whole("batch_size", batch_size, 1), whole("buffer", buffer, 1), whole("seed", seed, 0)
    groups = RowGroups.of(paths)
    names = groups.schema.names
    others = [name for name in names if name not in (target, weight)]
    read = _read_by_name(net, others) if columns is None else [*columns]
    for name in (target, *([] if weight is None else [weight]), *read):
        if name not in names:
            raise BadInput(f"there is no column {name!r} in {groups.files[0]}: {nearest(name, names)}")
    return Stream(
        net,
        groups,
        read,
        target,
        weight,
        batch_size=batch_size,
        shuffle=shuffle,
        seed=seed,
        buffer=buffer,
        training=training,
    )


def _read_by_name(net: TranslatedPipeline, names: list[str]) -> list[str]:
    """The columns that a translation reads, where they go by the names of the files; else all of them."""
    encoder = net.encoder
    if encoder.names is None:
        return names
    wanted = encoder.names if net.hosts else [encoder.names[column] for column in encoder.used_columns()]
    return wanted if set(wanted) <= set(names) else names
