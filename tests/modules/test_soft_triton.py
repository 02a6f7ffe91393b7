"""Triton kernels of soft trees give what straight torch gives: on a GPU, or in Triton's interpreter without one."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from benchmarks.train_step import Settings, random_trees
from windtunnel.errors import BadInput
from windtunnel.modules.trees import SoftTrees
from windtunnel.modules.trees.soft.gpu import launch
from windtunnel.modules.trees.soft.kernel import tree_pass
from windtunnel.modules.trees.soft.kernel.operands import LEARNED, Dropout, SoftOperands
from windtunnel.modules.trees.soft.kernel.slices import backward, forward

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cpu" and find_spec("triton") is not None:
    import_module("triton.experimental.gluon")  # calls of kernels import it, which fails in the interpreter
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_INTERPRET", "1")
        import_module("windtunnel.modules.trees.soft.gpu.triton_kernels")

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered in exp")  # the sigmoid of the interpreter, 0 there
needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")
WHOLE = Dropout(0.0, 0, False)
SMALL = Settings(trees=3, leaves=6, features=20, batch=21, level="L4", dropout=0.0, threads=1, device="cpu")
USUAL = replace(SMALL, trees=2, leaves=64, features=112)
# Sums of tens of float32 products, times the slopes: 5 of a node, 3 of a leaf, 2 for each sigmoid.
ROUNDING = 256 * torch.finfo(torch.float32).eps
LEVELS = ["L1", "L2", "L3", "L4"]


@pytest.fixture(params=[1, 1024], ids=["few programs", "many programs"])
def cut(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks that rows and columns overrun, with sums over them in one program or in many."""
    monkeypatch.setitem(launch.ROWS, "float32", 16)
    monkeypatch.setitem(launch.ROWS, "bf16", 16)
    monkeypatch.setattr(launch, "COLUMNS", 16)
    monkeypatch.setattr(launch, "SUMMED", 16)
    monkeypatch.setattr(launch, "WEIGHTS", dict.fromkeys(launch.PRODUCTS, 0))
    monkeypatch.setattr(launch, "PROGRAMS", request.param)


def operands(of: Settings, *, scores: int = 1, missing: bool = False, categories: int = 0) -> SoftOperands:
    """Of random trees and rows; scores 0 for the leaves themselves; missing: nodes whose values are missing.

    With categories, every third node looks up one of so many.
    """
    random = torch.Generator().manual_seed(0)
    trees = random_trees(of)
    x = torch.randn(of.batch, of.features, generator=random)
    value = torch.randn(of.trees, of.leaves, scores, generator=random) if scores else torch.zeros(0)
    if missing:
        kinds = torch.arange(trees.missing.numel()).view(trees.missing.shape) % 3
        trees.missing, trees.any_missing = kinds.to(torch.int8), True
        trees.direction = torch.randn(trees.direction.shape, generator=random).sign()
        x[torch.rand(x.shape, generator=random) < 0.2] = torch.nan
        x[torch.rand(x.shape, generator=random) < 0.2] = 0.0
    of_trees = trees.operands(x, value)
    if categories:
        node = torch.arange(0, of_trees.feature.numel(), 3)
        table = torch.randn(len(node), categories + 2, generator=random)
        codes = torch.randint(-1, categories + 2, x.shape, generator=random).to(x.dtype)
        codes[torch.rand(x.shape, generator=random) < 0.1] = torch.nan
        of_trees = of_trees._replace(x=codes, category_node=node, category_table=table)
    # Weights that a start from trees leaves at 0 or alike would hide terms.
    noisy = {name: getattr(of_trees, name) for name in ("weight", "path", "path_bias", "slope", "leaf_slope")}
    noisy = {name: one + torch.randn(one.shape, generator=random) / 10 for name, one in noisy.items()}
    return SoftOperands(*(one.detach().to(DEVICE) for one in of_trees._replace(**noisy)))


def exact(of: SoftOperands) -> SoftOperands:
    return SoftOperands(*(one.cpu().double() if one.is_floating_point() else one.cpu() for one in of))


def check(of: SoftOperands, wanted: list[bool], dropout: Dropout = WHOLE) -> None:
    """Against straight torch in float64, whose gradients ``test_soft_kernel`` holds against numerical ones."""
    expected = forward(exact(of), dropout)
    grad = torch.randn(expected.shape, generator=torch.Generator().manual_seed(1))
    found = [
        launch.forward(of, dropout, "float32"),
        *launch.backward(grad.to(DEVICE), of, dropout, wanted, "float32"),
    ]
    for name, one, other in zip(
        ("scores", *LEARNED), found, (expected, *backward(grad.double(), exact(of), dropout, wanted)), strict=True
    ):
        largest = float(other.abs().max()) if other.numel() else 0.0
        torch.testing.assert_close(
            one.cpu().double(), other, rtol=0, atol=ROUNDING * largest, msg=lambda text, name=name: f"{name}: {text}"
        )


