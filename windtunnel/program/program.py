"""A translated pipeline as a flat program: each step takes columns of earlier answers and gives one more."""

# No postponed annotations here: torch.jit.script reads the class-level ones and takes no strings.

from collections.abc import Container, Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn

from windtunnel.modules.base import Module

FLOAT32_MAX = 3.4028234663852886e38
NUMBERS, IDS = 0, 1
"""Slots of the two blocks of a batch; step i answers in slot 2 + i."""


class Take(nn.Module):
    """Columns ``columns`` of the answer in one slot, ``[B, len(columns)]``; a view where they are neighbours."""

    columns: Tensor

    def __init__(self, slot: int, columns: Sequence[int]) -> None:
        super().__init__()
        self.slot = slot
        self.start = columns[0] if columns else 0
        self.count = len(columns)
        self.neighbours = list(columns) == list(range(self.start, self.start + self.count))
        self.register_buffer("columns", torch.tensor(list(columns), dtype=torch.int64), persistent=False)

    def forward(self, values: list[Tensor]) -> Tensor:
        """Pick from the list of answers."""
        value = values[self.slot]
        if value.dim() != 2:  # what predict gives: [B], or [B, ...]
            value = value.unsqueeze(1).flatten(1)
        if self.neighbours:
            return value.narrow(1, self.start, self.count)
        return value.index_select(1, self.columns)


def takes_of(places: Iterable[tuple[int, int]]) -> list[Take]:
    """What picks columns, each given by its slot and its place there; neighbours from the same slot share one take."""
    takes: list[tuple[int, list[int]]] = []
    for slot, column in places:
        if takes and takes[-1][0] == slot:
            takes[-1][1].append(column)
        else:
            takes.append((slot, [column]))
    return [Take(slot, columns) for slot, columns in takes]


class ProgramStep(nn.Module):
    """One module and where its input columns come from; several takes stand side by side.

    Attributes
    ----------
    rejects : tuple of str
        What the source's step raises on in these columns: "nan", "inf", "huge" (finite numbers beyond float32).
    """

    def __init__(self, module: Module, takes: Sequence[Take], name: str, rejects: Sequence[str] = ()) -> None:
        super().__init__()
        self.module: Module = module
        self.takes = nn.ModuleList(takes)
        self.name = name
        self.rejects = tuple(rejects)
        # As TorchScript looks for nothing in a tuple, and sees no constants outside of a module.
        self.nan, self.inf, self.huge = (kind in self.rejects for kind in ("nan", "inf", "huge"))
        self.most = FLOAT32_MAX

    def gather(self, values: list[Tensor]) -> Tensor:
        """The input of the module, ``[B, width in]``."""
        parts: list[Tensor] = []
        for take in self.takes:
            parts.append(take(values))
        if len(parts) == 1:
            return parts[0]
        return torch.cat(parts, dim=1)

    def forward(self, values: list[Tensor]) -> Tensor:
        """The answer of the module, ``[B, width out]``."""
        return self.module(self.gather(values))  # type: ignore[no-any-return]

    def rejected(self, values: list[Tensor]) -> Tensor:
        """Whether the source's step would raise on a row, bool ``[B]``."""
        given = self.gather(values)
        if self.nan and self.inf:
            rejected = ~torch.isfinite(given)
        else:
            rejected = torch.isnan(given) if self.nan else torch.isinf(given) & self.inf
        if self.huge:
            rejected = rejected | (given.abs() > self.most) & torch.isfinite(given)
        outside = self.module.outside(given)
        return rejected.any(dim=1) if outside is None else rejected.any(dim=1) | outside

    @torch.jit.unused
    def having(self, module: Module) -> "ProgramStep":
        """The same step with another module."""
        return ProgramStep(module, list(self.takes), self.name, self.rejects)  # type: ignore[arg-type]

    @torch.jit.unused
    def asked(self) -> bool:
        """Whether the source may reject some rows of what this step is given."""
        return bool(self.rejects) or self.bounded()

    @torch.jit.unused
    def bounded(self) -> bool:
        """Whether the source rejects some finite numbers too."""
        return type(self.module).outside is not Module.outside


class Answers(nn.ModuleDict):
    """Steps by the method that they answer, "apply" among them, though every module has a method of that name."""

    def add_module(self, name: str, module: nn.Module | None) -> None:
        """Take any name."""
        self._modules[name] = module  # type: ignore[assignment]  # as torch's own does


def steps_read(step: nn.Module) -> set[int]:
    """The positions of the steps that a step takes columns of."""
    return {take.slot - 2 for take in step.takes if take.slot >= 2}  # type: ignore[union-attr]


