"""Write the table of docs/ten-minutes.md that compares orders of review, from results/opinions.csv."""

from __future__ import annotations

import csv
import re
import statistics

from bomd.files import write_text
from bomd.reports.sheet import markdown_table
from evidence import DOCS, RESULTS
from evidence.pages.successor import spoken

PAGE, RANKINGS = DOCS / "ten-minutes.md", RESULTS / "opinions.csv"
RECIPE, FIRST = "nih-64", 200
SHOWN = {
    "most positives": "most labels first",
    "rarest positives": "rarest labels first",
    "rank rule": "BoMD's rank rule",
    "cleanlab": "cleanlab",
    "bomd-plus": "**bomd audit**",
}


def table() -> str:
    with RANKINGS.open(encoding="utf-8") as stream:
        rows = [row for row in csv.DictReader(stream) if row["recipe"] == RECIPE]
    noises = [noise for noise in dict.fromkeys(row["noise"] for row in rows) if not noise.endswith(("0.4)", "0.6)"))]
    chance = []
    for noise in noises:
        own = [row for row in rows if row["noise"] == noise and row["rule"] == "bomd-plus"]
        chance.append(statistics.fmean(FIRST * int(row["wrong_images"]) / int(row["images"]) for row in own))
    lines = [["at random", *(f"{count:.0f}" for count in chance)]]
    for rule, name in SHOWN.items():
        cells = []
        for noise in noises:
            found = [int(row[f"hits_{FIRST}"]) for row in rows if (row["noise"], row["rule"]) == (noise, rule)]
            cells.append(f"{statistics.fmean(found):.0f} ({', '.join(map(str, found))})")
        lines.append([name, *cells])
    images = sorted({int(row["images"]) for row in rows})
    return f"{markdown_table(['order', *map(spoken, noises)], lines, marked_up=True)}\n" + (
        f"Images with a wrong label among the first {FIRST} of {images[0]:,} to {images[-1]:,} NIH X-rays at 64 px: "
        "the mean, and each of five seeds. Errors are planted on labels that count as right; orders that look at "
        "images have the same evidence."
    )


def filled(page: str) -> str:
    block = f"<!-- audit-ranking -->\n\n{table()}\n\n<!-- /audit-ranking -->"
    return re.sub(r"<!-- audit-ranking -->.*<!-- /audit-ranking -->", lambda _: block, page, flags=re.DOTALL)


def main() -> None:
    write_text(PAGE, filled(PAGE.read_text(encoding="utf-8")))


if __name__ == "__main__":
    main()
