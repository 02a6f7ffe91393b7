"""ONNX: one file that scores raw columns by name, texts included, in ONNX Runtime."""

from __future__ import annotations

import json
from os import PathLike
from typing import IO, TYPE_CHECKING, Any

from torch import Tensor

from windtunnel.compiler import onnx_runtime
from windtunnel.compiler.tree_nodes import ML, ML_VERSION, put_nodes, with_nodes
from windtunnel.encode import FIRST_ID, MISSING_ID, UNKNOWN_ID, CategoryColumn
from windtunnel.errors import UnfaithfulOption
from windtunnel.export.columns import names, raw_columns, text_slots
from windtunnel.export.container import write_whole
from windtunnel.export.traced import REFUSED_ID, Traced, example, facts

if TYPE_CHECKING:
    from windtunnel.translation import Translation

MISSING = "<missing>"
"""The text that stands for a missing one."""
WRITTEN_FOR_MISSING = ("None", "nan", "<NA>")
"""What the runtime makes, without a word, of the values that stand for missing texts elsewhere."""
INSIDE = "windtunnel/"
"""How the names of all values inside the graph begin, so that they are none of those of columns."""


def export(net: Translation, path: str | PathLike[str]) -> None:
    """Write a translation as one ONNX model; ONNX Runtime scores raw rows with it.

    The model has one input for each raw column that it reads, by its name (a column without a name goes by its
    position), each of shape ``[B]`` with B from 0 up: float64, NaN where missing, or strings, ``"<missing>"`` where
    missing. It has the outputs of ``windtunnel.export.traced.Traced``. Nothing is outside of the file.

    Hard trees are ``ai.onnx.ml.TreeEnsemble`` nodes, look-ups of texts ``LabelEncoder`` nodes. What is above all, the
    names of the columns and the labels, stands as JSON in the metadata under "windtunnel".

    Raises
    ------
    UnfaithfulOption
        Steps stayed on the host, a column holds texts and numbers side by side, a step has no ONNX form or gives other
        numbers there, or no column is read.
    """
    model, outputs = _model(net)
    described = facts(net, outputs) | {"format": "onnx", "missing": MISSING, "device": "cpu"}
    model.metadata_props.add(key="windtunnel", value=json.dumps(described))

    def fill(file: IO[bytes]) -> None:
        file.write(model.SerializeToString())

    write_whole(path, fill)


def _model(net: Translation) -> tuple[Any, list[str]]:
    onnx_runtime.check_installed("format='onnx'")
    traced = Traced(net).cpu()
    number_columns, string_columns = (names(net.encoder, columns) for columns in raw_columns(net.encoder))
    _check_names([*number_columns, *string_columns], traced.outputs)
    blocks = example(net)
    wanted = traced(*blocks)
    trees = with_nodes(traced)
    try:
        model = onnx_runtime.exported(traced, blocks, onnx_runtime.INPUTS, traced.outputs)
        put_nodes(model, trees)
        _check(model, traced.outputs, blocks, wanted)
    except Exception as error:  # the exporter, its passes and the runtime all have errors of their own
        raise UnfaithfulOption(_why(net, error)) from error
    return _with_columns(model, number_columns, net), traced.outputs


def _check(model: Any, outputs: list[str], blocks: tuple[Tensor, ...], wanted: tuple[Tensor, ...]) -> None:
    """Run the example, one row and no row: exporters round constants, and kernels have bugs of their own."""
    session = onnx_runtime.session(model)
    for rows in (len(blocks[0]), 1, 0):
        fed = onnx_runtime.fed(session, dict(zip(onnx_runtime.INPUTS, (block[:rows] for block in blocks), strict=True)))
        for found, want in zip(session.run(outputs, fed), wanted, strict=True):
            onnx_runtime.check_same(found, want[:rows], wanted[0].dtype)


def _why(net: Translation, error: Exception) -> str:
    """Name the step, as the engine of ``compile(backend="onnx")`` does."""
    engine = onnx_runtime.OnnxEngine(net.program, net.encoder)
    said = engine.why(error).replace("backend='onnx'", "format='onnx'", 1)
    return said[: said.index("Choose backend=")] + "Choose format='torchscript'."


