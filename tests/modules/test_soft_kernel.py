"""Soft trees as one operation: the same as plain torch whatever the cut, exact gradients, seen through by compile."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch
from gradients import assert_same_gradients, learned
from torch import Tensor

from benchmarks.train_step import Direct, Settings, random_trees
from windtunnel.modules.threads import run_parallel
from windtunnel.modules.trees import SoftLeaves, SoftTrees
from windtunnel.modules.trees.soft.kernel import memory, tree_pass, tree_weights
from windtunnel.modules.trees.soft.kernel.operation import soft_ensemble
from windtunnel.modules.trees.soft.kernel.subnormal import SMALLEST_NORMAL, without_subnormals

SMALL = Settings(trees=5, leaves=6, features=4, batch=70, level="L4", dropout=0.0, threads=1, device="cpu")
LEVELS = ["L1", "L2", "L3", "L4"]


@pytest.fixture(autouse=True)
def cut_small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two trees and 32 rows at once, so that groups and slices end in the middle; weights are added up."""
    monkeypatch.setitem(memory.UNITS, "cpu", 12)
    monkeypatch.setitem(memory.ROWS, "cpu", 32)
    monkeypatch.setattr(tree_weights, "LONG", 1)
    monkeypatch.setattr(tree_weights, "SPARSE", 1.0)
    memory.plan.cache_clear()
    yield
    memory.set_budget(None)


@pytest.fixture(params=["multiplied", "added up", "as on a GPU"])
def either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second layer is multiplied or added up; on a GPU the first layer of L1 and L2 is multiplied too."""
    monkeypatch.setattr(tree_weights, "SPARSE", 1.0 if request.param == "added up" else 0.0)
    if request.param == "as on a GPU":
        monkeypatch.setattr(tree_pass, "favours_dense", lambda batch: True)


@pytest.fixture
def two_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two threads share the trees, however little there is to do."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    monkeypatch.setattr(memory, "WORTH_THREADS", 0)
    yield
    torch.set_num_threads(before)


def trees_of(level: str, *, overridden: bool, scores: int = 1) -> SoftTrees:
    """Float64 trees; overridden: two nodes with categories, and every node with a default direction."""
    trees = random_trees(replace(SMALL, level=level))
    tensors = {**dict(trees.named_parameters()), **dict(trees.named_buffers())}
    tensors["slope"] = tensors["slope"] / 5
    if overridden:
        tensors["missing"] = torch.tensor([1, 2], dtype=torch.int8).repeat(5 * 5)[: 5 * 5].view(5, 5)
        tensors["direction"] = torch.randn(5, 5).sign()
        tensors["category_node"] = torch.tensor([3, 4, 17])
        tensors["category_table"] = torch.randn(3, 5)
    if scores > 1:
        tensors["leaf_value"], tensors["base"] = torch.randn(5, 6, scores), torch.zeros(scores)
    return SoftTrees(**{name: one.detach().clone() for name, one in tensors.items()}, level=level).double()


def rows(*, overridden: bool) -> Tensor:
    x = torch.randn(SMALL.batch, SMALL.features, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    if overridden:
        x = x.mul_(2).round_()  # categories, some of them unknown, and zeros
        x[::3, 0] = torch.nan
        x[::4, 2] = torch.nan
    return x


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("overridden", [False, True])
@pytest.mark.parametrize("scores", [1, 3])
@pytest.mark.parametrize("level", LEVELS)
def test_scores_and_gradients_are_those_of_plain_torch(level: str, scores: int, overridden: bool) -> None:
    trees, x = trees_of(level, overridden=overridden, scores=scores), rows(overridden=overridden)
    x.requires_grad_()
    ours, plain = trees(x), trees.plain_scores(x) + trees.base
    torch.testing.assert_close(ours, plain)
    assert_same_gradients(ours, plain, [x, *learned(trees)])


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_gradcheck_with_missing_values_categories_and_dropout(level: str, rate: float) -> None:
    trees, x = trees_of(level, overridden=True), rows(overridden=True)[:34]
    trees.dropout = rate
    trees.train()
    wanted = learned(trees)

    def scored(*_: Tensor) -> Tensor:
        torch.manual_seed(3)
        return trees(x).sum(dim=0)

    with torch.random.fork_rng():
        assert torch.autograd.gradcheck(scored, wanted, atol=1e-6, fast_mode=True)


@pytest.mark.usefixtures("two_threads")
def test_subnormal_numbers_are_taken_for_0_inside_the_operation_alone() -> None:
    trees, x = trees_of("L4", overridden=False).float(), rows(overridden=False).float()
    with torch.no_grad():
        trees.leaf_value.fill_(1e-42)
    assert trees.plain_scores(x).all()
    scores = trees(x)
    (gradient,) = torch.autograd.grad(scores.sum(), [trees.threshold])
    assert not scores.any() and not gradient.any()
    assert all(run_parallel(lambda small: bool(small * 1e-5), [torch.tensor(1e-37)] * 2))


@pytest.mark.usefixtures("two_threads")
def test_threads_that_start_during_the_operation_keep_subnormal_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new Python thread has OpenMP threads of its own, which start with its first large operation."""
    monkeypatch.setattr(memory, "WORTH_THREADS", 2**60)  # a single share
    # Before the operation nothing is large enough for several threads.
    trees, x = random_trees(replace(SMALL, trees=8, leaves=32)), torch.randn(1000, SMALL.features)

    def products() -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            return trees(x), torch.full((200_000,), 1e-39) * 0.5

    with ThreadPoolExecutor(1) as pool:
        _, halves = pool.submit(products).result()
    assert bool(halves.all())


