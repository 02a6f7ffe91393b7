"""A whole pipeline as one C file and its header: raw columns to predictions, with libc and libm alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

from windtunnel.atomic_write import replacing
from windtunnel.compiler.native.engine import NativeEngine
from windtunnel.compiler.native.head import finish
from windtunnel.compiler.native.image import ALIGNMENT, ImageWriter, operations_of, renumbered
from windtunnel.compiler.native.lowering import NotNative
from windtunnel.errors import UnfaithfulOption
from windtunnel.export.c_header import header_text, row_fields
from windtunnel.export.c_source import (
    ERRORS,
    LOOKUP,
    Output,
    computed_places,
    encode_function,
    facts_text,
    image_table,
    label_table,
    message_function,
    method_function,
    runtime,
    workspace_bytes,
)
from windtunnel.export.columns import names
from windtunnel.export.graph_program import file_metadata
from windtunnel.export.limits import check
from windtunnel.export.serving import function_prefix
from windtunnel.program.non_finite import slot_guards
from windtunnel.program.translated import TranslatedPipeline

C_METHODS = ("predict", "predict_proba", "decision_function", "score_samples", "transform")
CASCADE = Path(__file__).with_name("c") / "cascade.c"
CASCADE_BLOCK = 256
"""Rows whose probabilities ``predict`` of a cascade holds at once."""


def export(net: TranslatedPipeline, path: str | PathLike[str]) -> None:
    """Write a translation as C: ``path`` and a header next to it, whose comment says how to call and compile it.

    A row is a struct with a ``double`` per column of numbers, NaN where missing, and a text in UTF-8 per column of
    texts, NULL where missing. There is a function per method of the source. They allocate nothing and keep no state,
    and give an error code where the methods of the translation raise ``BadInput``. The files need a C11 compiler and a
    machine that stores the least byte first.

    Parameters
    ----------
    net : TranslatedPipeline
        Left as it is.
    path : path
        Its name without the suffix starts the names of the functions.

    Raises
    ------
    UnfaithfulOption
        A limit of ``windtunnel.export.limits``, a step without a native form, or a step that rejects rows for what it
        computes.
    InvalidOption
        There is no C compiler: writing the file takes the native library.
    """
    check(net, "c")
    images, outputs = _programs(net)
    prefix, fields = function_prefix(Path(path)), row_fields(net.encoder)
    functions = [
        encode_function(net.encoder, prefix, fields),
        *[method_function(net.encoder, prefix, output) for output in outputs],
    ]
    _write(path, net, images, outputs, functions, workspace_bytes(net.encoder, images))


def export_cascade(
    small: TranslatedPipeline, full: TranslatedPipeline, confidence: float, path: str | PathLike[str]
) -> None:
    """Write a cascade as C, called like a translation: each row goes to the full model unless the small one is sure.

    Both are classifiers with the same classes. The small model predicts a row alone if its largest probability is at
    least ``confidence``. Raises what ``export`` raises, for either model.
    """
    prefix, fields = function_prefix(Path(path)), row_fields(full.encoder)
    images: dict[str, bytes] = {}
    functions, workspaces = [], []
    for scope, net in (("wt_small_", small), ("wt_full_", full)):
        check(net, "c")
        of_net, (output,) = _programs(net, ("predict_proba",), scope)
        images |= of_net
        functions += [
            encode_function(net.encoder, prefix, fields, scope),
            method_function(net.encoder, prefix, output, scope),
        ]
        workspaces.append(workspace_bytes(net.encoder, of_net))
    outputs = [replace(output, method="predict", width=1, positions=True), output]
    block = CASCADE_BLOCK * output.width
    functions += [
        f"enum {{ WT_CASCADE_WIDTH = {output.width}, WT_CASCADE_BLOCK = {CASCADE_BLOCK} }};",
        f"static const double wt_cascade_confidence = {confidence.hex()};",
        CASCADE.read_text().replace("PREFIX", prefix),
    ]
    _write(path, full, images, outputs, functions, max(workspaces) + 8 * block + ALIGNMENT)


def _write(
    path: str | PathLike[str],
    net: TranslatedPipeline,
    images: dict[str, bytes],
    outputs: list[Output],
    functions: list[str],
    workspace: int,
) -> None:
    """Write the C file and its header; ``net`` says what the columns and labels are."""
    prefix = function_prefix(Path(path))
    used = sorted({operation for image in images.values() for operation in operations_of(image)})
    source = [
        f'#include "{Path(path).stem}.h"\n',
        runtime(used, prefix),
        "enum {" + ", ".join(f" WT_{name.upper()}" for name in ERRORS) + " };\n",
        LOOKUP.read_text(),
        *[f"{image_table(name, renumbered(image, used))}\n" for name, image in images.items()],
        *functions,
        message_function(prefix),
        label_table(net.head, prefix),
        facts_text(_metadata(net, outputs, workspace), prefix),
    ]
    header = header_text(net, prefix, row_fields(net.encoder), outputs, workspace)
    with replacing(Path(path).with_suffix(".h")) as header_file, replacing(path) as source_file:
        header_file.write_bytes(header.encode())
        source_file.write_bytes("\n".join(source).encode())


def _metadata(net: TranslatedPipeline, outputs: list[Output], workspace: int) -> dict[str, Any]:
    """What ``serving`` needs to call the functions, as JSON values."""
    flat = net.head.flat or net.head.classes is not None
    served = {"predict_proba": "predict_proba", "predict": "predict"}
    if net.head.task == "transform":
        served["transform"] = "scores"
    shapes = {
        served[output.method]: [] if output.method == "predict" and flat and output.width == 1 else [output.width]
        for output in outputs
        if output.method in served
    }
    row = names(net.encoder, net.encoder.used_columns())
    return file_metadata(net, [*shapes]) | {"format": "c", "row": row, "shapes": shapes, "workspace": workspace}


def _programs(
    net: TranslatedPipeline, methods: Sequence[str] = C_METHODS, scope: str = ""
) -> tuple[dict[str, bytes], list[Output]]:
    """The images of the programs by name, and what each method computes with them; ``scope`` starts the names."""
    engine = NativeEngine(net.program, net.encoder)
    engine.prepared()
    images: dict[str, bytes] = {}
    outputs = []
    for method in methods:
        if method not in net.head.methods:
            continue
        has_step = method in net.program.method_steps
        part = engine.whole(name := method if has_step else "scores")
        if part is None:
            raise UnfaithfulOption(f"{_without_c(engine, name)} have no C form. Choose another format.")
        ((_, slot),) = part.outputs
        rejects = slot_guards(net.program, method)
        try:
            images[f"{scope}{name}"] = engine.image(name, computed_places(rejects))
        except NotNative as error:
            raise UnfaithfulOption(
                f"{method} rejects rows for what a step computes, which has no C form ({error}). Choose "
                "format='torchscript' or 'onnx'."
            ) from error
        image = ImageWriter(slot.width, 0)
        columns = image.numbers if has_step else finish(image, net.head, method, image.numbers)
        linked = None if columns == image.numbers else f"{scope}{method}_head"
        if linked is not None:
            images[linked] = image.image(columns)
        positions = method == "predict" and net.head.classes is not None
        outputs.append(Output(method, f"{scope}{name}", linked, len(columns), positions, rejects))
    return images, outputs


def _without_c(engine: NativeEngine, method: str) -> str:
    steps = [f"{part.step.name!r} ({part.reason})" for part in engine.torch_parts(method)]
    return "the steps " + ", ".join(steps) if steps else f"the steps of {method}"
