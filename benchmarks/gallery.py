"""Records the gallery, examples/gallery, and writes a report of each entry.

    python benchmarks/gallery.py                   every entry that this machine can run
    python benchmarks/gallery.py --only rotary     one of them; may be given more than once
    python benchmarks/gallery.py --gpu             those that use a GPU, on a machine that has one
    python benchmarks/gallery.py --again FOLDER    no recording: reports of FOLDER/NAME.trace.xz
    python benchmarks/gallery.py --index           no recording: the table in examples/README.md

Traces go to build/gallery, and so do reports made on a CPU, as NAME.md: any machine can make them again.
Reports made on a GPU go to reports/gallery, as NAME.md if the entry needs a GPU, else as NAME.gpu.md.
"""

from __future__ import annotations

import argparse
import ast
import lzma
import os
import re
import shlex
import subprocess
import sys
import sysconfig
import tempfile
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from gallery_entries import (
    ROOT,
    Entry,
    GalleryError,
    LackingError,
    gpu_is_there,
    gpu_names,
    missing,
    names_of,
    read_entries,
    tools_path,
)

REPORTS = ROOT / "reports" / "gallery"
TRACES = ROOT / "build" / "gallery"
INDEX = ROOT / "examples" / "README.md"
TABLE = ("<!-- written by benchmarks/gallery.py --index -->\n", "<!-- until here -->\n")
AGAIN = "`make gallery`"  # in place of a report that any machine can make
LONGEST = 200  # lines of a report
TIMEOUT = 300  # seconds for each command
OUR_LINES = re.compile(r"^tracer: .*\n(?:  .*\n)*", re.MULTILINE)
LACKS = 3  # exit status of a script that needs what this machine has not

# What a newcomer must know about the times in the trees, and about those in a GPU's report.
TIMES = (
    "A first call loads code and sets up libraries and caches, so its time says little about later calls. "
    "In a tree, N x T means N identical subtrees with the median time T."
)
GPU_TIMES = "Times are CPU times; 'GPU' marks GPU time. In a tree a time includes everything below the line."

# Folders of the machine that recorded, and their replacements: packages, the interpreter, caches.
_ABSOLUTE = r"(?<![\w.~-])/(?:[^\s/`\"'|()<>]+/)*?"
MACHINE = [
    (re.compile(_ABSOLUTE + pattern), instead)
    for pattern, instead in (
        (r"(?:site|dist)-packages/", ""),
        (r"bin/(?=python)", ""),
        (r"lib/python3\.\d+/", ""),
        (r"(?=torch_extensions/)", ""),
        (r"torchinductor_[^\s/]+/", "torchinductor/"),
        (r"(?=\.triton/)", ""),
    )
]


# ---- one entry -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Recorded:
    """The result of recording an entry: its output, and whether a GPU was used."""

    out: str
    hops: int
    on_gpu: bool
    made_on: str


