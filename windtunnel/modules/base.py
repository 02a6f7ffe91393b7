"""The base class of every module: declared tensors and facts, from which a module can be rebuilt."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self, dataclass_transform, get_origin

import torch
from torch import Tensor, nn

from windtunnel.errors import UnsupportedEstimator
from windtunnel.modules.outputs.finite import Finite

MODULES: dict[str, type[Module]] = {}
Rounding = Callable[[Tensor], Tensor]
"""How far numbers of a column may be from the source's, as a function of their values, float64 ``[n]`` -> ``[n]``."""
EPSILON = torch.finfo(torch.float64).eps
"""The rounding of float64, in units of the number."""
_LEARNED, _DERIVED = object(), object()


def learned() -> Any:
    """Declare a tensor field as an ``nn.Parameter``; a tensor field without this is a buffer."""
    return _LEARNED


def derived(*, init: Literal[False] = False) -> Any:
    """Declare an attribute that the constructor does not take; ``__post_init__`` sets it. Not saved."""
    return _DERIVED


@dataclass(frozen=True)
class Bounds:
    """The least and the most that a count may be."""

    least: int
    most: int
    default: Any = inspect.Parameter.empty

    def check(self, name: str, value: int) -> None:
        """Raise for a value outside of the bounds."""
        if not self.least <= value <= self.most:
            raise UnsupportedEstimator(f"{name}={value}; accepted are whole numbers from {self.least} to {self.most}")


def bounded(least: int, most: int, default: Any = inspect.Parameter.empty) -> Any:
    """Declare an ``int`` field with its bounds, so that no file makes a module loop or allocate without end."""
    return Bounds(least, most, default)


LISTED = Bounds(-(2**24), 2**24)
"""Bounds of the numbers in lists."""


