"""The test files of a room: python cmake/checks/room_tests.py ROOM prints them, the quick ones first.

A room is a folder of tracer/ (`trace`, `report`) or of csrc/ (`dispatch`). A test belongs to the rooms that
it imports (`from tracer.report...`), directly or by a builder in tests/unit, and to those whose sources it
names (`csrc/dispatch`, or the name of a file there). tests/cpu records: it belongs to each room of csrc.
"""

from __future__ import annotations

import re
import sys
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
    return sorted(found, key=lambda path: (ORDER.index(path.parent.name), path.name))


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


def main() -> int:
    names = rooms()
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
