"""The page between a report and a review: it leads on while a review runs, and else says how to start one."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from bomd.reports import gate

ADDRESS = "http://127.0.0.1:5005/?token=secret"


def test_it_holds_the_address_while_a_review_runs_and_nobody_else_may_read_it(tmp_path: Path) -> None:
    with gate.opened(tmp_path, ADDRESS) as page:
        text = page.read_text(encoding="utf-8")
        assert f'data-address="{ADDRESS}"' in text
        assert stat.S_IMODE(page.stat().st_mode) == 0o600
        assert gate.link_to_review(tmp_path, tmp_path / "report.html") is not None
        assert page.read_text(encoding="utf-8") == text  # a report that is written meanwhile does not close it
    assert "secret" not in page.read_text(encoding="utf-8")
    assert "bomd review" in page.read_text(encoding="utf-8")
    assert list(tmp_path.iterdir()) == [page]


def test_it_is_closed_when_the_review_fails(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), gate.opened(tmp_path, ADDRESS):
        raise RuntimeError
    assert "secret" not in (tmp_path / gate.PAGE).read_text(encoding="utf-8")


def test_a_link_in_its_place_is_replaced_and_not_followed(tmp_path: Path) -> None:
    mine, run = tmp_path / "mine.txt", tmp_path / "run"
    run.mkdir()
    mine.write_text("mine")
    (run / gate.PAGE).symlink_to(mine)
    with gate.opened(run, ADDRESS):
        assert not (run / gate.PAGE).is_symlink()
    assert mine.read_text() == "mine"


def test_no_link_where_nothing_can_be_written(tmp_path: Path) -> None:
    assert gate.link_to_review(tmp_path / "gone", tmp_path / "report.html") is None


def test_the_command_can_be_pasted(tmp_path: Path) -> None:
    run = tmp_path / "a run's folder"
    run.mkdir()
    found = gate.link_to_review(run, tmp_path / "pages" / "report.html")
    assert found is not None
    assert found["href"] == "../a%20run%27s%20folder/review.html"
    assert found["command"].startswith("bomd review '")