def wishes(of: SoftOperands, *names: str) -> list[bool]:
    names = names or tuple(name for name in LEARNED if getattr(of, name).numel())
    return [name in names for name in LEARNED]


@needs_triton
@pytest.mark.usefixtures("cut")
@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("scores", [0, 17])
@pytest.mark.parametrize("level", ["L2", "L4"])
def test_scores_leaves_and_all_gradients_are_those_of_straight_torch(level: str, scores: int, missing: bool) -> None:
    of = operands(replace(SMALL, level=level), scores=scores, missing=missing)
    check(of, wishes(of))


@needs_triton
@pytest.mark.usefixtures("cut")
@pytest.mark.parametrize("scores", [0, 2])
@pytest.mark.parametrize("level", ["L2", "L4"])
def test_categories_are_looked_up_and_their_table_learns(level: str, scores: int) -> None:
    of = operands(replace(SMALL, level=level), scores=scores, categories=5)
    wanted = wishes(of)
    assert wanted[LEARNED.index("category_table")]
    check(of, wanted)
    check(of, wishes(of, "category_table"))


@needs_triton
@pytest.mark.usefixtures("cut")
@pytest.mark.parametrize("leaves", [17, 40])
def test_leaves_come_in_blocks(leaves: int) -> None:
    of = operands(replace(SMALL, leaves=leaves), scores=2, missing=True)
    check(of, wishes(of))
    check(operands(replace(SMALL, leaves=leaves, level="L2"), scores=0, categories=3), wishes(of, "z", "threshold"))


