"""The core of a translation: an ``nn.Module`` with the methods of the source pipeline, and what changes its state."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd import Function

from windtunnel.encode import CategoryColumn, RowEncoder, Rows
from windtunnel.errors import BadInput
from windtunnel.modules.base import Module
from windtunnel.pipeline.host_step import HostStep
from windtunnel.program.head import HEAD_METHODS, LABELS_AND_PROBABILITIES, Head
from windtunnel.program.initial_weights import InitialWeights
from windtunnel.program.program import Program, ProgramStep
from windtunnel.program.records.fidelity import CalibrationRows, Fidelity
from windtunnel.program.records.hardening_result import HardeningResult
from windtunnel.program.records.history import History
from windtunnel.program.records.origin import Origin
from windtunnel.program.records.records import Records
from windtunnel.program.records.strategy_choice import StrategyChoice
from windtunnel.program.records.training_profile import TrainingProfile
from windtunnel.program.residual_base import ResidualBase
from windtunnel.program.score_methods import append
from windtunnel.program.scoring_pipeline import Engine, ScoringPipeline
from windtunnel.program.source_method import SourceMethod
from windtunnel.program.translate_options import SofteningPlan
from windtunnel.program.translation_state import TranslationState

MOST_RESIDUAL_COLUMNS = 1000
"""The most columns of a translation that gets a residual model; counts of words have more."""
WITHOUT_GRADIENT = (
    "this translation holds exact trees, or other steps without a gradient. To train it in a custom loop, call "
    'net.soften() before the optimizer is made; fit(recipe="joint") does so itself.'
)


class _WithoutGradient(Function):
    """Scores of exact steps; ``backward`` says what to do."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, _: Tensor) -> Tensor:
        return scores.view_as(scores)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        raise BadInput(WITHOUT_GRADIENT)


