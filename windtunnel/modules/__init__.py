"""Modules that hold tensors and see no estimator; each is in ``base.MODULES`` under its name.

Files with modules do not postpone annotations: ``torch.jit.script`` reads those of a class and takes no strings.
"""

from importlib import import_module
from pkgutil import walk_packages


def import_all() -> None:
    """Import every file of the folder, so that ``base.MODULES`` is complete."""
    for module in walk_packages(__path__, f"{__name__}."):
        import_module(module.name)
