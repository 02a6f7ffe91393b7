"""A class from outside the package, read by a reader from outside, and the checks that such a reader has to pass."""

# No postponed annotations here: torch.jit.script reads the class-level ones and takes no strings.

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn

import windtunnel
from windtunnel.errors import UnfaithfulOption, UnsupportedEstimator
from windtunnel.modules.base import Module
from windtunnel.testing import check_translator
from windtunnel.translators import Predictor, registry

# What somebody else wrote: two estimators, and one module for each.


class Squash(TransformerMixin, BaseEstimator):
    """tanh((x - center_) / width_), with the median and the range of each column."""

    def fit(self, X: Any, y: Any = None) -> Self:
        X = validate_data(self, X, dtype=np.float64)
        self.center_, self.width_ = np.median(X, axis=0), np.ptp(X, axis=0)
        return self

    def transform(self, X: Any) -> Any:
        check_is_fitted(self)
        return np.tanh((validate_data(self, X, dtype=np.float64, reset=False) - self.center_) / self.width_)


class Prototype(ClassifierMixin, BaseEstimator):
    """The class with the nearest mean; its decision is minus the squared distance."""

    def fit(self, X: Any, y: Any) -> Self:
        X = validate_data(self, X, dtype=np.float64)
        self.classes_ = np.unique(y)
        self.means_ = np.stack([X[y == label].mean(axis=0) for label in self.classes_])
        return self

    def decision_function(self, X: Any) -> Any:
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return -((X[:, None, :] - self.means_) ** 2).sum(axis=2)

    def predict(self, X: Any) -> Any:
        return self.classes_[self.decision_function(X).argmax(axis=1)]


class Squashed(Module):
    """``[B, width]`` -> ``[B, width]``; ``power`` is a fact, so that one can be forgotten."""

    FACTS: ClassVar[tuple[str, ...]] = ("power",)

    def __init__(self, center: Tensor, scale: Tensor, power: int = 1) -> None:
        super().__init__()
        self.center = nn.Parameter(center.detach().clone())
        self.scale = nn.Parameter(scale.detach().clone())
        self.power = power

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh((x - self.center) / self.scale) ** self.power


