"""How fast soft trees score: the plain form, the module as it is, and what ``condense`` makes of it.

    python -m benchmarks.soft_inference [--quick] [--json]

A LightGBM model (100 trees of 64 leaves, 28 columns) is translated at L4 and moved by a few steps of Adam. The forms
score the same 4,096 rows in turns; a line for each has the median and the least time, and the median over the turns
of the plain form's time over its own. Of a machine that does other work, the least times say more.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import numpy as np
import torch
from lightgbm import LGBMClassifier
from torch import Tensor

import windtunnel
from windtunnel.modules.trees import SoftTrees

GROUP = 4


def plain(trees: SoftTrees, x: Tensor) -> Tensor:
    """The two layers written straight: two batched products and two tanh for every four trees."""
    z = (x - trees.center) / trees.scale
    path, value = trees.path * trees.path_mask(), trees.masked_values()
    scores = value.sum(dim=[0, 1]).expand(len(x), value.shape[2])
    for first in range(0, len(path), GROUP):
        part = slice(first, first + GROUP)
        slope, leaf_slope = trees.slope[part].unsqueeze(1), trees.leaf_slope[part].unsqueeze(1)
        weight, rows = trees.node_weight[part] * slope, z.unsqueeze(0).expand(len(slope), *z.shape)
        node = torch.tanh(torch.baddbmm(-trees.threshold[part].unsqueeze(1) * slope, rows, weight))
        leaf = torch.tanh(torch.baddbmm(trees.path_bias[part].unsqueeze(1) * leaf_slope, node, path[part] * leaf_slope))
        scores = scores + torch.bmm(leaf, value[part]).sum(dim=0)
    return scores + trees.base


def model(trees: int, rows: int) -> tuple[windtunnel.Translation, np.ndarray, np.ndarray]:
    """An L4 translation after a few steps, and rows that it has not seen with their targets."""
    draw = np.random.default_rng(0)
    x = draw.normal(size=(3 * rows, 28)).astype(np.float32)
    y = x[:, 0] * x[:, 1] + x[:, 2] + 0.5 * draw.normal(size=len(x)) > 0
    fitted = LGBMClassifier(n_estimators=trees, num_leaves=64, verbose=-1, n_jobs=2).fit(x[:rows], y[:rows])
    net = windtunnel.translate(fitted, level="L4", calibrate=x[:3000])
    optimizer = torch.optim.Adam([one for one in net.parameters() if one.requires_grad], 1e-4)
    batch, target = net.encode(x[:4096]), torch.from_numpy(y[:4096]).float()
    for _ in range(10):
        optimizer.zero_grad()
        torch.nn.functional.binary_cross_entropy_with_logits(net(*batch)[:, 0], target).backward()
        optimizer.step()
    return net, x[rows:], y[rows:]


def measured(forms: dict[str, Callable[[], Tensor]], turns: int) -> list[dict[str, object]]:
    """Each form in turn."""
    seconds: dict[str, list[float]] = {name: [] for name in forms}
    with torch.inference_mode():
        for turn in range(turns + 2):
            for name, form in forms.items():
                start = time.perf_counter()
                form()
                if turn >= 2:
                    seconds[name].append(time.perf_counter() - start)
    base = seconds["plain"]
    return [
        {
            "form": name,
            "median_s": statistics.median(own),
            "least_s": min(own),
            "speedup": statistics.median(first / second for first, second in zip(base, own, strict=True)),
            "speedup_of_least": min(base) / min(own),
        }
        for name, own in seconds.items()
    ]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="8 trees and 3 turns")
    parser.add_argument("--json", action="store_true", help="a JSON line for each form")
    parser.add_argument("--threads", type=int, default=2)
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    net, x, y = model(8 if asked.quick else 100, 5000 if asked.quick else 10_000)
    trees: SoftTrees = net.program.steps[-1].module  # type: ignore[assignment]
    rows = torch.from_numpy(x[:4096])
    forms: dict[str, Callable[[], Tensor]] = {"plain": lambda: plain(trees, rows), "module": lambda: trees(rows)}
    notes = {}
    judged = (x[4096:8192], y[4096:8192])
    for tolerance, precision in ((0.01, "auto"), (0.02, "float32"), (0.02, "bfloat16"), (0.02, "auto")):
        small = net.condense(judged, tolerance=tolerance, precision=precision)
        name = f"condensed, tolerance {tolerance}, {precision}"
        forms[name] = lambda form=small.program.steps[-1].module: form(rows)  # type: ignore[misc]
        notes[name] = str(small.condensing)
    for line in measured(forms, 3 if asked.quick else 15):
        name = str(line["form"])
        if asked.json:
            print(json.dumps({**line, "threads": asked.threads, "change": notes.get(name)}))
        else:
            print(f"{name}: {line['median_s']:.4f} s, {line['speedup']:.2f} x; least {line['least_s']:.4f} s, "
                  f"{line['speedup_of_least']:.2f} x. {notes.get(name, '')}")  # fmt: skip


if __name__ == "__main__":
    main()
