"""A translated pipeline as a flat program: each step computes an output from columns of earlier outputs."""

# No postponed annotations here: torch.jit.script reads the class-level ones and takes no strings.

from collections.abc import Container, Iterable, Mapping, MutableMapping, MutableSequence, Sequence

import torch
from torch import Tensor, nn

from windtunnel.modules.base import Module

FLOAT32_MAX = 3.4028234663852886e38
BEYOND_FLOAT32 = 3.4028235677973366e38
"""The least float64 number that becomes infinite in float32; smaller ones are rounded to its greatest number."""
NUMBERS, IDS = 0, 1
"""Slots of the two blocks of a batch; the output of step i is in slot 2 + i."""


class Take(nn.Module):
    """Columns of the output in one slot, ``[B, len(columns)]``; a view if they are neighbours."""

    columns: Tensor

    def __init__(self, slot: int, columns: Sequence[int]) -> None:
        super().__init__()
        self.slot = slot
        self.start = columns[0] if columns else 0
        self.count = len(columns)
        self.neighbours = list(columns) == list(range(self.start, self.start + self.count))
        self.register_buffer("columns", torch.tensor(list(columns), dtype=torch.int64), persistent=False)

    def forward(self, values: list[Tensor]) -> Tensor:
        """Select from the list of outputs."""
        value = values[self.slot]
        if value.dim() != 2:  # an output of predict: [B], or [B, ...]
            value = value.unsqueeze(1).flatten(1)
        if self.neighbours:
            return value.narrow(1, self.start, self.count)
        return value.index_select(1, self.columns)


def takes_of(places: Iterable[tuple[int, int]]) -> list[Take]:
    """Takes of columns, each a slot and a position there; neighbours from the same slot share one take."""
    takes: list[tuple[int, list[int]]] = []
    for slot, column in places:
        if takes and takes[-1][0] == slot:
            takes[-1][1].append(column)
        else:
            takes.append((slot, [column]))
    return [Take(slot, columns) for slot, columns in takes]


class ProgramStep(nn.Module):
    """One module and the columns of its input, the concatenation of its takes."""

    def __init__(self, module: Module, takes: Sequence[Take], name: str, rejects: Sequence[str] = ()) -> None:
        super().__init__()
        self.module: Module = module
        # Typed by what it holds, which a ModuleList does not tell mypy; torch.jit.script warns of ``list`` here.
        self.takes: MutableSequence[Take] = nn.ModuleList(takes)  # type: ignore[assignment]
        self.name = name
        # What the source's step rejects in these columns: "nan", "inf", "huge" (finite numbers beyond float32).
        self.rejects = tuple(rejects)
        # TorchScript cannot search a tuple and sees no constants outside of a module.
        self.nan, self.inf, self.huge = (kind in self.rejects for kind in ("nan", "inf", "huge"))
        self.beyond = BEYOND_FLOAT32

    def gather(self, values: list[Tensor]) -> Tensor:
        """The input of the module, ``[B, width in]``."""
        parts: list[Tensor] = []
        for take in self.takes:
            parts.append(take(values))
        if len(parts) == 1:
            return parts[0]
        return torch.cat(parts, dim=1)

    def forward(self, values: list[Tensor]) -> Tensor:
        """The output of the module, ``[B, width out]``."""
        return self.module(self.gather(values))  # type: ignore[no-any-return]

    def rejected(self, values: list[Tensor]) -> Tensor:
        """Whether the source's step would raise on a row, bool ``[B]``."""
        return self.rejected_input(self.gather(values))

    def rejected_input(self, columns: Tensor) -> Tensor:
        """Whether the source's step would raise on a row of its input, bool ``[B]``."""
        if self.nan and self.inf:
            rejected = ~torch.isfinite(columns)
        elif self.nan:
            rejected = torch.isnan(columns)
        elif self.inf:
            rejected = torch.isinf(columns)
        else:
            rejected = torch.zeros_like(columns, dtype=torch.bool)
        if self.huge:
            rejected = rejected | (columns.abs() >= self.beyond) & torch.isfinite(columns)
        by_module = self.module.rejected_rows(columns)
        return rejected.any(dim=1) if by_module is None else rejected.any(dim=1) | by_module

    @torch.jit.unused
    def places(self) -> list[tuple[int, int]]:
        """Slot and position there of each input column."""
        return [(take.slot, column) for take in self.takes for column in take.columns.tolist()]

    @torch.jit.unused
    def with_module(self, module: Module) -> "ProgramStep":
        """The same step with another module."""
        return ProgramStep(module, list(self.takes), self.name, self.rejects)

    @torch.jit.unused
    def may_reject(self) -> bool:
        """Whether the source may reject rows at this step."""
        return bool(self.rejects) or self.rejects_finite()

    @torch.jit.unused
    def rejects_finite(self) -> bool:
        """Whether the source may reject finite numbers too."""
        return self.module.rejects_by_itself()


class MethodSteps(nn.ModuleDict):
    """Steps by the method whose output they compute; "apply" is allowed, though modules have a method of that name."""

    def add_module(self, name: str, module: nn.Module | None) -> None:
        """Take any name."""
        self._modules[name] = module  # type: ignore[assignment]  # as torch's own does


def position_of(slot: int) -> int:
    """The position of the step whose output is in a slot."""
    return slot - 2


def slot_of(position: int) -> int:
    """The slot of the output of the step at a position."""
    return position + 2


