"""The steps of a native program, recorded from what a module does with tensors.

``forward`` of a module runs once, on a ``Traced`` tensor of a single row whose elements are columns of the program.
Operations of torch that move elements move columns; those that compute become steps. So a module that is made of the
operations of ``recorded.py`` needs no lowering function.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from windtunnel.compiler.graphs import COMPILING
from windtunnel.compiler.native.image import ImageWriter


class NotNative(Exception):
    """A module that the native engine does not compute; the message says why."""


MOST_COLUMNS = 2**14
"""The most intermediate columns of a module: more of them would not stay in the processor's cache."""
EXACT = 2**53
"""Up to this number, float64 holds all whole numbers."""
SUM, PRODUCT, GREATEST, LEAST = range(4)
"""Reductions, as ``groups.c`` numbers them."""
_SOURCE = Path(__file__).parents[1].joinpath("c", "elementwise.c").read_text()


def _functions(arity: str) -> list[str]:
    listed = _SOURCE.split(f"#define WT_{arity}_FUNCTIONS(F)")[1].split("\n\n")[0]
    return re.findall(r"F\((\w+), ", listed)


UNARY, BINARY = _functions("UNARY"), _functions("BINARY")
"""Functions of one number and of two, in the order of their numbers; most have torch's names."""
Recorded = Callable[..., Any]
RECORDED: dict[str, Recorded] = {}
"""Name of an operation of torch -> ``function(*args, **kwargs)``; filled by ``recorded.py``."""