@needs_triton
@pytest.mark.usefixtures("cut")
@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("scores", [0, 2])
def test_dropout_takes_what_it_takes_in_straight_torch(
    whole: bool, scores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Straight torch in float64 would draw other numbers than float32.
    drawn = torch.rand(SMALL.trees, 2 * 20, 2, generator=torch.Generator().manual_seed(3)).to(DEVICE) >= 0.4
    for module in (tree_pass, launch):
        monkeypatch.setattr(module, "dropout_mask", lambda of, part, dropout: drawn[part].to(of.z.device))
    of = operands(replace(SMALL, leaves=20, batch=23), scores=scores, missing=True)
    assert 0.1 < float((forward(of, Dropout(0.4, 1, whole)) - forward(of, WHOLE)).abs().max())
    check(of, wishes(of), Dropout(0.4, 1, whole))


@needs_triton
def test_what_is_dropped_is_drawn_from_the_seed_as_in_straight_torch() -> None:
    of = operands(replace(SMALL, batch=70))
    one, other = (forward(of, Dropout(0.5, seed, False)) for seed in (7, 8))
    found = launch.forward(of, Dropout(0.5, 7, False), "float32")
    torch.testing.assert_close(found, one, rtol=0, atol=ROUNDING * float(one.abs().max()))
    assert float((found - other).abs().max()) > 0.1


@needs_triton
@pytest.mark.parametrize("level", LEVELS)
def test_the_usual_shape(level: str) -> None:
    of = operands(replace(USUAL, level=level))
    check(of, wishes(of))


class Rounded(torch.autograd.Function):
    """A product whose factors are bf16, forward and backward."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        ctx.save_for_backward(a, b)
        return a.bfloat16().float() @ b.bfloat16().float()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        (a, b), grad = (one.bfloat16().float() for one in ctx.saved_tensors), grad.bfloat16().float()
        return grad @ b.transpose(-1, -2), a.transpose(-1, -2) @ grad


@needs_triton
@pytest.mark.parametrize("shape", [SMALL, USUAL], ids=["small", "usual"])
def test_bf16_rounds_the_factors_of_products_and_nothing_else(shape: Settings) -> None:
    of = operands(shape, scores=3)
    z, weight, threshold, path, bias, value = learned = [
        getattr(of, name).clone().requires_grad_() for name in LEARNED[:-1]
    ]
    product = Rounded.apply
    total = product(z.expand(shape.trees, *z.shape), weight) - threshold.unsqueeze(1)
    leaf = product(torch.tanh(total * of.slope.unsqueeze(1)), path) + bias.unsqueeze(1)
    reach = torch.sigmoid(leaf * of.leaf_slope.unsqueeze(1) * 2)
    expected = product(reach, 2 * value).sum(dim=0).t()
    grad = torch.randn(expected.shape, generator=torch.Generator().manual_seed(1)).to(DEVICE)
    gradients = torch.autograd.grad(expected, learned, grad)
    found = [launch.forward(of, WHOLE, "bf16"), *launch.backward(grad, of, WHOLE, wishes(of), "bf16")[:-1]]
    plain = launch.forward(of, WHOLE, "float32")
    for one, other in zip(found, (expected, *gradients), strict=True):
        # What the two round lies a float32 rounding apart, so that a few factors end on the other side.
        other = other.detach()
        torch.testing.assert_close(one, other, rtol=0, atol=2e-3 * float(other.abs().max()))
    assert (expected - plain).abs().max() > 4 * (expected - found[0]).abs().max()


@needs_triton
@pytest.mark.parametrize("only", ["z", "weight", "threshold", "path", "path_bias", "leaf_value"])
def test_a_gradient_alone_is_the_same_as_among_all(only: str) -> None:
    of = operands(SMALL)
    check(of, wishes(of, only))


@needs_triton
@pytest.mark.parametrize("products", ["float32", "bf16"])
def test_the_same_rows_give_the_same_bits(products: str) -> None:
    of = operands(USUAL)
    grad = torch.randn(1, USUAL.batch).to(DEVICE)
    one, other = (launch.backward(grad, of, WHOLE, wishes(of), products) for _ in range(2))
    assert all(torch.equal(*pair) for pair in zip(one, other, strict=True))


@needs_triton
@pytest.mark.parametrize("level", LEVELS)
def test_asked_for_it_trains_modules(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    trees: SoftTrees = random_trees(replace(SMALL, level=level)).to(DEVICE)
    x = torch.randn(SMALL.batch, SMALL.features, generator=torch.Generator().manual_seed(2)).to(DEVICE)
    learned = [one for one in trees.parameters() if one.requires_grad and one.numel()]

    def step() -> list[Tensor]:
        scores = trees(x)
        return [scores, *torch.autograd.grad(scores.square().sum(), learned)]

    expected = step()
    monkeypatch.setenv(launch.SWITCH, "float32")
    calls: list[str] = []
    plain = launch.forward
    monkeypatch.setattr(launch, "forward", lambda *given: (calls.append("triton"), plain(*given))[1])
    for one, other in zip(step(), expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    assert calls == ["triton"]


@needs_triton
def test_what_does_not_fit_goes_to_straight_torch_and_the_log_says_why(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(launch.SWITCH, "bf16")
    launch._log_once.cache_clear()
    of = operands(SMALL)
    assert launch.takes(of)
    with caplog.at_level(logging.INFO, "windtunnel"):
        assert not launch.takes(exact(of))
        assert not launch.takes(of._replace(z=of.z[:0]))
        assert not launch.takes(operands(replace(SMALL, trees=1, leaves=258)))
    for reason in ("float64", "nothing to compute", "257 nodes, more than 256"):
        assert reason in caplog.text


def test_unasked_it_is_not_there_and_what_is_asked_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    of = operands(SMALL)
    monkeypatch.delenv(launch.SWITCH, raising=False)
    assert not launch.takes(of)
    monkeypatch.setenv(launch.SWITCH, "tf32")
    with pytest.raises(BadInput, match="WINDTUNNEL_TRITON=tf32; set it to float32 or bf16"):
        launch.takes(of)
    monkeypatch.setenv(launch.SWITCH, "bf16")
    monkeypatch.setattr(launch, "find_spec", lambda name: None)
    with pytest.raises(BadInput, match="needs triton, which is not installed"):
        launch.takes(of)


COMPILES = """
import torch, triton
from triton.backends.compiler import GPUTarget
from benchmarks.train_step import Settings, random_trees
from windtunnel.modules.trees.soft.gpu import launch, triton_kernels as kernels
from windtunnel.modules.trees.soft.kernel.operands import Dropout

class Pretended:
    def get_current_device(self): return 0
    def get_current_stream(self, device=None): return 0
    def get_current_target(self): return GPUTarget("cuda", 90, 32)

triton.runtime.driver.set_active(Pretended())
out = torch.zeros(1)
for level, scored, dropout in (("L4", True, 0.5), ("L2", False, 0.0)):
    trees = random_trees(Settings(2, 6, 20, 37, level, 0.0, 1, "cpu"))
    trees.any_missing = True
    of = trees.operands(torch.zeros(37, 20), torch.zeros(2, 6, 1) if scored else torch.zeros(0))
    of = of._replace(category_node=torch.tensor([1]), category_table=torch.zeros(1, 5))
    given, size, form = launch._prepared(of, Dropout(dropout, 0, False), "bf16")
    own = form._replace(WEIGHT=level == "L4", THRESHOLD=True, PATH=level == "L4", VALUE=scored, TABLE=True)
    parts = kernels.GradientParts(out, out, out, out, out, out)
    for built in (
        kernels.scores_kernel.warmup(given, out, size, 1, form, grid=(1,), num_warps=launch.WARPS),
        kernels.weights_kernel.warmup(given, out, parts, size, 1, own, grid=(1,), num_warps=launch.WARPS),
        kernels.input_kernel.warmup(given, out, out, size, 1, form, grid=(1,), num_warps=launch.WARPS),
    ):
        assert "mma" in built.asm["ptx"], built.asm["ptx"]
        print(built.metadata.name)
"""


@needs_triton
@pytest.mark.skipif(DEVICE == "cuda", reason="the other tests compile them")
def test_kernels_compile_for_a_gpu_that_is_not_there(tmp_path: Path) -> None:
    environment = {name: one for name, one in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", COMPILES], env={**environment, "TRITON_CACHE_DIR": str(tmp_path)},
        cwd=Path(__file__).parents[2], capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["scores_kernel", "weights_kernel", "input_kernel"] * 2
