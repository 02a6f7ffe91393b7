"""Warnings of other libraries that every test ignores, and the order in which the files run."""

import pytest

SLOW_FILES = (
    "test_export_formats", "test_backends", "test_translate", "test_export_modules", "test_sweep", "test_compiled_fit",
    "test_train_step_benchmark", "test_streaming", "test_strategies", "test_torchscript", "test_soft_triton",
    "test_catboost_categories", "test_paper", "test_wrappers", "test_residual_model", "test_gradients", "test_passes",
    "test_accuracy_benchmark", "test_readme", "test_soft_kernel", "test_distributed", "test_finetune", "test_fuzz",
)  # fmt: skip
"""Files of ten seconds and more, slowest first."""


def pytest_configure(config: pytest.Config) -> None:
    # category_encoders 2.11 sets an option that pandas 3 has deprecated, in fit and transform alike.
    config.addinivalue_line("filterwarnings", "ignore:'future.no_silent_downcasting' is deprecated")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run slow files first, so that no worker waits for one at the end (``--dist loadfile``)."""
    rank = {name: number for number, name in enumerate(SLOW_FILES)}
    items.sort(key=lambda item: rank.get(item.path.stem, len(rank)))
