"""The same model in other servers: ``python -m benchmarks.serving.peers NAME FILE PORT``, in their own environment."""

from __future__ import annotations

import asyncio
import os
import sys
from tempfile import mkdtemp
from typing import Any

GRPC_PORT = 18_081
"""Not among the ports that the system gives to clients."""


def litserve(port: int, **batches: Any) -> None:
    """LitServe with one worker."""
    from litserve import LitServer

    from benchmarks.serving.litserve_api import Scores

    server = LitServer(Scores(**batches), accelerator="cpu", workers_per_device=1)
    server.run(port=port, host="127.0.0.1", generate_client_file=False, log_level="error")


def mlserver(port: int) -> None:
    """MLServer with a runtime of its own, in the server's process."""
    from mlserver import MLServer
    from mlserver.settings import ModelSettings, Settings

    settings = Settings(
        host="127.0.0.1",
        http_port=port,
        grpc_port=GRPC_PORT,
        metrics_port=GRPC_PORT + 1,
        parallel_workers=0,
        debug=False,
    )
    model = ModelSettings(name="model", implementation="benchmarks.serving.mlserver_runtime.Scores")
    os.chdir(mkdtemp())
    asyncio.run(MLServer(settings).start([model]))


def main() -> None:
    """Serve until SIGTERM."""
    name, path, port = sys.argv[1:]
    os.environ["WINDTUNNEL_FILE"] = path
    if name == "mlserver":
        mlserver(int(port))
    else:
        litserve(int(port), **({} if name == "litserve" else {"max_batch_size": 64, "batch_timeout": 0.001}))


if __name__ == "__main__":
    main()
