"""Steps through ``torch.compile``: the losses and weights of those without it, and nothing of it left behind."""

from __future__ import annotations

import gc
import pickle
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from lightgbm import LGBMClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from torch._dynamo.utils import counters
from torch._inductor import config

import windtunnel
from windtunnel.api.translation import Translation
from windtunnel.errors import BadInput
from windtunnel.modules.tables import large_tables

RNG = np.random.default_rng(0)
X = RNG.normal(size=(1000, 6)).astype(np.float32)
Y = (X[:, 0] * X[:, 1] + X[:, 2] > 0).astype(int)
TRAIN, VALID = (X[:700], Y[:700]), (X[700:], Y[700:])
QUIET: dict[str, Any] = {"accelerator": "cpu", "progress": False}


class Weights(pl.Callback):
    """The weights after each step, beside a pipeline too, where ``fit`` may drop them in the end."""

    def __init__(self) -> None:
        self.after: list[dict[str, torch.Tensor]] = []

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.after.append({name: one.detach().clone() for name, one in module.net.named_parameters()})


def trees() -> LGBMClassifier:
    return LGBMClassifier(n_estimators=3, num_leaves=8, verbosity=-1, n_jobs=1).fit(X, Y)


def fitted(source: Any, compile: str | None, **options: Any) -> tuple[Translation, list[dict[str, torch.Tensor]]]:
    """Two epochs of two whole batches and a smaller one."""
    net, weights = windtunnel.translate(source, calibrate=X), Weights()
    net.fit(TRAIN, VALID, compile=compile, epochs=2, batch_size=300, callbacks=[weights], **QUIET, **options)
    return net, weights.after


def check_same(source: Any, **options: Any) -> Translation:
    """Train without and with compiling, and compare."""
    plain, steps = fitted(source, None, **options)
    counters.clear()
    net, theirs = fitted(source, "reduce-overhead", **options)
    # Of each model one graph for batches of a fixed number of rows, and one for any number. The two residual models of
    # the halves are trained too, if an epoch improves the residual model.
    assert counters["stats"]["unique_graphs"] in (2, 6) and not counters["graph_break"]
    assert len(steps) == len(theirs) == 6
    for one, other in zip(steps, theirs, strict=True):
        torch.testing.assert_close(other, one, rtol=1e-4, atol=1e-6)
    assert any(not torch.allclose(steps[-1][name], first, atol=1e-4) for name, first in steps[0].items())
    for ours, own in zip(plain.history.epochs[1:], net.history.epochs[1:], strict=True):
        assert own.train_loss == pytest.approx(ours.train_loss, rel=1e-5)
        assert own.val_loss == pytest.approx(ours.val_loss, rel=1e-5)
    assert net.state_dict().keys() == plain.state_dict().keys()
    return net


def test_a_residual_model_learns_the_same() -> None:
    net = check_same(LogisticRegression().fit(*TRAIN))
    again = pickle.loads(pickle.dumps(net))
    assert type(again) is Translation and (again.predict(X[:50]) == net.predict(X[:50])).all()
    gone = weakref.ref(net)
    del net
    gc.collect()
    assert gone() is None  # what was compiled does not hold it


def test_soft_trees_learn_the_same_with_dropout() -> None:
    with config.patch(fallback_random=True):  # drawn as without compiling
        check_same(trees(), recipe="joint", dropout=0.1)


def test_soft_trees_stay_outside_of_cuda_graphs() -> None:
    for name in ("soft_trees", "soft_trees_backward"):
        assert torch.Tag.cudagraph_unsafe in getattr(torch.ops.windtunnel, name).default.tags


def test_a_mode_that_there_is_not() -> None:
    with pytest.raises(windtunnel.InvalidOption, match="compile='fast' must be one of default, reduce-overhead, "):
        windtunnel.Recipe(compile="fast")


def test_gradients_added_up_over_batches_are_rejected_where_graphs_are_recorded() -> None:
    options: dict[str, Any] = dict.fromkeys(
        ("logger", "enable_progress_bar", "enable_checkpointing", "enable_model_summary", "num_sanity_val_steps"), 0
    )
    trainer = pl.Trainer(accumulate_grad_batches=2, max_epochs=1, accelerator="cpu", **options)
    net = windtunnel.translate(trees(), calibrate=X)
    with pytest.raises(BadInput, match="accumulate_grad_batches=2; take larger batches instead, or compile='default'"):
        net.fit(TRAIN, VALID, recipe="joint", compile="reduce-overhead", trainer=trainer)


def test_tables_trained_by_rows_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_tables, "LARGE_TABLE", 4)
    letters = np.array([["a"], ["b"], ["c"], ["d"]] * 10)
    net = windtunnel.translate(make_pipeline(OneHotEncoder(), LogisticRegression()).fit(letters, Y[:40]))
    with pytest.raises(BadInput, match="so large that they are trained by rows, here program"):
        net.fit((letters, Y[:40]), recipe="joint", compile="default", **QUIET)


def test_without_a_compiler_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))  # where nothing is compiled yet
    says = pytest.raises(BadInput, match=r"needs a C\+\+ compiler, and torch finds none; install")
    with config.patch({"cpp.cxx": (str(tmp_path / "none"),)}), says:
        fitted(LogisticRegression().fit(*TRAIN), "default", recipe="joint")
