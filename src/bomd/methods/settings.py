"""What methods ask of their settings, and what they tell of them.

A warm-up is a share of the run, so that it is as long in a short run as in a long one for what is learnt.
"""

from __future__ import annotations

import math

from bomd.errors import InputError


def within(interval: str, method: str, **settings: float | None) -> None:
    """Refuse settings outside an interval such as "[0, 1)"; None, which stands for a default, is always right."""
    low, high = map(float, interval[1:-1].split(","))
    wanted = f"{'at least' if interval[0] == '[' else 'above'} {low:g}"
    if high < math.inf:
        wanted += f" and {'at most' if interval[-1] == ']' else 'below'} {high:g}"
    for name, value in settings.items():
        at_end = (value == low and interval[0] == "[") or (value == high and interval[-1] == "]")
        if value is not None and not (low < value < high or at_end):
            raise InputError(f"{method}.{name} is {value:g}, but must be {wanted}.")


def check_shares(method: str, **settings: float) -> None:
    """Refuse what is no share of a run, such as a number of epochs."""
    for name, share in settings.items():
        if not 0 <= share <= 1:
            raise InputError(f"{method}.{name} is {share:g}, but must be a share of all epochs in [0, 1].")


def warm_epochs(share: float, epochs: int) -> int:
    """Whole epochs of a share of the run: at least one, and never all of them unless the share says none or all."""
    if share in (0, 1):
        return int(share * epochs)
    return min(max(1, round(share * epochs)), epochs - 1)


def note_if_idle(method: str, warm: int, epochs: int, what: str) -> tuple[str, ...]:
    """A note on what becomes of labels where the warm-up is the whole training: the method then never begins."""
    return (f"{method}: the warm-up of {warm} epochs is the whole training; {what}.",) if epochs <= warm else ()


def note_of_default(method: str, setting: str, given: float | None, used: float, why: str) -> tuple[str, ...]:
    """A note that tells which value a setting has that was not given; pages of results read it."""
    return (f"{method}: {setting} = {used:.2f}, {why}.",) if given is None else ()
