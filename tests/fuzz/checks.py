"""What must hold for any file whatever, and how it is looked at."""

from __future__ import annotations

import ast
import faulthandler
import inspect
import io
import json
import os
import re
import resource
import shutil
import signal
import sys
import tempfile
import tokenize
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from calls import OUTPUT, every_call, typed
from hostile_strings import PLANTED
from markdown_it import MarkdownIt
from typer.testing import CliRunner

from tracer.base.interpreter import bare_helper, helper
from tracer.cli.app import app
from tracer.cli.common import USAGE
from tracer.fleet.processes import MAIN as FLEET_MAIN
from tracer.replay import recipe
from tracer.trace import TraceError, load
from tracer.trace.names.demangle import DEMANGLER

CPU_SECONDS, CPU_SECONDS_A_MB = 30, 2
"""Of one command, as docs/reliability.md says; most take less than 1"""
WALL_SECONDS = 180
"""Of one command that waits for something"""
MEMORY = 4 << 30
"""Of the process: address space, also that of torch's libraries"""
VERBS = every_call()
PICTURE = f"{OUTPUT}.roofline.svg"
"""What `tracer report -o o.md` writes beside it"""
# Beside these all that is not ASCII is fine but what has no width or turns the direction of a line.
_RAW = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
_SCRIPTS = 2
_DATA = re.compile(r'<script type="application/octet-stream" id="[a-z]+-data">')
"""A page has two scripts of its own, and data"""
_OWN_HTML = re.compile(r"</?details>|</?summary>|<w?br>")


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
        with _limited_time(file):
            load(file)
    except TraceError:
        return ""
    except StoodStillError:
        raise
    except BaseException as error:
        return _where(error)
    return ""


def _of_verb(file: Path, verb: list[str]) -> str:
    before = {*os.listdir(), *os.listdir("..")}
    outputs = [word for word in verb if word.startswith(f"{OUTPUT}.")]
    outputs += [PICTURE] * (verb[0] == "report")
    for output in outputs:
        _remove(Path(output))
    words = typed(verb, file)
    try:
        with _limited_time(file), watched() as seen:
            done = CliRunner().invoke(app, words)
    except StoodStillError:
        raise
    except BaseException as error:
        return _where(error)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        return _where(done.exception)
    if done.exit_code not in (0, 1, 2):
        return f"exit status {done.exit_code}"
    if done.exit_code == USAGE and not re.fullmatch(r"(tracer: [^\n]+\n)+", done.stderr):
        return f"exit status {done.exit_code} with {done.stderr[:200]!r}"
    if "not enough memory to read" in done.stderr:
        return "too much memory"
    for stream in (done.stdout, done.stderr):
        if raw := _RAW.search(stream):
            return f"raw {raw[0]!r} in {stream[max(raw.start() - 60, 0) : raw.end() + 20]!r}"
    if done.stdout and "--json" in verb:
        if fault := json_fault(done.stdout):
            return fault
    elif done.exit_code == 0 and verb[0] == "report" and (fault := markdown_fault(done.stdout)):
        return fault
    if more := {*os.listdir(), *os.listdir("..")} - before - set(outputs):
        return f"left behind: {', '.join(sorted(more))}"
    page = file.with_name(f".{file.stem}.html.{os.getpid()}")  # beside the trace until it is whole
    written = outputs + [str(page.absolute())] * ("--html" in verb)
    if fault := next((fault for event in seen if (fault := deed(event, verb, written))), ""):
        return fault
    beside = file.with_suffix(".html")
    for output in filter(os.path.exists, [*outputs, *[str(beside)] * ("--html" in verb)]):
        if fault := output_fault(Path(output)):
            return f"{output}: {fault}"
    if "--html" in verb:
        beside.unlink(missing_ok=True)
    return ""


def output_fault(output: Path) -> str:
    """What of a file that a command wrote comes from a text of the trace."""
    if output.is_dir():
        return ""
    kind = output.suffix
    if kind == ".html":
        return page_fault(output.read_text())
    if kind == ".md":
        return markdown_fault(output.read_text())
    if kind == ".py":
        return script_fault(output.read_bytes())
    if kind in (".json", ".chrome", ".speedscope"):
        return json_fault(output.read_bytes())
    if kind in (".svg", ".lock") and (raw := _RAW.search(output.read_text())):
        return f"raw {raw[0]!r}"
    return ""


def json_fault(text: str | bytes) -> str:
    """Why it is not one JSON object."""
    try:
        document = json.loads(text, parse_constant=_no_number)
    except ValueError as error:
        return f"no JSON: {error}"
    return "" if isinstance(document, dict) else f"a JSON {type(document).__name__}"


def script_fault(text: bytes) -> str:
    """What a script of `tracer replay --script` does beside making tensors and calling one operator."""
    try:
        tree = ast.parse(text)
        encoding, _ = tokenize.detect_encoding(io.BytesIO(text).readline)
    except (SyntaxError, ValueError) as error:
        return f"no Python: {error}"
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)) and ast.unparse(node) not in _IMPORTS:
            return f"has {ast.unparse(node)}"
        if isinstance(node, ast.Call) and not _is_expected(node.func):
            return f"calls {ast.unparse(node)[:100]}"
    return "" if encoding == "utf-8" else f"is in {encoding}"


