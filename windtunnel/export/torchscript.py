"""TorchScript: one file that scores raw numbers and raw text with torch alone."""

# No postponed annotations here: torch.jit.script reads the class-level ones and takes no strings.

import copy
from collections.abc import Sequence
from io import BytesIO
from os import PathLike
from typing import Any

import torch
from torch import Tensor, nn

from windtunnel.atomic_write import write_atomically
from windtunnel.compiler.scripted import script, without_deprecations
from windtunnel.encode import RowEncoder
from windtunnel.export.columns import names, none_columns, raw_columns
from windtunnel.export.guarded import Guarded, GuardedProgram
from windtunnel.export.limits import check
from windtunnel.export.lookups import NumberLookup, TextLookup
from windtunnel.modules.outputs.label_rules import LabelIndex
from windtunnel.modules.outputs.method_outputs import LinkOutput
from windtunnel.program.program import MethodSteps, ProgramStep, Take
from windtunnel.program.translated import TranslatedPipeline


def export(net: "TranslatedPipeline", path: str | PathLike[str]) -> None:
    """Write a translation as a TorchScript program; ``torch.jit.load(path)`` reads it where only torch is installed.

    The program has ``number_columns()`` and ``string_columns()``, the raw columns that it reads, in order (a column
    without a name goes by its position), and takes

    - ``numbers``: ``[B, len(number_columns())]``, NaN where missing; float64 where a category is a number that float32
      does not hold, otherwise float32 does as well;
    - ``strings``: for each of ``string_columns()`` a list of B texts, None where missing.

    ``forward(numbers, strings)`` gives raw scores float32 ``[B, K]``, ``predict_proba`` probabilities float64
    ``[B, classes]`` and ``predict`` the position of a label in ``classes()``, int64 ``[B]``, or for regressors values
    float64 ``[B]`` or ``[B, K]``. B may be 0. What ``TranslatedPipeline`` rejects, the program rejects too:
    it raises, with the name of the step or the column.

    Raises
    ------
    UnfaithfulOption
        A limit of ``windtunnel.export.limits``, or a module that is not TorchScript.
    """
    check(net, "torchscript")
    scripted = script(_scoring_program(net))

    in_memory = BytesIO()  # torch ends the process if it cannot write to a file
    with without_deprecations():
        torch.jit.save(scripted, in_memory)
    write_atomically(path, in_memory.getvalue())


