"""``Server``: requests of many callers, scored in the batches that they form while the processor is busy."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Condition, Thread
from time import monotonic
from typing import Any, Self

import numpy as np
import torch

from windtunnel.encode import Batch, Rows
from windtunnel.errors import InvalidOption, Overloaded
from windtunnel.program.translated import TranslatedPipeline

FEW_ROWS = 32
QUICK_SECONDS = 0.0003
"""Handing a request to the thread and back takes about this long."""
SLOW_REQUESTS = 3
"""After so many slow requests of a few rows, the next ones are queued."""


@dataclass(frozen=True, eq=False)
class _Request:
    """Encoded rows that wait for the outputs of some methods."""

    net: TranslatedPipeline
    methods: tuple[str, ...]
    batch: Batch
    arrived: float = field(default_factory=monotonic)
    outputs: Future[tuple[Any, ...]] = field(default_factory=Future)

    @property
    def rows(self) -> int:
        return len(self.batch.ids)

    def joins(self, other: _Request) -> bool:
        """Whether one batch can hold both."""
        return self.net is other.net and self.methods == other.methods


class Server:
    """Scores the requests of many callers in common batches.

    A few rows that take less time than handing them to a thread, as they do with the native engine, are scored by their
    caller. Any other request is encoded by its caller. Then it waits in a queue, first come, first served, from which
    one thread takes as many rows as fit in a batch. While a batch is scored, the next one gathers: a lone request does
    not wait, and the busier the server, the larger its batches. A request with a row that the source rejects fails
    alone.

    Parameters
    ----------
    net : Translation
        Of ``windtunnel.compile``, ``translate`` or ``load``.
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
    """

    def __init__(
        self, net: TranslatedPipeline, *, max_batch: int = 4096, max_wait_ms: float = 0.0, max_queue: int = 100_000
    ) -> None:
        least = {"max_batch": (max_batch, 1), "max_wait_ms": (max_wait_ms, 0), "max_queue": (max_queue, 1)}
        if wrong := [f"{name}={value!r}" for name, (value, bound) in least.items() if not value >= bound]:
            raise InvalidOption(f"Server got {', '.join(wrong)}; accepted are 1 row or more, and a wait of 0 or more.")
        self.net = net
        self.max_batch, self.max_wait, self.max_queue = max_batch, max_wait_ms / 1000, max_queue
        self._requests: deque[_Request] = deque()
        self._rows = 0
        self._closed = False
        self._quick = False  # whether requests of a few rows take less than handing them over
        self._slow = 0  # how many of these took longer, one after the other
        self._changed = Condition()
        self._thread = Thread(target=self._work, name="windtunnel-server", daemon=True)
        self._thread.start()

    @property
    def queued_rows(self) -> int:
        """The rows that wait."""
        return self._rows

    async def predict(self, rows: Rows) -> Any:
        """What ``net.predict`` gives."""
        return (await self.outputs(("predict",), rows))[0]

    async def predict_proba(self, rows: Rows) -> Any:
        """What ``net.predict_proba`` gives."""
        return (await self.outputs(("predict_proba",), rows))[0]

    async def decision_function(self, rows: Rows) -> Any:
        """What ``net.decision_function`` gives."""
        return (await self.outputs(("decision_function",), rows))[0]

    async def outputs(self, methods: Sequence[str], rows: Rows) -> tuple[Any, ...]:
        """The outputs of several methods for the same rows; see ``submit`` for errors."""
        return await asyncio.wrap_future(self.submit(methods, rows))

    def submit(self, methods: Sequence[str], rows: Rows) -> Future[tuple[Any, ...]]:
        """Encode rows and put them into the queue; for callers that are threads.

        Parameters
        ----------
        methods : sequence of str
            Such as ``("predict", "predict_proba")``.
        rows : raw rows
            As for ``net.predict``.

        Returns
        -------
        Future
            The output of each method. Cancelling it takes the request out of the queue.

        Raises
        ------
        BadInput
            Rows that cannot be encoded; for rows that a step rejects, either this method or the future raises it.
        Overloaded
            ``max_queue`` rows wait.
        InvalidOption
            The server is closed, or the source lacks a method.
        """
        net = self.net
        if lacking := [method for method in methods if method not in net.head.methods]:
            raise InvalidOption(f"the source has no {', '.join(lacking)}; it has {', '.join(net.head.methods)}.")
        if self._quick and not self._requests and not self._closed and _count(rows) <= FEW_ROWS:
            return self._scored_now(net, methods, rows)
        request = _Request(net, tuple(methods), net.encode(rows))
        with self._changed:
            if self._closed:
                raise InvalidOption("the server is closed; make another one.")
            if self._rows and self._rows + request.rows > self.max_queue:
                raise Overloaded(f"{self._rows} rows wait, of at most {self.max_queue}; send the request again later.")
            self._requests.append(request)
            self._rows += request.rows
            self._changed.notify()
        return request.outputs

    def _scored_now(self, net: TranslatedPipeline, methods: Sequence[str], rows: Rows) -> Future[tuple[Any, ...]]:
        """The outputs of rows that are not queued; ``BadInput`` is raised, not kept in the future."""
        start, outputs = monotonic(), Future[tuple[Any, ...]]()
        outputs.set_result(tuple(getattr(net, method)(rows) for method in methods))
        # The processor may have been busy elsewhere once.
        self._slow = 0 if monotonic() - start < QUICK_SECONDS else self._slow + 1
        self._quick = self._slow < SLOW_REQUESTS
        return outputs

    def replace(self, net: TranslatedPipeline) -> None:
        """Score the requests from now on with another model; those in the queue keep theirs."""
        self.net = net

    def close(self) -> None:
        """Score what waits, then end the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
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
        while requests := self._next_batch():
            running = [request for request in requests if request.outputs.set_running_or_notify_cancel()]
            start = monotonic()
            if running:
                _score(running)
            if running and all(request.rows <= FEW_ROWS for request in running):
                self._quick, self._slow = (monotonic() - start) / len(running) < QUICK_SECONDS, 0

    def _next_batch(self) -> list[_Request]:
        """The requests of the next batch, in the order of arrival; none once the server is closed and has no more."""
        with self._changed:
            while True:
                wait: float | None = None
                if self._requests:
                    wait = self._requests[0].arrived + self.max_wait - monotonic()
                    if wait <= 0 or self._rows >= self.max_batch or self._closed:
                        return self._take()
                elif self._closed:
                    return []
                self._changed.wait(wait)

    def _take(self) -> list[_Request]:
        first = self._requests[0]
        taken: list[_Request] = []
        left: deque[_Request] = deque()
        rows = 0
        while self._requests:
            request = self._requests.popleft()
            if request.joins(first) and (not taken or rows + request.rows <= self.max_batch):
                taken.append(request)
                rows += request.rows
            else:
                left.append(request)
        self._requests = left
        self._rows -= rows
        return taken


