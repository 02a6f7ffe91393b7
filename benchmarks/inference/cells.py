"""One table of cells: a model, a batch, a number of threads; in each all engines take turns."""

from __future__ import annotations

import pickle
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from catboost import CatBoost
from sklearn.pipeline import Pipeline
from threadpoolctl import threadpool_limits

import windtunnel
from benchmarks.inference.model import Model
from benchmarks.inference.models import MODELS
from benchmarks.inference.peers import PEERS, Peer, Seconds
from windtunnel.errors import InvalidOption

OURS = "windtunnel "
SECONDS = 3.0
"""About how long the turns of a cell take."""
WARM = 4
"""Calls before any is timed: TorchScript compiles what it has seen in the first ones."""
TURNS = (5, 201)
"""The fewest and the most turns."""
LONG = 1.0
"""A turn of more seconds is run ``LONG_TURNS`` times."""
LONG_TURNS = 3
SHORT = 0.05
"""A turn of fewer seconds is run twice by each engine, and the second counts: right after another library, the first
call of a row took twice as long."""
PAUSE = 0.01
"""Before each turn, so that threads of the engine before, which look out for more work, have gone to sleep."""
CLOCKS = ("wall", "processor")
"""Of which the medians and ratios are. On a machine that does other work a wall clock is unfair to calls that outlast a
slice of time: only they are put aside. The time that a process has had on processors, all of its threads together, is
not."""


@dataclass(frozen=True)
class Cell:
    """What one engine took.

    Attributes
    ----------
    median_s : float or None
        Seconds of one call by ``clock``, the median; None where the engine did not take the model.
    wall_s, processor_s : float or None
        The same by each clock.
    ratio_to_source : float or None
        The median over turns of its time by that of the source in the same turn.
    ratio_to_best_peer : float or None
        The same ratio to the fastest other engine with accurate outputs; for our engines only.
    note : str
        Why there is no number, or the error of another engine's outputs.
    clock : str
        Of ``CLOCKS``.
    ready_s : float or None
        Seconds until the engine was ready: conversion, compilation and, of other engines, the first rows.
    """

    model: str
    batch: int
    threads: int
    engine: str
    median_s: float | None
    ratio_to_source: float | None
    ratio_to_best_peer: float | None
    note: str = ""
    clock: str = "wall"
    wall_s: float | None = None
    processor_s: float | None = None
    ready_s: float | None = None


def measure(
    model: str,
    batches: Sequence[int],
    threads: int,
    engines: Sequence[str],
    python: Path | None = None,
    peers: Sequence[str] = PEERS,
    seconds: float = SECONDS,
    clock: str = "wall",
    device: str = "cpu",
    kept: Path | None = None,
) -> Iterator[dict[str, Any]]:
    """Time one model at each batch: our engines (see ``_compiled``) on a device, and the peers.

    ``kept`` is a folder where the fitted model, its rows and what peers compile are kept for the next time.
    """
    timed, method = MODELS[model], MODELS[model].method
    folder = None if kept is None else kept / model.replace(" ", "_")
    source, X = _fitted(timed, max(batches), folder)
    last = source[-1] if isinstance(source, Pipeline) else source
    if hasattr(last, "n_jobs"):
        last.set_params(n_jobs=threads)
    torch.set_num_threads(threads)
    with ExitStack() as stack:
        stack.enter_context(threadpool_limits(threads))
        predict = getattr(source, method)
        if isinstance(source, CatBoost):  # which takes all processors, whatever it was fitted with
            predict = partial(predict, thread_count=threads)
        runs: dict[str, Callable[[int], Seconds]] = {"source": _timed(predict, X)}
        notes: dict[str, str] = {}
        ready: dict[str, float] = {}
        for engine in engines:
            start = time.perf_counter()
            try:
                ours = getattr(_compiled(source, engine, device), method)
            except InvalidOption as error:
                notes[OURS + engine] = str(error)
                continue
            ready[OURS + engine] = time.perf_counter() - start
            np.testing.assert_allclose(ours(X[:100]), predict(X[:100]), 1e-5, 1e-5)
            runs[OURS + engine] = _timed(ours, X)
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "source.pkl").write_bytes(pickle.dumps(source))
        (folder / "rows.pkl").write_bytes(pickle.dumps(X.astype(np.float32) if isinstance(X, np.ndarray) else X))
        for name in [one for one in peers if one in timed.peers] if python is not None else ():
            assert python is not None
            peer = stack.enter_context(Peer(name, python, folder, method, threads))
            if peer.why:
                notes[name] = peer.why
            if peer.ready:
                runs[name], ready[name] = peer.seconds, peer.took
        for batch in batches:
            times = _turns(runs, batch, seconds)
            for cell in _cells(model, batch, threads, times, notes, clock):
                yield asdict(cell) | {
                    "ready_s": ready.get(cell.engine),
                    "device": device if cell.engine.startswith(OURS) else "cpu",
                }