class Traced(Tensor):
    """A tensor of one row, each element of which is a column or a constant of a native program."""

    recorder: Recorder
    places: Tensor  # int64, in the shape of the tensor: the number of a column, or -1 - the number of a constant

    @staticmethod
    def __new__(cls, recorder: Recorder, places: Tensor, dtype: torch.dtype) -> Traced:
        """A tensor without memory."""
        return torch.Tensor._make_wrapper_subclass(cls, places.shape, dtype=dtype)

    def __init__(self, recorder: Recorder, places: Tensor, dtype: torch.dtype) -> None:
        """Keep the places."""
        self.recorder, self.places = recorder, places

    def __repr__(self, **options: Any) -> str:  # type: ignore[override]
        """The shape and type."""
        return f"Traced({tuple(self.shape)}, {self.dtype})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        """Record an operation."""
        recorder = next(value.recorder for value in tree_leaves((args, kwargs)) if isinstance(value, Traced))
        return recorder.record(func, args, kwargs or {})


class Recorder:
    """Adds the steps of one module to a program."""

    def __init__(self, image: ImageWriter) -> None:
        self.image = image
        self.values: list[float] = []  # the constants, by their numbers
        self._number_of_bits: dict[int, int] = {}  # the 64 bits of a constant -> its number
        self._columns = 0

    def record(self, func: Any, args: Any, kwargs: Any) -> Any:
        """The output of an operation of torch.

        Raises ``NotNative`` if the operation is unknown, or needs too many columns.
        """
        name = func._schema.name.split("::")[1]
        writes = name.endswith("_") and not name.startswith("_")
        recorded = RECORDED.get(name.removesuffix("_") if writes else name)
        if recorded is None:
            if (output := func.decompose(*args, **kwargs)) is not NotImplemented:
                return output
            raise NotNative(f"torch.{name} has no native form")
        if name.startswith("index"):
            args = tree_map(_as_positions, args)
        if "device" in kwargs:
            kwargs = kwargs | {"device": None}
        described = func(*tree_map(_described, args), **tree_map(_described, kwargs))
        output = recorded(*args, **kwargs)
        if writes:
            if not isinstance(args[0], Traced):
                raise NotNative(f"torch.{name} writes to a constant")
            args[0].places.copy_(output.places)
            return args[0]
        if isinstance(described, Tensor):
            return Traced(self, output.places, described.dtype)
        return tuple(Traced(self, part.places, like.dtype) for part, like in zip(output, described, strict=True))

    def traced(self, places: Tensor) -> Traced:
        """A tensor of columns and constants."""
        return Traced(self, places, torch.float64)

    def places(self, value: Any) -> Tensor:
        """The columns and constants of a tensor or number."""
        if isinstance(value, Traced):
            return value.places
        tensor = value if isinstance(value, Tensor) else torch.tensor(value, dtype=torch.float64)
        if tensor.dtype == torch.int64 and tensor.numel() and int(tensor.abs().max()) > EXACT:
            raise NotNative("whole numbers beyond 2^53 have no native form")
        bits, at = torch.unique(tensor.detach().double().contiguous().view(torch.int64), return_inverse=True)
        numbers = [self._number_of_bits.setdefault(each, len(self._number_of_bits)) for each in bits.tolist()]
        self.values += torch.tensor([*self._number_of_bits][len(self.values) :]).view(torch.float64).tolist()
        return torch.tensor([-1 - number for number in numbers], dtype=torch.int64)[at].view(tensor.shape)

    def constants(self, places: NDArray[np.int64]) -> NDArray[np.float64]:
        """The values of constants."""
        return np.array(self.values)[-1 - places]

    def columns(self, places: Tensor) -> list[int]:
        """Columns, also for constants."""
        flat = places.flatten().numpy().copy()
        constant = flat < 0
        if constant.any():
            unique, at = np.unique(flat[constant], return_inverse=True)
            flat[constant] = np.array(self.step("constant", [], len(unique), self.constants(unique)))[at]
        return flat.tolist()  # type: ignore[no-any-return]

    def step(self, operation: str, inputs: Sequence[int], outputs: int, *facts: Any, **options: int) -> list[int]:
        """``ImageWriter.step``, within the limit of columns."""
        self._columns += outputs
        if self._columns > MOST_COLUMNS:
            raise NotNative(f"more than {MOST_COLUMNS:,} intermediate columns")
        return self.image.step(operation, inputs, outputs, *facts, **options)

    def computed(self, operation: str, inputs: Tensor, shape: Sequence[int], *facts: Any) -> Traced:
        """The outputs of a step, in this shape."""
        shape = torch.Size(shape)
        if not shape.numel():
            return self.traced(torch.zeros(shape, dtype=torch.int64))
        written = self.step(operation, self.columns(inputs), shape.numel(), *facts)
        return self.traced(torch.tensor(written).view(shape))

    def unary(self, function: str, value: Any) -> Traced:
        """f(x) of each element."""
        places = self.places(value)
        return self.computed("unary", places, places.shape, UNARY.index(function))

    def binary(self, function: str, left: Any, right: Any) -> Traced:
        """f(a, b) of each pair of elements."""
        a, b = torch.broadcast_tensors(self.places(left), self.places(right))  # type: ignore[no-untyped-call]
        number, shape = BINARY.index(function), a.shape
        a, b = a.flatten(), b.flatten()
        right_constant, left_constant = (a >= 0) & (b < 0), (a < 0) & (b >= 0)
        alike = (a < 0) == (b < 0)
        result = torch.empty_like(a)
        for operation, at, columns, constants in (
            ("binary", alike, [a, b], []),
            ("binary_right", right_constant, [a], [b]),
            ("binary_left", left_constant, [b], [a]),
        ):
            result[at] = self._computed_at(operation, at, columns, number, *constants)
        return self.traced(result.view(shape))

    def _computed_at(self, operation: str, at: Tensor, columns: list[Tensor], *facts: int | Tensor) -> Tensor:
        """The columns that a step computes for the elements ``at``, from the inputs and constants of these elements."""
        inputs = torch.cat([places[at] for places in columns])
        values = [self.constants(fact[at].numpy()) if isinstance(fact, Tensor) else fact for fact in facts]
        return self.computed(operation, inputs, [int(at.sum())], *values).places

    def select(self, condition: Any, left: Any, right: Any) -> Traced:
        """``left`` where the condition holds, else ``right``."""
        places = (self.places(value) for value in (condition, left, right))
        c, a, b = torch.broadcast_tensors(*places)  # type: ignore[no-untyped-call]
        shape = c.shape
        c, a, b = c.flatten(), a.flatten(), b.flatten()
        fixed, constant = c < 0, a < 0
        result = torch.empty_like(c)
        chosen = torch.from_numpy(self.constants(c[fixed].numpy()) != 0)
        result[fixed] = torch.where(chosen, a[fixed], b[fixed])
        at = ~fixed & ~constant
        result[at] = self._computed_at("select", at, [c, a, b])
        at = ~fixed & constant
        result[at] = self._computed_at("select_value", at, [c, b], a)
        return self.traced(result.view(shape))

    def reduced(
        self,
        which: int,
        value: Any,
        dims: int | Sequence[int] | None,
        keepdim: bool = False,
        empty: float | None = None,
    ) -> Traced:
        """A reduction over dimensions: ``SUM``, ``PRODUCT``, ``GREATEST`` or ``LEAST``.

        ``empty`` is the result over an empty dimension; None if it has none.
        """
        places = self.places(value)
        summed = [dims] if isinstance(dims, int) else dims or range(places.dim())
        dims = sorted(dim % max(1, places.dim()) for dim in summed)
        if 0 in dims and places.dim() > 1 and places.shape[0] == 1:
            raise NotNative("sums over all rows have no native form")
        kept = [dim for dim in range(places.dim()) if dim not in dims]
        shape = [1 if dim in dims else size for dim, size in enumerate(places.shape)]
        groups = places.permute(*kept, *dims)
        size = [places.shape[dim] for dim in kept]
        if not all(places.shape[dim] for dim in dims):
            if empty is None:
                raise NotNative("the maximum or minimum over an empty dimension has no native form")
            result = self.traced(self.places(empty).expand(size))
        else:
            result = self.computed("reduce", groups, size, which)
        return self.traced(result.places.reshape(shape)) if keepdim else result


def _as_positions(index: Any) -> Any:
    """A mask as positions, so that the shape of what it selects is known."""
    is_mask = isinstance(index, Tensor) and not isinstance(index, Traced) and index.dtype == torch.bool
    return index.nonzero()[:, 0] if is_mask and index.dim() == 1 else index


def _described(value: Any) -> Any:
    return torch.empty(value.shape, dtype=value.dtype, device="meta") if isinstance(value, Tensor) else value


@contextmanager
def _compiling() -> Iterator[None]:
    """Let modules take the form that they have for compilers, without decisions that depend on the rows."""
    with COMPILING:
        before = torch.compiler._is_compiling_flag
        torch.compiler._is_compiling_flag = True
        try:
            yield
        finally:
            torch.compiler._is_compiling_flag = before


def trace(
    function: Callable[[Tensor], Any], image: ImageWriter, columns: Sequence[int], dtype: torch.dtype
) -> list[int]:
    """Add the steps of a module, or of another function of a tensor; gives the columns of its output.

    ``columns`` are the input columns, ``dtype`` is their type.
    """
    recorder = Recorder(image)
    x = Traced(recorder, torch.tensor([list(columns)], dtype=torch.int64), dtype)
    try:
        with torch.inference_mode(False), torch.no_grad(), _compiling():
            output = function(x)
    except NotNative:
        raise
    except Exception as error:  # torch has errors of many kinds; the module then runs in torch, and the report says why
        message = " ".join(str(error).split())[:100]
        name = getattr(function, "__qualname__", f"forward of {type(function).__name__}")
        raise NotNative(f"{name} was not recorded: {type(error).__name__} {message}") from error
    return recorder.columns(recorder.places(output))