class Program(nn.Module):
    """Steps in order; the answer of the last is the answer of the program.

    Shape
        numbers ``[B, n]``, ids int64 ``[B, m]`` -> ``[B, K]``, in the type of the numbers

    Parameters
    ----------
    steps : sequence of ProgramStep
    answers : mapping
        Method of the source -> a step, outside the order, that gives what this method returns.
    """

    def __init__(self, steps: Sequence[ProgramStep], answers: Mapping[str, ProgramStep] | None = None) -> None:
        super().__init__()
        self.steps = nn.ModuleList(steps)
        self.answers = Answers(dict(answers or {}))

    def forward(self, numbers: Tensor, ids: Tensor) -> Tensor:
        """Raw scores, or the columns of a transformer."""
        values = [numbers, ids]
        for step in self.steps:
            values.append(step(values))
        return values[-1]

    @torch.jit.unused
    def having(self, modules: Mapping[int, Module]) -> "Program":
        """The same program with other modules in some of its steps, by their position."""
        steps = [step.having(modules[at]) if at in modules else step for at, step in enumerate(self.steps)]  # type: ignore[operator]
        return Program(steps, dict(self.answers.items()))  # type: ignore[arg-type]

    @torch.jit.unused
    def answer(self, method: str, numbers: Tensor, ids: Tensor) -> Tensor:
        """What a method of the source returns; ``"scores"`` is ``forward``."""
        if method not in self.answers:
            return self(numbers, ids)  # type: ignore[no-any-return]
        needed, values = self.before(self.answers[method]), [numbers, ids]
        for index, step in enumerate(self.steps):
            values.append(step(values) if index in needed else numbers[:, :0])
        return self.answers[method](values)  # type: ignore[no-any-return]

    @torch.jit.unused
    def rejected(self, method: str, numbers: Tensor, ids: Tensor, cleared: Container[int] = ()) -> Tensor:
        """Whether a step of the source would raise on a row when it is asked for a method, bool ``[B]``.

        Steps at the positions ``cleared`` are known to reject none of these rows.
        """
        asked = {index for index, step in enumerate(self.steps) if step.asked() and index not in cleared}  # type: ignore[operator]
        if method in self.answers:
            # What only stands guard leads nowhere; the scores themselves are not asked for.
            guards = asked - {len(self.steps) - 1}.union(*(steps_read(step) for step in self.steps))
            asked &= self.before(self.answers[method]) | guards
        last = [self.answers[method]] if method in self.answers else []
        last = [step for step in last if step.asked()]  # type: ignore[operator]
        # What a step rejects is told by what it is given: its own answer is not computed.
        needed = set[int]().union(*(self.before(self.steps[index]) for index in asked), *map(self.before, last))
        values, rejected = [numbers, ids], torch.zeros(len(numbers), dtype=torch.bool, device=numbers.device)
        for index, step in enumerate(self.steps):
            assert isinstance(step, ProgramStep)
            if index in asked:
                rejected |= step.rejected(values)
            values.append(step(values) if index in needed else numbers[:, :0])
        for step in last:
            rejected |= step.rejected(values)  # type: ignore[operator]
        return rejected

    @torch.jit.unused
    def before(self, step: nn.Module) -> set[int]:
        """The steps whose answers a step is made of."""
        found, new = set[int](), steps_read(step)
        while new:
            found |= new
            new = set[int]().union(*(steps_read(self.steps[index]) for index in new)) - found
        return found

    @torch.jit.unused
    def whole(self) -> bool:
        """Whether the rows have to be answered all together."""
        return any(step.module.BATCH_DEPENDENT for step in self.steps)  # type: ignore[union-attr]

    @torch.jit.unused
    def partial(self) -> bool:
        """Whether finite rows may meet a step that rejects what an earlier one made of them."""
        partial = False
        for step in self.steps:
            assert isinstance(step, ProgramStep)
            if step.bounded() or (partial and step.rejects):
                return True
            partial |= step.module.MAY_BE_NON_FINITE
        return False

    @torch.jit.unused
    def inputs_of(self, position: int, numbers: Tensor, ids: Tensor) -> Tensor:
        """What reaches the module of step ``position``, ``[B, width in]``."""
        values = [numbers, ids]
        for index, step in enumerate(self.steps):
            if index == position:
                return step.gather(values)  # type: ignore[operator, no-any-return]
            values.append(step(values))
        raise IndexError(f"no step {position}; there are {len(self.steps)}")
