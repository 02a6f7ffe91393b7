"""Converters of fitted estimators, one file per family; importing this package registers all of them."""

import logging
from importlib import import_module
from importlib.util import find_spec
from pkgutil import walk_packages

from windtunnel.translators.conversions import (
    CategoryEncoding,
    CategoryRecoding,
    Composite,
    Part,
    Predictor,
    Selection,
    TokenCounts,
    Transformer,
)
from windtunnel.translators.registry import convert, supported, translates

__all__ = [
    "Composite",
    "CategoryEncoding",
    "Part",
    "Predictor",
    "CategoryRecoding",
    "Selection",
    "TokenCounts",
    "Transformer",
    "convert",
    "supported",
    "translates",
]

OPTIONAL = ("catboost", "imblearn", "xgboost")
"""Libraries whose converters, in the file of the same name, are registered only where the library is installed."""

for _file in walk_packages(__path__, f"{__name__}."):
    _name = _file.name.rpartition(".")[2]
    if _name not in OPTIONAL:
        import_module(_file.name)
    elif find_spec(_name) is not None:
        try:
            import_module(_file.name)
        except ImportError as error:  # such as an imbalanced-learn that is older than the installed scikit-learn
            logging.getLogger("windtunnel").warning("estimators of %s are not translated: %s", _name, error)
