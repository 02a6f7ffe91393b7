"""The strategy of one tree ensemble, and why it was chosen."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class StrategyChoice:
    """The strategy of one tree ensemble, and why."""

    step: str
    strategy: str
    rows: int | None = None
    """The number of rows of a call that it was chosen for; None for 1, 1,000 and 100,000 rows alike."""
    # expected, measured: seconds of a call by strategy, the fastest first. Where ``rows`` is None: how many times
    # slower than the fastest, as a mean over 1, 1,000 and 100,000 rows. Empty where nothing was compared
    expected: dict[str, float] = field(default_factory=dict)
    measured: dict[str, float] = field(default_factory=dict)
    backend: str = "torch"  # the backend on which ``measured`` was taken; see ``windtunnel.compile``

    def __str__(self) -> str:
        compared = self.measured or self.expected
        if not compared:
            return f"{self.step}: {self.strategy}, set by strategy="
        best = min(compared.values())
        others = [f"{name} {_times(value / best)}" for name, value in compared.items() if name != self.strategy]
        how = f"the fastest with backend={self.backend!r}, measured here" if self.measured else "expected to be fastest"
        rows = "any number of rows" if self.rows is None else f"{self.rows:,} rows"
        text = f"{self.step}: {self.strategy}, {how} for {rows}"
        return text + (f" (time of the others: {', '.join(others)})" if others else "")


def _times(ratio: float) -> str:
    """Such as "1.4 times as long"."""
    return "about as long" if ratio < 1.05 else f"{ratio:.2g} times as long"
