"""The one shape that every module has: tensors by name and facts by name, so that it can be rebuilt from data alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from windtunnel.modules.outputs.finite import Finite

MODULES: dict[str, type[Module]] = {}


class Module(nn.Module):
    """A translated step: ``forward`` takes one tensor ``[B, width in]`` and returns one tensor ``[B, width out]``.

    The constructor of a subclass takes every parameter and buffer under the name that ``state_dict`` gives it, and
    every plain JSON value named in ``FACTS``; it stores each under that name. What can be learned is an
    ``nn.Parameter``, what is a fact is a buffer. Saving writes ``state_dict()`` and ``facts()``; loading calls
    ``rebuild`` with them, so that an artefact holds data and the name of a class from this table, never code.

    ``forward`` is written in the subset of Python that ``torch.jit.script`` compiles.
    """

    FACTS: ClassVar[tuple[str, ...]] = ()
    KINDS: ClassVar[Mapping[str, str]] = {}
    """Parameters that a recipe gives a rate of their own: name -> "table", "leaf" or "tree"."""
    PARTIAL: ClassVar[bool] = False
    """True where finite rows may give infinite or missing values (logarithms, divisions)."""
    WHOLE: ClassVar[bool] = False
    """True where the answer for a row depends on the rows that are given with it (steps that end by a common rule)."""

    PER_COLUMN: ClassVar[tuple[str, ...] | None] = None
    """Tensors with an entry per column, of modules that make output column k of input column k alone; else None."""
    MIXES: ClassVar[bool] = False
    """True where a missing or infinite number in any column reaches every output, even by a weight of zero."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.__module__.startswith("torch."):  # torch.fx makes a subclass of its own of what it traces
            return
        if cls.__name__ in MODULES:
            raise TypeError(f"two modules are named {cls.__name__}: {MODULES[cls.__name__]} and {cls}; rename one")
        MODULES[cls.__name__] = cls

    def facts(self) -> dict[str, Any]:
        """Give the JSON values that, with the tensors, rebuild this module."""
        return {name: getattr(self, name) for name in self.FACTS}

    @classmethod
    def rebuild(cls, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> Self:
        """Rebuild the module that ``facts()`` and ``state_dict()`` were taken from."""
        return cls(**tensors, **facts)

    def cast(self, dtype: torch.dtype) -> None:
        """Compute in ``dtype`` (float32 or float64) from now on; readers build modules in float64."""
        self.to(dtype)

    def laid_out(self) -> None:
        """Lay tensors out row by row, as a file will: products of transposed ones differ in the last bit."""
        for tensor in (*self.parameters(), *self.buffers()):
            tensor.data = tensor.data.contiguous()

    def outside(self, x: Tensor) -> Tensor | None:
        """Rows, bool ``[B]``, that the source's step rejects for its own reasons; None where there are none.

        Box-Cox rejects what is not positive, splines what lies beyond their knots. A module with this method says all
        that its source rejects, missing and infinite numbers included.
        """
        return None

    def needs(self, wanted: Sequence[int], width: int) -> Sequence[int] | None:
        """The input columns that the wanted output columns are made of; None where nothing less than all will do.

        A module that answers anything but None has a ``narrowed`` as well.

        Parameters
        ----------
        wanted : sequence of int
            Output columns, ascending; at least one.
        width : int
            How many columns the module is given.
        """
        return None if self.PER_COLUMN is None else wanted

    def narrowed(self, wanted: Sequence[int], needed: Sequence[int], width: int) -> Module:
        """The module that gives the wanted output columns only, of the needed input columns only.

        Parameters
        ----------
        wanted, needed : sequence of int
            Ascending; ``needed`` holds what ``needs`` gave, and at least one column.
        width : int
            How many columns this module is given.
        """
        tensors = self.state_dict()
        tensors |= {name: tensors[name][list(needed)] for name in self.PER_COLUMN or ()}
        return self.rebuild(tensors, self.facts())

    def finite_where(self, width: int) -> Sequence[Finite | None]:
        """For each output column what it is finite with, None where that is not known; empty where of none it is.

        Parameters
        ----------
        width : int
            How many columns the module is given.
        """
        return ()

    def soft(self, sample: Tensor | None) -> Module:
        """The differentiable form, which ``translate`` trains; the module itself where ``forward`` is one.

        Parameters
        ----------
        sample : Tensor or None
            ``[rows, width in]``, what reaches this module for the calibration rows; None where there are none.
        """
        return self
