"""Through the front door: the command line from recipe to report, and one clear line for every mistake."""

from __future__ import annotations

import csv
import inspect
import json
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bomd.cli import main
from bomd.cli.options import typed
from bomd.errors import InputError
from bomd.experiments.experiment import make_method
from bomd.experiments.plan import configure
from bomd.methods import METHODS
from bomd.methods.describe import tables_of

# Small enough for seconds, large enough that every class of the demo has positives somewhere.
TINY = [
    "images.size=32",
    "train.count=160",
    "test.south.count=120",
    "fit.epochs=2",
    "fit.batch=32",
]


def sets(*settings: str) -> list[str]:
    return [word for setting in settings for word in ("--set", setting)]


def bomd(*words: str) -> int:
    with pytest.raises(SystemExit) as stop:
        main(list(words))
    return int(stop.value.code or 0)


def one_line_error(capsys: pytest.CaptureFixture[str]) -> str:
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("Error: ")]
    assert len(lines) == 1
    return lines[0]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("demo")
    assert bomd("demo", "--runs", str(root), *sets(*TINY)) == 0
    return root


@pytest.mark.slow
class TestWholePath:
    def test_demo_leaves_two_complete_runs_and_a_report(self, demo: Path) -> None:
        results = sorted(demo.glob("demo/*/*/result.json"))
        assert [path.parts[-3] for path in results] == ["bce", "bomd-plus"]
        for path in results:
            names = {file.name for file in path.parent.iterdir()}
            assert names >= {
                "config.json",
                "environment.json",
                "metrics.jsonl",
                "labels.npz",
                "predictions.npz",
                "examples.npz",
                "model",
                "result.json",
            }
        cleaned = json.loads(results[1].read_text())
        assert cleaned["detection"]["base_rate"] > 0.3
        assert cleaned["flagged"]["of"] == cleaned["images"]["train"]
        page = (demo / "demo" / "report.html").read_text()
        assert page.index("What came out") < page.index("Summary</h2>")
        assert "Errors found against images looked at" in page
        assert "What training is worth" in page
        assert "<img" in page

    def test_both_methods_saw_the_same_noise_and_split(self, demo: Path) -> None:
        records = [np.load(path) for path in sorted(demo.glob("demo/*/*/labels.npz"))]
        np.testing.assert_array_equal(records[0]["given"], records[1]["given"])
        np.testing.assert_array_equal(records[0]["clean"], records[1]["clean"])
        assert (records[0]["given"] != records[0]["clean"]).any()
        np.testing.assert_array_equal(records[0]["targets"], records[0]["given"])
        assert (records[1]["targets"] != records[1]["given"]).any()

    def test_metrics_can_be_recomputed_from_predictions(self, demo: Path) -> None:
        from sklearn.metrics import roc_auc_score

        for path in demo.glob("demo/*/*/result.json"):
            arrays = np.load(path.parent / "predictions.npz")
            scores = {row["name"]: row for row in json.loads(path.read_text())["tests"]["south"]["classes"]}
            truth, predicted = arrays["south/truth"], arrays["south/scores"]
            for column, name in enumerate(arrays["south/classes"]):
                if scores[str(name)]["auc"] is not None:
                    expected = roc_auc_score(truth[:, column], predicted[:, column])
                    assert scores[str(name)]["auc"] == pytest.approx(expected)

    def test_finished_runs_are_not_repeated(self, demo: Path, capsys: pytest.CaptureFixture[str]) -> None:
        before = {path: path.stat().st_mtime_ns for path in demo.glob("demo/*/*/result.json")}
        assert bomd("demo", "--runs", str(demo), *sets(*TINY)) == 0
        assert {path: path.stat().st_mtime_ns for path in demo.glob("demo/*/*/result.json")} == before
        said = capsys.readouterr()
        assert "finished already" in said.err
        run, page = next(demo.glob("demo/bomd-plus/*")), (demo / "demo" / "report.html").resolve()
        assert said.out.splitlines()[-3:] == [
            f"Look through what is doubtful: bomd review {run} --open",
            "Your own data: bomd audit labels.csv --images photos",
            f"Report: {page.as_uri()}",
        ]
        assert "this run" in said.out
        assert "record" not in said.out  # of other settings

    def test_report_and_predict_from_finished_runs(
        self, demo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert bomd("report", str(demo / "demo"), "-o", str(tmp_path / "page.html")) == 0
        assert (tmp_path / "page.html").exists()
        for number in range(3):
            pixels = np.random.default_rng(number).integers(0, 255, (50, 40), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / f'x, "{number}".png')
        run = next(demo.glob("demo/bomd-plus/*"))
        assert bomd("predict", str(run), str(tmp_path), "-o", str(tmp_path / "scores.csv")) == 0
        rows = list(csv.DictReader((tmp_path / "scores.csv").open()))
        assert [Path(row["file"]).name for row in rows] == ['x, "0".png', 'x, "1".png', 'x, "2".png']
        assert all(0 <= float(row["Effusion"]) <= 1 for row in rows)

    def test_a_changed_setting_is_another_run_and_shares_what_it_can(self, demo: Path, tmp_path: Path) -> None:
        root = tmp_path / "runs"
        shutil.copytree(demo, root)
        assert bomd("run", "demo", "--runs", str(root), *sets(*TINY, "bomd-plus.weigh=false")) == 0
        assert len(list(root.glob("demo/bomd-plus/*/result.json"))) == 2
        assert {path.name for path in root.glob("stages/fold-*")} == {path.name for path in demo.glob("stages/fold-*")}
        assert len(list(root.glob("stages/classifier-*"))) == 3

    def test_run_of_another_version_is_refused(
        self, demo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        copy = tmp_path / "old"
        shutil.copytree(next(demo.glob("demo/bce/*")), copy)
        config = json.loads((copy / "config.json").read_text())
        (copy / "config.json").write_text(json.dumps({**config, "format": 99}))
        assert bomd("report", str(copy)) == 2
        assert "another version" in one_line_error(capsys)


@pytest.mark.slow
def test_killed_at_any_moment_it_ends_with_the_same_numbers(tmp_path: Path) -> None:
    """Kill -9 at three different moments, then let it finish; the result is that of a run left alone."""
    command = [sys.executable, "-m", "bomd.cli", "run", "demo", *sets(*TINY, "fit.epochs=4")]
    start = time.perf_counter()
    subprocess.run([*command, "--runs", str(tmp_path / "whole")], check=True, capture_output=True)
    duration = time.perf_counter() - start
    kills = 0
    for part in (0.5, 0.6, 0.7):
        child = subprocess.Popen(
            [*command, "--runs", str(tmp_path / "cut")], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            child.wait(timeout=part * duration)
        except subprocess.TimeoutExpired:
            child.send_signal(signal.SIGKILL)
            child.wait()
            kills += 1
    assert kills >= 1
    subprocess.run([*command, "--runs", str(tmp_path / "cut")], check=True, capture_output=True)
    whole, cut = (
        json.loads(next((tmp_path / name).glob("demo/*/*/result.json")).read_text()) for name in ("whole", "cut")
    )
    assert {**whole, "seconds": 0} == {**cut, "seconds": 0}
    arrays = [np.load(next((tmp_path / name).glob("demo/*/*/predictions.npz"))) for name in ("whole", "cut")]
    np.testing.assert_array_equal(arrays[0]["south/scores"], arrays[1]["south/scores"])


def folder_of_images(place: Path, count: int = 12) -> None:
    place.mkdir()
    for number in range(count):
        Image.fromarray(np.full((20, 20), number, dtype=np.uint8)).save(place / f"i{number}.png")


@pytest.fixture
def own_data(tmp_path: Path) -> Path:
    """A labels.csv and a folder of images, as a user would have them, and a recipe for them."""
    folder_of_images(tmp_path / "images")
    rows = [f"i{number}.png,{number % 2},{1 - number % 2}" for number in range(12)]
    (tmp_path / "labels.csv").write_text("\n".join(["image,Mass,Edema", *rows]) + "\n")
    (tmp_path / "own.toml").write_text(
        'name = "own"\n[images]\nsize = 32\n'
        f'[train]\ndataset = "folder"\nroot = "{tmp_path}"\n'
        '[fit]\nbackbone = "small"\nweights = "none"\nepochs = 1\nbatch = 4\nrate = 0.001\neps = 1e-8\n'
        "[bomd]\nepochs = 1\nbatch = 4\nneighbours = 3\n"
    )
    return tmp_path


class TestMistakes:
    """Each gets one line and exit code 2, and nothing half-written is left under the run directory."""

    def check(self, folder: Path, message: str, capsys: pytest.CaptureFixture[str], *more: str) -> None:
        code = bomd("run", str(folder / "own.toml"), "--runs", str(folder / "runs"), *more)
        assert code == 2
        assert re.search(message, one_line_error(capsys)), message
        assert not list(folder.glob("runs/**/result.json"))
        assert not list(folder.glob("runs/**/store.json"))

    def edit(self, folder: Path, old: str, new: str) -> None:
        text = (folder / "labels.csv").read_text()
        assert old in text
        (folder / "labels.csv").write_text(text.replace(old, new, 1))

    def test_missing_folder(self, own_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.check(own_data, "nowhere", capsys, *sets("train.root=/nowhere"))

    def test_empty_csv(self, own_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (own_data / "labels.csv").write_text("")
        self.check(own_data, r"labels\.csv.*empty", capsys)

    def test_label_outside_range(self, own_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.edit(own_data, "i3.png,1", "i3.png,7")
        self.check(own_data, "7", capsys)

    def test_duplicate_ids(self, own_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.edit(own_data, "i3.png", "i4.png")
        self.check(own_data, r"[Dd]uplicate.*i4\.png", capsys)

    def test_id_without_image(self, own_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (own_data / "images" / "i5.png").unlink()
        self.check(own_data, r"i5\.png", capsys)

    def test_truncated_image(self, own_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
        file = own_data / "images" / "i6.png"
        file.write_bytes(file.read_bytes()[:40])
        self.check(own_data, r"i6\.png", capsys)

    def test_unknown_class_for_the_language_model(self, own_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.edit(own_data, "Mass", "Xyzzy")
        self.check(own_data, "Xyzzy", capsys, *sets("bomd.language=minilm"))

    def test_no_positive_label(self, own_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
        lines = (own_data / "labels.csv").read_text().splitlines()
        none = [lines[0], *(line.split(",")[0] + ",0,0" for line in lines[1:])]
        (own_data / "labels.csv").write_text("\n".join(none))
        self.check(own_data, "positive", capsys)

    def test_one_class_only(self, own_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
        lines = (own_data / "labels.csv").read_text().splitlines()
        (own_data / "labels.csv").write_text("\n".join(line.rsplit(",", 1)[0] for line in lines))
        self.check(own_data, "at least 2", capsys)

    def test_more_neighbours_than_images(self, own_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.check(own_data, "neighbours is 12", capsys, *sets("bomd.neighbours=12"))

    def test_typo_in_recipe(self, own_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.check(own_data, "Did you mean 'epochs'", capsys, *sets("fit.epoch=3"))
        self.check(own_data, "Did you mean 'neighbours'", capsys, *sets("bomd.neighbors=3"))
        self.check(own_data, "Did you mean 'symmetric'", capsys, *sets("noise.kind=symetric"))
        self.check(own_data, "Did you mean 'folder'", capsys, *sets("train.dataset=foldr"))
        self.check(own_data, "densenet121", capsys, *sets("fit.backbone=densnet121"))
        self.check(own_data, "nowhere.pth", capsys, *sets("fit.backbone=densenet121", "fit.weights=nowhere.pth"))
        assert bomd("run", "dem") == 2
        assert "Did you mean 'demo'" in one_line_error(capsys)

    def test_arguments_of_the_command_line(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert bomd("run") == 2
        assert bomd("nonsense") == 2
        assert bomd("benchmark", "demo", "--seeds", "a") == 2
        assert bomd("predict", "/nowhere", "/nowhere/x.png") == 2

    @pytest.mark.slow
    def test_full_disk(self, own_data: Path) -> None:
        """A real refusal by the system: files of the child may not grow beyond 2 kB."""
        script = (
            "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
            "resource.setrlimit(resource.RLIMIT_FSIZE, (2048, 2048));"
            "from bomd.cli import main; main(sys.argv[1:])"
        )
        command = ["run", str(own_data / "own.toml"), "--runs", str(own_data / "runs")]
        done = subprocess.run([sys.executable, "-c", script, *command], capture_output=True, text=True)
        assert done.returncode == 2, done.stderr
        assert done.stderr.count("Error: ") == 1
        assert "Traceback" not in done.stderr
        assert not list(own_data.glob("runs/**/store.json"))

    def test_user_data_runs_when_nothing_is_wrong(self, own_data: Path) -> None:
        assert bomd("run", str(own_data / "own.toml"), "--runs", str(own_data / "runs")) == 0
        result = json.loads(next(own_data.glob("runs/own/bomd/*/result.json")).read_text())
        assert result["detection"] is None
        assert result["labels"] is None
        assert (own_data / "labels.csv").read_text().startswith("image,Mass,Edema")


class TestMethods:
    def test_all_are_listed_and_one_is_explained(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert bomd("methods") == 0
        listed = capsys.readouterr().out
        for name in METHODS:
            assert re.search(rf"^ ?{re.escape(name)} ", listed, flags=re.MULTILINE)
        assert bomd("methods", "bomd-paper") == 0
        shown = capsys.readouterr().out
        for part in ("Paper: ", "Differs: ", "settings of bomd", "neighbours=10  int", "--set bomd-paper.KEY=VALUE"):
            assert part in shown
        assert bomd("methods", "bodm") == 2
        assert "Did you mean 'bomd'" in one_line_error(capsys)

    @pytest.mark.parametrize("name", METHODS)
    def test_every_setting_of_every_method_can_be_given(self, name: str) -> None:
        """At its default, written as on the command line; the base's table counts for a variant."""
        given = [
            (key, parameter.default)
            for key, parameter in inspect.signature(METHODS[name]).parameters.items()
            if isinstance(parameter.default, bool | int | float | str)
        ]
        for table in tables_of(name):
            for key, default in given:
                config = configure("demo", name, overrides=[f"{table}.{key}={json.dumps(default)}"])
                assert config.settings[table][key] == default
                make_method(config)
        with pytest.raises(InputError, match=rf"{re.escape(name)}: unknown key 'nonsense'"):
            configure("demo", name, overrides=[f"{name}.nonsense=1"])


@pytest.mark.slow
def test_benchmark_lists_what_failed_and_keeps_what_did_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["benchmark", "demo", "--methods", "bce,bomd", "--seeds", "0", "--runs", str(tmp_path / "runs")]
    words += ["--results", str(tmp_path / "toy.jsonl"), *sets(*TINY)]
    assert bomd(*words, *sets("bomd.neighbours=5000")) == 1
    said = capsys.readouterr().err
    assert "2 runs, of which 0 are finished already" in said
    assert re.search(r"^1 of 2 runs failed:\nbomd, seed 0: bomd.neighbours is 5000", said, flags=re.MULTILINE)
    rows = list(csv.DictReader((tmp_path / "toy.csv").open()))
    assert {row["method"] for row in rows} == {"bce"}
    assert float(rows[0]["peak_memory_mb"]) > 100
    (page,) = tmp_path.glob("runs/**/report.html")
    text = " ".join(page.read_text(encoding="utf-8").split())
    assert "1 run that had been asked for failed" in text
    assert "<li>bomd, seed 0: bomd.neighbours is 5000" in text


@pytest.mark.slow
def test_a_report_in_a_folder_with_brackets_is_named_as_it_is(
    demo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not as markup, of which some ended in a traceback."""
    for folder in ("set [old]", "set ["):
        page = tmp_path / folder / "old]" / "report.html"
        assert bomd("report", str(demo), "-o", str(page)) == 0
        assert capsys.readouterr().out.splitlines()[-1] == f"Report: {page}"


def test_a_report_is_left_out_where_none_is_asked_for(tmp_path: Path) -> None:
    runs = str(tmp_path / "runs")
    words = ["benchmark", "demo", "--methods", "bce", "--seeds", "0", "--no-report", "--runs", runs]
    assert bomd(*words, *sets(*TINY)) == 0
    assert not list(tmp_path.glob("runs/**/report.html"))


def test_help_is_quick_and_names_every_command() -> None:
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-m", "bomd.cli", "--help"], capture_output=True, text=True)
    assert done.returncode == 0
    for command in ("demo", "run", "methods", "benchmark", "report", "embed", "predict"):
        assert command in done.stdout
    loaded = subprocess.run(
        [sys.executable, "-c", "import sys, bomd.cli; print('torch' in sys.modules)"],
        capture_output=True,
        text=True,
    )
    assert loaded.stdout.strip() == "False"
    assert time.perf_counter() - start < 60


def test_an_example_is_written_and_can_be_audited(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bomd("example", str(tmp_path / "xrays"), "--images", "12", "--size", "32") == 0
    assert len(list((tmp_path / "xrays" / "images").glob("*.png"))) == 12
    (following,) = re.findall(r"Next: bomd (.*)", capsys.readouterr().out.replace("\n", " "))
    assert bomd(*following.split(), "--plan", "--minutes", "0.01", "-o", str(tmp_path / "audit")) == 0
    assert bomd("example", str(tmp_path / "xrays")) == 2
    assert "not empty" in one_line_error(capsys)


def test_an_interrupted_example_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the message of an interruption promises; a folder with anything else in it is still the user's own."""
    from bomd.audits import example

    words = ["example", str(tmp_path / "xrays"), "--images", "12", "--size", "32"]
    assert bomd(*words[:1], str(tmp_path / "whole"), *words[2:]) == 0
    whole = {file.relative_to(tmp_path / "whole"): file.read_bytes() for file in (tmp_path / "whole").rglob("*.*")}
    written, plain = [0], example.replacing

    def interrupted(path: Path) -> object:
        written[0] += 1
        if written[0] == 5:
            path.with_name(f".{path.name}.part.png").write_bytes(b"half")  # as a killed process leaves it
            raise KeyboardInterrupt
        return plain(path)

    monkeypatch.setattr(example, "replacing", interrupted)
    assert bomd(*words) == 130
    assert len(list((tmp_path / "xrays" / "images").iterdir())) == 5
    (tmp_path / "xrays" / "images" / "mine.png").touch()
    assert bomd(*words) == 2
    (tmp_path / "xrays" / "images" / "mine.png").unlink()
    assert bomd(*words) == 0
    assert {
        file.relative_to(tmp_path / "xrays"): file.read_bytes() for file in (tmp_path / "xrays").rglob("*.*")
    } == whole
    assert bomd(*words) == 2


def test_make_demo_says_how_to_go_on() -> None:
    """`make` installs into .venv, where no shell looks for a command by itself."""
    root = Path(__file__).parents[2]
    command = ["make", "--no-print-directory", "-n", "demo"]  # inside another make it would name the folder last
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    assert ".venv/bin/activate" in done.stdout.splitlines()[-1]
    assert "`.venv/bin/bomd`" in (root / "README.md").read_text().partition("## What the demo prints")[0]


@pytest.mark.parametrize(
    ("name", "found", "shown"),
    [
        (".venv/bin/bomd", None, ".venv/bin/bomd"),
        (".venv/bin/bomd", "/usr/bin/bomd", "bomd"),
        ("/usr/lib/python/bomd/cli/__main__.py", None, "bomd"),
    ],
)
def test_the_next_command_is_shown_as_it_can_be_typed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, found: str | None, shown: str
) -> None:
    monkeypatch.setattr(sys, "argv", [name])
    if found:
        (tmp_path / "bomd").touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert typed("audit", Path("my labels.csv")) == f"{shown} audit 'my labels.csv'"


def test_embed_prints_similarities_and_saves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bomd("embed", "Effusion", "Edema", "No Finding", "-o", str(tmp_path / "vectors.npy")) == 0
    assert np.load(tmp_path / "vectors.npy").shape[0] == 3
    assert "1.00" in capsys.readouterr().out


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no such device")
def test_a_full_disk_behind_standard_output_is_one_line() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([sys.executable, "-m", "bomd.cli", "methods"], stdout=full, stderr=-1, text=True)
    assert done.returncode == 2
    assert done.stderr.splitlines() == ["Error: No space left on device"]


def test_vectors_take_the_place_of_vectors_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Features of the user's own are .npy as well; the names beside them tell vectors of classes from these."""
    place = tmp_path / "features.npy"
    np.save(place, np.eye(3))
    assert bomd("embed", "Mass", "Edema", "--model", "random", "-o", str(place)) == 2
    assert "holds something else" in one_line_error(capsys)
    assert np.array_equal(np.load(place), np.eye(3))
    place.unlink()
    for _ in range(2):
        assert bomd("embed", "Mass", "Edema", "--model", "random", "-o", str(place)) == 0


def test_a_benchmark_is_refused_before_its_first_run_where_a_page_of_the_users_own_would_be_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "demo" / "report.html"
    page.parent.mkdir()
    page.write_text("<p>years of work</p>")
    with pytest.raises(SystemExit) as left:
        main(["benchmark", "demo", "--runs", "."])
    assert left.value.code == 2
    assert "report.html is there and holds something else" in capsys.readouterr().err
    assert [file.name for file in tmp_path.rglob("*")] == ["demo", "report.html"]
