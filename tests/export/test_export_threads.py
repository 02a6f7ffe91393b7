"""Exports in several threads at once."""

import logging
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PowerTransformer

import windtunnel


@pytest.mark.parametrize(("suffix", "repeats"), [("onnx", 1), ("pt2", 1), ("c", 6)])
def test_files_written_by_two_threads_are_those_of_one(suffix, repeats, tmp_path):
    X = np.random.default_rng(0).normal(size=(100, 4))
    pipeline = make_pipeline(PowerTransformer(), LogisticRegression()).fit(X, X[:, 0] > 0)
    nets = [windtunnel.compile(pipeline) for _ in range(2)]
    nets[0].export(tmp_path / f"model.{suffix}")
    wanted, level = (tmp_path / f"model.{suffix}").read_bytes(), logging.getLogger("torch").level

    def write(number):
        folder = tmp_path / str(number)
        folder.mkdir()
        for _ in range(repeats):
            nets[number].export(folder / f"model.{suffix}")
        return (folder / f"model.{suffix}").read_bytes()

    with ThreadPoolExecutor(2) as threads:
        assert [*threads.map(write, range(2))] == [wanted, wanted]
    assert logging.getLogger("torch").level == level and not torch.compiler.is_compiling()
