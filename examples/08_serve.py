"""
Serve over HTTP
===============

``windtunnel serve`` answers requests with the predictions of a saved model. This page starts it as another process,
asks it as a client would, and stops it.
"""

import socket
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.error import URLError
from urllib.request import Request, urlopen

from lightgbm import LGBMClassifier
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import windtunnel
from windtunnel.clicklog import click_log

X, y = click_log(5_000)
encoder = OneHotEncoder(min_frequency=10, handle_unknown="infrequent_if_exist")
columns = make_column_transformer((encoder, make_column_selector(dtype_exclude="number")), remainder="passthrough")
pipeline = make_pipeline(columns, LGBMClassifier(n_estimators=30, num_leaves=16, verbosity=-1)).fit(X, y)
folder = TemporaryDirectory()
path = Path(folder.name) / "clicks.windtunnel"
windtunnel.compile(pipeline).save(path)  # a translation that fit has tuned is saved in the same way

# %%
# In a shell this is ``windtunnel serve clicks.windtunnel --port 8080``.

with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
command = [sys.executable, "-m", "windtunnel", "serve", str(path), "--port", str(port)]
server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def ask(path, body=None):
    """The answer of the server, as text; waits until it has started."""
    request = Request(f"http://127.0.0.1:{port}{path}", data=body)
    for _ in range(600):
        try:
            with urlopen(request) as answer:
                return answer.read().decode()
        except URLError as error:
            if not isinstance(error.reason, ConnectionError):
                raise
            time.sleep(0.1)
    raise TimeoutError("the server did not start")


# %%
# Rows are a list of objects. Missing values are ``null``, and columns that the model does not read are ignored.

rows = X.head(2).to_json(orient="records").encode()
print(rows.decode()[:160], "...")
print(ask("/predict", rows))

# %%
# The same from the pipeline:

pipeline.predict_proba(X.head(2)).round(6)

# %%
# Prometheus reads what the server has done.

counters = ("windtunnel_requests_total", "windtunnel_rows_total", "windtunnel_request_seconds_sum")
print("\n".join(line for line in ask("/metrics").splitlines() if line.startswith(counters)))
server.terminate()
server.wait()
folder.cleanup()
