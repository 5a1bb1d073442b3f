"""Sheets as CSV, Markdown and LaTeX, drawings as SVG and PNG, and a list of what belongs to which artefact."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from itertools import chain
from pathlib import Path

from bomd.files import read_json, replacing, write_json, write_text
from bomd.reports.sheet import Cell, Mean, escape, latex, latex_table, markdown_table, to_csv
from evidence.reproduce.artefact import Drawing, Sheet

INDEX = "index.json"
PIXELS = 200  # dots per inch of a PNG
FORMS = (".csv", ".md", ".tex", ".svg", ".png")


def write(
    name: str,
    made: Sequence[Sheet | Drawing],
    facts: Sequence[str],
    folder: Path,
    forms: Collection[str] = FORMS,
) -> list[Path]:
    """Write an artefact in all its forms; files of an earlier call that it no longer has are removed.

    Args:
        name: Of the artefact.
        facts: Sentences on data, seeds, device and missing runs, which end the notes of each file.
        forms: Endings of the files to write; the numbers of large drawings are compressed, as .csv.xz.
    """
    files, stems = [], []
    for one in made:
        stem = stem_of(name, one.name)
        stems.append(stem)
        if isinstance(one, Drawing):
            texts = {
                ".csv.xz" if one.packed else ".csv": wide_csv(one.numbers.heads, one.numbers.rows),
                ".md": _described(one, facts, stem),
            }
            files += _write_pictures(one, folder, stem, [form for form in (".svg", ".png") if form in forms])
        else:
            about = facts if one.ours else ()
            texts = {
                ".csv": wide_csv(one.heads, one.rows),
                ".md": to_markdown(one, about),
                ".tex": to_latex(one, about, f"{folder.name}:{stem}"),
            }
        for ending, text in texts.items():
            if ending.removesuffix(".xz") in forms:
                write_text(folder / f"{stem}{ending}", text)
                files.append(folder / f"{stem}{ending}")
    index = read_index(folder)
    for stem in set(index.get(name, [])) - set(stems):
        for suffix in (*FORMS, ".csv.xz"):
            (folder / f"{stem}{suffix}").unlink(missing_ok=True)
    write_json(folder / INDEX, {**index, name: stems})
    return files


def stem_of(artefact: str, part: str) -> str:
    """File name, without its ending, of a part of an artefact."""
    return re.sub(r"[^\w.-]+", "-", part if part.startswith(artefact) else f"{artefact}-{part}")


def read_index(folder: Path) -> dict[str, list[str]]:
    """The stems of the files of every artefact in a folder."""
    path = folder / INDEX
    index: dict[str, list[str]] = read_json(path) if path.exists() else {}
    return index


def _write_pictures(one: Drawing, folder: Path, stem: str, forms: Sequence[str]) -> list[Path]:
    import matplotlib

    files = [folder / f"{stem}{form}" for form in forms]
    # Fixed ids and no date, so that the same numbers give the same file.
    with matplotlib.rc_context({"svg.hashsalt": stem}):
        for path in files:
            with replacing(path) as temporary:
                metadata = {"Date": None} if path.suffix == ".svg" else None
                one.figure.savefig(temporary, format=path.suffix[1:], dpi=PIXELS, metadata=metadata)
    return files


def _described(one: Drawing, facts: Sequence[str], stem: str) -> str:
    """The picture with what is to be known about it, as Markdown."""
    alternative = one.numbers.title.replace("[", "(").replace("]", ")")
    notes = [f"- {escape(note)}" for note in (*one.numbers.notes, *facts)]
    picture = f"![{escape(alternative)}]({stem}.svg)"
    return "\n".join([picture, "", escape(one.caption), "", *notes, ""])


def wide_csv(heads: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    """A table as CSV, where a mean takes three columns: itself, its spread, and how many runs are behind it."""
    wide = [any(isinstance(row[column], Mean) for row in rows) for column in range(len(heads))]
    titles = [[head, f"{head} std", f"{head} runs"] if one else [head] for head, one in zip(heads, wide, strict=True)]
    cells = [[_apart(cell) if one else [cell] for cell, one in zip(row, wide, strict=True)] for row in rows]
    return to_csv(list(chain.from_iterable(titles)), [list(chain.from_iterable(row)) for row in cells])


def _apart(cell: Cell) -> list[Cell]:
    if not isinstance(cell, Mean):
        return [cell, None, None]
    if cell.sample is None:
        return [None, None, cell.done]
    std = cell.sample.std
    return [round(cell.sample.mean, 6), None if std is None else round(std, 6), cell.done]


def to_markdown(sheet: Sheet, facts: Sequence[str] = ()) -> str:
    """A sheet with its title and notes."""
    notes = [f"- {escape(note)}" for note in (*sheet.notes, *facts)]
    return "\n".join([f"**{escape(sheet.title)}**", "", markdown_table(sheet.heads, sheet.rows), *notes, ""])


def to_latex(sheet: Sheet, facts: Sequence[str] = (), label: str = "") -> str:
    """A floating table for `booktabs` and `graphicx`, no wider than the text."""
    notes = " ".join(latex(note) for note in (*sheet.notes, *facts))
    return "\n".join(
        [
            r"\begin{table}[t]",
            r"  \centering",
            rf"  \caption{{{latex(sheet.title)}}}",
            rf"  \label{{tab:{label}}}",
            r"  \resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
            *(f"  {line}" for line in f"{latex_table(sheet.heads, sheet.rows).rstrip()}}}".splitlines()),
            rf"  \par\smallskip{{\footnotesize {notes}\par}}",
            r"\end{table}",
            "",
        ]
    )
