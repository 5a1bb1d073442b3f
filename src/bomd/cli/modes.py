"""The option that says whether images are kept in grey or in colour, for every command that reads images to learn."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer


class Mode(StrEnum):
    """As in the setting `images.mode`."""

    auto = "auto"
    grey = "grey"
    colour = "colour"


ImageMode = Annotated[
    Mode, typer.Option("--mode", help="Keep images in grey or colour; auto: colour if a sample of them has any.")
]
