"""The translated pipeline as users see it: fits, hardens, reports, saves and exports itself."""

from __future__ import annotations

from html import escape
from os import PathLike
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from windtunnel.encode import Rows
from windtunnel.errors import InvalidOption
from windtunnel.program.records.number_text import value_text
from windtunnel.program.translated import TranslatedPipeline
from windtunnel.trainers.fit import fit
from windtunnel.trainers.refresh.refresh import refresh

if TYPE_CHECKING:
    from windtunnel.api.report import Report
    from windtunnel.assemble import Assembly
    from windtunnel.explain import Explanation
    from windtunnel.export import Format


class Translation(TranslatedPipeline):
    """A translated pipeline with all that users do with it: ``fit``, ``refresh``, ``explain``, ``report``, ``export``.

    ``windtunnel.translate`` and ``windtunnel.load`` make it. Its base class ``TranslatedPipeline`` (in
    ``windtunnel.program.translated``) has the attributes and the methods of the source: ``predict`` and its kin take
    raw rows and return what the source pipeline returns; a method that the source lacks is missing here too.
    ``forward(numbers, ids)`` takes the two blocks of an encoded batch (``encode``).
    """

    @classmethod
    def of(cls, assembly: Assembly, untranslated: str = "cache") -> Self:
        """The translation of an assembled pipeline."""
        return cls(assembly.program, assembly.encoder, assembly.head, assembly.origins, assembly.hosts, untranslated)

    fit, refresh = fit, refresh

    def __repr__(self) -> str:
        """Task, steps, parameters and fine-tuning in one line; ``program`` shows the modules."""
        return f"{type(self).__name__}({'; '.join(f'{name}: {value}' for name, value in self._facts_in_short())})"

    def _repr_html_(self) -> str:
        """The facts of ``repr`` as HTML, for notebooks; ``report`` says more."""
        facts = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in self._facts_in_short())
        return f"<strong>{type(self).__name__}</strong><dl>{facts}</dl>"

    def _facts_in_short(self) -> list[tuple[str, str]]:
        hosts = [f"{type(host.step.estimator).__name__} (host)" for host in self.hosts]
        steps = list(dict.fromkeys([*hosts, *(origin.estimator for origin in self.origins if origin.estimator)]))
        parameters = list(self.parameters())
        total = sum(parameter.numel() for parameter in parameters)
        trainable = sum(parameter.numel() for parameter in parameters if parameter.requires_grad)
        history = self.history
        tuned = f"{history.metric} {value_text(history.start)} -> {value_text(history.best)}" if history else "no"
        return [
            ("task", self.head.task_and_classes(4)),
            ("steps", ", ".join(steps)),
            ("parameters", f"{total:,}, {trainable:,} trainable"),
            ("fine-tuned" if history is None or history.refresh is None else "refreshed", tuned),
        ]

    def score(self, rows: Rows, target: Any, sample_weight: Any = None) -> float:
        """Accuracy of a classifier, R squared of a regressor: what ``score`` of scikit-learn's estimators returns.

        With several targets, a row counts as right where all of its labels are.
        """
        from sklearn.metrics import accuracy_score, r2_score

        predicted = self.predict(rows)
        if self.head.has_several_targets:
            right = np.equal(target, predicted).all(axis=1)
            return float(np.average(right, weights=sample_weight))
        if self.head.classes is None and predicted.ndim == 2 and np.ndim(target) == 1:  # several quantiles
            target = np.broadcast_to(np.asarray(target)[:, None], predicted.shape)
        metric = r2_score if self.head.classes is None else accuracy_score
        return float(metric(target, predicted, sample_weight=sample_weight))

    def __sklearn_is_fitted__(self) -> bool:
        """For scikit-learn: a translation always predicts."""
        return True

    def __sklearn_tags__(self) -> Any:
        """For scikit-learn: whether this is a classifier, a regressor or a transformer, and whether it takes tables."""
        from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, TransformerMixin

        mixins: dict[str, type] = {"regression": RegressorMixin, "transform": TransformerMixin}
        mixin = mixins.get(self.head.task, ClassifierMixin if self.head.classes is not None else RegressorMixin)
        tags = type("Tagged", (mixin, BaseEstimator), {})().__sklearn_tags__()
        tags.input_tags.two_d_array = not self.encoder.flat
        return tags

    def soften(self, calibrate: Rows | None = None) -> Self:
        """Make exact trees soft, in place, at the level and temperature that ``translate`` was given.

        Joint training does this itself. For a custom training loop, call it before the optimizer is made: only then are
        the parameters that ``level`` names in ``parameters()``. The other steps without a gradient (bins, votes) become
        smooth too. Trees that are soft already stay as they are.

        Parameters
        ----------
        calibrate : rows, optional
            A few thousand raw rows; by default those that ``translate`` was given. A file does not hold them: give them
            again after ``load``.

        Returns
        -------
        Translation
            This one.
        """
        from windtunnel.program.records.fidelity import CalibrationRows
        from windtunnel.program.softening import soften
        from windtunnel.program.translate_options import check_calibration_rows

        check_calibration_rows(calibrate)
        rows = None if calibrate is None else self.encode(calibrate)
        soften(self, None if rows is None else CalibrationRows.of(rows, self.head.methods, self, rows))
        return self

    def harden(self, valid: Any = None) -> Translation:
        """A copy with hard trees in the place of soft ones, which train no further.

        Parameters
        ----------
        valid : rows, (rows, target) or (rows, target, weight), optional
            Rows to measure the change on, with targets also the metric and the loss; ``hardening`` holds the result.
        """
        from windtunnel.compiler.hardening import harden

        return harden(self, valid)

    def explain(self, rows: Rows, background: Rows | None = None, *, samples: int = 50) -> Explanation:
        """Contributions of raw columns, and of interactions of a residual model, to the raw scores of rows.

        With ``base`` they add up to the raw score. They are

        - of a residual model, exact: the rows of its tables for the values of a column or interaction. A product of
          the factorization machine counts half for either column;
        - of trees behind steps that compute each of their columns from one raw column, exact: path-dependent TreeSHAP
          against the training rows of the trees, whose counts a saved file keeps. The values of encoded columns, such
          as one-hot ones, are added up by raw column;
        - of linear models behind such steps, or behind linear ones, exact: f_j(x_j) less its mean over the background
          rows, where the raw score is a sum of f_j(x_j);
        - of any other pipeline, sampled Shapley values: in random orders, columns switch one by one from the value of
          a background row to that of the explained row (interventional). They have a standard error.

        Parameters
        ----------
        rows : raw rows
            B rows, as for ``predict``.
        background : raw rows, optional
            At least 2 rows that linear models and sampled values are compared with, such as training rows. By default
            1,000 rows drawn from the profile of the training rows, else the explained rows themselves. In drawn rows
            each column has the values and frequencies of the training rows (a number is the mean of its bin), and
            columns are independent. So the base of a sum of columns is its mean over the training rows, but for
            rounding and for bends within a bin; sampled values see combinations that no training row has.
        samples : int
            Background rows that sampling uses, each with one order of the columns per row and its reverse.

        Returns
        -------
        Explanation

        Raises
        ------
        BadInput
            Rows that ``predict`` rejects, too few background rows, or a pipeline that ends in a transformer.
        """
        from windtunnel.explain import explain

        return explain(self, rows, background, samples=samples)

    def report(self, test: tuple[Any, ...] | None = None, *, source: Any = None) -> Report:
        """A report of what each step became, its fidelity, and what training has changed.

        Parameters
        ----------
        test : (X, y) or (X, y, weight), optional
            Raw rows that neither the pipeline nor ``fit`` has seen. The report then has the metrics on them.
        source : fitted estimator, optional
            The source pipeline, for its metrics on the test rows beside those of the translation.

        Raises
        ------
        InvalidOption
            A source without test rows.
        BadInput
            Test rows that are no such tuple, and targets or weights that ``fit`` rejects.
        """
        from windtunnel.api.report import Report

        if test is None:
            if source is not None:
                raise InvalidOption("source= is compared on test rows; give test=(X, y) too")
            return Report.of(self)
        from windtunnel.api.scores import (  # scikit-learn's metrics, which take a moment to import
            checked_test_rows,
            measure,
        )

        models = {"fine-tuned": self} if source is None else {"source pipeline": source, "fine-tuned": self}
        rows = checked_test_rows(test, self.head)
        return Report.of(self, {name: measure(model, *rows, head=self.head) for name, model in models.items()})

    def save(self, path: str | PathLike[str]) -> None:
        """Write the safe artefact that ``windtunnel.load`` reads: JSON, vocabularies and tensors, no code."""
        from windtunnel.export.artefact.artefact import save

        save(self, path)

    def export(self, path: str | PathLike[str], format: Format | None = None, *, example: Rows | None = None) -> None:
        """Write one file that scores without windtunnel.

        Parameters
        ----------
        path : path
        format : str, optional
            By default that of the suffix of the path: .onnx ONNX, .pt2 ``torch.export``, .c C, .ts TorchScript (which
            PyTorch has deprecated), .txt LightGBM, .json XGBoost. ``windtunnel.export`` describes the formats; "aoti"
            is one more for .pt2.
        example : rows, optional
            For ONNX: columns of numbers take the types that they have in these raw rows (bool, integers, float32);
            without them, float64.
        """
        from windtunnel.export import export

        export(self, path, format, example=example)
