"""Plant small errors in `clean/`, `describe/` and `measure/`, one at a time, and see whether the tests notice.

    python scripts/mutants.py                    # what is missing: new modules, changed code, and survivors again
    python scripts/mutants.py clean/rates.py     # these modules alone
    python scripts/mutants.py --sample 30        # more mutants per module

Every module has the same number of mutants, drawn by a fixed seed, and each is judged by the fast tests of its module
alone. results/mutants.csv has every one; those that no test here can notice are listed in EQUIVALENT, with the reason.
Own work and not a package, because of what is at stake here: limits and shares at the top of a module decide what is
proposed to people, and packages mutate functions alone or need a start of PyTorch for every mutant.
"""

from __future__ import annotations

import argparse
import ast
import csv
import hashlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import random
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType

from mutants_planted import EQUIVALENT, Mutant, mutants_of

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "results" / "mutants.csv"
SOURCE = ROOT / "src" / "bomd"
ROOMS = ("clean", "describe", "measure")
COLUMNS = ("module", "function", "line", "before", "after", "outcome", "seconds", "code")
PRELOADED = ("numpy", "pandas", "scipy.optimize", "scipy.stats", "sklearn.metrics", "sklearn.linear_model", "torch")
LONGEST = 20.0  # times what the tests take without a mutant, before one counts as noticed for want of an end
AT_LEAST = 120.0  # seconds, on a machine that others use as well

KILLED, SURVIVED, SAME = "killed", "survived", "equivalent"

GRAPH = ("tests/clean/test_graph.py", "tests/clean/test_search.py", "tests/clean/test_plan.py")
# Where the tests of a module are, if not in the file of its name.
TESTS: dict[str, tuple[str, ...]] = {
    "clean/bags.py": GRAPH,
    "clean/features.py": ("tests/clean/test_heads.py",),
    "clean/graph.py": GRAPH,
    "clean/heads.py": ("tests/clean/test_heads.py", "tests/clean/test_one_label.py"),
    "clean/plan.py": GRAPH,
    "clean/rounded.py": GRAPH,
    "clean/search.py": GRAPH,
    "clean/transition.py": ("tests/clean/test_one_label.py",),
    "describe/written.py": ("tests/describe/test_descriptors.py", "tests/describe/test_contrast.py"),
    "measure/metrics.py": ("tests/measure/test_metrics.py", "tests/measure/test_result.py"),
    "measure/result.py": ("tests/measure/test_result.py", "tests/experiments/test_recorded.py"),
    "measure/quality.py": ("tests/measure/test_metrics.py",),
}


SLOW = ("describe/prompts.py",)  # whose tests count as slow, for they import a package that takes long


def main(words: Sequence[str] | None = None) -> None:
    options = parser().parse_args(words)
    before = read(options.table)
    every = modules()
    chosen = options.modules or every
    unknown = [name for name in chosen if name not in every]
    if unknown:
        sys.exit(f"No module {unknown[0]!r}: use one of {', '.join(every)}.")
    rows = {name: [row for row in before if row["module"] == name] for name in every}
    preload()
    for name in chosen:
        rows[name] = judge_module(name, rows[name], options.sample, options.seed)
        write(options.table, [row for each in rows.values() for row in each])
    print(score_line([row for each in rows.values() for row in each]))


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    found.add_argument("modules", nargs="*", help="such as clean/rates.py; all of the three rooms by default")
    found.add_argument("--sample", type=int, default=6, help="mutants per module")
    found.add_argument("--seed", type=int, default=0, help="of the draw")
    found.add_argument("--table", type=Path, default=TABLE, help="CSV with one row per mutant")
    return found


def modules() -> list[str]:
    """The modules of the rooms, such as clean/rates.py."""
    return [
        path.relative_to(SOURCE).as_posix()
        for room in ROOMS
        for path in sorted((SOURCE / room).glob("*.py"))
        if path.stem != "__init__"
    ]


def tests_of(module: str) -> list[str]:
    """The test files of a module that are there."""
    room, _, name = module.partition("/")
    named = TESTS.get(module, (f"tests/{room}/test_{name}",))
    return [file for file in named if (ROOT / file).exists()]


def judge_module(name: str, before: Sequence[dict[str, str]], sample: int, seed: int) -> list[dict[str, str]]:
    """A row for each of the module's mutants; what was killed in the same code is not tried again."""
    text = (SOURCE / name).read_text(encoding="utf-8")
    code = digest(text)
    done = {identity(row): row for row in before if row["code"] == code and row["outcome"] == KILLED}
    drawn = draw(text, sample, f"{seed} {name}")
    tests = tests_of(name)
    if not tests:
        print(f"{name} has no tests of its own: add some, or name them in TESTS.")
        return []
    began = time.monotonic()
    left = [row for row in (row_of(name, mutant, code) for mutant in drawn) if identity(row) not in done]
    if any(planted(row) not in EQUIVALENT for row in left) and run(name, None, tests, 3600) != 0:
        sys.exit(f"The tests of {name} fail without any mutant: {' '.join(tests)}")
    limit = max(AT_LEAST, LONGEST * (time.monotonic() - began))
    rows = []
    for mutant in drawn:
        row = row_of(name, mutant, code)
        if identity(row) in done:
            row = done[identity(row)]
        elif planted(row) in EQUIVALENT:
            row |= {"outcome": SAME, "seconds": ""}
        else:
            began = time.monotonic()
            failed = run(name, mutant.tree, tests, limit) != 0
            row |= {"outcome": KILLED if failed else SURVIVED, "seconds": f"{time.monotonic() - began:.1f}"}
            print(f"{row['outcome']:9} {name}:{mutant.line} {row['before']}  ->  {row['after']}", flush=True)
        rows.append(row)
    return rows


