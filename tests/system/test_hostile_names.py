"""Names that are made to fool a terminal or to break out of markdown."""

from __future__ import annotations

import os
import pty
import re
import shutil
import subprocess
import sys
import unicodedata
from pathlib import Path

import hostile
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from synthetic import TraceWriter
from terminals import read_terminal

from tracer.base.visible import visible
from tracer.report.cells import code, fenced, item, prose, table, wrapped
from tracer.report.sections import NAMED
from tracer.trace import load
from tracer.trace.names.kernels import short_kernel_name

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "cpu"))

import in_process  # noqa: E402

ENVIRON = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "TERM": "xterm", "COLUMNS": "100"}
RAW = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
HEADINGS = {section.title for section in NAMED.values()}


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return hostile.write(tmp_path_factory.mktemp("evil") / "evil.trace")


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """A command of tracer that only reads, in this process."""
    words = [*map(str, arguments)]
    return subprocess.CompletedProcess(words, *in_process.run(words, Path.cwd(), ENVIRON, ""))


COMMANDS = [
    ["tree"],
    ["tree", "--api", "--limit", "0"],
    ["watch"],
    *(["top", "--by", by] for by in ("hop", "op", "key", "source", "module", "kernel")),
    ["tree", "--op", "nosuch"],
    ["tree", "--thread", "7"],
    ["report"],
    ["report", "--only", "cuda"],
    ["report", "--only", "kernels"],
    ["sql", "select op, key, source, kernel from hops", "--csv"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_nothing_raw_in_a_pipe(trace: Path, command: list[str]) -> None:
    done = run(command[0], trace, *command[1:])
    assert done.returncode == (1 if command[1:] in (["--op", "nosuch"], ["--thread", "7"]) else 0)
    for text in (done.stdout, done.stderr):
        assert not RAW.search(text), RAW.findall(text)
    if len(command) == 1 or command[0] in ("top", "sql"):
        assert r"\x1b]0;title" in done.stdout
        assert r"\u202e" in done.stdout


OTHERS = [
    ["diff", "TRACE", "AGAIN"],
    ["lock", "TRACE"],
    ["certificate", "TRACE"],
    ["ledger", "TRACE"],
    ["sql", "TRACE", "select op, key, source, kernel from hops"],
    ["sql", "TRACE", "select op, key, source, kernel from hops", "--csv"],
    ["sql", "TRACE", "select op from hops", "--json"],
    ["explain", "TRACE", "--from", "TRACE"],
    ["replay", "TRACE", "--hop", "0"],
    ["pack", "TRACE", "--redact", "-o", "/dev/null"],
    ["export", "TRACE", "--to", "speedscope", "-o", "/dev/full"],
]


@pytest.mark.parametrize("command", OTHERS, ids=" ".join)
def test_nothing_raw_on_a_terminal_of_any_command(trace: Path, tmp_path: Path, command: list[str]) -> None:
    ours, theirs = pty.openpty()
    again = shutil.copy(trace, tmp_path / "again.trace")
    words = [{"TRACE": str(trace), "AGAIN": str(again)}.get(word, word) for word in command]
    with subprocess.Popen(
        [sys.executable, "-m", "tracer.cli.app", *words],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "TERM": "dumb", "COLUMNS": "300"},
        stdout=theirs,
        stderr=theirs,
    ):
        os.close(theirs)
        text = read_terminal(ours).decode().replace("\r\n", "\n")
    assert "Traceback" not in text
    assert not RAW.search(re.sub("\x1b\\[[0-9;]*m", "", text)), text


@pytest.mark.parametrize("command", COMMANDS[:4], ids=" ".join)
def test_nothing_raw_on_a_terminal(trace: Path, command: list[str]) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "tracer.cli.app", command[0], str(trace), *command[1:]],
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "TERM": "xterm", "COLUMNS": "300"},
        stdout=theirs,
        stderr=subprocess.PIPE,
    ) as process:
        os.close(theirs)
        data = read_terminal(ours)
    text = re.sub("\x1b\\[[0-9;]*m", "", data.decode()).replace("\r\n", "\n")  # colours are tracer's own
    assert process.returncode == 0
    assert "\\x1b]0;title" in text
    assert not RAW.search(text), RAW.findall(text)


@pytest.mark.parametrize("only", [[], ["--only", "cuda"], ["--only", "kernels"]], ids=str)
def test_a_report_has_the_headings_and_html_of_tracer_alone(trace: Path, only: list[str]) -> None:
    text = run("report", trace, *only).stdout
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    names = 0
    for before, token in zip([None, *tokens], tokens, strict=False):
        children = token.children or []
        for each in (token, *children):
            assert each.type != "image"
            if each.type == "link_open":
                assert re.fullmatch("#[a-z-]+", str(each.attrs["href"]))
            if each.type.startswith("html"):
                assert not re.sub(r"</?(details|summary)>|<w?br>", "", each.content).count("<")
            names += "INJECTED" in each.content
        if before is not None and before.type == "heading_open":
            plain = "".join(each.content for each in children if each.type == "text")
            assert "INJECTED" not in plain
            assert plain in HEADINGS or "".join(each.content for each in children) != plain
    assert names > 10


