"""ONNX: one file that scores raw columns by name, texts included, in ONNX Runtime."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from typing import Any

import numpy as np
import torch
from torch import Tensor

from windtunnel.atomic_write import write_atomically
from windtunnel.compiler import onnx_runtime
from windtunnel.compiler.graphs import check_close, computed_in
from windtunnel.compiler.onnx_trees import ML, ML_VERSION, put_nodes, with_nodes
from windtunnel.encode import MISSING_ID, CategoryColumn, Rows
from windtunnel.errors import UnfaithfulOption, check_installed
from windtunnel.export.columns import names, raw_columns, text_slots
from windtunnel.export.graph_program import REJECTED_ID, GraphProgram, example, file_metadata
from windtunnel.export.limits import MISSING, check
from windtunnel.program.translated import TranslatedPipeline

WRITTEN_FOR_MISSING = ("None", "nan", "<NA>")
"""The texts that the runtime silently makes of other libraries' missing values."""
ROWS = "rows"
"""The name of the first dimension of inputs and outputs."""
INSIDE = "windtunnel/"
"""Prefix of all names inside the graph, so that they differ from the names of columns."""


def export(net: TranslatedPipeline, path: str | PathLike[str], example: Rows | None = None) -> None:
    """Write a translation as one ONNX model; ONNX Runtime scores raw rows with it.

    The model has one input for each raw column that it reads, by its name (a column without a name goes by its
    position), each of shape ``[B]`` with B from 0 up: float64, NaN where missing, or strings, ``"<missing>"`` where
    missing. With ``example``, columns of numbers take the type that they have there (bool, integers, float32).
    It has the outputs of ``windtunnel.export.graph_program.GraphProgram``. It refers to no other file.

    Hard trees are ``ai.onnx.ml.TreeEnsemble`` nodes, look-ups of texts ``LabelEncoder`` nodes. The metadata has the
    names of the columns and the labels as JSON under "windtunnel".

    Raises
    ------
    UnfaithfulOption
        A limit of ``windtunnel.export.limits``, or a step that has no ONNX form or other outputs there.
    """
    write_atomically(path, described_model(net, {} if example is None else _types(net, example)).SerializeToString())


def described_model(net: TranslatedPipeline, types: Mapping[str, int]) -> Any:
    """The ONNX model of a translation, with its metadata.

    ``types`` are the ONNX types of columns of numbers, by name; others are float64.
    """
    model, outputs = _model(net, types)
    described = file_metadata(net, outputs) | {
        "format": "onnx",
        "missing": MISSING,
        "device": "cpu",
        "misread": _misread(net),
    }
    model.metadata_props.add(key="windtunnel", value=json.dumps(described))
    return model


def _model(net: TranslatedPipeline, types: Mapping[str, int]) -> tuple[Any, list[str]]:
    check_installed("format='onnx'", "onnx", *onnx_runtime.NEEDED)
    check(net, "onnx")
    module = GraphProgram(net).cpu()
    number_columns = names(net.encoder, raw_columns(net.encoder)[0])
    blocks = example(net)
    # Also a single row, as iterative steps stop once all rows are done: a row alone may give another output.
    expected = [module(*(block[:rows] for block in blocks)) for rows in (len(blocks[0]), 1)]
    expected.append(tuple(output[:0] for output in expected[0]))
    trees = with_nodes(module)
    try:
        model = onnx_runtime.exported(module, blocks, onnx_runtime.INPUTS, module.outputs)
        put_nodes(model, trees)
        _check(model, blocks, expected, computed_in(net.program))
    except Exception as error:  # the exporter, its passes and the runtime all have errors of their own
        # The engine of ``compile(backend="onnx")`` names the step.
        reason = onnx_runtime.OnnxEngine(net.program, net.encoder).reason(error)
        reason = reason.replace("backend='onnx'", "format='onnx'", 1)
        raise UnfaithfulOption(reason[: reason.index("Choose backend=")] + "Choose format='torchscript'.") from error
    return _with_columns(model, number_columns, net, types), module.outputs


def _types(net: TranslatedPipeline, example: Rows) -> dict[str, int]:
    """The ONNX type of each column of numbers as in these rows; float64 if ONNX or NumPy lacks the type."""
    from onnx import helper

    frame = net.encoder.select(example)
    columns = raw_columns(net.encoder)[0]
    dtypes = [frame[column].dtype for column in columns]
    arrays = [
        dtype if isinstance(dtype, np.dtype) and dtype.kind in "biuf" and dtype.itemsize <= 8 else np.dtype(float)
        for dtype in dtypes
    ]
    types = [helper.np_dtype_to_tensor_dtype(dtype) for dtype in arrays]
    return dict(zip(names(net.encoder, columns), types, strict=True))


def _check(model: Any, blocks: tuple[Tensor, ...], expected: list[tuple[Tensor, ...]], computed: torch.dtype) -> None:
    """Run the example, one row and no row: exporters round constants, and kernels have bugs of their own."""
    run = onnx_runtime.Session(model, onnx_runtime.INPUTS)
    for outputs_of_rows in expected:
        first_rows = [block[: len(outputs_of_rows[0])] for block in blocks]
        for output, wanted in zip(run.outputs(*first_rows), outputs_of_rows, strict=True):
            check_close(output, wanted, computed)


