"""Seeds for many purposes from one: no two draws share a sequence, and adding one changes no other."""

from __future__ import annotations

import hashlib


def derive(seed: int, *names: object) -> int:
    """A seed for one purpose, unrelated to the seeds of all other purposes."""
    return int.from_bytes(hashlib.sha256(repr((seed, *names)).encode()).digest()[:6], "big")
