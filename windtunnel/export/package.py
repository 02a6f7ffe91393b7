"""Packages of ``torch.export``: a graph that torch runs, or one compiled to native code."""

from __future__ import annotations

import json
import tempfile
import warnings
import zipfile
from os import PathLike
from pathlib import Path
from typing import IO, Any

import torch

from windtunnel.compiler.exported import rows_at_once
from windtunnel.compiler.onnx_runtime import quiet
from windtunnel.errors import UnfaithfulOption
from windtunnel.export.atomic_write import write_atomically
from windtunnel.export.columns import names, text_slots
from windtunnel.export.limits import check
from windtunnel.export.traced import Traced, example, facts
from windtunnel.program.program import ProgramStep
from windtunnel.program.translated import TranslatedPipeline

MEMBER = "windtunnel.json"


def export(net: TranslatedPipeline, path: str | PathLike[str], *, native: bool) -> None:
    """Write a translation as a ``.pt2`` package, which torch loads where windtunnel is not installed.

    Its program takes ``numbers`` float64 ``[B, number columns]``, NaN where missing, and ``ids`` int64 ``[B, id
    columns]``, B from 0 up, and gives the tensors of ``windtunnel.export.traced.Traced``. Texts cannot enter such a
    program: the package holds, beside it, "windtunnel.json" with the columns, the vocabularies that turn texts into
    ids, the labels, the version of torch and the device. ``windtunnel.export.serving`` reads both.

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
        What stands in ``windtunnel.export.limits``, or a step that has no graph.
    """
    check(net, "aoti" if native else "exported")
    traced = Traced(net)
    device = next((one.device for one in traced.program.state_dict().values()), torch.device("cpu"))
    graph = _graph(traced.to(device), net, device)
    described = facts(net, traced.outputs) | {
        "format": "aoti" if native else "exported",
        "device": str(device),
        "categories": _categories(net),
        "rows_at_once": 0 if net.program.whole() else min(net.batch_size, rows_at_once(net.program, graph)),
    }
    said = json.dumps(described, ensure_ascii=False)
    if native:
        write_atomically(path, lambda file: _compile(graph, file, said))
    else:
        write_atomically(path, lambda file: torch.export.save(graph, file, extra_files={MEMBER: said}))


def _graph(traced: Traced, net: TranslatedPipeline, device: torch.device) -> torch.export.ExportedProgram:
    blocks, rows = example(net, device), torch.export.Dim("rows")
    try:
        with quiet(), torch.no_grad():
            graph = torch.export.export(traced, blocks, dynamic_shapes=({0: rows}, {0: rows}))
            _check(graph.module(), traced, blocks)
    except Exception as error:  # the exporter has errors of many kinds
        said = " ".join(str(error).split())[:300]
        raise UnfaithfulOption(
            f"torch.export cannot take a graph of {_culprit(traced, blocks)}: {said}. Choose format='torchscript'."
        ) from error
    return graph


def _check(run: Any, traced: Traced, blocks: tuple[torch.Tensor, ...]) -> None:
    """Run the example, one row and no row: a graph may hold a number of rows fixed."""
    for rows in (len(blocks[0]), 1, 0):
        given = [block[:rows] for block in blocks]
        wanted = traced(*given) if rows else [one[:0] for one in traced(*blocks)]
        for found, want in zip(run(*given), wanted, strict=True):
            torch.testing.assert_close(found, want, rtol=1e-6, atol=1e-6, equal_nan=True)


def _culprit(traced: Traced, blocks: tuple[torch.Tensor, ...]) -> str:
    """The first step that has no graph of its own."""
    values, _ = traced.encoded(*blocks)
    for step in (*traced.program.steps, *traced.ends.values()):
        if not isinstance(step, ProgramStep):
            continue
        try:
            with quiet():
                torch.export.export(
                    step.module, (step.gather(values),), dynamic_shapes=({0: torch.export.Dim("rows")},)
                )
        except Exception:  # as above
            return f"step {step.name!r} ({type(step.module).__name__})"
        if len(values) < 2 + len(traced.program.steps):
            values.append(step(values))
    return "the program as a whole"


def _compile(graph: torch.export.ExportedProgram, file: IO[bytes], said: str) -> None:
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch, of its own parts
        path = str(Path(folder) / "native.pt2")
        try:
            torch._inductor.aoti_compile_and_package(graph, package_path=path)
        except Exception as error:  # of the compiler of graphs, or of the C++ compiler
            raise UnfaithfulOption(
                f"AOTInductor cannot compile the program ({' '.join(str(error).split())[:300]}). It needs a C++ "
                "compiler; choose format='exported', which needs none."
            ) from error
        with zipfile.ZipFile(path, "a") as package:
            (root,) = {name.split("/")[0] for name in package.namelist()}
            package.writestr(f"{root}/extra/{MEMBER}", said)
        file.write(Path(path).read_bytes())


def _categories(net: TranslatedPipeline) -> list[dict[str, Any]]:
    """The vocabulary of each column of ids: text i has id 2 + i, 0 is an unknown one, 1 a missing one."""
    return [
        {
            "column": names(net.encoder, [one.column])[0],
            "values": [str(value) for value in one.vocabulary.values],
            "buckets": one.vocabulary.buckets,
            "rejects_unknown": bool(one.rejects_unknown),
            "rejects_missing": bool(one.rejects_missing),
        }
        for _, one in text_slots(net.encoder)
    ]
