"""Which torch a `version.py` describes, and with which torch an extension that was built with it runs."""

from __future__ import annotations

import ast
import re
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

_FACT = re.compile(r"(?P<name>\w+)(?:: [^=]+)? = (?P<value>.+)")
# The builds of a release that PyTorch publishes: their headers, symbols and operator signatures are the same.
_RELEASE = re.compile(r"(?P<minor>\d+\.\d+)\.(?P<patch>\d+)(\+(cpu|cu\d+))?")
_COMMIT = re.compile("[0-9a-f]{40}")


class TorchBuild(NamedTuple):
    version: str
    git: str | None
    """The commit that it was built from; None if it does not say"""

    def runs_with(self, torch: TorchBuild) -> bool:
        """Whether an extension that was built with this torch runs with that one.

        One minor release has one layout, whatever its patch and build. What is no release may have another.
        """
        same_source = None in (self.git, torch.git) or self.git == torch.git
        if self.version == torch.version:
            return same_source
        built, found = _RELEASE.fullmatch(self.version), _RELEASE.fullmatch(torch.version)
        if not built or not found or built["minor"] != found["minor"]:
            return False
        return same_source or built["patch"] != found["patch"]

    def named(self, other: TorchBuild) -> str:
        """Its version; with its commit if the other has the same version."""
        same = self.version == other.version and self.git
        return f"{self.version} (commit {str(self.git)[:7]})" if same else self.version


def facts_of(text: str) -> dict[str, object]:
    """What a version.py says: __version__, debug, cuda, hip, git_version."""
    facts: dict[str, object] = {}
    for line in text.splitlines():
        if found := _FACT.fullmatch(line.strip()):
            try:
                facts[found["name"]] = ast.literal_eval(found["value"])
            except (ValueError, SyntaxError):
                continue
    return facts


def build_of(facts: dict[str, object]) -> TorchBuild:
    version, git = facts.get("__version__"), facts.get("git_version")
    known = version if isinstance(version, str) else "of an unknown version"
    return TorchBuild(known, git if isinstance(git, str) and _COMMIT.fullmatch(git) else None)


def installed_folder() -> Path | None:
    """Where `import torch` would find it."""
    spec = find_spec("torch")
    folders = map(Path, spec.submodule_search_locations or ()) if spec else ()
    return next((folder for folder in folders if (folder / "version.py").exists()), None)


def facts_in(folder: Path) -> dict[str, object]:
    return facts_of((folder / "version.py").read_text(encoding="utf-8"))


def installed_cuda() -> str | None:
    """The version of CUDA, as 13.0, of the torch that `import torch` would find; None if it has none."""
    folder = installed_folder()
    found = facts_in(folder).get("cuda") if folder else None
    return found if isinstance(found, str) else None


def installed_torch() -> TorchBuild | None:
    """The torch that `import torch` would find, without importing it."""
    folder = installed_folder()
    return build_of(facts_in(folder)) if folder else None
