"""The requests that wait, and the batches that they form."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from threading import TIMEOUT_MAX, Condition
from time import monotonic
from weakref import ref

from windtunnel.errors import InvalidOption, Overloaded
from windtunnel.serving.queue_steps import Outputs, Task


@dataclass(frozen=True, eq=False)
class Request:
    """A task that waits, and where the outputs of its request go."""

    task: Task
    outputs: Future[Outputs] = field(default_factory=Future)
    arrived: float = field(default_factory=monotonic)  # when, by ``time.monotonic``
    seconds: float = 0.0  # what its part of earlier batches took

    def starts(self) -> bool:
        """Whether the caller has not cancelled it; from now on it cannot be cancelled."""
        return self.outputs.running() or self.outputs.set_running_or_notify_cancel()

    def at_next_step(self, task: Task, seconds: float) -> Request:
        """The same request with the task that a batch left, which took it some seconds."""
        return replace(self, task=task, seconds=self.seconds + seconds)


class Pool:
    """Requests in the order of their arrival, from which one thread takes batches.

    A batch has up to ``max_batch`` rows, or is a single larger request. The first request waits up to ``max_wait``
    seconds for others, although the thread is idle. At most ``max_queue`` rows wait, but any number in a single
    request.
    """

    def __init__(self, max_batch: int, max_wait: float, max_queue: int) -> None:
        self._max_batch, self._max_wait, self._max_queue = max_batch, max_wait, max_queue
        self._requests: deque[Request] = deque()
        self._changed = Condition()
        self._closed = False
        self.rows = 0

    @property
    def idle(self) -> bool:
        """Whether nothing waits and requests are accepted."""
        return not self._requests and not self._closed

    def put(self, request: Request) -> None:
        """Add a request."""
        with self._changed:
            if self._closed:
                raise InvalidOption("the server is closed; make another one.")
            if self.rows and self.rows + request.task.count > self._max_queue:
                raise Overloaded(f"{self.rows} rows wait, of at most {self._max_queue}; send the request again later.")
            self._requests.append(request)
            self.rows += request.task.count
            self._changed.notify()
        # A future lives as long as its caller keeps it, the request and its model only until it is done.
        request.outputs.add_done_callback(partial(self._remove_cancelled, ref(request)))

    def _remove_cancelled(self, reference: ref[Request], outputs: Future[Outputs]) -> None:
        request = reference()
        with self._changed:
            if request is not None and outputs.cancelled() and request in self._requests:
                self._requests.remove(request)
                self.rows -= request.task.count

    def put_back(self, requests: Sequence[Request]) -> None:
        """Add requests that wait for their next step, before those that arrived after them."""
        if requests:
            with self._changed:
                self._requests = deque(sorted([*requests, *self._requests], key=lambda request: request.arrived))
                self.rows += sum(request.task.count for request in requests)

    def take(self) -> list[Request]:
        """Wait for the next batch; nothing once the pool is closed and empty."""
        with self._changed:
            while self._requests or not self._closed:
                wait: float | None = None
                if self._requests:
                    wait = min(self._requests[0].arrived + self._max_wait - monotonic(), TIMEOUT_MAX)
                    if wait <= 0 or self.rows >= self._max_batch or self._closed:
                        return self._batch()
                self._changed.wait(wait)
            return []

    def _batch(self) -> list[Request]:
        """Remove the first request and those that can join it, in the order of their arrival."""
        first = self._requests[0].task
        taken: list[Request] = []
        others: list[Request] = []
        rows = 0
        while self._requests:
            request = self._requests[0]
            if not request.task.joins(first):
                others.append(self._requests.popleft())
            elif taken and rows + request.task.count > self._max_batch:
                break
            else:
                taken.append(self._requests.popleft())
                rows += request.task.count
        self._requests.extendleft(reversed(others))
        self.rows -= rows
        return taken

    def close(self) -> None:
        """Accept no more requests."""
        with self._changed:
            self._closed = True
            self._changed.notify()
