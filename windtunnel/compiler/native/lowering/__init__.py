"""What the modules become in a native program: one function per module class.

``lower`` is the only way in. A file of this folder holds the functions of one family of modules, as the folders of
``windtunnel.modules`` do.
"""

from windtunnel.compiler.native.lowering import columns, linear, recorded, tables, trees
from windtunnel.compiler.native.lowering.registry import NotNative, lower

__all__ = ["NotNative", "columns", "linear", "lower", "recorded", "tables", "trees"]
