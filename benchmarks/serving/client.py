"""An open-loop HTTP client in a process of its own: requests arrive at random times, whether others are done or not.

``python -m benchmarks.serving.client REQUEST_FILE PORT RATE SECONDS`` prints one line of JSON. A request's time counts
from when it was due, so that a server that stops is not spared the requests of that time.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import deque
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import uvloop

CONNECTIONS = 256
GRACE = 3.0
"""Seconds that are granted to requests under way at the end."""
SPIN = 0.0015
"""Timers are that coarse, in seconds; shorter waits are spent looking at the clock."""


@dataclass(frozen=True)
class Load:
    """What became of the requests of one run; times are those of requests with status 200."""

    offered: float
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

    def data_received(self, data: bytes) -> None:
        self._data += data
        head, found, body = self._data.partition(b"\r\n\r\n")
        if found and len(body) >= int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0]):
            self._data = b""
            self._client.finished(self, head[9:12] == b"200", head[9:12] == b"503")


class Client:
    """Sends one of some requests at each time of a Poisson process."""

    def __init__(self, requests: list[bytes], rate: float, seconds: float, seed: int) -> None:
        generator = np.random.default_rng(seed)
        count = max(int(rate * seconds), 1)
        times = generator.exponential(1 / rate, count).cumsum()
        self._times: list[float] = (times * seconds / times[-1]).tolist()
        self._requests = [requests[at] for at in generator.integers(len(requests), size=count)]
        self._rate, self._sent, self._started = rate, 0, 0.0
        self._idle: list[_Connection] = []
        self._waiting: deque[int] = deque()
        self._latencies: list[float] = []
        self._rejected, self._last = 0, 0.0

    async def run(self, port: int) -> Load:
        """Send everything and wait for what is under way."""
        loop = self._loop = asyncio.get_running_loop()
        made = [loop.create_connection(lambda: _Connection(self), "127.0.0.1", port) for _ in range(CONNECTIONS)]
        connections = [protocol for _, protocol in await asyncio.gather(*made)]
        self._idle = [*connections]
        self._started = loop.time()
        for at, time in enumerate(self._times):
            while (wait := self._started + time - loop.time()) > 0:
                await asyncio.sleep(wait - SPIN if wait > SPIN else 0)
            self._waiting.append(at)
            self._send()
        deadline = loop.time() + GRACE
        while len(self._latencies) + self._rejected < len(self._times) and loop.time() < deadline:
            await asyncio.sleep(0.01)
        for connection in connections:
            connection.transport.close()
        done = np.array(self._latencies or [np.nan]) * 1e3
        median, p99 = np.quantile(done, [0.5, 0.99])
        failed = len(self._times) - len(self._latencies) - self._rejected
        duration = max(self._last - self._started, self._times[-1])
        return Load(self._rate, len(self._latencies) / duration, median, p99, self._rejected, failed)

    def _send(self) -> None:
        while self._waiting and self._idle:
            at, connection = self._waiting.popleft(), self._idle.pop()
            connection.due = self._started + self._times[at]
            connection.transport.write(self._requests[at])

    def finished(self, connection: _Connection, good: bool, rejected: bool) -> None:
        """Count a response."""
        self._last = self._loop.time()
        if good:
            self._latencies.append(self._last - connection.due)
        self._rejected += rejected
        self._idle.append(connection)
        self._send()


def main() -> None:
    """Run the client and print what it saw."""
    path, port, rate, seconds = sys.argv[1:]
    bodies = json.loads(Path(path).read_text())
    requests = [
        f"POST {bodies['path']} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body.encode())}\r\n\r\n{body}".encode()
        for body in bodies["bodies"]
    ]
    client = Client(requests, float(rate), float(seconds), seed=0)
    print(json.dumps(asdict(uvloop.run(client.run(int(port))))))


if __name__ == "__main__":
    main()
