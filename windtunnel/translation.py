"""The translated pipeline: an ``nn.Module`` that also predicts, fits, reports and exports like an estimator."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.utils.metaestimators import available_if
from torch import Tensor, nn

from windtunnel.assemble import Origin
from windtunnel.encode import FIRST_ID, Batch, RowEncoder, Rows
from windtunnel.errors import BadInput
from windtunnel.head import Head
from windtunnel.host import HostStep
from windtunnel.modules.program import Program

if TYPE_CHECKING:
    from windtunnel.report import Report
    from windtunnel.trainers.history import History

CHUNK = 8192
"""Rows scored at once; bounds the memory of a prediction, whatever the number of rows."""


def _source_has(method: str) -> Callable[[Translation], bool]:
    return lambda net: method in net.head.methods


class Translation(nn.Module):
    """A fitted pipeline as one differentiable program; made by ``windtunnel.translate`` and ``windtunnel.load``.

    ``forward(numbers, ids)`` takes the two blocks of an encoded batch (``encode``) and gives raw scores ``[B, K]``
    (log-odds, margins, values before the link) or the columns of a transformer. ``predict`` and its kin take raw rows
    and answer as the source pipeline does; a method that the source lacks is missing here too.

    Attributes
    ----------
    program : Program
        The modules and their wiring.
    encoder : RowEncoder
        Which raw columns are read, and their vocabularies.
    head : Head
        Task, link, labels.
    origins : list of Origin
        The source step behind each program step.
    hosts : list of HostStep
        Steps that stay on the host.
    untranslated : str
        "cache" or "stream": whether ``windtunnel.loader`` computes the host steps' answers once or batch by batch.
    """

    def __init__(
        self,
        program: Program,
        encoder: RowEncoder,
        head: Head,
        origins: Sequence[Origin],
        hosts: Sequence[HostStep] = (),
        untranslated: str = "cache",
        faithful: dict[str, float] | None = None,
    ) -> None:
        super().__init__()
        self.program = program
        self.encoder, self.head, self.origins = encoder, head, list(origins)
        self.hosts, self.untranslated = list(hosts), untranslated
        self.faithful = dict(faithful or {})
        self.history: History | None = None
        self.mark_start()
        self.eval()

    def mark_start(self) -> None:
        """Take the present weights as those that the report's drift is measured from."""
        self.start = {name: value.detach().clone() for name, value in self.program.state_dict().items()}

    def forward(self, numbers: Tensor, ids: Tensor) -> Tensor:
        """Raw scores ``[B, K]`` of encoded rows."""
        return self.program(numbers, ids)  # type: ignore[no-any-return]

    def encode(self, rows: Rows, *, training: bool = False) -> Batch:
        """Raw rows as tensors.

        Parameters
        ----------
        rows : DataFrame, Arrow table, NumPy array or dict of columns
        training : bool
            Lets categories through that the source refuses (``handle_unknown="error"``): they get the row of the
            unknown category, which training then moves, and from then on ``predict`` takes them as well. Rows that
            give no finite score, from which nothing can be learned, are refused.

        Raises
        ------
        BadInput
            Columns missing, of the wrong number or kind, or categories that the source refuses.
        """
        if isinstance(rows, Batch):
            return self.encoder.checked(rows)
        frame = self.encoder.select(rows)
        if self.hosts:
            if len(frame) == 0:
                raise BadInput(f"got 0 rows; step {self.hosts[0].name!r}, kept on the host, needs at least 1.")
            source = self.encoder.as_fitted(rows)
            answers = [host.answer(source) for host in self.hosts]
            frame = pd.concat([frame.reset_index(drop=True), *answers], axis=1)
        batch = self.encoder.encode(frame, training=training)
        if training and self.head.task != "transform":
            self._check_odd_rows(batch)
        return batch

    def scores(self, rows: Rows) -> Tensor:
        """Raw scores ``[B, K]`` of raw rows, on the CPU, without gradients.

        Raises
        ------
        BadInput
            No rows, or scores that are not finite because of missing or infinite numbers that the source refuses too.
        """
        batch = self.encode(rows)
        if len(batch.ids) == 0:
            raise BadInput("got 0 rows; at least 1 is needed to predict.")
        scores = self._scores(batch)
        if self.head.task != "transform" and not torch.isfinite(scores).all():
            raise BadInput(self._why_not_finite(batch, ~torch.isfinite(scores).all(dim=1)))
        return scores

    def _check_odd_rows(self, batch: Batch) -> None:
        """Refuse rows without a finite score; only rows with missing, infinite or unknown values can be such."""
        failed = ~torch.isfinite(batch.numbers).all(dim=1) | (batch.ids < FIRST_ID).any(dim=1)
        if failed.any():
            scores = self._scores(Batch(batch.numbers[failed], batch.ids[failed]))
            failed[failed.clone()] = ~torch.isfinite(scores).all(dim=1)
        if failed.any():
            raise BadInput(self._why_not_finite(batch, failed))

    def _scores(self, batch: Batch) -> Tensor:
        tensors = (*self.program.parameters(), *self.program.buffers())
        device = tensors[0].device if tensors else torch.device("cpu")
        was_training = self.training
        self.eval()
        try:
            with torch.inference_mode():
                parts = [
                    self(batch.numbers[start : start + CHUNK].to(device), batch.ids[start : start + CHUNK].to(device))
                    for start in range(0, len(batch.ids), CHUNK)
                ]
        finally:
            self.train(was_training)
        return torch.cat(parts).cpu()

    def _why_not_finite(self, batch: Batch, failed: Tensor) -> str:
        """Name the columns whose NaN or infinity, with 0 in all the others, leaves a row without a score."""
        numbers, ids = batch.numbers[failed], batch.ids[failed]
        names = []
        for column in range(numbers.shape[1]):
            for value, there in ((math.nan, torch.isnan), (math.inf, torch.isinf)):
                row = torch.zeros_like(numbers[:1])
                row[0, column] = value
                if there(numbers[:, column]).any() and not torch.isfinite(self._scores(Batch(row, ids[:1]))).all():
                    names.append(self.encoder.name(self.encoder.numbers[column]))
        where = ", ".join(dict.fromkeys(names)) or "what a step computes"
        return (
            f"{int(failed.sum())} of {len(failed)} rows have no finite score: NaN, infinite values or values beyond "
            f"float32 in {where} reach a step that does not take them. "
            "Impute or drop them, or put a SimpleImputer in the pipeline before fitting it."
        )

    @available_if(_source_has("predict"))
    def predict(self, rows: Rows) -> NDArray[Any]:
        """Labels of a classifier (original labels), values of a regressor, what ``Booster.predict`` gives."""
        return self.head.predict(self.scores(rows))

    @available_if(_source_has("predict_proba"))
    def predict_proba(self, rows: Rows) -> NDArray[np.float64]:
        """Probabilities float64 ``[B, classes]``."""
        return self.head.linked(self.scores(rows).double()).numpy()

    @available_if(_source_has("predict_log_proba"))
    def predict_log_proba(self, rows: Rows) -> NDArray[np.float64]:
        """Natural logarithm of ``predict_proba``."""
        with np.errstate(divide="ignore"):  # a probability of 0
            return np.log(self.predict_proba(rows))  # type: ignore[no-any-return]

    @available_if(_source_has("decision_function"))
    def decision_function(self, rows: Rows) -> NDArray[np.float64]:
        """Raw scores: ``[B]`` for two classes, else ``[B, K]``."""
        return self.head.decision(self.scores(rows))

    @available_if(_source_has("transform"))
    def transform(self, rows: Rows) -> NDArray[np.float64]:
        """The columns of a pipeline that ends in a transformer, float64 ``[B, width]``."""
        return self.scores(rows).double().numpy()

    @property
    def classes_(self) -> NDArray[Any]:
        """Original labels in the order of the columns of ``predict_proba``; classifiers only."""
        if self.head.classes is None:
            raise AttributeError(f"a {self.head.task} pipeline has no classes_")
        return self.head.classes

    def fit(self, train: Any, valid: Any = None, **options: Any) -> Translation:
        """Fine-tune all trainable parts together; see ``windtunnel.trainers.finetune`` for the options.

        Parameters
        ----------
        train : iterable or tuple
            A DataLoader or any iterable of ``(rows, target)`` or ``(rows, target, weight)``, rows raw or encoded; or a
            tuple ``(X, y)`` or ``(X, y, weight)``.
        valid : iterable or tuple, optional
            The same for validation. The weights of the best epoch on it are kept, and epoch 0, before any step,
            counts: ``fit`` never hands back something that scores worse there.
        """
        from windtunnel.trainers.finetune import finetune

        if self.head.task == "transform":
            raise BadInput("this pipeline ends in a transformer, so there is no target to fit; add a final predictor.")
        refused = [replace(category) for category in self.encoder.categories]
        try:
            self.history = finetune(self, train, valid, **options)
        except BaseException:
            # Rows were let through to be trained on, which failed.
            self.encoder.categories = refused
            raise
        return self

    def report(self) -> Report:
        """What became what, how faithful it is, and what training has moved."""
        from windtunnel.report import Report

        return Report.of(self)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the safe artefact that ``windtunnel.load`` reads: JSON, vocabularies and tensors, no code."""
        from windtunnel.export.artefact import save

        save(self, path)

    def export(self, path: str | PathLike[str], format: str = "torchscript") -> None:
        """Write one file that scores without windtunnel; see ``windtunnel.export``."""
        from windtunnel.export import export

        export(self, path, format)