class TranslatedPipeline(ScoringPipeline):
    """A fitted pipeline as one differentiable program: the methods of the source, and what became of each step.

    ``forward(numbers, ids)`` takes the two blocks of an encoded batch (``encode``) and returns raw scores ``[B, K]``
    (log-odds, margins, values before the link) or the columns of a transformer. ``predict`` and its kin take raw rows
    and return what the source pipeline returns; a method that the source lacks is missing here too.

    The attributes are complete when the constructor returns. Afterwards only methods of the class change them.

    Attributes
    ----------
    program, encoder, head, hosts, engine, batch_size
        See ``ScoringPipeline``.
    origins : list of Origin
        The source step behind each program step.
    untranslated : str
        "cache" or "stream": whether ``windtunnel.loader`` computes the columns of host steps once or batch by batch.
    exact_modules : dict of int to Module
        Program step -> the module that computes exactly what the source does, while an untrained soft one runs.
    initial_weights : InitialWeights
        The weights before training, from which the report's drift is measured.
    softening : SofteningPlan or None
        How ``soften`` replaces exact modules by soft ones. None if there is nothing to soften, and once soft modules
        are trained.
    calibration : CalibrationRows or None
        The rows to soften with; not saved.
    softening_pending : bool
        Whether ``soften`` has not been called yet. Until then all parameters are frozen.
    strategy_choices : list of StrategyChoice
        How to run each ensemble of exact trees.
    records : Records
        The results of operations, such as the history of a fit.
    profile : TrainingProfile or None
        How often the values of each raw column occur in the training rows of ``fit``, or in the calibration rows.
    """

    def __init__(
        self,
        program: Program,
        encoder: RowEncoder,
        head: Head,
        origins: Sequence[Origin],
        hosts: Sequence[HostStep] = (),
        untranslated: str = "cache",
        *,
        exact_modules: Mapping[int, Module] | None = None,
        softening: SofteningPlan | None = None,
        initial_weights: Mapping[str, Tensor] | None = None,
        strategy_choices: Sequence[StrategyChoice] = (),
        records: Records | None = None,
        profile: TrainingProfile | None = None,
    ) -> None:
        super().__init__(program, encoder, head, hosts)
        self.origins, self.untranslated = list(origins), untranslated
        self.exact_modules = dict(exact_modules or {})
        self.softening = softening
        self.calibration: CalibrationRows | None = None
        self.strategy_choices = list(strategy_choices)
        self.records, self.profile = records or Records(), profile
        self.initial_weights = InitialWeights(program)
        self.initial_weights.update(initial_weights or {})
        self.eval()

    def replace_program(
        self,
        program: Program,
        *,
        origins: Sequence[Origin] | None = None,
        encoder: RowEncoder | None = None,
        head: Head | None = None,
    ) -> None:
        """Run another program; what is None stays."""
        self.program = program
        self.engine = self.engine and self.engine.renewed(program, encoder or self.encoder)
        self.origins = self.origins if origins is None else list(origins)
        self.encoder = encoder or self.encoder
        self.head = head or self.head

    def replace_modules(self, modules: Mapping[int, Module]) -> None:
        """Put modules into program steps, by position."""
        for position, module in modules.items():
            self.program.steps[position].module = module

    def append_step(self, step: ProgramStep, origin: Origin) -> None:
        """Append a program step, whose output becomes the scores."""
        append(self.program, step)
        self.origins.append(origin)

    def replace_head(self, head: Head) -> None:
        """Take another head."""
        self.head = head

    def replace_categories(self, categories: Sequence[CategoryColumn]) -> None:
        """Encode ids with other category columns."""
        self.encoder.categories = list(categories)

    def defer_softening(self, plan: SofteningPlan, calibration: CalibrationRows | None) -> None:
        """Freeze the exact program until ``soften`` follows the plan."""
        self.softening, self.calibration = plan, calibration
        self.program.requires_grad_(False)

    @property
    def softening_pending(self) -> bool:
        """Whether exact modules will become soft."""
        return self.softening is not None and not self.exact_modules

    def set_exact_modules(self, modules: Mapping[int, Module]) -> None:
        """Take these as the exact modules behind untrained soft steps, by position."""
        self.exact_modules = dict(modules)

    def finish_softening(self) -> None:
        """Keep every step as it is: none has an exact module behind it, and none will become soft."""
        self.exact_modules = {}
        self.softening = self.calibration = None

    def drop_trained_exact_modules(self) -> None:
        """Keep the exact modules of soft steps whose weights, and those of all steps before, are the initial ones."""
        steps = self.program.steps
        untrained = {
            position: module
            for position, module in self.exact_modules.items()
            if all(map(self._has_initial_weights, {position} | self.program.upstream(steps[position])))
        }
        if len(untrained) < len(self.exact_modules):
            self.softening = self.calibration = None
        self.exact_modules = untrained

    def _has_initial_weights(self, position: int) -> bool:
        """Whether the weights of a step are still the initial ones."""
        state, initial = self.program.steps[position].state_dict(), self.initial_weights
        return all(torch.equal(now.cpu(), initial[f"steps.{position}.{name}"].cpu()) for name, now in state.items())

    def mark_initial_weights(self) -> None:
        """Take the present weights as the initial ones."""
        self.initial_weights = InitialWeights(self.program)

    @property
    def fixed(self) -> bool:
        """Whether an engine runs the program that does not follow training."""
        return self.engine is not None and self.engine.fixed

    @contextmanager
    def in_torch(self) -> Iterator[None]:
        """Run the program in torch while it changes; the engine takes it as it is then."""
        engine = self.engine
        self.drop_engine()
        try:
            yield
        finally:
            self.engine = engine and engine.renewed(self.program, self.encoder)

    def state(self) -> TranslationState:
        """What it runs now, to be restored."""
        return TranslationState(
            program=self.program,
            modules=[step.module for step in self.program.steps],
            head=self.head,
            origins=list(self.origins),
            exact_modules=dict(self.exact_modules),
            softening=self.softening,
            calibration=self.calibration,
            initial_weights=self.initial_weights,
            records=self.records,
            strategy_choices=list(self.strategy_choices),
        )

    def restore(self, state: TranslationState) -> None:
        """Run what it ran at the time of a state; there must be no engine."""
        self.program, self.head, self.origins = state.program, state.head, list(state.origins)
        self.replace_modules(dict(enumerate(state.modules)))
        self.exact_modules = dict(state.exact_modules)
        self.softening, self.calibration = state.softening, state.calibration
        self.initial_weights, self.records = state.initial_weights, state.records
        self.strategy_choices = list(state.strategy_choices)

    @contextmanager
    def unchanged_on_error(self) -> Iterator[None]:
        """Restore the state, and what is trainable, if the block raises; trained weights stay."""
        state, training = self.state(), self.training
        trainable = [(parameter, parameter.requires_grad) for parameter in self.parameters()]
        try:
            yield
        except BaseException:
            self.restore(state)
            for parameter, requires_grad in trainable:
                parameter.requires_grad_(requires_grad)
            self.train(training)
            raise

    def drop_engine(self) -> None:
        """Run the program in torch from now on."""
        self.engine = None

    def configure(
        self,
        *,
        engine: Engine | None = None,
        batch_size: int | None = None,
        strategy_choices: Sequence[StrategyChoice] | None = None,
    ) -> None:
        """Set how the program is run; what is None stays."""
        self.engine = engine or self.engine
        self.batch_size = batch_size or self.batch_size
        self.strategy_choices = self.strategy_choices if strategy_choices is None else list(strategy_choices)

    def record(self, **results: Any) -> None:
        """Keep results of an operation, by their names in ``Records``."""
        history: History | None = results.get("history")
        tuned = self.records.tuned or (history is not None and history.changed)
        self.records = replace(self.records, **results, tuned=tuned)

    def keep_profile(self, profile: TrainingProfile) -> None:
        """Keep the profile of other training rows."""
        self.profile = profile

    @property
    def history(self) -> History | None:
        """What the last ``fit`` or ``refresh`` did."""
        return self.records.history

    @property
    def fidelity(self) -> Fidelity | None:
        """R squared against the source pipeline on the calibration rows."""
        return self.records.fidelity

    @property
    def hardening(self) -> HardeningResult | None:
        """The change that ``harden`` measured; None where it was given no rows, or nothing was hardened."""
        return self.records.hardening

    def forward(self, numbers: Tensor, ids: Tensor | None = None) -> Tensor:
        """Raw scores ``[B, K]`` of encoded rows, whose ids must be given.

        Raises
        ------
        BadInput
            Without ids, as for raw rows. In training, and in ``backward``, if a step is still exact and has no
            gradient; see ``Translation.soften``.
        """
        if ids is None:
            raise BadInput(
                "net(numbers, ids) takes the two blocks of encoded rows, such as net(*net.encode(rows)); for raw rows "
                "call net.predict(rows) or net.scores(rows)"
            )
        numbers = numbers.to(getattr(torch, self.encoder.dtype))
        if not self.softening_pending or not torch.is_grad_enabled():
            return self.program(numbers, ids)  # type: ignore[no-any-return]
        if self.training or numbers.requires_grad:
            raise BadInput(f"{WITHOUT_GRADIENT} To predict, call net.eval(), or use torch.no_grad().")
        scores: Tensor = _WithoutGradient.apply(self.program(numbers, ids), torch.zeros((), requires_grad=True))  # type: ignore[no-untyped-call]
        return scores

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move to a device; a narrower type is rejected, before anything is rounded."""
        dtype = getattr(torch, self.encoder.dtype)
        converted = fn(torch.empty(0, dtype=dtype)).dtype
        if converted.itemsize < dtype.itemsize:
            raise BadInput(
                f"this translation computes in {dtype}; converted to {converted}, its thresholds and tables would be "
                'rounded as if they were weights. windtunnel.compile(pipeline, dtype="float32") makes a program of '
                "float32."
            )
        return super()._apply(fn, recurse)  # type: ignore[no-any-return, no-untyped-call]

    @SourceMethod
    def predict(self, rows: Rows) -> NDArray[Any]:
        """Labels of a classifier (original labels), values of a regressor, the output of ``Booster.predict``."""
        output: NDArray[Any] = self._run_method("predict", rows, self.head.predicted)
        return output

    @SourceMethod
    def predict_proba(self, rows: Rows) -> Any:
        """Probabilities ``[B, classes]``; a list of such for several targets."""
        return self._run_method("predict_proba", rows, self.head.probabilities)

    @SourceMethod
    def predict_log_proba(self, rows: Rows) -> Any:
        """Natural logarithm of ``predict_proba``."""
        if "predict_log_proba" in self.program.method_steps:
            return self._run_method("predict_log_proba", rows)
        with np.errstate(divide="ignore"):  # a probability of 0
            probabilities = self.predict_proba(rows)
            several = isinstance(probabilities, list)
            return [np.log(target) for target in probabilities] if several else np.log(probabilities)

    @SourceMethod
    def decision_function(self, rows: Rows) -> NDArray[Any]:
        """Raw scores: ``[B]`` for two classes, else ``[B, K]``."""
        return self._run_method("decision_function", rows, self.head.decision)  # type: ignore[no-any-return]

    @SourceMethod
    def score_samples(self, rows: Rows) -> NDArray[Any]:
        """The log-density or the normality of each row, ``[B]``."""
        return self._run_method("score_samples", rows)  # type: ignore[no-any-return]

    @SourceMethod
    def transform(self, rows: Rows) -> NDArray[Any]:
        """The columns of a pipeline that ends in a transformer, ``[B, width]``."""
        return self._run_method("transform", rows)  # type: ignore[no-any-return]

    def apply(self, rows: Any) -> Any:
        """The leaf that each row ends in, per tree, as the source numbers them.

        With a function as the argument it is ``torch.nn.Module.apply``.
        """
        if callable(rows):
            return super().apply(rows)
        if "apply" not in self.head.methods:
            raise AttributeError("the source has no apply; trees and forests of scikit-learn and XGBoost have one.")
        return self._run_method("apply", rows)

    def _run_method(self, method: str, rows: Rows, finish: Callable[[Tensor], Tensor] | None = None) -> Any:
        """The output of a method in the source's type."""
        if (direct := self._run_engine(method, rows)) is not None:
            return direct
        return self._to_source_type(method, self._output_of_rows(method, rows, finish))

    def outputs(self, methods: Sequence[str], rows: Rows) -> tuple[Any, ...]:
        """The outputs of several methods, such as "predict"; raw scores from which all of them follow run once."""
        both = self._run_engine(LABELS_AND_PROBABILITIES, rows) if [*methods] == ["predict", "predict_proba"] else None
        if both is not None:
            return both  # type: ignore[no-any-return]
        if (direct := self._run_engine(methods[0], rows)) is not None:
            return direct, *(getattr(self, method)(rows) for method in methods[1:])
        if len(methods) < 2 or not {*HEAD_METHODS} - self.facts().methods >= {*methods}:
            return tuple(getattr(self, method)(rows) for method in methods)
        scores = self.scores(rows)
        with torch.inference_mode():
            return tuple(self._to_source_type(method, self.head.output(method, scores)) for method in methods)

    def _to_source_type(self, method: str, output: Tensor) -> Any:
        """An output in the source's type; labels for their positions."""
        if method == "predict" and self.head.classes is not None:
            return self.head.labels(output)
        return self.head.typed(method, output)

    def _run_engine(self, method: str, rows: Rows) -> Any:
        """The output of a method if the engine computes it from raw rows."""
        engine = self.engine
        return None if engine is None else engine.direct(self, method, rows)

    @property
    def classes_(self) -> Any:
        """Original labels in the order of the columns of ``predict_proba``; classifiers only."""
        if self.head.classes is None:
            raise AttributeError(f"a {self.head.task} pipeline has no classes_")
        return self.head.classes

    @property
    def n_features_in_(self) -> int:
        """The number of raw columns; missing where rows are a sequence of texts or the like."""
        if self.encoder.flat:
            raise AttributeError("this pipeline takes a sequence, which has no columns")
        return self.encoder.width

    @property
    def feature_names_in_(self) -> NDArray[Any]:
        """The names of the raw columns; missing where the pipeline was fitted on an array."""
        if self.encoder.names is None:
            raise AttributeError("this pipeline was fitted on an array, whose columns have no names")
        return np.array(self.encoder.names, dtype=object)

    def tree_columns(self, rows: Rows) -> NDArray[Any]:
        """The input of the last step, ``[B, width]``: the columns that a LightGBM or XGBoost file takes."""
        position = len(self.program.steps) - 1
        (batch,) = self.encoded_parts(rows)
        return self.step_inputs(position, batch).numpy()

    def residual_base(self) -> ResidualBase | None:
        """The program and the head that a residual model may be added to.

        None where no residual model is possible: without encoded columns or with more than
        ``MOST_RESIDUAL_COLUMNS``, if rows depend on each other, if a label has no column in ``predict_proba``, or if
        there is no ``ResidualBase``.
        """
        if self._why_not_by_rows():
            return None
        base = ResidualBase.of(self.program, self.head)
        if base is None or "predict_proba" not in self.program.method_steps:
            return base
        probabilities = self.run_in_slices(partial(self.program.output, "predict_proba"), self.encoder.zeros(1))
        return base if probabilities.shape[1] == len(self.head.labels_in_order) else None

    def why_no_residual_model(self) -> str:
        """Why no residual model may be added; empty where one may."""
        if reason := self._why_not_by_rows():
            return reason
        if self.head.has_several_targets:
            return "it has several targets"
        if self.residual_base() is None:
            return "its outputs follow neither from raw scores nor from probabilities"
        return ""

    def _why_not_by_rows(self) -> str:
        """Why the rows rule out a residual model; empty where they do not."""
        columns = len(self.encoder.numbers) + len(self.encoder.categories)
        if columns == 0:
            return "it reads no columns"
        if columns > MOST_RESIDUAL_COLUMNS:
            return f"it reads {columns:,} columns, more than {MOST_RESIDUAL_COLUMNS:,}"
        return "the score of a row depends on the other rows" if self.program.needs_all_rows() else ""

    def takes_residual_model(self) -> bool:
        """Whether a residual model may be added."""
        return self.residual_base() is not None
