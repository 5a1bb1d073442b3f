"""What the project claims about itself, and how it can be checked: recorded runs become tables, figures and pages.

It uses `bomd` as any author of a method would, and is no part of the installed package.
"""

from __future__ import annotations

from pathlib import Path

from bomd import threads

threads.settle()  # before any part of it loads PyTorch

ROOT = Path(__file__).parents[1]
RESULTS, DOCS = ROOT / "results", ROOT / "docs"
