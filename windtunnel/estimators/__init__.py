"""Estimators with scikit-learn's API that other libraries lack."""

from windtunnel.estimators.bin_encoder import BinEncoder
from windtunnel.estimators.cross_fitted import CrossFittedClassifier, CrossFittedRegressor
from windtunnel.estimators.factorization_machine import FactorizationMachineClassifier, FactorizationMachineRegressor
from windtunnel.estimators.leaf_encoder import LeafEncoder
from windtunnel.estimators.lookup import Lookup
from windtunnel.estimators.matrix_factorization import MatrixFactorization
from windtunnel.estimators.rare_categories import RareCategories
from windtunnel.estimators.two_hot import TwoHotEncoder

__all__ = [
    "BinEncoder",
    "CrossFittedClassifier",
    "CrossFittedRegressor",
    "FactorizationMachineClassifier",
    "FactorizationMachineRegressor",
    "LeafEncoder",
    "Lookup",
    "MatrixFactorization",
    "RareCategories",
    "TwoHotEncoder",
]
