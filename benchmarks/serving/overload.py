"""A server under more load than it can take: its memory, and what clients get."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread

from benchmarks.serving.client import Load
from benchmarks.serving.processes import run_client, running

CONNECTIONS = 1024
"""Twice as many as the server takes by default."""
PATIENCE = 1.0
"""Seconds after which a request that has no connection is given up."""


@dataclass(frozen=True)
class Overload:
    """What became of the requests, before, during and after the overload; resident memory in MB, each second."""

    before: Load
    during: Load
    after: Load
    memory: list[float]

    @classmethod
    def measure(cls, command: list[str], requests: Path, rate: float, seconds: float) -> Overload:
        """Send requests at a rate; before and after it, at a tenth of it."""
        with running(command) as (port, process):
            before = run_client(requests, port, rate / 10, 5.0)
            ended, memory = Event(), []

            def sample() -> None:
                while not ended.wait(1.0):
                    memory.append(_resident_mb(process))

            sampling = Thread(target=sample)
            sampling.start()
            during = run_client(requests, port, rate, seconds, CONNECTIONS, PATIENCE)
            ended.set()
            sampling.join()
            return cls(before, during, run_client(requests, port, rate / 10, 5.0), memory)

    def __str__(self) -> str:
        load, tenths = self.during, self.memory[:: max(len(self.memory) // 10, 1)]
        responses = load.offered * load.seconds - load.failed
        return "\n".join(
            [
                f"{load.offered:.0f} requests/s for {load.seconds:.0f} s: {load.throughput:.0f}/s got 200, median "
                f"{load.median_ms:.0f} ms, p99 {load.p99_ms:.0f} ms; {load.rejected / responses:.1%} of the responses "
                f"were 503; {load.failed} requests got no connection or no response",
                f"at a tenth of the load: p99 {self.before.p99_ms:.1f} ms before, {self.after.p99_ms:.1f} ms after; "
                f"failed {self.before.failed + self.after.failed}",
                f"memory in MB: {', '.join(f'{value:.0f}' for value in tenths)}; at most {max(self.memory):.0f}",
            ]
        )


def _resident_mb(process: int) -> float:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024
