"""The zip around an artefact: a few members under fixed names, stored as they are, each with its size and SHA-256.

Nothing is compressed, so a member is never larger than the file that holds it, and a compressed one is rejected.
"""

from __future__ import annotations

import json
import os
import secrets
import struct
from collections.abc import Callable, Mapping
from hashlib import sha256
from os import PathLike
from pathlib import Path
from typing import IO, Any, Literal, TypeVar
from zipfile import ZIP_STORED, BadZipFile, ZipFile, ZipInfo

import torch
from pydantic import BaseModel, ConfigDict, ValidationError

import windtunnel
from windtunnel.errors import BadFile

SCHEMA = 1
"""The number of the layout that this version writes and reads."""
MANIFEST = "manifest.json"
LIMITS = {
    MANIFEST: 1 << 20,
    "graph.json": 1 << 28,
    "vocabularies.json": 1 << 30,
    "weights.safetensors": 1 << 35,
    "start.safetensors": 1 << 35,
    "exact.safetensors": 1 << 35,
}
"""Every member that there may be, and the most bytes that it may have."""
OPTIONAL = {"start.safetensors", "exact.safetensors"}
EXPORTED = {"constants.pkl": "a TorchScript file", "extra/windtunnel.json": "a file of torch.export"}
"""How a member of other files that ``net.export`` writes ends, and what these are."""
SERVED = (
    "{what}, which windtunnel.load does not read: it takes what net.save(path) wrote. Score with it by "
    "windtunnel.export.serving.load(path{trusted}), or as docs/export.md has it."
)
_YEAR_ZERO = (1980, 1, 1, 0, 0, 0)
_ENCRYPTED = 0x1
Model = TypeVar("Model", bound=BaseModel)


