"""An open-loop HTTP client in a process of its own: requests arrive at random times, whether others are done or not.

``python -m benchmarks.serving.client REQUEST_FILE PORT RATE SECONDS [CONNECTIONS PATIENCE]`` prints one line of JSON. A
request's time counts from when it was due, so that a server that stops is not spared the requests of that time. A
request that gets no connection within PATIENCE seconds fails. A connection that the server closes is opened again.
"""

from __future__ import annotations

import asyncio
import json
import math
import sys
from collections import deque
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import uvloop

GRACE = 3.0
"""Seconds that are granted to requests under way at the end."""
SPIN = 0.0015
"""Timers are that coarse, in seconds; shorter waits are spent looking at the clock."""


@dataclass(frozen=True)
class Load:
    """What became of the requests of one run; times are those of requests with status 200."""

    offered: float
    seconds: float
    throughput: float
    median_ms: float
    p99_ms: float
    rejected: int
    failed: int


class _Connection(asyncio.Protocol):
    def __init__(self, client: Client) -> None:
        self._client, self._data, self.due = client, b"", 0.0

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self._client.use(self)

    def data_received(self, data: bytes) -> None:
        self._data += data
        head, found, body = self._data.partition(b"\r\n\r\n")
        if found and len(body) >= int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0]):
            self._data = b""
            self._client.finished(self.due, head[9:12] == b"200", head[9:12] == b"503")
            if b"\r\nconnection: close" in head.lower():
                self.transport.close()
            else:
                self._client.use(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._client.lost(self)


class Client:
    """Sends one of some requests at each time of a Poisson process."""

    def __init__(
        self,
        requests: list[bytes],
        rate: float,
        seconds: float,
        *,
        connections: int = 256,
        patience: float = math.inf,
        seed: int = 0,
    ) -> None:
        generator = np.random.default_rng(seed)
        count = max(int(rate * seconds), 1)
        times = generator.exponential(1 / rate, count).cumsum()
        self._times: list[float] = (times * seconds / times[-1]).tolist()
        self._requests = [requests[at] for at in generator.integers(len(requests), size=count)]
        self._rate, self._connections, self._patience = rate, connections, patience
        self._started, self._ended = 0.0, False
        self._idle: list[_Connection] = []
        self._open: set[_Connection] = set()
        self._waiting: deque[int] = deque()
        self._latencies: list[float] = []
        self._rejected, self._given_up, self._last = 0, 0, 0.0
        self._reconnecting: set[asyncio.Task[None]] = set()

    async def run(self, port: int) -> Load:
        """Send everything and wait for what is under way."""
        loop, self._port = asyncio.get_running_loop(), port
        self._loop = loop
        await asyncio.gather(*(self._connect() for _ in range(self._connections)))
        self._started = loop.time()
        for at, time in enumerate(self._times):
            while (wait := self._started + time - loop.time()) > 0:
                await asyncio.sleep(wait - SPIN if wait > SPIN else 0)
            self._waiting.append(at)
            self._send()
        deadline = loop.time() + GRACE
        while self._responses + self._given_up < len(self._times) and loop.time() < deadline:
            await asyncio.sleep(0.01)
        self._ended = True
        for connection in [*self._open]:
            connection.transport.close()
        done = np.array(self._latencies or [np.nan]) * 1e3
        median, p99 = np.quantile(done, [0.5, 0.99])
        failed = len(self._times) - self._responses
        duration = max(self._last - self._started, self._times[-1])
        return Load(self._rate, duration, len(self._latencies) / duration, median, p99, self._rejected, failed)

    @property
    def _responses(self) -> int:
        return len(self._latencies) + self._rejected

    def _send(self) -> None:
        while self._waiting and self._idle:
            at = self._waiting.popleft()
            due = self._started + self._times[at]
            if self._loop.time() - due > self._patience:
                self._given_up += 1
                continue
            connection = self._idle.pop()
            connection.due = due
            connection.transport.write(self._requests[at])

    def finished(self, due: float, good: bool, rejected: bool) -> None:
        """Count a response."""
        self._last = self._loop.time()
        if good:
            self._latencies.append(self._last - due)
        self._rejected += rejected

    async def _connect(self) -> None:
        while not self._ended:
            try:
                await self._loop.create_connection(lambda: _Connection(self), "127.0.0.1", self._port)
                return
            except OSError:
                await asyncio.sleep(0.05)

    def use(self, connection: _Connection) -> None:
        """Send requests over a connection that has none under way."""
        self._open.add(connection)
        self._idle.append(connection)
        self._send()

    def lost(self, connection: _Connection) -> None:
        """Open another connection."""
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)
        if not self._ended:
            task = self._loop.create_task(self._connect())
            self._reconnecting.add(task)
            task.add_done_callback(self._reconnecting.discard)


def main() -> None:
    """Run the client and print what it saw."""
    path, port, rate, seconds, connections, patience = sys.argv[1:]
    bodies = json.loads(Path(path).read_text())
    requests = [
        f"POST {bodies['path']} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body.encode())}\r\n\r\n{body}".encode()
        for body in bodies["bodies"]
    ]
    client = Client(requests, float(rate), float(seconds), connections=int(connections), patience=float(patience))
    print(json.dumps(asdict(uvloop.run(client.run(int(port))))))


if __name__ == "__main__":
    main()
