"""Tables as Markdown and LaTeX: names become no commands, and the highest mean of what is comparable is bold."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bomd.cli import main
from bomd.measure.significance import Sample
from bomd.reports.sheet import Mean, best, latex_table, markdown_table
from tests.reports.test_comparison import NOISE, record


def mean(value: float, digits: int = 3) -> Mean:
    return Mean(Sample(value, 0.01, 3), 3, 3, digits)


def test_the_highest_of_each_column_is_best_unless_all_are_the_same() -> None:
    unknown = Mean(None, 3, 3)
    rows = [
        ["a", mean(0.7), mean(0.5), unknown, 9, mean(0.9)],
        ["b", mean(0.8), mean(0.5), mean(0.1), 10, mean(0.8004)],
        ["c", mean(0.8004), mean(0.5), unknown, 11, mean(0.8)],
    ]
    assert best(rows) == {(1, 1), (2, 1), (0, 5)}  # 0.8 and 0.8004 read the same
    assert best(rows, ["x", "y", "y"]) == set()
    assert best(rows, ["x", "x", "y"]) == {(1, 1), (0, 5)}
    assert best([["a", mean(9, 0)], ["b", mean(10, 0)]]) == {(1, 1)}  # as numbers, not as text


def test_both_languages_mark_the_same_cells_and_spell_names_as_they_are() -> None:
    heads, rows = ["my_method", "50 % & more"], [["a_b|c", mean(0.7)], ["d", mean(0.8)]]
    assert markdown_table(heads, rows, bold=best(rows)).splitlines() == [
        r"| my\_method | 50 % & more |",
        "|---|---|",
        r"| a\_b\|c | 0.700 ± 0.010 |",
        "| d | **0.800 ± 0.010** |",
    ]
    assert latex_table(heads, rows, best(rows)).splitlines() == [
        r"\begin{tabular}{lr}",
        r"  \toprule",
        r"  my\_method & 50 \% \& more \\",
        r"  \midrule",
        r"  a\_b\textbar{}c & 0.700 $\pm$ 0.010 \\",
        r"  d & \textbf{0.800 $\pm$ 0.010} \\",
        r"  \bottomrule",
        r"\end{tabular}",
    ]
    assert r"  {[}x] & 1 \\" in latex_table(["a", "b"], [["[x]", 1]])  # \\[x] would be a length


def test_bomd_tables_writes_what_a_paper_takes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Test sets and kinds of noise are not compared with one another; nothing floats and nothing has a caption."""
    scores = {("bce", None): 0.9, ("bomd", None): 0.8, ("bce", "noisy"): 0.5, ("bomd", "noisy"): 0.6}
    records = [
        record(method, seed, score + seed / 100, NOISE if noise else None, name="my_set")
        for (method, noise), score in scores.items()
        for seed in (0, 1)
    ]
    path = tmp_path / "mine.jsonl"
    path.write_text("".join(json.dumps(one.written) + "\n" for one in records))
    with pytest.raises(SystemExit) as stop:
        main(["tables", str(path)])
    assert not stop.value.code
    names = [f"mine{part}.{form}" for part in ("", "-comparison") for form in ("csv", "md", "tex")]
    assert capsys.readouterr().out.strip() == f"8 runs: {', '.join(str(tmp_path / name) for name in names)}"
    lines = [line.strip() for line in (tmp_path / "mine.tex").read_text().splitlines()]
    assert lines[:3] == [r"\begin{tabular}{lllrr}", r"\toprule", r"method & noise & test set & seeds & AUC \\"]
    assert r"bce & no noise & south & 2 & \textbf{0.905 $\pm$ 0.007} \\" in lines
    assert r"bomd & no noise & south & 2 & 0.805 $\pm$ 0.007 \\" in lines
    assert r"bomd & (0.4, 0.4) & south & 2 & \textbf{0.605 $\pm$ 0.007} \\" in lines
    assert r"bce & (0.4, 0.4) & validation & 2 & 0.600 $\pm$ 0.000 \\" in lines  # the same for both
    text = (tmp_path / "mine-comparison.tex").read_text()
    assert text.startswith("% my_set: AUC on south, mean and standard deviation over seeds\n\\begin{tabular}{lrr}\n")
    assert r"  bce & \textbf{0.905 $\pm$ 0.007} & 0.505 $\pm$ 0.007 \\" in text
    assert r"  bomd & 0.805 $\pm$ 0.007 & \textbf{0.605 $\pm$ 0.007} \\" in text
    assert "caption" not in text
    markdown = (tmp_path / "mine-comparison.md").read_text()
    assert "| bce | **0.905 ± 0.007** | 0.505 ± 0.007 |" in markdown
