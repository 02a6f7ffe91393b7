"""Scalers and imputers of numbers against scikit-learn, and the modules that they become."""

import numpy as np
import pytest
import torch
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, Normalizer, RobustScaler, StandardScaler

from windtunnel.errors import UnsupportedEstimator
from windtunnel.modules.base import Module
from windtunnel.modules.columns.affine import Affine, ClippedAffine
from windtunnel.modules.columns.normalizer import Normalizer as NormalizerModule
from windtunnel.modules.imputers.imputer import Imputer
from windtunnel.modules.linear.linear import Linear
from windtunnel.modules.tables.category_table import CategoryTable, Identity, SumGroups
from windtunnel.translators.registry import convert
from windtunnel.translators.scikit_learn_version import scikit_learn_before

SCALERS = {
    "standard": StandardScaler(),
    "standard-mean-only": StandardScaler(with_std=False),
    "standard-std-only": StandardScaler(with_mean=False),
    "standard-neither": StandardScaler(with_mean=False, with_std=False),
    "robust": RobustScaler(),
    "robust-unit-variance": RobustScaler(quantile_range=(5, 80), unit_variance=True),
    "robust-center-only": RobustScaler(with_scaling=False),
    "robust-scale-only": RobustScaler(with_centering=False),
    "min-max": MinMaxScaler(),
    "min-max-clip": MinMaxScaler(feature_range=(-2, 5), clip=True),
    "max-abs": MaxAbsScaler(),
}
if not scikit_learn_before("1.9"):
    SCALERS["max-abs-clip"] = MaxAbsScaler(clip=True)