class ScoringProgram(nn.Module):
    """Raw columns to raw scores: lookups, then the program."""

    def __init__(self, program: GuardedProgram, encoder: RowEncoder, finite: bool, labels: Sequence[str]) -> None:
        super().__init__()
        number_columns, string_columns = raw_columns(encoder)
        self.program = program
        self.width = len(encoder.categories)
        self.read = Take(0, [number_columns.index(column) for column in encoder.numbers])
        self.finite = finite
        self.in_float64 = encoder.dtype == "float64"
        texts, numbers = [], []
        for slot, category in enumerate(encoder.categories):
            name = encoder.column_name(category.column)
            if category.column in number_columns:
                numbers.append(NumberLookup(number_columns.index(category.column), slot, name, category))
            else:
                texts.append(TextLookup(string_columns.index(category.column), slot, name, category))
        self.texts, self.categories = nn.ModuleList(texts), nn.ModuleList(numbers)
        self.exact = _list(str, [lookup.name for lookup in numbers if not _fits_float32(lookup.values)])
        self.number_names = _list(str, names(encoder, number_columns))
        self.string_names = _list(str, names(encoder, string_columns))
        self.none_names = _list(str, none_columns(encoder))
        self.labels = _list(str, labels)

    def forward(self, numbers: Tensor, strings: list[list[str | None]]) -> Tensor:
        """Raw scores float32 ``[B, K]``, ``CHUNK`` rows at a time."""
        return self.scored(numbers, strings)[0]

    def scored(self, numbers: Tensor, strings: list[list[str | None]]) -> tuple[Tensor, Tensor, Tensor]:
        """Raw scores, and the encoded numbers and ids."""
        rows = self._check(numbers, strings)
        ids = torch.zeros([rows, self.width], dtype=torch.int64, device=numbers.device)
        for text in self.texts:
            ids[:, text.slot] = text(strings[text.place]).to(numbers.device)  # type: ignore[index]
        for category in self.categories:
            ids[:, category.slot] = category(numbers[:, category.place].to(torch.float64))  # type: ignore[index]
        # Contiguous rows: products of other layouts differ in the last bit.
        floats = self.read([numbers]).to(torch.float64 if self.in_float64 else torch.float32).contiguous()
        n = self.program.at_once
        scores = torch.cat([self.program(floats[i : i + n], ids[i : i + n]) for i in range(0, max(rows, 1), n)])
        if self.finite and bool(torch.isnan(scores).any()):
            raise ValueError(
                f"{int(torch.isnan(scores).any(dim=1).sum())} rows have no finite score: a missing or infinite "
                f"number reached a step that takes none; numbers are read from {self.number_names}"
            )
        return scores, floats, ids

    def _check(self, numbers: Tensor, strings: list[list[str | None]]) -> int:
        """Check the shapes; the number of rows."""
        if numbers.dim() != 2 or (numbers.shape[1] != len(self.number_names)):
            raise ValueError(f"numbers of shape {numbers.shape}; expected one column for each of {self.number_names}")
        if len(strings) != len(self.string_names):
            raise ValueError(f"{len(strings)} lists of texts; expected one for each of {self.string_names}")
        rows = numbers.shape[0] if len(self.number_names) > 0 or len(strings) == 0 else len(strings[0])
        for name, column in zip(self.string_names, strings):  # noqa: B905  TorchScript's zip takes no strict
            if len(column) != rows:
                raise ValueError(f"{len(column)} texts in column {name}, {rows} rows")
        if len(self.exact) > 0 and numbers.dtype in [torch.float32, torch.float16, torch.bfloat16]:
            raise ValueError(f"columns {self.exact} hold categories that float32 cannot tell; give numbers as float64")
        return rows

    @torch.jit.export
    def number_columns(self) -> list[str]:
        """Names of the columns of ``numbers``."""
        return self.number_names  # type: ignore[no-any-return]

    @torch.jit.export
    def string_columns(self) -> list[str]:
        """Names of the lists in ``strings``."""
        return self.string_names  # type: ignore[no-any-return]

    @torch.jit.export
    def none_columns(self) -> list[str]:
        """Names of the lists in ``strings`` where the text "\ue000None" stands for None, and None for NaN."""
        return self.none_names  # type: ignore[no-any-return]

    @torch.jit.export
    def classes(self) -> list[str]:
        """Labels as text, in the order of the probabilities; empty where there are none."""
        return self.labels  # type: ignore[no-any-return]


class InDouble(nn.Module):
    """A link computed in float64, as the methods of a translation do."""

    def __init__(self, link: LinkOutput) -> None:
        super().__init__()
        self.link = link

    def forward(self, scores: Tensor) -> Tensor:
        """``[B, K]`` -> float64 ``[B, classes]`` or ``[B, K]``."""
        return self.link(scores.to(torch.float64))  # type: ignore[no-any-return]


class TargetPositions(nn.Module):
    """The position of the label of each of several targets, whose scores are concatenated."""

    def __init__(self, counts: list[int]) -> None:
        super().__init__()
        self.counts = _list(int, counts)

    def forward(self, scores: Tensor) -> Tensor:
        """``[B, K]`` -> int64 ``[B, targets]``; ``[B]`` of one target."""
        parts = torch.split(scores, self.counts, dim=1)
        positions = torch.stack([part.argmax(dim=1) for part in parts], dim=1)
        return positions[:, 0] if len(self.counts) == 1 else positions


