"""The counters of a server, in the format of Prometheus."""

from __future__ import annotations

import os
from functools import cache

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest, multiprocess

SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
REQUESTS = Counter("windtunnel_requests", "Requests by model and HTTP status.", ("model", "status"))
ROWS = Counter("windtunnel_rows", "Rows scored.", ("model",))
LATENCY = Histogram("windtunnel_request_seconds", "From the first byte to the response.", ("model",), buckets=SECONDS)
QUEUE = Gauge("windtunnel_queued_rows", "Rows that wait.", ("model",), multiprocess_mode="livesum")
VERSION = Gauge("windtunnel_model_version", "How often the file was loaded.", ("model",), multiprocess_mode="livemax")


def count_request(model: str, status: int, seconds: float) -> None:
    """Count a request that got a response."""
    requests, latency = _of_request(model, status)
    requests.inc()
    latency.observe(seconds)


@cache
def _of_request(model: str, status: int) -> tuple[Counter, Histogram]:
    """The counters with these labels, which take longer to find than to increase."""
    return REQUESTS.labels(model, status), LATENCY.labels(model)


def exposition() -> bytes:
    """All metrics as text; of all processes if there are several."""
    if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
        return generate_latest()
    registry = CollectorRegistry()
    multiprocess.MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    return generate_latest(registry)
