"""How far one method is ahead of another, and whether that is more than chance."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Gap:
    """Mean AUC of a method minus that of another on the same data."""

    mean: float  # over the seeds that both have
    std: float | None  # sample standard deviation over these seeds; None for one
    won: int  # seeds in which the method is ahead
    count: int
    low: float | None = None  # of the 95 % interval over test patients, as `high`; None where it was not computed
    high: float | None = None
    over_seeds: int | None = None  # `significance.verdict` of all seeds; None with a single one, which it cannot judge

    @property
    def certain(self) -> int:
        """1 or -1 where chance does not explain it, else 0: by seeds as on every page, by patients for a single one."""
        if self.over_seeds is not None or self.low is None or self.high is None:
            return self.over_seeds or 0
        return int(self.low > 0) - int(self.high < 0)
