"""Class names become unit vectors: the space in which images are described.

The paper takes BlueBERT; a small table of MiniLM vectors ships with the package, so that the default needs
no download. MiniLM is a general sentence model, not a biomedical one: it is a working start, not an equal.
"""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bomd import outside
from bomd.errors import InputError
from bomd.files import fingerprint, read_array, read_arrays, read_json, reading, write_array, write_arrays, write_text
from bomd.progress import say, track
from bomd.tables import NO_FINDING, Floats

ENCODERS = {  # names on the Hugging Face hub
    "bluebert": "bionlp/bluebert_pubmed_mimic_uncased_L-24_H-1024_A-16",
    "biobert": "dmis-lab/biobert-large-cased-v1.1",
    "clinicalbert": "emilyalsentzer/Bio_ClinicalBERT",
}
MODELS = ("auto", "minilm", *ENCODERS, "glove", "random")

_SHIPPED = Path(__file__).with_name("minilm.npz")
_OTHER_WAYS = "a transformers model (such as 'bluebert' or a local folder), 'glove', a .npy file or 'random'"


@dataclass(frozen=True, eq=False)
class LabelSpace:
    """One unit vector for each of C classes."""

    classes: tuple[str, ...]  # as they were given
    vectors: Floats  # (C, D), every row of length one
    source: str  # where the vectors come from
    notes: tuple[str, ...] = ()  # what a reader of the results should know about them

    def __post_init__(self) -> None:
        if self.vectors.ndim != 2 or len(self.vectors) != len(self.classes):
            raise InputError(f"Label vectors have shape {self.vectors.shape} for {len(self.classes)} classes.")
        if not np.allclose(np.linalg.norm(self.vectors, axis=1), 1, atol=1e-4):
            raise InputError(f"Label vectors from {self.source} are not finite rows of length one.")


def embed(
    classes: Sequence[str],
    model: str = "minilm",
    *,
    vectors: Path | None = None,
    vector_classes: Sequence[str] | None = None,
    cache: Path | None = None,
    seed: int = 0,
    size: int = 1024,
) -> LabelSpace:
    """Give every class name a unit vector.

    Args:
        classes: C names; case does not matter and an underscore counts as a space.
        model: `minilm` (ships with the package), `auto` (`minilm` if it knows every class, else `random`),
            `bluebert`, `biobert`, `clinicalbert`, the folder of a transformers model, `glove`, `random`, or
            the path of a `.npy` with one row per class.
        vectors: the text file of word vectors, for `glove`.
        vector_classes: the names of the rows of a `.npy`; without it they are read from `NAME.classes.txt`
            (one per line) or `NAME.classes.json` (a list) beside `NAME.npy`.
        cache: folder that keeps the vectors of transformers models and of `glove`.
        seed: of the `random` vectors.
        size: D of the `random` vectors.
    """
    names = _checked(classes)
    if (vectors is not None) != (model == "glove"):
        raise InputError("A file of word vectors goes with the label space 'glove', and only with it.")
    if vector_classes is not None and not model.endswith(".npy"):
        raise InputError(f"A list of vector classes goes with a .npy file, not with the label space {model!r}.")
    if model == "auto":
        return _automatic(names, seed, size)
    if model == "minilm":
        return _looked_up(names, _shipped_rows(), "minilm")
    if model == "random":
        return _random(names, seed, size)
    if model.endswith(".npy"):
        return _looked_up(names, _array_rows(Path(model), vector_classes), model)
    if vectors is not None:
        return _cached(cache, names, _file_state(vectors), f"glove ({vectors})", lambda: _glove(names, vectors))
    if model in ENCODERS:
        hub = ENCODERS[model]
        return _cached(cache, names, hub, f"{model} ({hub})", lambda: _encode(names, hub))
    if Path(model).is_dir():
        state = [_file_state(file) for file in sorted(Path(model).iterdir()) if file.is_file()]
        return _cached(cache, names, state, model, lambda: _encode(names, model))
    raise InputError(
        f"No label space {model!r}: use one of {', '.join(MODELS)}, an existing folder that holds a "
        f"transformers model, or a .npy file."
    )


def save_vectors(space: LabelSpace, path: Path) -> None:
    """Write the vectors as `NAME.npy` and their names as `NAME.classes.txt`, which `embed` reads back."""
    if path.suffix != ".npy":
        raise InputError(f"Label vectors are saved as .npy, not as {path.name!r}.")
    write_text(path.with_suffix(".classes.txt"), "".join(f"{name}\n" for name in space.classes))
    write_array(path, space.vectors)


