"""One other engine, in a Python of its own: ``python peer_job.py ENGINE FOLDER METHOD THREADS``, a line per run.

FOLDER holds ``source.pkl`` and ``rows.pkl``, and keeps what engines compile. The first line that comes back says
whether the engine took the model; then for each number of rows that is read, one line with the seconds of a run, by a
wall clock and of processors. This file imports nothing of windtunnel.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

Run = Callable[[Any], Any]
OFF = 1e-3
"""Largest accepted error relative to the largest output; float32 sums stay below it."""


class Job(NamedTuple):
    """What an engine is given: a source, a method of it, rows, a folder for its files."""

    source: Any
    method: str
    rows: Any
    folder: Path
    threads: int


def onnxruntime(job: Job) -> Run:
    """A graph of its own operators, through skl2onnx or onnxmltools."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = job.threads, 1
    session = ort.InferenceSession(_onnx(job).SerializeToString(), options, providers=["CPUExecutionProvider"])
    wanted = [session.get_outputs()[1 if job.method == "predict_proba" else 0].name]
    names = [given.name for given in session.get_inputs()]
    if not hasattr(job.rows, "columns"):
        return lambda x: session.run(wanted, {names[0]: x})[0]
    # A graph calls an input by the name of a column, but for what is no identifier.
    columns = {name: column for column in job.rows for name in names if name == _name(column)}
    kinds = {name: "object" if job.rows[column].dtype == "str" else "float32" for name, column in columns.items()}

    def run(frame: Any) -> Any:
        given = {name: frame[column].to_numpy(kinds[name])[:, None] for name, column in columns.items()}
        return session.run(wanted, given)[0]

    return run


def treelite(job: Job) -> Run:
    """Its general inference library."""
    from treelite import gtil

    model = _treelite(job.source)
    return lambda x: gtil.predict(model, x, nthread=job.threads)


def tl2cgen(job: Job) -> Run:
    """C code, compiled by gcc."""
    import tl2cgen as generator

    library = job.folder / "trees.so"
    if not library.exists():
        generator.export_lib(_treelite(job.source), toolchain="gcc", libpath=library, params={"parallel_comp": 8})
    predictor = generator.Predictor(library, nthread=job.threads)
    return lambda x: predictor.predict(generator.DMatrix(x))


def library(job: Job) -> Run:
    """The quickest call of the library that fitted the model, without scikit-learn's checks."""
    kind = type(job.source).__module__.split(".")[0]
    if kind == "xgboost":
        booster = job.source.get_booster()
        booster.set_param({"nthread": job.threads})
        return booster.inplace_predict  # type: ignore[no-any-return]
    if kind == "lightgbm":
        return lambda x: job.source.booster_.predict(x, num_threads=job.threads)
    raise TypeError("its predict is the source")


def lleaves(job: Job) -> Run:
    """LLVM code of a LightGBM model."""
    import lleaves as compiler

    job.source.booster_.save_model(job.folder / "model.txt")
    model = compiler.Model(model_file=str(job.folder / "model.txt"))
    model.compile(cache=job.folder / "lleaves.bin")
    return lambda x: model.predict(x, n_jobs=job.threads)


def pylignum(job: Job) -> Run:
    """Its interpreter."""
    return _lignum_run(_lignum(job), job)


def pylignum_compiled(job: Job) -> Run:
    """C code of each tree, compiled by the system's compiler."""
    model = _lignum(job)
    model.compile(work_dir=str(job.folder), library=str(job.folder / "lignum.so"))
    return _lignum_run(model, job)


def hummingbird(job: Job) -> Run:
    """TorchScript, with the strategy that it chooses."""
    import torch
    from hummingbird.ml import convert

    torch.set_num_threads(job.threads)
    return getattr(convert(job.source, "torch.jit", job.rows[:1000]), job.method)  # type: ignore[no-any-return]


