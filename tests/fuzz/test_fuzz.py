"""A minute of `make fuzz` with a fixed seed, and that it finds what it is for."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from bases import bases
from calls import TRACE
from checks import faults_of, markdown_fault, own_folder
from mutations import mutated

from tracer.advice.steady import Steady
from tracer.trace import load

ROOT = Path(__file__).parents[2]
CASES = 60
# Faults that were mended, put back: the process of a worker imports this module at its start.
PLANTED = {
    "documents that are not checked": """
import json
from tracer.trace.bytes import definitions
definitions.read_document = lambda kind, content: (json.loads(content), False)
""",
    "a raw escape": """
import re
from tracer.cli import harmless
from tracer.report import tree
tree.visible = lambda text, longest=None: text
harmless.visible = tree.visible
""",
    "a crash": """
import os
from tracer.trace.bytes import definitions
def document(self, *arguments):
    if self.processes and len(self.processes) > 1:
        os.abort()
    return real(self, *arguments)
real, definitions.Definitions._add_document = definitions.Definitions._add_document, document
""",
}


def fuzz(folder: Path, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "tests" / "fuzz" / "run.py"), "--folder", "kept", *options],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(folder), **environment},  # some crash
        capture_output=True,
        text=True,
        check=False,
    )


def test_rules_of_advice_have_steps_to_look_at(tmp_path: Path) -> None:
    base = next(base for base in bases(recorded=True) if base.name == "advised")
    (tmp_path / "run.trace").write_bytes(base.data)
    steady = Steady.of(load(tmp_path / "run.trace"))
    assert {"aten::embedding", "aten::softmax.int", "aten::bmm"} <= set(steady.hops["op"])
    assert any("DataLoader" in name for name in steady.window(steady.trace.ranges)["name"])


@pytest.mark.slow
def test_a_minute_of_mutations(tmp_path: Path) -> None:
    done = fuzz(tmp_path, "--cases", str(CASES), "--verbs", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.match(rf"{CASES} mutated traces in \d+ s: .*documents \d+.*\n0 faults\n", done.stdout)
    assert {path.suffix for path in (tmp_path / "kept").iterdir()} == {".trace", ".log"}


def test_a_number_makes_the_same_case() -> None:
    known = bases()
    cases = [mutated(known, 5, number) for number in range(20)]
    assert [mutated(bases(), 5, number) for number in range(20)] == cases
    assert len({data for _, data in cases}) == 20


@pytest.mark.parametrize(
    ("planted", "cases", "fault"),
    [
        ("documents that are not checked", ["--cases", "12", "--verbs", "1", "--seed", "2"], "Error at "),
        ("a raw escape", ["--cases", "20", "--verbs", "2", "--strings", "--jobs", "1"], "raw '"),
        ("a crash", ["--cases", "2", "--verbs", "1", "--jobs", "1"], "ended with status -6"),
    ],
)
def test_a_planted_fault_is_found_and_its_input_kept(
    tmp_path: Path, planted: str, cases: list[str], fault: str
) -> None:
    (tmp_path / "sitecustomize.py").write_text(PLANTED[planted])
    done = fuzz(tmp_path, *cases, "--only", "tree", PYTHONPATH=f"{tmp_path}:{ROOT}")
    assert done.returncode == 1, done.stdout + done.stderr
    if planted == "a crash":
        assert "\n1 mutated traces in " in done.stdout, "another worker goes on with the next case"
    line = next(line for line in done.stdout.splitlines() if fault in line)
    kept = Path(line.partition(":")[0])
    assert fault in kept.with_suffix(".txt").read_text()
    if planted == "documents that are not checked":
        again = fuzz(tmp_path, "--only", "certificate", str(kept), PYTHONPATH=f"{tmp_path}:{ROOT}")
        assert again.returncode == 1
        assert fault in again.stdout
        assert fuzz(tmp_path, "--only", "certificate", str(kept)).returncode == 0


def test_what_holds_for_any_file(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no trace")
    (tmp_path / "empty").touch()
    with own_folder():
        for name in ("text", "empty"):
            assert list(faults_of(tmp_path / name, [["tree", TRACE], ["report", TRACE]])) == []


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("# INJECTED", "heading"),
        ("a <img src=x> b", "HTML"),
        ("<div>", "HTML"),
        ("[a](b)", "link"),
        ("`# INJECTED` <details><summary>\n\n```text\n# INJECTED <b>\n```", ""),
        ("## `INJECTED`", ""),
    ],
)
def test_what_of_a_report_comes_from_a_name(text: str, fault: str) -> None:
    assert fault in markdown_fault(text)
    assert bool(markdown_fault(text)) == bool(fault)