def tracer(
    *arguments: str, folder: Path, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """`tracer ARGUMENTS` of this Python, with these variables too."""
    return subprocess.run(
        [f"{sysconfig.get_path('scripts')}/tracer", *arguments],
        cwd=folder,
        env={**os.environ, "PATH": tools_path(), **(environment or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )


def record(entry: Entry) -> Recorded:
    """Runs the script under `tracer record`. GalleryError: it failed, or parts are missing."""
    import tracer as package
    from tracer.trace.certificate.verdict import COMPILED_CODE, NOT_JOINED

    trace = TRACES / f"{entry.name}.trace"
    script = entry.script.relative_to(ROOT)
    with tempfile.TemporaryDirectory(prefix="torchinductor_") as cache:  # code is compiled, not loaded
        run = tracer(
            *("record", "--force", "-o", str(trace), *entry.record, str(script)),
            folder=ROOT,
            environment={"TORCHINDUCTOR_CACHE_DIR": cache},
        )
    if run.returncode == LACKS:
        raise LackingError(_last_line(run.stderr) or "ended with status 3, but does not say what is missing")
    if run.returncode:
        raise GalleryError(f"ended with status {run.returncode}: {_last_line(run.stderr)}")
    made = package.load(trace)
    verdict = made.certificate["verdict"]
    # Scripts that compare tracer with another tool keep the process of that one out of the recording.
    expected = tuple(f" hops; {part}" for part in (COMPILED_CODE, NOT_JOINED))
    if not verdict.startswith("complete") and not verdict.endswith(expected):
        raise GalleryError(f"the recording is incomplete: {verdict}")
    on_gpu = len(made.gpu_activities) > 0 or (entry.uses_gpu and "CUDA" in made.hops["key"].unique())
    devices = names_of(made.devices) or (gpu_names() if on_gpu else [])
    if "gpu" in entry.needs and not on_gpu:
        raise GalleryError("it needs a GPU, but nothing ran on one")
    facts = made.environment
    machine = f"{len(devices)} x {devices[0]}" if on_gpu and devices else facts.get("cpu", "a CPU")
    made_on = f"{machine}, torch {facts['torch']}, on {facts['started_at'][:10]}"
    return Recorded(run.stdout, len(made.hops), on_gpu, made_on)


def report(entry: Entry, recorded: Recorded) -> str:
    """What is shown of an entry, in markdown: what to look at, its output, parts of the tree, the report."""
    trace = f"{entry.name}.trace"
    parts = [
        head(entry),
        *([_filled(entry.gpu_says)] if entry.gpu_says and recorded.on_gpu else []),
        "Made by",
        "\n".join(f"    {line}" for line in commands(entry, recorded.on_gpu)),
        f"on {recorded.made_on}. The script printed",
        _block(recorded.out),
        _filled(f"{GPU_TIMES} {TIMES}" if recorded.on_gpu else TIMES),
    ]
    for tree in entry.shown_trees(recorded.on_gpu):
        shown = _told("tree", trace, *tree_options(entry, tree))
        parts += [f"## {tree['title']}", _block(shown)]
    shown = _told("report", trace, *entry.report_options(recorded.on_gpu))
    parts += [demoted(shown), f"The whole report: `tracer report {trace}`."]
    return of_no_machine("\n\n".join(part.strip("\n") for part in parts) + "\n")


def head(entry: Entry) -> str:
    """What a report of either device begins with: the title, what the entry teaches, what to look at."""
    return f"# {entry.title}\n\n{_filled(entry.teaches)}\n\n{explanation(entry.script)}"


def _filled(prose: str) -> str:
    """In lines of 110 columns. No break at a hyphen: markdown would put a space there."""
    return textwrap.fill(prose, 110, break_long_words=False, break_on_hyphens=False)


def of_no_machine(text: str) -> str:
    """The text without the folders of this machine or of the one that recorded: kernels in Python say where
    their file lies, and lines of the standard library are somebody's lines too."""
    for pattern, instead in MACHINE:  # before ROOT, which may have the packages and the interpreter in it
        text = pattern.sub(instead, text)
    for folder in (ROOT, sysconfig.get_path("stdlib")):
        text = text.replace(f"{folder}/", "")
    return text


def demoted(report: str) -> str:
    """A report as a part of a page: each heading one level lower."""
    lines, fenced = [], False
    for line in report.splitlines():
        fenced ^= line.startswith("```")
        lines.append(f"#{line}" if line.startswith("#") and not fenced else line)
    return "\n".join(lines) + "\n"


def commands(entry: Entry, on_gpu: bool = False) -> list[str]:
    """The commands that record an entry and make its report."""
    trace, script = f"{entry.name}.trace", str(entry.script.relative_to(ROOT))
    return [
        shlex.join(["tracer", "record", "-o", trace, *entry.record, script]),
        *(
            shlex.join(["tracer", "tree", trace, *tree_options(entry, tree)])
            for tree in entry.shown_trees(on_gpu)
        ),
        shlex.join(["tracer", "report", trace, *entry.report_options(on_gpu)]),
    ]


def explanation(script: Path) -> str:
    """The docstring of a script without its first line, which the title repeats, and its commands."""
    text = ast.get_docstring(ast.parse(script.read_text())) or ""
    paragraphs = text.split("\n\n")[1:]
    return "\n\n".join(lines for lines in paragraphs if not lines.startswith("    "))


def tree_options(entry: Entry, tree: dict) -> list[str]:
    """The options of a tree, with the number of the line that holds the text for each `{text}`."""
    lines = entry.script.read_text().splitlines()

    def number(match: re.Match[str]) -> str:
        found = [at for at, line in enumerate(lines, 1) if match[1] in line]
        if len(found) != 1:
            raise GalleryError(f"{len(found)} lines of {entry.script.name} hold {match[1]!r}; make it one")
        return str(found[0])

    return [re.sub(r"\{(.+)\}", number, option) for option in tree["options"]]


def write(entry: Entry, recorded: Recorded, folder: Path | None) -> Path:
    """Write the report into the folder. GalleryError: it is written, but too long to be read."""
    from tracer.report.github import for_github

    path = report_of(entry, recorded.on_gpu, folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    text = for_github(report(entry, recorded))
    path.write_text(text)
    if (lines := text.count("\n")) > LONGEST:
        raise GalleryError(f"the report has {lines} lines, more than {LONGEST}: narrow it in entries.toml")
    return path


def _told(*arguments: str) -> str:
    run = tracer(*arguments, folder=TRACES)
    if run.returncode or not run.stdout.strip():
        raise GalleryError(f"tracer {shlex.join(arguments)}: {_last_line(run.stderr) or 'shows nothing'}")
    return run.stdout


def _block(text: str) -> str:
    return "```text\n" + text.strip("\n") + "\n```"


def _last_line(text: str) -> str:
    """The last line that the script wrote, or if it wrote none that tracer did."""
    for lines in (OUR_LINES.sub("", text).split("\n"), text.split("\n")):
        if said := [line.strip() for line in lines if line.strip()]:
            return said[-1]
    return ""


# ---- all of them ---------------------------------------------------------------------------------


@dataclass
class Tally:
    """The entries that ran, failed or were skipped, with the reasons of the latter."""

    ran: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    needs_gpu: list[str] = field(default_factory=list)

    def text(self) -> str:
        """A line for each that was left out, and one that counts."""
        lines = [f"{name} is skipped: {reason}" for name, reason in self.left_out.items()]
        counts = [f"ran {len(self.ran)}"]
        counts += [f"failed: {_named(self.failed)}"] * bool(self.failed)
        counts += [f"skipped: {len(self.left_out)}"] * bool(self.left_out)
        return "\n".join([*lines, ", ".join([*counts, f"needs a GPU: {_named(self.needs_gpu)}"])])


def run_all(entries: list[Entry], folder: Path | None, has_gpu: bool, jobs: int = 1) -> Tally:
    """Records and reports those that can be, `jobs` at a time, and prints a line for each."""
    TRACES.mkdir(parents=True, exist_ok=True)
    width = max((len(entry.name) for entry in entries), default=0)
    tally = Tally()
    runnable = []
    for entry in entries:
        lacking = missing(entry.needs, has_gpu)
        if "a GPU" in lacking:
            tally.needs_gpu.append(entry.name)
        elif lacking:
            tally.left_out[entry.name] = "it needs " + " and ".join(lacking)
        else:
            runnable.append(entry)

    def run(entry: Entry) -> None:
        name = f"{entry.name:{width}}  "
        if jobs == 1:  # which one is under way
            print(name, end="", flush=True)
        print(f"{'' if jobs == 1 else name}{run_one(entry, folder, tally)}", flush=True)

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(run, runnable))
    place = [entry.name for entry in entries].index
    tally.ran.sort(key=place)
    tally.failed.sort(key=place)
    tally.left_out = {name: tally.left_out[name] for name in sorted(tally.left_out, key=place)}
    return tally


def run_one(entry: Entry, folder: Path | None, tally: Tally) -> str:
    """Records and reports an entry, counts it, and returns what became of it."""
    began = time.monotonic()
    try:
        recorded = record(entry)
        path = write(entry, recorded, folder)
    except LackingError as error:
        tally.left_out[entry.name] = str(error)
        return "skipped"
    except (GalleryError, subprocess.TimeoutExpired) as error:
        tally.failed.append(entry.name)
        return f"FAILED: {error}"
    tally.ran.append(entry.name)
    seconds, size = time.monotonic() - began, path.stat().st_size / 1024
    return f"{seconds:5.1f} s  {recorded.hops:9,} hops  {path.name} {size:.0f} KiB"


def _named(names: list[str]) -> str:
    return f"{len(names)} ({', '.join(names)})" if names else "0"


# ---- the index -----------------------------------------------------------------------------------


def index_table(entries: list[Entry]) -> str:
    """The table of examples/README.md. A report that is not kept has the command that makes it."""
    rows = ["| | script | what it teaches | needs | report |", "|---|---|---|---|---|"]
    for number, entry in enumerate(entries, 1):
        needs = ["a GPU" if need == "gpu" else need for need in entry.needs]
        kept = report_of(entry, on_gpu=True)
        cells = [
            str(number),
            f"[{entry.name}.py](gallery/{entry.name}.py)",
            entry.teaches,
            ", ".join(needs + ["uses a GPU if there is one"] * entry.gpu),
            f"[GPU](../reports/gallery/{kept.name})" if entry.uses_gpu and kept.exists() else AGAIN,
        ]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def report_of(entry: Entry, on_gpu: bool, folder: Path | None = None) -> Path:
    """The report of an entry from a CPU or a GPU; in its own folder if none is given."""
    suffix = ".gpu" if on_gpu and "gpu" not in entry.needs else ""
    return (folder or (REPORTS if on_gpu else TRACES)) / f"{entry.name}{suffix}.md"


def write_index(entries: list[Entry]) -> None:
    before, rest = INDEX.read_text().split(TABLE[0])
    after = rest.split(TABLE[1])[1]
    INDEX.write_text(before + TABLE[0] + index_table(entries) + TABLE[1] + after)


def main() -> int:
    parser = argparse.ArgumentParser(description="Record the gallery and write its reports.")
    parser.add_argument("--only", action="append", metavar="NAME", help="only this entry; repeatable")
    parser.add_argument("--gpu", action="store_true", help="only entries that use a GPU")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="entries at a time (default 1)")
    parser.add_argument(
        "--out", type=Path, help="folder for the reports (default: build/gallery, of a GPU reports/gallery)"
    )
    parser.add_argument("--index", action="store_true", help="only write the table in examples/README.md")
    parser.add_argument(
        "--again", type=Path, metavar="FOLDER", help="no recording: reports of FOLDER/NAME.trace.xz"
    )
    options = parser.parse_args()

    entries = read_entries()
    if options.index:
        write_index(entries)
        return 0
    if unknown := set(options.only or ()) - {entry.name for entry in entries}:
        parser.error(f"no entry {', '.join(sorted(unknown))}; choose {', '.join(e.name for e in entries)}")
    if options.only:
        entries = [entry for entry in entries if entry.name in options.only]
    if options.again:
        return again(entries, options.again, options.out, options.gpu)
    has_gpu = gpu_is_there()
    if options.gpu:
        entries = [entry for entry in entries if entry.uses_gpu]
        if not has_gpu:
            parser.error("--gpu: torch finds no CUDA GPU here; without --gpu the CPU entries run")
    tally = run_all(entries, options.out, has_gpu, options.jobs)
    print(tally.text())
    return 1 if tally.failed else 0


def again(entries: list[Entry], traces: Path, folder: Path | None, on_gpu: bool) -> int:
    """Reports of traces that are there. What the script printed is taken from the report that there is."""
    TRACES.mkdir(parents=True, exist_ok=True)
    failed = 0
    for entry in entries:
        packed = traces / f"{entry.name}.trace.xz"
        made = report_of(entry, on_gpu, folder)
        if not packed.exists() or not made.exists():
            continue
        (TRACES / f"{entry.name}.trace").write_bytes(lzma.decompress(packed.read_bytes()))
        made_on, out = as_said(made.read_text())
        try:
            write(entry, Recorded(out, 0, on_gpu, made_on), folder)
        except GalleryError as error:
            print(f"{entry.name}: {error}")
            failed = 1
    return failed


def as_said(report: str) -> tuple[str, str]:
    """On what a report was made, and what the script printed."""
    found = re.search(r"\non (.*)\. The script printed\n\n```text\n(.*?)\n```\n", report, re.DOTALL)
    if found is None:
        raise GalleryError("the report does not say what the script printed")
    return found[1], found[2]


if __name__ == "__main__":
    sys.exit(main())
