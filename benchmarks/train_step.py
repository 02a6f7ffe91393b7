"""``python -m benchmarks.train_step``: a training step of soft trees against what the machine's matrix multiply allows.

A step is forward, backward and Adam. ``matmul_s`` is what the products of the step alone take in ``torch.matmul``,
those that are computed again left out; the direct form is two ``baddbmm`` and two ``tanh`` under autograd. Times are
medians of interleaved runs in one process. Memory is that of a process of its own, above what it held before, with the
code loaded: weights, gradients, Adam's state, rows and activations.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import torch
import typer
from torch import Tensor, nn

from benchmarks.command import command
from benchmarks.stored import add
from windtunnel.errors import BadInput
from windtunnel.modules.trees.soft.kernel.memory import WORTH_THREADS, set_budget
from windtunnel.modules.trees.soft.trees import LEVELS, SoftTrees

FORMS = ("ours", "direct")
PRODUCT_UNITS = 256
"""Nodes that the products are measured on at once, so that they too work in caches."""

Step = Callable[[], None]
app = command()


@dataclass(frozen=True)
class Settings:
    """What a step is measured on."""

    trees: int
    leaves: int
    features: int
    batch: int
    level: str
    dropout: float
    threads: int
    device: str


@app.callback()
def main(
    trees: Annotated[int, typer.Option(min=1)] = 100,
    leaves: Annotated[int, typer.Option(min=2)] = 64,
    features: Annotated[int, typer.Option(min=1)] = 112,
    batch: Annotated[int, typer.Option(min=1)] = 4096,
    level: Annotated[str, typer.Option(help=", ".join(LEVELS[1:]))] = "L4",
    dropout: Annotated[float, typer.Option(min=0, max=0.9)] = 0.0,
    threads: Annotated[int, typer.Option(min=1)] = os.cpu_count() or 1,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    repeats: Annotated[int, typer.Option(min=1, help="Steps of each form.")] = 7,
    direct: Annotated[bool, typer.Option(help="Measure the direct form too.")] = True,
    budget_mb: Annotated[int | None, typer.Option(min=1, help="For activations; by default half of what is free.")] = (
        None
    ),
    as_json: Annotated[bool, typer.Option("--json", help="One line of JSON.")] = False,
    output: Annotated[Path | None, typer.Option(help="A file of JSON lines, for figures.")] = None,
    peak_of: Annotated[str | None, typer.Option(help="Only the peak memory of ours or direct.")] = None,
) -> None:
    """Seconds and memory of one training step of soft trees."""
    if level not in LEVELS[1:]:
        raise BadInput(f"--level {level}; choose from {', '.join(LEVELS[1:])}")
    settings = Settings(trees, leaves, features, batch, level, dropout, threads, device)
    torch.set_num_threads(threads)
    set_budget(None if budget_mb is None else budget_mb * 2**20)
    if peak_of is not None:
        if peak_of not in FORMS:
            raise BadInput(f"--peak-of {peak_of}; choose from {', '.join(FORMS)}")
        typer.echo(json.dumps(peak(settings, peak_of, repeats)))
        return
    result = {**times(settings, repeats, direct=direct), **peaks(direct=direct), **asdict(settings)}
    if output is not None:
        add(output, result)
    if as_json:
        typer.echo(json.dumps(result))
    else:
        for name, value in result.items():
            typer.echo(f"{name:20} {value}")


def times(settings: Settings, repeats: int, *, direct: bool) -> dict[str, float | None]:
    """Medians of interleaved runs."""
    runs = {"step_s": step(settings, "ours"), "matmul_s": matmul(settings)}
    if direct:
        runs["direct_s"] = step(settings, "direct")
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for repeat in range(repeats + 1):  # the first is a warm-up
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            if settings.device == "cuda":
                torch.cuda.synchronize()
            if repeat:
                seconds[name].append(time.perf_counter() - start)
    mid = {name: median(each) for name, each in seconds.items()}
    return {
        **mid,
        "samples_per_s": settings.batch / mid["step_s"],
        "ratio_to_matmul": mid["step_s"] / mid["matmul_s"],
        "direct_s": mid.get("direct_s"),
        "speedup_over_direct": mid["direct_s"] / mid["step_s"] if direct else None,
    }


def peaks(*, direct: bool) -> dict[str, float | None]:
    """Peak memory of both forms, each in a process started with our own arguments."""
    measured = {}
    for form in FORMS[: 1 + direct]:
        command = [sys.executable, "-m", "benchmarks.train_step", *sys.argv[1:], "--peak-of", form]
        done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=Path(__file__).parents[1])
        measured[form] = json.loads(done.stdout)
    return {
        "peak_mb": measured["ours"]["peak_mb"],
        "process_mb": measured["ours"]["process_mb"],
        "direct_peak_mb": measured["direct"]["peak_mb"] if direct else None,
    }


def peak(settings: Settings, form: str, repeats: int) -> dict[str, float]:
    """The most memory held while steps run, in MiB: above what the process held before them, and in all."""
    if settings.device == "cuda":
        run = step(settings, form)
        for _ in range(repeats):
            run()
        most = torch.cuda.max_memory_allocated() / 2**20
        return {"peak_mb": most, "process_mb": most}
    # Loads code and starts all threads, with little memory; soft trees share out only what is not too small.
    enough = WORTH_THREADS // (settings.threads * settings.leaves) + 1
    step(replace(settings, trees=settings.threads, features=1, batch=enough), form)()
    before = resident("VmRSS")
    run = step(settings, form)
    for _ in range(repeats):
        run()
    most = max(resident("VmHWM"), before)  # Linux updates both late, so that the peak can lag behind
    return {"peak_mb": most - before, "process_mb": most}


def resident(field: str) -> float:
    """MiB of this process, by the name that Linux gives it: VmRSS now, VmHWM at most."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024


