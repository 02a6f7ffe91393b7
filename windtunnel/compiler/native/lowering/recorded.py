"""What operations of torch become in a native program.

Each function takes the arguments of the operation, of which at least one is ``Traced``, and gives its output. Where it
computes with ``Traced`` tensors, it is recorded in turn.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from windtunnel.compiler.native.lowering.traced import (
    BINARY,
    GREATEST,
    LEAST,
    PRODUCT,
    RECORDED,
    SUM,
    UNARY,
    NotNative,
    Recorded,
    Recorder,
    Traced,
)

MOVES = (
    "_reshape_alias _unsafe_view alias as_strided clone contiguous detach diagonal expand flip lift_fresh narrow "
    "permute repeat roll select slice split split_with_sizes squeeze t transpose unbind unfold unsqueeze view"
).split()
"""Operations that move elements and compute nothing."""
FILLED = "empty_like full_like new_empty new_full new_ones new_zeros ones_like zeros_like".split()
"""Operations that make constants in the shape or type of a tensor."""
INSERT_LEFT, INSERT_RIGHT = 2, 3
Function = Callable[..., Any]


def records(*names: str) -> Callable[[Function], Function]:
    """Register what operations become."""

    def register(function: Function) -> Function:
        RECORDED.update(dict.fromkeys(names, function))
        return function

    return register


def _recorder(*values: Any) -> Recorder:
    return next(value.recorder for value in values if isinstance(value, Traced))


def _unary(name: str) -> Recorded:
    return lambda x: x.recorder.unary(name, x)


def _binary(name: str) -> Recorded:
    return lambda a, b: _recorder(a, b).binary(name, a, b)


def _moved(name: str) -> Recorded:
    function = getattr(torch.ops.aten, name)

    def recorded(x: Traced, *args: Any, **options: Any) -> Any:
        places = function(x.places, *args, **options)
        return x.recorder.traced(places) if isinstance(places, Tensor) else [*map(x.recorder.traced, places)]

    return recorded


def _filled(name: str) -> Recorded:
    function = getattr(torch.ops.aten, name)

    def recorded(x: Traced, *args: Any, dtype: torch.dtype | None = None, **options: Any) -> Traced:
        values = function(torch.empty(x.shape, dtype=x.dtype), *args, dtype=dtype)
        return x.recorder.traced(x.recorder.places(values))

    return recorded


RECORDED |= {name: _unary(name) for name in UNARY}
RECORDED |= {name: _binary(name) for name in BINARY}
RECORDED |= {f"bitwise_{name}": _binary(f"logical_{name}") for name in ("and", "or", "xor")}
RECORDED |= {name: _moved(name) for name in MOVES}
RECORDED |= {name: _filled(name) for name in FILLED}
RECORDED |= dict.fromkeys(("view", "_unsafe_view"), _moved("reshape"))


def _scaled(name: str) -> Recorded:
    """The function a + alpha b, or a - alpha b."""
    return lambda a, b, *, alpha=1: _recorder(a, b).binary(name, a, b if alpha == 1 else b * alpha)


RECORDED |= {"add": _scaled("add"), "sub": _scaled("sub")}
RECORDED["rsub"] = lambda a, b, alpha=1: RECORDED["sub"](b, a, alpha=alpha)


@records("mul")
def _product(a: Any, b: Any) -> Traced:
    whole = [not value.is_floating_point() if isinstance(value, Tensor) else isinstance(value, int) for value in (a, b)]
    if all(whole) and not any(isinstance(value, Tensor) and value.dtype == torch.bool for value in (a, b)):
        raise NotNative("products of whole numbers have no native form")
    return _recorder(a, b).binary("mul", a, b)


@records("div")
def _quotient(a: Any, b: Any, *, rounding_mode: str | None = None) -> Traced:
    recorder = _recorder(a, b)
    quotient = recorder.binary("div", a, b)
    return quotient if rounding_mode is None else recorder.unary(rounding_mode, quotient)


@records("reciprocal")
def _reciprocal(x: Traced) -> Traced:
    return x.recorder.binary("div", 1.0, x)  # 1 / x would be recorded as a reciprocal


@records("pow")
def _power(x: Any, exponent: Any) -> Any:
    """Torch multiplies and takes roots instead of some powers."""
    if isinstance(exponent, Tensor) or isinstance(x, int | float):
        return _recorder(x, exponent).binary("pow", x, exponent)
    simple: dict[float, Callable[[], Any]] = {
        -2: lambda: 1.0 / (x * x),
        -1: lambda: 1.0 / x,
        0.5: x.sqrt,
        2: lambda: x * x,
        3: lambda: x * x * x,
    }
    return simple[exponent]() if exponent in simple else x.recorder.binary("pow", x, float(exponent))


@records("logit")
def _logit(x: Traced, eps: float | None = None) -> Any:
    if eps is not None:
        raise NotNative("logit with eps has no native form")
    return (x / (1 - x)).log()


@records("softplus")
def _softplus(x: Traced, beta: float = 1, threshold: float = 20) -> Any:
    return torch.where(x * beta > threshold, x, (x * beta).exp().log1p() / beta)


RECORDED |= dict.fromkeys(("bitwise_not", "logical_not"), lambda x: x == 0)


@records("where")
def _where(condition: Any, a: Any, b: Any) -> Traced:
    return _recorder(condition, a, b).select(condition, a, b)


@records("masked_fill")
def _masked_fill(x: Any, mask: Any, value: Any) -> Traced:
    return _recorder(x, mask, value).select(mask, value, x)


@records("clamp", "clamp_min", "hardtanh")
def _clamp(x: Any, low: Any = None, high: Any = None, **bounds: Any) -> Any:
    low, high = bounds.get("min", low), bounds.get("max", high)
    recorder = _recorder(x, low, high)
    if low is not None:
        x = recorder.binary("maximum", x, low)
    return x if high is None else recorder.binary("minimum", x, high)


RECORDED["clamp_max"] = lambda x, high: _clamp(x, None, high)


@records("_to_copy")
def _converted(x: Traced, dtype: torch.dtype | None = None, **options: Any) -> Any:
    if dtype == torch.bool:
        return x != 0
    if dtype == torch.float32 and x.dtype == torch.float64:
        return x.recorder.unary("single", x)
    if dtype is not None and not dtype.is_floating_point and x.dtype.is_floating_point:
        return x.trunc()
    return x


@records("copy")
def _copied(x: Traced, source: Any, non_blocking: bool = False) -> Traced:
    return x.recorder.traced(x.recorder.places(source).expand(x.shape))


RECORDED |= dict.fromkeys(("fill", "zero"), lambda x, value=0.0: _copied(x, value))


def _joined(join: Function) -> Recorded:
    def recorded(parts: Sequence[Any], dim: int = 0) -> Traced:
        recorder = _recorder(*parts)
        return recorder.traced(join([*map(recorder.places, parts)], dim))

    return recorded


RECORDED |= {"cat": _joined(torch.cat), "stack": _joined(torch.stack)}


@records("mm")
def _product_of_matrices(a: Any, b: Any) -> Any:
    """A row or column times a matrix of constants is one step."""
    if isinstance(a, Traced) and not isinstance(b, Traced):
        rows = [_weighted_sums(torch.zeros(b.shape[1]), row[None], b) for row in a.unbind()]
        return rows[0] if len(rows) == 1 else torch.cat(rows)
    if isinstance(b, Traced) and not isinstance(a, Traced):
        return _product_of_matrices(b.t(), a.t()).t()
    return _products_of_matrices(a, b)


@records("addmm")
def _weighted_sums(bias: Any, a: Any, b: Any, *, beta: float = 1, alpha: float = 1) -> Any:
    if any(isinstance(value, Traced) for value in (bias, b)) or a.shape[0] != 1 or alpha != 1 or beta != 1:
        product = _product_of_matrices(a, b)
        return (product if alpha == 1 else product * alpha) + (bias if beta == 1 else bias * beta)
    weight, bias = b.t().double().contiguous(), bias.double().expand(1, b.shape[1]).flatten()
    return a.recorder.computed("linear", a.places, [1, b.shape[1]], weight, bias)


@records("bmm")
def _products_of_matrices(a: Any, b: Any) -> Any:
    return (a.unsqueeze(-1) * b.unsqueeze(-3)).sum(-2)


@records("mv", "dot")
def _matrix_and_vector(a: Any, b: Any) -> Any:
    if isinstance(a, Traced) and not isinstance(b, Traced) and a.dim() == 2:
        return (a @ b.unsqueeze(1))[:, 0]
    return (a * b).sum(-1)


def _reduction(which: int, empty: float | None = None) -> Recorded:
    def recorded(x: Traced, dim: Any = (), keepdim: bool = False, **options: Any) -> Traced:
        return x.recorder.reduced(which, x, dim, keepdim, empty)

    return recorded


RECORDED |= {"sum": _reduction(SUM, 0.0), "prod": _reduction(PRODUCT, 1.0)}
RECORDED |= {"amax": _reduction(GREATEST), "amin": _reduction(LEAST)}
RECORDED |= {"any": _reduction(GREATEST, 0.0), "all": _reduction(LEAST, 1.0)}


@records("mean")
def _mean(x: Traced, dim: Any = (), keepdim: bool = False, **options: Any) -> Any:
    total = x.recorder.reduced(SUM, x, dim, keepdim, 0.0)
    return total / (x.numel() / max(1, total.numel()))


def _ranked(operation: str, x: Traced, dim: int, kept: Sequence[int], sign: float) -> list[Any]:
    """Numbers and their places that a step finds along a dimension; ``kept`` is the shape of what it finds."""
    members = x.places.movedim(dim, -1)
    groups = members.reshape(-1, members.shape[-1])
    both = torch.stack([x.recorder.computed(operation, group, [2, *kept], sign) for group in groups])
    return [both[:, part].reshape(*members.shape[:-1], *kept) for part in (0, 1)]


def _extreme(sign: float) -> Recorded:
    def recorded(x: Traced, dim: int, keepdim: bool = False) -> Any:
        parts = _ranked("greatest", x, dim, [], sign)
        return [part.unsqueeze(dim) for part in parts] if keepdim else parts

    return recorded


def _place_of_extreme(sign: float) -> Recorded:
    def recorded(x: Traced, dim: int | None = None, keepdim: bool = False) -> Any:
        if dim is None:
            raise NotNative("argmax and argmin without dim have no native form")
        return _extreme(sign)(x, dim, keepdim)[1]

    return recorded


RECORDED |= {"argmax": _place_of_extreme(1.0), "argmin": _place_of_extreme(-1.0)}
RECORDED |= {"max": _extreme(1.0), "min": _extreme(-1.0)}


@records("cumsum")
def _running_sum(x: Traced, dim: int, *, dtype: Any = None) -> Any:
    parts = list(x.unbind(dim))
    for at in range(1, len(parts)):
        parts[at] = parts[at - 1] + parts[at]
    return torch.stack(parts, dim)


@records("_softmax")
def _softmax(x: Traced, dim: int, half_to_float: bool = False) -> Any:
    exponentials = (x - x.amax(dim, keepdim=True)).exp()
    return exponentials / exponentials.sum(dim, keepdim=True)


@records("_log_softmax")
def _log_softmax(x: Traced, dim: int, half_to_float: bool = False) -> Any:
    less = x - x.amax(dim, keepdim=True)
    return less - less.exp().sum(dim, keepdim=True).log()


@records("logsumexp")
def _log_of_sum(x: Traced, dim: list[int], keepdim: bool = False) -> Any:
    greatest = x.amax(dim, keepdim=True)
    greatest = torch.where(greatest.abs() == math.inf, 0.0, greatest)
    total = (x - greatest).exp().sum(dim, keepdim=True).log() + greatest
    return total if keepdim else total.squeeze(dim)


@records("topk")
def _topk(x: Traced, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    return [part.movedim(-1, dim) for part in _ranked("least", x, dim, [k], -1.0 if largest else 1.0)]


@records("sort")
def _sorted(x: Traced, *args: Any, stable: bool = False, dim: int = -1, descending: bool = False) -> Any:
    if args:
        dim, descending = (*args, False)[:2]
    return _topk(x, x.shape[dim], dim, largest=descending)


@records("embedding")
def _looked_up(table: Any, at: Any, *options: Any) -> Any:
    """Rows of a table."""
    if isinstance(table, Traced):
        raise NotNative("rows of a computed table have no native form")
    rows = table.detach().double().reshape(table.shape[0], -1).t().contiguous()
    return at.recorder.computed("look_up", at.places, [*at.shape, *table.shape[1:]], rows, 1, table.shape[0])


@records("index")
def _indexed(x: Any, indices: Sequence[Any]) -> Any:
    traced = [position for position, index in enumerate(indices) if isinstance(index, Traced)]
    if not traced:
        return x.recorder.traced(torch.ops.aten.index(x.places, indices))
    at, dim = indices[traced[0]], traced[0]
    if sum(index is not None for index in indices) > 1 or at.dtype == torch.bool:
        raise NotNative("rows that depend on values have no native form")
    found = _looked_up(x.movedim(dim, 0), at)
    return found.movedim(tuple(range(at.dim())), tuple(range(dim, dim + at.dim())))


@records("index_select")
def _selected(x: Any, dim: int, at: Any) -> Any:
    if isinstance(at, Traced):
        return _indexed(x, [None] * dim + [at])
    return x.recorder.traced(x.places.index_select(dim, at))


@records("gather")
def _gathered(x: Any, dim: int, at: Any, *, sparse_grad: bool = False) -> Any:
    recorder = _recorder(x, at)
    places = recorder.places(x)
    if not isinstance(at, Traced):
        return recorder.traced(places.gather(dim, at))
    members, index = places.movedim(dim, -1), at.places.movedim(dim, -1)
    members = members[tuple(map(slice, index.shape[:-1]))].unsqueeze(-2)
    members = members.expand(*index.shape, members.shape[-1]).reshape(-1, members.shape[-1])
    if bool((members < 0).all()):
        tables = recorder.constants(members.numpy())[:, None]
        found: Any = recorder.computed("look_up", index, [index.numel()], tables, len(members), members.shape[1])
    else:
        pairs = zip(index.flatten(), members, strict=True)
        found = torch.cat([recorder.computed("pick", torch.cat([place[None], row]), [1]) for place, row in pairs])
    return found.view(index.shape).movedim(-1, dim)


@records("scatter")
def _scattered(x: Any, dim: int, at: Any, source: Any) -> Any:
    written = source.expand(at.shape) if isinstance(source, Tensor) else torch.full(at.shape, float(source))
    result: Any = x.movedim(dim, -1)
    numbers = torch.arange(result.shape[-1])
    for index, value in zip(at.unbind(dim), written.unbind(dim), strict=True):
        result = torch.where(index.unsqueeze(-1) == numbers, value.unsqueeze(-1), result)
    return result.movedim(-1, dim)


@records("searchsorted")
def _bisected(edges: Any, x: Any, *, right: bool = False, side: Any = None, sorter: Any = None, **options: Any) -> Any:
    if isinstance(edges, Traced) or side is not None or sorter is not None:
        raise NotNative("this kind of search has no native form")
    size, numbers = edges.shape[-1], x.numel()
    edges = edges.unsqueeze(-2) if edges.dim() > 1 else edges
    edges = edges.expand(*x.shape, size).reshape(-1, size).double()
    which = INSERT_RIGHT if right else INSERT_LEFT
    return x.recorder.computed("bisect", x.places, x.shape, edges, torch.full([numbers], size), size, which)


@records("linalg_vector_norm")
def _norm(x: Traced, ord: float = 2, dim: Any = None, keepdim: bool = False, **options: Any) -> Any:
    size, dims = x.abs(), list(dim) if dim else list(range(x.dim()))
    if math.isinf(ord):
        return size.amax(dims, keepdim) if ord > 0 else size.amin(dims, keepdim)
    if ord == 1:
        return size.sum(dims, keepdim)
    return (size**ord).sum(dims, keepdim) ** (1 / ord)


@records("_cdist_forward", "_euclidean_dist")
def _distances(x: Any, points: Any, power: float = 2.0, mode: Any = None) -> Any:
    if isinstance(points, Traced) or not isinstance(x, Traced) or x.dim() != 2 or x.shape[0] != 1:
        raise NotNative("distances between computed rows have no native form")
    if power == 0:
        raise NotNative("distances with p=0 have no native form")
    return x.recorder.computed("distances", x.places, [1, points.shape[0]], points.double(), float(power))


@records("index_put")
def _written_at(x: Traced, indices: Any, value: Any, accumulate: bool = False) -> Traced:
    if accumulate or any(isinstance(index, Traced) for index in indices):
        raise NotNative("sums at places have no native form")
    places = x.recorder.places(value)
    return x.recorder.traced(torch.ops.aten.index_put(x.places, indices, places))


@records("nan_to_num")
def _without_nan(x: Traced, nan: float | None = None, posinf: float | None = None, neginf: float | None = None) -> Any:
    greatest = torch.finfo(x.dtype).max
    number: Any = torch.where(x != x, nan or 0.0, x)
    number = torch.where(number == math.inf, greatest if posinf is None else posinf, number)
    return torch.where(number == -math.inf, -greatest if neginf is None else neginf, number)