def awkward_numbers(seed: int = 0, rows: int = 200) -> np.ndarray:
    """Plain, huge mean, constant, tiny, large, with NaN; all of it exact in float32, which a module is given."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(rows, 6))
    x[:, 1] += 1e6
    x[:, 2] = 3.7
    x[:, 3] *= 1e-20
    x[:, 4] *= 1e12
    x[::7, 5] = np.nan
    return x.astype(np.float32).astype(np.float64)


def run(module: Module, x: np.ndarray, dtype: torch.dtype = torch.float64) -> np.ndarray:
    module.cast(dtype)
    with torch.no_grad():
        return module(torch.from_numpy(x).to(dtype)).numpy()


@pytest.mark.parametrize(("dtype", "near"), [(torch.float64, 1e-12), (torch.float32, 1e-5)], ids=str)
@pytest.mark.parametrize("name", SCALERS)
def test_scaler_gives_what_its_source_gives(name: str, dtype: torch.dtype, near: float) -> None:
    fitted = SCALERS[name].fit(awkward_numbers())
    unseen = awkward_numbers(seed=1) * [3, 1, 1, 3, 3, 3]
    for x in (unseen, unseen[:1], unseen[:0]):
        expected = fitted.transform(x) if len(x) else np.zeros((0, 6))
        spread = near / 10 * np.nanstd(expected, axis=0) if len(x) > 1 else near / 10
        output = run(convert(fitted), x, dtype)
        np.testing.assert_array_less(
            np.nan_to_num(np.abs(output - expected)), np.nan_to_num(near * np.abs(expected) + spread) + 1e-30
        )
        np.testing.assert_array_equal(np.isnan(output), np.isnan(expected))


@pytest.mark.parametrize("norm", ["l1", "l2", "max"])
def test_normalizer_gives_what_its_source_gives(norm: str) -> None:
    x = np.random.default_rng(0).normal(size=(8, 5))
    x[1] = 0
    x[2] *= 1e-14
    x[3] *= 1e-17
    x[4] *= 1e30
    x[5, 1:] = 0
    x = x.astype(np.float32).astype(np.float64)
    fitted = Normalizer(norm).fit(x)
    np.testing.assert_allclose(run(convert(fitted), x), fitted.transform(x), rtol=1e-12)


def test_normalizer_has_finite_gradients_at_zero() -> None:
    x = torch.zeros(2, 3, requires_grad=True)
    NormalizerModule("l2")(x).sum().backward()
    assert x.grad is not None and torch.isfinite(x.grad).all()


def test_a_scale_beyond_float32_is_rejected_by_name() -> None:
    fitted = StandardScaler(with_mean=False).fit(np.array([[0.0, 1.0], [1e-300, 2.0]]))
    fitted.scale_[0] = 1e-300
    with pytest.raises(UnsupportedEstimator, match=r"columns \[0\] is beyond the range of torch.float32"):
        convert(fitted).cast(torch.float32)


IMPUTERS = {
    "mean": SimpleImputer(),
    "median": SimpleImputer(strategy="median"),
    "most-frequent": SimpleImputer(strategy="most_frequent"),
    "constant": SimpleImputer(strategy="constant", fill_value=-7.5),
    "indicator": SimpleImputer(add_indicator=True),
    "keep-empty": SimpleImputer(keep_empty_features=True, add_indicator=True),
    "keep-empty-constant": SimpleImputer(strategy="constant", fill_value=2.0, keep_empty_features=True),
}


@pytest.mark.parametrize("all_missing", [False, True])
@pytest.mark.parametrize("name", IMPUTERS)
@pytest.mark.filterwarnings("ignore:Skipping features without any observed values")
def test_imputer_gives_what_its_source_gives(name: str, all_missing: bool) -> None:
    x = np.round(awkward_numbers()[:, [0, 5, 2, 5]], 1)
    if all_missing:
        x[:, 1] = np.nan
    fitted = IMPUTERS[name].fit(x)
    reading = convert(fitted)
    module = reading if isinstance(reading, Imputer) else reading.number
    x[0] = np.nan
    np.testing.assert_allclose(run(module, x), fitted.transform(x.copy()), rtol=1e-12)
    # What drops or adds columns cannot stand before an encoder, which counts on each column in its place.
    assert isinstance(reading, Imputer) == (fitted.transform(x.copy()).shape[1] != 4)


@pytest.mark.parametrize("mark", [-1, 0.1])
def test_imputer_of_a_marked_number(mark: float) -> None:
    x = np.array([[1.0, mark], [mark, 4.0], [3.0, 5.0]])
    fitted = SimpleImputer(missing_values=mark).fit(x)
    np.testing.assert_allclose(run(convert(fitted).number, x), fitted.transform(x), rtol=1e-12)
    assert convert(fitted).recode(0, [mark, 3.0]) == [2.0, 3.0]


MODULES = {
    "affine": (Affine(torch.tensor([2.0, 1.0]), torch.tensor([1.0, 0.0]), torch.tensor([1e6, 0.0]), torch.ones(2)), 2),
    "clipped": (ClippedAffine(torch.ones(2), torch.zeros(2), torch.zeros(2), torch.ones(2), low=-0.5, high=0.5), 2),
    "linear": (Linear(torch.tensor([[1.0, -2.0], [0.5, 3.0]]), torch.tensor([0.1, 0.2])), 2),
    "normalizer-l1": (NormalizerModule("l1"), 2),
    "normalizer-l2": (NormalizerModule("l2"), 2),
    "normalizer-max": (NormalizerModule("max"), 2),
    "imputer-nan": (
        Imputer(torch.tensor([1.0]), torch.tensor(float("nan")), torch.tensor([1]), torch.tensor([0, 1])),
        2,
    ),
    "imputer-number": (
        Imputer(torch.tensor([1.0, 2.0]), torch.tensor(0.0), torch.tensor([0, 1]), torch.zeros(0, dtype=torch.int64)),
        2,
    ),
    "table": (CategoryTable(torch.randn(5, 3)), 0),
    "codes": (CategoryTable(torch.randn(5, 1), trainable=False), 0),
    "empty-table": (CategoryTable(torch.zeros(5, 0)), 0),
    "sum": (SumGroups(2), 6),
    "identity": (Identity(), 3),
}


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
def test_module_scripts_and_is_rebuilt_from_data(name: str) -> None:
    module, width = MODULES[name]
    x = torch.randn(4, width) if width else torch.tensor([[4], [0], [2], [0]])
    if name.startswith("imputer"):
        x[0, 0], x[1, 1] = float("nan"), 0.0
    rebuilt = type(module).rebuild(module.state_dict(), module.facts())
    scripted = torch.jit.script(module)
    for rows in (x, x[:1], x[:0]):
        expected = module(rows)
        torch.testing.assert_close(scripted(rows), expected, rtol=0, atol=0, equal_nan=True)
        torch.testing.assert_close(rebuilt(rows), expected, rtol=0, atol=0, equal_nan=True)
    assert {k: v.requires_grad for k, v in rebuilt.named_parameters()} == {
        k: v.requires_grad for k, v in module.named_parameters()
    }
    pairs = zip(rebuilt.parameters(), module.parameters(), strict=True)
    assert all(a.data_ptr() != b.data_ptr() for a, b in pairs if a.numel())


def test_only_a_trainable_table_is_a_parameter() -> None:
    assert [name for name, _ in CategoryTable(torch.ones(2, 1)).named_parameters()] == ["rows"]
    assert [name for name, _ in CategoryTable(torch.ones(2, 1), trainable=False).named_buffers()] == ["rows"]
