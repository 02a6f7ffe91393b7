"""
Export to C, ONNX and TorchScript
=================================

``export`` writes one file that scores raw rows without WindTunnel. The suffix says which kind. All of them give the
probabilities of the model in this process.
"""

import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnxruntime
import pandas as pd
import torch
from lightgbm import LGBMClassifier
from sklearn.compose import make_column_transformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import windtunnel

generator = np.random.default_rng(0)
city = generator.choice(["Bern", "Oslo", "Porto"], 3_000)
X = pd.DataFrame({"city": city, "age": generator.integers(18, 80, 3_000).astype(float)})
y = np.where((city == "Porto") & (X["age"] < 40), "yes", "no")
columns = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), ["city"]), remainder="passthrough")
pipeline = make_pipeline(columns, LGBMClassifier(n_estimators=20, num_leaves=8, verbosity=-1)).fit(X, y)
net = windtunnel.translate(pipeline)

rows = pd.DataFrame({"city": ["Porto", "seen nowhere"], "age": [31.0, np.nan]})
folder = TemporaryDirectory()
path = Path(folder.name)
net.predict_proba(rows)

# %%
# ONNX
# ----
#
# An input per raw column, by its name. ONNX Runtime is all that the server needs.

net.export(path / "model.onnx")
session = onnxruntime.InferenceSession(path / "model.onnx")
print([(entry.name, entry.type) for entry in session.get_inputs()])
session.run(["predict_proba"], {"city": rows["city"].to_numpy(object), "age": rows["age"].to_numpy()})[0]

# %%
# TorchScript
# -----------
#
# The columns of numbers as one tensor, each column of text as a list. It needs torch alone.

net.export(path / "model.ts")
model = torch.jit.load(path / "model.ts")
print(model.number_columns(), model.string_columns(), model.classes())
model.predict_proba(torch.tensor([[31.0], [np.nan]]), [["Porto", "seen nowhere"]])

# %%
# C
# -
#
# The whole pipeline as a C file and a header, with libc and libm alone.

net.export(path / "model.c")
PROGRAM = """
#include <math.h>
#include <stdio.h>
#include "model.h"

static unsigned char workspace[MODEL_WORKSPACE];

int main(void) {
    model_row rows[2] = {{.city = "Porto", .age = 31}, {.city = "seen nowhere", .age = NAN}};
    double out[2 * MODEL_PREDICT_PROBA_WIDTH];
    int error = model_predict_proba(rows, 2, out, workspace);
    if (error != MODEL_OK) return puts(model_message(error));
    for (int row = 0; row < 2; row++)
        printf("P(%s) = %.8f\\n", model_labels[1], out[row * MODEL_PREDICT_PROBA_WIDTH + 1]);
}
"""
(path / "main.c").write_text(PROGRAM)
compiler = shutil.which("cc") or "gcc"
subprocess.run([compiler, "-O2", "main.c", "model.c", "-o", "main", "-lm"], cwd=path, check=True)
print(subprocess.run([path / "main"], capture_output=True, text=True, check=True).stdout)

# %%
# :doc:`Export </export>` says what each file holds, and one loader for all of them.

folder.cleanup()