def _checked(classes: Sequence[str]) -> tuple[str, ...]:
    names = tuple(str(name) for name in classes)
    if not names:
        raise InputError("No classes to embed.")
    keys = [_key(name) for name in names]
    if "" in keys:
        raise InputError(f"Class {keys.index('') + 1} of {len(names)} has no name.")
    repeated = [name for name, key in zip(names, keys, strict=True) if keys.count(key) > 1]
    if repeated:
        raise InputError(f"Classes {', '.join(map(repr, repeated))} are one name but for case and underscores.")
    return names


def in_words(name: str) -> str:
    """A class name as it is read aloud."""
    return " ".join(name.replace("_", " ").split())


def _key(name: str) -> str:
    return in_words(name).casefold()


def _looked_up(
    names: tuple[str, ...], rows: Mapping[str, Floats], source: str, known: Iterable[str] | None = None
) -> LabelSpace:
    """Order and normalise the rows, which are found by key, and derive that of No Finding where it is missing.

    Among the `known` keys, by default those of all rows, the nearest to a missing one are told.
    """
    unit: dict[str, Floats] = {}
    healthy = _key(NO_FINDING)
    for name in names:
        key = _key(name)
        if key in rows:
            length = float(np.linalg.norm(rows[key]))
            if not np.isfinite(length) or length == 0:
                raise InputError(f"The vector of class {key!r} from {source} is zero or not finite.")
            unit[key] = (rows[key] / length).astype(np.float32)
        elif key != healthy:
            near = difflib.get_close_matches(key, rows if known is None else known, n=3, cutoff=0.5)
            nearest = f" (nearest: {', '.join(near)})" if near else ""
            raise InputError(
                f"The label space {source} has no vector for class {name!r}{nearest}: rename it or use {_OTHER_WAYS}."
            )
    notes: tuple[str, ...] = ()
    if healthy in map(_key, names) and healthy not in unit:
        mean = np.array([*unit.values()], dtype=np.float32).sum(axis=0) / max(len(unit), 1)
        length = float(np.linalg.norm(mean))
        if length < 1e-6:
            raise InputError(f"{source} has no vector for {NO_FINDING!r} and no findings to derive it from.")
        unit[healthy] = (-mean / length).astype(np.float32)
        notes = (f"{NO_FINDING} has no vector in {source}: minus the mean of the findings' vectors is used.",)
    return LabelSpace(names, np.stack([unit[_key(name)] for name in names]), source, notes)


def _automatic(names: tuple[str, ...], seed: int, size: int) -> LabelSpace:
    rows = _shipped_rows()
    unknown = [name for name in names if _key(name) not in rows and _key(name) != _key(NO_FINDING)]
    if not unknown and any(_key(name) in rows for name in names):
        return _looked_up(names, rows, "minilm")
    note = (
        f"The shipped vectors do not know {', '.join(map(repr, unknown))}, so each class has a random vector "
        f"and the meaning of the labels is not used; a transformers model or 'glove' would use it."
    )
    return _random(names, seed, size, note)


def _shipped_rows() -> dict[str, Floats]:
    table = read_arrays(_SHIPPED)
    return {_key(str(name)): row for name, row in zip(table["names"], table["vectors"], strict=True)}


def _random(names: tuple[str, ...], seed: int, size: int, *notes: str) -> LabelSpace:
    """Directions drawn evenly from the sphere; each depends on its name and not on its place."""
    if seed < 0 or size < 2:
        raise InputError(f"Random label vectors need a seed of 0 or more and 2 or more dimensions: {seed}, {size}.")
    rows = []
    for name in names:
        digest = np.frombuffer(hashlib.sha256(_key(name).encode()).digest(), dtype="<u4")
        row = np.random.default_rng([seed, *digest.tolist()]).standard_normal(size)
        rows.append(row / np.linalg.norm(row))
    return LabelSpace(names, np.array(rows, dtype=np.float32), f"random (seed {seed}, {size} dimensions)", notes)


def _array_rows(path: Path, vector_classes: Sequence[str] | None) -> dict[str, Floats]:
    values = read_array(path)
    rows = _beside(path) if vector_classes is None else [str(name) for name in vector_classes]
    if values.ndim != 2 or values.dtype.kind != "f" or len(values) != len(rows):
        raise InputError(f"{path} holds {values.dtype} of shape {values.shape}, expected {len(rows)} rows of floats.")
    return dict(zip(map(_key, _checked(rows)), values, strict=True))


def _beside(path: Path) -> list[str]:
    """The class list that lies beside a `.npy`."""
    lines, listed = path.with_suffix(".classes.txt"), path.with_suffix(".classes.json")
    if lines.is_file():
        return [line.strip() for line in lines.read_text(encoding="utf-8").splitlines() if line.strip()]
    if not listed.is_file():
        raise InputError(f"No class list for {path}: write one name per line into {lines}.")
    names = read_json(listed)
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InputError(f"{listed} must hold a JSON list of class names.")
    return names


