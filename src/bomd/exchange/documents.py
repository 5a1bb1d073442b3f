"""Read JSON, XML and text that others wrote: whatever is in it, the worst outcome is one line."""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar
from xml.etree.ElementTree import Element, SubElement, TreeBuilder, indent, tostring
from xml.parsers import expat

from bomd.errors import InputError
from bomd.files import is_stream, reading, write_pieces

Kind = TypeVar("Kind")

_DEEPEST = 100  # elements inside one another; the files here have five
_WORDS: dict[type, str] = {str: "text", list: "a list", dict: "an object", bool: "true or false", int: "a whole number"}
_HALF = re.compile("[\ud800-\udfff]")  # of a character, which JSON can spell and no file can hold
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def short(value: Any) -> str:
    """A value of somebody else's file for an error message, however large it is."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def read_bytes(path: Path) -> bytes:
    """The content of a file that must not be empty."""
    with reading(path, ValueError):  # as which a path with a NUL in it counts
        if path.exists() and not path.is_file():  # reading a pipe would wait for ever
            raise OSError(errno.EINVAL, "it is not a file")
        content = path.read_bytes()
    if not content.strip():
        raise InputError(f"{path} is empty.")
    return content


def read_json(path: Path) -> Any:
    """The value in a JSON file."""
    return _parse_json(read_bytes(path), str(path))


def read_json_lines(path: Path) -> list[dict[str, Any]]:
    """The objects in a file with one on each line."""
    lines = {f"{path}, line {number}": line for number, line in enumerate(read_bytes(path).splitlines(), 1)}
    return [checked(_parse_json(line, where), dict, where) for where, line in lines.items() if line.strip()]


def checked(value: Any, kind: type[Kind], where: str) -> Kind:
    """The value, which must be of this kind; text must be such that it can be written again."""
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise InputError(f"{where}: expected {_WORDS[kind]}, got {short(value)}.")
    if isinstance(value, str) and _HALF.search(value):
        raise InputError(f"{where}: {short(value)} holds half a character.")
    return value


def field(record: Mapping[str, Any], name: str, kind: type[Kind], where: str) -> Kind:
    """One value of an object, which must be there and of this kind."""
    if name not in record:
        raise InputError(f"{where} has no {name!r}.")
    return checked(record[name], kind, f"{where}, {name!r}")


def listed(value: Any, where: str) -> list[str]:
    """A list of texts."""
    return [checked(item, str, where) for item in checked(value, list, where)]


def class_of(value: Any, names: Sequence[str], where: str) -> str:
    """The name of a class by its number."""
    number = checked(value, int, where)
    if not 0 <= number < len(names):
        raise InputError(f"{where}: there is no class number {number}; {len(names)} have names.")
    return names[number]


def read_xml(path: Path) -> Element:
    """The root element of an XML file, read without document types and so without entities."""
    builder, depth = TreeBuilder(), 0
    parser = expat.ParserCreate()
    parser.buffer_text = True

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > _DEEPEST:
            raise InputError(f"{path} has more than {_DEEPEST} elements inside one another.")
        builder.start(name, attributes)

    def end(name: str) -> None:
        nonlocal depth
        depth -= 1
        builder.end(name)

    def refuse(*_: Any) -> None:
        raise InputError(f"{path} has a document type, which may hide other files; remove it.")

    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler = builder.data
    parser.StartDoctypeDeclHandler = refuse
    try:
        parser.Parse(read_bytes(path), True)
        return builder.close()
    except InputError:
        raise
    except (expat.ExpatError, ValueError, LookupError, AssertionError) as error:
        raise InputError(f"{path} is not XML: {error}.") from error


def refuse_stream(path: Path, beside: Path) -> None:
    """What is written together with another file needs a name."""
    if is_stream(path):
        raise InputError(f"{path} is a device or a pipe, and {beside.suffix} is written beside it: name a file.")


def write_items(path: Path, items: Iterable[Any], name: str | None = None) -> None:
    """Write a JSON list, or an object with one list of this name, an item on each line as it comes."""
    before, after = ("[", "]") if name is None else (f"{{{json.dumps(name)}: [", "]}")

    def pieces() -> Iterator[str]:
        yield before
        for number, item in enumerate(items):
            yield (",\n" if number else "\n") + json.dumps(item, ensure_ascii=False, allow_nan=False)
        yield f"\n{after}\n"

    write_pieces(path, pieces())


def write_xml(path: Path, root: Element, following: Iterable[Element] = ()) -> None:
    """Write an element and all in it, then further elements in it as they come.

    It has no declaration, at which Label Studio's parser stumbles.
    """
    assert len(root), "an element with nothing in it has no end that others could be put before"
    indent(root)

    def pieces() -> Iterator[str]:
        end = f"\n</{root.tag}>"
        yield tostring(root, encoding="unicode").removesuffix(end)
        for one in following:
            indent(one, level=1)
            yield "\n  " + tostring(one, encoding="unicode").rstrip()
        yield f"{end}\n"

    write_pieces(path, pieces())


def element(parent: Element, tag: str, text: str | None = None, /, **attributes: str) -> Element:
    """Add an element; text that XML cannot hold is an error."""
    for value in (text or "", *attributes.values()):
        if _NOT_XML.search(value):
            raise InputError(f"XML cannot hold the control characters in {short(value)}; rename it.")
    made = SubElement(parent, tag, attributes)
    made.text = text
    return made


def _parse_json(content: bytes, where: str) -> Any:
    try:
        return json.loads(content.decode("utf-8-sig"))
    except RecursionError as error:
        raise InputError(f"{where}: brackets are nested too deeply.") from error
    except ValueError as error:  # not UTF-8, not JSON, or a number with thousands of digits
        raise InputError(f"{where} is not JSON: {' '.join(str(error).split())[:200]}.") from error
