"""The translated pipeline: an ``nn.Module`` that also predicts, fits, reports and exports like an estimator."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.utils.metaestimators import available_if
from torch import Tensor, nn

from windtunnel.assemble import Origin
from windtunnel.encode import FIRST_ID, Batch, RowEncoder, Rows
from windtunnel.errors import BadInput
from windtunnel.modules.base import Module
from windtunnel.modules.linear.linear import Linear
from windtunnel.modules.tables.tfidf import TermSums
from windtunnel.pipeline.host_step import HostStep
from windtunnel.program.head import Head
from windtunnel.program.initial_weights import Start
from windtunnel.program.program import Program
from windtunnel.program.program_facts import Known
from windtunnel.program.row_slices import CPU, LARGE, in_slices, odd, rows_at_once, without_missing

if TYPE_CHECKING:
    from windtunnel.api.report import Report
    from windtunnel.compiler.hardening import HardeningResult
    from windtunnel.compiler.strategies import Choice
    from windtunnel.program.history import History

MOST_BRANCHED = 1000
"""Columns of a translation that gets a residual model; what has more, such as counts of words, has none."""
CHUNK_BYTES = 2**24
"""The most memory that rows take whose tokens are counted; more of them at once were slower, not faster."""


class Engine(Protocol):
    """What runs a program in the place of eager torch."""

    def answer(self, method: str, numbers: Tensor, ids: Tensor) -> Tensor:
        """What ``Program.answer`` gives; called without gradients, with rows on the device of the program."""
        ...


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
    exact : dict of int to Module
        Program step -> the module that computes what the source does, where a soft one stands in its place untrained.
    untranslated : str
        "cache" or "stream": whether ``windtunnel.loader`` computes the host steps' answers once or batch by batch.
    choices : list of Choice
        How ``windtunnel.compile`` chose to run each tree ensemble.
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
        self.batch_size = rows_at_once(program)
        self.engine: Engine | None = None
        self.exact: dict[int, Module] = {}
        self.choices: list[Choice] = []
        self._known: Known | None = None
        self.mark_start()
        self.eval()

    def mark_start(self) -> None:
        """Take the present weights as those that the report's drift is measured from."""
        self.start = Start(self.program)

    def forward(self, numbers: Tensor, ids: Tensor) -> Tensor:
        """Raw scores ``[B, K]`` of encoded rows."""
        return self.program(numbers, ids)  # type: ignore[no-any-return]

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move to a device; a narrower type is rejected, before anything is rounded."""
        own = getattr(torch, self.encoder.dtype)
        asked = fn(torch.empty(0, dtype=own)).dtype
        if asked.itemsize < own.itemsize:
            raise BadInput(
                f"this translation computes in {own}; converted to {asked}, its thresholds and tables would be rounded "
                'as if they were weights. windtunnel.compile(pipeline, dtype="float32") makes a program of float32.'
            )
        return super()._apply(fn, recurse)  # type: ignore[no-any-return, no-untyped-call]

    def encode(self, rows: Rows, *, training: bool = False) -> Batch:
        """Raw rows as tensors.

        Parameters
        ----------
        rows : DataFrame, Arrow table, NumPy array or dict of columns
        training : bool
            Lets categories through that the source rejects (``handle_unknown="error"``): they get the row of the
            unknown category, which training then moves, and from then on ``predict`` takes them as well. Rows that
            ``predict`` rejects for their numbers are rejected here too, see ``check_rows``.

        Raises
        ------
        BadInput
            Columns missing, of the wrong number or kind, or categories that the source rejects.
        """
        (batch,) = self._encoded(rows, training=training)
        if training and not isinstance(rows, Batch):
            self.check_rows(batch)
        return batch

    def _encoded(
        self, rows: Rows, *, training: bool = False, at_once: int | None = None, shared: bool = False
    ) -> Iterable[Batch]:
        """Raw rows as batches of at most ``at_once`` rows, by default as a single one; see ``RowEncoder.block``."""
        if isinstance(rows, Batch):
            return (self.encoder.checked(rows),)
        if self.hosts:
            return self._with_answers(rows, training, at_once)
        if (batch := self.encoder.block(rows, shared=shared)) is not None:
            return (batch,)
        if (batch := self.encoder.few(rows)) is not None:
            return (batch,)
        columns = self.encoder.columns(rows)
        count = len(rows if isinstance(columns, dict) else columns)
        return (self.encoder.encode(columns, rows=count, training=training),)

    def _with_answers(self, rows: Rows, training: bool, at_once: int | None) -> Iterator[Batch]:
        """Raw rows beside what the steps on the host answer."""
        counted = all(host.tokens is not None for host in self.hosts)
        if counted and (few := self.encoder.few(rows)) is not None:
            source = self.encoder.as_fitted(rows)
            yield self.encoder.with_counts(few, {host.columns[0]: host.count(source) for host in self.hosts})
            return
        frame = self.encoder.select(rows)
        if len(frame) == 0:
            raise BadInput(f"got 0 rows; step {self.hosts[0].name!r}, kept on the host, needs at least 1.")
        frame, source, size = frame.reset_index(drop=True), self.encoder.as_fitted(rows), at_once or len(frame)
        for start in range(0, len(frame), size):
            part = source[start : start + size]
            answers = [host.answer(part) for host in self.hosts if host.tokens is None]
            counts = {host.columns[0]: host.count(part) for host in self.hosts if host.tokens is not None}
            given = frame.iloc[start : start + size].reset_index(drop=True)
            yield self.encoder.encode(pd.concat([given, *answers], axis=1), training=training, counts=counts)

    def scores(self, rows: Rows) -> Tensor:
        """Raw scores ``[B, K]`` of raw rows, on the CPU, without gradients.

        Raises
        ------
        BadInput
            No rows, or numbers that a step of the source rejects too: missing, infinite, or beyond float32.
        """
        return self._answer("scores", rows)

    def _answer(self, method: str, rows: Rows, otherwise: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """What a method gives for raw rows: by a step of its own, or what ``otherwise`` makes of the scores."""
        known = self._program()
        if method in known.own:
            otherwise = None
        else:
            method = "scores"
        sums = known.sums if method == "scores" and self.engine is None else None
        if sums is not None and known.device() == CPU and not isinstance(rows, Batch):
            return self._summed(sums, rows, otherwise)
        # Counts of tokens are dense here, and so wide that all rows at once might not fit in memory.
        counts = self.hosts and not known.whole and any(host.tokens is not None for host in self.hosts)
        batches = self._encoded(rows, at_once=self._at_once() if counts else None, shared=True)
        answers = [self._checked(known, method, batch, otherwise) for batch in batches]
        return answers[0] if len(answers) == 1 else torch.cat(answers)

    def _summed(self, sums: Linear | TermSums, rows: Rows, finish: Callable[[Tensor], Tensor] | None) -> Tensor:
        """Sums of counts, which are finite whatever the texts are, without the zeros among them."""
        source, (host,) = self.encoder.as_fitted(rows), self.hosts
        if len(source) == 0:
            raise BadInput(f"got 0 rows; step {host.name!r}, kept on the host, needs at least 1.")
        answers = []
        with torch.inference_mode():
            for start in range(0, len(source), self.batch_size):
                counts = self.encoder.sparse(host.columns[0], host.count(source[start : start + self.batch_size]))
                answers.append(sums.of_sparse(counts) if finish is None else finish(sums.of_sparse(counts)))
        return answers[0] if len(answers) == 1 else torch.cat(answers)

    def _checked(self, known: Known, method: str, batch: Batch, finish: Callable[[Tensor], Tensor] | None) -> Tensor:
        numbers, ids = batch
        if ids.shape[0] == 0:
            raise BadInput("got 0 rows; at least 1 is needed to predict.")
        run, rejected = (self.engine or known.program).answer, []

        def answer(numbers: Tensor, ids: Tensor) -> Tensor:
            answer = run(method, numbers, ids)
            # Here, where the numbers have just been read.
            if self._some_rejected(known, method, numbers, ids, answer):
                rejected.append(True)
            return answer if finish is None else finish(answer)

        answers = self._in_slices(answer, batch, known)
        if rejected:
            raise BadInput(self._why_not_finite(batch, self._rejected(method, batch)))
        begin = numbers.data_ptr()
        # A view of the rows, which may be the caller's own.
        return answers.clone() if begin <= answers.data_ptr() < begin + numbers.nbytes else answers

    def _at_once(self) -> int:
        """How many rows go through the program at once: fewer where tokens make them wide."""
        if all(host.tokens is None for host in self.hosts):
            return self.batch_size
        row = max(len(self.encoder.numbers), 1) * np.dtype(self.encoder.dtype).itemsize
        return min(self.batch_size, max(CHUNK_BYTES // row, 1))

    def _some_rejected(self, known: Known, method: str, numbers: Tensor, ids: Tensor, answer: Tensor) -> bool:
        """Whether the source rejects one of the rows, whose answer is known."""
        cleared: frozenset[int] = frozenset()
        if not known.partial:
            seen = numbers if known.others is None else numbers.index_select(1, known.others.to(numbers.device))
            if not odd(seen, ids) or (known.takes_missing and not odd(without_missing(seen), ids[:, :0])):
                return False
            if not known.whole:
                # The length of a row is no finite number either where one of its parts is none; too many are looked at.
                strange = ~(torch.linalg.vector_norm(seen, dim=1) <= LARGE) | (ids < FIRST_ID).any(dim=1)
                numbers, ids = numbers[strange], ids[strange]
        elif method == "scores" and torch.isfinite(answer).all():
            cleared = known.shown_by_scores
        return bool(self.program.rejected(method, numbers, ids, cleared).any())

    def check_rows(self, batch: Batch) -> None:
        """Whether rows can be trained on and judged by: what ``predict`` rejects says nothing of what it answers.

        Only rows with missing, infinite or unknown values are looked at, and none where the answers are columns.

        Raises
        ------
        BadInput
            A step of the source rejects a row, or a row has no finite score.
        """
        failed = ~torch.isfinite(batch.numbers).all(dim=1) | (batch.ids < FIRST_ID).any(dim=1)
        if self.head.task == "transform" or not failed.any():
            return
        odd = Batch(batch.numbers[failed], batch.ids[failed])
        finite = torch.isfinite(self._run("scores", odd)).all(dim=1)
        failed[failed.clone()] = ~finite | self._rejected("scores", odd)
        if failed.any():
            raise BadInput(self._why_not_finite(batch, failed))

    def _run(self, method: str, batch: Batch) -> Tensor:
        """What the program gives for encoded rows: "scores", or a method that has a step of its own."""
        return self._in_slices(partial((self.engine or self.program).answer, method), batch)

    def _program(self) -> Known:
        """What is known of the program, found out again once a step has another module."""
        # Past the attributes of modules, each of which takes longer than this list.
        parts = self._modules["program"]._modules  # type: ignore[union-attr]
        steps = [*parts["steps"]._modules.values(), *parts["answers"]._modules.values()]  # type: ignore[union-attr]
        modules = [step._modules["module"] for step in steps]
        if self._known is None or self._known.modules != modules:
            self._known = Known(self, modules)
        return self._known

    def as_came(self) -> dict[int, Module]:
        """``exact`` for the soft steps none of whose weights has moved since."""
        states = {position: self.program.steps[position].state_dict() for position in self.exact}
        return {
            position: self.exact[position]
            for position, state in states.items()
            if all(torch.equal(now.cpu(), self.start[f"steps.{position}.{name}"].cpu()) for name, now in state.items())
        }

    def always_finite(self) -> list[int]:
        """Which of the numbers are finite in every row, such as counts of tokens."""
        counts = {column for host in self.hosts if host.tokens and host.tokens.finite for column in host.columns}
        return [position for position, column in enumerate(self.encoder.numbers) if column in counts]

    def _rejected(self, method: str, batch: Batch) -> Tensor:
        """Whether the source would raise on a row, bool ``[B]``."""
        return self._in_slices(partial(self.program.rejected, method), batch)

    def _in_slices(self, run: Callable[..., Tensor], batch: Batch, known: Known | None = None) -> Tensor:
        """What ``run(numbers, ids)`` gives, a slice of the rows after the other, where the program is."""
        known = known or self._program()
        if self.training or known.program.training:
            was_training = self.training
            self.eval()
            try:
                return self._in_slices(run, batch, known)
            finally:
                self.train(was_training)
        return in_slices(run, batch, self._at_once(), known.device(), whole=known.whole, least=known.least)

    def _why_not_finite(self, batch: Batch, failed: Tensor) -> str:
        """Name the columns whose NaN or infinity, with 0 in all the others, leaves a row without a score."""
        numbers, ids = batch.numbers[failed], batch.ids[failed]
        names = []
        for column in range(numbers.shape[1]):
            for value, there in ((math.nan, torch.isnan), (math.inf, torch.isinf)):
                row = torch.zeros_like(numbers[:1])
                row[0, column] = value
                one = Batch(row, ids[:1])
                if there(numbers[:, column]).any() and (
                    self._rejected("scores", one).any() or not torch.isfinite(self._run("scores", one)).all()
                ):
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
        answer = self._answer("predict", rows, self.head.predicted)
        return self.head.labels(answer) if self.head.classes is not None else self.head.typed("predict", answer)

    @available_if(_source_has("predict_proba"))
    def predict_proba(self, rows: Rows) -> Any:
        """Probabilities ``[B, classes]``; a list of such for several targets."""
        return self._numbers("predict_proba", rows, self.head.probabilities)

    @available_if(_source_has("predict_log_proba"))
    def predict_log_proba(self, rows: Rows) -> Any:
        """Natural logarithm of ``predict_proba``."""
        if "predict_log_proba" in self.program.answers:
            return self._numbers("predict_log_proba", rows)
        with np.errstate(divide="ignore"):  # a probability of 0
            probabilities = self.predict_proba(rows)
            several = isinstance(probabilities, list)
            return [np.log(one) for one in probabilities] if several else np.log(probabilities)

    @available_if(_source_has("decision_function"))
    def decision_function(self, rows: Rows) -> NDArray[Any]:
        """Raw scores: ``[B]`` for two classes, else ``[B, K]``."""
        return self._numbers("decision_function", rows, self.head.decision)  # type: ignore[no-any-return]

    @available_if(_source_has("score_samples"))
    def score_samples(self, rows: Rows) -> NDArray[Any]:
        """The log-density or the normality of each row, ``[B]``."""
        return self._numbers("score_samples", rows)  # type: ignore[no-any-return]

    @available_if(_source_has("transform"))
    def transform(self, rows: Rows) -> NDArray[Any]:
        """The columns of a pipeline that ends in a transformer, ``[B, width]``."""
        return self._numbers("transform", rows)  # type: ignore[no-any-return]

    def apply(self, rows: Any) -> Any:
        """The leaf that each row ends in, per tree, as the source numbers them.

        Of a function it is ``torch.nn.Module.apply``, which goes by the same name.
        """
        if callable(rows):
            return super().apply(rows)
        if "apply" not in self.head.methods:
            raise AttributeError("the source has no apply: only trees and forests of scikit-learn tell their leaves.")
        return self._numbers("apply", rows)

    def _numbers(self, method: str, rows: Rows, otherwise: Callable[[Tensor], Tensor] | None = None) -> Any:
        """What a method gives, by a step of its own or from the scores."""
        return self.head.typed(method, self._answer(method, rows, otherwise))

    @property
    def classes_(self) -> Any:
        """Original labels in the order of the columns of ``predict_proba``; classifiers only."""
        if self.head.classes is None:
            raise AttributeError(f"a {self.head.task} pipeline has no classes_")
        return self.head.classes

    def fit(self, train: Any, valid: Any = None, **options: Any) -> Translation:
        """Fine-tune: by default a residual model beside the pipeline; see ``windtunnel.trainers.finetune`` for the options.

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
        if self.engine is not None:
            raise BadInput('this translation runs on a backend that is fixed; compile with backend="torch" to fit.')
        rejected = [replace(category) for category in self.encoder.categories]
        try:
            self.history = finetune(self, train, valid, **options)
        except BaseException:
            # Rows were let through to be trained on, which failed.
            self.encoder.categories = rejected
            raise
        return self

    def harden(self, valid: Any = None) -> Translation:
        """A copy with hard trees in the place of soft ones; see ``windtunnel.compiler.hardening.harden``.

        Parameters
        ----------
        valid : rows, (rows, target) or (rows, target, weight), optional
            On which the change is measured, with targets also the metric and the loss; ``hardening`` tells it.
        """
        from windtunnel.compiler.hardening import harden

        return harden(self, valid)

    @property
    def hardening(self) -> HardeningResult | None:
        """What ``harden`` has measured; None where it was given no rows, or nothing was hardened."""
        from windtunnel.compiler.hardening import PREFIX, HardeningResult

        return HardeningResult.read(self, PREFIX)

    def tree_columns(self, rows: Rows) -> NDArray[Any]:
        """What reaches the last step, ``[B, width]``: the columns that a LightGBM or XGBoost file is asked about."""
        position = len(self.program.steps) - 1
        (batch,) = self._encoded(rows)
        return self._in_slices(partial(self.program.inputs_of, position), batch).numpy()

    def takes_residual_model(self) -> bool:
        """Whether a residual model can stand beside it: all answers come from raw scores, and of columns that it can read."""
        speaking = {"predict", "predict_proba", "predict_log_proba", "decision_function"}
        return (
            0 < len(self.encoder.numbers) + len(self.encoder.categories) <= MOST_BRANCHED
            and not isinstance(self.head.classes, list)
            and not speaking & set(self.program.answers)
            and not self.program.whole()
        )

    def report(self) -> Report:
        """What became what, how faithful it is, and what training has moved."""
        from windtunnel.api.report import Report

        return Report.of(self)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the safe artefact that ``windtunnel.load`` reads: JSON, vocabularies and tensors, no code."""
        from windtunnel.export.artefact.artefact import save

        save(self, path)

    def export(self, path: str | PathLike[str], format: str = "torchscript") -> None:
        """Write one file that scores without windtunnel; see ``windtunnel.export``."""
        from windtunnel.export import export

        export(self, path, format)
