"""The code that a result comes from, as a fingerprint that changes when, and only when, the result may.

A result depends on the modules that computed it and on what those import, within the rooms that numbers come from.
Comments and docstrings decide nothing, and neither does what is imported for type checkers alone.
"""

from __future__ import annotations

import ast
import functools
from pathlib import Path

from bomd import outside
from bomd.files import fingerprint

ROOMS = ("data", "networks", "learn", "describe", "clean", "methods", "seeds")
# Packed pixels are an input with a fingerprint of its own: how they were read and resized counts for them alone.
INPUT = "bomd.data.store"
UNKNOWN = "bomd.methods.base"  # what code without a file, such as that of a notebook, is taken to import

_PACKAGE = Path(__file__).parent


def code_of(*modules: str, package: Path = _PACKAGE) -> str:
    """A fingerprint of these modules, by their full names, and of all that they import, directly or not.

    Of those from outside this package the file itself counts, what it imports from this package, and what it imports
    of one's own: modules of the same package, and whatever else is not installed.
    """
    found: dict[str, str] = {}
    left = list(modules)
    while left:
        module = left.pop()
        if module not in found:
            found[module], imported = _read(module, package)
            left += [name for name in imported if _decides(name)]
    return fingerprint(sorted(found.items()))


def _decides(module: str) -> bool:
    """Whether numbers come from a module that another imports."""
    return not module.startswith("bomd.") or (module.split(".")[1] in ROOMS and module != INPUT)


@functools.cache  # what a process has begun with is what it runs, whatever happens to its files
def _read(module: str, package: Path) -> tuple[str, tuple[str, ...]]:
    """A fingerprint of the code of a module, and the modules that it imports of this package and of one's own."""
    ours = module.startswith("bomd.")
    file = _file(module, package) if ours else outside.file_of(module)
    if file is None:
        return "", (UNKNOWN,)
    text = file.read_text("utf-8")
    code, imports = understood(text)
    named = {f"{base}.{name}" if name and _file(f"{base}.{name}", package) else base for base, name in imports}
    known = {name for name in named if name != "bomd" and _file(name, package)}
    return code, tuple(sorted(known if ours else known | _own(module, text, file.stem == "__init__")))


@functools.cache
def understood(text: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """A fingerprint of code without comments and docstrings, and what it imports from this package."""
    tree = ast.parse(text)
    nodes = _counting(tree)
    for node in nodes:
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and (
            ast.get_docstring(node, clean=False) is not None
        ):
            node.body = node.body[1:] or [ast.Pass()]
    return fingerprint(ast.unparse(tree)), tuple(_imports(nodes))


def _counting(tree: ast.AST) -> list[ast.AST]:
    """All nodes but those that only type checkers see."""
    found = [tree]
    for node in ast.iter_child_nodes(tree):
        if not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"):
            found += _counting(node)
    return found


def _imports(nodes: list[ast.AST]) -> list[tuple[str, str]]:
    """Pairs of a module of this package and a name that is taken from it; also of those imported by their names."""
    found = []
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "bomd":
            found += [(str(node.module), alias.name) for alias in node.names]
        elif isinstance(node, ast.Import):
            found += [(alias.name, "") for alias in node.names if alias.name.startswith("bomd.")]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("bomd."):
            found.append((node.value, ""))  # for import_module
    return found


def _own(module: str, text: str, is_package: bool) -> set[str]:
    """What a module from outside imports of the same package or of other code that is not installed."""
    found = set()
    for node in _counting(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = module.split(".")[: (1 if is_package else 0) - node.level or None] if node.level else []
            base = ".".join([*above, *filter(None, [node.module])])
            found |= {base, *(f"{base}.{alias.name}" for alias in node.names)}  # a name may be that of a module
    return {name for name in found if outside.is_own(name, module)}


def _file(module: str, package: Path) -> Path | None:
    """Where a module of this package is; None for what is no module."""
    place = package.joinpath(*module.split(".")[1:])
    return next((file for file in (place.with_suffix(".py"), place / "__init__.py") if file.is_file()), None)