class OfScores(nn.Module):
    """A method that is a function of the scores.

    Shape
    -----
    forward : scores ``[B, K]``, numbers and ids of the same rows -> the output of the module
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, scores: Tensor, numbers: Tensor, ids: Tensor) -> Tensor:
        """Read the scores."""
        return self.module(scores)  # type: ignore[no-any-return]


class OfRows(nn.Module):
    """A method that is a function of other columns of the program than its scores.

    Shape
    -----
    forward : as ``OfScores``

    Parameters
    ----------
    program : GuardedProgram
        Computes the scores, and has rejected rows before.
    last : ProgramStep
        The step of the method.
    """

    def __init__(self, program: GuardedProgram, last: ProgramStep) -> None:
        super().__init__()
        self.program, self.last = program, Guarded(last)

    def forward(self, scores: Tensor, numbers: Tensor, ids: Tensor) -> Tensor:
        """Run the steps again."""
        n = self.program.at_once
        return torch.cat(
            [self.output(numbers[i : i + n], ids[i : i + n]) for i in range(0, max(scores.shape[0], 1), n)]
        )

    def output(self, numbers: Tensor, ids: Tensor) -> Tensor:
        """The output of the last step for a slice of the rows."""
        values = [numbers, ids]
        for step in self.program.steps:
            values.append(step(values, False))
        return self.last(values, self.last.may_reject and self.program.look(numbers, ids))  # type: ignore[no-any-return]


class ScriptedClassifier(ScoringProgram):
    """``predict`` of a classifier."""

    def __init__(self, position: nn.Module, *args: Any) -> None:
        super().__init__(*args)
        self.position = position

    @torch.jit.export
    def predict(self, numbers: Tensor, strings: list[list[str | None]]) -> Tensor:
        """Position in ``classes()``, int64 ``[B]``; the first of equal scores."""
        scores, floats, ids = self.scored(numbers, strings)
        return self.position(scores, floats, ids)  # type: ignore[no-any-return]


class ScriptedProbabilityClassifier(ScriptedClassifier):
    """``predict`` and ``predict_proba`` of a classifier."""

    def __init__(self, link: nn.Module, *args: Any) -> None:
        super().__init__(*args)
        self.link = link

    @torch.jit.export
    def predict_proba(self, numbers: Tensor, strings: list[list[str | None]]) -> Tensor:
        """Probabilities float64 ``[B, classes]``."""
        scores, floats, ids = self.scored(numbers, strings)
        return self.link(scores, floats, ids).to(torch.float64)  # type: ignore[no-any-return]


class ScriptedRegressor(ScoringProgram):
    """``predict`` of a regressor."""

    def __init__(self, link: nn.Module, flat: bool, *args: Any) -> None:
        super().__init__(*args)
        self.link, self.flat = link, flat

    @torch.jit.export
    def predict(self, numbers: Tensor, strings: list[list[str | None]]) -> Tensor:
        """Values float64 ``[B]``, or ``[B, K]``."""
        scores, floats, ids = self.scored(numbers, strings)
        values = self.link(scores, floats, ids).to(torch.float64)
        return values[:, 0] if self.flat and values.shape[1] == 1 else values  # type: ignore[no-any-return]


def _scoring_program(net: "TranslatedPipeline") -> ScoringProgram:
    program = copy.deepcopy(net.program).cpu().eval().requires_grad_(False)
    head = net.head
    steps, guarded = program.method_steps, GuardedProgram(program)
    labels = [*map(str, head.labels_in_order)]
    predicts = head.task != "transform" and "predict" in head.methods
    common = (guarded, net.encoder, predicts, labels)
    if not predicts:
        return ScoringProgram(*common).eval()
    link = OfScores(InDouble(LinkOutput(head.link, **head.link_options)))
    predict, proba = (_method_module(steps, method, guarded) for method in ("predict", "predict_proba"))
    if head.classes is None:
        return ScriptedRegressor(predict or link, head.flat and predict is None, *common).eval()
    if predict is None and isinstance(head.classes, list):
        predict = OfScores(TargetPositions([len(labels_of_target) for labels_of_target in head.classes]))
    predict = predict or OfScores(LabelIndex() if len(labels) > 1 else TargetPositions([1]))
    if "predict_proba" in head.methods:
        return ScriptedProbabilityClassifier(proba or link, predict, *common).eval()
    return ScriptedClassifier(predict, *common).eval()


def _method_module(steps: MethodSteps, method: str, program: GuardedProgram) -> nn.Module | None:
    """The module of a method that has its own step."""
    if method not in steps:
        return None
    step: ProgramStep = steps[method]  # type: ignore[assignment]
    if not step.may_reject() and all(take.slot == len(program.steps) + 1 for take in step.takes):
        return OfScores(step.module)
    return OfRows(program, step)


def _list(kind: type, values: Sequence[Any]) -> Any:
    """A typed list for the compiler, which cannot infer the type of an empty one."""
    return torch.jit.Attribute(list(values), list[kind])  # type: ignore[valid-type]


def _fits_float32(values: Tensor) -> bool:
    return bool((values.float().double() == values).all())
