"""Write the table of docs/ten-minutes.md that compares orders of review, from results/audit_ranking.csv."""

from __future__ import annotations

import csv
import re
import statistics
from pathlib import Path

from bomd.files import write_text

ROOT = Path(__file__).parents[1]
PAGE, RESULTS = ROOT / "docs" / "ten-minutes.md", ROOT / "results" / "audit_ranking.csv"
SHOWN = {
    "random": "at random",
    "most positive labels": "most labels first",
    "bomd margin": "BoMD's margin",
    "cleanlab score": "cleanlab",
    "bomd audit": "**bomd audit**",
}


def table() -> str:
    with RESULTS.open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    noises = list(dict.fromkeys(row["noise"] for row in rows))
    lines = ["| order | " + " | ".join(noises) + " |", "|---" * (len(noises) + 1) + "|"]
    for order, name in SHOWN.items():
        cells = []
        for noise in noises:
            found = [float(row["wrong_images"]) for row in rows if row["noise"] == noise and row["order"] == order]
            cells.append(f"{statistics.fmean(found):.0f} ({', '.join(f'{count:.0f}' for count in found)})")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    first = rows[0]
    lines += [
        "",
        f"Images with a wrong label among the first {first['first']} of {int(first['images']):,} NIH X-rays at "
        f"{first['size']} px: the mean, and each seed. Errors are planted on labels that count as right; backbone "
        f"`{first['backbone']}`, as many images shown in training for BoMD as for cleanlab's folds.",
    ]
    return "\n".join(lines)


def filled(page: str) -> str:
    block = f"<!-- audit-ranking -->\n\n{table()}\n\n<!-- /audit-ranking -->"
    return re.sub(r"<!-- audit-ranking -->.*<!-- /audit-ranking -->", lambda _: block, page, flags=re.DOTALL)


if __name__ == "__main__":
    write_text(PAGE, filled(PAGE.read_text(encoding="utf-8")))
