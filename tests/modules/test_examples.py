"""The examples in docstrings of modules and estimators run."""

import doctest
import sys

from windtunnel import estimators, modules


def test_examples_run() -> None:
    modules.import_all()
    folders = (f"{modules.__name__}.", f"{estimators.__name__}.")
    results = {name: doctest.testmod(file) for name, file in [*sys.modules.items()] if name.startswith(folders)}
    assert not [name for name, result in results.items() if result.failed]
    assert sum(result.attempted for result in results.values()) > 50
