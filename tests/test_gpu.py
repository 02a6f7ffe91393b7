"""What a GPU computes is what a CPU computes. Nothing here runs without a GPU."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from case import Case
from cases import CASES, parametrized
from lightgbm import LGBMClassifier, LGBMRegressor
from parity import assert_case, compiled
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import windtunnel
from windtunnel.errors import InvalidOption, UnfaithfulOption
from windtunnel.trainers.loop.compiled import MODES

if not torch.cuda.is_available():
    pytest.skip("no GPU", allow_module_level=True)

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(3000, 6)).astype(np.float32)
X[:, 5] = RANDOM.integers(0, 8, len(X))
SIGNAL = X[:, 0] * X[:, 1] + X[:, 2] + np.isin(X[:, 5], (1, 4, 6))
TARGETS = {"binary": (SIGNAL > 0).astype(int), "multiclass": np.digitize(SIGNAL, (-0.5, 1)), "regression": SIGNAL}
TREES: dict[str, Any] = {"n_estimators": 10, "num_leaves": 8, "random_state": 0, "n_jobs": 1, "verbosity": -1}


def parts(task: str) -> tuple[Any, Any]:
    y = TARGETS[task]
    return (X[:2000], y[:2000]), (X[2000:], y[2000:])


def trees(task: str) -> Any:
    return (LGBMRegressor if task == "regression" else LGBMClassifier)(**TREES).fit(*parts(task)[0])


@parametrized()
def test_the_outputs_are_those_of_the_source(case: Case) -> None:
    assert_case(case, compiled(case.id, device="cuda"))


@pytest.mark.parametrize("backend", ["torch", "torchscript"])
@pytest.mark.parametrize("strategy", ["gemm", "tree_traversal", "perfect_tree_traversal"])
def test_the_strategies_give_what_the_source_gives(backend: str, strategy: str) -> None:
    case = CASES["trees of three classes"]
    net = windtunnel.compile(case.fitted(), backend=backend, strategy=strategy, device="cuda")
    np.testing.assert_allclose(net.predict_proba(case.rows()), case.fitted().predict_proba(case.rows()), 1e-9)


def test_onnx_runs_on_the_cpu_only() -> None:
    with pytest.raises(InvalidOption, match="backend='onnx' runs on the CPU"):
        windtunnel.compile(CASES["trees alone"].fitted(), backend="onnx", device="cuda")


@pytest.mark.filterwarnings("ignore:The CUDA Graph is empty")
@parametrized()
def test_cuda_graphs_give_what_the_source_gives(case: Case) -> None:
    try:
        net = compiled(case.id, device="cuda", backend="cudagraphs")
    except (InvalidOption, UnfaithfulOption):
        return  # rows that depend on one another, and what neither torch.export nor a CUDA graph takes
    assert_case(case, net)


def fitted(source: Any, task: str, accelerator: str, level: str = "L4", **options: Any) -> windtunnel.Translation:
    train, valid = parts(task)
    net = windtunnel.translate(source, level=level, calibrate=train[0])
    return net.fit(train, valid, accelerator=accelerator, progress=False, **options)


def check_as_on_cpu(source: Any, task: str, level: str = "L4", **options: Any) -> None:
    """The same epochs, decision and predictions, up to rounding; and a net that is used on a CPU afterwards."""
    here, there = (fitted(source, task, one, level, **options) for one in ("cpu", "gpu"))
    assert {one.device.type for one in there.program.buffers()} == {"cpu"}
    for one, other in zip(here.history.epochs, there.history.epochs, strict=True):
        assert other.val_loss == pytest.approx(one.val_loss, rel=1e-3)
    names = [[candidate.name for candidate in one.history.candidates if candidate.kept] for one in (here, there)]
    assert names[0] == names[1]
    method = "predict" if task == "regression" else "predict_proba"
    rows = X[2000:]
    # A row beside a threshold may change its side by rounding, and its score with it.
    assert np.abs(getattr(there, method)(rows) - getattr(here, method)(rows)).mean() < 1e-3
    again = pickle.loads(pickle.dumps(there))
    np.testing.assert_array_equal(getattr(again, method)(rows), getattr(there, method)(rows))
    on_gpu = copy.deepcopy(there).to("cuda")
    np.testing.assert_allclose(getattr(on_gpu, method)(rows), getattr(there, method)(rows), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("task", TARGETS)
def test_the_default_fit(task: str) -> None:
    check_as_on_cpu(trees(task), task)


@pytest.mark.parametrize("level", ["L1", "L2", "L3", "L4"])
def test_joint_training(level: str) -> None:
    # Rounding decides between epochs of nearly the same AUC; the loss falls from epoch to epoch.
    options: dict[str, Any] = {"recipe": "joint", "epochs": 3, "dropout": 0.0, "metric": "log_loss"}
    check_as_on_cpu(trees("binary"), "binary", level, **options)


@pytest.mark.parametrize("task", ["binary", "multiclass"])
def test_a_linear_pipeline(task: str) -> None:
    source = make_pipeline(StandardScaler(), LogisticRegression()).fit(*parts(task)[0])
    check_as_on_cpu(source, task)
    check_as_on_cpu(source, task, recipe="joint", epochs=3, dropout=0.0)


def test_joint_training_and_a_residual_model() -> None:
    check_as_on_cpu(trees("binary"), "binary", joint=True, max_steps=60, val_check_interval=20, dropout=0.0)


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("recipe", ["default", "joint"])
@pytest.mark.parametrize("mode", MODES)
def test_compiled_steps(mode: str, recipe: str) -> None:
    options: dict[str, Any] = {"recipe": recipe, "epochs": 3, "batch_size": 300}
    plain = fitted(trees("binary"), "binary", "gpu", "L2", **options)
    ours = fitted(trees("binary"), "binary", "gpu", "L2", compile=mode, **options)
    for one, other in zip(plain.history.epochs, ours.history.epochs, strict=True):
        assert other.val_loss == pytest.approx(one.val_loss, rel=1e-3)


def test_a_run_resumes_from_its_checkpoint(tmp_path: Path) -> None:
    options: dict[str, Any] = {"recipe": "joint", "learning_rate": 1e-3, "schedule": "constant"}
    whole = fitted(trees("binary"), "binary", "gpu", epochs=4, **options)
    fitted(trees("binary"), "binary", "gpu", epochs=2, checkpoint_dir=tmp_path, **options)
    again = fitted(trees("binary"), "binary", "gpu", epochs=4, resume_from=tmp_path / "last.ckpt", **options)
    np.testing.assert_allclose(again.predict_proba(X[2000:]), whole.predict_proba(X[2000:]), atol=1e-5)


def test_two_equal_runs_give_equal_bits() -> None:
    for options in ({}, {"recipe": "joint", "epochs": 2}):
        one, other = (fitted(trees("binary"), "binary", "gpu", **options) for _ in range(2))
        np.testing.assert_array_equal(other.predict_proba(X), one.predict_proba(X))


@pytest.mark.parametrize("valid", [None, X[:500]], ids=["no rows", "rows"])
def test_hard_trees_of_a_net_on_the_gpu(valid: Any) -> None:
    soft = windtunnel.translate(trees("binary"), level="L2", calibrate=X).soften().to("cuda")
    hard = soft.harden(valid)
    assert hard.device() == soft.device()
    on_cpu = soft.cpu().harden(valid)
    np.testing.assert_allclose(hard.predict_proba(X), on_cpu.predict_proba(X), rtol=1e-6, atol=1e-6)