def _check_names(columns: list[str], outputs: list[str]) -> None:
    if not columns:
        raise UnfaithfulOption(
            "the translation reads no column, so that an ONNX file could not tell how many rows it is asked about; "
            "choose format='torchscript'."
        )
    if wrong := [one for one in columns if one in outputs or not one or one.startswith(INSIDE)]:
        raise UnfaithfulOption(
            f"columns called {', '.join(map(repr, wrong))}: ONNX has one space of names, and the outputs are called "
            f"{', '.join(outputs)}. Rename the columns before fitting."
        )


def _with_columns(model: Any, number_columns: list[str], net: Translation) -> Any:
    """Put the raw columns in front of the two blocks that the program takes."""
    import onnx.compose
    from onnx import TensorProto, helper

    inner = onnx.compose.add_prefix(model, INSIDE)
    read = {name for node in inner.graph.node for name in node.input}
    nodes, inputs = [], {}
    axes = helper.make_tensor(f"{INSIDE}axis", TensorProto.INT64, [1], [1])
    parts: dict[str, list[str]] = {"numbers": [], "ids": []}
    for name in number_columns:
        inputs[name] = helper.make_tensor_value_info(name, TensorProto.DOUBLE, ["rows"])
        parts["numbers"].append(name)
    for slot, one in text_slots(net.encoder):
        (name,) = names(net.encoder, [one.column])
        inputs[name] = helper.make_tensor_value_info(name, TensorProto.STRING, ["rows"])
        ids = f"{INSIDE}id_{slot}"
        nodes.append(_lookup(name, ids, one))
        parts["ids"].append(ids)
    for block, columns in parts.items():
        if columns and f"{INSIDE}{block}" in read:
            stood = [f"{INSIDE}{block}_{place}" for place in range(len(columns))]
            nodes += [
                helper.make_node("Unsqueeze", [column, axes.name], [up])
                for column, up in zip(columns, stood, strict=True)
            ]
            nodes.append(helper.make_node("Concat", stood, [f"{INSIDE}{block}"], axis=1))
        elif f"{INSIDE}{block}" in read:
            nodes += _empty(block, next(iter(inputs)))
    for method, out in zip(model.graph.output, inner.graph.output, strict=True):
        inner.graph.node.add(op_type="Identity", input=[out.name], output=[method.name])
        out.name = method.name
    inner.graph.initializer.append(axes)
    kept = list(inner.graph.node)
    del inner.graph.node[:], inner.graph.input[:]
    inner.graph.node.extend([*nodes, *kept])
    inner.graph.input.extend(inputs.values())
    if all(one.domain != ML for one in inner.opset_import):
        inner.opset_import.append(helper.make_opsetid(ML, ML_VERSION))
    onnx.checker.check_model(inner)
    return inner


def _lookup(name: str, ids: str, category: CategoryColumn) -> Any:
    """Texts to ids; ``REFUSED_ID`` for what the source refuses and for what may be a missing text in disguise."""
    from onnx import helper

    vocabulary = category.vocabulary
    if MISSING in vocabulary.values:
        raise UnfaithfulOption(
            f"column {name!r} has the category {MISSING!r}, which stands for a missing text in ONNX files; rename it."
        )
    if vocabulary.buckets and not vocabulary.values:
        raise UnfaithfulOption(
            f"column {name!r} is hashed, for which ONNX has no operator; choose format='torchscript', 'exported' or "
            "'aoti', or encode the column in another way."
        )
    unknown = REFUSED_ID if category.refuses_unknown or vocabulary.buckets else UNKNOWN_ID
    table = dict.fromkeys(WRITTEN_FOR_MISSING, REFUSED_ID)
    table |= {str(value): FIRST_ID + place for place, value in enumerate(vocabulary.values)}
    table[MISSING] = REFUSED_ID if category.refuses_missing else MISSING_ID
    return helper.make_node(
        "LabelEncoder",
        [name],
        [ids],
        domain=ML,
        keys_strings=list(table),
        values_int64s=list(table.values()),
        default_int64=unknown,
    )


def _empty(block: str, like: str) -> list[Any]:
    """A block without columns, of as many rows as a column has."""
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
