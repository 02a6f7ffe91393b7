"""Measurements on real and generated data, which come by an argument, as NAME=PATH."""

import os

# With the default, waiting threads of torch and LightGBM spin against each other and stall; it is read when either is
# imported, which every benchmark does after this.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
