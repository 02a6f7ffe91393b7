"""ONNX: a small and a full model in one file; rows of which the small one is not sure are gathered for the full one."""

from __future__ import annotations

from os import PathLike
from typing import Any

from windtunnel.atomic_write import write_atomically
from windtunnel.export.onnx_file import INSIDE, described_model
from windtunnel.program.translated import TranslatedPipeline

UNSURE, UNSURE_COLUMN = f"{INSIDE}unsure", f"{INSIDE}unsure_column"
"""The positions of the rows that go on, ``[M]`` and ``[M, 1]``."""


def export(small: TranslatedPipeline, full: TranslatedPipeline, confidence: float, path: str | PathLike[str]) -> None:
    """Write a cascade as one ONNX model with the inputs, outputs and metadata of the full model's file.

    The parameters are those of ``c_file.export_cascade``.

    Raises
    ------
    UnfaithfulOption
        See ``windtunnel.export.onnx_file.export``; for either model.
    """
    import onnx
    from onnx import compose, helper

    first, model = described_model(small, {}), described_model(full, {})
    outputs = list(model.graph.output)
    first, second = (compose.add_prefix(each, INSIDE + scope) for each, scope in ((first, "small/"), (model, "full/")))
    nodes = [
        *[helper.make_node("Identity", [_raw(value, "small/")], [value.name]) for value in first.graph.input],
        *first.graph.node,
        *_unsure_rows(confidence),
        *[helper.make_node("Gather", [_raw(value, "full/"), UNSURE], [value.name]) for value in second.graph.input],
        *second.graph.node,
        *[
            helper.make_node(
                "ScatterND",
                [f"{INSIDE}small/{output.name}", UNSURE_COLUMN, f"{INSIDE}full/{output.name}"],
                [output.name],
            )
            for output in outputs
        ],
    ]
    constants = [*first.graph.initializer, *second.graph.initializer]
    del model.graph.node[:], model.graph.initializer[:], model.graph.value_info[:]
    model.graph.node.extend(nodes)
    model.graph.initializer.extend(constants)
    model.functions.extend(first.functions)
    onnx.checker.check_model(model)
    write_atomically(path, model.SerializeToString())


def _raw(value: Any, scope: str) -> str:
    """The column that an input of one of the models reads."""
    return str(value.name).removeprefix(f"{INSIDE}{scope}")


def _unsure_rows(confidence: float) -> list[Any]:
    """The positions of the rows for which no probability of the small model reaches the confidence."""
    from onnx import TensorProto, helper

    least = helper.make_tensor("least", TensorProto.DOUBLE, [], [confidence])
    axis = helper.make_tensor("axis", TensorProto.INT64, [1], [1])
    steps: list[tuple[str, list[str], str, dict[str, Any]]] = [
        ("Constant", [], "least", {"value": least}),
        ("Constant", [], "axis", {"value": axis}),
        ("ReduceMax", ["small/predict_proba", "axis"], "largest", {"keepdims": 0}),
        ("GreaterOrEqual", ["largest", "least"], "sure", {}),
        ("Not", ["sure"], "not_sure", {}),
        ("NonZero", ["not_sure"], "unsure_row", {}),
        ("Transpose", ["unsure_row"], "unsure_column", {}),
        ("Squeeze", ["unsure_column", "axis"], "unsure", {}),
    ]
    return [
        helper.make_node(operator, [INSIDE + name for name in inputs], [INSIDE + output], **options)
        for operator, inputs, output, options in steps
    ]
