"""Modules without some of their columns, and the outputs that they declare finite."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor
from wide_table import FRAME, LABEL, NUMBERS, few_trees

import windtunnel
from windtunnel.compiler.scripted import script
from windtunnel.modules.base import MODULES, Module
from windtunnel.modules.columns.affine import Affine, ClippedAffine
from windtunnel.modules.columns.bins import Bins
from windtunnel.modules.columns.elementwise import Elementwise
from windtunnel.modules.columns.polynomial import Polynomial
from windtunnel.modules.columns.quantile import QuantileMap
from windtunnel.modules.columns.zero_as_missing import ZeroAsMissing
from windtunnel.modules.imputers.imputer import Imputer
from windtunnel.modules.linear.linear import Linear
from windtunnel.modules.linear.projection import Projection
from windtunnel.modules.outputs.finite import Finite
from windtunnel.modules.tables.category_table import CategoryTable, Identity, SumGroups
from windtunnel.modules.tables.one_hot import OneHot
from windtunnel.modules.tables.tfidf import Tfidf
from windtunnel.modules.trees.hard import HardTrees
from windtunnel.modules.trees.leaves import LeafOneHot


def numbers(*shape: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(0).normal(size=shape))


def trees() -> HardTrees:
    X = FRAME[NUMBERS[:WIDTH]].to_numpy()
    return windtunnel.compile(few_trees().fit(X, LABEL), strategy="tree_traversal").program.steps[-1].module


NAN, WIDTH = torch.tensor(torch.nan, dtype=torch.float64), 6
NARROWED: dict[str, Callable[[], Module]] = {
    "Affine": lambda: Affine(*(numbers(4, WIDTH) + 3)),
    "ClippedAffine": lambda: ClippedAffine(*(numbers(4, WIDTH) + 3), -1.0, 1.0),
    "Bins": lambda: Bins(
        numbers(WIDTH, 3).sort().values, torch.ones(WIDTH, 3).double(), torch.arange(4 * WIDTH), ordinal=False
    ),
    "Bins, ordinal": lambda: Bins(numbers(WIDTH, 3).sort().values, torch.ones(WIDTH, 3), torch.arange(0), ordinal=True),
    "CategoryTable": lambda: CategoryTable(numbers(5, WIDTH)),
    "Elementwise": lambda: Elementwise(torch.zeros(3), "square"),
    "HardTrees": trees,
    "Identity": Identity,
    "Imputer": lambda: Imputer(numbers(5), NAN, torch.tensor([0, 1, 2, 4, 5]), torch.tensor([1, 3])),
    "Imputer of zeros": lambda: Imputer(numbers(2), NAN * 0, torch.tensor([1, 2]), torch.tensor([4])),
    "LeafOneHot": lambda: LeafOneHot.numbered(trees().ensemble(), np.arange(12)),
    "Linear": lambda: Linear(numbers(4, WIDTH) * torch.tensor([1, 0, 1, 0, 0, 1]), numbers(4)),
    "OneHot": lambda: OneHot(torch.tensor([-1, 2, 0, 1, 3]), torch.arange(4), torch.ones(())),
    "Polynomial": lambda: Polynomial(torch.tensor([[6, 6], [0, 6], [0, 3], [5, 5], [2, 4]])),
    "Projection": lambda: Projection(numbers(4, WIDTH) * torch.tensor([0, 0, 1, 0, 1, 1]), numbers(4), numbers(WIDTH)),
    "QuantileMap": lambda: QuantileMap(numbers(WIDTH, 4).sort().values, torch.rand(WIDTH, 4).sort().values, False),
    "SumGroups": lambda: SumGroups(2),
    "Tfidf": lambda: Tfidf(numbers(WIDTH).abs(), "l2"),
    "Tfidf of some": lambda: Tfidf(numbers(WIDTH).abs(), "l1", torch.tensor([0, 2, 5])),
    "Tfidf without a norm": lambda: Tfidf(numbers(WIDTH).abs(), ""),
    "ZeroAsMissing": ZeroAsMissing,
}


def given(module: Module) -> Tensor:
    return torch.randint(0, 5, (20, 1)) if isinstance(module, CategoryTable | OneHot) else numbers(20, WIDTH)


def test_every_module_that_can_be_narrowed_is_tried() -> None:
    can = {
        name
        for name, one in MODULES.items()
        if one.required_columns is not Module.required_columns or one.PER_COLUMN is not None
    }
    forms = {name for name, one in MODULES.items() if issubclass(one, HardTrees)} - {"HardTrees"} | {"WeightedSums"}
    own = {name for name in can if MODULES[name].__module__.startswith("windtunnel.")} - forms
    assert own == {name.split(",")[0].split(" ")[0] for name in NARROWED}


@pytest.mark.parametrize("name", NARROWED)
def test_a_narrowed_module_gives_the_same_columns(name: str) -> None:
    module = NARROWED[name]()
    x = given(module)
    x[3] = x[3].abs() * 0 if x.dtype == torch.int64 else torch.nan
    every = module(x)
    width = x.shape[1]
    tried = 0
    for wanted in (range(every.shape[1]), [0, 2], [every.shape[1] - 1]):
        needed = module.required_columns(wanted, width)
        if needed is None:
            continue
        needed = sorted(needed) or [0]
        less = module.select_columns(wanted, needed, width)
        rows = [row for row in range(20) if row != 3] if module.MIXES_COLUMNS else list(range(20))
        got = less(x[:, needed])[rows]
        torch.testing.assert_close(got, every[:, list(wanted)][rows], rtol=1e-12, atol=1e-12, equal_nan=True)
        script(less)
        tried += 1
    assert tried


@pytest.mark.parametrize(
    "name",
    # Tables take codes, which no missing or infinite number is.
    [one for one in NARROWED if any(NARROWED[one]().finite_inputs(WIDTH)) and one not in ("CategoryTable", "OneHot")],
)
def test_where_a_module_says_that_it_is_finite_it_is(name: str) -> None:
    module = NARROWED[name]()
    said = module.finite_inputs(WIDTH)
    for column in range(WIDTH):
        for kind, value in (("nan", torch.nan), ("inf", torch.inf), ("inf", -torch.inf)):
            x = numbers(5, WIDTH)
            x[:, column] = value
            y = module(x)
            for position, finite in enumerate(said):
                if finite is None:
                    continue
                odd = column in finite.columns and kind in finite.kinds
                if odd and not finite.sure:
                    continue
                assert (~torch.isfinite(y[:, position])).eq(odd).all(), (column, value, position)
                if odd and len(finite.columns) == 1:
                    assert torch.isnan(y[:, position]).eq(kind == "nan").all()


def test_what_an_output_is_finite_with_is_told_by_identity() -> None:
    class Column(int):
        def __hash__(self) -> int:
            raise AssertionError("hashed for each of the columns that it stands for")

    one, other = Finite((Column(),)), Finite((Column(),))
    assert {one, other, one} == {one, other} and one != other