_IMPORTS = ("import torch", "import time")
_CALLS = {
    *("torch.device", "torch.autocast", "torch._neg_view", "torch.manual_seed", "torch.cuda.synchronize"),
    *("torch._C._AutoDispatchBelowAutograd", "torch._C._AutoDispatchBelowADInplaceOrView"),
    *("guard.__enter__", "time.perf_counter", "print", "range", "float", "complex", "tensor", "getattr"),
    *(".conj", ".requires_grad_"),
}
_OPERATOR = re.compile(r"torch\.ops\.aten\.\w+(\.\w+)?")


def _is_expected(function: ast.expr) -> bool:
    """Whether tracer's own code calls it, or it is an operator of ATen; from_file is one that opens files."""
    name = _called(function)
    return name in _CALLS | _calls_of_recipe() or (
        _OPERATOR.fullmatch(name) is not None and "from_file" not in name
    )


def _called(function: ast.expr) -> str:
    """`torch.device`, or `.to` of what another call returned."""
    whole = ast.unparse(function)
    if re.fullmatch(r"[\w.]+", whole):
        return whole
    if (
        isinstance(function, ast.Call)
        and isinstance(function.func, ast.Name)
        and function.func.id == "getattr"
    ):
        return ast.unparse(function.args[0])
    return f".{function.attr}" if isinstance(function, ast.Attribute) else whole


@cache
def _calls_of_recipe() -> set[str]:
    """What the function that makes tensors calls: it is tracer's own text."""
    nodes = ast.walk(ast.parse(inspect.getsource(recipe)))
    return {_called(node.func) for node in nodes if isinstance(node, ast.Call)}


# What else a command does: names of files are those that Python opens.
_EVENTS: list[tuple[str, tuple[Any, ...]]] | None = None
_PROGRAMS = ("os.system", "os.exec", "os.posix_spawn", "subprocess.Popen", "socket.connect")
_STARTED = (bare_helper(DEMANGLER), helper(FLEET_MAIN))
"""Programs of ours, which read what a trace has from their input"""
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    if _EVENTS is not None and (event == "open" or event in _PROGRAMS):
        _EVENTS.append((event, arguments))


sys.addaudithook(_note)


@contextmanager
def watched() -> Iterator[list[tuple[str, tuple[Any, ...]]]]:
    """The files that the block opens, and the programs that it starts."""
    global _EVENTS
    _EVENTS = found = []
    try:
        yield found
    finally:
        _EVENTS = None


def deed(event: tuple[str, tuple[Any, ...]], verb: list[str], outputs: list[str]) -> str:
    """What of it no command does."""
    name, arguments = event
    if name != "open":
        ours = name == "subprocess.Popen" and arguments[1] in _STARTED
        return "" if ours else f"{name} {str(arguments)[:200]}"
    path, mode, flags = arguments
    writes = (isinstance(mode, str) and set(mode) & set("wax+")) or (
        isinstance(flags, int) and flags & _WRITES
    )
    if not writes or not isinstance(path, (str, bytes)):
        return ""
    path = os.path.abspath(os.fsdecode(path))
    here, kept = os.getcwd(), (tempfile.gettempdir(), os.path.expanduser("~/.cache"), "/dev/")
    inside = [os.path.join(here, output) for output in outputs]
    if path == here or "__pycache__" in path:  # a file without a name; Python's own
        return ""
    if path in inside or path.startswith(tuple(f"{output}/" for output in inside)):
        return ""
    if PLANTED in path or not path.startswith((*kept, os.path.join(here, "."))):
        return f"writes {path}"
    return ""


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def page_fault(page: str) -> str:
    """What of an HTML page comes from a name: letters that hide, scripts, images."""
    if raw := _RAW.search(page):
        return f"raw {raw[0]!r} in a page"
    scripts = Counter(re.findall(r"<script[^>]*>?", page))
    own = [of for of in scripts if of != "<script>" and not _DATA.fullmatch(of)]
    if own or scripts["<script>"] not in (0, _SCRIPTS):
        return f"scripts in a page: {dict(scripts)}"
    return "an image in a page" if "<img" in page else ""


def markdown_fault(text: str) -> str:
    """What of a report comes from a name and not from tracer: HTML, links, headings."""
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    for before, token in zip([None, *tokens], tokens, strict=False):
        children = token.children or []
        for each in (token, *children):
            if each.type.startswith("html") and "<" in _OWN_HTML.sub("", each.content):
                return f"HTML {each.content[:100]!r}"
            if each.type == "link_open" and not re.fullmatch("#[a-z-]+", str(each.attrs["href"])):
                return f"a link to {each.attrs}"  # not of the contents
            if each.type == "image" and each.attrs["src"] != PICTURE:
                return f"an image {each.attrs}"
        heading = before is not None and before.type == "heading_open"
        if heading and any(each.type == "text" and "INJECTED" in each.content for each in children):
            return f"a heading {token.content[:100]!r}"
    return ""


@contextmanager
def _limited_time(file: Path) -> Iterator[None]:
    seconds_of_cpu = CPU_SECONDS + CPU_SECONDS_A_MB * file.stat().st_size / 1e6

    def too_long(number: int, _: object) -> None:
        if number == signal.SIGPROF:
            raise TooLongError(f"more than {seconds_of_cpu:.0f} s of CPU time")
        faulthandler.dump_traceback(sys.__stderr__ or 2)
        raise StoodStillError(f"more than {WALL_SECONDS} s")

    timers = {signal.ITIMER_PROF: seconds_of_cpu, signal.ITIMER_REAL: WALL_SECONDS}
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
        inner = Path(folder, "inner")
        inner.mkdir()
        os.chdir(inner)
        try:
            yield inner
        finally:
            os.chdir(came_from)
