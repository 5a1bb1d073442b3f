"""Records come back as they were written, old ones too; whatever is wrong inside one is a line that says where."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bomd import cli
from bomd.errors import InputError
from bomd.experiments import identity as identities
from bomd.experiments.identity import identity
from bomd.experiments.recorded import Record, record_of
from bomd.files import write_json
from bomd.measure.result import Result
from bomd.reports.summary import summary_table
from bomd.reports.tables import run_rows
from bomd.runs import Run
from bomd.saved import read_as
from evidence.records import names, records_of


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Every value in a JSON document by its path, tables and lists too."""
    yield path, value
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        yield from leaves(item, (*path, key))


def written_run(root: Path, name: str = "demo", place: int = 3) -> Run:
    """The directory of a recorded run, without its arrays."""
    written = records_of(name)[place].written
    for part in ("config", "result", "environment"):
        content = {"format": 1, "config": written["config"]} if part == "config" else written[part]
        write_json(root / f"{part}.json", content)
    return Run(root)


@pytest.mark.parametrize("name", names())
def test_every_kept_record_comes_back_whole(name: str) -> None:
    """Whatever a result holds on disk is found in the typed one, under the same name and with the same value."""
    records = records_of(name)
    for record in records[:: max(1, len(records) // 4)]:
        raw, typed = record.written["result"], record.result.to_dict()
        for path, value in leaves(raw):
            if isinstance(value, dict | list) or "left_out" in path:
                continue
            found: Any = typed
            for key in path:
                found = found[key]
            assert found == value, (name, record.run, path)
        for test, scores in raw["tests"].items():
            assert record.result.tests[test].left_out == {item["name"]: item["reason"] for item in scores["left_out"]}
        assert record.environment.device == record.written["environment"]["device"]
        assert record.config.seed == record.written["config"]["seed"]


def test_an_old_record_without_newer_parts_is_read() -> None:
    old = copy.deepcopy(dict(records_of("demo")[3].written))
    for part in ("votes", "space", "settings", "notes"):
        old["result"].pop(part, None)
    for part in ("runs_at_once", "peak_gpu_memory_mb", "uncommitted"):
        old["environment"].pop(part, None)
    del old["result"]["labels"]["histograms"]
    old["result"]["from_the_future"] = {"what": 1}
    record = Record(old, "old")
    assert record.result.votes is record.result.settings is None
    assert record.result.labels is not None
    assert record.result.labels.histograms is None
    assert run_rows([record])[0]["runs_at_once"] is None


WRONG: tuple[Any, ...] = ("text", 3, 0.5, True, None, [], ["text"], {}, {"name": 3})


def outcome(raw: Any) -> str:
    """What reading says: nothing where it is content."""
    try:
        read_as(Result, raw, "result.json").to_dict()
    except InputError as error:
        return str(error)
    return ""


def number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def test_a_wrong_type_anywhere_in_a_result_is_one_line_that_says_where() -> None:
    """Every value of a real result is replaced by one of every other type; nothing but InputError may come of it."""
    raw = first_of_lists(records_of("demo")[3].written["result"])
    assert outcome(raw) == ""
    for path, value in leaves(raw):
        for wrong in WRONG if path else ():
            if type(wrong) is type(value):
                continue
            broken = copy.deepcopy(raw)
            place = broken
            for key in path[:-1]:
                place = place[key]
            place[path[-1]] = wrong
            said = outcome(broken)
            assert "\n" not in said
            if said:
                assert said.startswith(f"result.json is damaged: {path[0]}"), (path, wrong, said)
            else:  # null is "not known", a whole number may stand for another, and settings may be anything
                fits = wrong is None or value is None or (number(value) and number(wrong)) or path[0] == "settings"
                assert fits or ("left_out" in path and wrong in ([], {})), (path, wrong)


def first_of_lists(value: Any) -> Any:
    """The same document with one entry of every list and one test set, which stand for all."""
    if isinstance(value, dict):
        return {key: first_of_lists(item) for key, item in value.items() if not str(key).startswith("validation")}
    return [first_of_lists(item) for item in value[:1]] if isinstance(value, list) else value


@pytest.mark.parametrize(
    ("path", "wrong", "said"),
    [
        (("tests", "south", "classes", 2, "auc"), "high", "tests.south.classes[2].auc is a str"),
        (("tests", "south", "mean_auc"), [0.5], "mean_auc"),
        (("composition", 0, "kept"), None, "composition[0].kept is a NoneType"),
        (("labels", "classes", 1), 5, "labels.classes[1] is a int"),
        (("flagged", "images"), "many", "images"),
    ],
)
def test_commands_say_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], path: tuple[Any, ...], wrong: Any, said: str
) -> None:
    run = written_run(tmp_path / "run")
    result = json.loads((run.directory / "result.json").read_text())
    place = result
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = wrong
    write_json(run.directory / "result.json", result)
    commands = (
        ["report", str(run.directory), "-o", str(tmp_path / "report.html")],
        ["tables", str(tmp_path / "new.jsonl"), str(run.directory)],
    )
    for words in commands:
        with pytest.raises(SystemExit) as stop:
            cli.main(words)
        assert stop.value.code == 2, words
        error = capsys.readouterr().err
        assert said in error
        assert "Traceback" not in error


def test_a_run_directory_and_its_record_are_the_same_run(tmp_path: Path) -> None:
    run = written_run(tmp_path / "demo" / "bomd" / "seed0-abc")
    record = Record.of(run)
    assert record.identity == records_of("demo")[3].identity == identity(run.config())
    assert record.place == "demo/bomd/seed0-abc"
    assert summary_table([run]).row_count == 1


def test_a_setting_that_is_added_later_makes_no_other_run(monkeypatch: pytest.MonkeyPatch) -> None:
    config = records_of("demo")[3].written["config"]
    before = identity(config)
    usual = identities._defaults()
    later = usual | {"fit": usual["fit"] | {"added": 0.5}, "more": {"also": 1}}
    monkeypatch.setattr(identities, "_defaults", lambda: later)
    assert identity(config) == before
    assert identity({**config, "fit": config["fit"] | {"added": 0.6}}) != before


def test_a_record_keeps_scores_of_classes_without_their_intervals(tmp_path: Path) -> None:
    """Those are half of a record; means keep theirs, and the run keeps all."""
    run = written_run(tmp_path / "demo/bce/seed0-abc")
    whole = copy.deepcopy(run.result())
    for test in whole["tests"].values():
        for one in test["classes"]:
            one |= {"auc_low": 0.1, "auc_high": 0.9, "ap_low": 0.1, "ap_high": 0.9, "draws": 1000}
    write_json(run.directory / "result.json", whole)
    kept = record_of(run).result.to_dict()
    for name, test in whole["tests"].items():
        assert kept["tests"][name]["mean_auc_low"] == test["mean_auc_low"]
        for one, before in zip(kept["tests"][name]["classes"], test["classes"], strict=True):
            assert one["auc"] == before["auc"]
            assert one["auc_low"] is None
            assert one["ap_high"] is None
    assert run.result() == whole
