"""The one exception that means "the input is wrong, and here is what to do"."""

from __future__ import annotations


class InputError(ValueError):
    """Something the user gave cannot be used; the message is one line that says what and where.

    The command line prints it without a traceback and exits with code 2.
    """