def test_who_takes_subnormal_numbers_for_0_goes_on_to() -> None:
    @without_subnormals
    def product(small: float) -> float:
        if not small:
            raise ZeroDivisionError
        return small * 0.5

    torch.set_flush_denormal(True)
    before = product(SMALLEST_NORMAL), SMALLEST_NORMAL * 0.5
    torch.set_flush_denormal(False)
    assert before == (0.0, 0.0)
    assert product(SMALLEST_NORMAL) == 0.0 and SMALLEST_NORMAL * 0.5 > 0.0
    with pytest.raises(ZeroDivisionError):
        product(0.0)
    assert SMALLEST_NORMAL * 0.5 > 0.0


@pytest.mark.parametrize("only", ["threshold", "node_weight", "path", "path_bias", "leaf_value", "category_table"])
def test_a_gradient_alone_is_the_same_as_among_all(only: str) -> None:
    trees, x = trees_of("L4", overridden=True), rows(overridden=True)
    trees(x).square().sum().backward()
    wanted = getattr(trees, only).grad.clone()
    trees.zero_grad()
    trees.requires_grad_(False)
    getattr(trees, only).requires_grad_()
    trees(x).square().sum().backward()
    assert {name for name, one in trees.named_parameters() if one.grad is not None} == {only}
    torch.testing.assert_close(getattr(trees, only).grad, wanted)


def test_the_cut_changes_neither_scores_nor_which_units_are_dropped_of_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    trees, x = trees_of("L4", overridden=True).train(), rows(overridden=True)
    trees.dropout = 0.4

    def at_once(count: int) -> list[Tensor]:
        monkeypatch.setitem(memory.ROWS, "cpu", count)
        memory.plan.cache_clear()
        torch.manual_seed(0)
        scores = trees(x)
        return [scores, *torch.autograd.grad(scores.square().sum(), learned(trees))]

    with torch.random.fork_rng():
        for one, other in zip(at_once(32), at_once(1024), strict=True):
            torch.testing.assert_close(one, other)


def test_dropout_keeps_the_mean_and_is_shared_by_32_rows() -> None:
    trees = trees_of("L4", overridden=False).train()
    trees.dropout = 0.3
    same_row = rows(overridden=False)[:1].expand(96, -1)
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        drawn = torch.stack([soft_ensemble(trees.operands(same_row, torch.zeros(0)), 0.3, whole=True)
                             for _ in range(200)])  # fmt: skip
    blocks = drawn.view(200, 3, 32, -1)
    dropped = blocks == 0
    assert (dropped == dropped[:, :, :1]).all() and not (dropped[:, 0] == dropped[:, 1]).all()
    torch.testing.assert_close(blocks, blocks[:, :, :1].expand_as(blocks))
    assert (drawn == 0).double().mean() == pytest.approx(0.3, abs=0.02)


