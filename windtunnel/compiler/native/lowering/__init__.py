"""What the modules become in a native program.

``lower`` is the way in for modules, and ``trace`` for other functions of tensors. Most modules are recorded:
``traced.py`` runs their ``forward`` on columns of the program, and ``recorded.py`` says what each operation of torch
becomes. Where that is slow or impossible (trees, tables, hashes), a file holds the lowering functions of a family of
modules.
"""

from windtunnel.compiler.native.lowering import columns, recorded, soft_trees, tables, trees
from windtunnel.compiler.native.lowering.registry import NotNative, lower
from windtunnel.compiler.native.lowering.traced import trace

__all__ = ["NotNative", "columns", "lower", "recorded", "soft_trees", "tables", "trace", "trees"]
