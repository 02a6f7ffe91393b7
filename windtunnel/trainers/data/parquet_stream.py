"""``windtunnel.stream``: shuffled batches of the rows of Parquet files that need not fit in memory."""

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
from windtunnel.encode.arrow import table_to_pandas
from windtunnel.errors import BadInput, nearest
from windtunnel.program.row_slices import MAX_SQUARABLE
from windtunnel.program.translated import TranslatedPipeline
from windtunnel.trainers.data.encoded_loader import EncodedLoader, check_whole, share_steps
from windtunnel.trainers.data.encoding import encode_item
from windtunnel.trainers.data.row_groups import Paths, RowGroups
from windtunnel.trainers.data.schema import BatchSchema
from windtunnel.trainers.processes import rank, world

BUFFER = 2**18
ENCODED_ROWS = 2**16
"""Rows that are encoded in one call."""
SAMPLED_GROUPS = 32
"""Largest number of row groups in a sample."""


class ParquetStream(IterableDataset[Any], EncodedLoader):
    """Batches ``(Batch, target)`` or ``(Batch, target, weight)`` of the rows of Parquet files; see ``stream``.

    ``seed`` and the epoch determine a permutation of the row groups, which form one sequence of N rows. Process r of R
    takes the rows from r S to (r + 1) S of it, with S = ceil(N / R). So all processes take the same number of steps,
    and every row is read once, except that the first R S - N < R rows are read again at the end. The workers of a
    DataLoader take turns: each yields a whole batch of its process. Rows are read in windows of ``buffer`` rows, each
    in a random order. The metadata of the files determine all of this, so that a pass can begin at any batch without
    reading the rows before it (``skip``).

    A thread reads and encodes the next window while the batches of the present one are used. Batches are slices of a
    window's tensors, which are in pinned memory if there is a GPU.
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
        self.row_columns, self.target, self.weight = columns, target, weight
        self.batch_size, self.shuffle, self.seed, self.training = batch_size, shuffle, seed, training
        self.window = max(buffer // batch_size, 1) * batch_size
        # Steps on the host take texts, as the source pipeline did; the encoder takes dictionary codes.
        self.dictionary_columns = [] if net.hosts else groups.texts(columns)
        self.equal = True
        self._checked_patterns: set[bytes] = set()
        # Epoch, skipped batches, process and processes, in memory that the workers of a DataLoader share.
        self._state = _shared([0, 0, 0, 1])

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch, which determines the order of the next passes; at first it is 0."""
        self._state[:] = torch.tensor([epoch, 0, rank(), world()])

    def skip(self, batches: int) -> None:
        """Let the passes of this epoch begin after so many batches."""
        self._state[1] = batches

    @property
    def skipped(self) -> int:  # type: ignore[override]  # shared with workers
        """Batches that the next pass leaves out at its start."""
        return int(self._state[1])

    @property
    def order(self) -> dict[str, Any]:
        """The facts that determine the order of the rows together with the epoch."""
        facts = {"batch_size": self.batch_size, "shuffle": self.shuffle, "seed": self.seed, "buffer": self.window}
        columns = [self.target, self.weight]
        return {**facts, "rows": self.groups.rows, "row_groups": self.groups.fingerprint, "targets": columns}

    def __len__(self) -> int:
        first, last = self._process_rows()
        return -(-(last - first) // self.batch_size)

    def steps_of_process(self, processes: int) -> int:
        """The batches of a pass in each of so many processes, which share the rows."""
        return share_steps(len(self), processes)

    def __iter__(self) -> Iterator[Any]:
        # A generator: nothing is drawn or read before the first batch is read, hence after set_epoch.
        first, last, skipped = self._worker_rows()
        epoch_pass = _Pass(self, int(self._state[0]))
        starts = range(first, last, self.window)[skipped // self.window :]
        skipped %= self.window
        with ThreadPoolExecutor(1, "windtunnel-stream") as reader:
            windows = [(start, min(start + self.window, last)) for start in starts]
            pending = [reader.submit(epoch_pass.window, *bounds) for bounds in windows[:1]]
            for number in range(len(windows)):
                blocks = pending.pop().result()
                pending += [reader.submit(epoch_pass.window, *bounds) for bounds in windows[number + 1 : number + 2]]
                for start in range(skipped, len(blocks[0]), self.batch_size):
                    yield self._item([block[start : start + self.batch_size] for block in blocks])
                skipped = 0

    def collect(self, limit: int) -> Any:
        """At most ``limit`` rows, with targets and weights, of random row groups; the same in every process."""
        random = np.random.default_rng([self.seed, 1])
        groups = random.permutation(len(self.groups.sizes))[:SAMPLED_GROUPS]
        sizes = self.groups.sizes[groups]
        counts = np.minimum(sizes, -(-limit * sizes // sizes.sum()))
        parts = []
        for group, size, count in zip(groups, sizes, counts, strict=True):
            rows = np.sort(random.permutation(size)[:count])
            parts.append(self._encoded(self._table(group).take(pa.array(rows)), group))
        return self._item([torch.cat(blocks)[:limit] for blocks in zip(*parts, strict=True)])

    def in_order(self) -> ParquetStream:
        """The same rows for validation: unshuffled, every row once; processes may differ by a row."""
        ordered = copy.copy(self)
        ordered.shuffle, ordered.equal, ordered._state = False, False, _shared(self._state.tolist())
        return ordered

    def _item(self, blocks: list[Tensor]) -> Any:
        rows = Batch(*blocks[:2])
        self._check(rows)
        return rows, *blocks[2:]

    def _check(self, rows: Batch) -> None:
        """Reject rows as ``check_rows`` does; each pattern of missing, infinite and very large values is checked once.

        The reading thread must not do so, because ``check_rows`` runs the program that is being trained.
        """
        if self.net.facts().may_reject_computed_values:  # the pattern of a row does not tell whether it is rejected
            self.net.check_rows(rows)
            return
        numbers, ids = rows
        of_numbers = numbers.isnan(), numbers.isinf(), numbers < -MAX_SQUARABLE, numbers > MAX_SQUARABLE
        special = torch.cat([*of_numbers, ids == UNKNOWN_ID, ids == MISSING_ID], dim=1)
        (index,) = special.any(dim=1).nonzero(as_tuple=True)
        patterns = [pattern.tobytes() for pattern in np.packbits(special[index].numpy(), axis=1)]
        new = [place for place, pattern in enumerate(patterns) if pattern not in self._checked_patterns]
        if new:
            self.net.check_rows(Batch(numbers[index[new]], ids[index[new]]))
            self._checked_patterns.update(patterns)

    def _process(self) -> tuple[int, int]:
        """Rank and number of processes; workers of a DataLoader have them from ``set_epoch``."""
        if get_worker_info() is None:
            return rank(), world()
        return int(self._state[2]), int(self._state[3])

    def _process_rows(self) -> tuple[int, int]:
        """The first and last position of this process in the sequence."""
        (number, count), rows = self._process(), self.groups.rows
        if self.equal:
            size = -(-rows // count)
            return number * size, (number + 1) * size
        first = min(number * rows // count, rows - 1)
        return first, max((number + 1) * rows // count, first + 1)

    def _worker_rows(self) -> tuple[int, int, int]:
        """The first and last position of this worker in the sequence, and the number of rows that it skips."""
        first, last = self._process_rows()
        worker = get_worker_info()
        if worker is None:
            return first, last, self.skipped * self.batch_size
        # Workers take turns; worker 0 takes the turn after the last skipped batch.
        count, steps = worker.num_workers, len(self)
        number = (worker.id + self.skipped) % count
        before = number * (steps // count) + min(number, steps % count)
        batches, done = steps // count + (number < steps % count), max(-(-(self.skipped - number) // count), 0)
        start = first + before * self.batch_size
        return start, min(start + batches * self.batch_size, last), done * self.batch_size

    def _table(self, group: int) -> pa.Table:
        columns = [*self.row_columns, self.target, *([self.weight] if self.weight else [])]
        return self.groups.read(group, list(dict.fromkeys(columns)), self.dictionary_columns)

    def _encoded(self, table: pa.Table, group: int) -> list[Tensor]:
        """Numbers, ids, targets and weights of rows of a row group; errors name the group."""
        try:
            return self._tensors(table)
        except BadInput as error:
            error.add_note(f"These are {len(table)} rows of {self.groups.where(group)}.")
            raise

    def _tensors(self, table: pa.Table) -> list[Tensor]:
        before = self._rejections()
        (rows,) = self.net.encoded_parts(table_to_pandas(table.select(self.row_columns)), training=self.training)
        labels = [table.column(name).to_pandas() for name in (self.target, self.weight) if name is not None]
        (numbers, ids), *rest = encode_item(self.net, (rows, *labels), training=self.training)
        if self._rejections() != before and get_worker_info() is not None:
            raise BadInput(
                "the rows hold categories that their encoder rejects; training accepts them, but a worker of a "
                "DataLoader cannot change the translation: stream without workers, or fit the encoder with "
                "handle_unknown='ignore' or a value for unknown ones"
            )
        return [numbers, ids, *rest]

    def _rejections(self) -> list[tuple[bool, bool]]:
        return [(column.rejects_unknown, column.rejects_missing) for column in self.net.encoder.categories]


def _shared(values: list[int]) -> Tensor:
    return torch.tensor(values).share_memory_()  # type: ignore[no-untyped-call,no-any-return]


class _Pass:
    """A pass over the rows in the order of an epoch."""

    def __init__(self, stream: ParquetStream, epoch: int) -> None:
        self.stream, self.epoch = stream, epoch
        sizes = stream.groups.sizes
        self.groups = self._random(0).permutation(len(sizes)) if stream.shuffle else np.arange(len(sizes))
        self.ends = sizes[self.groups].cumsum()
        self._cached: tuple[int, pa.Table] | None = None

    def window(self, first: int, last: int) -> list[Tensor]:
        """The rows between two positions in the sequence, encoded and shuffled."""
        blocks: list[Tensor] = []
        places = self._places(first, last)
        done = 0
        for group, start, stop in self._slices(first, last):
            for at in range(start, stop, ENCODED_ROWS):
                parts = self.stream._encoded(self._table(group).slice(at, min(ENCODED_ROWS, stop - at)), group)
                if not blocks:
                    pin = torch.cuda.is_available() and get_worker_info() is None
                    blocks = [part.new_empty((last - first, *part.shape[1:]), pin_memory=pin) for part in parts]
                targets = places[done : done + len(parts[0])]
                for block, part in zip(blocks, parts, strict=True):
                    block[targets] = part
                done += len(targets)
        return blocks

    def _places(self, first: int, last: int) -> Tensor:
        """The shuffled position of each row in its window."""
        if not self.stream.shuffle:
            return torch.arange(last - first)
        return torch.from_numpy(self._random(1 + first).permutation(last - first))

    def _slices(self, first: int, last: int) -> Iterator[tuple[int, int, int]]:
        """Group, start and stop of the rows between two positions; after its end, the sequence starts again."""
        sizes, rows = self.stream.groups.sizes, self.stream.groups.rows
        while first < last:
            place = int(np.searchsorted(self.ends, first % rows, side="right"))
            group, end = int(self.groups[place]), int(self.ends[place])
            start = first % rows - (end - int(sizes[group]))
            stop = min(start + last - first, int(sizes[group]))
            yield group, start, stop
            first += stop - start

    def _table(self, group: int) -> pa.Table:
        """A row group; the last one is cached, as the next window may begin within it."""
        if self._cached is None or self._cached[0] != group:
            self._cached = None
            self._cached = group, self.stream._table(group)
        return self._cached[1]

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
) -> ParquetStream:
    """Read the rows of Parquet files as batches for ``fit``; they need not fit in memory.

    About two windows of ``buffer`` encoded rows and one row group are in memory. Row groups of about a hundred
    thousand rows work best.

    Parameters
    ----------
    net : TranslatedPipeline
        Encodes rows and targets.
    paths : path or list of paths
        Files, folders of ``*.parquet``, or patterns such as ``"folder/*.parquet"``, of one table.
    target, weight : str
        The column of the original targets, and that of row weights, from 0.
    columns : list of str, optional
        The columns of the raw rows. By default those that the translation reads by name, if the files have them, and
        else all but the target and the weight.
    batch_size : int
        Rows per batch and process; the last batch of an epoch may be smaller.
    shuffle : bool
        Whether row groups, and rows within a window, come in random order.
    seed : int
        Seed of that order, together with the epoch.
    buffer : int
        Number of rows that are shuffled together, rounded down to whole batches.
    training : bool
        Passed on to ``net.encode``.

    Returns
    -------
    ParquetStream

    Raises
    ------
    BadInput
        For paths without Parquet files, files of different columns, no rows, and columns that are not there.
    BadFile
        For a file that is not a Parquet file.
    InvalidOption
        For a batch size, buffer or seed that is no whole number from 1, 1 and 0.
    """
    least = {"batch_size": (batch_size, 1), "buffer": (buffer, 1), "seed": (seed, 0)}
    batch_size, buffer, seed = (check_whole(name, *value) for name, value in least.items())
    groups = RowGroups.of(paths)
    names = groups.schema.names
    others = [name for name in names if name not in (target, weight)]
    read = _columns_read(net, others) if columns is None else [*columns]
    for name in (target, *([] if weight is None else [weight]), *read):
        if name not in names:
            raise BadInput(f"there is no column {name!r} in {groups.files[0]}: {nearest(name, names)}")
    order: dict[str, Any] = {"batch_size": batch_size, "shuffle": shuffle, "seed": seed, "buffer": buffer}
    return ParquetStream(net, groups, read, target, weight, **order, training=training)


def _columns_read(net: TranslatedPipeline, names: list[str]) -> list[str]:
    """The columns that a translation reads by name, if the files have all of them; else all columns."""
    if net.encoder.names is None:
        return names
    wanted = [net.encoder.names[column] for column in net.read_columns]
    return wanted if set(wanted) <= set(names) else names
