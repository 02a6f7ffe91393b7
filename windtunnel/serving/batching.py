"""``Server``: requests of many callers, scored in the batches that they form while the processor is busy."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future
from threading import Thread
from time import monotonic
from typing import Any, Self

from windtunnel.encode import Rows
from windtunnel.errors import InvalidOption
from windtunnel.program.translated import TranslatedPipeline
from windtunnel.serving.cascade.cascade import Cascade
from windtunnel.serving.pool import Pool, Request
from windtunnel.serving.queue_steps import Entry, Outputs, Task

SCORED_AT_ONCE = 32
"""Requests of at most so many rows are scored at once, if the model is quick and nothing waits."""
WEIGHT = 0.1
"""The weight of the last request of a few rows in the running mean of their times."""


class Server:
    """Scores the requests of many callers in common batches.

    The caller itself scores a few rows, if that takes less time than handing them to a thread, as it does with the
    native engine. Any other request waits in a queue, first come, first served, from which one thread takes as many
    rows as fit in a batch. Rows are encoded by their caller, or with the batch if steps on the host take part in it.
    While a batch is scored, the next one gathers: a lone request does not wait, and the busier the server, the larger
    its batches. A request with a row that the source rejects fails alone.

    A cascade is computed in two stages, each a step that requests wait for. All requests wait in one pool, and a batch
    holds requests that wait for the same step as the one that arrived first. After the small model, requests whose rows
    it predicts alone leave at once; the others go back into the pool, where they are batched with those that earlier
    batches left for the full model. No request overtakes an earlier one within a step.

    Parameters
    ----------
    net : Translation or Cascade
        The result of ``windtunnel.compile``, ``translate``, ``load`` or ``cascade``.
    max_batch : int
        The most rows of a batch; a larger request is a batch by itself.
    max_wait_ms : float
        How long a request may wait for others although the server is idle, in milliseconds.
    max_queue : int
        The most rows that wait.

    Examples
    --------
    >>> import asyncio, numpy as np, windtunnel
    >>> from sklearn.linear_model import LinearRegression
    >>> net = windtunnel.compile(LinearRegression().fit([[0.0], [1.0]], [1.0, 3.0]))
    >>> async def main():
    ...     async with windtunnel.Server(net) as server:
    ...         return await asyncio.gather(*(server.predict(np.array([[x]])) for x in (0.0, 2.0)))
    >>> [values.round(6).tolist() for values in asyncio.run(main())]
    [[1.0], [5.0]]

    Source
    ------
    Yu et al., Orca: a distributed serving system for transformer-based generative models, OSDI 2022.
    """

    QUICK_SECONDS = 0.0003
    """Handing a request to the thread and back takes about this long."""

    def __init__(
        self,
        net: TranslatedPipeline | Cascade,
        *,
        max_batch: int = 4096,
        max_wait_ms: float = 0.0,
        max_queue: int = 100_000,
    ) -> None:
        least = {"max_batch": (max_batch, 1), "max_wait_ms": (max_wait_ms, 0), "max_queue": (max_queue, 1)}
        if wrong := [f"{name}={value!r}" for name, (value, bound) in least.items() if not value >= bound]:
            raise InvalidOption(f"Server got {', '.join(wrong)}; accepted are 1 row or more, and a wait of 0 or more.")
        self._entry = self.entry(net)
        self._pool = Pool(max_batch, max_wait_ms / 1000, max_queue)
        self._seconds = self.QUICK_SECONDS  # the mean time of requests of a few rows
        self._thread = Thread(target=self._work, name="windtunnel-server", daemon=True)
        self._thread.start()

    @property
    def queued_rows(self) -> int:
        """The rows that wait."""
        return self._pool.rows

    async def predict(self, rows: Rows) -> Any:
        """The output of ``net.predict``."""
        return (await self.outputs(("predict",), rows))[0]

    async def predict_proba(self, rows: Rows) -> Any:
        """The output of ``net.predict_proba``."""
        return (await self.outputs(("predict_proba",), rows))[0]

    async def decision_function(self, rows: Rows) -> Any:
        """The output of ``net.decision_function``."""
        return (await self.outputs(("decision_function",), rows))[0]

    async def outputs(self, methods: Sequence[str], rows: Rows) -> tuple[Any, ...]:
        """The outputs of several methods for the same rows; see ``submit`` for errors."""
        return await asyncio.wrap_future(self.submit(methods, rows))

    def submit(self, methods: Sequence[str], rows: Rows) -> Future[tuple[Any, ...]]:
        """Encode rows and put them into the pool; for callers that are threads.

        Parameters
        ----------
        methods : sequence of str
            Such as ``("predict", "predict_proba")``.
        rows : raw rows
            As for ``net.predict``.

        Returns
        -------
        Future
            The output of each method. Cancelling it takes the request out of the pool.

        Raises
        ------
        BadInput
            Rows that cannot be encoded; for rows that a step rejects, either this method or the future raises it.
        Overloaded
            ``max_queue`` rows wait.
        InvalidOption
            The server is closed, or the source lacks a method.
        """
        outputs = self.outputs_or_future(methods, rows)
        if isinstance(outputs, Future):
            return outputs
        future = Future[Outputs]()
        future.set_result(outputs)
        return future

    def outputs_or_future(
        self, methods: Sequence[str], rows: Rows, entry: Entry | None = None
    ) -> tuple[Any, ...] | Future[tuple[Any, ...]]:
        """Do the same as ``submit``, but return the outputs themselves if the rows are scored at once.

        They are scored by the model of an entry, which may have been replaced since the caller looked it up.
        """
        entry = entry or self._entry
        net, step = entry.net, entry.step
        if isinstance(methods, str) or not methods:
            raise InvalidOption(f"methods={methods!r}; give a list of them, such as ['predict']")
        if lacking := [method for method in methods if method not in step.methods]:
            raise InvalidOption(f"the model has no {', '.join(lacking)}; it has {', '.join(step.methods)}.")
        if self._seconds < self.QUICK_SECONDS and self._pool.idle and net.encoder.count_rows(rows) <= SCORED_AT_ONCE:
            start = monotonic()
            outputs = step.outputs(methods, rows)
            self._record_time(monotonic() - start)
            return outputs
        request = Request(step.task(tuple(methods), rows))
        self._pool.put(request)
        return request.outputs

    def _record_time(self, seconds: float) -> None:
        # The processor may have been busy elsewhere once.
        self._seconds += WEIGHT * (min(seconds, 4 * self.QUICK_SECONDS) - self._seconds)

    def replace(self, net: TranslatedPipeline | Cascade) -> None:
        """Score the requests from now on with another model; those in the pool keep theirs."""
        self._entry = self.entry(net)

    @staticmethod
    def entry(net: TranslatedPipeline | Cascade) -> Entry:
        """Where the requests for a model enter."""
        return Entry.of(net)

    def close(self) -> None:
        """Score what waits, then end the thread."""
        self._pool.close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await asyncio.to_thread(self.close)

    def _work(self) -> None:
        """Score batch after batch, until the server is closed and nothing waits."""
        while self._score_next_batch():
            pass  # nothing of a batch, such as a model that was replaced, is kept while the thread waits for the next

    def _score_next_batch(self) -> bool:
        """Wait for a batch, and score it; False if the server is closed and nothing waits."""
        if not (batch := self._pool.take()):
            return False
        requests = [request for request in batch if request.starts()]
        start = monotonic()
        results = _run(requests)
        seconds = (monotonic() - start) / max(len(requests), 1)
        for_next_step = []
        for request, result in zip(requests, results, strict=True):
            if isinstance(result, Task):
                for_next_step.append(request.at_next_step(result, seconds))
            elif isinstance(result, Exception):
                request.outputs.set_exception(result)
            else:
                if request.task.count <= SCORED_AT_ONCE:
                    self._record_time(request.seconds + seconds)
                request.outputs.set_result(result)
        self._pool.put_back(for_next_step)
        return True


def _run(requests: Sequence[Request]) -> list[Outputs | Task | Exception]:
    """The result of each request of a batch; a batch that fails is halved until the requests at fault are alone."""
    if not requests:
        return []
    try:
        return [*requests[0].task.step.run([request.task for request in requests])]
    except Exception as error:  # handed to the callers
        half = len(requests) // 2
        return [error] if not half else _run(requests[:half]) + _run(requests[half:])