def _file_state(path: Path) -> list[Any]:
    """What tells one version of a file from another without reading it."""
    with reading(path):
        status = path.stat()
    return [str(path.resolve()), status.st_size, status.st_mtime_ns]


def _cached(
    cache: Path | None, names: tuple[str, ...], state: Any, source: str, compute: Callable[[], dict[str, Floats]]
) -> LabelSpace:
    path = None if cache is None else cache / f"labelspace-{fingerprint(state, names)}.npz"
    if path is not None and path.exists():
        try:
            kept = read_arrays(path)
            return LabelSpace(names, kept["vectors"], source, tuple(map(str, kept["notes"])))
        except (InputError, KeyError) as error:
            raise InputError(f"Damaged label vectors: delete {path} to compute them again.") from error
    space = _looked_up(names, compute(), source, known=())
    if path is not None:
        write_arrays(path, {"vectors": space.vectors, "notes": np.array(space.notes, dtype=np.str_)})
    return space


def _glove(names: tuple[str, ...], path: Path) -> dict[str, Floats]:
    """The mean vector of each name's words."""
    words = {_key(name): re.findall(r"\w+", _key(name)) for name in names}
    table = _word_vectors(path, {word for parts in words.values() for word in parts})
    absent = {word for key, parts in words.items() for word in parts if word not in table and key != _key(NO_FINDING)}
    if absent:
        raise InputError(f"{path} has no vector for {', '.join(sorted(absent))}: rename, or use another model.")
    known = {key: parts for key, parts in words.items() if parts and all(word in table for word in parts)}
    return {key: np.array([table[word] for word in parts]).mean(axis=0) for key, parts in known.items()}


def _word_vectors(path: Path, wanted: set[str]) -> dict[str, Floats]:
    """The first vector of each wanted word in a text file of lines with a word and its D numbers."""
    table: dict[str, Floats] = {}
    with reading(f"word vectors from {path}", UnicodeDecodeError), path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            word, _, numbers = line.rstrip().partition(" ")
            if word in wanted and word not in table:
                try:
                    table[word] = np.array(numbers.split(), dtype=np.float32)
                except ValueError as error:
                    raise InputError(f"{path}, line {number}: {word!r} and then not only numbers.") from error
                if len(table) == len(wanted):
                    break
    if len({len(vector) for vector in table.values()}) > 1:
        raise InputError(f"The word vectors in {path} differ in length.")
    return table


def open_text_model(where: str) -> tuple[Any, Any]:
    """The tokenizer and the model of a folder, or of the hub; weights that are missing or do not fit are an error."""
    remedy = f"{where} needs transformers: pip install 'bomd[text]', or use 'minilm'."
    transformers = outside.package("transformers", remedy)
    import torch

    from bomd.networks.hugging_face import quiet

    say(f"Loading {where}; a model from the hub is downloaded once.")
    # A pooler that a checkpoint lacks is drawn at random, though unused here: the global state must not move.
    with torch.random.fork_rng(devices=[]), quiet(transformers):
        options = {"trust_remote_code": False, "local_files_only": Path(where).is_dir()}
        try:
            tokenizer = transformers.AutoTokenizer.from_pretrained(where, **options)
            model, loaded = transformers.AutoModel.from_pretrained(where, output_loading_info=True, **options)
        except Exception as error:  # network, file and version trouble arrive as many kinds
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:160]
            raise InputError(
                f"Cannot load the text model {where} ({reason}): copy it into a folder and name that folder, "
                f"or use 'minilm', which needs no download."
            ) from error
    lacking = sorted(str(key) for kind in ("missing_keys", "mismatched_keys") for key in loaded[kind])
    lacking = [key for key in lacking if "pooler" not in key]
    if lacking:
        raise InputError(f"The weights in {where} do not fit its model, for example {lacking[0]}.")
    return tokenizer, model


def _encode(names: tuple[str, ...], where: str) -> dict[str, Floats]:
    """The mean last-layer state of each name's word pieces, special tokens left out."""
    import torch

    tokenizer, model = open_text_model(where)
    model = model.float().eval()
    found: dict[str, Floats] = {}
    with torch.no_grad():
        for name in track(names, "Embedding class names"):
            encoded = tokenizer(in_words(name), return_tensors="pt", return_special_tokens_mask=True)
            ordinary = encoded.pop("special_tokens_mask")[0] == 0
            pieces = encoded["input_ids"][0][ordinary].tolist()
            if pieces and tokenizer.unk_token_id not in pieces:
                states = model(**encoded).last_hidden_state[0][ordinary]
                found[_key(name)] = states.mean(dim=0).numpy()
    return found
