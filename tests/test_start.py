"""Commands that compute nothing start without what takes seconds to load."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

HEAVY = ("torch", "sklearn", "lightning_fabric", "transformers")
ALSO_HEAVY = ("matplotlib", "pandas", "scipy")  # a second together; commands that read tables or draw need them
LIGHTEST = {
    "--help": 0,
    "--version": 0,
    "methods": 0,
    "methods bomd": 0,
    "reproduce --list": 0,
    "report nowhere": 2,
    "tables nowhere.jsonl nowhere": 2,
}
COMMANDS = LIGHTEST | {
    "review nowhere": 2,
    "decisions nowhere": 2,
    "convert nowhere -o x.csv": 2,
    "verify folder --root nowhere": 2,
    "labels nih --root nowhere": 2,
}


def test_what_computes_nothing_loads_no_heavy_package(tmp_path: Path) -> None:
    """One process does all of them in turn and says after each what it has loaded by then."""
    script = f"""
import contextlib, io, json, sys
from bomd.cli import main
for words in {list(COMMANDS)}:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            main(words.split())
        except SystemExit as stop:
            code = stop.code
    print(json.dumps([words, code, [name for name in {HEAVY + ALSO_HEAVY} if name in sys.modules]]))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line[:2] for line in found] == [[words, code] for words, code in COMMANDS.items()]
    for words, _, loaded in found:
        assert not set(loaded) & set(HEAVY), words
        assert not loaded or words not in LIGHTEST, words


def processor_time(text: str) -> float:
    """Seconds of a fresh Python that does this."""
    script = f"import sys, time\n{text}\nprint(time.process_time(), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    return float(done.stderr.split()[-1])


def test_they_take_little_processor_time() -> None:
    """Of this machine as it is: what `import torch` alone takes is more, busy or not."""
    most = processor_time("import torch")
    for words in (["methods"], ["report", "nowhere"], ["reproduce", "--list"]):
        spent = processor_time(f"from bomd.cli import main\ntry: main({words})\nexcept SystemExit: pass")
        assert spent < most, words
