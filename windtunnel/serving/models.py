"""The models of a server, by name, each loaded again when its file changes."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from windtunnel.encode import Rows
from windtunnel.errors import WindTunnelError
from windtunnel.program.translated import TranslatedPipeline
from windtunnel.serving.batching import Server
from windtunnel.serving.cascade.cascade import Cascade
from windtunnel.serving.schema import METHODS, Schema
from windtunnel.serving.stages import main_net

LOGGER = logging.getLogger("windtunnel")
SECONDS_BETWEEN_LOOKS = 1.0
OpenModel = Callable[[Path], TranslatedPipeline | Cascade]


@dataclass(frozen=True)
class Views:
    """What the page about a model shows.

    Attributes
    ----------
    report : callable
        A net or cascade -> JSON values with "facts" and "steps".
    explain : callable
        A net and raw rows -> JSON values with "names", "values", "base", "outputs", "unit" and "method".
    """

    report: Callable[[TranslatedPipeline | Cascade], dict[str, Any]]
    explain: Callable[[TranslatedPipeline, Rows], dict[str, Any]]


@dataclass(frozen=True)
class Limits:
    """What a server accepts.

    Attributes
    ----------
    max_batch, max_wait_ms, max_queue
        See ``Server``.
    max_rows : int
        The most rows of a request.
    max_bytes : int
        The most bytes of a body.
    timeout : float
        Seconds within which a body must arrive, and within which a request must be answered.
    """

    max_batch: int = 4096
    max_wait_ms: float = 0.0
    max_queue: int = 100_000
    max_rows: int = 100_000
    max_bytes: int = 64 * 2**20
    timeout: float = 30.0


class ServedModel:
    """A model from a file, with its server."""

    def __init__(self, path: Path, open_model: OpenModel, limits: Limits) -> None:
        self.path, self.name, self._open = path, path.stem, open_model
        self._stamp = _stamp(path)
        self.model = model = open_model(path)
        self.net = main_net(model)
        self.schema = Schema.of(self.net)
        self.server = Server(
            model, max_batch=limits.max_batch, max_wait_ms=limits.max_wait_ms, max_queue=limits.max_queue
        )
        self.version = 1

    @property
    def methods(self) -> list[str]:
        """The methods that a request gets the outputs of."""
        return [method for method in METHODS if method in self.net.head.methods]

    def reload(self) -> bool:
        """Load the file again if it has changed; what waits is scored by the model that it was encoded for.

        A file that cannot be loaded leaves the model as it is.
        """
        if (stamp := _stamp(self.path)) == self._stamp or stamp is None:
            return False
        self._stamp = stamp
        try:
            model = self._open(self.path)
        except (WindTunnelError, OSError) as error:
            LOGGER.error("%s: kept the earlier version, as the new file cannot be loaded: %s", self.path, error)
            return False
        self.model, self.net = model, main_net(model)
        self.schema = Schema.of(self.net)
        self.server.replace(model)
        self.version += 1
        LOGGER.info("%s: loaded version %d", self.path, self.version)
        return True


async def watch(models: Mapping[str, ServedModel]) -> None:
    """Load models again when their files change, until cancelled."""
    exempt_from_collection()
    while True:
        await asyncio.sleep(SECONDS_BETWEEN_LOOKS)
        for model in models.values():
            if await asyncio.to_thread(model.reload):
                exempt_from_collection()


def exempt_from_collection() -> None:
    """Exempt all objects that live now from later garbage collections.

    torch alone has half a million objects: a full collection stops every request for 0.2 s.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """What changes with the file; None while there is none."""
    try:
        facts = path.stat()
    except OSError:
        return None
    return facts.st_mtime_ns, facts.st_size, facts.st_ino
