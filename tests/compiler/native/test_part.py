"""Parts of a program, and the image of a native one."""

import re

import numpy as np
import pytest
import torch
from sklearn.kernel_approximation import PolynomialCountSketch
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, MinMaxScaler, StandardScaler

import windtunnel
from windtunnel.compiler.native.build import SOURCES
from windtunnel.compiler.native.image import OPERATIONS, Header, ImageWriter, operations_of, renumbered
from windtunnel.compiler.native.lowering import NotNative
from windtunnel.compiler.native.part import NativePart, OutputType, PartWriter, TorchPart, split_program
from windtunnel.program.program import IDS, NUMBERS


@pytest.fixture(scope="module")
def net():
    X = np.random.default_rng(0).normal(size=(100, 3))
    steps = (
        StandardScaler(),
        FunctionTransformer(np.exp),
        PolynomialCountSketch(random_state=0),
        MinMaxScaler(),
        Ridge(),
    )
    return windtunnel.compile(make_pipeline(*steps).fit(X, X[:, 0]), backend="torch")


def _steps(net):
    return {2 + place: step for place, step in enumerate(net.program.steps)}


def test_the_header_of_an_image_is_that_of_the_sources():
    text = (SOURCES / "runtime.h").read_text()
    struct = next(part for part in text.split("typedef struct {") if "} wt_program;" in part)
    assert tuple(re.findall(r"uint64_t (\w+);", struct.split("}")[0])) == Header._fields


def test_a_step_without_a_native_form_ends_a_part(net):
    steps = _steps(net)
    parts = split_program(steps, max(steps), *_example())
    assert [type(part) for part in parts] == [NativePart, TorchPart, NativePart]
    assert parts[0].inputs == [NUMBERS] and parts[2].inputs == [parts[1].slot]
    values = [*_example(), *([torch.empty(0)] * len(steps))]
    for part in parts:
        part.fill(values)
    assert torch.allclose(values[max(steps)], net.program(*_example()), rtol=0, atol=1e-12)


def test_a_step_that_fails_leaves_nothing(net):
    steps = _steps(net)
    (failing,) = [slot for slot, step in steps.items() if "sketch" in step.name]
    widths = {slot: OutputType(torch.float64, (3,)) for slot in range(failing)} | {IDS: OutputType(torch.int64, (0,))}
    writer = PartWriter(widths)
    for slot in range(2, failing):
        writer = writer.with_step(slot, steps[slot])
    before = writer.part([failing - 1]).program.bytes()
    with pytest.raises(NotNative):
        writer.with_step(failing, steps[failing])
    assert writer.part([failing - 1]).program.bytes() == before


def test_operations_are_renumbered():
    image = ImageWriter(2, 0)
    columns = image.step("shares", image.step("softmax", image.numbers, 2), 2)
    written = image.image(columns)
    assert operations_of(written) == ["softmax", "shares"]
    few = renumbered(written, ["shares", "softmax"])
    assert operations_of(few) == [OPERATIONS[1], OPERATIONS[0]]
    assert Header.of(few) == Header.of(written)


def _example():
    numbers = torch.from_numpy(np.random.default_rng(1).normal(size=(4, 3)))
    return numbers, torch.empty((4, 0), dtype=torch.int64)
