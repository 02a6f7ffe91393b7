"""Progress of the phases of a procedure: a bar in a terminal, a line of the logger in notebooks and files."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import time
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

DELAY = 2.0
"""Seconds before a phase is shown; shorter phases are not shown at all."""
INTERVAL = 10.0
"""Least seconds between two lines of the logger about one phase."""
LOGGER = logging.getLogger("windtunnel")

_shown: ContextVar[bool] = ContextVar("progress shown", default=False)


@contextlib.contextmanager
def show_progress(shown: bool) -> Iterator[None]:
    """Show the phases within this context, or do not; outside of any such context phases are not shown."""
    token = _shown.set(shown)
    try:
        yield
    finally:
        _shown.reset(token)


class Phase:
    """A part of a procedure that may take seconds, as a context; it is shown once it has taken ``DELAY`` seconds.

    In a terminal it is a bar that disappears at the end. Elsewhere it is a line of the logger "windtunnel", another one
    at most every ``INTERVAL`` seconds. Lines go to standard error if no handler is configured.

        with Phase("encoding", total=len(parts)) as phase:
            for part in parts:
                ...
                phase.advance()

    Parameters
    ----------
    name : str
        What is done, such as "screening interactions".
    total : int, optional
        Number of steps, if it is known.
    """

    def __init__(self, name: str, total: int | None = None) -> None:
        self.name, self.total, self.done = name, total, 0
        self._began = self._logged = time.monotonic()
        self._bar: Progress | None = None
        self._lock, self._ended = threading.Lock(), False
        self._timer = threading.Timer(DELAY, self._appear)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        """Begin; the timer runs only where progress is shown."""
        if _shown.get():
            self._timer.start()
        return self

    def __exit__(self, *error: object) -> None:
        """End, and remove the bar."""
        self._timer.cancel()
        with self._lock:
            self._ended = True
            if self._bar is not None:
                self._bar.stop()

    def advance(self, steps: int = 1, *, name: str | None = None) -> None:
        """Count finished steps, and change the name if one is given."""
        self.done, self.name = self.done + steps, name or self.name
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=self.done, description=self.name)
        elif self._logged > self._began and time.monotonic() - self._logged > INTERVAL:
            self._log()

    def _appear(self) -> None:
        """Show the phase; called by the timer."""
        with self._lock:
            if self._ended:
                return
            if not sys.stderr.isatty():
                self._log()
                return
            counted = (BarColumn(), MofNCompleteColumn()) if self.total else ()
            columns = (SpinnerColumn(), TextColumn("{task.description}"), *counted, TimeElapsedColumn())
            bar = Progress(*columns, console=Console(stderr=True), transient=True)
            bar.add_task(self.name, total=self.total, completed=self.done)
            bar.start()
            self._bar = bar

    def _log(self) -> None:
        self._logged = time.monotonic()
        steps = f": {self.done} of {self.total}" if self.total else ""
        log(f"{self.name}{steps} ({self._logged - self._began:.0f} s)")


def announce(line: str) -> None:
    """Write a line to the logger where progress is shown."""
    if _shown.get():
        log(line)


def log(line: str) -> None:
    """Write a line to the logger; to standard error where the application has configured no logging."""
    if LOGGER.hasHandlers():
        LOGGER.info(line)
    else:
        print(line, file=sys.stderr, flush=True)
