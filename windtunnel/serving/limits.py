"""The limits of what a server accepts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from windtunnel.errors import InvalidOption, nearest


@dataclass(frozen=True)
class Limits:
    """The limits of what a server accepts."""

    # max_batch, max_wait_ms, max_queue: see ``Server``
    max_batch: int = 4096
    max_wait_ms: float = 0.0
    max_queue: int = 100_000
    max_rows: int = 100_000  # the most rows of a request
    max_bytes: int = 64 * 2**20  # the most bytes of a body
    max_connections: int = 512  # the most connections of clients; the requests of others get 503
    timeout: float = 30.0  # seconds within which a body must arrive and the response must be ready

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Limits:
        """Limits by their names; the others are as by default."""
        accepted = [limit.name for limit in fields(cls)]
        if wrong := [f"{name!r}: {nearest(name, accepted)}" for name in options if name not in accepted]:
            raise InvalidOption(f"serve has no option {', '.join(wrong)}")
        return cls(**options)

    def __post_init__(self) -> None:
        """Reject what no request could satisfy."""
        limits = asdict(self)
        if wrong := [f"{name}={limits[name]}" for name in limits if not (limits[name] > 0 or name == "max_wait_ms")]:
            raise InvalidOption(f"serve got {', '.join(wrong)}; give values above 0.")
