"""The rows of ``fit``: a tuple, encoded rows, or a loader of raw rows, which is read into memory if it fits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from windtunnel.encode.rows_with_targets import is_loader, rows_with_targets
from windtunnel.errors import BadInput, warn_caller
from windtunnel.program.translated import TranslatedPipeline
from windtunnel.progress import Phase
from windtunnel.trainers.data.encoded_loader import EncodedLoader
from windtunnel.trainers.data.encoded_rows import EncodedRows
from windtunnel.trainers.data.loader import loader
from windtunnel.trainers.data.loader_adapter import LoaderAdapter
from windtunnel.trainers.data.rows_of_loader import GIB, memory_limit, read_rows
from windtunnel.trainers.recipe import LARGEST_BATCH, Recipe

ACCEPTED = "give (X, y) or (X, y, weight), or a loader of such batches"


@dataclass(frozen=True)
class FitInput:
    """The training or the validation rows as the caller gave them, for a translation and a recipe."""

    net: TranslatedPipeline
    recipe: Recipe
    role: str  # "train" or "valid"
    data: Any
    # the number of processes that train together. With several, a loader yields the rows of its process.
    processes: int = 1
    validated: bool = True  # whether the caller gave validation rows

    def encoded(self) -> EncodedLoader:
        """The rows as encoded batches; ``BadInput`` without targets, and for batches of another translation."""
        batches = self._batches()
        if batches.schema is not None:
            batches.schema.check(self.net, f"the {self.role} loader")
        if isinstance(batches, EncodedRows):
            batches.check_batches(self.role)
        return batches

    def _batches(self) -> EncodedLoader:
        data = self.data
        if isinstance(data, EncodedRows | LoaderAdapter):
            return data
        if isinstance(data, tuple):
            X, y, weight = rows_with_targets(f"{self.role} is", data, ACCEPTED)
            if _is_empty(X):
                raise BadInput(f"{self.role} has no rows; give at least one")
            return self._in_memory(X, y, weight)
        if is_loader(data):
            return self._loaded(LoaderAdapter(self.net, data, training=self.role == "train"))
        raise BadInput(f"{self.role} is a {type(data).__name__}; {ACCEPTED}")

    def _in_memory(self, *rows: Any) -> EncodedRows:
        size = self.recipe.batch_size or LARGEST_BATCH
        with Phase("encoding the rows"):
            return loader(self.net, *rows, batch_size=size, seed=self.recipe.seed, training=self.role == "train")

    def _loaded(self, batches: LoaderAdapter) -> EncodedLoader:
        """The rows of a loader in memory, or the loader itself if its batches are to be read in each epoch."""
        if (reason := self._why_streamed(batches)) is None:
            limit = memory_limit(self.recipe.loader_memory)
            if (rows := read_rows(batches, limit, self.recipe.seed)) is not None:
                return self._in_memory(*rows)
            reason = (
                f"its rows take more than {limit / GIB:.3g} GiB once encoded (loader_memory= sets another limit; "
                "windtunnel.stream reads Parquet files faster)"
            )
        if not self.validated:
            why = f"fit reads the {self.role} loader anew in each epoch, as {reason}, and cannot hold rows out of it."
            if self.recipe.residual:
                raise BadInput(f"{why} Give validation rows as valid=; recipe='joint' trains without any.")
            warn_caller(f"{why} It validates on training rows. Give validation rows as valid=.")
        return batches

    def _why_streamed(self, batches: LoaderAdapter) -> str | None:
        """The reason why a loader is read anew in each epoch, whatever its size; None where there is none."""
        if batches.source is not None:
            return "it is made for that"
        if self.processes > 1:
            return "it yields the rows of one of several processes"
        if self.recipe.loader_memory == 0:
            return "loader_memory=0 rules out reading it into memory"
        if callable(self.recipe.loss):
            return "a custom loss may depend on which rows are in a batch"
        if self.net.hosts and self.net.untranslated == "stream":
            return 'untranslated="stream" keeps no outputs of host steps in memory'
        return None


def _is_empty(rows: Any) -> bool:
    """Whether rows are a list or a table without any."""
    return not rows if isinstance(rows, list) else getattr(rows, "shape", ())[:1] == (0,)
