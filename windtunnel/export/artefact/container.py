"""The file of an artefact: safetensors, with one JSON text as metadata and a SHA-256 of the text and all tensors."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from io import BytesIO
from os import PathLike
from pathlib import Path
from zipfile import BadZipFile, ZipFile

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from windtunnel.errors import BadFile, UnfaithfulOption

METADATA, DIGEST = "windtunnel", "sha256"
"""The metadata key of the JSON text, and the name of the tensor uint8 ``[32]`` that holds the hash."""
WIDENED = ":float64"
"""End of the name of a float64 tensor that is stored as float32, as that holds all its values."""
HEADER_BYTES = 100_000_000
"""The largest header that safetensors reads."""
CASCADE = "cascade.json"
"""The zip member of the files of cascades alone."""
EXPORTED = {"constants.pkl": "a TorchScript file", "extra/windtunnel.json": "a file of torch.export"}
"""End of a zip member's name -> the export format that has such a member."""


def pack(text: str, tensors: Mapping[str, Tensor]) -> bytes:
    """The bytes of a file with a JSON text and tensors; the same content always gives the same bytes.

    ``UnfaithfulOption`` for names that take more than ``HEADER_BYTES``.
    """
    content = {
        name: value.detach().cpu().clone(memory_format=torch.contiguous_format) for name, value in tensors.items()
    }
    content = dict(_narrowed(name, value) for name, value in content.items())
    data = safetensors.torch.save(content | {DIGEST: _digest(text, content)}, {METADATA: text})
    if (size := int.from_bytes(data[:8], "little")) > HEADER_BYTES:
        raise UnfaithfulOption(
            f"the header of the file would have {size} bytes; an artefact takes at most {HEADER_BYTES}. "
            "Leave out what has the most names, such as a vectorizer of very many terms."
        )
    return data


def unpack(path: str | PathLike[str], data: bytes) -> tuple[str, dict[str, Tensor]]:
    """The JSON text and the tensors of the bytes of a file.

    ``BadFile``, which names the path, for bytes that ``pack`` did not give or that have changed.
    """
    try:
        # Copies are aligned as torch aligns its own tensors, so that sums are rounded as before.
        tensors = {name: value.clone() for name, value in safetensors.torch.load(data).items()}
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        text, digest = header["__metadata__"][METADATA], tensors.pop(DIGEST)
        same = torch.equal(digest, _digest(text, tensors))
    except (SafetensorError, KeyError, ValueError, RuntimeError, OverflowError) as error:
        raise BadFile(f"{os.fspath(path)!r} {_reason(path, data, error)}") from error
    if not same:
        raise BadFile(f"{os.fspath(path)!r} changed after it was written (SHA-256 differs). Get the file again.")
    return text, {
        name.removesuffix(WIDENED): value.double() if name.endswith(WIDENED) else value
        for name, value in tensors.items()
    }


def _narrowed(name: str, value: Tensor) -> tuple[str, Tensor]:
    """Name and value as they are stored: in float32 where that holds all values, none of which is missing."""
    if value.dtype == torch.float64 and torch.equal((narrow := value.float()).double(), value):
        return name + WIDENED, narrow
    return name, value


def _reason(path: str | PathLike[str], data: bytes, error: Exception) -> str:
    """Say which other format of windtunnel the file has and what reads it, or that it is damaged."""
    exported, trusted = "an ONNX file" if Path(path).suffix == ".onnx" and data[:2] != b"PK" else "", ""
    if data[:2] == b"PK":
        with suppress(BadZipFile, NotImplementedError, OSError, RuntimeError, ValueError, struct.error):
            names = ZipFile(BytesIO(data)).namelist()
            if CASCADE in names:
                return "is a cascade; read it with windtunnel.Cascade.load, or serve it."
            exported = next((kind for end, kind in EXPORTED.items() if any(name.endswith(end) for name in names)), "")
            trusted = ", trusted=True"
    if exported:
        return (
            f"is {exported}, which windtunnel.load does not read: it takes what net.save(path) wrote. Score with it by "
            f"windtunnel.export.serving.load(path{trusted}), or as docs/export.md has it."
        )
    return (
        f"is damaged, cut short, or no windtunnel artefact ({error}). Get the file again, or write it again with "
        "net.save(path)."
    )


def _digest(text: str, tensors: Mapping[str, Tensor]) -> Tensor:
    """SHA-256 of the text and of the name, type, shape and bytes of each tensor; uint8 ``[32]``."""
    digest = sha256(text.encode())
    for name, value in sorted(tensors.items()):
        digest.update(f"{name} {value.dtype} {list(value.shape)}".encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy().data)
    return torch.frombuffer(bytearray(digest.digest()), dtype=torch.uint8)
