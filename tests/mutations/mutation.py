"""One mutation: a small fault that a programmer might make, as a patch with a header.

# Breaks: what the patch does, in one sentence
# Seen as: what a user would see
# Tests: tests/unit/test_x.py::test_y tests/cpu/test_z.py
diff --git a/tracer/room/file.py b/tracer/room/file.py
...

A line that begins with `#` and spaces continues the one above it. `git apply` ignores the header.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent
SUFFIX = ".patch"
_FIELDS = ("Breaks", "Seen as", "Tests")
_FIELD = re.compile(rf"# ({'|'.join(_FIELDS)}): (.+)")
_FURTHER = re.compile(r"#  +(.+)")
_FILE = re.compile(r"\+\+\+ b/(.+)")
_HUNK = re.compile(r"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")


class PatchError(Exception):
    """A patch is malformed, or does not fit the sources; one line."""


@dataclass(frozen=True)
class Change:
    """In one file, `old` becomes `new`: whole lines, with the context of the patch."""

    file: str
    old: str
    new: str

    def applied(self, text: str) -> str:
        """The changed text of the file. Raises PatchError unless it has `old` once."""
        found = text.count(self.old)
        if found != 1:
            raise PatchError(f"{self.file} has the lines of the patch {found} times, not once")
        return text.replace(self.old, self.new)


@dataclass(frozen=True)
class Mutation:
    """`tests`: the nearest ones, as pytest takes them."""

    name: str
    breaks: str
    seen: str
    tests: tuple[str, ...]
    changes: tuple[Change, ...]

    @property
    def files(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(change.file for change in self.changes))

    @property
    def is_compiled(self) -> bool:
        """Whether the extension must be built for it."""
        return any(file.startswith("csrc/") for file in self.files)

    @property
    def rooms(self) -> tuple[str, ...]:
        """The folders of tracer/ or csrc/ that it changes; files beside them are in none."""
        parts = [Path(file).parts for file in self.files]
        return tuple(dict.fromkeys(each[1] for each in parts if len(each) > 2))

    def mutated(self, sources: Path) -> dict[str, str]:
        """The text of each file that it changes. Raises PatchError if it does not fit."""
        texts = {file: _text(sources / file) for file in self.files}
        for change in self.changes:
            texts[change.file] = change.applied(texts[change.file])
        for file, text in texts.items():
            if file.endswith(".py"):
                _check_python(file, text)
        return texts


def read(path: Path) -> Mutation:
    """Raises PatchError if the header or a hunk is not as above."""
    lines = path.read_text(encoding="utf-8").splitlines()
    begin = next((place for place, line in enumerate(lines) if not line.startswith("#")), len(lines))
    fields = _header(path, lines[:begin])
    changes = _changes(path, lines[begin:])
    tests = tuple(fields["Tests"].split())
    return Mutation(path.name.removesuffix(SUFFIX), fields["Breaks"], fields["Seen as"], tests, changes)


def every() -> dict[str, Mutation]:
    """All of this folder by name, in the order of their names."""
    found = [read(path) for path in sorted(FOLDER.glob(f"*{SUFFIX}"))]
    return {mutation.name: mutation for mutation in found}


def _header(path: Path, lines: list[str]) -> Mapping[str, str]:
    fields: dict[str, str] = {}
    for line in lines:
        if field := _FIELD.fullmatch(line):
            fields[field[1]] = field[2]
        elif (further := _FURTHER.fullmatch(line)) and fields:
            fields[[*fields][-1]] += f" {further[1]}"
        else:
            raise PatchError(f"{path.name}: a header has lines such as `# Breaks: ...`, not {line!r}")
    if tuple(fields) != _FIELDS:
        raise PatchError(f"{path.name}: the header needs {', '.join(_FIELDS)}, in this order")
    return fields


def _changes(path: Path, lines: list[str]) -> tuple[Change, ...]:
    changes = []
    file = ""
    place = 0
    while place < len(lines):
        line = lines[place]
        place += 1
        if found := _FILE.fullmatch(line):
            file = found[1]
        elif hunk := _HUNK.match(line):
            end = place
            while end < len(lines) and lines[end][:1] in ("", " ", "+", "-"):
                end += 1
            changes.append(_change(path, file, lines[place:end], int(hunk[1] or 1), int(hunk[2] or 1)))
            place = end
    if not changes:
        raise PatchError(f"{path.name} changes nothing")
    return tuple(changes)


def _change(path: Path, file: str, lines: list[str], old_lines: int, new_lines: int) -> Change:
    """Of the lines of a hunk. Blank ones of the context may have lost their first blank."""
    old = [line[1:] for line in lines if line[:1] != "+"]
    new = [line[1:] for line in lines if line[:1] != "-"]
    if (len(old), len(new)) != (old_lines, new_lines):
        raise PatchError(f"{path.name}: a hunk of {file} has not as many lines as it says")
    return Change(file, "".join(f"{line}\n" for line in old), "".join(f"{line}\n" for line in new))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise PatchError(f"{path.name} does not exist any more") from None


def _check_python(file: str, text: str) -> None:
    try:
        compile(text, file, "exec")
    except SyntaxError as error:
        raise PatchError(f"{file} is no Python any more: {error.msg}, line {error.lineno}") from None
