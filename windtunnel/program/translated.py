"""The core of a translated pipeline: an ``nn.Module`` that encodes raw rows, scores them and predicts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, Self, cast

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from windtunnel.encode import FIRST_ID, Batch, CategoryColumn, RowEncoder, Rows
from windtunnel.errors import BadInput
from windtunnel.modules.base import Module
from windtunnel.modules.linear.linear import Linear
from windtunnel.modules.tables.tfidf import TermSums
from windtunnel.pipeline.host_step import HostStep
from windtunnel.program.fidelity import CalibrationRows, Fidelity
from windtunnel.program.hardening_result import HardeningResult
from windtunnel.program.head import Head
from windtunnel.program.history import History
from windtunnel.program.initial_weights import InitialWeights
from windtunnel.program.origin import Origin
from windtunnel.program.program import Program, ProgramStep
from windtunnel.program.program_facts import ProgramFacts
from windtunnel.program.row_slices import CPU, LARGE, has_non_finite, in_slices, rows_at_once, without_missing
from windtunnel.program.simplification import Simplification
from windtunnel.program.source_method import SourceMethod
from windtunnel.program.strategy_choice import StrategyChoice
from windtunnel.program.translate_options import SofteningPlan

MOST_RESIDUAL_COLUMNS = 1000
"""The most columns of a translation that gets a residual model; counts of words have more."""
CHUNK_BYTES = 2**24
"""The most memory of rows whose tokens are counted at once; more was slower."""


class Engine(Protocol):
    """Runs a program instead of eager torch."""

    def output(self, method: str, numbers: Tensor, ids: Tensor) -> Tensor:
        """The output of ``Program.output``; called without gradients, with rows on the device of the program."""
        ...


class TranslatedPipeline(nn.Module):
    """A fitted pipeline as one differentiable program: state, encoding, scores and predictions.

    ``forward(numbers, ids)`` takes the two blocks of an encoded batch (``encode``) and returns raw scores ``[B, K]``
    (log-odds, margins, values before the link) or the columns of a transformer. ``predict`` and its kin take raw rows
    and return what the source pipeline returns; a method that the source lacks is missing here too.

    The attributes are complete when the constructor returns. Afterwards only methods of the class change them.

    Attributes
    ----------
    program : Program
        The modules and their wiring.
    encoder : RowEncoder
        The raw columns that are read, and their vocabularies.
    head : Head
        Task, link, labels.
    origins : list of Origin
        The source step behind each program step.
    hosts : list of HostStep
        Steps that stay on the host.
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
    pending : bool
        Whether ``soften`` has not been called yet. Until then all parameters are frozen.
    strategy_choices : list of StrategyChoice
        How to run each ensemble of exact trees.
    engine : Engine or None
        What runs the program; None is eager torch.
    batch_size : int
        How many rows go through the program at once.
    fidelity : Fidelity or None
        R squared against the source pipeline on the calibration rows.
    simplification : Simplification or None
        What the passes of ``windtunnel.compile`` have left out.
    hardened : bool
        Whether ``harden`` made this translation.
    hardening : HardeningResult or None
        The change that ``harden`` measured; None where it was given no rows, or nothing was hardened.
    history : History or None
        What the last ``fit`` did.
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
        fidelity: Fidelity | None = None,
        simplification: Simplification | None = None,
        hardened: bool = False,
        hardening: HardeningResult | None = None,
        history: History | None = None,
    ) -> None:
        super().__init__()
        self.program = program
        self.encoder, self.head, self.origins = encoder, head, list(origins)
        self.hosts, self.untranslated = list(hosts), untranslated
        self.exact_modules = dict(exact_modules or {})
        self.softening, self.calibration = softening, cast(CalibrationRows | None, None)
        self.strategy_choices = list(strategy_choices)
        self.engine: Engine | None = None
        self.batch_size = rows_at_once(program)
        self.fidelity, self.simplification = fidelity, simplification
        self.hardened, self.hardening, self.history = hardened, hardening, history
        self._facts: ProgramFacts | None = None
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
        exact_modules: Mapping[int, Module] | None = None,
    ) -> None:
        """Run another program; what is None stays."""
        self.program = program
        self.origins = self.origins if origins is None else list(origins)
        self.encoder = encoder or self.encoder
        self.head = head or self.head
        self.exact_modules = self.exact_modules if exact_modules is None else dict(exact_modules)

    def replace_modules(self, modules: Mapping[int, Module]) -> None:
        """Put modules into program steps, by position."""
        for position, module in modules.items():
            self.program.steps[position].module = module

    def append_step(self, step: ProgramStep, origin: Origin) -> None:
        """Append a program step, whose output becomes the scores."""
        self.program.steps.append(step)
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
    def pending(self) -> bool:
        """Whether exact modules will become soft."""
        return self.softening is not None and not self.exact_modules

    def set_exact_modules(self, modules: Mapping[int, Module]) -> None:
        """Take these as the exact modules behind untrained soft steps, by position; without any, all is final."""
        self.exact_modules = dict(modules)
        if not modules:
            self.softening = self.calibration = None

    def drop_trained_exact_modules(self) -> None:
        """Keep the exact modules of those soft steps only whose weights are still the initial ones."""
        states = {position: self.program.steps[position].state_dict() for position in self.exact_modules}
        initial = self.initial_weights
        untrained = {
            position: self.exact_modules[position]
            for position, state in states.items()
            if all(torch.equal(now.cpu(), initial[f"steps.{position}.{name}"].cpu()) for name, now in state.items())
        }
        if len(untrained) < len(states):
            self.softening = self.calibration = None
        self.exact_modules = untrained

    def mark_initial_weights(self) -> None:
        """Take the present weights as the initial ones."""
        self.initial_weights = InitialWeights(self.program)

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

    def record(
        self,
        *,
        fidelity: Fidelity | None = None,
        simplification: Simplification | None = None,
        hardened: bool = False,
        hardening: HardeningResult | None = None,
        history: History | None = None,
    ) -> None:
        """Keep the result of an operation for the report; what is None stays."""
        self.fidelity = fidelity or self.fidelity
        self.simplification = simplification or self.simplification
        self.hardened = hardened or self.hardened
        self.hardening = hardening or self.hardening
        self.history = history or self.history

    def forward(self, numbers: Tensor, ids: Tensor) -> Tensor:
        """Raw scores ``[B, K]`` of encoded rows.

        Raises
        ------
        BadInput
            In training, if a step is still exact and has no gradient; see ``Translation.soften``.
        """
        if self.pending and (self.training or numbers.requires_grad) and torch.is_grad_enabled():
            raise BadInput(
                "this translation holds exact trees, or other steps without a gradient. To train it in a custom loop, "
                'call net.soften() before the optimizer is made; fit(recipe="joint") does so itself. To predict, call '
                "net.eval(), or use torch.no_grad()."
            )
        return self.program(numbers, ids)  # type: ignore[no-any-return]

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

    def encode(self, rows: Rows, *, training: bool = False) -> Batch:
        """Raw rows as tensors.

        Parameters
        ----------
        rows : DataFrame, Arrow table, NumPy array or dict of columns
        training : bool
            Accepts categories that the source rejects (``handle_unknown="error"``). They get the row of the unknown
            category, which training moves, and ``predict`` accepts them from then on. Rows that ``predict`` rejects
            for their numbers are rejected here too, see ``check_rows``.

        Raises
        ------
        BadInput
            Columns missing, of the wrong number or kind, or categories that the source rejects.
        """
        (batch,) = self.encoded_parts(rows, training=training)
        if training and not isinstance(rows, Batch):
            self.check_rows(batch)
        return batch

    def encoded_parts(
        self, rows: Rows, *, training: bool = False, at_once: int | None = None, shared: bool = False
    ) -> Iterable[Batch]:
        """Raw rows as batches of at most ``at_once`` rows, by default as a single one; see ``RowEncoder.block``."""
        if isinstance(rows, Batch):
            return (self.encoder.check_batch(rows),)
        if self.hosts:
            return self._encoded_with_hosts(rows, training, at_once)
        if (batch := self.encoder.encode_array(rows, shared=shared)) is not None:
            return (batch,)
        if (batch := self.encoder.encode_few(rows)) is not None:
            return (batch,)
        columns = self.encoder.columns(rows)
        count = len(rows if isinstance(columns, dict) else columns)
        return (self.encoder.encode(columns, rows=count, training=training),)

    def _encoded_with_hosts(self, rows: Rows, training: bool, at_once: int | None) -> Iterator[Batch]:
        """Raw rows with the columns that host steps compute."""
        counted = all(host.tokens is not None for host in self.hosts)
        if counted and (few := self.encoder.encode_few(rows)) is not None:
            source = self.encoder.source_rows(rows)
            yield self.encoder.add_counts(few, {host.columns[0]: host.count(source) for host in self.hosts})
            return
        frame = self.encoder.select(rows)
        self._check_not_empty(frame)
        frame, source, size = frame.reset_index(drop=True), self.encoder.source_rows(rows), at_once or len(frame)
        for start in range(0, len(frame), size):
            part = source[start : start + size]
            computed = [host.output(part) for host in self.hosts if host.tokens is None]
            counts = {host.columns[0]: host.count(part) for host in self.hosts if host.tokens is not None}
            read = frame.iloc[start : start + size].reset_index(drop=True)
            yield self.encoder.encode(pd.concat([read, *computed], axis=1), training=training, counts=counts)

    def _check_not_empty(self, rows: Any) -> None:
        if len(rows) == 0:
            raise BadInput(f"got 0 rows; step {self.hosts[0].name!r}, kept on the host, needs at least 1.")

    def scores(self, rows: Rows) -> Tensor:
        """Raw scores ``[B, K]`` of raw rows, on the CPU, without gradients.

        Raises
        ------
        BadInput
            No rows, or numbers that a step of the source rejects too: missing, infinite, or beyond float32.
        """
        return self._predict("scores", rows)

    def _predict(self, method: str, rows: Rows, finish: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """The output of a method for raw rows: of the method's own step, else ``finish`` applied to the scores."""
        facts = self._program_facts()
        if method in facts.methods:
            finish = None
        else:
            method = "scores"
        sums = facts.count_sums if method == "scores" and self.engine is None else None
        if sums is not None and facts.device() == CPU and not isinstance(rows, Batch):
            return self._sparse_sums(sums, rows, finish)
        # Counts of tokens are dense here. All rows at once might not fit in memory.
        counts = self.hosts and not facts.needs_all_rows and any(host.tokens is not None for host in self.hosts)
        batches = self.encoded_parts(rows, at_once=self._rows_at_once() if counts else None, shared=True)
        outputs = [self._checked_output(facts, method, batch, finish) for batch in batches]
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs)

    def _sparse_sums(self, sums: Linear | TermSums, rows: Rows, finish: Callable[[Tensor], Tensor] | None) -> Tensor:
        """Weighted sums of sparse counts, which are always finite."""
        source, (host,) = self.encoder.source_rows(rows), self.hosts
        self._check_not_empty(source)
        outputs = []
        with torch.inference_mode():
            for start in range(0, len(source), self.batch_size):
                counts = self.encoder.sparse_counts(
                    host.columns[0], host.count(source[start : start + self.batch_size])
                )
                outputs.append(sums.of_sparse(counts) if finish is None else finish(sums.of_sparse(counts)))
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs)

    def _checked_output(
        self, facts: ProgramFacts, method: str, batch: Batch, finish: Callable[[Tensor], Tensor] | None
    ) -> Tensor:
        numbers, ids = batch
        if ids.shape[0] == 0:
            raise BadInput("got 0 rows; at least 1 is needed to predict.")
        engine, rejected = self.engine or facts.program, []

        def run(numbers: Tensor, ids: Tensor) -> Tensor:
            output = engine.output(method, numbers, ids)
            # Checked here, while the numbers are in the processor's cache.
            if self._some_rejected(facts, method, numbers, ids, output):
                rejected.append(True)
            return output if finish is None else finish(output)

        output = self.run_in_slices(run, batch, facts)
        if rejected:
            raise BadInput(self._why_not_finite(batch, self._rejected(method, batch)))
        begin = numbers.data_ptr()
        # A view of the rows may be the caller's memory.
        return output.clone() if begin <= output.data_ptr() < begin + numbers.nbytes else output

    def _rows_at_once(self) -> int:
        """How many rows go through the program at once: fewer where tokens make them wide."""
        if all(host.tokens is None for host in self.hosts):
            return self.batch_size
        row = max(len(self.encoder.numbers), 1) * np.dtype(self.encoder.dtype).itemsize
        return min(self.batch_size, max(CHUNK_BYTES // row, 1))

    def _some_rejected(self, facts: ProgramFacts, method: str, numbers: Tensor, ids: Tensor, output: Tensor) -> bool:
        """Whether the source rejects a row, from its output where that tells."""
        cleared: frozenset[int] = frozenset()
        if not facts.partial:
            seen = numbers if facts.guarded is None else numbers.index_select(1, facts.guarded.to(numbers.device))
            if not has_non_finite(seen, ids) or (
                facts.takes_missing and not has_non_finite(without_missing(seen), ids[:, :0])
            ):
                return False
            if not facts.needs_all_rows:
                # The norm of a row with a non-finite value is not finite either; some finite rows pass too.
                suspect = ~(torch.linalg.vector_norm(seen, dim=1) <= LARGE) | (ids < FIRST_ID).any(dim=1)
                numbers, ids = numbers[suspect], ids[suspect]
        elif method == "scores" and torch.isfinite(output).all():
            cleared = facts.cleared_by_scores
        return bool(self.program.rejected(method, numbers, ids, cleared).any())

    def check_rows(self, batch: Batch) -> None:
        """Check that rows can be used for training and validation: ``predict`` accepts each of them.

        Only rows with missing, infinite or unknown values are checked, and none of a transformer.

        Raises
        ------
        BadInput
            A step of the source rejects a row, or a row has no finite score.
        """
        failed = ~torch.isfinite(batch.numbers).all(dim=1) | (batch.ids < FIRST_ID).any(dim=1)
        if self.head.task == "transform" or not failed.any():
            return
        suspect = Batch(batch.numbers[failed], batch.ids[failed])
        finite = torch.isfinite(self.output("scores", suspect)).all(dim=1)
        failed[failed.clone()] = ~finite | self._rejected("scores", suspect)
        if failed.any():
            raise BadInput(self._why_not_finite(batch, failed))

    def output(self, method: str, batch: Batch) -> Tensor:
        """The program's output for encoded rows: "scores", or a method that has a step in the program."""
        return self.run_in_slices(partial((self.engine or self.program).output, method), batch)

    def device(self) -> torch.device:
        """The device of the program."""
        return self._program_facts().device()

    def _program_facts(self) -> ProgramFacts:
        """Facts of the program, computed anew once a step has another module."""
        # Attribute access on modules takes longer than building this list.
        parts = self._modules["program"]._modules  # type: ignore[union-attr]
        steps = [*parts["steps"]._modules.values(), *parts["method_steps"]._modules.values()]  # type: ignore[union-attr]
        modules = [step._modules["module"] for step in steps]
        if self._facts is None or self._facts.modules != modules:
            self._facts = ProgramFacts(self.program, modules, self.encoder, self.hosts)
        return self._facts

    def _rejected(self, method: str, batch: Batch) -> Tensor:
        """Whether the source would raise on a row, bool ``[B]``."""
        return self.run_in_slices(partial(self.program.rejected, method), batch)

    def run_in_slices(self, run: Callable[..., Tensor], batch: Batch, facts: ProgramFacts | None = None) -> Tensor:
        """``run(numbers, ids)`` slice by slice, in eval mode on the device of the program; the output on the CPU."""
        facts = facts or self._program_facts()
        if self.training or facts.program.training:
            was_training = self.training
            self.eval()
            try:
                return self.run_in_slices(run, batch, facts)
            finally:
                self.train(was_training)
        return in_slices(
            run, batch, self._rows_at_once(), facts.device(), whole=facts.needs_all_rows, least=facts.least_rows
        )

    def _why_not_finite(self, batch: Batch, failed: Tensor) -> str:
        """Name the columns whose NaN or infinity, with 0 in all others, leaves a row without a score."""
        numbers, ids = batch.numbers[failed], batch.ids[failed]
        names = []
        for column in range(numbers.shape[1]):
            for value, holds in ((math.nan, torch.isnan), (math.inf, torch.isinf)):
                row = torch.zeros_like(numbers[:1])
                row[0, column] = value
                probe = Batch(row, ids[:1])
                if holds(numbers[:, column]).any() and (
                    self._rejected("scores", probe).any() or not torch.isfinite(self.output("scores", probe)).all()
                ):
                    names.append(self.encoder.column_name(self.encoder.numbers[column]))
        where = ", ".join(dict.fromkeys(names)) or "what a step computes"
        return (
            f"{int(failed.sum())} of {len(failed)} rows have no finite score: NaN, infinite values or values beyond "
            f"float32 in {where} reach a step that does not take them. "
            "Impute or drop them, or put a SimpleImputer in the pipeline before fitting it."
        )

    @SourceMethod
    def predict(self, rows: Rows) -> NDArray[Any]:
        """Labels of a classifier (original labels), values of a regressor, the output of ``Booster.predict``."""
        output = self._predict("predict", rows, self.head.predicted)
        return self.head.labels(output) if self.head.classes is not None else self.head.typed("predict", output)

    @SourceMethod
    def predict_proba(self, rows: Rows) -> Any:
        """Probabilities ``[B, classes]``; a list of such for several targets."""
        return self._typed("predict_proba", rows, self.head.probabilities)

    @SourceMethod
    def predict_log_proba(self, rows: Rows) -> Any:
        """Natural logarithm of ``predict_proba``."""
        if "predict_log_proba" in self.program.method_steps:
            return self._typed("predict_log_proba", rows)
        with np.errstate(divide="ignore"):  # a probability of 0
            probabilities = self.predict_proba(rows)
            several = isinstance(probabilities, list)
            return [np.log(target) for target in probabilities] if several else np.log(probabilities)

    @SourceMethod
    def decision_function(self, rows: Rows) -> NDArray[Any]:
        """Raw scores: ``[B]`` for two classes, else ``[B, K]``."""
        return self._typed("decision_function", rows, self.head.decision)  # type: ignore[no-any-return]

    @SourceMethod
    def score_samples(self, rows: Rows) -> NDArray[Any]:
        """The log-density or the normality of each row, ``[B]``."""
        return self._typed("score_samples", rows)  # type: ignore[no-any-return]

    @SourceMethod
    def transform(self, rows: Rows) -> NDArray[Any]:
        """The columns of a pipeline that ends in a transformer, ``[B, width]``."""
        return self._typed("transform", rows)  # type: ignore[no-any-return]

    def apply(self, rows: Any) -> Any:
        """The leaf that each row ends in, per tree, as the source numbers them.

        With a function as the argument it is ``torch.nn.Module.apply``.
        """
        if callable(rows):
            return super().apply(rows)
        if "apply" not in self.head.methods:
            raise AttributeError("the source has no apply: only trees and forests of scikit-learn return their leaves.")
        return self._typed("apply", rows)

    def _typed(self, method: str, rows: Rows, finish: Callable[[Tensor], Tensor] | None = None) -> Any:
        """The output of a method in the source's type."""
        return self.head.typed(method, self._predict(method, rows, finish))

    @property
    def classes_(self) -> Any:
        """Original labels in the order of the columns of ``predict_proba``; classifiers only."""
        if self.head.classes is None:
            raise AttributeError(f"a {self.head.task} pipeline has no classes_")
        return self.head.classes

    def tree_columns(self, rows: Rows) -> NDArray[Any]:
        """The input of the last step, ``[B, width]``: the columns that a LightGBM or XGBoost file takes."""
        position = len(self.program.steps) - 1
        (batch,) = self.encoded_parts(rows)
        return self.run_in_slices(partial(self.program.inputs_of, position), batch).numpy()

    def takes_residual_model(self) -> bool:
        """Whether a residual model can be added: raw scores give every output, and there are columns for it to read."""
        from_scores = {"predict", "predict_proba", "predict_log_proba", "decision_function"}
        return (
            0 < len(self.encoder.numbers) + len(self.encoder.categories) <= MOST_RESIDUAL_COLUMNS
            and not isinstance(self.head.classes, list)
            and not from_scores & set(self.program.method_steps)
            and not self.program.needs_all_rows()
        )