@dataclass_transform(field_specifiers=(learned, derived, bounded))
class Module(nn.Module):
    """A translated step: ``forward`` takes one tensor ``[B, width in]`` and returns one tensor ``[B, width out]``.

    A subclass declares its fields as annotations, like a dataclass. A field of type ``Tensor`` becomes a buffer, or an
    ``nn.Parameter`` if it is ``learned()``; any other field is a plain JSON value. The constructor takes and stores
    each under its name, then calls ``__post_init__``. A subclass with its own ``__init__`` must keep the same contract
    and name its JSON values in ``FACTS``. Saving writes ``state_dict()`` and ``facts()``; loading calls ``rebuild``
    with them, so that an artefact holds data and the name of a class from ``MODULES``, never code.

    ``forward`` is written in the subset of Python that ``torch.jit.script`` compiles.

    Examples
    --------
    >>> class Shifted(Module):
    ...     shift: Tensor = learned()
    ...     sign: int = 1
    ...     def forward(self, x: Tensor) -> Tensor:
    ...         return self.sign * x + self.shift
    >>> Shifted(torch.tensor(0.5), sign=-1)(torch.tensor([[2.0]])).tolist()
    [[-1.5]]
    """

    FACTS: ClassVar[tuple[str, ...]] = ()
    """Names of the JSON values; filled in from the fields."""
    COPIES: ClassVar[bool] = True
    """Whether the constructor copies its tensors; False for large ones that nobody else holds."""
    KINDS: ClassVar[Mapping[str, str]] = {}
    """Kinds of parameters: name -> "table", "leaf", "tree" (recipes have a learning rate for these) or "residual"."""
    CHOICES: ClassVar[Mapping[str, Sequence[str]]] = {}
    """Fields with a few accepted values: name -> values."""
    FLOAT64: ClassVar[bool] = False
    """True if the module computes in float64 whatever the type of its input."""
    MAY_BE_NON_FINITE: ClassVar[bool] = False
    """True if finite rows may give infinite or missing values (logarithms, divisions)."""
    BATCH_DEPENDENT: ClassVar[bool] = False
    """True if the output for a row depends on the other rows of the batch (iterations with a common stopping rule)."""
    DIFFERS_IF_ALL_MISSING: ClassVar[bool] = False
    """True if a batch without any number is computed by another rule than the same rows in a batch with numbers."""

    PER_COLUMN: ClassVar[tuple[str, ...] | None] = None
    """Tensors with an entry per column, of modules that make output column k of input column k alone; else None."""
    MIXES_COLUMNS: ClassVar[bool] = False
    """True where a missing or infinite number in any column reaches every output, even by a weight of zero."""

    def __init_subclass__(cls, kw_only: bool = False, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.__module__.startswith("torch."):  # torch.fx derives a class from what it traces
            return
        if cls.__name__ in MODULES:
            raise TypeError(f"two modules are named {cls.__name__}: {MODULES[cls.__name__]} and {cls}; rename one")
        MODULES[cls.__name__] = cls
        if "__init__" not in vars(cls):
            _declare(cls, kw_only)

    def __post_init__(self) -> None:
        """Set derived attributes; called at the end of the constructor."""

    def facts(self) -> dict[str, Any]:
        """Give the JSON values that, with the tensors, rebuild this module."""
        return {name: getattr(self, name) for name in self.FACTS}

    @classmethod
    def rebuild(cls, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> Self:
        """Rebuild the module that ``facts()`` and ``state_dict()`` were taken from."""
        return cls(**tensors, **facts)

    def cast(self, dtype: torch.dtype) -> None:
        """Compute in ``dtype`` (float32 or float64) from now on; converters build modules in float64."""
        if not self.FLOAT64:
            self.to(dtype)

    def has_bits_of_source(self) -> bool:
        """Whether float64 numbers have the very bits of the source's, which rounds in the same way."""
        return False

    def rounding(self, column: int, inputs: Sequence[Rounding | None]) -> Rounding | None:
        """How far numbers of an output column may be from the source's in float64; None if this is not known.

        Parameters
        ----------
        column : int
            The output column.
        inputs : sequence of Rounding or None
            The same of the input columns; None for those that have the source's bits, and where it is not known.
        """
        return None

    def make_contiguous(self) -> None:
        """Make tensors contiguous, as a file stores them: products of transposed ones differ in the last bit."""
        for tensor in (*self.parameters(), *self.buffers()):
            tensor.data = tensor.data.contiguous()

    def rejected_rows(self, x: Tensor) -> Tensor | None:
        """Rows, bool ``[B]``, that the source's step rejects for reasons of its own; None if it rejects none.

        Box-Cox rejects what is not positive, splines what lies beyond their knots. A module with this method says all
        that its source rejects, missing and infinite numbers included.
        """
        return None

    @torch.jit.unused
    def rejects_by_itself(self) -> bool:
        """Whether the module has ``rejected_rows``, which may hold finite numbers too."""
        return type(self).rejected_rows is not Module.rejected_rows

    def required_columns(self, wanted: Sequence[int], width: int) -> Sequence[int] | None:
        """The input columns that the wanted output columns depend on; None if all are required.

        A module that overrides this method overrides ``select_columns`` as well.

        Parameters
        ----------
        wanted : sequence of int
            Output columns, ascending; at least one.
        width : int
            The number of input columns.
        """
        return None if self.PER_COLUMN is None else wanted

    def select_columns(self, wanted: Sequence[int], needed: Sequence[int], width: int) -> Module:
        """The same module for the wanted output columns, over the needed input columns.

        Parameters
        ----------
        wanted, needed : sequence of int
            Ascending; ``needed`` holds what ``required_columns`` gave, and at least one column.
        width : int
            The number of input columns of this module.
        """
        tensors = self.state_dict()
        tensors |= {name: tensors[name][list(needed)] for name in self.PER_COLUMN or ()}
        return self.rebuild(tensors, self.facts())

    def finite_inputs(self, width: int) -> Sequence[Finite | None]:
        """For each output column, the inputs whose NaN or infinity makes it non-finite.

        The entry of a column is None if this is unknown; the sequence is empty if it is unknown for all.

        Parameters
        ----------
        width : int
            The number of input columns.
        """
        return ()

    def soft(self, sample: Tensor | None) -> Module:
        """The differentiable form, which joint training trains; the module itself where ``forward`` is one.

        Parameters
        ----------
        sample : Tensor or None
            ``[rows, width in]``, inputs of this module for the calibration rows; None without such rows.
        """
        return self


@dataclass(frozen=True)
class _Field:
    """A declared field: its type, and how the constructor takes and stores its value."""

    type: Callable[[Any], Any]
    learned: bool
    bounds: Bounds | None
    parameter: inspect.Parameter

    @classmethod
    def of(cls, name: str, annotation: Any, value: Any, kw_only: bool) -> _Field:
        """The field of an annotation; ``value`` is its default, or what ``learned`` or ``bounded`` declares."""
        bounds = value if isinstance(value, Bounds) else LISTED if annotation == list[int] else None
        default = value.default if isinstance(value, Bounds) else value
        default = inspect.Parameter.empty if default is _LEARNED else default
        kind = inspect.Parameter.KEYWORD_ONLY if kw_only else inspect.Parameter.POSITIONAL_OR_KEYWORD
        parameter = inspect.Parameter(name, kind, default=default, annotation=annotation)
        return cls(annotation, value is _LEARNED, bounds, parameter)

    def store(self, module: Module, value: Any) -> None:
        """Store a value in a module: a tensor as a parameter or buffer, a checked JSON value as an attribute."""
        name = self.parameter.name
        if self.type is Tensor:
            if not isinstance(value, Tensor):
                raise TypeError(
                    f"field {name} of {type(module).__name__} is a {type(value).__name__}; give a tensor, such as "
                    "torch.from_numpy(array)"
                )
            tensor = value.detach().clone() if module.COPIES else value.detach()
            if self.learned:
                module.register_parameter(name, nn.Parameter(tensor))
            else:
                module.register_buffer(name, tensor)
            return
        if value not in module.CHOICES.get(name, (value,)):
            accepted = ", ".join(map(repr, module.CHOICES[name]))
            raise ValueError(f"{name} must be one of {accepted}, however: {name}={value!r}")
        if self.bounds is not None:
            for number in value if isinstance(value, list | tuple) else (value,):
                self.bounds.check(f"{name} of {type(module).__name__}", number)
        setattr(module, name, self.type(value))


def _declare(cls: type[Module], kw_only: bool) -> None:
    """Give a class with fields the constructor that stores them."""
    fields: dict[str, _Field] = dict(getattr(cls.__init__, "fields", {}))
    if not fields and cls.__init__ is not nn.Module.__init__:  # a base class has its own constructor
        return
    fields |= _declared_fields(cls, kw_only)
    if not fields:
        return
    self = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    signature = inspect.Signature([self, *(field.parameter for field in fields.values())])

    def __init__(self: Module, *values: Any, **named: Any) -> None:
        nn.Module.__init__(self)
        bound = signature.bind(self, *values, **named)
        bound.apply_defaults()
        for name, field in fields.items():
            field.store(self, bound.arguments[name])
        self.__post_init__()

    __init__.__annotations__ = {name: field.type for name, field in fields.items()}
    __init__.__dict__.update(__signature__=signature, fields=fields)
    type.__setattr__(cls, "__init__", __init__)
    cls.FACTS = tuple(name for name, field in fields.items() if field.type is not Tensor)


def _declared_fields(cls: type[Module], kw_only: bool) -> dict[str, _Field]:
    """The fields that a class itself declares, without those of its base classes."""
    fields: dict[str, _Field] = {}
    for name, annotation in inspect.get_annotations(cls, eval_str=True).items():
        value = vars(cls).get(name, inspect.Parameter.empty)
        if value is _LEARNED or value is _DERIVED or isinstance(value, Tensor | Bounds):
            delattr(cls, name)  # it would hide the parameter or buffer
        origin: Any = get_origin(annotation)
        if value is not _DERIVED and origin is not ClassVar:
            fields[name] = _Field.of(name, annotation, value, kw_only)
    return fields
