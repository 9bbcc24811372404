"""The test files of a room: python cmake/checks/room_tests.py ROOM prints them, the quick ones first.

With --changed-since COMMIT: those of all rooms in which files differ from this commit, and the tests that
differ.

A room is a folder of tracer/ (`trace`, `report`) or of csrc/ (`dispatch`). A test belongs to the rooms that
it imports (`from tracer.report...`), directly or by a builder in tests/unit, and to those whose sources it
names (`csrc/dispatch`, or the name of a file there). tests/cpu records: it belongs to each room of csrc.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
ORDER = ("unit", "system", "cpu", "gdb", "gpu")
_IMPORT = re.compile(r"^\s*(?:from|import) (tracer\.\w+|\w+)", re.MULTILINE)


def rooms() -> list[str]:
    """Every folder of tracer/ and csrc/ that has sources."""
    folders = [path for tree in ("tracer", "csrc") for path in (ROOT / tree).iterdir() if path.is_dir()]
    return sorted({path.name for path in folders if any(path.rglob("*.[chp]*")) and path.name[0] != "_"})


def tests_of(room: str) -> list[Path]:
    """Those of the room, in order of folders: unit tests take seconds, the rest minutes."""
    sources = {path.name for path in (ROOT / "csrc" / room).glob("*.*")}
    files = {path.stem: path for path in TESTS.rglob("*.py")}
    found = [
        path
        for path in files.values()
        if path.name.startswith("test_")
        and path.parent.name in ORDER
        and _belongs(path, room, sources, files, set())
    ]
    return sorted(found, key=_order)


def _order(path: Path) -> tuple[int, str]:
    folder = path.parent.name
    return ORDER.index(folder) if folder in ORDER else len(ORDER), path.name


def _belongs(path: Path, room: str, sources: set[str], files: dict[str, Path], seen: set[Path]) -> bool:
    seen.add(path)
    text = path.read_text()
    imported = set(_IMPORT.findall(text))
    if path.parent.name == "cpu" and sources:
        return True
    if f"tracer.{room}" in imported or f"csrc/{room}/" in text or any(name in text for name in sources):
        return True
    builders = (files[name] for name in imported if name in files and files[name] not in seen)
    return path.name.startswith("test_") and any(
        _belongs(builder, room, sources, files, seen) for builder in builders if builder.name[:5] != "test_"
    )


def tests_of_changes(changed: Iterable[str]) -> list[Path]:
    """Tests of the rooms of these files, paths from the root; a helper of tests counts as its folder."""
    touched: set[str] = set()
    found: set[Path] = set()
    for name in changed:
        top, *inner = Path(name).parts
        if top in ("tracer", "csrc") and len(inner) > 1:
            touched.add(inner[0])
        elif top == "gdb":
            touched.add("debugger")
        elif top == "tests" and len(inner) > 1:
            found |= _of_test_file(ROOT / name)
    for room in touched & set(rooms()):
        found |= set(tests_of(room))
    return sorted(found, key=_order)


def _of_test_file(path: Path) -> set[Path]:
    """The file itself, if it has tests; of a helper the tests of its folder that import it."""
    if path.name.startswith("test_"):
        return {path} if path.exists() else set()
    imports = re.compile(rf"^\s*(?:from|import) {re.escape(path.stem)}\b", re.MULTILINE)
    return {each for each in path.parent.glob("test_*.py") if imports.search(each.read_text())}


def _changed_since(commit: str) -> list[str]:
    asked = (["diff", "--name-only", commit], ["ls-files", "--others", "--exclude-standard"])
    done = [subprocess.run(["git", *each], cwd=ROOT, capture_output=True, text=True) for each in asked]
    if failed := [each.stderr for each in done if each.returncode]:
        sys.exit(f"git cannot compare with {commit}: {failed[0].strip()}")
    return [line for each in done for line in each.stdout.splitlines()]


def main() -> int:
    names = rooms()
    if sys.argv[1:2] == ["--changed-since"] and len(sys.argv) == 3:
        found = tests_of_changes(_changed_since(sys.argv[2]))
        print(*(path.relative_to(ROOT) for path in found), sep="\n")
        return 0
    if len(sys.argv) != 2 or sys.argv[1] not in names:
        print(f"choose a room: make test-room ROOM={names[0]}; rooms: {', '.join(names)}", file=sys.stderr)
        return 2
    found = tests_of(sys.argv[1])
    if not found:
        print(f"no test names {sys.argv[1]}; run make test", file=sys.stderr)
        return 1
    print(*(path.relative_to(ROOT) for path in found), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
