"""A pattern takes time in proportion to its text: the texts of a trace may be a stranger's."""

from __future__ import annotations

import ast
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tracer.analysis.components import COMPONENTS, VENDORS
from tracer.analysis.families import FAMILIES
from tracer.trace.names import roles

ROOT = Path(__file__).parents[2] / "tracer"
WITHIN = 0.02
"""Seconds of CPU for 6,000 characters: ten times what a pattern takes that reads each a few times"""
TAKES_ITS_TIME = {
    "analysis/sql.py": "the user's own query",
    "base/torch_abi.py": "what torch prints of its registrations",
    "debugger/breakpoints.py": "the user's own breakpoints",
    "debugger/program.py": "the names of Python's libraries",
    "debugger/overlay_sources.py": "torch's own files",
    "dispatch/declarations.py": "torch's own files",
    "recording/compiled/regions.py": "code that torch wrote",
}
LENGTH = 6_000
PIECES = (
    *"a a: a:: / /a ( < a< 0 0. ` [a] [ a. . \\ _ - ' \" a= & ~ * (a a( 0x | @ % 0, ,".split(),
    *(" ", "a ", "00 ", "\n", "a\n", " \n", "\t", " ,"),
)

FORMS = (
    (r"\(\?(?:P<\w+>|<?[:=!])", "("),
    (r"\\[wS]|(?<!\\)\.|(?<!\\)\[\^[^]]+\]", "a"),
    (r"\\d", "0"),
    (r"\\s", " "),
    (r"\\[bBAZ]|(?<!\\)[\^$*+?]|(?<!\\)\{[\d,]+\}", ""),
    (r"(?<!\\)\[\\?(.)[^]]*\]", r"\1"),
    (r"\\\(", "\x01"),
    (r"\\\)", "\x02"),
    (r"\\(.)", r"\1"),
)
"""Parts of a pattern, and texts that fit them; 1 and 2 are parentheses of the text"""


def patterns() -> Iterator[tuple[str, str, str]]:
    """Module, pattern, and how it is applied."""
    for file in sorted(ROOT.rglob("*.py")):
        text = file.read_text()
        for node in ast.walk(ast.parse(text)):
            called = node.func if isinstance(node, ast.Call) else None
            if not isinstance(called, ast.Attribute) or ast.unparse(called.value) != "re" or not node.args:
                continue
            if not isinstance(node.args[0], ast.Constant):
                continue
            ways = {called.attr}
            if called.attr == "compile":
                name = text.splitlines()[node.lineno - 1].split(" ")[0].rstrip(":")
                ways = set(re.findall(rf"\b{re.escape(name)}\.(\w+)\(", text)) or {"match", "search"}
            exact = {way if way in ("match", "fullmatch") else "search" for way in ways}
            yield from ((str(file.relative_to(ROOT)), node.args[0].value, way) for way in sorted(exact))


def seconds(pattern: re.Pattern[str], way: str, text: str) -> float:
    begin = time.process_time()
    getattr(pattern, way)(text)
    return time.process_time() - begin


def own_pieces(pattern: str) -> set[str]:
    """What may fit each group of the pattern, and the whole: `_v0` and `_pts` of `((_v\\d+)|_pt[sd])+`."""
    for form, text in FORMS:
        pattern = re.sub(form, text, pattern)
    parts = {pattern.translate({ord(sign): "" for sign in "()"}), *re.split(r"[(|)]", pattern)}
    return {part.translate({1: "(", 2: ")"}) for part in parts if len(part) > 1}


def slow_text(pattern: re.Pattern[str], way: str, length: int = LENGTH) -> str | None:
    """The piece of which a long text is slow to read; what fits parts of the pattern is tried, too.

    Shorter ones come first: some would not come back.
    """
    for piece in (*PIECES, *sorted(own_pieces(pattern.pattern))):
        for end in ("", "!"):
            for part in (length // 20, length // 5, length):
                text = (piece * part)[:part] + end
                if seconds(pattern, way, text) > WITHIN and seconds(pattern, way, text) > WITHIN:
                    return piece
    return None


def test_the_pieces_find_a_pattern_that_goes_back() -> None:
    assert slow_text(re.compile(r"(?:[\w~]+::)+(?=\w+::)"), "search") == "a"
    assert slow_text(re.compile(r"(.*?)(?:begins_)+(.+)_at_(\d+)"), "fullmatch") == "begins_"
    assert slow_text(re.compile(r"((_v\d+)|(_pt[sd][sz]))+$"), "search") in ("_v0", "_ptss")
    assert slow_text(re.compile(r"(.+) \((.+):(\d+)\)"), "fullmatch") in (" (", "a (a:0)")


def test_no_pattern_goes_back_over_a_long_text() -> None:
    every = list(patterns())
    assert len(every) > 150
    slow = [(module, text, way, slow_text(re.compile(text), way)) for module, text, way in every]
    found = [one for one in slow if one[3] is not None]
    assert [one for one in found if one[0] not in TAKES_ITS_TIME] == []


def test_no_rule_on_names_goes_back() -> None:
    rules = {pattern.pattern for _, pattern in roles._RULES}
    searched = {part for one in (*VENDORS, *COMPONENTS) for part in (one.functions, one.modules)}
    searched |= {part or "" for family in FAMILIES for part in (family.functor, family.pattern)}
    assert min(len(rules), len(searched)) > 20
    assert [rule for rule in rules if slow_text(re.compile(rule), "match")] == []
    assert [rule for rule in searched if slow_text(re.compile(rule), "search")] == []


@pytest.mark.parametrize("module", TAKES_ITS_TIME)
def test_each_exception_is_there(module: str) -> None:
    assert (ROOT / module).is_file()