def steps_read(step: ProgramStep) -> set[int]:
    """The positions of the steps that a step takes columns from."""
    return {position_of(take.slot) for take in step.takes if take.slot not in (NUMBERS, IDS)}


def last_slot(program: "Program") -> int:
    """The slot of the output of a program."""
    return slot_of(len(program.steps) - 1)


class Program(nn.Module):
    """Steps in order; the output of the last is the output of the program.

    ``method_steps`` are steps outside the order, each of which computes the output of a method of the source.

    Shape
        numbers ``[B, n]``, ids int64 ``[B, m]`` -> ``[B, K]``, in the type of the numbers
    """

    def __init__(self, steps: Sequence[ProgramStep], method_steps: Mapping[str, ProgramStep] | None = None) -> None:
        super().__init__()
        # Typed by what they hold, as in ``ProgramStep``.
        self.steps: MutableSequence[ProgramStep] = nn.ModuleList(steps)  # type: ignore[assignment]
        self.method_steps: MutableMapping[str, ProgramStep] = MethodSteps(dict(method_steps or {}))  # type: ignore[assignment]

    def forward(self, numbers: Tensor, ids: Tensor) -> Tensor:
        """Raw scores, or the columns of a transformer."""
        values = [numbers, ids]
        for step in self.steps:
            values.append(step(values))
        return values[-1]

    @torch.jit.unused
    def with_modules(self, modules: Mapping[int, Module]) -> "Program":
        """The same program with other modules in some steps, by position."""
        steps = [step.with_module(modules[at]) if at in modules else step for at, step in enumerate(self.steps)]
        return Program(steps, dict(self.method_steps.items()))

    @torch.jit.unused
    def output(self, method: str, numbers: Tensor, ids: Tensor) -> Tensor:
        """The output of a method of the source that has its own step; for other methods the scores, as ``forward``."""
        if method not in self.method_steps:
            return self(numbers, ids)  # type: ignore[no-any-return]
        needed, values = self.upstream(self.method_steps[method]), [numbers, ids]
        for index, step in enumerate(self.steps):
            values.append(step(values) if index in needed else numbers[:, :0])
        return self.method_steps[method](values)  # type: ignore[no-any-return]

    @torch.jit.unused
    def rejected(self, method: str, numbers: Tensor, ids: Tensor, cleared: Container[int] = ()) -> Tensor:
        """Whether a step of the source would reject a row in a method, bool ``[B]``.

        Steps at the positions ``cleared`` reject none of these rows.
        """
        checked = {index for index in self.rejecting_steps(method) if index not in cleared}
        last = [self.method_steps[method]] if method in self.method_steps else []
        last = [step for step in last if step.may_reject()]
        # A step rejects by its input: its output is not needed.
        needed = set[int]().union(*(self.upstream(self.steps[index]) for index in checked), *map(self.upstream, last))
        values, rejected = [numbers, ids], torch.zeros(len(numbers), dtype=torch.bool, device=numbers.device)
        for index, step in enumerate(self.steps):
            if index in checked:
                rejected |= step.rejected(values)
            values.append(step(values) if index in needed else numbers[:, :0])
        for step in last:
            rejected |= step.rejected(values)
        return rejected

    @torch.jit.unused
    def rejecting_steps(self, method: str) -> set[int]:
        """The positions of the steps that may reject a row in a method, its own step aside.

        A method with its own step does not run the last step, which computes the scores. The other steps whose output
        nothing reads are there to reject rows, in every method.
        """
        rejecting = {index for index, step in enumerate(self.steps) if step.may_reject()}
        if method not in self.method_steps:
            return rejecting
        unread = rejecting - {len(self.steps) - 1}.union(*map(steps_read, self.steps))
        run = self.upstream(self.method_steps[method]).union(unread)
        return rejecting & run.union(*(self.upstream(self.steps[index]) for index in unread))

    @torch.jit.unused
    def upstream(self, step: ProgramStep) -> set[int]:
        """The positions of all steps that a step depends on."""
        reached, new = set[int](), steps_read(step)
        while new:
            reached |= new
            new = set[int]().union(*(steps_read(self.steps[index]) for index in new)) - reached
        return reached

    @torch.jit.unused
    def needs_all_rows(self) -> bool:
        """Whether the output of a row depends on the other rows."""
        return any(step.module.BATCH_DEPENDENT for step in self.steps)

    @torch.jit.unused
    def depends_on_call(self) -> bool:
        """Whether a row may get another output if rows of two calls are scored together."""
        return self.needs_all_rows() or any(step.module.DIFFERS_IF_ALL_MISSING for step in self.steps)

    @torch.jit.unused
    def may_reject_computed_values(self) -> bool:
        """Whether a step may reject what an earlier step computes from finite rows."""
        maybe_non_finite = False
        for step in self.steps:
            if step.rejects_finite() or (maybe_non_finite and step.rejects):
                return True
            maybe_non_finite |= step.module.MAY_BE_NON_FINITE
        return False

    @torch.jit.unused
    def inputs_of(self, position: int, numbers: Tensor, ids: Tensor) -> Tensor:
        """The input of the module of step ``position``, ``[B, width in]``."""
        values = [numbers, ids]
        for index, step in enumerate(self.steps):
            if index == position:
                return step.gather(values)
            values.append(step(values))
        raise IndexError(f"no step {position}; there are {len(self.steps)}")
