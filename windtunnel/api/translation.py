"""The translated pipeline as users see it: fits, hardens, reports, saves and exports itself."""

from __future__ import annotations

from dataclasses import replace
from os import PathLike
from typing import Any, Self

from windtunnel.api.report import Report
from windtunnel.assemble import Assembly
from windtunnel.errors import BadInput
from windtunnel.program.translated import TranslatedPipeline


class Translation(TranslatedPipeline):
    """A fitted pipeline as one differentiable program; made by ``windtunnel.translate`` and ``windtunnel.load``.

    ``forward(numbers, ids)`` takes the two blocks of an encoded batch (``encode``) and returns raw scores ``[B, K]``
    (log-odds, margins, values before the link) or the columns of a transformer. ``predict`` and its kin take raw rows
    and return what the source pipeline returns; a method that the source lacks is missing here too.

    For its attributes see ``windtunnel.program.translated.TranslatedPipeline``.
    """

    @classmethod
    def of(cls, assembly: Assembly) -> Self:
        """The translation of an assembled pipeline."""
        return cls(
            assembly.program, assembly.encoder, assembly.head, assembly.origins, assembly.hosts, assembly.untranslated
        )

    def fit(self, train: Any, valid: Any = None, **options: Any) -> Translation:
        """Fine-tune: by default a residual model on top of the pipeline.

        See ``windtunnel.trainers.finetune`` for the options.

        Parameters
        ----------
        train : iterable or tuple
            A DataLoader or any iterable of ``(rows, target)`` or ``(rows, target, weight)``, rows raw or encoded; or a
            tuple ``(X, y)`` or ``(X, y, weight)``.
        valid : iterable or tuple, optional
            The same for validation. ``fit`` keeps the weights of the epoch with the best metric on these rows; of a
            residual model, those with the lowest loss among the epochs that improve the metric. Epoch 0, before any
            step, counts: ``fit`` never returns a translation that scores worse there.
        """
        from windtunnel.trainers.finetune import finetune

        if self.head.task == "transform":
            raise BadInput("this pipeline ends in a transformer, so there is no target to fit; add a final predictor.")
        if self.engine is not None:
            raise BadInput('this translation runs on a backend that is fixed; compile with backend="torch" to fit.')
        rejecting = [replace(category) for category in self.encoder.categories]
        try:
            self.record(history=finetune(self, train, valid, **options))
        except BaseException:
            # Encoding training rows made the encoder accept categories that the source rejects. Undo that, as no fit
            # took place.
            self.replace_categories(rejecting)
            raise
        return self

    def harden(self, valid: Any = None) -> Translation:
        """A copy with hard trees in the place of soft ones; see ``windtunnel.compiler.hardening.harden``.

        Parameters
        ----------
        valid : rows, (rows, target) or (rows, target, weight), optional
            Rows to measure the change on, with targets also the metric and the loss; ``hardening`` holds the result.
        """
        from windtunnel.compiler.hardening import harden

        return harden(self, valid)

    def report(self) -> Report:
        """What each step became, its fidelity, and what training has changed."""
        return Report.of(self)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the safe artefact that ``windtunnel.load`` reads: JSON, vocabularies and tensors, no code."""
        from windtunnel.export.artefact.artefact import save

        save(self, path)

    def export(self, path: str | PathLike[str], format: str = "torchscript") -> None:
        """Write one file that scores without windtunnel; see ``windtunnel.export``."""
        from windtunnel.export import export

        export(self, path, format)
