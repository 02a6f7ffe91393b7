"""Steps, packages, devices and numbers that a backend cannot run are rejected by name."""

import importlib.util

import numpy as np
import pytest
import torch
from case import table
from cases import CASES
from export_cases import Looping
from parity import compiled
from sklearn.preprocessing import StandardScaler
from torch import Tensor

import windtunnel
from windtunnel.compiler.backends import engine
from windtunnel.errors import BadInput, InvalidOption, UnfaithfulOption
from windtunnel.modules.base import Module


@pytest.mark.parametrize(
    ("dtype", "narrower"), [("float64", torch.float32), ("float64", torch.float16), ("float32", torch.bfloat16)]
)
def test_narrower_numbers_are_rejected_before_anything_is_rounded(dtype: str, narrower: torch.dtype) -> None:
    case = CASES["standard scaler, logistic"]
    net = windtunnel.compile(case.fitted(), dtype=dtype)
    before = net.scores(case.rows())
    with pytest.raises(BadInput, match=rf"computes in torch\.{dtype}; .* to {narrower}, .*compile.*dtype=\"float32\""):
        net.to(narrower)
    assert torch.equal(net.to("cpu").scores(case.rows()), before)
    assert len(net.double().predict(case.rows())) == len(before)


class ArcSinh(Module):
    """An operator that the runtime lacks in float64."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.asinh(x)


class Unscripted(Module):
    """Python that TorchScript does not take."""

    def forward(self, x: Tensor) -> Tensor:
        return x * len({str(one) for one in x.shape})


class Literals(Module):
    """Numbers in code that float32 does not hold, where decisions hang on them too."""

    def forward(self, x: Tensor) -> Tensor:
        small = torch.where(x > 0.3, x * 0.1 + 0.7, 0.3 - x / 0.9)
        far = torch.log(torch.sigmoid(-60 * x.abs()))
        product = (x @ torch.ones(2, 2, dtype=x.dtype)) * 0.1
        return torch.cat(
            [small, x.clamp(0.3, 0.7), torch.full_like(x, 1e-300), torch.log2(x.abs() + 1e-45), far, product], 1
        )


class Sorted(Module):
    """Values in order and where they were, equal ones as they stand."""

    def forward(self, x: Tensor) -> Tensor:
        values, order = torch.sort(x.round(), dim=1, stable=True)
        return torch.cat([values, order, x.round().argsort(dim=1, descending=True, stable=True)], dim=1)


def scaled(module: Module) -> windtunnel.Translation:
    net = windtunnel.compile(StandardScaler().fit(table()[["age", "income"]]))
    net.program.steps[0].module = module
    return net


@pytest.mark.parametrize("backend", ["exported", "aoti"])
def test_the_step_of_which_there_is_no_graph_is_named(backend: str) -> None:
    said = (
        rf"backend='{backend}' cannot run step 'StandardScaler' \(Looping\): .* Choose backend='torchscript' or 'torch'"
    )
    with pytest.raises(UnfaithfulOption, match=said):
        engine(scaled(Looping()), backend)


@pytest.mark.parametrize(("module", "operator"), [(Looping(), ""), (ArcSinh(), "Asinh")], ids=["looping", "asinh"])
def test_the_step_that_onnx_cannot_run_is_named(module: Module, operator: str) -> None:
    with pytest.raises(UnfaithfulOption) as raised:
        engine(scaled(module), "onnx")
    said = str(raised.value)
    assert f"cannot run step 'StandardScaler' ({type(module).__name__}): {operator}" in said
    assert "Choose backend='torchscript' or 'torch'" in said


def test_numbers_in_code_stay_float64() -> None:
    net = scaled(Literals())
    x = torch.tensor([0.3, float(np.float32(0.3)), 0.7, 1e-45, 0.0]).double()
    x = torch.cat([x, x.new_tensor([0.3, np.nextafter(0.3, 1)])]).repeat(2, 1).t().contiguous()
    ids = torch.zeros(len(x), 0, dtype=torch.int64)
    found = engine(net, "onnx").output("scores", x, ids)
    torch.testing.assert_close(found, net.program(x, ids), rtol=1e-15, atol=0)


def test_equal_numbers_stay_in_order() -> None:
    net = scaled(Sorted())
    x = torch.tensor([[2.0, 2.0], [1.0, 2.0], [2.0, 1.0], [-0.0, 0.0]], dtype=torch.float64)
    ids = torch.zeros(len(x), 0, dtype=torch.int64)
    assert torch.equal(engine(net, "onnx").output("scores", x, ids), net.program(x, ids))


def test_what_torchscript_cannot_take_is_rejected() -> None:
    with pytest.raises(UnfaithfulOption, match=r"cannot run step 'StandardScaler' \(Unscripted\): .* TorchScript"):
        engine(scaled(Unscripted()), "torchscript")


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr("windtunnel.errors.find_spec", lambda name: None if name.startswith("onnx") else found(name))
    named = r"backend='onnx': onnx, onnxruntime, onnxscript not installed; pip install '\.\[onnx\]'"
    with pytest.raises(InvalidOption, match=named):
        engine(compiled("trees alone"), "onnx")


@pytest.mark.parametrize("device", ["cuda", "nowhere", "meta"])
def test_devices_that_are_not_there_are_named(device: str) -> None:
    if device == "cuda" and torch.cuda.is_available():
        pytest.skip("there is one")
    with pytest.raises(InvalidOption, match=f"device='{device}'"):
        windtunnel.compile(CASES["trees alone"].fitted(), device=device)
