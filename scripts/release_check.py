"""Would a release work for somebody else? Build it, install it where nothing else is, and use it: `make release-check`.

The wheel is built from the source archive and installed without extras into an environment of its own. There, far from
the repository, every command shows its help, the demo, an audit, its review and a prediction run on a small scale, and
what needs an extra says which. At the end the source archive is installed, too. Stops at the first thing that is wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from email.parser import Parser
from http.cookiejar import CookieJar
from pathlib import Path
from urllib.parse import urljoin
from urllib.request import HTTPCookieProcessor, Request, build_opener

ROOT = Path(__file__).parents[1]
LONGEST = 300  # seconds that one command may take
TINY = ("images.size=32", "train.count=160", "test.south.count=120", "fit.epochs=1", "fit.batch=32")
NETWORK = {"model_type": "vit", "architectures": ["ViTModel"]}

IN_PYTHON = """
from bomd.errors import InputError
from bomd.exchange.hugging_face import to_dataset
try:
    to_dataset(None)
except InputError as error:
    raise SystemExit(str(error))
"""
# For each extra a command that needs it, and its exit code; MODEL is put in. Predict names a file that it cannot read,
# and goes on with the others.
EXTRAS = {
    "text": (2, "bomd embed Mass Edema --model bluebert"),
    "hf": (2, "bomd audit SET/labels.csv --images SET/images -o hf --backbone hf:network"),
    "timm": (2, "bomd audit SET/labels.csv --images SET/images -o timm --backbone timm:resnet10t"),
    "efficientnet": (2, "bomd audit SET/labels.csv --images SET/images -o lite --backbone efficientnet_lite0"),
    "dicom": (1, "bomd predict MODEL scan.dcm"),
    "excel": (2, "bomd audit labels.xlsx --images SET/images -o excel"),
    "parquet": (2, "bomd audit labels.parquet --images SET/images -o parquet"),
    "exchange": (1, f"python -c {shlex.quote(IN_PYTHON)}"),
    "onnx": (2, "bomd export MODEL model.onnx"),
    "cleanlab": (2, "bomd run demo --method cleanlab --set images.size=32 --set train.count=160"),
}


class WrongError(Exception):
    """Something that a release must not do."""


class Installed:
    """The package in an environment of its own, used from a folder that knows nothing of the repository."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "elsewhere"
        self.folder.mkdir()
        self.programs = folder / "environment" / "bin"
        ours = ("PYTHON", "VIRTUAL_ENV", "BOMD_", "COVERAGE", "PYTEST")
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        self.environment |= {"HOME": str(folder / "home"), "OMP_NUM_THREADS": "1", "COLUMNS": "200", "NO_COLOR": "1"}
        uv("venv", "--python", sys.executable, str(folder / "environment"))

    def install(self, archive: Path, *options: str) -> None:
        constraints = ("--constraint", str(ROOT / "constraints.txt"))
        uv("pip", "install", "--python", str(self.programs / "python"), *constraints, *options, str(archive))

    def call(self, *words: str, code: int = 0) -> str:
        """What a program prints; it must end with this code, and without a traceback."""
        command = [str(self.programs / words[0]), *words[1:]]
        done = subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=LONGEST, check=False
        )
        said = done.stdout + done.stderr
        if done.returncode != code or "Traceback" in said:
            raise WrongError(f"{' '.join(words)}: exit code {done.returncode} instead of {code}.\n{said}")
        return said

    def bomd(self, line: str, code: int = 0) -> str:
        return self.call("bomd", *line.split(), code=code)


