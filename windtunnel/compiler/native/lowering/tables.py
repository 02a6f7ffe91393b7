"""Tables with a row per category, bin or code."""

import torch
from torch import Tensor

from windtunnel.compiler.native.image import ImageWriter
from windtunnel.compiler.native.lowering.columns import BELOW, UP_TO
from windtunnel.compiler.native.lowering.registry import NotNative, lowers
from windtunnel.compiler.native.lowering.traced import BINARY, UNARY
from windtunnel.modules.linear.residual_model import ResidualModel
from windtunnel.modules.tables.bin_tables import BinTables
from windtunnel.modules.tables.category_table import CategoryTable, Identity
from windtunnel.modules.tables.cell_statistics import CellStatistics
from windtunnel.modules.tables.one_hot import OneHot
from windtunnel.modules.tables.target_statistics import TargetStatistics


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
    terms = [_sum_of_rows(image, rows, module.weight)]
    if rank := module.factors.shape[2]:
        factors = module.factors.detach().double()
        sums = _sum_of_rows(image, rows, factors.flatten(1))
        squares = image.step("binary", [*sums, *sums], len(sums), BINARY.index("mul"))
        less = _sum_of_rows(image, rows, factors.square().sum(dim=2))
        total = image.step("reduce", squares, outputs, 0) if rank > 1 else squares
        pairs = image.step("binary", [*total, *less], outputs, BINARY.index("sub"))
        halves = torch.full([outputs], 0.5)
        terms.append(image.step("binary_right", pairs, outputs, BINARY.index("mul"), halves))
    if len(module.interactions):
        terms.append(_sum_of_rows(image, _interaction_rows(image, codes, module), module.cross))
    by_output = [term[output] for output in range(outputs) for term in terms]
    total = image.step("reduce", by_output, outputs, 0) if len(terms) > 1 else terms[0]
    return image.step("binary_right", total, outputs, BINARY.index("mul"), module.unit)


@lowers(CellStatistics)
def _cell_statistics(module: CellStatistics, image: ImageWriter, columns: list[int]) -> list[int]:
    codes = _column_codes(image, columns, module.edges, module.size)
    rows, width = _interaction_rows(image, codes, module), module.bins.shape[1]
    return image.step("look_up", rows, len(rows) * width, _by_columns(module.bins), 1, len(module.bins))


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


def _interaction_rows(image: ImageWriter, codes: list[int], module: ResidualModel | CellStatistics) -> list[int]:
    """The row of each interaction in the table of all."""
    interactions, count = module.interactions, module.cell_count
    last = torch.cumsum(count, 0)
    start = torch.searchsorted(module.keys.long(), torch.cat([torch.zeros(1, dtype=torch.int64), last]))
    facts = (interactions, interactions.shape[1], module.size, count, last - count, module.keys, start)
    return image.step("interaction_rows", codes, len(interactions), *facts, *_buckets(module, start, last - count))


def _buckets(module: ResidualModel | CellStatistics, start: Tensor, first: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """For each interaction how wide its buckets are, as a shift, and where they begin; and the first key of each.

    There are at most twice as many buckets as keys, so that a search goes through one or two keys.
    """
    shifts, buckets = list[int](), list[Tensor]()
    for at, count in enumerate(module.cell_count.tolist()):
        cells = module.keys[start[at] : start[at + 1]].long() - first[at]
        shift = (count // (2 * len(cells) + 1)).bit_length()
        shifts.append(shift)
        buckets.append(torch.searchsorted(cells, torch.arange((count >> shift) + 2) << shift))
    sizes = torch.tensor([len(bucket) for bucket in buckets])
    return torch.tensor(shifts), torch.cat(buckets).int(), torch.cumsum(sizes, 0) - sizes
