"""A program that takes raw rows: encodes them, runs on them slice by slice, and rejects what the source rejects."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor, nn

from windtunnel.encode import FIRST_ID, Batch, CategoryColumn, RowEncoder, Rows
from windtunnel.encode.dense_rows import dense_slices
from windtunnel.encode.rows import check_dense
from windtunnel.errors import BadInput
from windtunnel.pipeline.host_step import HostStep
from windtunnel.program.head import Head
from windtunnel.program.kept_modes import kept_modes
from windtunnel.program.program import BEYOND_FLOAT32, Program
from windtunnel.program.program_facts import ProgramFacts
from windtunnel.program.row_slices import (
    CPU,
    MAX_SQUARABLE,
    has_non_finite,
    in_slices,
    rows_at_once,
    without_missing,
)

REJECTED_VALUES = (
    (math.nan, torch.isnan),
    (math.inf, torch.isinf),
    (1e39, lambda column: torch.isfinite(column) & (column.abs() >= BEYOND_FLOAT32)),
)
"""A number of each kind that a step may reject, and where a column has this kind."""
PROBES_AT_ONCE = 64
"""Made-up rows that are scored at once to find the columns of numbers that a step rejects."""
SHOWN_COLUMNS = 12
"""Columns that a message names."""
CHUNK_BYTES = 2**24
"""The most memory of rows whose tokens are counted at once; more was slower."""
SPARSE_BYTES = 2**26
"""The most memory of rows of a sparse matrix that are dense at once."""


class Engine(Protocol):
    """Runs a program instead of eager torch."""

    fixed: bool  # whether the program can no longer be trained

    def renewed(self, program: Program, encoder: RowEncoder) -> Self:
        """The same engine for another program."""
        ...

    def output(self, method: str, numbers: Tensor, ids: Tensor) -> Tensor:
        """The output of ``Program.output``; called without gradients, with rows on the device of the program."""
        ...

    def text_ids(self, category: CategoryColumn, values: pd.Series) -> NDArray[np.int64] | None:
        """The ids of a column, as ``category.ids`` gives them; None for a column that it has to encode or reject."""
        ...

    def direct(self, net: ScoringPipeline, method: str, rows: Rows) -> Any:
        """The output of a method of the source for raw rows; None if they have to be encoded and checked first."""
        ...


class ScoringPipeline(nn.Module):
    """A program behind its row encoder: raw rows to batches, batches to the outputs of the program.

    What happens to rows on the way to an output of the program, or of one of its methods (``_output_of_rows``):

    1. A sparse matrix that linear sums read goes there as it is, any other one in dense slices (``_sparse_output``).
    2. If host steps count terms that are only summed, a shorter pipeline takes over, whose host steps give the sums.
    3. Otherwise the encoder makes batches of the rows (``encoded_parts``): arrays first, then few rows, then frames.
    4. The engine runs each batch in slices, and rows that the source rejects are rejected (``_output_of_batch``).

    Attributes
    ----------
    program : Program
        The modules and their wiring.
    encoder : RowEncoder
        The raw columns that are read, and their vocabularies.
    head : Head
        Task, link, labels.
    hosts : list of HostStep
        Steps that stay on the host.
    engine : Engine or None
        Runs the program; None is eager torch.
    batch_size : int
        How many rows go through the program at once.
    """

    def __init__(self, program: Program, encoder: RowEncoder, head: Head, hosts: Sequence[HostStep] = ()) -> None:
        super().__init__()
        self.program = program
        self.encoder, self.head, self.hosts = encoder, head, list(hosts)
        self.engine: Engine | None = None
        self.batch_size = rows_at_once(program)
        self._facts: ProgramFacts | None = None
        self._summed: SummedPipeline | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_facts": None, "_summed": None}  # a copy makes them of its own modules

    def encode(self, rows: Rows, *, training: bool = False) -> Batch:
        """Raw rows as tensors.

        Parameters
        ----------
        rows : DataFrame, Arrow table, NumPy array or dict of columns
        training : bool
            Accepts categories that the source rejects (``handle_unknown="error"``). They get the row of the unknown
            category, which training moves, and ``predict`` accepts them from then on. Rows that ``predict`` rejects
            for their numbers are rejected here too, see ``check_rows``.

        Raises
        ------
        BadInput
            Columns missing, of the wrong number or kind, or categories that the source rejects.
        """
        (batch,) = self.encoded_parts(rows, training=training)
        if training and not isinstance(rows, Batch):
            self.check_rows(batch)
        return batch

    def encoded_parts(
        self, rows: Rows, *, training: bool = False, at_once: int | None = None, shared: bool = False
    ) -> Iterable[Batch]:
        """Raw rows as batches of at most ``at_once`` rows, by default as a single one.

        ``shared`` is that of ``RowEncoder.encode_rows``.
        """
        if isinstance(rows, Batch):
            return (self.encoder.check_batch(rows),)
        if self.hosts:
            return self._encoded_with_hosts(rows, training, at_once)
        text_ids = None if training or self.engine is None else self.engine.text_ids
        return (self.encoder.encode_rows(rows, training=training, shared=shared, text_ids=text_ids),)

    def _encoded_with_hosts(self, rows: Rows, training: bool, at_once: int | None) -> Iterator[Batch]:
        """Raw rows with the columns that host steps compute."""
        counted = all(host.tokens is not None for host in self.hosts)
        if counted and not self.encoder.used_columns():
            yield from self._encoded_counts(rows, at_once)
            return
        if counted and (few := self.encoder.encode_few(rows)) is not None:
            source = self.source_rows(rows)
            yield self.encoder.add_counts(few, {host.columns[0]: host.count(source) for host in self.hosts})
            return
        frame = self.encoder.select(rows)
        self._check_not_empty(frame)
        frame, source, size = frame.reset_index(drop=True), self.source_rows(rows), at_once or len(frame)
        for start in range(0, len(frame), size):
            part = source[start : start + size]
            computed = [host.output(part) for host in self.hosts if host.tokens is None]
            counts = {host.columns[0]: host.count(part) for host in self.hosts if host.tokens is not None}
            read = frame.iloc[start : start + size].reset_index(drop=True)
            parts = [columns for columns in (read, *computed) if len(columns.columns)]
            yield self.encoder.encode(pd.concat(parts or [read], axis=1), training=training, counts=counts)

    def _encoded_counts(self, rows: Rows, at_once: int | None) -> Iterator[Batch]:
        """Batches of what host steps count, and nothing else."""
        source = self.source_rows(rows)
        self._check_not_empty(source)
        size = at_once or len(source)
        for start in range(0, len(source), size):
            counts = {host.columns[0]: host.count(source[start : start + size]) for host in self.hosts}
            yield self.encoder.of_counts(counts)

    def _check_not_empty(self, rows: Any) -> None:
        if len(rows) == 0:
            raise BadInput(f"got 0 rows; step {self.hosts[0].name!r}, kept on the host, needs at least 1.")

    def scores(self, rows: Rows) -> Tensor:
        """Raw scores ``[B, K]`` of raw rows, on the CPU, without gradients.

        Raises
        ------
        BadInput
            No rows, or numbers that a step of the source rejects too: missing, infinite, or beyond float32.
        """
        return self._output_of_rows("scores", rows)

    def _output_of_rows(self, method: str, rows: Rows, finish: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """The output of a method for raw rows: of the method's own step, else ``finish`` applied to the scores."""
        facts = self.facts()
        if method in facts.methods:
            finish = None
        else:
            method = "scores"
        if not self.hosts and (numbers := self.encoder.sparse_numbers(rows)) is not None:
            return self._sparse_output(facts, method, numbers, finish)
        if not isinstance(rows, Batch) and (summed := self._pipeline_of_summed_counts(facts)) is not None:
            return summed._output_of_rows(method, rows, finish)
        # Counts of tokens are dense here. All rows at once might not fit in memory.
        counts = self.hosts and not facts.needs_all_rows and any(host.tokens is not None for host in self.hosts)
        batches = self.encoded_parts(rows, at_once=self._rows_at_once() if counts else None, shared=True)
        outputs = [self._output_of_batch(facts, method, batch, finish) for batch in batches]
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs)

    def _pipeline_of_summed_counts(self, facts: ProgramFacts) -> ScoringPipeline | None:
        """The pipeline whose host steps sum their counts; None if no step does, or the engine is fixed."""
        if facts.summed_counts is None or (self.engine is not None and self.engine.fixed) or facts.device() != CPU:
            return None
        summed = self._summed
        if summed is None or (summed.facts, summed.engine) != (facts, self.engine):
            program, encoder, hosts = facts.summed_counts
            pipeline = ScoringPipeline(program, encoder, self.head, hosts).train(self.training)
            pipeline.engine = None if self.engine is None else self.engine.renewed(program, encoder)
            summed = self._summed = SummedPipeline(facts, self.engine, pipeline)
        summed.pipeline.batch_size = self.batch_size
        return summed.pipeline

    def _sparse_output(
        self, facts: ProgramFacts, method: str, matrix: sparse.csr_array, finish: Callable[[Tensor], Tensor] | None
    ) -> Tensor:
        """The output for the numbers of a sparse matrix: sums of those that it stores, or dense rows in slices."""
        count, width = matrix.shape
        unstored = self.encoder.unstored_number
        stored = Batch.of_numbers(torch.from_numpy(matrix.data).unsqueeze(1))
        suspect = count == 0 or math.isnan(unstored) or has_non_finite(*stored)
        if facts.sums is not None and method == "scores" and not suspect and facts.device() == CPU:
            with torch.inference_mode():
                output = facts.sums.of_sparse(matrix)
                return output if finish is None else finish(output)
        size = count if facts.needs_all_rows else SPARSE_BYTES // (width * matrix.dtype.itemsize)
        check_dense(min(count, size), width, matrix.dtype.itemsize)
        checked = suspect or facts.may_reject_computed_values
        outputs = [
            self._output_of_batch(facts, method, Batch.of_numbers(numbers), finish, checked=checked)
            for numbers in dense_slices(matrix, max(size, 1), unstored)
        ]
        return torch.cat(outputs)

    def _output_of_batch(
        self,
        facts: ProgramFacts,
        method: str,
        batch: Batch,
        finish: Callable[[Tensor], Tensor] | None,
        *,
        checked: bool = True,
    ) -> Tensor:
        numbers, ids = batch
        if ids.shape[0] == 0:
            raise BadInput("got 0 rows; at least 1 is needed to predict.")
        engine, rejected = self.engine or facts.program, []

        def run(numbers: Tensor, ids: Tensor) -> Tensor:
            output = engine.output(method, numbers, ids)
            # Checked here, while the numbers are in the processor's cache.
            if checked and self._some_rejected(facts, method, numbers, ids, output):
                rejected.append(True)
            return output if finish is None else finish(output)

        output = self.run_in_slices(run, batch, facts)
        if rejected:
            raise BadInput(self._why_rejected(method, batch, self._rejected(method, batch)))
        begin = numbers.data_ptr()
        # A view of the rows may be the caller's memory.
        return output.clone() if begin <= output.data_ptr() < begin + numbers.nbytes else output

    def _rows_at_once(self) -> int:
        """How many rows go through the program at once: fewer where tokens make them wide."""
        if all(host.tokens is None for host in self.hosts):
            return self.batch_size
        row = max(len(self.encoder.numbers), 1) * np.dtype(self.encoder.dtype).itemsize
        return min(self.batch_size, max(CHUNK_BYTES // row, 1))

    def _some_rejected(self, facts: ProgramFacts, method: str, numbers: Tensor, ids: Tensor, output: Tensor) -> bool:
        """Whether the source rejects any of these rows; finite scores spare the check of some steps."""
        cleared: frozenset[int] = frozenset()
        if not facts.may_reject_computed_values:
            seen = (
                numbers
                if facts.maybe_non_finite is None
                else numbers.index_select(1, facts.maybe_non_finite.to(numbers.device))
            )
            if not has_non_finite(seen, ids) or (
                facts.takes_missing and not has_non_finite(without_missing(seen), ids[:, :0])
            ):
                return False
            if not facts.needs_all_rows:
                # The norm of a row with a non-finite value is not finite either; some finite rows pass too.
                suspect = ~(torch.linalg.vector_norm(seen, dim=1) <= MAX_SQUARABLE) | (ids < FIRST_ID).any(dim=1)
                numbers, ids = numbers[suspect], ids[suspect]
        elif method == "scores" and torch.isfinite(output).all():
            cleared = facts.cleared_by_scores
        return bool(self.program.rejected(method, numbers, ids, cleared).any())

    def check_rows(self, batch: Batch) -> None:
        """Check that rows can be used for training and validation: ``predict`` accepts each of them.

        Only rows with missing, infinite, unknown or very large values are checked; all rows if a step may reject what
        an earlier one computes; none if the pipeline ends in a transformer.

        Raises
        ------
        BadInput
            A step of the source rejects a row, or a row has no finite score.
        """
        if self.facts().may_reject_computed_values:
            failed = torch.ones(len(batch.ids), dtype=torch.bool)
        else:
            failed = ~(batch.numbers.abs() <= MAX_SQUARABLE).all(dim=1) | (batch.ids < FIRST_ID).any(dim=1)
        if self.head.task == "transform" or not failed.any():
            return
        suspect = batch.take(failed)
        finite = torch.isfinite(self.output("scores", suspect)).all(dim=1)
        failed[failed.clone()] = ~finite | self._rejected("scores", suspect)
        if failed.any():
            raise BadInput(self._why_rejected("scores", batch, failed))

    def output(self, method: str, batch: Batch) -> Tensor:
        """The program's output for encoded rows: "scores", or a method that has a step in the program."""
        return self.run_in_slices(partial((self.engine or self.program).output, method), batch)

    @property
    def running_engine(self) -> Engine | None:
        """The engine that predicts raw rows: of the pipeline that sums counts, where there is one."""
        summed = self._pipeline_of_summed_counts(self.facts())
        return self.engine if summed is None else summed.engine

    def source_rows(self, rows: Rows) -> Any:
        """Raw rows in the form that steps on the host take; columns that none of them reads may be missing."""
        return self.encoder.source_rows(rows, self.facts().host_columns)

    @property
    def read_columns(self) -> Sequence[int]:
        """The positions of the raw columns that are read: all of them where a step on the host may read all."""
        of_hosts = self.facts().host_columns
        return range(self.encoder.width) if of_hosts is None else sorted({*self.encoder.used_columns()} | of_hosts)

    @property
    def counted_columns(self) -> set[int]:
        """The positions of the raw columns of texts whose terms a step on the host counts."""
        counters = [host.facts()["counter"] for host in self.hosts]
        return {counter["column"] for counter in counters if counter is not None}

    def device(self) -> torch.device:
        """The device of the program."""
        return self.facts().device()

    def facts(self) -> ProgramFacts:
        """Facts of the program, computed anew once a step has another module."""
        # Attribute access on modules takes longer than building this list.
        parts = self._modules["program"]._modules  # type: ignore[union-attr]
        steps = [*parts["steps"]._modules.values(), *parts["method_steps"]._modules.values()]  # type: ignore[union-attr]
        modules = [step._modules["module"] for step in steps]
        if self._facts is None or self._facts.modules != modules:
            self._facts = ProgramFacts(self.program, modules, self.encoder, self.hosts)
        return self._facts

    def _rejected(self, method: str, batch: Batch) -> Tensor:
        """Whether the source would raise on a row, bool ``[B]``."""
        return self.run_in_slices(partial(self.program.rejected, method), batch)

    def run_in_slices(self, run: Callable[..., Tensor], batch: Batch, facts: ProgramFacts | None = None) -> Tensor:
        """``run(numbers, ids)`` slice by slice, in eval mode on the device of the program; the output on the CPU."""
        facts = facts or self.facts()
        if self.training or facts.program.training:
            with kept_modes(self):
                self.eval()
                return self.run_in_slices(run, batch, facts)
        return in_slices(
            run, batch, self._rows_at_once(), facts.device(), whole=facts.needs_all_rows, least=facts.least_rows
        )

    def step_inputs(self, position: int, batch: Batch) -> Tensor:
        """The input of the module of step ``position``, ``[B, width in]``, on the CPU."""
        return self.run_in_slices(partial(self.program.inputs_of, position), batch)

    def _why_rejected(self, method: str, batch: Batch, failed: Tensor) -> str:
        """Name the columns in which such a value alone, with 0 in all others, has a row rejected."""
        numbers, ids = batch.numbers[failed], batch.ids[failed]
        probes = [
            (column, value)
            for value, holds in REJECTED_VALUES
            for column in range(numbers.shape[1])
            if holds(numbers[:, column]).any()
        ]
        at_once = 1 if self.facts().needs_all_rows else PROBES_AT_ONCE
        rejected = set[int]()
        for first in range(0, len(probes), at_once):
            columns, values = zip(*probes[first : first + at_once], strict=True)
            rows = torch.zeros(len(columns), numbers.shape[1], dtype=numbers.dtype)
            rows[torch.arange(len(columns)), torch.tensor(columns)] = torch.tensor(values, dtype=numbers.dtype)
            probe = Batch(rows, ids[:1].expand(len(columns), -1))
            output = self.output(method, probe).reshape(len(columns), -1)
            alone = self._rejected(method, probe) | ~torch.isfinite(output).all(dim=1)
            rejected.update(column for column, is_rejected in zip(columns, alone.tolist(), strict=True) if is_rejected)
            if len(rejected) > SHOWN_COLUMNS:
                break
        names = dict.fromkeys(self.encoder.column_name(self.encoder.numbers[column]) for column in sorted(rejected))
        shown = ", ".join([*names][:SHOWN_COLUMNS]) + " and others" * (len(names) > SHOWN_COLUMNS)
        where = shown or "what a step computes"
        return (
            f"{int(failed.sum())} of {len(failed)} rows have no finite score: NaN, infinite values or values beyond "
            f"float32 in {where} reach a step that does not take them. "
            "Impute or drop them, or put a SimpleImputer in the pipeline before fitting it."
        )


@dataclass(frozen=True)
class SummedPipeline:
    """A pipeline whose host steps sum their counts, with the facts and the engine that it was made of.

    A dataclass, so that torch does not register the pipeline as a submodule of the one that it stands for.
    """

    facts: ProgramFacts
    engine: Engine | None
    pipeline: ScoringPipeline
