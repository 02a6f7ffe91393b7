"""The report: what each step became, its fidelity, and what training has changed."""

from __future__ import annotations

import io
import json
import math
import platform
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from importlib.metadata import version
from typing import Any, Literal

from pydantic_core import to_jsonable_python
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text
from torch import Tensor

from windtunnel.api.report_facts import SHOWN_TERMS, report_facts
from windtunnel.api.report_html import STYLE, html_page, html_table, learning_curve, reliability_diagram
from windtunnel.modules.trees.soft.trees import SoftSplits
from windtunnel.pipeline.host_step import HostStep
from windtunnel.program.installed_residuals import InstalledResiduals
from windtunnel.program.records.history import History
from windtunnel.program.records.number_text import estimate_text, value_text
from windtunnel.program.translated import TranslatedPipeline

LONGEST_STEP = 20
"""Characters of a path in the pipeline; the text cuts longer ones at their dots."""
WIDTH = 100
"""Characters per line of the text."""
HEADINGS = ("step", "class", "became", "parameters", "trainable", "change")
NUMERIC = range(3, 6)
"""The positions of the headings of numbers."""
_IN_TABLES = ("residual term", "on test rows")
"""Facts that HTML has as tables."""


@dataclass(frozen=True)
class Row:
    """A step of the source, and the modules that it became.

    Attributes
    ----------
    step : str
        Its path in the pipeline.
    source : str
        Its class; empty for parts without one, such as the weights of a ColumnTransformer.
    became : str
        Its modules, each with their number.
    parameters, trainable : int
        Numbers in parameters, and those that training changes.
    drift : float or None
        |w - w0| / |w0| over the trainable numbers, with the initial weights w0; None if nothing is trainable.
    from_zero : bool
        Whether w0 is zero, as in a residual model: ``drift`` is |w| then, in the table as "0.5 from 0".
    added : bool
        Whether ``fit`` or ``refresh`` added the step to those of the pipeline.
    """

    step: str
    source: str
    became: str
    parameters: int
    trainable: int
    drift: float | None
    from_zero: bool = False
    added: bool = False


