"""docs/architecture.md names files that exist and the rooms of import-linter; pages name all commands."""

from __future__ import annotations

import re

from pages import DOCS, ROOT
from typer.main import get_command

from tracer.cli.app import app

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib  # type: ignore[no-redef]

PAGE = (DOCS / "architecture.md").read_text()


def test_every_file_is_there() -> None:
    files = re.findall(r"`((?:csrc|tracer|gdb|tests|cmake|benchmarks)/[\w./]+)`", PAGE)
    assert len(files) > 60
    assert [file for file in files if not (ROOT / file).exists()] == []


def test_the_rooms_are_the_layers_of_import_linter() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    layers = project["tool"]["importlinter"]["contracts"][0]["layers"]
    wanted = [sorted(re.findall(r"tracer\.(\w+)", layer)) for layer in layers if "__main__" not in layer]
    block = PAGE.split("<!-- rooms -->\n```text\n")[1].split("```")[0]
    assert [sorted(line[:32].split()) for line in block.splitlines()] == wanted


def test_every_room_is_there() -> None:
    rooms = {path.parent.name for path in (ROOT / "tracer").glob("*/__init__.py")}
    assert {room for room in rooms if not re.search(rf"^ .*\b{room}\b", PAGE, re.M)} == set()


def test_the_index_and_the_readme_name_every_command() -> None:
    commands = vars(get_command(app))["commands"]
    for page in (DOCS / "index.md", ROOT / "README.md"):
        text = page.read_text()
        assert [name for name in commands if not re.search(rf"`?tracer {name}\b", text)] == [], page.name