def _onnx(job: Job) -> Any:
    import numpy as np

    kind = type(job.source).__module__.split(".")[0]
    if kind == "catboost":
        import onnx

        job.source.save_model(str(job.folder / "model.onnx"), format="onnx")
        return onnx.load(str(job.folder / "model.onnx"))
    if kind != "sklearn":
        import onnxmltools
        from onnxmltools.convert.common.data_types import FloatTensorType

        convert = {"lightgbm": onnxmltools.convert_lightgbm, "xgboost": onnxmltools.convert_xgboost}[kind]
        return convert(job.source, initial_types=[("x", FloatTensorType([None, job.source.n_features_in_]))])
    from lightgbm import LGBMClassifier
    from onnxmltools.convert.lightgbm.operator_converters.LightGbm import convert_lightgbm
    from skl2onnx import to_onnx, update_registered_converter
    from skl2onnx.common.data_types import FloatTensorType as Floats, StringTensorType
    from skl2onnx.common.shape_calculator import calculate_linear_classifier_output_shapes
    from sklearn.feature_extraction.text import TfidfVectorizer

    update_registered_converter(
        LGBMClassifier, "LightGbmLGBMClassifier", calculate_linear_classifier_output_shapes, convert_lightgbm,
        options={"nocl": [True, False], "zipmap": [True, False, "columns"]},
    )  # fmt: skip
    # The locale that it takes by itself is not on every machine.
    options: dict[Any, Any] = {TfidfVectorizer: {"locale": "C"}}
    if job.method == "predict_proba":
        options[id(job.source)] = {"zipmap": False}
    if not hasattr(job.rows, "columns"):
        return to_onnx(job.source, np.zeros((1, job.source.n_features_in_), np.float32), options=options)
    types = [
        (column, (StringTensorType if job.rows[column].dtype == "str" else Floats)([None, 1])) for column in job.rows
    ]
    versions = {"": 18, "ai.onnx.ml": 3}
    return to_onnx(job.source, initial_types=types, options=options, target_opset=versions)


def _lignum(job: Job) -> Any:
    import lignum

    kind = type(job.source).__module__.split(".")[0]
    if kind == "lightgbm":
        path = job.folder / "lignum.txt"
        job.source.booster_.save_model(path)
    elif kind == "catboost":
        path = job.folder / "lignum.json"
        job.source.save_model(str(path), format="json")
    else:
        path = job.folder / "lignum.json"
        job.source.save_model(path)
    return lignum.load(str(path))


def _lignum_run(model: Any, job: Job) -> Run:
    return lambda x: model.predict(x, n_jobs=job.threads)


def _name(column: str) -> str:
    return column.replace(" ", "_")


def _treelite(source: Any) -> Any:
    import treelite

    kind = type(source).__module__.split(".")[0]
    if kind == "lightgbm":
        return treelite.frontend.from_lightgbm(source.booster_)
    if kind == "xgboost":
        return treelite.frontend.from_xgboost(source.get_booster())
    return treelite.sklearn.import_model(source)


ENGINES = {
    one.__name__.replace("_", "-"): one
    for one in (onnxruntime, treelite, tl2cgen, lleaves, hummingbird, library, pylignum, pylignum_compiled)
}
FLOAT64 = ("pylignum", "pylignum-compiled")
"""Engines that take float64 as it is."""


def _taken(engine: str, job: Job) -> tuple[Run | None, str]:
    """What runs the model, and what there is to say about it."""
    import numpy as np

    try:
        run = ENGINES[engine](job)
        some = job.rows[:100]
        given = some.astype(np.float64) if isinstance(some, np.ndarray) else some
        wanted = np.asarray(getattr(job.source, job.method)(given))
        found = np.asarray(run(some))
        if found.size < wanted.size:  # of two classes most engines give one probability
            wanted = wanted[:, 1]
        found = found.reshape(wanted.shape)
    except Exception as error:  # each engine has errors of its own; they are what is reported
        return None, " ".join(f"{type(error).__name__}: {error}".split())[:300]
    off = float(np.abs(found - wanted.astype(float)).max() / np.abs(wanted.astype(float)).max())
    return run, f"outputs are off by {off:.2g} of the largest" if not off <= OFF else ""


def main() -> None:
    """Take the model, then serve."""
    import numpy as np

    engine, folder, method, threads = sys.argv[1], Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what engines print goes elsewhere
    source, rows = (pickle.loads((folder / name).read_bytes()) for name in ("source.pkl", "rows.pkl"))
    if engine in FLOAT64 and isinstance(rows, np.ndarray):
        rows = rows.astype(np.float64)
    start = time.perf_counter()
    run, why = _taken(engine, Job(source, method, rows, folder, threads))
    ready = {"ready": run is not None, "why": why, "seconds": time.perf_counter() - start}
    print(json.dumps(ready), file=replies, flush=True)
    for line in sys.stdin if run is not None else ():
        assert run is not None
        given = rows[: int(line)]
        processor, wall = time.process_time(), time.perf_counter()
        run(given)
        wall, processor = time.perf_counter() - wall, time.process_time() - processor
        print(json.dumps([wall, processor]), file=replies, flush=True)


if __name__ == "__main__":
    main()