def _with_columns(model: Any, number_columns: list[str], net: TranslatedPipeline, types: Mapping[str, int]) -> Any:
    """Replace the two blocks of the program by the raw columns as inputs, of these types or else float64."""
    import onnx
    from onnx import TensorProto, helper

    graph, outputs = model.graph, [value.name for value in model.graph.output]
    _prefix(graph)
    read = set(_read(graph))
    inputs, nodes, blocks = _column_inputs(number_columns, net, types)
    axes = helper.make_tensor(f"{INSIDE}axis", TensorProto.INT64, [1], [1])
    for block, columns in blocks.items():
        if f"{INSIDE}{block}" in read:
            nodes += _stacked(block, columns, axes.name) if columns else _empty(block, next(iter(inputs)))
    for method, out in zip(outputs, graph.output, strict=True):
        graph.node.add(op_type="Identity", input=[out.name], output=[method])
        out.name = method
        out.type.tensor_type.shape.dim[0].dim_param = ROWS  # the exporter invents a name
    graph.initializer.append(axes)
    program_nodes = list(graph.node)
    del graph.node[:], graph.input[:]
    graph.node.extend([*nodes, *program_nodes])
    graph.input.extend(inputs.values())
    read = set(_read(graph))
    for unread in [tensor for tensor in graph.initializer if tensor.name not in read]:
        graph.initializer.remove(unread)
    if all(opset.domain != ML for opset in model.opset_import):
        model.opset_import.append(helper.make_opsetid(ML, ML_VERSION))
    onnx.checker.check_model(model)
    return model


def _column_inputs(
    number_columns: list[str], net: TranslatedPipeline, types: Mapping[str, int]
) -> tuple[dict[str, Any], list[Any], dict[str, list[str]]]:
    """An input per raw column, the nodes that make numbers and ids of them, and the names of these by block."""
    from onnx import TensorProto, helper

    inputs, nodes = {}, []
    blocks: dict[str, list[str]] = {"numbers": [], "ids": []}
    for name in number_columns:
        kind = types.get(name, TensorProto.DOUBLE)
        inputs[name] = helper.make_tensor_value_info(name, kind, [ROWS])
        number = name if kind == TensorProto.DOUBLE else f"{INSIDE}double_{name}"
        if kind != TensorProto.DOUBLE:
            nodes.append(helper.make_node("Cast", [name], [number], to=TensorProto.DOUBLE))
        blocks["numbers"].append(number)
    misread = _misread(net)
    for slot, category in text_slots(net.encoder):
        (name,) = names(net.encoder, [category.column])
        inputs[name] = helper.make_tensor_value_info(name, TensorProto.STRING, [ROWS])
        nodes.append(_lookup(name, f"{INSIDE}id_{slot}", category, misread[name]))
        blocks["ids"].append(f"{INSIDE}id_{slot}")
    return inputs, nodes, blocks


def _stacked(block: str, columns: list[str], axes: str) -> list[Any]:
    """A block of columns that are side by side."""
    from onnx import helper

    upright = [f"{INSIDE}{block}_{place}" for place in range(len(columns))]
    unsqueezed = [
        helper.make_node("Unsqueeze", [column, axes], [name]) for column, name in zip(columns, upright, strict=True)
    ]
    return [*unsqueezed, helper.make_node("Concat", upright, [f"{INSIDE}{block}"], axis=1)]


def _read(graph: Any) -> Iterator[str]:
    """The names that the nodes of a graph and of its loops read."""
    for node in graph.node:
        yield from node.input
        for attribute in node.attribute:
            yield from _read(attribute.g)


def _prefix(graph: Any) -> None:
    """Prefix all names of a graph and of its loops by ``INSIDE``."""
    for named in (*graph.input, *graph.output, *graph.initializer, *graph.value_info):
        named.name = INSIDE + named.name
    for node in graph.node:
        for names_of in (node.input, node.output):
            names_of[:] = [name and INSIDE + name for name in names_of]
        for attribute in node.attribute:
            _prefix(attribute.g)


def _lookup(name: str, ids: str, category: CategoryColumn, misread: Sequence[str]) -> Any:
    """Texts to ids; ``REJECTED_ID`` for texts that the source rejects, and for ``misread`` ones of missing values."""
    from onnx import helper

    vocabulary = category.vocabulary
    unknown = REJECTED_ID if category.files_reject_unknown or vocabulary.buckets else vocabulary.unknown_id
    table = dict.fromkeys(misread, REJECTED_ID)
    table |= vocabulary.id_by_text
    table[MISSING] = REJECTED_ID if category.rejects_missing else MISSING_ID
    return helper.make_node(
        "LabelEncoder",
        [name],
        [ids],
        domain=ML,
        keys_strings=list(table),
        values_int64s=list(table.values()),
        default_int64=unknown,
    )


def _misread(net: TranslatedPipeline) -> dict[str, list[str]]:
    """The texts of each column that are none of its categories, and that ``_lookup`` reads as missing."""
    texts: dict[str, list[str]] = {}
    for _, category in text_slots(net.encoder):
        (name,) = names(net.encoder, [category.column])
        misread = texts.get(name, [MISSING, *WRITTEN_FOR_MISSING])
        texts[name] = [text for text in misread if text not in category.vocabulary.id_by_text]
    return texts


def _empty(block: str, like: str) -> list[Any]:
    """A block without columns, with the number of rows of a column."""
    from onnx import TensorProto, helper

    kind = TensorProto.DOUBLE if block == "numbers" else TensorProto.INT64
    zero = helper.make_tensor("zero", TensorProto.INT64, [1], [0])
    return [
        helper.make_node("Shape", [like], [f"{INSIDE}{block}_rows"]),
        helper.make_node("Constant", [], [f"{INSIDE}{block}_none"], value=zero),
        helper.make_node(
            "Concat", [f"{INSIDE}{block}_rows", f"{INSIDE}{block}_none"], [f"{INSIDE}{block}_shape"], axis=0
        ),
        helper.make_node(
            "ConstantOfShape",
            [f"{INSIDE}{block}_shape"],
            [f"{INSIDE}{block}"],
            value=helper.make_tensor("fill", kind, [1], [0]),
        ),
    ]
