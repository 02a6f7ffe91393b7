"""Tables with a row per category."""

from windtunnel.compiler.native.image import ImageWriter
from windtunnel.compiler.native.lowering.registry import lowers
from windtunnel.modules.tables.category_table import CategoryTable, Identity


@lowers(CategoryTable)
def _category_table(module: CategoryTable, image: ImageWriter, columns: list[int]) -> list[int]:
    return image.step("category_table", columns, module.rows.shape[1], module.rows)


@lowers(Identity)
def _identity(module: Identity, image: ImageWriter, columns: list[int]) -> list[int]:
    return columns
