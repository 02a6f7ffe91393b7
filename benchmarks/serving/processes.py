"""Servers and clients, each in a separate process."""

from __future__ import annotations

import json
import math
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from benchmarks.serving.client import Load


@contextmanager
def running(command: list[str]) -> Iterator[tuple[int, int]]:
    """The port and the process id of a server that a command starts; the port becomes its last argument."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
    process = subprocess.Popen(
        [*command, str(port)], env=environment, stdout=subprocess.DEVNULL, start_new_session=True
    )
    try:
        while True:
            if process.poll() is not None:
                raise RuntimeError(f"the server ended with status {process.returncode}")
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                time.sleep(0.1)
        time.sleep(1)
        yield port, process.pid
    finally:
        process.terminate()
        process.wait(30)
        with suppress(ProcessLookupError):  # LitServe leaves processes behind, which would slow the next server down
            os.killpg(process.pid, signal.SIGKILL)


def run_client(
    requests: Path, port: int, rate: float, seconds: float, connections: int = 256, patience: float = math.inf
) -> Load:
    """What ``benchmarks.serving.client`` sees."""
    command = [sys.executable, "-m", "benchmarks.serving.client", requests, port, rate, seconds, connections, patience]
    done = subprocess.run([*map(str, command)], check=True, capture_output=True, text=True)
    return Load(**json.loads(done.stdout))
