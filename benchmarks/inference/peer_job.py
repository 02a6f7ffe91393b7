"""One other engine, in a Python of its own: ``python peer_job.py ENGINE FOLDER THREADS``, then a line per run.

FOLDER holds ``source.pkl`` and ``rows.npy``. The first line that comes back says whether the engine took the model;
then for each number of rows that is read, one line with the seconds of a run. This file imports nothing of windtunnel.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Run = Callable[[Any], Any]


def onnxruntime(source: Any, folder: Path, threads: int) -> Run:
    """Its TreeEnsemble operator, through onnxmltools or skl2onnx."""
    import numpy as np
    import onnxruntime as ort

    kind = type(source).__module__.split(".")[0]
    if kind == "sklearn":
        from skl2onnx import to_onnx

        model = to_onnx(source, np.zeros((1, source.n_features_in_), np.float32))
    else:
        import onnxmltools
        from onnxmltools.convert.common.data_types import FloatTensorType

        convert = {"lightgbm": onnxmltools.convert_lightgbm, "xgboost": onnxmltools.convert_xgboost}[kind]
        model = convert(source, initial_types=[("x", FloatTensorType([None, source.n_features_in_]))])
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda x: session.run(None, {name: x})[0]


def treelite(source: Any, folder: Path, threads: int) -> Run:
    """Its general inference library."""
    from treelite import gtil

    model = _treelite(source)
    return lambda x: gtil.predict(model, x, nthread=threads)


def tl2cgen(source: Any, folder: Path, threads: int) -> Run:
    """C code, compiled by gcc."""
    import tl2cgen as generator

    library = folder / "trees.so"
    if not library.exists():
        generator.export_lib(_treelite(source), toolchain="gcc", libpath=library, params={"parallel_comp": 8})
    predictor = generator.Predictor(library, nthread=threads)
    return lambda x: predictor.predict(generator.DMatrix(x))


def lleaves(source: Any, folder: Path, threads: int) -> Run:
    """LLVM code of a LightGBM model."""
    import lleaves as compiler

    source.booster_.save_model(folder / "model.txt")
    model = compiler.Model(model_file=str(folder / "model.txt"))
    model.compile(cache=folder / "lleaves.bin")
    return lambda x: model.predict(x, n_jobs=threads)


def hummingbird(source: Any, folder: Path, threads: int) -> Run:
    """TorchScript, with the strategy that it chooses."""
    import numpy as np
    import torch
    from hummingbird.ml import convert

    torch.set_num_threads(threads)
    example = np.load(folder / "rows.npy", mmap_mode="r")[:1000].astype(np.float32)
    return convert(source, "torch.jit", example).predict  # type: ignore[no-any-return]


def _treelite(source: Any) -> Any:
    import treelite

    kind = type(source).__module__.split(".")[0]
    if kind == "lightgbm":
        return treelite.frontend.from_lightgbm(source.booster_)
    if kind == "xgboost":
        return treelite.frontend.from_xgboost(source.get_booster())
    return treelite.sklearn.import_model(source)


ENGINES = {one.__name__: one for one in (onnxruntime, treelite, tl2cgen, lleaves, hummingbird)}


def main() -> None:
    """Take the model, then serve."""
    import numpy as np

    engine, folder, threads = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what engines print goes elsewhere
    source = pickle.loads((folder / "source.pkl").read_bytes())
    rows = np.load(folder / "rows.npy").astype(np.float32)
    try:
        run = ENGINES[engine](source, folder, threads)
        wanted = np.asarray(source.predict(rows[:100].astype(np.float64))).ravel()
        found = np.asarray(run(rows[:100])).ravel()
        apart = float(np.abs(found - wanted).max() / np.abs(wanted).max())
        said = {"ready": True, "apart": apart}
    except Exception as error:  # each engine has errors of its own; they are what is reported
        said = {"ready": False, "why": f"{type(error).__name__}: {error}"[:300]}
    print(json.dumps(said), file=answers, flush=True)
    for line in sys.stdin:
        given = rows[: int(line)]
        start = time.perf_counter()
        run(given)
        print(json.dumps(time.perf_counter() - start), file=answers, flush=True)


if __name__ == "__main__":
    main()
