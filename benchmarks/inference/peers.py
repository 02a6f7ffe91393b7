"""Other engines, timed in turn with ours through a pipe."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

JOB = Path(__file__).with_name("peer_job.py")
PEERS = ("onnxruntime", "treelite", "tl2cgen", "lleaves", "hummingbird", "library", "pylignum", "pylignum-compiled")


class Seconds(NamedTuple):
    """What a call took: by a wall clock, and of processors, all threads of its process together."""

    wall: float
    processor: float


class Peer:
    """One engine that has taken a model, in a process of its own.

    Attributes
    ----------
    ready : bool
        Whether it took the model.
    why : str
        Why it did not run, or the error of its outputs; else empty.
    took : float
        Seconds until it was ready: conversion, compilation and the first rows.
    """

    def __init__(self, engine: str, python: Path, folder: Path, method: str, threads: int) -> None:
        self.engine = engine
        command = [str(python), "-W", "ignore", str(JOB), engine, str(folder), method, str(threads)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env={"OMP_WAIT_POLICY": "passive", "OMP_NUM_THREADS": str(threads), "PATH": "/usr/bin:/bin"},
        )  # fmt: skip
        assert self._process.stdin is not None and self._process.stdout is not None
        self._asked, self._said = self._process.stdin, self._process.stdout
        line = self._said.readline()
        said = json.loads(line) if line else {"ready": False, "why": "it ended without a word"}
        self.ready, self.why, self.took = bool(said["ready"]), str(said["why"]), float(said.get("seconds", 0.0))

    def seconds(self, rows: int) -> Seconds:
        """Time one run over the first rows."""
        print(rows, file=self._asked, flush=True)
        return Seconds(*json.loads(self._said.readline()))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._asked.close()
        self._process.wait()
        self._said.close()
