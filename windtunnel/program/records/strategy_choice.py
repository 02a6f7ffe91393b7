"""The strategy of one tree ensemble, and why it was chosen."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class StrategyChoice:
    """The strategy of one tree ensemble, and why.

    Attributes
    ----------
    step, strategy : str
    rows : int or None
        The number of rows of a call that it was chosen for; None for 1, 1,000 and 100,000 rows alike.
    backend : str
        The backend on which ``measured`` was taken; see ``windtunnel.compile``.
    expected, measured : dict of str to float
        Seconds of a call by strategy, the fastest first. Where ``rows`` is None: how many times slower than the
        fastest, as a mean over 1, 1,000 and 100,000 rows. Empty where nothing was compared.
    """

    step: str
    strategy: str
    rows: int | None = None
    expected: dict[str, float] = field(default_factory=dict)
    measured: dict[str, float] = field(default_factory=dict)
    backend: str = "torch"

    def __str__(self) -> str:
        compared = self.measured or self.expected
        if not compared:
            return f"{self.step}: {self.strategy}, set by strategy="
        best = min(compared.values())
        others = ", ".join(
            f"{name} {value / best:.2g} times" for name, value in compared.items() if name != self.strategy
        )
        how = f"measured here with backend={self.backend!r}" if self.measured else "expected"
        rows = "any number of rows" if self.rows is None else f"{self.rows:,} rows"
        return f"{self.step}: {self.strategy}, the fastest {how} for {rows}" + (
            f" (others take longer: {others})" if others else ""
        )