class Strict(BaseModel):
    """Data from a file: nothing is converted, nothing unknown is taken."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class Member(Strict):
    """What the manifest says of one member."""

    size: int
    sha256: str


class Manifest(Strict):
    """The first thing that is read of an artefact."""

    format: Literal["windtunnel"]
    schema_number: int
    versions: dict[str, str]
    members: dict[str, Member]


def write(path: str | PathLike[str], members: Mapping[str, bytes]) -> None:
    """Write the members and their manifest; the same members always give the same bytes."""
    manifest = Manifest(
        format="windtunnel",
        schema_number=SCHEMA,
        versions={"windtunnel": windtunnel.__version__, "torch": str(torch.__version__)},
        members={name: Member(size=len(data), sha256=sha256(data).hexdigest()) for name, data in members.items()},
    )

    def fill(file: IO[bytes]) -> None:
        with ZipFile(file, "w", ZIP_STORED) as archive:
            for name, data in {MANIFEST: to_json(manifest.model_dump()), **members}.items():
                if len(data) > LIMITS[name]:
                    raise BadFile(f"{name} would have {len(data)} bytes; an artefact takes at most {LIMITS[name]}.")
                info = ZipInfo(name, _YEAR_ZERO)
                info.create_system, info.external_attr = 3, 0o644 << 16
                archive.writestr(info, data)

    write_whole(path, fill)


def write_whole(path: str | PathLike[str], fill: Callable[[IO[bytes]], None]) -> None:
    """Write a file so that at any moment there is either the old one or the whole new one under its name."""
    target = Path(path)
    if not target.parent.is_dir():
        raise FileNotFoundError(
            f"{os.fspath(path)!r} cannot be written: there is no folder {os.fspath(target.parent)!r}; make it first."
        )
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        with open(temporary, "xb") as file:
            fill(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except OSError as error:
        if str(error.filename) != str(temporary):
            raise
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error  # under a name that somebody gave
    finally:
        temporary.unlink(missing_ok=True)


def read(path: str | PathLike[str]) -> dict[str, bytes]:
    """Read the members but the manifest, each held against it; ``BadFile`` for anything not as it was written."""
    with open(path, "rb") as file:
        try:
            return _read(file)
        except BadFile as error:
            raise BadFile(f"{os.fspath(path)!r}: {error}") from error
        except (BadZipFile, EOFError, NotImplementedError, OSError, RuntimeError, ValueError, struct.error) as error:
            file.seek(0)
            if Path(path).suffix == ".onnx" and file.read(2) != b"PK":
                raise BadFile(f"{os.fspath(path)!r}: {SERVED.format(what='an ONNX file', trusted='')}") from error
            raise BadFile(
                f"{os.fspath(path)!r} is damaged, cut short, or no windtunnel artefact ({error}). "
                "Get the file again, or write it again with net.save(path)."
            ) from error


def _read(file: IO[bytes]) -> dict[str, bytes]:
    if (size := os.fstat(file.fileno()).st_size) > sum(LIMITS.values()):
        raise BadFile(f"{size} bytes; an artefact has at most {sum(LIMITS.values())}.")
    with ZipFile(file) as archive:
        infos = _members(archive)
        manifest = _manifest(archive.read(infos.pop(MANIFEST)))
        if set(manifest.members) != set(infos):
            raise BadFile(f"the manifest lists {sorted(manifest.members)}, the file has {sorted(infos)}.")
        for name, info in infos.items():
            if info.file_size != manifest.members[name].size:
                raise BadFile(f"{name} has {info.file_size} bytes, the manifest says {manifest.members[name].size}.")
        contents = {name: archive.read(info) for name, info in infos.items()}
    changed = [name for name, data in contents.items() if sha256(data).hexdigest() != manifest.members[name].sha256]
    if changed:
        raise BadFile(f"{', '.join(changed)} changed after it was written (SHA-256 differs). Get the file again.")
    return contents


def _members(archive: ZipFile) -> dict[str, ZipInfo]:
    """Check the entries before any is read: known names, each once, stored as they are, none too large."""
    infos = archive.infolist()
    for end, what in EXPORTED.items():
        if any(info.orig_filename.endswith(end) for info in infos):
            raise BadFile(SERVED.format(what=what, trusted=", trusted=True"))
    if len(infos) > len(LIMITS):
        raise BadFile(f"{len(infos)} members; an artefact has at most {len(LIMITS)}.")
    names = [info.orig_filename for info in infos]
    unknown = [name for name in names if name not in LIMITS]
    if unknown:
        raise BadFile(f"unknown members {unknown}; an artefact has only {', '.join(LIMITS)}.")
    if len(set(names)) < len(names):
        raise BadFile(f"members given twice among {sorted(names)}; each must be there once.")
    if missing := sorted(set(LIMITS) - OPTIONAL - set(names)):
        raise BadFile(f"members missing: {', '.join(missing)}; the file has {sorted(names)}.")
    for info in infos:
        if info.compress_type != ZIP_STORED or info.file_size != info.compress_size:
            raise BadFile(f"{info.filename} is compressed; members of an artefact are stored as they are.")
        if info.flag_bits & _ENCRYPTED:
            raise BadFile(f"{info.filename} is encrypted; members of an artefact are not.")
        if info.file_size > LIMITS[info.filename]:
            raise BadFile(f"{info.filename} has {info.file_size} bytes; at most {LIMITS[info.filename]} are read.")
    return dict(zip(names, infos, strict=True))


def _manifest(data: bytes) -> Manifest:
    content = from_json(MANIFEST, data)
    number = content.get("schema_number") if isinstance(content, dict) else None
    if isinstance(number, int) and number != SCHEMA:
        raise BadFile(f"written in schema {number}; this windtunnel {windtunnel.__version__} reads schema {SCHEMA}.")
    return checked(Manifest, content, MANIFEST)


def to_json(content: Any) -> bytes:
    """ASCII, so that any text survives; NaN and infinities in the spelling of Python's json."""
    return json.dumps(content, separators=(",", ":"), sort_keys=True).encode("ascii")


def from_json(name: str, data: bytes) -> Any:
    """Parse a member; ``BadFile`` where it is no JSON, or nested too deeply."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BadFile(f"{name} is not JSON that can be read ({error}).") from error


def checked(model: type[Model], content: Any, name: str) -> Model:
    """Take the content as a model; ``BadFile`` with the first places where it does not fit."""
    try:
        return model.model_validate(content)
    except ValidationError as error:
        places = [f"{'.'.join(map(str, one['loc'])) or 'top'}: {one['msg']}" for one in error.errors()[:3]]
        raise BadFile(f"{name} is not what windtunnel writes ({'; '.join(places)}).") from error
    except RecursionError as error:
        raise BadFile(f"{name} is nested too deeply.") from error
