"""`make test` has a real run of every command and of every page: the tests with the mark `promise`.

    @pytest.mark.promise("diff", "docs/diff.md#values")

names what a test outside of tests/unit runs: commands of tracer, other ways to start it, and pages or a part
of one. This file reads these tests as text. It imports none of them, so it needs no torch.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pages import DOCS, ROOT, anchors
from typer.main import get_command

from tracer.cli.app import app

COMMANDS = set(vars(get_command(app))["commands"])
OTHER_WAYS = {"python -m tracer", "TRACER=run.trace", "tracer.record", "@tracer.record", "%%tracer", "pytest"}
NO_RUN = {
    "docs/architecture.md": "names files; test_architecture.py looks at them",
    "docs/decisions.md": "says why it is made this way",
    "docs/glossary.md": "explains words",
    "docs/index.md": "lists the other pages",
}
LEFT_OUT = {"slow", "gpu", "gallery", "compiler", "browser"}  # they take long, or need what few machines have
FILES = sorted(
    path
    for path in (ROOT / "tests").glob("*/test_*.py")
    if path.parent.name != "unit" and "mark.promise" in path.read_text()
)
PAGES = sorted(str(page.relative_to(ROOT)) for page in DOCS.glob("*.md"))


@dataclass(frozen=True)
class Promise:
    """A test, or one parameter of it: what it is a run of, and all of its marks."""

    test: str
    names: list[str]
    marks: set[str]


def parts(*nodes: ast.AST) -> set[ast.AST]:
    return {part for node in nodes for part in ast.walk(node)}


def calls(found: set[ast.AST], name: str) -> list[ast.Call]:
    return [part for part in found if isinstance(part, ast.Call) and ast.unparse(part.func) == name]


def marks(found: set[ast.AST]) -> set[str]:
    attributes = [part for part in found if isinstance(part, ast.Attribute)]
    return {part.attr for part in attributes if ast.unparse(part.value) == "pytest.mark"}


def promises_in(text: str, file: str) -> Iterator[Promise]:
    """Those of the functions of a test file, each with the marks that the whole file has."""
    module = ast.parse(text)
    of_file = [part for part in module.body if ast.unparse(part).startswith("pytestmark = ")]
    for test in module.body:
        if not isinstance(test, ast.FunctionDef):
            continue
        parameters = calls(parts(*test.decorator_list), "pytest.param")
        shared = parts(*of_file, *test.decorator_list) - parts(*parameters)
        for found in (shared, *(shared | parts(parameter) for parameter in parameters)):
            promises = calls(found, "pytest.mark.promise")
            names = [ast.literal_eval(name) for promise in promises for name in promise.args]
            if promises:
                yield Promise(f"{file}::{test.name}", names, marks(found))


PROMISES = [
    promise for file in FILES for promise in promises_in(file.read_text(), str(file.relative_to(ROOT)))
]
KEPT = {name for promise in PROMISES for name in promise.names}


def exists(name: str) -> bool:
    page, _, heading = name.partition("#")
    if page in PAGES:
        return not heading or f"#{heading}" in anchors(ROOT / page)
    return name in COMMANDS | OTHER_WAYS


@pytest.mark.parametrize("name", sorted(COMMANDS | OTHER_WAYS))
def test_each_command_has_a_real_run(name: str) -> None:
    assert name in KEPT


@pytest.mark.parametrize("page", PAGES)
def test_each_page_has_a_real_run_or_a_reason_why_not(page: str) -> None:
    has_run = page in {name.partition("#")[0] for name in KEPT}
    assert has_run is not (page in NO_RUN)


def test_pages_without_a_run_exist() -> None:
    assert NO_RUN.keys() <= set(PAGES)


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.test)
def test_what_a_promise_names_exists(promise: Promise) -> None:
    assert promise.names
    assert [name for name in promise.names if not exists(name)] == []


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.test)
def test_a_promise_is_short_and_runs_anywhere(promise: Promise) -> None:
    assert promise.marks & LEFT_OUT == set()


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_every_promise_is_seen(file: Path) -> None:
    """One of a class or of a whole file would be run, and not be seen here."""
    module = ast.parse(file.read_text())
    tests = [part for part in module.body if isinstance(part, ast.FunctionDef)]
    seen = parts(*(decorator for test in tests for decorator in test.decorator_list))
    assert len(calls(seen, "pytest.mark.promise")) == len(calls(parts(module), "pytest.mark.promise"))


MADE = """
import pytest

pytestmark = pytest.mark.gdb

@pytest.mark.promise("tree", "docs/tree.md")
@pytest.mark.parametrize("every", [10, pytest.param(1, marks=pytest.mark.slow)])
def test_all(every): ...

@pytest.mark.parametrize("every", [pytest.param(10, marks=[pytest.mark.promise("sql")]), pytest.param(1)])
def test_one(every): ...

@pytest.mark.slow
def test_none(): ...
"""


def test_marks_are_those_of_the_file_the_test_and_the_parameter() -> None:
    assert list(promises_in(MADE, "f.py")) == [
        Promise("f.py::test_all", ["tree", "docs/tree.md"], {"gdb", "promise", "parametrize"}),
        Promise("f.py::test_all", ["tree", "docs/tree.md"], {"gdb", "promise", "parametrize", "slow"}),
        Promise("f.py::test_one", ["sql"], {"gdb", "promise", "parametrize"}),
    ]
