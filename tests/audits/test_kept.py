"""A table goes back as it came: only cells whose label was decided otherwise change."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from bomd import runs
from bomd.audits.given import read_given
from bomd.audits.kept import FORM, TABLE, Form, as_decided, cut_record, find, keep, plain, rewrite
from bomd.config import Config
from bomd.data.label_files import read_verbatim
from bomd.errors import InputError
from bomd.files import write_json

LISTED = Form("image", "labels", "|", (), ("Edema", "Mass", "No Finding"))


def rewritten(tmp_path: Path, text: str, form: Form, **decided: dict[str, float | None]) -> str:
    file = tmp_path / "table.csv"
    file.write_bytes(text.encode())
    return rewrite(read_verbatim(file)[1], form, {name.replace("_", "."): said for name, said in decided.items()})


def test_cells_keep_their_column_order_separator_and_spelling(tmp_path: Path) -> None:
    """Semicolons, a mark, Windows line ends, quotation marks, words for labels: all as they were."""
    text = '\ufeffnote;image;Mass;"Edema "\r\n"a;""b""";a;TRUE;no\r\n;b;FALSE;yes\r\nx;c;FALSE;\r\n'
    text = text.replace("Edema ", "Edema")
    form = Form("image", None, None, ("Mass", "Edema"), ("Mass", "Edema"))
    found = rewritten(tmp_path, text, form, a={"Mass": 0, "Edema": 1}, c={"Mass": 0, "Edema": 0, "Other": 1})
    assert found == text.replace("a;TRUE;no", "a;FALSE;yes").replace("c;FALSE;", "c;FALSE;no")


def test_unknown_is_written_as_the_table_writes_it(tmp_path: Path) -> None:
    text = "image,Mass\na,1.0\nb,NA\n"
    form = Form("image", None, None, ("Mass",), ("Mass",))
    assert rewritten(tmp_path, text, form, a={"Mass": None}) == "image,Mass\na,NA\nb,NA\n"
    assert rewritten(tmp_path, text, form, a={"Mass": 0}) == "image,Mass\na,0\nb,NA\n"
    short = "image,Mass\na,1\nb\n"  # a row that ends early
    assert rewritten(tmp_path, short, form, b={"Mass": 1}) == "image,Mass\na,1\nb,1\n"


def test_quoted_cells_between_bars_stay_where_they_are(tmp_path: Path) -> None:
    text = 'image|patient|Mass|note\na|p8|1|"say ""hi"" a|b"\n'
    form = Form("image", None, None, ("Mass",), ("Mass",))
    assert rewritten(tmp_path, text, form, a={"Mass": 0}) == text.replace("|1|", "|0|")


def test_lists_lose_and_gain_names(tmp_path: Path) -> None:
    text = "image,labels\na.png,Mass|Edema\nb.png,no finding\nc.png,Edema|Tube\nd.png,\n"
    every = {"Edema": 0.0, "Mass": 1.0, "No Finding": 0.0}
    nothing = {"Edema": 0.0, "Mass": 0.0, "No Finding": 1.0}
    found = rewritten(tmp_path, text, LISTED, a_png=nothing, b_png=every, c_png=every, d_png=nothing)
    assert found.splitlines()[1:] == ["a.png,no finding", "b.png,Mass", "c.png,Tube|Mass", "d.png,no finding"]


def test_a_list_that_says_the_same_is_not_touched(tmp_path: Path) -> None:
    text = 'image,labels\na.png," Mass |Edema"\n'
    said = {"Edema": 1.0, "Mass": 1.0, "No Finding": 0.0}
    assert rewritten(tmp_path, text, LISTED, a_png=said) == text


def test_names_are_joined_as_the_table_joins_them(tmp_path: Path) -> None:
    text = 'image;labels\na;"Mass, Edema"\nb;Mass\n'
    form = Form("image", "labels", ",", (), ("Edema", "Mass"))
    assert rewritten(tmp_path, text, form, b={"Edema": 1, "Mass": 1}).splitlines()[2] == "b;Mass, Edema"
    assert rewritten(tmp_path, text, form, b={"Edema": 0, "Mass": 0}).splitlines()[2] == "b;"


def test_apostrophes_before_formulas_are_seen_through_and_kept(tmp_path: Path) -> None:
    text = "image,labels\n'=a,'=x|Mass\nb,Mass\n"
    form = Form("image", "labels", "|", (), ("=x", "Mass"))
    decided: dict[str, dict[str, float | None]] = {"=a": {"=x": 1, "Mass": 0}, "b": {"=x": 1, "Mass": 0}}
    (tmp_path / "table.csv").write_text(text)
    found = rewrite(read_verbatim(tmp_path / "table.csv")[1], form, decided)
    assert found == "image,labels\n'=a,'=x\nb,'=x\n"


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@given(cells=st.lists(st.text(st.characters(exclude_categories=["Cs", "Cc"])), min_size=2, max_size=5))
def test_cells_are_cut_as_the_csv_module_cuts_them(separator: str, cells: list[str]) -> None:
    stream = io.StringIO()
    csv.writer(stream, delimiter=separator, lineterminator="").writerow(cells)
    pieces = cut_record(stream.getvalue(), separator)
    assert [plain(piece) for piece in pieces] == cells
    assert separator.join(pieces) == stream.getvalue()
    raw = separator.join(cells).replace("\0", "")
    if raw.count('"') == 0:
        assert [plain(piece) for piece in cut_record(raw, separator)] == next(csv.reader([raw], delimiter=separator))


def test_decisions_by_id_and_class() -> None:
    values = np.asarray([[1, np.nan], [0, 1]], dtype=np.float32)
    decided = np.asarray([[True, True], [False, False]])
    assert as_decided(values, decided, ["a", "b"], ["Mass", "Edema"]) == {"a": {"Mass": 1.0, "Edema": None}}


@pytest.mark.parametrize("facts", [[], {}, {"id_column": 3, "label_column": None, "delimiter": None}])
def test_a_damaged_form_says_what_to_do(facts: object, tmp_path: Path) -> None:
    write_json(tmp_path / FORM, facts)
    with pytest.raises(InputError, match=r"table\.json is damaged, audit again: "):
        find(tmp_path)


def test_a_table_that_was_changed_since_the_audit_is_refused(tmp_path: Path) -> None:
    """A row that was deleted by hand would be missing from what `bomd decisions` writes, and nobody would know."""
    table = tmp_path / "labels.csv"
    table.write_text("image,Mass,Edema\na,1,0\nb,0,1\nc,0,0\n")
    (tmp_path / "images").mkdir()
    for name in "abc":
        Image.fromarray(np.zeros((8, 8), dtype=np.uint8)).save(tmp_path / "images" / f"{name}.png")
    keep(read_given(table, tmp_path / "images"), tmp_path)
    assert find(tmp_path) is not None
    (tmp_path / TABLE).write_text("image,Mass,Edema\na,1,0\nc,0,0\n")
    with pytest.raises(InputError, match=r"table\.csv is not the table that was audited"):
        find(tmp_path)
    (tmp_path / TABLE).unlink()
    with pytest.raises(InputError, match=r"Cannot read .*table\.csv: No such file"):
        find(tmp_path)


def test_an_audit_that_lost_the_form_of_its_table_says_so(tmp_path: Path) -> None:
    run = runs.start(tmp_path, Config(train={"dataset": "folder", "labels": "labels.csv"})).directory
    with pytest.raises(InputError, match=r"table\.json is missing: restore it, or audit again"):
        find(run)