@dataclass(frozen=True, repr=False)
class Report:
    """A table with a row per step, under facts of the whole; ``str`` returns text, a notebook shows HTML.

    Attributes
    ----------
    facts : list of (str, str)
        Task, fidelity, steps on the host, what is left out, how trees are run, fine-tuning and its candidates.
    rows : list of Row
    unit : str
        The unit of the raw scores, such as "log-odds".
    history : History or None
        The record of the last ``fit`` or ``refresh``.
    test_scores : dict
        "source pipeline" and "fine-tuned" to metric to its value on test rows; empty without test rows.
    """

    facts: list[tuple[str, str]]
    rows: list[Row]
    unit: str = ""
    history: History | None = None
    test_scores: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    @classmethod
    def of(cls, net: TranslatedPipeline, test_scores: Mapping[str, Mapping[str, float]] | None = None) -> Report:
        """The report of a translation in its present state, with scores on test rows by model and metric."""
        groups: dict[str, list[int]] = {}
        for position, origin in enumerate(net.origins):
            groups.setdefault(origin.name, []).append(position)
        last = InstalledResiduals.of(net.program).pipeline if net.program.steps else 0
        hosts = [Row(host.name, host.estimator, _host_role(host), 0, 0, None) for host in net.hosts]
        rows = [*hosts, *(_row(net, name, positions, last) for name, positions in groups.items())]
        tests = [("on test rows", _scores_text(name, scores)) for name, scores in (test_scores or {}).items()]
        return cls([*report_facts(net), *tests], rows, net.head.unit, net.history, test_scores or {})

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON values: "facts" (pairs), "steps", "unit" of the raw scores, "history", "test_scores".

        A number that is not finite, as the AUROC of rows of one class, is None.
        """
        values: dict[str, Any] = json.loads(self.to_json())
        return values

    def to_json(self) -> str:
        """The report as JSON text; see ``to_dict``."""
        report = {
            "facts": self.facts,
            "steps": self.rows,
            "unit": self.unit,
            "history": self.history,
            "test_scores": self.test_scores,
        }
        return json.dumps(to_jsonable_python(report, inf_nan_mode="null"), indent=2, allow_nan=False)

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        file = io.StringIO()
        console = Console(file=file, width=WIDTH, color_system=None, highlight=False)
        grid = Table.grid(padding=(0, 2))
        for name, value in self.facts:
            grid.add_row(Text(name), Text(value))
        console.print(grid)
        console.print(self._table())
        return "\n".join(line.rstrip() for line in file.getvalue().splitlines()).rstrip()

    def _table(self) -> Table:
        table = Table(box=box.SIMPLE_HEAD, show_footer=True, pad_edge=False)
        for at, (heading, footer) in enumerate(zip(HEADINGS, self._total(), strict=True)):
            justify: Literal["left", "right"] = "right" if at in NUMERIC else "left"
            uncut = at in NUMERIC or heading == "class"
            table.add_column(heading, Text(footer), justify=justify, no_wrap=uncut, overflow="fold")
        for row in self.rows:
            step, *cells = _cells(row)
            table.add_row(Text(step if len(step) <= LONGEST_STEP else step.replace(".", ".\n")), *map(Text, cells))
        return table

    def _total(self) -> Sequence[str]:
        parameters, trainable = (sum(getattr(row, name) for row in self.rows) for name in ("parameters", "trainable"))
        return ("in all", "", "", f"{parameters:,}", f"{trainable:,}", "")

    def to_html(self) -> str:
        """The report as one HTML page without other files."""
        return html_page(self._repr_html_(), _versions())

    def _repr_html_(self) -> str:
        """The report as HTML, for notebooks."""
        shown = [fact for fact in self.facts if fact[0] not in _IN_TABLES]
        facts = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in shown)
        steps = html_table(HEADINGS, map(_cells, self.rows), NUMERIC, total=self._total())
        return (
            f'<div class="windtunnel-report"><style>{STYLE}</style>{self._comparison()}'
            f'<div class="figures">{self._figures()}</div><dl>{facts}</dl>{self._terms()}'
            f"<div class='wide'>{steps}</div></div>"
        )

    def _figures(self) -> str:
        """Learning curve and reliability diagram, as far as the history has them."""
        if self.history is None:
            return ""
        calibration = self.history.calibration
        curve = learning_curve(self.history) if self.history.epochs else ""
        return curve + ("" if calibration is None else reliability_diagram(calibration))

    def _comparison(self) -> str:
        """Metrics before fit and of what it kept, on validation and on test rows; empty without both."""
        rows: list[tuple[str, str, float | None, float]] = []
        if self.history is not None:
            before, kept = self.history.start_loss, self.history.kept
            rows.append((self.history.validated_on, self.history.metric, self.history.start, self.history.best))
            if kept.loss is not None:
                rows.append((self.history.validated_on, "loss", before, kept.loss))
        source = self.test_scores.get("source pipeline", {})
        rows += [
            ("test rows", metric, source.get(metric), value)
            for metric, value in self.test_scores.get("fine-tuned", {}).items()
        ]
        cells = [
            (part, name, "-" if before is None else value_text(before), value_text(after))
            for part, name, before, after in rows
        ]
        headings = ("rows", "metric", "before", "after")
        return html_table(headings, cells, (2, 3), kind="comparison") if cells else ""

    def _terms(self) -> str:
        """The strongest columns and interactions of the residual model, as a table; empty without any."""
        if self.history is None or not self.history.terms:
            return ""
        headings = ("columns", "loss without it", f"range, {self.unit}", "values that contribute most in total")
        rows = [
            (
                term.name,
                estimate_text(term.gain, term.standard_error),
                f"{term.low:+.3g} to {term.high:+.3g}",
                [cell.text(self.unit) for cell in term.cells],
            )
            for term in self.history.terms[:SHOWN_TERMS]
        ]
        table = html_table(headings, rows, (1, 2))
        title = "What the residual models have found, the largest mean contributions first:"
        return f"<p>{title}</p><div class='wide'>{table}</div>"


def _scores_text(model: str, scores: Mapping[str, float]) -> str:
    return f"{model}: {', '.join(f'{metric} {value_text(value)}' for metric, value in scores.items())}"


def _versions() -> str:
    """The versions of the libraries in this process."""
    names = ("windtunnel", "torch", "scikit-learn", "lightgbm", "numpy", "pandas")
    return f"Written with Python {platform.python_version()}, {', '.join(f'{name} {version(name)}' for name in names)}."


def _row(net: TranslatedPipeline, name: str, positions: list[int], last_of_pipeline: int) -> Row:
    """The row of the steps at these positions; residual models follow ``last_of_pipeline``."""
    trainable: list[tuple[Tensor, Tensor]] = []
    parameters = 0
    for position in positions:
        for key, parameter in net.program.steps[position].named_parameters(prefix=f"steps.{position}"):
            parameters += parameter.numel()
            if parameter.requires_grad:
                trainable.append((parameter.detach().cpu(), net.initial_weights[key].cpu()))
    moved, norm = _distances(trainable)
    return Row(
        step=name,
        source=net.origins[positions[0]].estimator,
        became=_became(net.program.steps[position].module for position in positions),
        parameters=parameters,
        trainable=sum(now.numel() for now, _ in trainable),
        drift=moved / (norm or 1.0) if trainable else None,
        from_zero=bool(trainable) and not norm,
        added=positions[0] > last_of_pipeline,
    )


def _became(modules: Iterable[Any]) -> str:
    counts = Counter(
        f"{type(module).__name__} {module.level}" if isinstance(module, SoftSplits) else type(module).__name__
        for module in modules
    )
    return ", ".join(f"{count} x {name}" if count > 1 else name for name, count in counts.items())


def _host_role(host: HostStep) -> str:
    return "kept on the host" if host.tokens is None else "tokens counted on the host"


def _distances(pairs: list[tuple[Tensor, Tensor]]) -> tuple[float, float]:
    """|w - w0| and |w0| over pairs of w and w0."""
    moved = norm = 0.0
    for now, initial in pairs:
        # Initial codes of missing categories are NaN.
        numbers = ~(now.isnan() & initial.isnan())
        moved += float((now[numbers].double() - initial[numbers].double()).square().sum())
        norm += float(initial[numbers].double().square().sum())
    return math.sqrt(moved), math.sqrt(norm)


def _cells(row: Row) -> Sequence[str]:
    drift = "-" if row.drift is None else f"{row.drift:.3g}" + " from 0" * bool(row.from_zero and row.drift)
    change = "added" if row.added else drift
    return (row.step, row.source, row.became, f"{row.parameters:,}", f"{row.trainable:,}", change)