def uv(*words: str) -> None:
    """uv with the folder of local wheels that pip knows of: it does not read pip's settings."""
    beside = Path(sys.executable).parent / "uv"
    program = str(beside) if beside.exists() else shutil.which("uv")
    if program is None:
        raise WrongError("uv is needed: pip install uv.")
    links = os.environ.get("UV_FIND_LINKS", os.environ.get("PIP_FIND_LINKS", ""))
    environment = os.environ | {"UV_FIND_LINKS": links, "VIRTUAL_ENV": ""}
    done = subprocess.run([program, *words], env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise WrongError(f"uv {' '.join(words)}:\n{done.stderr}")


def build(folder: Path) -> tuple[Path, Path]:
    """The source archive, and the wheel that is made of it."""
    command = [sys.executable, "-m", "build", "--installer", "uv", "--outdir", str(folder), str(ROOT)]
    beside = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    done = subprocess.run(command, env=os.environ | {"PATH": beside}, capture_output=True, text=True, check=False)
    if done.returncode:
        raise WrongError(f"python -m build:\n{done.stdout}{done.stderr}")
    (sources,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return sources, wheel


def check_what_is_installed(there: Installed, wheel: Path) -> None:
    version = wheel.name.split("-")[1]
    if there.bomd("--version") != f"bomd {version}\n":
        raise WrongError(f"bomd --version does not say {version}")
    look = "import bomd; print(bomd.__file__, *(getattr(bomd, name) and name for name in bomd.__all__))"
    if not Path(there.call("python", "-c", look).split()[0]).is_relative_to(there.programs.parent):
        raise WrongError("the package is not the installed one")


def check_help(there: Installed) -> None:
    listing = "import typer; from bomd.cli import app; print(*typer.main.get_command(app).commands)"
    names = there.call("python", "-c", listing).split()
    overview = there.bomd("--help")
    with ThreadPoolExecutor(2) as pool:
        pages = list(pool.map(lambda name: there.bomd(f"{name} --help"), names))
    for name, page in zip(names, pages, strict=True):
        if name not in overview or f"bomd {name}" not in page:
            raise WrongError(f"bomd {name} --help does not show how it is called")


def check_demo(there: Installed) -> None:
    there.bomd(" ".join(["demo", *(f"--set {setting}" for setting in TINY)]))
    if "<img" not in (there.folder / "runs" / "demo" / "report.html").read_text("utf-8"):
        raise WrongError("the demo's report shows no picture")


def check_audit(there: Installed) -> None:
    there.bomd("example SET --images 60 --size 32")
    there.bomd("audit SET/labels.csv --images SET/images --minutes 0.02")
    for name in ("labels_clean.csv", "doubtful_labels.csv", "report.html"):
        if not (there.folder / "labels-audit" / name).stat().st_size:
            raise WrongError(f"the audit left no {name}")


@contextmanager
def reviewing(there: Installed) -> Iterator[str]:
    """The address of a review page while it is served; Ctrl-C ends it."""
    command = [str(there.programs / "bomd"), "review", "labels-audit"]
    with subprocess.Popen(
        command, cwd=there.folder, env=there.environment, stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            lines = iter(server.stdout or ())
            yield next((line.strip() for line in lines if line.startswith("http")), "")
            server.send_signal(signal.SIGINT)
            server.wait(LONGEST)
        finally:
            server.kill()


def check_review(there: Installed) -> None:
    """A person opens the page, accepts what is proposed for the first image, and stops."""
    with reviewing(there) as address:
        if not address:
            raise WrongError("bomd review printed no address")
        opener = build_opener(HTTPCookieProcessor(CookieJar()))

        def ask(place: str, body: object = None) -> str:
            origin = {"origin": "/".join(address.split("/")[:3]), "content-type": "application/json"}
            data = None if body is None else json.dumps(body).encode()
            with opener.open(Request(place, data, origin if data else {}), timeout=60) as answer:
                return str(answer.read().decode("utf-8"))

        (room,) = set(re.findall(r'<a href="([^"]+)"', ask(address)))
        page = urljoin(address, room.partition("?")[0])
        if "<html" not in ask(page):
            raise WrongError("the review page is no page")
        first = json.loads(ask(urljoin(page, "api/queue?reviewer=Ada")))["items"][0]
        decided = {"reviewer": "Ada", "number": first["number"], "id": first["id"], "action": "accept"}
        ask(urljoin(page, "api/decide"), decided)
    if not there.bomd("decisions labels-audit --log changes.csv").startswith("1 of 60 images is reviewed"):
        raise WrongError("the decision was not saved")


def model_of(there: Installed) -> str:
    return str(next((there.folder / "runs" / "demo" / "bomd-plus").glob("seed*")).relative_to(there.folder))


def check_predict(there: Installed) -> None:
    there.bomd(f"predict {model_of(there)} SET/images -o findings.csv")
    lines = (there.folder / "findings.csv").read_text("utf-8").splitlines()
    if len(lines) != 1 + 60:
        raise WrongError(f"{len(lines) - 1} of 60 images were predicted")


def check_extras(there: Installed, wheel: Path) -> None:
    """What needs an extra says in one line how to install it."""
    with zipfile.ZipFile(wheel) as archive:
        (place,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        facts = Parser().parsestr(archive.read(place).decode("utf-8"))
    if set(EXTRAS) != set(facts.get_all("Provides-Extra", [])) - {"dev"}:
        raise WrongError("EXTRAS of this script are not those of the package")
    (there.folder / "network").mkdir()
    (there.folder / "network" / "config.json").write_text(json.dumps(NETWORK), encoding="utf-8")
    (there.folder / "scan.dcm").write_bytes(bytes(128) + b"DICM" + bytes(64))
    (there.folder / "labels.parquet").write_bytes(b"PAR1" + bytes(64) + b"PAR1")
    with zipfile.ZipFile(there.folder / "labels.xlsx", "w") as workbook:
        workbook.writestr("[Content_Types].xml", "<Types/>")
        workbook.writestr("xl/workbook.xml", "<workbook/>")

    def wrong(extra: str) -> str:
        code, line = EXTRAS[extra]
        said = there.call(*shlex.split(line.replace("MODEL", model_of(there))), code=code)
        named = [line for line in said.splitlines() if f"pip install 'bomd[{extra}]'" in line]
        return "" if len(named) == 1 else f"{line} does not name the extra {extra} in one line:\n{said}"

    with ThreadPoolExecutor(2) as pool:
        if faults := list(filter(None, pool.map(wrong, EXTRAS))):
            raise WrongError("\n".join(faults))


def check(folder: Path) -> None:
    """Do all of it in this folder, and say what is done."""
    started = time.monotonic()

    def say(what: str) -> None:
        print(f"{time.monotonic() - started:4.0f} s  {what}", flush=True)

    sources, wheel = build(folder / "dist")
    say(f"{sources.name} and {wheel.name} are built")
    there = Installed(folder)
    there.install(wheel)
    check_what_is_installed(there, wheel)
    say("the wheel is installed without extras, and every public name can be imported")
    check_help(there)
    say("every command shows its help")
    check_demo(there)
    say("the demo runs")
    check_audit(there)
    say("an audit runs")
    check_review(there)
    say("its review saves a decision")
    check_predict(there)
    say("a model predicts")
    check_extras(there, wheel)
    say("what needs an extra says which")
    there.install(sources, "--no-deps", "--reinstall")
    check_what_is_installed(there, wheel)
    say("the source archive installs, too")


def main() -> None:
    parser = argparse.ArgumentParser(description="Build a release, install it in an environment of its own and use it.")
    parser.add_argument("folder", type=Path, nargs="?", help="Where, new or empty; by default a temporary folder.")
    given = parser.parse_args().folder
    try:
        with tempfile.TemporaryDirectory() as temporary:
            check(Path(temporary) if given is None else given.resolve())
    except WrongError as error:
        sys.exit(f"Not fit for release: {error}")


if __name__ == "__main__":
    main()
