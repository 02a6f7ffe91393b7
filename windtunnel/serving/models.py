"""The models of a server, by name, each loaded again when its file changes."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from windtunnel.encode import Rows
from windtunnel.errors import InvalidOption, UnsupportedEstimator
from windtunnel.program.translated import TranslatedPipeline
from windtunnel.serving import metrics
from windtunnel.serving.batching import Server
from windtunnel.serving.cascade.cascade import Cascade
from windtunnel.serving.limits import Limits
from windtunnel.serving.queue_steps import Entry
from windtunnel.serving.responses import NotFound
from windtunnel.serving.schema import SERVED_METHODS, Schema

LOGGER = logging.getLogger("windtunnel")
SECONDS_BETWEEN_LOOKS = 1.0
OpenModel = Callable[[Path], TranslatedPipeline | Cascade]


@dataclass(frozen=True)
class Views:
    """The functions behind the page about a model."""

    # a net or cascade -> JSON values with "facts" and "steps"
    report: Callable[[TranslatedPipeline | Cascade], dict[str, Any]]
    # a net and raw rows -> JSON values with "names", "values", "base", "outputs", "unit" and "method"
    explain: Callable[[TranslatedPipeline, Rows], dict[str, Any]]


@dataclass(frozen=True)
class LoadedModel:
    """A model in the present version of its file."""

    model: TranslatedPipeline | Cascade
    entry: Entry
    schema: Schema
    methods: list[str]  # the methods that a request gets the outputs of
    labels: list[Any]  # the labels in the order of the probabilities
    version: int  # how often the file was loaded

    @classmethod
    def of(cls, model: TranslatedPipeline | Cascade, version: int, server: type[Server]) -> LoadedModel:
        """The facts of a model that a server of this class scores."""
        entry = server.entry(model)
        net = entry.net
        methods = [method for method in SERVED_METHODS if method in entry.step.methods]
        if not methods:
            raise UnsupportedEstimator(
                "this pipeline ends in a transformer, so there is nothing to predict; serve one with a final predictor."
            )
        nets = (model.small, net) if isinstance(model, Cascade) else (net,)
        return cls(model, entry, Schema.of(net, nets), methods, net.head.labels_in_order, version)

    @property
    def net(self) -> TranslatedPipeline:
        """The model itself, or the full model of a cascade."""
        return self.entry.net


class ServedModel:
    """A model by the name of its file, with the server that scores its rows."""

    def __init__(self, path: Path, open_model: OpenModel, limits: Limits, server: type[Server]) -> None:
        self.name, self._path, self._open = path.stem, path, open_model
        self._stamp = _stamp(path)
        self.loaded = LoadedModel.of(open_model(path), 1, server)
        self.server = server(
            self.loaded.model,
            max_batch=limits.max_batch,
            max_wait_ms=limits.max_wait_ms,
            max_queue=limits.max_queue,
        )
        self.scored_rows = metrics.ROWS.labels(self.name)

    def reload(self) -> bool:
        """Load the file again if it has changed; a request is scored by the version that it was sent to.

        A file that cannot be loaded, or holds nothing to serve, leaves the model as it is.
        """
        if (stamp := _stamp(self._path)) == self._stamp or stamp is None:
            return False
        self._stamp = stamp
        try:
            loaded = LoadedModel.of(self._open(self._path), self.loaded.version + 1, type(self.server))
        except Exception as error:  # whatever is in the file, the earlier version stays
            LOGGER.error("%s: kept the earlier version, as the new file cannot be served: %s", self._path, error)
            return False
        self.loaded = loaded
        self.server.replace(loaded.model)  # the server forgets the version before
        LOGGER.info("%s: loaded version %d", self._path, self.loaded.version)
        return True


class Models:
    """The models of a server; the stem of a file is the name of its model."""

    def __init__(
        self, paths: Sequence[Path], open_model: OpenModel, limits: Limits, server: type[Server] = Server
    ) -> None:
        names = [path.stem for path in paths]
        if twice := [str(path) for path in paths if names.count(path.stem) > 1]:
            raise InvalidOption(f"{', '.join(twice)} have the same name; give files with different stems.")
        self._models = {path.stem: ServedModel(path, open_model, limits, server) for path in paths}

    def __iter__(self) -> Iterator[ServedModel]:
        return iter(self._models.values())

    def find(self, parameters: Mapping[str, str]) -> ServedModel:
        """The model that the parameters "model" and "version" of a path name; without a name, the only one."""
        name, models = parameters.get("model"), self._models
        if name is None and len(models) == 1:
            return next(iter(models.values()))
        if name not in models:
            wrong = "the path names no model" if name is None else f"no model {name[:100]!r}"
            raise NotFound(f"{wrong}; there are {', '.join(f'/models/{model}/predict' for model in models)}.")
        version = str(models[name].loaded.version)
        if parameters.get("version", version) != version:
            raise NotFound(f"model {name!r} has version {version}.")
        return models[name]


async def watch(models: Models) -> None:
    """Load models again when their files change, until cancelled."""
    exempt_from_collection()
    while True:
        await asyncio.sleep(SECONDS_BETWEEN_LOOKS)
        for model in models:
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
    """Time, size and number of a file, one of which changes when it is replaced; None while there is no file."""
    try:
        facts = path.stat()
    except OSError:
        return None
    return facts.st_mtime_ns, facts.st_size, facts.st_ino
