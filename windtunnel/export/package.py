"""Packages of ``torch.export``: a graph that torch runs, or one compiled to native code."""

from __future__ import annotations

import json
import tempfile
import warnings
import zipfile
from collections.abc import Callable
from functools import partial
from io import BytesIO
from os import PathLike
from pathlib import Path
from typing import Any

import torch

from windtunnel.atomic_write import write_atomically
from windtunnel.compiler.engine import failing_step
from windtunnel.compiler.exported import graph_rows_at_once
from windtunnel.compiler.graphs import check_close, computed_in, message_of, quiet_exporter, take_graph
from windtunnel.errors import UnfaithfulOption
from windtunnel.export.columns import names, text_slots
from windtunnel.export.graph_program import GraphProgram, example, file_metadata
from windtunnel.export.limits import check
from windtunnel.program.program import Program, ProgramStep
from windtunnel.program.translated import TranslatedPipeline

MEMBER = "windtunnel.json"
SAME = partial(torch.testing.assert_close, rtol=1e-6, atol=1e-6, equal_nan=True)
"""Raises for outputs that differ; in float64 a graph gives what the program gives."""


def export(net: TranslatedPipeline, path: str | PathLike[str], *, native: bool) -> None:
    """Write a translation as a ``.pt2`` package, which torch loads where windtunnel is not installed.

    Its program takes ``numbers`` float64 ``[B, number columns]``, NaN where missing, and ``ids`` int64 ``[B, id
    columns]``, B from 0 up, and gives the tensors of ``windtunnel.export.graph_program.GraphProgram``. It takes no
    texts: the package also has "windtunnel.json" with the columns, the vocabularies that map texts to ids, the labels,
    the version of torch and the device. ``windtunnel.export.serving`` reads both.

    Parameters
    ----------
    net : TranslatedPipeline
        Left as it is. The program is for the device that it is on.
    path : path
    native : bool
        Whether AOTInductor compiles the graph to native code, which takes a C++ compiler and half a minute, and gives
        a file for machines, and a version of torch, like this one.

    Raises
    ------
    UnfaithfulOption
        A limit of ``windtunnel.export.limits``, or a step that has no graph.
    """
    check(net, "aoti" if native else "exported")
    module = GraphProgram(net)
    device = next((tensor.device for tensor in module.program.state_dict().values()), torch.device("cpu"))
    blocks = example(net, device)
    computed = torch.float32 if net.encoder.dtype == "float32" else computed_in(net.program)
    close = partial(check_close, computed=computed)  # of sums in another order
    graph = _graph(module.to(device), blocks, close if computed == torch.float32 else SAME)
    described = json.dumps(
        file_metadata(net, module.outputs)
        | {
            "format": "aoti" if native else "exported",
            "device": str(device),
            "categories": _categories(net),
            "rows_at_once": 0
            if net.program.needs_all_rows()
            else min(net.batch_size, graph_rows_at_once(net.program, graph)),
        },
        ensure_ascii=False,
    )
    if not native:
        write_atomically(path, _saved(graph, described))
        return
    compare = partial(_compare, module=module, blocks=blocks, close=close)
    write_atomically(path, _compiled(graph, described, compare))


def _graph(
    module: GraphProgram, blocks: tuple[torch.Tensor, ...], close: Callable[..., None]
) -> torch.export.ExportedProgram:
    try:
        with quiet_exporter(), torch.no_grad():
            graph = take_graph(module, blocks)
            _compare(graph.module(), module, blocks, close)
    except Exception as error:  # the exporter has errors of many kinds
        (numbers, ids), _ = module.encoded(*blocks)
        method_steps = {name: step for name, step in module.output_modules.items() if isinstance(step, ProgramStep)}
        with quiet_exporter():
            where, _ = failing_step(
                Program([*module.program.steps], method_steps),
                (numbers, ids),
                lambda module, x: take_graph(module, (x,)),
            )
        raise UnfaithfulOption(
            f"torch.export cannot take a graph of {where}: {message_of(error)}. Choose format='torchscript'."
        ) from error
    for node in graph.graph.nodes:
        node.meta.pop("stack_trace", None)  # it has paths of this machine
    return graph


def _compare(run: Any, module: GraphProgram, blocks: tuple[torch.Tensor, ...], close: Callable[..., None]) -> None:
    """Run the example, one row and no row: a graph may hold a number of rows fixed."""
    for rows in (len(blocks[0]), 1, 0):
        first_rows = [block[:rows] for block in blocks]
        expected = module(*first_rows) if rows else [output[:0] for output in module(*blocks)]
        for output, wanted in zip(run(*first_rows), expected, strict=True):
            close(output, wanted)


def _saved(graph: torch.export.ExportedProgram, described: str) -> bytes:
    in_memory = BytesIO()  # torch ends the process if it cannot write to a file
    torch.export.save(graph, in_memory, extra_files={MEMBER: described})
    return in_memory.getvalue()


def _compiled(graph: torch.export.ExportedProgram, described: str, compare: Callable[[Any], None]) -> bytes:
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of its own parts
        path = str(Path(folder) / "native.pt2")
        try:
            torch._inductor.aoti_compile_and_package(graph, package_path=path)
        except Exception as error:  # of the compiler of graphs, or of the C++ compiler
            raise UnfaithfulOption(
                f"AOTInductor cannot compile the program ({message_of(error)}). It needs a C++ "
                "compiler; choose format='exported', which needs none."
            ) from error
        try:
            with torch.no_grad():
                compare(torch._inductor.aoti_load_package(path))
        except Exception as error:  # a comparison that fails, or an error of the compiled code
            raise UnfaithfulOption(
                f"AOTInductor's code gives other outputs than the program ({message_of(error)}); choose "
                "format='exported'."
            ) from error
        with zipfile.ZipFile(path, "a") as package:
            (root,) = {name.split("/")[0] for name in package.namelist()}
            package.writestr(f"{root}/extra/{MEMBER}", described)
        return Path(path).read_bytes()


def _categories(net: TranslatedPipeline) -> list[dict[str, Any]]:
    """The vocabulary of each column of ids: text i has id 2 + i, 1 is a missing one, ``unknown`` any other.

    None stands for a category that is known by its hash alone.
    """
    return [
        {
            "column": names(net.encoder, [category.column])[0],
            "values": [*map(str, category.vocabulary.values), *category.vocabulary.texts],
            "buckets": category.vocabulary.buckets,
            "unknown": category.vocabulary.unknown_id,
            "rejects_unknown": category.files_reject_unknown,
            "rejects_missing": category.rejects_missing,
        }
        for _, category in text_slots(net.encoder)
    ]
