"""Warnings of other libraries that every test ignores, and how the files share the workers."""

import gc
import sys
from functools import cache

import pytest

CASE_TABLE = ("test_translate", "test_backends", "test_export_modules", "test_torchscript", "test_gradients")
"""Files that compile large parts of the case table; one worker runs them all, so each pipeline is fitted once."""
SLOW_FILES = (
    "test_readme", "test_export_formats", "test_residual_model", "test_score_methods", "test_boosted_residual",
    "test_wrappers", "test_soft_kernel", "test_crossfit", "test_returned_model", "test_joint_and_residual",
    "test_fuzz_files", "test_few_rows", "test_storage", "test_distributed", "test_fuzz", "test_rejected_rows",
    "test_accuracy_benchmark", "test_resume", "test_streaming", "test_tree_block_weights", "test_strategies",
    "test_shrinkage", "test_metrics", "test_catboost_categories", "test_onnx_types",
)  # fmt: skip
"""The slowest of the other files, slowest first."""


def pytest_configure(config: pytest.Config) -> None:
    # category_encoders 2.11 sets an option that pandas 3 has deprecated, in fit and transform alike.
    config.addinivalue_line("filterwarnings", "ignore:'future.no_silent_downcasting' is deprecated")
    # Python 3.13 warns of these: torch's in its first release, Optuna's storages that tests open.
    config.addinivalue_line("filterwarnings", "ignore:Guards may run slower on Python 3.13.0")
    config.addinivalue_line("filterwarnings", "ignore:unclosed database:ResourceWarning")
    # XGBoost 3.4 still has these.
    config.addinivalue_line("filterwarnings", "ignore:.*`(booster=dart|booster=gblinear|XGBRF.*)` is deprecated")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests of a file on one worker (``--dist loadgroup``), and start slow files first."""
    rank = {name: number for number, name in enumerate(CASE_TABLE + SLOW_FILES)}
    items.sort(key=lambda item: rank.get(item.path.stem, len(rank)))
    for item in items:
        name = item.path.stem
        item.add_marker(pytest.mark.xdist_group("case_table" if name in CASE_TABLE else name))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Once the ONNX exporter is imported, let it parse its table of operators once, not in each export (0.3 s)."""
    if "onnxscript._framework_apis.torch_2_5" in sys.modules:
        cache_onnx_operators()


@cache
def cache_onnx_operators() -> None:
    for name, module in list(sys.modules.items()):
        if name.startswith("onnxscript._framework_apis.") and hasattr(module, "get_torchlib_ops"):
            module.get_torchlib_ops = cache(module.get_torchlib_ops)  # type: ignore[attr-defined]


def pytest_collection_finish() -> None:
    gc.freeze()  # what is imported by now is never garbage
