"""What must hold for any file whatever, and how it is looked at."""

from __future__ import annotations

import faulthandler
import json
import os
import re
import resource
import signal
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from markdown_it import MarkdownIt
from typer.testing import CliRunner

from tracer.cli.app import app
from tracer.trace import TraceError, load

CPU_SECONDS = 60
"""Of one command; damaged traces take less than 1"""
WALL_SECONDS = 180
"""Of one command that waits for something"""
MEMORY = 4 << 30
"""Of the process: address space, also that of torch's libraries"""
PAGE = "o.html"
EXPORTS = {"chrome": "o.json", "speedscope": "o.ss", "perfetto": "o.pf", "parquet": "o.parquet"}
VERBS = (
    ["tree"],
    ["top"],
    ["top", "--by", "source"],
    ["tree", "--api", "--limit", "0"],
    ["tree", "--step", "1"],
    ["watch"],
    ["report"],
    ["report", "--steady"],
    ["report", "--only", "kernels"],
    ["report", "--only", "cuda"],
    ["report", "-o", PAGE, "--force"],
    ["pack", "-o", "o.xz", "--force"],
    *(["export", "--to", to, "-o", name, "--force"] for to, name in EXPORTS.items()),
    *([["explain", "aten::mm"]] if find_spec("torch") else []),
)
# Beside these all that is not ASCII is fine but what has no width or turns the direction of a line.
_RAW = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
_SCRIPTS = 4
_OWN_HTML = re.compile(r"</?details>|</?summary>|<br>")


class TooLongError(BaseException):
    """More CPU time than a damaged trace may take."""


class StoodStillError(TooLongError):
    """Much time and little CPU time."""


def limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))


def faults_of(file: Path, verbs: list[list[str]]) -> Iterator[str]:
    """A line for each thing that does not hold when the file is loaded, and read by these commands.

    What stands still is tried again: on a busy machine that need not be the file's doing. The stacks of all
    threads are on stderr then.
    """
    for verb in ([], *verbs):
        if verb == ["watch"] and not any(file.read_bytes()[:8]):
            continue  # waits for a recording that begins
        look = _of_verb if verb else _of_loading
        try:
            fault = look(file, verb)
        except StoodStillError:
            try:
                fault = look(file, verb)
            except StoodStillError as error:
                fault = _where(error)
        if fault:
            yield f"{' '.join(verb) or 'load'}: {fault}"


def _of_loading(file: Path, _: list[str]) -> str:
    try:
        with _limited_time():
            load(file)
    except TraceError:
        return ""
    except StoodStillError:
        raise
    except BaseException as error:
        return _where(error)
    return ""


def _of_verb(file: Path, verb: list[str]) -> str:
    before = set(os.listdir())
    arguments = [*verb, "--from", str(file)] if verb[0] == "explain" else [verb[0], str(file), *verb[1:]]
    try:
        with _limited_time():
            done = CliRunner().invoke(app, arguments)
    except StoodStillError:
        raise
    except BaseException as error:
        return _where(error)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        return _where(done.exception)
    if done.exit_code not in (0, 1, 2):
        return f"exit status {done.exit_code}"
    if done.exit_code and not re.fullmatch(r"tracer: [^\n]+\n", done.stderr):
        return f"exit status {done.exit_code} with {done.stderr[:200]!r}"
    if "not enough memory to read" in done.stderr:
        return "too much memory"
    for stream in (done.stdout, done.stderr):
        if raw := _RAW.search(stream):
            return f"raw {raw[0]!r} in {stream[max(raw.start() - 60, 0) : raw.end() + 20]!r}"
    if done.exit_code == 0 and verb[0] == "report" and (fault := markdown_fault(done.stdout)):
        return fault
    outputs = [verb[verb.index("-o") + 1]] if "-o" in verb else []
    if done.exit_code == 0 and outputs == [PAGE] and (fault := page_fault(Path(PAGE).read_text())):
        return fault
    if more := set(os.listdir()) - before - set(outputs):
        return f"left behind: {', '.join(sorted(more))}"
    if done.exit_code == 0 and outputs and outputs[0] in (EXPORTS["chrome"], EXPORTS["speedscope"]):
        try:
            json.loads(Path(outputs[0]).read_bytes(), parse_constant=_no_number)
        except ValueError as error:
            return f"{outputs[0]} is no JSON: {error}"
    return ""


def page_fault(page: str) -> str:
    """What of an HTML page comes from a name: letters that hide, scripts, images."""
    if raw := _RAW.search(page):
        return f"raw {raw[0]!r} in a page"
    if (scripts := page.count("<script")) != _SCRIPTS:
        return f"{scripts} scripts in a page"
    return "an image in a page" if "<img" in page else ""


def markdown_fault(text: str) -> str:
    """What of a report comes from a name and not from tracer: HTML, links, headings."""
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    for before, token in zip([None, *tokens], tokens, strict=False):
        children = token.children or []
        for each in (token, *children):
            if each.type.startswith("html") and "<" in _OWN_HTML.sub("", each.content):
                return f"HTML {each.content[:100]!r}"
            ours = each.type == "link_open" and re.fullmatch(
                "#[a-z-]+", str(each.attrs["href"])
            )  # the contents
            if each.type in ("link_open", "image") and not ours:
                return f"a link to {each.attrs}"
        heading = before is not None and before.type == "heading_open"
        if heading and any(each.type == "text" and "INJECTED" in each.content for each in children):
            return f"a heading {token.content[:100]!r}"
    return ""


@contextmanager
def _limited_time() -> Iterator[None]:
    def too_long(number: int, _: object) -> None:
        if number == signal.SIGPROF:
            raise TooLongError(f"more than {CPU_SECONDS} s of CPU time")
        faulthandler.dump_traceback(sys.__stderr__ or 2)
        raise StoodStillError(f"more than {WALL_SECONDS} s")

    timers = {signal.ITIMER_PROF: CPU_SECONDS, signal.ITIMER_REAL: WALL_SECONDS}
    signal.signal(signal.SIGPROF, too_long)
    signal.signal(signal.SIGALRM, too_long)
    for timer, seconds in timers.items():
        signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        for timer in timers:
            signal.setitimer(timer, 0)


def _no_number(text: str) -> None:
    raise ValueError(text)


def _where(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "/tracer/" in frame.filename and "/tests/" not in frame.filename]
    place = (own or frames or [None])[-1]
    where = f" at {Path(place.filename).name}:{place.lineno}" if place else ""
    return f"{type(error).__name__}{where}: {str(error)[:160]!r}"


@contextmanager
def own_folder() -> Iterator[Path]:
    """What commands write goes into a folder of their own, which ends with the block."""
    came_from = os.getcwd()
    with tempfile.TemporaryDirectory(prefix="fuzz") as folder:
        os.chdir(folder)
        try:
            yield Path(folder)
        finally:
            os.chdir(came_from)
