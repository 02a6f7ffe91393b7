"""WindTunnel: fitted scikit-learn, LightGBM, XGBoost and CatBoost pipelines as PyTorch modules.

    net = windtunnel.translate(pipeline, calibrate=X_sample)
    net.fit(train_loader, val_loader)
    net.predict_proba(X_test)

Names are imported when first used, so that a command line can set ``OMP_WAIT_POLICY`` before torch is loaded.
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from windtunnel.api.cascade import cascade as cascade
    from windtunnel.api.compile import compile as compile
    from windtunnel.api.crossfit import crossfit as crossfit
    from windtunnel.api.load import load as load
    from windtunnel.api.serve import serve as serve
    from windtunnel.api.sweep import sweep as sweep
    from windtunnel.api.translate import translate as translate
    from windtunnel.api.translation import Translation as Translation
    from windtunnel.api.wrappers import (
        WindTunnelClassifier as WindTunnelClassifier,
        WindTunnelRegressor as WindTunnelRegressor,
    )
    from windtunnel.encode import Batch as Batch
    from windtunnel.errors import (
        BadFile as BadFile,
        BadInput as BadInput,
        InvalidOption as InvalidOption,
        Overloaded as Overloaded,
        UnfaithfulOption as UnfaithfulOption,
        UnsupportedEstimator as UnsupportedEstimator,
        WindTunnelError as WindTunnelError,
    )
    from windtunnel.estimators import (
        BinEncoder as BinEncoder,
        CrossFittedClassifier as CrossFittedClassifier,
        CrossFittedRegressor as CrossFittedRegressor,
        FactorizationMachineClassifier as FactorizationMachineClassifier,
        FactorizationMachineRegressor as FactorizationMachineRegressor,
        LeafEncoder as LeafEncoder,
        Lookup as Lookup,
        MatrixFactorization as MatrixFactorization,
        RareCategories as RareCategories,
        TwoHotEncoder as TwoHotEncoder,
    )
    from windtunnel.explain.explanation import Explanation as Explanation
    from windtunnel.serving.batching import Server as Server
    from windtunnel.serving.cascade.cascade import Cascade as Cascade
    from windtunnel.sweeps.result import SweepResult as SweepResult
    from windtunnel.trainers.data.loader import loader as loader
    from windtunnel.trainers.data.parquet_stream import stream as stream
    from windtunnel.trainers.recipe import Recipe as Recipe
    from windtunnel.translators import supported as supported, translates as translates
    from windtunnel.translators.not_fitted import NotFitted as NotFitted

_PLACES = {
    "BadFile": "errors",
    "BadInput": "errors",
    "Batch": "encode",
    "BinEncoder": "estimators",
    "Cascade": "serving.cascade.cascade",
    "CrossFittedClassifier": "estimators",
    "CrossFittedRegressor": "estimators",
    "FactorizationMachineClassifier": "estimators",
    "FactorizationMachineRegressor": "estimators",
    "Explanation": "explain.explanation",
    "InvalidOption": "errors",
    "LeafEncoder": "estimators",
    "Lookup": "estimators",
    "MatrixFactorization": "estimators",
    "NotFitted": "translators.not_fitted",
    "RareCategories": "estimators",
    "Overloaded": "errors",
    "Recipe": "trainers.recipe",
    "Server": "serving.batching",
    "SweepResult": "sweeps.result",
    "Translation": "api.translation",
    "TwoHotEncoder": "estimators",
    "UnfaithfulOption": "errors",
    "UnsupportedEstimator": "errors",
    "WindTunnelClassifier": "api.wrappers",
    "WindTunnelError": "errors",
    "WindTunnelRegressor": "api.wrappers",
    "cascade": "api.cascade",
    "compile": "api.compile",
    "crossfit": "api.crossfit",
    "load": "api.load",
    "loader": "trainers.data.loader",
    "serve": "api.serve",
    "stream": "trainers.data.parquet_stream",
    "supported": "translators",
    "sweep": "api.sweep",
    "translate": "api.translate",
    "translates": "translators",
}
_SUBMODULES = ("clicklog", "mlflow", "testing")
"""Public modules beside these classes and functions; each is imported on its first use."""
__version__ = version("windtunnel")
__all__ = sorted([*_PLACES, "__version__"])


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return import_module(f"windtunnel.{name}")
    if name not in _PLACES:
        raise AttributeError(f"module 'windtunnel' has no attribute {name!r}; it has {', '.join(__all__)}")
    value = getattr(import_module(f"windtunnel.{_PLACES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
