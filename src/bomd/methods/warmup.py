"""A warm-up is a share of the run, so that it is as long in a short run as in a long one for what is learnt."""

from __future__ import annotations

from bomd.errors import InputError


def check_share(name: str, share: float) -> None:
    """Refuse what is no share of a run, such as a number of epochs.

    Args:
        name: Of the setting, as in a recipe: method.key.
    """
    if not 0 <= share <= 1:
        raise InputError(f"{name} is {share:g}, but must be a share of all epochs in [0, 1].")


def warm_epochs(share: float, epochs: int) -> int:
    """Whole epochs of a share of the run: at least one, and never all of them unless the share says none or all."""
    if share in (0, 1):
        return int(share * epochs)
    return min(max(1, round(share * epochs)), epochs - 1)


def note_if_idle(method: str, warm: int, epochs: int, what: str) -> tuple[str, ...]:
    """A note where the warm-up is the whole training, since the method then never begins.

    Args:
        method: Its name.
        what: Becomes of the labels then, such as "all labels count".
    """
    return (f"{method}: the warm-up of {warm} epochs is the whole training; {what}.",) if epochs <= warm else ()


def note_of_setting(method: str, setting: str, value: float, why: str) -> str:
    """A note that tells which value a setting had that was not given; pages of results read it."""
    return f"{method}: {setting} = {value:.2f}, {why}."