def test_long_names_are_cut_where_a_line_has_them(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.process()
    writer.hop(0, "aten::" + "x" * (1 << 20), python_kernel="k" * (1 << 20))
    lane = writer.lane()
    lane.define_source(1, "f" * (1 << 20), 3)
    lane.enter(0, source=1)
    lane.exit()
    path = writer.write(tmp_path / "x.trace")
    assert len(load(path).hops["op"][0]) == 8192
    for command in (["tree"], ["top"], ["top", "--by", "kernel"]):
        out = run(command[0], path, *command[1:]).stdout
        assert "... (8,192 characters)" in out
        assert len(out) < 5000
    assert len(run("report", path).stdout) < 200_000


# ---- the functions that write names ------------------------------------------------------------------

PIECES = [
    "`",
    "```",
    "|",
    "\\",
    "<b>",
    "# ",
    "- ",
    "\n",
    " ",
    "]",
    "[a](b)",
    "*",
    "_",
    "~~~",
    "1. ",
    "\x1b",
    "a",
]
texts = st.text() | st.lists(st.sampled_from(PIECES), max_size=40).map("".join)


@given(texts)
def test_visible_is_one_line_without_what_is_hidden(text: str) -> None:
    shown = visible(text)
    assert not {unicodedata.category(letter) for letter in shown} & {"Cc", "Cf", "Cs", "Zl", "Zp"}
    assert not RAW.search(shown)
    assert visible(shown) == shown


def tokens_of(text: str) -> list[tuple[str, str]]:
    tokens = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(text)
    return [(each.type, each.content) for token in tokens for each in (token, *(token.children or []))]


@given(st.lists(texts, max_size=5))
def test_a_fence_is_ended_by_its_end_alone(lines: list[str]) -> None:
    found = tokens_of(f"before\n\n{fenced(lines)}\n\nafter")
    assert [kind for kind, _ in found if kind in ("fence", "paragraph_open")] == [
        "paragraph_open",
        "fence",
        "paragraph_open",
    ]
    assert found[-2][1] == "after" or ("text", "after") in found


@given(texts)
@example("a\\|<b>|")
def test_a_code_span_is_one_cell_and_nothing_else(text: str) -> None:
    found = tokens_of(table(["name", "number:"], [[code(text), "7"]]))
    kinds = [kind for kind, _ in found]
    assert kinds.count("td_open") == 2
    assert not {"html_inline", "link_open", "em_open", "strong_open", "s_open"} & set(kinds)
    assert ("text", "7") in found


@given(texts)
@example("a\\|<b>|")
@example("__0__")
def test_prose_is_text_and_nothing_else(text: str) -> None:
    for found in (tokens_of(table(["name"], [[prose(text)]])), tokens_of(f"So: {prose(text)}")):
        assert {kind for kind, _ in found} <= {
            *("table_open", "thead_open", "tr_open", "th_open", "th_close", "tr_close", "thead_close"),
            *("tbody_open", "td_open", "td_close", "tbody_close", "table_close", "inline", "text"),
            *("paragraph_open", "paragraph_close", "text_special", "softbreak"),
        }


@given(texts)
@example("word " * 19 + "# heading")
@example("word " * 19 + "<div> x")
@example("word " * 19 + "``` x")
@example("0.")
@example("---")
def test_wrapping_begins_no_block(text: str) -> None:
    for found in (
        tokens_of(wrapped(f"The ops of {code(text)} and {prose(text)}")),
        tokens_of(wrapped(prose(text))),
        tokens_of(item(prose(text))),
    ):
        blocks = {kind for kind, _ in found if kind.endswith("_open")} - {
            "bullet_list_open",
            "list_item_open",
        }
        assert blocks <= {"paragraph_open"}
        assert not {kind for kind, _ in found} & {"html_block", "html_inline", "fence", "code_block", "hr"}


@given(
    st.text()
    | st.lists(st.sampled_from(["<", ">", "(", ")", "&", ",", "::", "a", " ", "operator"])).map("".join)
)
def test_any_name_has_a_short_one(name: str) -> None:
    from tracer.analysis.device_kernels import short_device_kernel, table_name

    assert isinstance(short_kernel_name(name), str)
    assert isinstance(table_name(short_device_kernel(name)), str)
    assert isinstance(short_device_kernel(f"_ZN{name}"), str)