def _compiled(source: Any, engine: str, device: str = "cpu") -> windtunnel.Translation:
    """One of our engines: "BACKEND", "BACKEND/STRATEGY", "BACKEND/float32" or "BACKEND/STRATEGY/float32"."""
    backend, *options = engine.split("/")
    dtype = "float32" if "float32" in options else None
    strategy = next((one for one in options if one != "float32"), "auto")
    return windtunnel.compile(source, backend=backend, strategy=strategy, dtype=dtype, device=device)


def _fitted(model: Model, most: int, folder: Path | None) -> tuple[Any, Any]:
    """The model and as many rows, from a folder if they are kept there."""

    def kept(name: str, make: Callable[[], Any]) -> Any:
        if folder is None:
            return make()
        path = folder / name
        if not path.exists():
            folder.mkdir(parents=True, exist_ok=True)
            path.write_bytes(pickle.dumps(make()))
        return pickle.loads(path.read_bytes())

    return kept("fitted.pkl", model.fitted), kept(f"{most}.pkl", partial(model.rows, most, 7))


def _timed(predict: Callable[[Any], Any], X: Any) -> Callable[[int], Seconds]:
    def run(count: int) -> Seconds:
        given = X[:count]
        processor, wall = time.process_time(), time.perf_counter()
        predict(given)
        wall, processor = time.perf_counter() - wall, time.process_time() - processor
        return Seconds(wall, processor)

    return run


def _turns(runs: Mapping[str, Callable[[int], Seconds]], batch: int, seconds: float) -> dict[str, list[Seconds]]:
    """Seconds of each engine, one turn after the other, so that what slows the machine slows all of them."""
    for run in runs.values():
        for _ in range(WARM):
            run(min(batch, 1_000))
    first = sum(run(batch).wall for run in runs.values())
    fewest, most = TURNS
    count = max(LONG_TURNS if first > LONG else fewest, min(most, int(seconds / first)))
    calls = 2 if first < SHORT else 1
    turns = [{name: _turn(run, batch, calls) for name, run in runs.items()} for _ in range(count)]
    return {name: [turn[name] for turn in turns] for name in runs}


def _turn(run: Callable[[int], Seconds], batch: int, calls: int) -> Seconds:
    time.sleep(PAUSE)
    return [run(batch) for _ in range(calls)][-1]


def _cells(
    model: str,
    batch: int,
    threads: int,
    seconds: Mapping[str, Sequence[Seconds]],
    notes: Mapping[str, str],
    clock: str = "wall",
) -> Iterator[Cell]:
    times = {name: [getattr(one, clock) for one in taken] for name, taken in seconds.items()}
    medians = {name: statistics.median(taken) for name, taken in times.items()}
    peers = {name: medians[name] for name in medians if name in PEERS and name not in notes}
    best = min(peers, key=peers.__getitem__) if peers else None
    for name, taken in times.items():
        to_best = _ratio(taken, times[best]) if best and name.startswith(OURS) else None
        to_source = _ratio(taken, times["source"])
        both = [statistics.median(getattr(one, name_of) for one in seconds[name]) for name_of in CLOCKS]
        yield Cell(model, batch, threads, name, medians[name], to_source, to_best, notes.get(name, ""), clock, *both)
    for name in [one for one in notes if one not in times]:
        yield Cell(model, batch, threads, name, None, None, None, notes[name], clock)


def _ratio(mine: Sequence[float], theirs: Sequence[float]) -> float:
    return statistics.median(one / other for one, other in zip(mine, theirs, strict=True))
