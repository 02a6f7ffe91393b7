"""TorchScript: one file that scores raw numbers and raw text with torch alone."""

# No postponed annotations here: torch.jit.script reads the class-level ones and takes no strings.

import copy
import zipfile
from collections.abc import Sequence
from io import BytesIO
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO, Final

import torch
from torch import Tensor, nn

from windtunnel.atomic_write import replacing
from windtunnel.compiler.scripted import script, without_deprecations
from windtunnel.export.columns import names, none_columns, raw_columns
from windtunnel.export.guarded import Guarded, GuardedProgram
from windtunnel.export.limits import check
from windtunnel.export.lookups import NumberLookup, TextLookup
from windtunnel.export.outputs import output_modules
from windtunnel.program.program import ProgramStep, Take
from windtunnel.program.translated import TranslatedPipeline


def export(net: TranslatedPipeline, path: str | PathLike[str]) -> None:
    """Write a translation as a TorchScript program; ``torch.jit.load(path)`` reads it where only torch is installed.

    The program has ``number_columns()`` and ``string_columns()``, the raw columns that it reads, in order (a column
    without a name goes by its position), and takes

    - ``numbers``: ``[B, len(number_columns())]``, NaN where missing; float64 where a category is a number that float32
      does not hold, otherwise float32 does as well;
    - ``strings``: for each of ``string_columns()`` a list of B texts, None where missing.

    ``forward(numbers, strings)`` gives raw scores ``[B, K]``, ``predict_proba`` probabilities float64
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
    with replacing(path) as temporary:
        _copy_without_paths(in_memory, temporary)


def _copy_without_paths(saved: BinaryIO, path: Path) -> None:
    """Copy what torch saved without its ``debug_pkl`` members, which have paths of this machine."""
    with zipfile.ZipFile(saved) as archive, zipfile.ZipFile(path, "w") as copied:
        for member in archive.infolist():
            if not member.filename.endswith(".debug_pkl"):
                copied.writestr(member, archive.read(member))


class ScoringProgram(nn.Module):
    """Raw columns to raw scores: lookups, then the program."""

    def __init__(self, net: TranslatedPipeline, program: GuardedProgram) -> None:
        super().__init__()
        encoder, head = net.encoder, net.head
        number_columns, string_columns = raw_columns(encoder)
        self.program = program
        self.width = len(encoder.categories)
        self.read = Take(0, [number_columns.index(column) for column in encoder.numbers])
        self.finite = head.task != "transform" and "predict" in head.methods
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
        self.labels = _list(str, [*map(str, head.labels_in_order)])

    def forward(self, numbers: Tensor, strings: list[list[str | None]]) -> Tensor:
        """Raw scores ``[B, K]``, in the type that the program computes in."""
        return torch.cat([self.values(rows)[-1] for rows in self.blocks(numbers, strings)])

    def blocks(self, numbers: Tensor, strings: list[list[str | None]]) -> list[tuple[Tensor, Tensor]]:
        """The encoded numbers and ids of as many rows as are scored at once; at least one block."""
        rows, n = self._check(numbers, strings), self.program.at_once
        ids = torch.zeros([rows, self.width], dtype=torch.int64, device=numbers.device)
        for text in self.texts:
            ids[:, text.slot] = text(strings[text.place]).to(numbers.device)  # type: ignore[index]
        for category in self.categories:
            ids[:, category.slot] = category(numbers[:, category.place].to(torch.float64))  # type: ignore[index]
        # Contiguous rows: products of other layouts differ in the last bit.
        floats = self.read([numbers]).to(torch.float64 if self.in_float64 else torch.float32).contiguous()
        return [(floats[i : i + n], ids[i : i + n]) for i in range(0, max(rows, 1), n)]

    def values(self, rows: tuple[Tensor, Tensor]) -> list[Tensor]:
        """The outputs of all steps, the scores last."""
        values: list[Tensor] = self.program(rows[0], rows[1])
        if self.finite and bool(torch.isnan(values[-1]).any()):
            raise ValueError(
                f"{int(torch.isnan(values[-1]).any(dim=1).sum())} rows have no finite score: a missing or infinite "
                f"number reached a step that takes none; numbers are read from {self.number_names}"
            )
        return values

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


class OfScores(nn.Module):
    """An output that is a function of the scores, called like a ``Guarded`` step."""

    may_reject: Final[bool] = False

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, values: list[Tensor], look: bool) -> Tensor:
        """The outputs of all steps -> the output of the module."""
        return self.module(values[-1])  # type: ignore[no-any-return]


class ScriptedPredictor(ScoringProgram):
    """A program with ``predict``."""

    def __init__(self, net: TranslatedPipeline, program: GuardedProgram, predicted: nn.Module) -> None:
        super().__init__(net, program)
        self.predicted, self.labelled = predicted, net.head.classes is not None

    @torch.jit.export
    def predict(self, numbers: Tensor, strings: list[list[str | None]]) -> Tensor:
        """Position in ``classes()``, int64 ``[B]``; a regressor's values float64 ``[B]``, or ``[B, K]``."""
        output = torch.cat([self._predicted(rows) for rows in self.blocks(numbers, strings)])
        return output.to(torch.int64 if self.labelled else torch.float64)

    def _predicted(self, rows: tuple[Tensor, Tensor]) -> Tensor:
        look = self.predicted.may_reject and self.program.look(rows[0], rows[1])
        return self.predicted(self.values(rows), look)  # type: ignore[no-any-return]


class ScriptedClassifier(ScriptedPredictor):
    """A program with ``predict`` and ``predict_proba``."""

    def __init__(
        self, net: TranslatedPipeline, program: GuardedProgram, predicted: nn.Module, probabilities: nn.Module
    ) -> None:
        super().__init__(net, program, predicted)
        self.probabilities = probabilities

    @torch.jit.export
    def predict_proba(self, numbers: Tensor, strings: list[list[str | None]]) -> Tensor:
        """Probabilities float64 ``[B, classes]``."""
        return torch.cat([self._probabilities(rows) for rows in self.blocks(numbers, strings)]).to(torch.float64)

    def _probabilities(self, rows: tuple[Tensor, Tensor]) -> Tensor:
        look = self.probabilities.may_reject and self.program.look(rows[0], rows[1])
        return self.probabilities(self.values(rows), look)  # type: ignore[no-any-return]


def _scoring_program(net: TranslatedPipeline) -> ScoringProgram:
    program = copy.deepcopy(net.program).cpu().eval().requires_grad_(False)
    guarded = GuardedProgram(program)
    outputs = {
        name: Guarded(module) if isinstance(module, ProgramStep) else OfScores(module)
        for name, module in output_modules(program, net.head).items()
    }
    if not outputs:
        return ScoringProgram(net, guarded).eval()
    if "predict_proba" not in outputs:
        return ScriptedPredictor(net, guarded, outputs["predict"]).eval()
    return ScriptedClassifier(net, guarded, outputs["predict"], outputs["predict_proba"]).eval()


def _list(kind: type, values: Sequence[Any]) -> Any:
    """A typed list for the compiler, which cannot infer the type of an empty one."""
    return torch.jit.Attribute(list(values), list[kind])  # type: ignore[valid-type]


def _fits_float32(values: Tensor) -> bool:
    return bool((values.float().double() == values).all())