class NearestMean(Module):
    """``[B, width]`` -> ``[B, classes]``."""

    def __init__(self, means: Tensor) -> None:
        super().__init__()
        self.means = nn.Parameter(means.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        return -(x.unsqueeze(1) - self.means).square().sum(dim=2)


def read_squash(fitted: Squash) -> Squashed:
    return Squashed(torch.from_numpy(fitted.center_), torch.from_numpy(fitted.width_))


def read_prototype(fitted: Prototype) -> Predictor:
    return Predictor(NearestMean(torch.from_numpy(fitted.means_)), link="softmax", loss="softmax")


# Ways to get it wrong.


class Forgetful(Squashed):
    FACTS = ()


class Unscriptable(Squashed):
    def forward(self, x: Tensor) -> Tensor:
        return torch.from_numpy(np.tanh(((x - self.center) / self.scale).detach().numpy()))


class Blocked(Squashed):
    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh((x.detach() - self.center.detach()) / self.scale.detach())


class Unreached(Squashed):
    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh((x - self.center) / self.scale.detach())


class Endless(Squashed):
    """Right in value; the root has no derivative at 0."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh((x - self.center) / self.scale + torch.sqrt((x - x.detach()).square()))


class Blurred(Squashed):
    def soft(self, sample: Tensor | None) -> Module:
        return Squashed(self.center, 2 * self.scale)


@pytest.fixture(autouse=True)
def outside(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A registry that forgets at the end what a test has put into it."""
    monkeypatch.setattr(registry, "_TABLE", dict(registry._TABLE))
    yield


def rows(seed: int = 0) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    return pd.DataFrame(random.normal(size=(60, 3)) * [1.0, 50.0, 0.5] + 2, columns=["a", "b", "c"])


def labels(X: pd.DataFrame) -> Any:
    return np.array(["low", "middle", "top"])[np.digitize(X["a"], [1.7, 2.4])]


def register(read: Callable[..., Any], cls: type = Squash, **options: Any) -> None:
    windtunnel.translates(cls, **options)(read)


def squash_as(module: type[Squashed], **options: Any) -> Callable[[Squash], Module]:
    return lambda fitted: module(torch.from_numpy(fitted.center_), torch.from_numpy(fitted.width_), **options)


@pytest.mark.parametrize("array", [False, True], ids=["frame", "array"])
def test_a_transformer_from_outside(array: bool) -> None:
    register(read_squash, trainable="center, width")
    X = rows().to_numpy() if array else rows()
    check_translator(Squash().fit(X), X)
    y = labels(rows())
    check_translator(make_pipeline(Squash(), LogisticRegression()).fit(X, y), X, y=y)
    check_translator(make_pipeline(StandardScaler(), Squash(), Ridge()).fit(X, rows()["a"]), X, y=rows()["a"])


def test_a_predictor_from_outside() -> None:
    register(read_prototype, Prototype)
    y = labels(rows())
    check_translator(Prototype().fit(rows(), y), rows(1), y=labels(rows(1)))
    check_translator(make_pipeline(StandardScaler(), Prototype()).fit(rows(), y), rows(1))


def test_a_step_that_ends_the_gradient() -> None:
    register(squash_as(Blocked), differentiable=False)
    check_translator(make_pipeline(Squash(), LogisticRegression()).fit(rows(), labels(rows())), rows(1))


def off_by_a_little(fitted: Squash) -> Squashed:
    return Squashed(torch.from_numpy(fitted.center_ + 1e-6), torch.from_numpy(fitted.width_))


def in_float32(fitted: Squash) -> Squashed:
    return Squashed(torch.from_numpy(fitted.center_).float(), torch.from_numpy(fitted.width_).float())


def that_writes(fitted: Squash) -> Squashed:
    fitted.notes_ = "read"  # type: ignore[attr-defined]
    return read_squash(fitted)


WRONG: dict[str, tuple[Callable[[Squash], Module], str]] = {
    "a number": (off_by_a_little, "transform, all rows"),
    "float32": (in_float32, "transform, all rows"),
    "a fact that is not saved": (squash_as(Forgetful, power=3), "transform"),
    "writes into the estimator": (that_writes, "the fitted estimator has changed"),
    "no gradient": (squash_as(Blocked), "there is no gradient"),
    "a parameter without gradient": (squash_as(Unreached), "no gradient reaches the parameter .*scale"),
    "a gradient without end": (squash_as(Endless), "the gradient that reaches the columns 'a', 'b', 'c'"),
    "far from the source before training": (squash_as(Blurred), "R squared of translate before training"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_said(name: str) -> None:
    read, said = WRONG[name]
    register(read)
    with pytest.raises(AssertionError, match=said):
        check_translator(Squash().fit(rows()), rows())


def test_labels_in_another_order_are_noticed() -> None:
    def turned(fitted: Prototype) -> Predictor:
        means = torch.from_numpy(fitted.means_)
        return Predictor(NearestMean(means), classes=fitted.classes_[::-1])

    register(turned, Prototype)
    with pytest.raises(AssertionError, match=r"predict, all rows: \d+ of 60 labels differ; row \d+ is"):
        check_translator(Prototype().fit(rows(), labels(rows())), rows())


def test_a_module_that_cannot_be_compiled_is_named() -> None:
    register(squash_as(Unscriptable))
    with pytest.raises(UnfaithfulOption, match="TorchScript"):
        check_translator(Squash().fit(rows()), rows())


def test_a_class_without_a_reader_is_told_how_to_get_one() -> None:
    with pytest.raises(UnsupportedEstimator, match=r"@windtunnel.translates\(Prototype\)"):
        check_translator(Prototype().fit(rows(), labels(rows())), rows())


def test_what_is_registered_is_in_the_table() -> None:
    register(read_squash, trainable="center, width", notes="ours")
    (entry,) = (entry for entry in windtunnel.supported() if entry.estimator is Squash)
    assert (entry.name, entry.library, entry.trainable, entry.notes) == ("Squash", __name__, "center, width", "ours")


def test_a_library_that_cannot_be_imported_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "imblearn.py").write_text("raise ImportError('older than scikit-learn')")
    code = "import windtunnel; print({each.library for each in windtunnel.supported()})"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert "xgboost" in done.stdout and "imblearn" not in done.stdout
    assert "estimators of imblearn are not translated: older than scikit-learn" in done.stderr
