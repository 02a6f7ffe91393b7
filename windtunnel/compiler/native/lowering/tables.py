"""Tables with a row per category, bin or code."""

import torch
from torch import Tensor

from windtunnel.compiler.native.image import ImageWriter
from windtunnel.compiler.native.lowering.cells import SCRATCH_PER_ROW, cell_rows
from windtunnel.compiler.native.lowering.columns import BELOW, UP_TO
from windtunnel.compiler.native.lowering.registry import NotNative, lowers
from windtunnel.compiler.native.lowering.traced import BINARY, UNARY
from windtunnel.modules.linear.residual_model import ResidualModel
from windtunnel.modules.tables.bin_tables import BinTables
from windtunnel.modules.tables.category_table import CategoryTable, Identity
from windtunnel.modules.tables.cell_statistics import CellStatistics
from windtunnel.modules.tables.one_hot import OneHot
from windtunnel.modules.tables.target_statistics import TargetStatistics

SUMS = 8
"""``WT_SUMS`` of ``wt_look_up_row_sum``."""
FEWEST_BY_ROWS = 3
"""From so many outputs on, sums by rows of a table take less time than sums by its columns."""


@lowers(CategoryTable)
def _category_table(module: CategoryTable, image: ImageWriter, columns: list[int]) -> list[int]:
    return image.step("look_up", columns, module.rows.shape[1], _by_columns(module.rows), 1, len(module.rows))


@lowers(Identity)
def _identity(module: Identity, image: ImageWriter, columns: list[int]) -> list[int]:
    return columns


@lowers(OneHot)
def _one_hot(module: OneHot, image: ImageWriter, columns: list[int]) -> list[int]:
    return image.step("one_hot", columns, len(module.columns), module.column, len(module.column), module.columns)


@lowers(BinTables)
def _bin_tables(module: BinTables, image: ImageWriter, columns: list[int]) -> list[int]:
    bins = _bins(image, columns, module.edges, UP_TO, module.rows.shape[1] - 1.0)
    tables = module.rows.detach().transpose(1, 2).contiguous()
    width = module.rows.shape[0] * module.rows.shape[2]
    rows = image.step("look_up", bins, width, tables, len(tables), module.rows.shape[1])
    return [rows[column] for column in module.kept]


@lowers(ResidualModel)
def _residual_model(module: ResidualModel, image: ImageWriter, columns: list[int]) -> list[int]:
    codes = _column_codes(image, columns, module.edges, module.size)
    outputs = len(module.unit)
    rows = image.step("binary_right", codes, len(codes), BINARY.index("add"), module.first_code.double())
    factors = module.factors.detach().double()
    # 1/2 (|sum f|^2 - sum |f|^2), of which the second sum joins the weights.
    weight = module.weight.detach().double() - 0.5 * factors.square().sum(dim=2)
    terms = [_sum_of_rows(image, rows, weight)] if weight.any() or not len(module.interactions) else []
    if rank := factors.shape[2]:
        sums = _sum_of_rows(image, rows, factors.flatten(1))
        squares = image.step("binary", [*sums, *sums], len(sums), BINARY.index("mul"))
        total = image.step("reduce", squares, outputs, 0) if rank > 1 else squares
        halves = torch.full([outputs], 0.5)
        terms.append(image.step("binary_right", total, outputs, BINARY.index("mul"), halves))
    if len(module.interactions):
        cells = cell_rows(module)
        table = module.cross.detach().double()[cells.source]
        terms.append(image.step("cell_sums", codes, outputs, *cells.facts, table, scratch_per_row=SCRATCH_PER_ROW))
    by_output = [term[output] for output in range(outputs) for term in terms]
    total = image.step("reduce", by_output, outputs, 0) if len(terms) > 1 else terms[0]
    return image.step("binary_right", total, outputs, BINARY.index("mul"), module.unit)


@lowers(CellStatistics)
def _cell_statistics(module: CellStatistics, image: ImageWriter, columns: list[int]) -> list[int]:
    codes = _column_codes(image, columns, module.edges, module.size)
    cells, width = cell_rows(module), module.bins.shape[1]
    features = width * len(module.interactions)
    facts = (*cells.facts, module.bins[cells.source], width)
    packed = image.step("cell_bytes", codes, -(-features // 8), *facts, scratch_per_row=SCRATCH_PER_ROW)
    numbers = codes[: len(module.edges)] if module.number_codes else []
    return [*image.unpack(packed, features), *numbers]


@lowers(TargetStatistics)
def _target_statistics(module: TargetStatistics, image: ImageWriter, columns: list[int]) -> list[int]:
    order, combinations = module.column.shape
    if module.column.numel() and module.column.max() >= len(columns):
        raise NotNative("it reads columns that are not there")
    places = module.column, module.factor, module.equal, module.compares.long(), order, combinations
    keys = module.keys, module.owner, module.place, len(module.keys)
    outputs = len(module.combination)
    facts = (*places, module.salt, module.count, *keys, module.combination, module.first, module.rows)
    return image.step("target_statistics", columns, outputs, *facts, scratch=8 * combinations)


def _by_columns(rows: Tensor) -> Tensor:
    """A table column by column, ``[w, V]``."""
    return rows.detach().double().t().contiguous()


def _sum_of_rows(image: ImageWriter, rows: list[int], table: Tensor) -> list[int]:
    """The sum of the rows of a table, ``[V, w]``."""
    outputs = table.shape[1]
    if outputs >= FEWEST_BY_ROWS:
        padded = torch.nn.functional.pad(table, (0, -outputs % SUMS))
        parts = torch.split(padded, SUMS, dim=1)
        sums = [image.step("look_up_row_sum", rows, SUMS, part, len(table)) for part in parts]
        return [column for part in sums for column in part][:outputs]
    return image.step("look_up_sum", rows, outputs, torch.zeros(outputs), _by_columns(table), len(table))


def _bins(image: ImageWriter, columns: list[int], edges: Tensor, which: int, missing: float) -> list[int]:
    """How many edges each number passes, or ``missing``."""
    if not columns:
        return []
    counts = torch.full([len(columns)], edges.shape[1])
    bins = image.step("bisect", columns, len(columns), edges, counts, edges.shape[1], which)
    flags = image.step("unary", columns, len(columns), UNARY.index("isnan"))
    return image.step("select_value", [*flags, *bins], len(columns), torch.full([len(columns)], missing))


def _column_codes(image: ImageWriter, columns: list[int], edges: Tensor, size: Tensor) -> list[int]:
    """The code of each column, as ``column_codes`` of the residual model gives it."""
    count = edges.shape[0]
    # A missing number has code 0 and others begin with 1.
    bins = _bins(image, columns[:count], edges, BELOW, -1.0)
    if bins:
        bins = image.step("binary_right", bins, count, BINARY.index("add"), torch.ones(count))
    codes = [*bins, *columns[count:]]
    return image.step("binary_right", codes, len(codes), BINARY.index("minimum"), (size - 1).double())
