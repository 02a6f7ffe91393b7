"""``Stage``: one of the two steps in which a cascade predicts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from windtunnel.encode import Batch, Rows
from windtunnel.errors import BadInput
from windtunnel.pipeline.host_step import raw_columns_read
from windtunnel.program.translated import TranslatedPipeline
from windtunnel.serving.cascade.host_features import HostFeatures

# Look-ups in a remote store wait for it, so that there are many more threads than cores.
_REQUESTS = ThreadPoolExecutor(32, thread_name_prefix="windtunnel-lookup")


@dataclass(frozen=True, eq=False)
class StageOutput:
    """The output of a stage for a batch."""

    predictions: NDArray[np.float64]  # probabilities ``[B, classes]`` of a classifier, values ``[B]`` of a regressor
    shared: NDArray[np.float64]  # columns that the next stage need not compute again, float64 ``[B, w]``; w may be 0


@dataclass(frozen=True, eq=False)
class UnsureRows:
    """What the small model has computed for rows that the full model has to predict."""

    probabilities: NDArray[np.float64]  # ``[B, classes]``, of all rows
    positions: NDArray[np.intp]  # the places of the unsure rows among those
    shared: NDArray[np.float64]  # the columns of the unsure rows that the full model need not compute again

    def __len__(self) -> int:
        return len(self.positions)

    def filled(self, predictions: NDArray[np.float64]) -> NDArray[np.float64]:
        """The probabilities of all rows, with those of the full model for the unsure ones; the array is changed."""
        self.probabilities[self.positions] = predictions
        return self.probabilities


class Stage:
    """Turns raw rows, and columns that an earlier stage has computed, into predictions.

    The encoder's numbers of ``net`` are raw columns first, then those of ``hosts``, which the source's own code
    computes, then ``shared`` numbers that an earlier stage has computed. Its scores are ``outputs`` columns of the
    model's own, which ``finish`` turns into predictions, followed by what the next stage takes over.
    """

    def __init__(
        self,
        net: TranslatedPipeline,
        hosts: Sequence[HostFeatures],
        shared: int,
        outputs: int,
        finish: Callable[[Tensor], Tensor],
    ) -> None:
        self.net, self.hosts, self.shared, self.outputs = net, hosts, shared, outputs
        self._finish = finish
        width = net.encoder.width
        numbers = [column for column in net.encoder.numbers if column < width]
        self._raw = replace(net.encoder, numbers=numbers)
        self._host_columns = raw_columns_read(features.host for features in hosts)

    @property
    def encodes_slowly(self) -> bool:
        """Whether code on the host computes features."""
        return bool(self.hosts or self.net.hosts)

    def encode(self, rows: Rows, shared: NDArray[np.float64] | None = None) -> Batch:
        """Raw rows as a batch; batches of several requests can be joined row by row.

        A second stage needs ``StageOutput.shared`` of these rows.
        """
        source = self.net.encoder.source_rows(rows, self._host_columns) if self.hosts else None
        batch = self._encode_raw(rows, source)
        if len(batch.ids) == 0:
            raise BadInput("got 0 rows; at least 1 is needed to predict.")
        blocks = _computed(self.hosts, source, self._raw.width)
        if self.shared:
            assert shared is not None
            blocks.append(shared)
        if not blocks:
            return batch
        return Batch(torch.from_numpy(np.hstack([batch.numbers.numpy(), *blocks])), batch.ids)

    def _encode_raw(self, rows: Rows, source: Any) -> Batch:
        """The raw columns that the net reads itself; empty rows if only its hosts read some."""
        if source is not None and not (self._raw.numbers or self._raw.categories):
            return Batch.of_numbers(torch.empty((len(source), 0), dtype=torch.float64))
        engine = self.net.engine
        return self._raw.encode_rows(rows, text_ids=None if engine is None else engine.text_ids)

    def score(self, rows: Rows) -> StageOutput:
        """Predictions for raw rows, by a first stage."""
        return self.run(self.encode(rows))

    def run(self, batch: Batch) -> StageOutput:
        """Predictions for encoded rows."""
        scores = self.net.scores(batch)
        predictions = self._finish(scores[:, : self.outputs])
        return StageOutput(predictions.numpy(), scores[:, self.outputs :].numpy())


class WholeStage:
    """A net as a stage that shares nothing; ``method`` is "predict_proba" or "predict"."""

    hosts: Sequence[HostFeatures] = ()
    shared = 0

    def __init__(self, net: TranslatedPipeline, method: str) -> None:
        self.net, self.method = net, method

    @property
    def encodes_slowly(self) -> bool:
        """Whether steps of the net stay on the host."""
        return bool(self.net.hosts)

    def encode(self, rows: Rows, shared: NDArray[np.float64] | None = None) -> Batch:
        """Raw rows as a batch."""
        return self.net.encode(rows)

    def score(self, rows: Rows) -> StageOutput:
        """Predictions for raw rows."""
        return self.run(rows)

    def run(self, rows: Rows | Batch) -> StageOutput:
        """Predictions for a batch, or for raw rows."""
        predictions = np.asarray(getattr(self.net, self.method)(rows), dtype=np.float64)
        return StageOutput(predictions, np.empty((len(predictions), 0)))


def _computed(hosts: Sequence[HostFeatures], source: Any, width: int) -> list[NDArray[np.float64]]:
    """The features of all host steps; requests to stores wait at the same time."""
    remote = [host for host in hosts if host.remote] if len(hosts) > 1 else []
    if len(remote) < 2:
        return [host.compute(source, width) for host in hosts]
    futures = {host: _REQUESTS.submit(host.compute, source, width) for host in remote[1:]}
    return [futures[host].result() if host in futures else host.compute(source, width) for host in hosts]
