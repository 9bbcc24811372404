"""What a redacted trace keeps has a rule for each document and field that a reader knows."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from synthetic import CERTIFICATE, one_hop

from tracer.base.known_names import KnownNames
from tracer.trace import load
from tracer.trace.bytes import documents, kept
from tracer.trace.bytes.kept_names import Names
from tracer.trace.bytes.redact import redact
from tracer.trace.certificate.hops import NO_GREENLETS
from tracer.trace.certificate.verdict import NOT_JOINED

RECORDING = Path(documents.__file__).parents[2] / "recording"


def without_rule(form: Any, rule: Any, place: str) -> Iterator[str]:
    """Fields of a form that a rule says nothing of; a rule that is a function decides of all below it."""
    if isinstance(form, (list, tuple)) and isinstance(rule, list):
        yield from without_rule(form[0], rule[0], place)
    elif isinstance(form, dict) and isinstance(rule, dict):
        for name, inner in form.items():
            if name in rule:
                yield from without_rule(inner, rule[name], f"{place}.{name}")
            elif isinstance(name, str):
                yield f"{place}.{name}"


def written_kinds() -> set[str]:
    """The second argument of each call of write_document, made at once or later by functools.partial."""
    found = set()
    for file in RECORDING.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if not isinstance(node, ast.Call):
                continue
            if any(ast.unparse(each).endswith("write_document") for each in (node.func, *node.args[:1])):
                found |= {each.value for each in node.args if isinstance(each, ast.Constant)}
    return found


def test_each_document_that_a_recording_writes_has_a_rule() -> None:
    kinds = written_kinds()
    assert {"environment", "certificate", "not_joined"} <= kinds
    assert kinds <= kept.DOCUMENTS.keys()


def test_each_field_that_a_reader_checks_has_a_rule() -> None:
    known = documents._DOCUMENTS
    missing = {place for kind in known for place in without_rule(known[kind], kept.DOCUMENTS[kind], kind)}
    assert missing == set()


@pytest.mark.parametrize(
    ("documents", "says"),
    [
        ({"not_joined": {"count": 2}}, NOT_JOINED),
        ({"certificate": CERTIFICATE | {"modules": True, "greenlets_lost": True}}, NO_GREENLETS),
    ],
)
def test_a_redacted_trace_says_what_it_lacks(tmp_path: Path, documents: dict[str, Any], says: str) -> None:
    before = load(one_hop(**documents).write(tmp_path / "x.trace")).certificate
    assert says in before["why"] + before["not_visible"]
    with open(tmp_path / "y.trace", "wb") as output:
        redact(tmp_path / "x.trace", output, KnownNames())
    after = load(tmp_path / "y.trace").certificate
    for name in ("complete", "verdict", "why", "not_visible"):
        assert after[name] == before[name], name


def test_modules_of_torch_python_and_tracer_are_not_names_of_the_user() -> None:
    names = Names(KnownNames())
    for name in ("torch._dynamo", "tracer.recording.optimizer_hook", "json.decoder", "torches.mine"):
        assert names.range(f"\x1fimport:{name}#1") == f"\x1fimport:{name}#1"
    assert list(names.done.left["imported modules"]) == ["torches.mine"]


@pytest.mark.parametrize("path", ["x/p.py", "p.py", "~my/long name.py", "library.py"])
def test_a_file_outside_the_script_s_folder_fits_into_its_place(path: str) -> None:
    names = Names(KnownNames())
    names.folder, names.cwd = "/work/one/two/three", "/work"
    assert 0 < len(names.file(path)) <= len(path)
    assert names.file(path) == names.file(path)
    kept = [name for name in names.done.left.get("files", {}) if name != names.file(path)]
    assert kept == []  # what is printed is what is in the file
