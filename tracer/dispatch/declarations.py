"""What torch's own sources declare of an operator: native_functions.yaml and derivatives.yaml.

Both come with torchgen, which is installed with torch. Entries are kept as the text in the
file, and found by their first line, so that no YAML has to be read (1.5 s).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path

_FUNCTION = re.compile(r"^- func: (?P<name>[\w.]+)\(", re.MULTILINE)
_DERIVATIVE = re.compile(r"^- name: (?P<name>[\w.]+)\(", re.MULTILINE)
_AUTOGEN = re.compile(r"^  autogen: (?P<names>.*)$", re.MULTILINE)
_DELEGATE = re.compile(r"^  structured_delegate: (?P<name>[\w.]+)", re.MULTILINE)
_COMMENT = re.compile(r"(^|\s+)#.*$")


@dataclass(frozen=True)
class Declaration:
    """An entry: the file's name, the line it begins at, the operator without namespace, its text."""

    file: str
    line: int
    name: str
    text: str

    @property
    def delegate(self) -> str | None:
        """The structured kernel that the operator is made from, `mm.out`."""
        found = _DELEGATE.search(self.text)
        return found["name"] if found else None

    @property
    def autogen(self) -> tuple[str, ...]:
        """The variants that torchgen makes from it, `add.Scalar_out`."""
        found = _AUTOGEN.search(self.text)
        return tuple(_COMMENT.sub("", found["names"]).replace(",", " ").split()) if found else ()


class Declarations:
    """The entries of a torchgen package, each file read when it is first asked for.

    Raises OSError from there where a file cannot be read.
    """

    def __init__(self, package: Path) -> None:
        self._packaged = package / "packaged"

    def function(self, op: str) -> Declaration | None:
        """The entry of an operator, or that from whose `autogen` torchgen makes it."""
        name = _of_aten(op)
        if name is None:
            return None
        return self._functions.get(name) or self._made_from.get(name)

    def delegate(self, declaration: Declaration) -> Declaration | None:
        return self._functions.get(declaration.delegate or "")

    def derivative(self, op: str) -> Declaration | None:
        """The formula for an operator: its own, or that which the in-place or copying variant shares."""
        name = _of_aten(op)
        if name is None:
            return None
        base, dot, overload = name.partition(".")
        for ending in ("", "_", "_copy"):
            found = self._derivatives.get(base.removesuffix(ending) + dot + overload)
            if found:
                return found
        return None

    @cached_property
    def _functions(self) -> dict[str, Declaration]:
        return _entries(self._packaged / "ATen" / "native" / "native_functions.yaml", _FUNCTION)

    @cached_property
    def _made_from(self) -> dict[str, Declaration]:
        return {name: entry for entry in self._functions.values() for name in entry.autogen}

    @cached_property
    def _derivatives(self) -> dict[str, Declaration]:
        return _entries(self._packaged / "autograd" / "derivatives.yaml", _DERIVATIVE)


def installed_declarations() -> Declarations | None:
    """Those of the torchgen beside torch, without importing torch; None if there is none."""
    spec = find_spec("torchgen")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        if (Path(folder) / "packaged").is_dir():
            return Declarations(Path(folder))
    return None


def _of_aten(op: str) -> str | None:
    namespace, _, name = op.rpartition("::")
    return name if namespace == "aten" else None


def _entries(path: Path, heading: re.Pattern[str]) -> dict[str, Declaration]:
    """name -> entry. Comments on lines of their own and blank lines between entries belong to none."""
    text = path.read_text(encoding="utf-8")
    headings = list(heading.finditer(text))
    ends = [found.start() for found in headings[1:]] + [len(text)]
    entries: dict[str, Declaration] = {}
    line, counted = 1, 0
    for found, end in zip(headings, ends, strict=True):
        line += text.count("\n", counted, found.start())
        counted = found.start()
        body = [row for row in text[found.start() : end].splitlines() if row.startswith(("- ", "  "))]
        own = [row.rstrip() for row in body if not row.lstrip().startswith("#")]
        entries.setdefault(found["name"], Declaration(path.name, line, found["name"], "\n".join(own)))
    return entries
