"""One sheet as CSV, Markdown and LaTeX, with class names that hold every special character."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

from bomd.measure.significance import Sample
from bomd.reports.sheet import Mean, latex
from evidence.reproduce.artefact import Drawing, Sheet
from evidence.reproduce.writing import read_index, stem_of, to_latex, to_markdown, wide_csv, write

SHEET = Sheet(
    "south",
    "AUC of Pleural_Thickening & 50 % of R&D.",
    ["finding", "positives", "bomd"],
    [
        ["Pleural_Thickening", 12, Mean(Sample(0.87345, 0.0042, 3), 3, 3)],
        ["50 %|#1", 3, Mean(Sample(0.5, None, 1), 1, 3)],
        ["Mass", None, Mean(None, 0, 3)],
        ["Hernia", 0, Mean(None, 2, 3)],
    ],
    ["p < 0.05"],
)


def test_csv_has_numbers_as_they_are() -> None:
    rows = list(csv.DictReader(io.StringIO(wide_csv(SHEET.heads, SHEET.rows))))
    assert rows[0] == {
        "finding": "Pleural_Thickening",
        "positives": "12",
        "bomd": "0.87345",
        "bomd std": "0.0042",
        "bomd runs": "3",
    }
    assert rows[1]["bomd std"] == rows[2]["bomd"] == rows[2]["positives"] == ""
    assert [row["bomd runs"] for row in rows] == ["3", "1", "0", "2"]


def test_markdown_says_what_is_missing_and_what_is_undefined() -> None:
    text = to_markdown(SHEET, ["Recipe phantom."])
    assert r"| Pleural\_Thickening | 12 | 0.873 ± 0.004 |" in text
    assert r"| 50 %\|#1 | 3 | 0.500 (1 of 3 runs) |" in text
    assert "| Mass | – | missing |" in text
    assert "| Hernia | 0 | – |" in text
    assert text.endswith("- p &lt; 0.05\n- Recipe phantom.\n")


def test_latex_is_escaped_and_balanced() -> None:
    text = to_latex(SHEET, ["Recipe phantom."], "phantom:per-finding")
    assert r"Pleural\_Thickening & 12 & 0.873 $\pm$ 0.004 \\" in text
    assert r"50 \%\textbar{}\#1 & 3 & 0.500 (1 of 3 runs) \\" in text
    assert r"\caption{AUC of Pleural\_Thickening \& 50 \% of R\&D.}" in text
    assert r"\begin{tabular}{lrr}" in text
    for name in ("table", "tabular"):
        assert text.count(f"\\begin{{{name}}}") == text.count(f"\\end{{{name}}}") == 1
    bare = re.sub(r"\\[{}]", "", text)
    assert bare.count("{") == bare.count("}")
    body = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert {len(re.findall(r"(?<!\\)&", line)) for line in body} == {2}


@given(st.text(alphabet="ab &%$#_{}~^\\<>|±–\"'", max_size=30))
def test_no_character_of_a_name_is_a_command(name: str) -> None:
    """Once known escapes are taken away, no special character is left, and plain letters are as they were."""
    text = latex(name)
    escapes = r"\\text\w+\{\}|\\[&%$#_{}]|\$\\pm\$|\\ldots\{\}"
    assert not set(re.sub(escapes, "", text)) & set("&%$#_{}~^\\")
    assert [letter for letter in re.sub(escapes, "", text) if letter in "ab'"] == [x for x in name if x in "ab'"]


def test_files_are_named_after_the_artefact_and_old_ones_go(tmp_path: Path) -> None:
    assert stem_of("noise-grid", "tests") == "noise-grid-tests"
    assert stem_of("noise-grid", "noise-grid") == "noise-grid"
    assert stem_of("noise-grid", "held-out patients") == "noise-grid-held-out-patients"
    files = write("grid", [SHEET, Sheet("tests", "T", ["a"], [[1]])], ["Recipe phantom."], tmp_path)
    assert sorted(file.name for file in files) == sorted(
        f"grid-{part}.{form}" for part in ("south", "tests") for form in ("csv", "md", "tex")
    )
    write("other", [SHEET], [], tmp_path)
    write("grid", [SHEET], [], tmp_path)
    assert not (tmp_path / "grid-tests.csv").exists()
    assert read_index(tmp_path) == {"grid": ["grid-south"], "other": ["other-south"]}
    assert (tmp_path / "other-south.tex").exists()


def test_the_papers_own_numbers_get_no_facts_about_runs(tmp_path: Path) -> None:
    theirs = Sheet("paper-nih", "The paper's.", ["a"], [[1]], ours=False)
    write("grid", [SHEET, theirs], ["Run on a CPU."], tmp_path)
    assert "Run on a CPU." in (tmp_path / "grid-south.md").read_text()
    assert "Run on a CPU." not in (tmp_path / "grid-paper-nih.md").read_text()


def test_a_drawing_is_written_with_its_numbers_and_always_the_same(tmp_path: Path) -> None:
    def drawing() -> Drawing:
        figure = Figure(figsize=(2, 2))
        figure.subplots().plot([0, 1], [0, 1])
        return Drawing("grid", figure, "What it shows.", Sheet("grid", "Numbers.", ["x"], [[0], [1]]))

    for folder in ("one", "two"):
        write("grid", [drawing()], ["Seeds 0."], tmp_path / folder)
    assert (tmp_path / "one" / "grid.svg").read_bytes() == (tmp_path / "two" / "grid.svg").read_bytes()
    assert (tmp_path / "one" / "grid.csv").read_text() == "x\n0\n1\n"
    assert (tmp_path / "one" / "grid.png").stat().st_size > 1000
    text = (tmp_path / "one" / "grid.md").read_text()
    assert text == "![Numbers.](grid.svg)\n\nWhat it shows.\n\n- Seeds 0.\n"