def draw(text: str, sample: int, seed: str) -> list[Mutant]:
    """So many mutants of a module in the order of their lines, or all; a larger draw has those of a smaller one."""
    found = mutants_of(text)
    order = list(range(len(found)))
    random.Random(seed).shuffle(order)
    return [found[number] for number in sorted(order[:sample])]


def row_of(module: str, mutant: Mutant, code: str) -> dict[str, str]:
    return {
        "module": module,
        "function": mutant.function,
        "line": str(mutant.line),
        "before": mutant.before,
        "after": mutant.after,
        "code": code,
    }


def identity(row: dict[str, str]) -> tuple[str, ...]:
    return tuple(row[key] for key in ("module", "line", "before", "after", "code"))


def planted(row: dict[str, str]) -> tuple[str, str, str]:
    return row["module"], row["before"], row["after"]


def digest(text: str) -> str:
    """Of the code alone: comments and the width of lines do not count."""
    return hashlib.sha256(ast.dump(ast.parse(text)).encode()).hexdigest()[:10]


def run(module: str, tree: ast.Module | None, tests: Sequence[str], limit: float) -> int:
    """The exit code of the tests in a process of its own, with this tree as the module; 1 where they find no end."""
    child = os.fork()
    if not child:
        os._exit(_in_child(module, tree, tests))
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return 1


def _in_child(module: str, tree: ast.Module | None, tests: Sequence[str]) -> int:
    import pytest

    quiet = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(quiet, stream)
    if tree is not None:
        name = "bomd." + module.removesuffix(".py").replace("/", ".")
        sys.meta_path.insert(0, Planting(name, SOURCE / module, compile(tree, str(SOURCE / module), "exec")))
    slow = [] if module in SLOW else ["-m", "not slow"]
    flags = ["-x", "-q", *slow, "-p", "no:cacheprovider", "--no-header", "--tb=no"]
    try:
        return int(pytest.main([*flags, *(str(ROOT / file) for file in tests)]))
    except BaseException:  # whatever a mutant makes of the tests, it was noticed
        return 1


class Planting(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module from other code than its file has."""

    def __init__(self, name: str, path: Path, code: CodeType) -> None:
        self.name, self.path, self.code = name, path, code

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self.name:
            return None
        return importlib.util.spec_from_file_location(fullname, self.path, loader=self)

    def exec_module(self, module: ModuleType) -> None:
        exec(self.code, module.__dict__)


def preload() -> None:
    """Import what takes long once: every mutant's process starts from here, without the package under test."""
    os.chdir(ROOT)
    for name in (*PRELOADED, "pytest"):
        importlib.import_module(name)
    with suppress(ImportError):  # tests that need it are skipped where it is not installed
        importlib.import_module("transformers")
    assert not any(name.startswith("bomd.") for name in sys.modules)


@dataclass(frozen=True)
class Score:
    """How many mutants the tests of a room notice; those that change nothing do not count."""

    killed: int
    survived: int
    same: int

    @property
    def share(self) -> float:
        counted = self.killed + self.survived
        return self.killed / counted if counted else float("nan")


def scores(rows: Sequence[dict[str, str]]) -> dict[str, Score]:
    """By room, and for all of them."""

    def of(chosen: Iterator[dict[str, str]]) -> Score:
        outcomes = [row["outcome"] for row in chosen]
        return Score(*(outcomes.count(kind) for kind in (KILLED, SURVIVED, SAME)))

    by_room = {room: of(row for row in rows if row["module"].startswith(f"{room}/")) for room in ROOMS}
    return {**by_room, "all": of(iter(rows))}


def score_line(rows: Sequence[dict[str, str]]) -> str:
    """What CONTRIBUTING.md says."""
    found = scores(rows)
    parts = ", ".join(f"{found[room].share:.0%} in `{room}/`" for room in ROOMS)
    every = found["all"]
    counted = every.killed + every.survived
    return (
        f"Of {counted} planted errors the tests notice {every.killed} ({every.share:.0%}: {parts}); "
        f"{every.same} more change speed or words alone, or need a GPU."
    )


def read(table: Path) -> list[dict[str, str]]:
    if not table.exists():
        return []
    with table.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def write(table: Path, rows: Sequence[dict[str, str]]) -> None:
    temporary = table.with_suffix(".part")
    with temporary.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    temporary.replace(table)


if __name__ == "__main__":
    main()
