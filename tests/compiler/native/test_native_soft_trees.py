"""Soft trees natively: as near to float64 as torch's float32."""

import copy

import lightgbm as lgb
import numpy as np
import pytest
import torch

import windtunnel
from windtunnel.compiler.native.build import library
from windtunnel.compiler.native.image import ImageWriter
from windtunnel.compiler.native.lowering import lower
from windtunnel.modules.trees.soft.trees import SoftTrees

GENERATOR = np.random.default_rng(0)
X = GENERATOR.normal(size=(300, 5))
X[::7, 0], X[::5, 1] = np.nan, 0.0
Y = np.nan_to_num(X[:, 0]) * X[:, 1] + (X[:, 2] > 0)


@pytest.mark.parametrize("count", [1, 17, 300])
@pytest.mark.parametrize(("level", "options"), [("L2", {}), ("L4", {}), ("L4", {"zero_as_missing": True})])
def test_scores(count: int, level: str, options: dict[str, bool]) -> None:
    booster = lgb.LGBMRegressor(n_estimators=7, num_leaves=9, min_child_samples=5, verbosity=-1, n_jobs=1, **options)
    net = windtunnel.translate(booster.fit(X, Y), level=level, calibrate=X).soften()
    trees = next(step.module for step in net.program.steps if isinstance(step.module, SoftTrees)).eval()
    x, image = torch.from_numpy(X[:count]), ImageWriter(X.shape[1], 0)
    program = library().Program(image.image(lower(trees, image, image.numbers, x.dtype)))
    output = torch.empty(count, 1, dtype=torch.float64)
    program.run(x.numpy(), np.empty((count, 0), np.int64), output.numpy())
    with torch.no_grad():
        single, exact = trees(x).double(), copy.deepcopy(trees).double().plain_scores(x) + trees.base
    assert float((output - exact).abs().max()) <= 2 * float((single - exact).abs().max()) + 1e-5
