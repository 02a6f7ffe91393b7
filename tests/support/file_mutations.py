"""Random changes to files: to bytes, to the values of JSON, and to tensors. Every change is drawn from one seed."""

from __future__ import annotations

import json
from copy import deepcopy
from io import BytesIO
from typing import Any

import numpy as np
import onnx
import torch
from numpy.random import Generator
from torch import Tensor

from windtunnel.export.artefact import container

VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 255, 2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63) - 1, 10**12, 10**400),
    *(0.0, -0.5, 1e-310, 1e308, float("nan"), float("inf"), float("-inf")),
    *("", "0", "\0", "\ud800", "東京", "(a+)+$", "float64", "../../etc/passwd", "x" * 1_000_000),
    *([], {}, [[]], [0], [-1], [2**63], ["a", "a"], {"a": 1}, [None], [[[[[[[[]]]]]]]], list(range(1000))),
)
"""What replaces a value of JSON."""
DTYPES = (torch.float16, torch.float32, torch.float64, torch.complex64, torch.bool, torch.uint8, torch.int64)
NUMBERS = (0, 1, -1, 2, 7, 1e30, float("nan"), float("inf"), float("-inf"), 2**31, -(2**31), 2**62)


def changed_bytes(data: bytes, random: Generator) -> bytes:
    """Flip bits, or cut out, repeat, overwrite or add bytes."""
    changed = bytearray(data)
    for _ in range(random.integers(1, 4)):
        start = int(random.integers(len(changed) + 1))
        end = start + int(random.integers(1, 9))
        match random.integers(6):
            case 0 | 1 if start < len(changed):
                changed[start] ^= 1 << int(random.integers(8))
            case 2:
                del changed[start:end]
            case 3:
                changed[start:start] = changed[start:end]
            case 4:
                changed[start:end] = random.bytes(end - start)
            case _:
                del changed[start:]
    return bytes(changed)


def changed_json(value: Any, random: Generator) -> Any:
    """Change one value, key or item at a random place; the value given may be changed itself."""
    if not isinstance(value, dict | list) or not value or random.random() < 0.03:
        return _other(value, random)
    keys = [*value] if isinstance(value, dict) else range(len(value))
    key: Any = keys[int(random.integers(len(keys)))]
    if random.random() < 0.8:
        value[key] = changed_json(value[key], random)
        return value
    other = deepcopy(value[keys[int(random.integers(len(keys)))]])
    match random.integers(4):
        case 0:
            del value[key]
        case 1 if isinstance(value, list):
            value.append(other)
        case 1:
            value[str(VALUES[int(random.integers(len(VALUES)))])] = other
        case 2:
            value[key] = other
        case _:
            value[key] = _other(value[key], random)
    return value


def _other(value: Any, random: Generator) -> Any:
    if isinstance(value, int | float) and random.random() < 0.4:
        return value + type(value)(random.integers(-2, 3))
    if isinstance(value, list) and value and random.random() < 0.4:
        return value * int(random.integers(2, 50))
    return deepcopy(VALUES[int(random.integers(len(VALUES)))])  # which may be changed in turn


def changed_tensors(tensors: dict[str, Tensor], random: Generator) -> dict[str, Tensor]:
    """Change the type, the shape or a value of a tensor; or remove, copy or rename it."""
    names = sorted(tensors)
    name, other = (names[int(random.integers(len(names)))] for _ in range(2))
    value, result = tensors[name].clone(), dict(tensors)
    match random.integers(7):
        case 0:
            del result[name]
        case 1:
            result[name] = tensors[other].clone()
        case 2:
            result[name + "2"] = value
        case 3:
            result[name] = value.to(DTYPES[int(random.integers(len(DTYPES)))])
        case 4:
            result[name] = _reshaped(value, random)
        case _ if value.numel():
            number = NUMBERS[int(random.integers(len(NUMBERS)))]
            place = int(random.integers(value.numel()))
            wide = np.float64(number).astype(np.float64)
            with np.errstate(all="ignore"):
                value.view(-1)[place] = torch.from_numpy(wide.reshape(1)).to(value.dtype)[0]
            result[name] = value
    return result


def _reshaped(value: Tensor, random: Generator) -> Tensor:
    match random.integers(7):
        case 0:
            return value.reshape(-1)
        case 1:
            return value.unsqueeze(int(random.integers(value.dim() + 1)))
        case 2:
            return value[:0] if value.dim() else value.reshape(1)
        case 3:
            return torch.cat([value, value]) if value.dim() else value
        case 4 if value.dim() and len(value):
            return value[:-1].clone()
        case 5:
            return value.transpose(0, -1).contiguous() if value.dim() else value
        case _:
            return value.new_zeros(())


def changed_artefact(data: bytes, random: Generator) -> bytes:
    """Change an artefact; its SHA-256 is right again, except where bytes are changed."""
    kind = random.random()
    if kind < 0.1:
        return changed_bytes(data, random)
    text, tensors = container.unpack("", data)
    for _ in range(random.integers(1, 3)):
        if kind < 0.5:
            text = json.dumps(changed_json(json.loads(text), random))
        elif kind < 0.65:
            categories = changed_json(json.loads(tensors["categories"].numpy().tobytes()), random)
            tensors["categories"] = torch.frombuffer(bytearray(json.dumps(categories).encode()), dtype=torch.uint8)
        else:
            categories = tensors.pop("categories")
            tensors = changed_tensors(tensors, random) | {"categories": categories}
    return container.pack(text, tensors)


def changed_checkpoint(data: bytes, random: Generator) -> bytes:
    """Change bytes of a checkpoint, or a value of its state."""
    if random.random() < 0.5:
        return changed_bytes(data, random)
    state = changed_json(torch.load(BytesIO(data), weights_only=True), random)
    changed = BytesIO()
    torch.save(state, changed)
    return changed.getvalue()


def changed_onnx(data: bytes, random: Generator) -> bytes:
    """Change bytes of an ONNX file, or a value of its metadata."""
    if random.random() < 0.5:
        return changed_bytes(data, random)
    model = onnx.load_from_string(data)
    (metadata,) = [each for each in model.metadata_props if each.key == "windtunnel"]
    metadata.value = json.dumps(changed_json(json.loads(metadata.value), random))
    return bytes(model.SerializeToString())
