"""How far one method is ahead of another, and whether that is more than chance."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Gap:
    """Mean AUC of a method minus that of another on the same data.

    Attributes:
        mean: Over the seeds that both have.
        std: Sample standard deviation over these seeds; None for one.
        won: Seeds in which the method is ahead.
        low: Lower end of the 95 % interval over test patients; likewise `high`. None where it was not computed.
        over_seeds: What `bomd.measure.significance.verdict` says of all seeds; None where one has a single seed, which
            it cannot judge.
    """

    mean: float
    std: float | None
    won: int
    count: int
    low: float | None = None
    high: float | None = None
    over_seeds: int | None = None

    @property
    def certain(self) -> int:
        """1 or -1 where chance does not explain it, else 0: by seeds as on every page, by patients for a single one."""
        if self.over_seeds is not None or self.low is None or self.high is None:
            return self.over_seeds or 0
        return int(self.low > 0) - int(self.high < 0)
