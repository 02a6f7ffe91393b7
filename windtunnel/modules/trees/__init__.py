"""Tree ensembles: one holder of facts, a hard module that runs it and a soft one that trains on it."""

from windtunnel.modules.trees.ensemble import TreeEnsemble
from windtunnel.modules.trees.forms.gemm import GemmTrees
from windtunnel.modules.trees.forms.perfect import PerfectTrees
from windtunnel.modules.trees.hard import HardTrees
from windtunnel.modules.trees.leaves import LeafOneHot, TreeLeaves
from windtunnel.modules.trees.linear_leaves import LinearLeafTrees
from windtunnel.modules.trees.soft.trees import SoftLeaves, SoftSplits, SoftTrees

__all__ = [
    "GemmTrees",
    "HardTrees",
    "LeafOneHot",
    "LinearLeafTrees",
    "PerfectTrees",
    "SoftLeaves",
    "SoftSplits",
    "SoftTrees",
    "TreeEnsemble",
    "TreeLeaves",
]