def step(settings: Settings, form: str) -> Step:
    """Forward, backward and Adam on one batch."""
    torch.manual_seed(0)
    x = torch.randn(settings.batch, settings.features, device=settings.device)
    target = (x[:, :1] > 0).float()
    net = random_trees(settings)
    score: Callable[[Tensor], Tensor] = net if form == "ours" else Direct(net)
    optimizer = torch.optim.Adam([one for one in net.parameters() if one.requires_grad], lr=1e-4, fused=True)

    def run() -> None:
        optimizer.zero_grad()
        nn.functional.binary_cross_entropy_with_logits(score(x), target).backward()
        optimizer.step()

    return run


class Direct:
    """The same trees as two batched products and two tanh, as they would be written down; without dropout."""

    def __init__(self, net: SoftTrees) -> None:
        self.net = net
        feature = nn.functional.one_hot(net.feature, net.center.shape[0]).to(net.center.dtype)
        self.weight = net.node_weight if net.depth >= 3 else feature.transpose(1, 2).contiguous()

    def __call__(self, x: Tensor) -> Tensor:
        """Scores ``[B, 1]``."""
        net = self.net
        rows = x.expand(len(self.weight), *x.shape)
        slope = net.slope.unsqueeze(1)
        node = torch.tanh(torch.baddbmm(-net.threshold.unsqueeze(1) * slope, rows, self.weight * slope))
        steep = net.leaf_slope.unsqueeze(1)
        leaf = torch.tanh(torch.baddbmm(net.path_bias.unsqueeze(1) * steep, node, net.path * steep))
        value = net.leaf_value.unsqueeze(2) / 2
        return torch.baddbmm(value.sum(dim=1, keepdim=True), leaf, value).sum(dim=0) + net.base


def matmul(settings: Settings) -> Step:
    """The matrix products of a step, none of them twice."""
    kind: dict[str, Any] = {"device": settings.device}
    depth = LEVELS.index(settings.level)
    at_once = max(1, min(settings.trees, PRODUCT_UNITS // settings.leaves))
    nodes = settings.leaves - 1
    z = torch.randn(settings.batch, settings.features, **kind)
    weight = torch.randn(settings.features, at_once * nodes, **kind)
    node = torch.randn(at_once, settings.batch, nodes, **kind)
    path = torch.randn(at_once, nodes, settings.leaves, **kind)
    first, leaf = z @ weight, node @ path

    def run() -> None:
        left = settings.trees
        while left > 0:
            now = min(at_once, left)
            left -= now
            if depth >= 3:
                torch.matmul(z, weight[:, : now * nodes], out=first[:, : now * nodes])
                torch.matmul(z.t(), first[:, : now * nodes])
            torch.matmul(node[:now], path[:now], out=leaf[:now])
            if depth >= 2:
                torch.matmul(leaf[:now], path[:now].transpose(1, 2), out=node[:now])
            if depth >= 4:
                torch.matmul(node[:now].transpose(1, 2), leaf[:now])

    return run


def random_trees(settings: Settings) -> SoftTrees:
    """Trees that split a random leaf until there are enough, at random thresholds."""
    nodes = settings.leaves - 1
    random = torch.Generator().manual_seed(0)
    path = torch.zeros(settings.trees, nodes, settings.leaves)
    for tree in path:
        for node in range(nodes):
            leaf = int(torch.randint(node + 1, (), generator=random))
            tree[:, node + 1] = tree[:, leaf]
            tree[node, leaf], tree[node, node + 1] = -1.0, 1.0
    feature = torch.randint(settings.features, (settings.trees, nodes), generator=random)
    dense = settings.level in LEVELS[3:]
    weight = nn.functional.one_hot(feature, settings.features).float().transpose(1, 2) if dense else torch.zeros(0)
    return SoftTrees(
        center=torch.zeros(settings.features), scale=torch.ones(settings.features),
        bound=torch.tensor([-1e6, 1e6]).unsqueeze(1).repeat(1, settings.features), feature=feature,
        threshold=torch.randn(settings.trees, nodes, generator=random), slope=torch.full((settings.trees, nodes), 5.0),
        missing=torch.zeros(settings.trees, nodes, dtype=torch.int8), direction=torch.ones(settings.trees, nodes),
        node_weight=weight.contiguous(), path=path, path_bias=1 - path.abs().sum(dim=1),
        leaf_slope=torch.full((settings.trees, settings.leaves), 3.0), node_mask=torch.ones(settings.trees, nodes),
        leaf_mask=torch.ones(settings.trees, settings.leaves), category_node=torch.zeros(0, dtype=torch.int64),
        category_table=torch.zeros(0, 2), base=torch.zeros(1), level=settings.level, dropout=settings.dropout,
        leaf_value=torch.randn(settings.trees, settings.leaves, generator=random) / 10,
        output=torch.zeros(settings.trees, dtype=torch.int64),
    ).to(settings.device)  # fmt: skip


if __name__ == "__main__":
    app()
