"""Tree ensembles: one holder of facts, a hard module that runs it and a soft one that trains on it."""

from windtunnel.modules.trees.ensemble import TreeEnsemble
from windtunnel.modules.trees.hard import HardTrees
from windtunnel.modules.trees.isolation import IsolationScore
from windtunnel.modules.trees.leaves import LeafOneHot, TreeLeaves
from windtunnel.modules.trees.soft import SoftTrees

__all__ = ["HardTrees", "IsolationScore", "LeafOneHot", "SoftTrees", "TreeEnsemble", "TreeLeaves"]
