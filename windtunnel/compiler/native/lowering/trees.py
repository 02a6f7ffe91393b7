"""Hard trees."""

from windtunnel.compiler.native.image import ImageWriter
from windtunnel.compiler.native.lowering.registry import NotNative, lowers
from windtunnel.modules.trees.hard import HardTrees


@lowers(HardTrees)
def _trees(module: HardTrees, image: ImageWriter, columns: list[int]) -> list[int]:
    if not module.same_reading or module.vector or module.reads != "float64":
        raise NotNative("categories, leaves with several values and float32 trees have no native form yet")
    facts = (module.feature_at, module.split, module.follow, module.value, module.root)
    trees = len(module.root) // module.outputs
    return image.step("trees", columns, module.outputs, *facts, trees, module.base, float(module.divisor))
