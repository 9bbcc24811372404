"""docs/trace_format.md says what csrc/trace/records.h says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tracer.trace.bytes import documents, kept
from tracer.trace.bytes import format as fmt

ROOT = Path(__file__).parents[2]
RECORDS = (ROOT / "csrc/trace/records.h").read_text()
PAGE = (ROOT / "docs/trace_format.md").read_text()


def enumerators(name: str) -> list[tuple[str, int]]:
    body = re.search(rf"enum {name}[^{{]*{{(.*?)}};", RECORDS, re.DOTALL)
    assert body, name
    text = re.sub(r"//[^\n]*", "", body[1])
    return [(word, int(value)) for word, value in re.findall(r"(k\w+) = (\d+)(?![\du]*\s*<<)", text)]


@pytest.mark.parametrize(
    "name",
    "FileState ClockKind HeaderFlags Stream HopEvent CallSite Definition FunctionDomain HopFlags TensorFlags "
    "ActivityKind ValueFlags".split(),
)
def test_every_number_is_there(name: str) -> None:
    found = enumerators(name)
    assert found
    for word, value in found:
        assert re.search(rf"\b{value} `{word}`|`{word}` \({value}\)", PAGE), f"{value} `{word}`"


@pytest.mark.parametrize(("struct", "heading"), [("FileHeader", "Header page"), ("ChunkHeader", "Chunk")])
def test_every_field_is_there_with_its_offset(struct: str, heading: str) -> None:
    body = re.search(rf"struct {struct} {{(.*?)}};", RECORDS, re.DOTALL)
    assert body
    fields = re.findall(r"(\w+)(?:\[8\])?;\s*//\s*(\d+)", body[1])
    section = PAGE[PAGE.index(f"## {heading}\n") :]
    rows = re.findall(r"^\| (\d+) \| \d+ \| `(\w+)` \|", section, re.MULTILINE)
    assert [(name, int(offset)) for name, offset in fields] == [
        (name, int(offset)) for offset, name in rows[: len(fields)]
    ]


def test_the_words_of_each_event() -> None:
    rows = re.findall(r"^\| (\d+) `k\w+` \| (\d+)(?: \+ n)? \|", PAGE, re.MULTILINE)
    assert {int(kind): int(words) for kind, words in rows} == {
        kind: words for kind, words in enumerate(fmt.EVENT_WORDS) if words
    }


def test_the_version() -> None:
    assert PAGE.splitlines()[2].startswith(
        f"Format version {fmt.FORMAT_VERSION}; the reader reads version {fmt.OLDEST_VERSION} too"
    )


def names_of(form: Any) -> Iterator[str]:
    """The names that a form of a document has, at any depth."""
    if isinstance(form, dict):
        for name, value in form.items():
            if isinstance(name, str):
                yield name
            yield from names_of(value)
    elif isinstance(form, list | tuple):
        for each in form:
            yield from names_of(each)
    elif isinstance(form, kept.Each):
        yield from names_of(form.value)


@pytest.mark.parametrize("forms", [documents._DOCUMENTS, kept.DOCUMENTS], ids=["read", "kept"])
def test_every_name_in_a_document_is_there(forms: dict[str, Any]) -> None:
    section = PAGE[PAGE.index("## JSON documents\n") : PAGE.index("## Stream of activities\n")]
    options = set(names_of(forms["environment"]["options"]))
    known = set(re.findall(r"`([\w.]+)(?::N)?`", section))
    assert {name for name in names_of(forms) if name not in options} - known == set()