def computed(trees: SoftTrees, x: Tensor) -> list[Tensor]:
    """Scores and all gradients, with the dropout of one seed."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        scores = trees(x)
    return [scores, *torch.autograd.grad(scores.square().sum(), [x, *learned(trees)])]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_threads_give_the_same_and_the_same_bits_each_time(
    level: str, rate: float, two_threads: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    trees, x = trees_of(level, overridden=True, scores=2).train(), rows(overridden=True).requires_grad_()
    trees.dropout = rate
    shared, again = computed(trees, x), computed(trees, x)
    for one, other in zip(shared, again, strict=True):
        assert torch.equal(one, other)
    monkeypatch.setattr(memory, "WORTH_THREADS", 10**9)
    for one, other in zip(shared, computed(trees, x), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.usefixtures("two_threads")
def test_threads_share_leaves_and_work_in_inference_mode() -> None:
    trees, x = trees_of("L2", overridden=True), rows(overridden=True)
    leaves = soft_ensemble(trees.operands(x, torch.zeros(0)))
    torch.testing.assert_close(leaves @ (trees.masked_values() * 2).flatten(0, 1) + trees.base, trees(x))
    with torch.inference_mode():
        torch.testing.assert_close(trees(x), trees.plain_scores(x) + trees.base)


@pytest.mark.usefixtures("two_threads")
def test_float32_as_it_is_trained() -> None:
    """Torch adds up float32 by other code than float64."""
    trees, x = trees_of("L2", overridden=True).float(), rows(overridden=True).float()
    ours, plain = trees(x), trees.plain_scores(x) + trees.base
    torch.testing.assert_close(ours, plain)
    assert_same_gradients(ours, plain, learned(trees))


def test_the_cut_follows_the_budget_and_the_log_says_so(caplog: pytest.LogCaptureFixture) -> None:
    cpu = torch.device("cpu")
    memory.UNITS["cpu"], memory.ROWS["cpu"] = 256, 1024
    memory.set_budget(2**30)
    with caplog.at_level(logging.INFO, "windtunnel"):
        assert memory.plan(100, 64, 4, cpu) == memory.plan(100, 64, 4, cpu) == (4, 1024)
    assert caplog.text.count("4 of 100 trees and 1024 rows at once") == 1
    memory.set_budget(memory.BUFFERS * 64 * 512 * 4)
    assert memory.plan(100, 64, 4, cpu) == (1, 512) and memory.plan(100, 64, 4, cpu, threads=2) == (1, 256)


def test_a_budget_that_is_too_small_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    memory.set_budget(1_000)
    with caplog.at_level(logging.WARNING, "windtunnel"):
        cut = memory.plan(8, 64, 4, torch.device("cpu"))
    assert cut == (1, memory.ROWS_PER_MASK)
    assert "take 0.0469 MiB with threads: 1; the budget is 0.000954 MiB. Raise it" in caplog.text


@pytest.mark.parametrize("level", ["L2", "L4"])
def test_compile_sees_one_operation(level: str) -> None:
    trees, x = trees_of(level, overridden=True), rows(overridden=True)
    seen: list[torch.fx.GraphModule] = []

    def keep(graph: torch.fx.GraphModule, _: list[Tensor]) -> torch.fx.GraphModule:
        seen.append(graph)
        return graph

    compiled = torch.compile(trees, backend=keep, fullgraph=True)
    torch.testing.assert_close(compiled(x), trees(x))
    assert "soft_trees" in seen[0].code
    assert_same_gradients(compiled(x), trees(x), learned(trees))


@pytest.mark.parametrize("overridden", [False, True])
def test_the_operation_keeps_the_rules_of_torch(overridden: bool) -> None:
    trees, x = trees_of("L4", overridden=overridden), rows(overridden=overridden)
    operands = trees.operands(x, trees.masked_values())
    of = [one.detach().clone().requires_grad_(one.requires_grad) for one in operands]
    torch.library.opcheck(
        torch.ops.windtunnel.soft_trees.default, (*of, torch.tensor([7]), 0.2, False),
        test_utils=("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic"),
    )  # fmt: skip


@pytest.mark.parametrize("overridden", [False, True])
def test_an_exported_program_is_plain_torch(overridden: bool) -> None:
    trees, x = trees_of("L4", overridden=overridden).eval(), rows(overridden=overridden)
    program = torch.export.export(trees, (x,), dynamic_shapes=({0: torch.export.Dim("rows")},))
    assert "windtunnel" not in program.graph_module.code
    torch.testing.assert_close(program.module()(x[:9]), trees(x[:9]))


def test_leaves_and_no_rows() -> None:
    trees = trees_of("L4", overridden=True)
    tensors = {name: one for name, one in trees.state_dict().items() if name not in ("leaf_value", "base", "output")}
    leaves = SoftLeaves(**tensors, column=torch.arange(30)).double()
    x = rows(overridden=True)
    torch.testing.assert_close(leaves(x), leaves.plain_leaves(x))
    assert_same_gradients(leaves(x), leaves.plain_leaves(x), learned(leaves))
    assert leaves(x[:0]).shape == (0, 30) and trees(x[:0]).shape == (0, 1)
    trees(x[:0]).sum().backward()
    assert trees.path.grad is not None and (trees.path.grad == 0).all()


def test_the_benchmark_compares_the_same_function() -> None:
    trees = random_trees(SMALL)
    x = torch.randn(50, SMALL.features)
    torch.testing.assert_close(trees(x), Direct(trees)(x))
