"""Pages of all methods say what stands behind a row: its settings, its notes, the findings and the epochs."""

from __future__ import annotations

import copy
import inspect
import re
from pathlib import Path

from bomd.experiments.recorded import Record
from bomd.methods import METHODS
from bomd.methods.describe import in_use
from evidence import ROOT
from evidence.pages import dot_plots
from evidence.pages import methods as pages
from evidence.pages.method_settings import FOLLOWING
from evidence.records import records_of


def record(method: str, seed: int = 0, name: str = "short", epochs: int = 12, notes: tuple[str, ...] = ()) -> Record:
    """A recorded run of the demo as if it were one of another method."""
    written = copy.deepcopy(dict(records_of("demo")[0].written))
    written["config"] |= {"name": name, "method": method, "seed": seed, "settings": {}}
    written["config"]["fit"]["epochs"] = epochs
    written["result"]["notes"] = list(notes)
    return Record(written, "demo")


def test_a_setting_that_follows_the_noise_is_shown_by_level() -> None:
    said = ["co-teaching: noise = 0.36, the share.", "co-teaching: noise = 0.40, the share."]
    records = [record("co-teaching", seed, notes=(note,)) for seed, note in enumerate(said)]
    text = pages.page({"short": [*records, record("gls")]}, ["co-teaching", "gls", "bce"])
    assert "| co-teaching: noise | missing | missing | 0.38 | missing |" in text
    assert "| gls: smoothing | missing | missing | fixed | missing |" in text  # of runs that noted nothing


def test_only_methods_that_follow_the_noise_are_listed_and_all_of_them() -> None:
    """Their sources read the level of noise from the context."""
    known = {name for name, kind in METHODS.items() if "context.noise" in inspect.getsource(inspect.getmodule(kind))}  # type: ignore[arg-type]
    assert known == {*FOLLOWING}
    for name, setting in FOLLOWING.items():
        assert inspect.signature(METHODS[name]).parameters[setting].default is None


def test_a_row_that_is_not_what_its_name_says_is_called_so() -> None:
    note = "No text model: prompts are means of vectors, which is not CoOp."
    text = pages.page({"short": [record("coop", notes=(note,)), record("bce")]}, ["bce", "coop"])
    assert "\n| coop (no text model: not CoOp) |" in text
    assert "\n| coop |" not in text
    assert f"- coop: {note}" in text
    assert "\n| coop |" in pages.page({"short": [record("coop")]}, ["coop"])  # with a text model it is


def test_settings_of_the_recipe_are_told() -> None:
    tuned = record("fine")
    tuned.written["config"]["settings"] = {"fine": {"warmup": 0.75}}
    assert "- fine: warmup = 0.75" in pages.page({"short": [tuned]}, ["fine"])
    assert "None: every method has its defaults." in pages.page({"short": [record("fine")]}, ["fine"])


def test_runs_whose_defaults_are_not_known_are_named() -> None:
    old, new = record("fine"), record("ls")
    old.written["result"].pop("settings", None)
    new.written["result"]["settings"] = {"smoothing": 0.6}
    text = pages.page({"short": [old, new]}, ["fine", "ls"])
    assert "have changed since: fine." in text
    assert "have changed since" not in pages.page({"short": [new]}, ["ls"])


def test_of_a_method_the_newest_settings_count_and_of_a_run_the_newest_record() -> None:
    """Old runs of a setting that was given up leave the page; the newer record of the same run takes its place."""
    given_up, first, again, other = record("fine"), record("fine", 1), record("fine", 1), record("fine", 2)
    for one in (first, again, other):
        one.written["config"]["settings"] = {"fine": {"warmup": 0.75}}
    assert pages.newest([given_up, record("bce"), first, again, other])[0].config.method == "bce"
    kept = [one for one in pages.newest([given_up, first, again, other]) if one.config.method == "fine"]
    assert [one.seed for one in kept] == [1, 2]
    assert kept[0] is again
    back = pages.newest([given_up, first, other, record("fine", 3)])
    assert [one.seed for one in back] == [0, 3], "the first settings came back"


def test_rows_without_the_setting_that_their_method_chose_are_named() -> None:
    """npc chose trust = 2 in its tuning; ls had best what it has anyway."""
    tuned = record("npc", name="nih-64")
    tuned.written["config"]["settings"] = {"npc": {"trust": 2.0}}
    assert "others than the fair ones: npc." in pages.page({"nih-64": [record("npc", name="nih-64")]}, ["npc"])
    assert "others than the fair" not in pages.page({"nih-64": [tuned, record("ls", name="nih-64")]}, ["npc", "ls"])


