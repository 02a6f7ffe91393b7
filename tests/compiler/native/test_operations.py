"""Every module of the case table natively, and whole pipelines, against what torch gives."""

import math
import sysconfig
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import torch
from cases import CASES
from lightgbm import LGBMRegressor
from module_cases import MODULE_CASES
from parity import compiled
from torch import Tensor

import windtunnel
from windtunnel.compiler.native.build import SOURCES, compile_sources, library
from windtunnel.compiler.native.image import ImageWriter, operations_of
from windtunnel.compiler.native.lowering import NotNative, lower
from windtunnel.modules.base import Module
from windtunnel.modules.linear.residual_model import ResidualModel, cell_keys, interaction_cells, padded_columns
from windtunnel.modules.tables.cell_statistics import CellStatistics
from windtunnel.modules.trees.hard import TreeWalk

AWKWARD = (math.nan, math.inf, -math.inf, 0.0, -0.0, 1e300, -1e-300, 0.5, 3.0, 2.0**20)


@cache
def instances() -> dict[str, tuple[Module, Tensor]]:
    """An instance of each module class with its input, by the name of the class."""
    modules = {}
    for name in MODULE_CASES:
        net = compiled(name)
        values = [*net.encode(CASES[name].rows(40))]
        with torch.inference_mode():
            for step in net.program.steps:
                modules.setdefault(type(step.module).__name__, (step.module, step.gather(values)))
                values.append(step(values))
            for step in net.program.method_steps.values():
                modules.setdefault(type(step.module).__name__, (step.module, step.gather(values)))
    return modules


def computed(module: Module, x: Tensor) -> Tensor:
    """The output of a native program of one module, float64 ``[B, columns]``."""
    image = ImageWriter(x.shape[1], 0)
    program = library().Program(image.image(columns := lower(module, image, image.numbers, x.dtype)))
    output = torch.empty(len(x), len(columns), dtype=torch.float64)
    program.run(x.double().numpy(), torch.empty(len(x), 0, dtype=torch.int64).numpy(), output.numpy())
    return output


def awkward(x: Tensor) -> Iterator[Tensor]:
    """Rows with an awkward number in each column in turn."""
    for column in range(x.shape[1]):
        rows = x[: len(AWKWARD)].clone()
        rows[:, column] = torch.tensor(AWKWARD[: len(rows)])
        yield rows


def test_each_module_gives_what_torch_gives() -> None:
    native = 0
    for name, (module, x) in instances().items():
        if isinstance(module, TreeWalk):
            continue
        try:
            output = computed(module, x)
        except NotNative:
            continue
        native += 1
        with torch.inference_mode():
            expected = module(x).double().reshape(len(x), -1)
            torch.testing.assert_close(output, expected, rtol=1e-12, atol=1e-12, equal_nan=True, msg=name)
            for rows in [x[:1], x[:7], *(awkward(x) if x.dtype == torch.float64 else ())]:
                try:
                    expected = module(rows).double().reshape(len(rows), -1)
                except (IndexError, RuntimeError, NotNative):  # as the source rejects such rows, torch may
                    continue
                torch.testing.assert_close(
                    computed(module, rows), expected, rtol=1e-9, atol=1e-9, equal_nan=True, msg=name
                )
    assert native > 80


def test_sources_compile_without_warnings(tmp_path: Path) -> None:
    sources = [str(path) for path in SOURCES.glob("*.c")]
    strict = ["-Wall", "-Wextra", "-Wconversion", "-Werror", "-fsyntax-only", "-O1", "-std=gnu11"]
    compile_sources([*strict, "-isystem", sysconfig.get_path("include"), *sources], tmp_path / "unused")