def _score(requests: list[_Request]) -> None:
    """Set the outputs of requests that share a batch."""
    try:
        outputs = _outputs(requests)
    except Exception as error:  # handed to the callers
        if len(requests) == 1:
            requests[0].outputs.set_exception(error)
        else:
            for request in requests:
                _score([request])
        return
    for request, values in zip(requests, outputs, strict=True):
        request.outputs.set_result(values)


def _outputs(requests: list[_Request]) -> list[tuple[Any, ...]]:
    first = requests[0]
    if len(requests) == 1:
        return [tuple(getattr(first.net, method)(first.batch) for method in first.methods)]
    batch = Batch(
        torch.cat([request.batch.numbers for request in requests]),
        torch.cat([request.batch.ids for request in requests]),
    )
    ends = np.cumsum([request.rows for request in requests])[:-1]
    parts = [_split(getattr(first.net, method)(batch), ends) for method in first.methods]
    return [*zip(*parts, strict=True)]


def _split(values: Any, ends: np.ndarray[Any, Any]) -> list[Any]:
    """The output of each request; several targets are a list of arrays."""
    if isinstance(values, list):
        return [[*parts] for parts in zip(*(np.split(target, ends) for target in values), strict=True)]
    return np.split(values, ends)


def _count(rows: Rows) -> int:
    """The number of rows of a kind that is quick to count; else more than a few."""
    if isinstance(rows, dict) and rows:
        column = next(iter(rows.values()))
        return len(column) if isinstance(column, list) else FEW_ROWS + 1
    return len(rows) if isinstance(rows, list | np.ndarray) else FEW_ROWS + 1
