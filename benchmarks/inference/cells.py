"""One table of cells: a model, a batch, a number of threads; in each all engines take turns."""

from __future__ import annotations

import pickle
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

import windtunnel
from benchmarks.inference.models import fitted, rows
from benchmarks.inference.peers import PEERS, Peer
from windtunnel.errors import UnfaithfulOption

OURS = "windtunnel "
SECONDS = 3.0
"""About how long the turns of a cell take."""
WARM = 4
"""Calls before any is timed: TorchScript compiles what it has seen in the first ones."""
TURNS = (5, 201)
"""The fewest and the most turns."""


@dataclass(frozen=True)
class Cell:
    """What one engine took.

    Attributes
    ----------
    median_s : float or None
        Seconds of one call, the median; None where the engine did not take the model.
    ratio_to_source : float or None
        The median over turns of its time by that of the source in the same turn.
    ratio_to_best_peer : float or None
        The same by the engine of others with the least median; for ours only.
    note : str
        Why there is no number, or which form "auto" chose.
    """

    model: str
    batch: int
    threads: int
    engine: str
    median_s: float | None
    ratio_to_source: float | None
    ratio_to_best_peer: float | None
    note: str = ""


def measure(
    model: str,
    batches: Sequence[int],
    threads: int,
    engines: Sequence[str],
    python: Path | None = None,
    peers: Sequence[str] = PEERS,
    seconds: float = SECONDS,
) -> Iterator[dict[str, Any]]:
    """Time one model at each batch; ``engines`` are "BACKEND" or "BACKEND/STRATEGY" of ours, and the peers beside."""
    source, X = fitted(model), rows(max(batches), seed=7)
    if hasattr(source, "n_jobs"):
        source.set_params(n_jobs=threads)
    torch.set_num_threads(threads)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "source.pkl").write_bytes(pickle.dumps(source))
        np.save(folder / "rows.npy", X.astype(np.float32))
        runs: dict[str, Callable[[int], float]] = {"source": _timed(source.predict, X)}
        notes: dict[str, str] = {}
        for engine in engines:
            backend, _, strategy = engine.partition("/")
            try:
                net = windtunnel.compile(source, backend=backend, strategy=strategy or "auto")
            except UnfaithfulOption as error:
                notes[OURS + engine] = str(error)
                continue
            np.testing.assert_allclose(net.predict(X[:100]), source.predict(X[:100]), 1e-5, 1e-5)
            runs[OURS + engine] = _timed(net.predict, X)
        for name in peers if python is not None else ():
            assert python is not None
            peer = stack.enter_context(Peer(name, python, folder, threads))
            if peer.why:
                notes[name] = peer.why
            else:
                runs[name] = peer.seconds
        for batch in batches:
            times = _turns(runs, batch, seconds)
            yield from (asdict(cell) for cell in _cells(model, batch, threads, times, notes))


def _timed(predict: Callable[[Any], Any], X: Any) -> Callable[[int], float]:
    def run(count: int) -> float:
        given = X[:count]
        start = time.perf_counter()
        predict(given)
        return time.perf_counter() - start

    return run


def _turns(runs: Mapping[str, Callable[[int], float]], batch: int, seconds: float) -> dict[str, list[float]]:
    """Seconds of each engine, one turn after the other, so that what slows the machine slows all of them."""
    for run in runs.values():
        for _ in range(WARM):
            run(min(batch, 1_000))
    first = sum(run(batch) for run in runs.values())
    fewest, most = TURNS
    count = max(fewest, min(most, int(seconds / first)))
    turns = [{name: run(batch) for name, run in runs.items()} for _ in range(count)]
    return {name: [turn[name] for turn in turns] for name in runs}


def _cells(
    model: str, batch: int, threads: int, times: Mapping[str, Sequence[float]], notes: Mapping[str, str]
) -> Iterator[Cell]:
    medians = {name: statistics.median(taken) for name, taken in times.items()}
    peers = {name: medians[name] for name in medians if name in PEERS}
    best = min(peers, key=peers.__getitem__) if peers else None
    for name in [*times, *notes]:
        if name in notes:
            yield Cell(model, batch, threads, name, None, None, None, notes[name])
            continue
        to_best = _ratio(times[name], times[best]) if best and name.startswith(OURS) else None
        yield Cell(model, batch, threads, name, medians[name], _ratio(times[name], times["source"]), to_best)


def _ratio(mine: Sequence[float], theirs: Sequence[float]) -> float:
    return statistics.median(one / other for one, other in zip(mine, theirs, strict=True))