def test_residual_model_and_cell_statistics() -> None:
    drawn = torch.Generator().manual_seed(0)
    edges = torch.randn(2, 6, generator=drawn, dtype=torch.float64).sort(dim=1).values
    edges[1, 4:] = math.inf
    model = ResidualModel.zero(edges, [8, 6, 5, 4], torch.tensor([1.5, 0.5]).double(), rank=3, generator=drawn).double()
    count = [48, 160, 97]
    cells = [torch.arange(48), torch.arange(3, 160, 5), torch.arange(0, 97, 2)]
    tables = [torch.randn(len(each), 2, generator=drawn, dtype=torch.float64) for each in cells]
    model.set_interactions([(0, 1), (0, 2, 3), (0, 1, 2, 3)], count, cells, tables)
    with torch.no_grad():
        model.weight.normal_(generator=drawn)
        model.factors.normal_(generator=drawn)
    bins = torch.randint(0, 255, (len(model.keys) + 3, 2), generator=drawn).to(torch.uint8)
    statistics = CellStatistics(edges, model.size, model.interactions, model.cell_count, model.keys, bins)
    with_numbers = CellStatistics(edges, model.size, model.interactions, model.cell_count, model.keys, bins, True)
    numbers = torch.randn(300, 2, generator=drawn, dtype=torch.float64)
    numbers[::9, 0], numbers[::11, 1], numbers[5, 0] = math.nan, math.inf, edges[0, 2]
    x = torch.cat([numbers, torch.randint(0, 4, (300, 2), generator=drawn).double()], dim=1)
    with torch.no_grad():
        for module in (model, model.interactions_alone(), statistics, with_numbers):
            torch.testing.assert_close(computed(module, x), module(x), rtol=1e-12, atol=1e-12)


def test_what_two_modules_compute_alike_is_computed_once() -> None:
    edges = torch.arange(6, dtype=torch.float64).reshape(2, 3)
    image, generator = ImageWriter(2, 0), torch.Generator()
    first, same, different = (
        lower(ResidualModel.zero(at, [5, 5], torch.ones(1), rank=0, generator=generator), image, [0, 1], torch.float64)
        for at in (edges, edges.clone(), edges + 1)
    )
    assert first == same and first != different
    assert operations_of(image.image([*first, *same, *different])).count("bisect") == 2


def test_hashed_interactions_and_trees_over_their_bytes() -> None:
    drawn = torch.Generator().manual_seed(0)
    size, interactions = [300, 400, 500, 90, 7], [(0, 1), (0, 1, 2), (1, 2, 3), (0, 1, 2, 3), (3, 4), (4,)]
    count = [120_000, 60_000_000, 160_001, 2**24 + 1, 630, 7]
    x = torch.stack([torch.randint(0, codes, (2_000,), generator=drawn) for codes in size], dim=1)
    no_edges, sizes, counts = torch.zeros(0, 3).double(), torch.tensor(size), torch.tensor(count)
    columns = padded_columns(interactions)
    stored = interaction_cells(x[::2], sizes, columns, counts)  # half of the rows are in cells without a row
    keys = cell_keys(counts, [column.unique() for column in stored.unbind(dim=1)])
    bins = torch.randint(0, 255, (len(keys) + len(count), 3), generator=drawn).to(torch.uint8)
    statistics = CellStatistics(no_edges, sizes, columns, counts, keys, bins)
    with torch.no_grad():
        features = statistics(x.double())
        assert torch.equal(computed(statistics, x.double()), features)
        source = LGBMRegressor(n_estimators=9, num_leaves=31, min_child_samples=1, verbosity=-1)
        source.fit(features.numpy(), features.sum(dim=1).sin().numpy())
        modules = [step.module for step in windtunnel.translate(source).program.steps]
        trees = next(module for module in modules if isinstance(module, TreeWalk))
        for rows in (1, 2, 30, 100, 700, 2_000):
            both = torch.nn.Sequential(statistics, trees)
            image = ImageWriter(len(size), 0)
            scores = lower(trees, image, lower(statistics, image, image.numbers, torch.float64), torch.float64)
            program = library().Program(image.image(scores))
            assert operations_of(image.image(scores))[-2:] == ["cell_bytes", "trees"]
            output = torch.empty(rows, 1, dtype=torch.float64)
            program.run(x[:rows].double().numpy(), torch.empty(rows, 0, dtype=torch.int64).numpy(), output.numpy())
            assert torch.equal(output, both(x[:rows].double()).reshape(rows, 1))