def test_a_test_set_that_was_read_anew_is_told() -> None:
    anew = record("ls")
    anew.written["result"]["images"]["south"] = 7
    usual = [record("bce"), record("fine")]
    count = usual[0].result.images["south"]
    assert f"test images: {count:,} (but 7 for ls) of south" in pages.page({"short": [*usual, anew]}, ["bce", "ls"])
    assert f"test images: {count:,} of south" in pages.page({"short": usual}, ["bce", "fine"])


def test_short_and_long_training_stand_side_by_side() -> None:
    long = record("bce", name="long", epochs=30)
    long.written["result"]["tests"]["south"]["mean_auc"] = 0.9
    short = record("bce")
    short.written["result"]["tests"]["south"]["mean_auc"] = 0.7
    text = pages.page({"a": [short], "b": [long]}, ["bce", "ls"])
    assert "(0.4, 0.4), 12 epochs | (0.4, 0.4), 30 epochs |" in text
    assert "| bce | missing | missing | missing | missing | 0.700 | 0.900 | missing | missing |" in text
    assert "| ls |" + " missing |" * 8 in text
    assert "length of the training" not in pages.page({"a": [short], "b": []}, ["bce"])


def test_the_findings_behind_a_mean_are_counted() -> None:
    few = record("bce")
    few.written["result"]["tests"]["south"]["averaged"] = ["Mass"]
    assert '"south" is 1 of 13 (Mass).' in pages.page({"short": [few]}, ["bce"])
    text = (ROOT / "docs" / "methods-nih.md").read_text()
    assert '"google" is 1 of 13 (Nodule or mass)' in text
    assert '"openi" is 6 of 13 (Atelectasis, ' in text


def test_rows_of_two_states_of_the_code_are_said_to_be() -> None:
    other = record("ls")
    other.written["environment"]["commit"] = "f" * 40
    warning = "different states of the code"
    assert warning in pages.page({"short": [record("bce"), other]}, ["bce"])
    assert warning not in pages.page({"short": [record("bce")]}, ["bce"])


def test_a_cost_that_is_documented_wrongly_shows() -> None:
    dear = record("ls")
    dear.written["result"]["images_presented"] *= 3
    assert "off for: ls (3.00 here, 1 there)." in pages.page({"short": [record("bce"), dear]}, ["bce", "ls"])
    assert "off for: no method." in pages.page({"short": [record("bce")]}, ["bce"])


def test_nothing_recorded_is_no_error() -> None:
    assert "no run is in yet" in pages.page({"short": []}, ["bce"])


def test_a_default_that_has_changed_since_is_told() -> None:
    """Runs record every setting they had; a third is recorded as 0.3333 and is still a third."""
    old = record("xue")
    old.written["result"]["settings"] = in_use("xue", {}) | {"ramp": 0.3333, "warmup": 0.123}
    text = pages.page({"short": [Record(old.written, "demo"), record("bce")]}, ["bce", "xue"])
    assert "Another default was in force for xue: warmup = 0.123.\n" in text
    old.written["result"]["settings"]["warmup"] = in_use("xue", {})["warmup"]
    assert "Another default" not in pages.page({"short": [Record(old.written, "demo")]}, ["xue"])


def test_dots_are_sorted_and_what_has_not_run_is_left_out() -> None:
    """Every method once, the best first; one with a level of noise missing comes after those that have all."""
    made = []
    for place, method in enumerate(("bce", "ls", "elr")):
        for rows in (0.4, 0.0)[: 2 if method != "elr" else 1]:
            one = record(method)
            one.written["config"]["noise"]["rows"] = rows
            one.written["result"]["tests"]["south"]["mean_auc"] = 0.6 + place / 10
            made.append(Record(one.written, "demo"))
    (grid,) = pages.comparisons(made, ["bce", "ls", "elr", "nvum"])
    assert dot_plots.ordered(grid, "south") == ["ls", "bce", "elr"]
    text = dot_plots.shown(grid, "images")
    assert text.index("| ls |") < text.index("| bce |") < text.index("| elr |")
    assert "nvum" not in text


def test_the_drawing_has_a_row_for_each_method(tmp_path: Path) -> None:
    (grid,) = pages.comparisons([record("bce"), record("ls")], ["bce", "ls"])
    files = dot_plots.write(grid, tmp_path)
    assert [path.stem for path in files] == ["short-south", "short-held-out-patients"]
    drawn = files[0].read_text()
    assert re.findall("<!-- (n[^-]*) -->", drawn) == ["noise (0.4, 0.4)"], (
        "levels at which nothing has run are left out"
    )
    assert drawn == dot_plots.write(grid, tmp_path / "again")[0].read_text()
