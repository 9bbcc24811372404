"""What `tracer compare --tune` writes: where the built-in overrides are faster on this GPU, for mode auto.

    {"format": 1, "gpu": "NVIDIA H200", "torch": "2.11.0+cu130", "build": "0a1b2c3d4e5f",
     "mm": [{"case": "mm 8x1536x5893 NT float32", "faster": true, "element": "float32", "tf32": false,
             "inner_major": true, "columns": [5, 8], "rows": [4167, 8333], "inner": [1087, 2172], ...}],
     "gru": [...], "cat": [...]}

A call whose sizes are in a row goes to the override if `faster`, else to stock. Calls in no row follow the
tables that tracer was built with, if they were measured on such a GPU. A file counts only on the GPU, and
with the torch and the build of tracer, that it was measured with. A family that was not measured has no key.
Ranges include both ends.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from tracer.base.boundary import new_beside, open_regular
from tracer.base.cache import cache_folder
from tracer.base.say import say
from tracer.base.this_torch import this_torch

FORMAT = 1
VARIABLE = "TRACER_MEASURED"
"""A file to read instead of the usual one, or OFF in any case; an empty value counts as unset"""
OFF = "off"
TUNE = "tracer compare --tune"

# In the order of the structs in csrc/overrides/measured.h and ops/gru_measured.h
FIELDS = {
    "mm": ("element", "tf32", "inner_major", "columns", "rows", "inner"),
    "gru": ("precision", "steps", "batch", "input", "hidden"),
    "cat": ("tensors", "bytes", "aligned"),
}
_NAMES = {
    "element": ("float32", "bfloat16", "float16"),
    "precision": ("float32", "tf32", "bfloat16", "float16"),
}
_FLAGS = ("tf32", "inner_major", "aligned")
_LARGEST = 2**63 - 1

Rows = list[dict[str, Any]]
"""Each with `case`, `faster` and the fields of its family"""


class MeasuredError(Exception):
    """A file of measurements cannot be used; the message says why, in a phrase."""


@dataclass(frozen=True)
class Key:
    """What measurements are valid for."""

    gpu: str
    torch: str
    build: str

    @property
    def file_name(self) -> str:
        return f"{_start(self.gpu)}{_plain(self.torch)}-{self.build}.json"


@dataclass
class Measurements:
    """`families`: the rows of mm, gru and cat, of those that were measured."""

    key: Key
    families: dict[str, Rows] = field(default_factory=dict)

    def merged(self, older: Measurements) -> Measurements:
        """With the rows of `older` for cases that are not measured again."""
        families = dict(older.families)
        for family, rows in self.families.items():
            again = {row["case"] for row in rows}
            families[family] = rows + [row for row in families.get(family, []) if row["case"] not in again]
        return Measurements(self.key, families)


def folder() -> Path:
    return Path(cache_folder())


def usual_path(key: Key) -> Path:
    return folder() / key.file_name


def key_of(native: ModuleType, gpu: str) -> Key:
    torch = this_torch()
    return Key(gpu, str(torch.__version__), build_of(native))


def build_of(native: ModuleType) -> str:
    """Twelve digits that differ if the kernels were built anew from other sources."""
    return _digest(str(native.__file__))


@lru_cache
def _digest(path: str) -> str:
    import hashlib  # only where a file is read or written

    return hashlib.sha256(Path(path).read_bytes()).hexdigest()[:12]


def read(path: Path) -> Measurements:
    """Raises MeasuredError if there is no such file, if it is damaged, or if its format is unknown."""
    try:
        with open(open_regular(path), encoding="utf-8") as file:
            found = json.load(file)
    except OSError as error:
        raise MeasuredError(f"it cannot be read: {error.strerror or error}") from None
    except ValueError:
        raise MeasuredError("it is damaged: no JSON") from None
    except RecursionError:
        raise MeasuredError("it is damaged: its brackets are nested too deeply") from None
    if not isinstance(found, dict) or not isinstance(found.get("format"), int):
        raise MeasuredError("it is not a file of measurements")
    if found["format"] != FORMAT:
        raise MeasuredError(f"its format is {found['format']}, and this tracer reads {FORMAT}")
    parts = [found.get(name) for name in ("gpu", "torch", "build")]
    if not all(isinstance(part, str) for part in parts):
        raise MeasuredError("it is damaged: it does not say what it was measured with")
    families = {family: _checked(family, found[family]) for family in FIELDS if family in found}
    return Measurements(Key(*map(str, parts)), families)


def _checked(family: str, rows: Any) -> Rows:
    if not isinstance(rows, list):
        raise MeasuredError(f"it is damaged: {family} is not a list")
    for number, row in enumerate(rows, 1):
        names = ("case", "faster", *FIELDS[family])
        wrong = [name for name in names if not (isinstance(row, dict) and _is_right(name, row.get(name)))]
        if wrong:
            raise MeasuredError(f"it is damaged: {wrong[0]} of row {number} of {family}")
    return rows


def _is_right(name: str, value: Any) -> bool:
    if name == "case":
        return isinstance(value, str)
    if name == "faster" or name in _FLAGS:
        return isinstance(value, bool)
    if name in _NAMES:
        return value in _NAMES[name]
    return (
        isinstance(value, list)
        and len(value) == 2
        and all(type(end) is int for end in value)
        and 0 <= value[0] <= value[1] <= _LARGEST
    )


def write(path: Path, measurements: Measurements) -> None:
    """All or nothing. Raises OSError."""
    key = measurements.key
    data = {"format": FORMAT, "gpu": key.gpu, "torch": key.torch, "build": key.build}
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, partial = new_beside(path)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(json.dumps(data | measurements.families, indent=1) + "\n")
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def tables_of(rows: Sequence[Mapping[str, Any]], family: str) -> tuple[list[tuple], list[tuple]]:
    """The rows as the extension takes them: those where the override is faster, and the others."""
    faster: list[tuple] = []
    slower: list[tuple] = []
    for row in rows:
        values = (row[name] for name in FIELDS[family])
        as_given = tuple(tuple(value) if isinstance(value, (list, tuple)) else value for value in values)
        (faster if row["faster"] else slower).append(as_given)
    return faster, slower


_loaded: dict[int, object] = {}
"""device -> the file that was given to the extension"""
_said: set[str] = set()


def load_into(native: ModuleType) -> None:
    """Give the extension what was measured on each GPU here. Called when an override is enabled in mode auto.

    A file that cannot be used is ignored, with one line on stderr.
    """
    named = os.environ.get(VARIABLE, "")
    off = is_off(named)
    if not _loaded and (off or (not named and not _any_files())):
        return
    keys = [key_of(native, gpu) for gpu in native.gpu_names()]
    for device, key in enumerate(keys):
        found, stamp = (None, None) if off else _found(Path(named) if named else None, key, keys)
        if _loaded.get(device) != stamp:
            _give(native, device, found.families if found else {})
            _loaded[device] = stamp


def is_off(value: str) -> bool:
    """Whether a value of the variable turns measurements off."""
    return value.lower() == OFF


def _any_files() -> bool:
    try:
        return any(name.startswith("measured-") for name in os.listdir(folder()))
    except OSError:
        return False


def _found(named: Path | None, key: Key, keys: Sequence[Key]) -> tuple[Measurements | None, object]:
    """The measurements of a GPU, and what changes when their file does; None if there are none."""
    path = named or usual_path(key)
    if named is None and not path.exists():
        if others := sorted(other.name for other in folder().glob(f"{_glob(_start(key.gpu))}*.json")):
            _say_once(
                f"{folder() / others[-1]} is ignored: it was measured with another torch or build of tracer; "
                f"to measure again: {TUNE}"
            )
        return None, None
    try:
        found = read(path)
        if found.key != key:
            if named is not None and found.key in keys:
                return None, None  # another GPU here has it
            raise MeasuredError(_difference(found.key, key))
        state = path.stat()
    except (MeasuredError, OSError) as error:
        _say_once(f"{path} is ignored: {error}; to measure this GPU: {TUNE}")
        return None, None
    return found, (str(path), state.st_mtime_ns, state.st_size)


def _difference(found: Key, key: Key) -> str:
    if found.gpu != key.gpu:
        return f"it was measured on {found.gpu}, and this GPU is {key.gpu}"
    if found.torch != key.torch:
        return f"it was measured with torch {found.torch}, and this is torch {key.torch}"
    return "it was measured with another build of tracer"


def _give(native: ModuleType, device: int, families: Mapping[str, Rows]) -> None:
    for family in FIELDS:
        getattr(native, f"set_measured_{family}")(device, *tables_of(families.get(family, []), family))


def _say_once(line: str) -> None:
    if line not in _said:
        _said.add(line)
        say(line)


def _start(gpu: str) -> str:
    return f"measured-{_plain(gpu)}-"


def _plain(text: str) -> str:
    """For a file name."""
    return re.sub(r"[^A-Za-z0-9.+]+", "_", text)


def _glob(text: str) -> str:
    return re.sub(r"([*?[])", r"[\1]", text)
