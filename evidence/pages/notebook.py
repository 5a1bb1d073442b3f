"""Write docs/notebook.md: the notebook as it looks after every cell was run, which takes a few minutes.

python -m evidence.pages.notebook
"""

from __future__ import annotations

import ast
import base64
import contextlib
import html
import io
import json
import os
import re
import tempfile
from collections.abc import Sequence
from typing import Any

from PIL import Image

from bomd.files import write_text
from evidence import DOCS

PAGE, NOTEBOOK = DOCS / "notebook.md", DOCS / "notebooks" / "clean_your_dataset.ipynb"
LINK = "notebooks/clean_your_dataset.ipynb"
MADE_HERE = "<!-- Run by evidence/pages/notebook.py. Do not edit. -->"
QUALITY = 60  # of the small pictures


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        text = page(cells(), run(cells()))
    write_text(PAGE, text.replace(os.path.realpath(folder), "…"))


def cells() -> list[tuple[str, str]]:
    """Kind and text of every cell."""
    return [(cell["cell_type"], "".join(cell["source"])) for cell in json.loads(NOTEBOOK.read_text("utf-8"))["cells"]]


def run(found: Sequence[tuple[str, str]]) -> list[str]:
    """What each cell shows, as HTML; nothing for text."""
    values: dict[str, Any] = {}
    return [_run(text, values) if kind == "code" else "" for kind, text in found]


def _run(source: str, values: dict[str, Any]) -> str:
    """What a cell prints, and then the value of its last line if that is an expression."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "cell", "exec"), values)
        value = compile(ast.Expression(last.value), "cell", "eval") if isinstance(last, ast.Expr) else "None"
        shown = eval(value, values)
    parts = [f"<pre>{html.escape(printed.getvalue().rstrip())}</pre>"] if printed.getvalue() else []
    if hasattr(shown, "_repr_html_"):
        parts.append(small(shown._repr_html_()))
    elif shown is not None:
        parts.append(f"<pre>{html.escape(repr(shown))}</pre>")
    return "".join(parts)


def small(text: str) -> str:
    """HTML in one line, without styles, and with its pictures as WebP."""
    text = re.sub(r"<style.*?</style>", "", text, flags=re.DOTALL)
    text = re.sub(r' (style|border|class)="[^"]*"', "", text)
    text = re.sub(r"data:image/png;base64,([\w+/=]+)", _webp, text)
    return " ".join(text.split())


def _webp(found: re.Match[str]) -> str:
    stream = io.BytesIO()
    Image.open(io.BytesIO(base64.b64decode(found[1]))).save(stream, format="webp", quality=QUALITY)
    return f"data:image/webp;base64,{base64.b64encode(stream.getvalue()).decode('ascii')}"


def page(found: Sequence[tuple[str, str]], outputs: Sequence[str]) -> str:
    parts = [MADE_HERE]
    for (kind, text), output in zip(found, outputs, strict=True):
        parts.append(text if kind == "markdown" else f"```python\n{text}\n```")
        parts += [f'<div class="output">{output}</div>'] if output else []
    parts.append(f"[The notebook itself]({LINK}), to run and to change.")
    first = parts.index(next(part for part in parts if part.startswith("# ")))
    parts[0], parts[first] = parts[first], parts[0]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    main()
