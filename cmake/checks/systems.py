"""The README's commands on bare Debian systems, and versions of torch beside versions of Python.

    python cmake/checks/systems.py fresh  [bookworm trixie sid]
    python cmake/checks/systems.py matrix [bookworm trixie sid]
    python cmake/checks/systems.py newest

`fresh`: `make demo` and `make test` as a newcomer runs them, with the CPU build of torch if there is one, and
with the CUDA build. `matrix`: these rows, and the same with other versions of torch; the table of all goes
into docs/versions.md. `newest`: the row with the newest torch and Debian's newest Python, which goes there
too. A row that has been run is not run again. The last commit is tested; with --since,
results of that commit and of later ones count too. Logs and results are in build/systems. The exit status is
1 if a command failed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path

from bare_system import BareSystem, NoSystemError
from wheel_index import WheelIndex

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "systems"
VERSIONS = ROOT / "docs" / "versions.md"
BEGIN, END = "<!-- make matrix: begin -->", "<!-- make matrix: end -->"
SUITES = ("bookworm", "trixie", "sid")
DEFAULT, NEWEST = "torch==2.13.0", "torch"
OTHERS = ("torch==2.10.0", "torch==2.11.0", "torch==2.12.1", "torch==2.14.1")
# Capture, overrides, transparency and the witness: what another torch can break.
SELECTION = (
    "tests/cpu/test_capture.py tests/cpu/test_ops.py tests/cpu/test_override_switch.py "
    "tests/cpu/test_override_functions.py tests/cpu/test_module_calls.py tests/cpu/test_launcher_nested.py "
    "tests/cpu/test_override_record.py tests/cpu/test_explain_command.py tests/cpu/test_transparency.py "
    "tests/cpu/test_witness.py tests/cpu/test_programs_autograd.py tests/cpu/test_programs_tensors.py "
    "tests/cpu/test_late_library.py tests/cpu/test_modules.py tests/cpu/test_launcher.py"
)
_COUNTS = re.compile(r"\d+ (?:passed|failed|errors?|skipped)")


@dataclass(frozen=True)
class Row:
    """What is tried: a system, a torch as pip is asked for it, its build, and which tests (None: none)."""

    suite: str
    torch: str
    build: str
    tests: str | None

    @property
    def name(self) -> str:
        return f"{self.suite}-{self.torch.replace('==', '-')}-{self.build}{'-demo' * (self.tests is None)}"

    @property
    def commands(self) -> list[str]:
        tests = (
            [] if self.tests is None else [f"make test TESTS='{self.tests}'" if self.tests else "make test"]
        )
        return ["make demo && .venv/bin/tracer doctor", *tests]


@dataclass
class Result:
    """What came of a row.

    outcomes    command -> its exit status (None: it did not end in time), its last words, seconds
    """

    row: Row
    commit: str
    day: str
    python: str = ""
    torch: str = ""
    outcomes: dict[str, tuple[int | None, str, float]] = field(default_factory=dict)
    megabytes: int = 0

    @property
    def passed(self) -> bool:
        return bool(self.outcomes) and all(status == 0 for status, _, _ in self.outcomes.values())


def fresh_rows(suites: Iterable[str]) -> Iterator[Row]:
    for suite in suites:
        tests = None if suite == "sid" else ""
        yield Row(suite, DEFAULT, "cuda", tests)
        yield Row(suite, DEFAULT, "auto", tests)


def matrix_rows(suites: Iterable[str]) -> Iterator[Row]:
    for suite in suites:
        for torch in (DEFAULT, NEWEST):
            yield Row(suite, torch, "cuda", "")
        for torch in OTHERS if suite == "bookworm" else ():
            yield Row(suite, torch, "cuda", SELECTION)


def rows_of(what: str, suites: Iterable[str]) -> list[Row]:
    """Without a demo alone where the same is tested as well."""
    suites = list(suites)
    if what == "newest":
        return [Row(SUITES[-1], NEWEST, "cuda", "")]
    rows = dict.fromkeys(fresh_rows(suites))
    if what == "matrix":
        rows.update(dict.fromkeys(matrix_rows(suites)))
    tested = {(row.suite, row.torch, row.build) for row in rows if row.tests is not None}
    return [row for row in rows if row.tests is not None or (row.suite, row.torch, row.build) not in tested]


class Systems:
    """Runs rows, several at a time, and keeps their results."""

    def __init__(self, jobs: int, limit: float, index: WheelIndex, since: str) -> None:
        self._jobs, self._limit, self._index = jobs, limit, index
        commits = _git("rev-list", "--abbrev-commit", f"{since}..HEAD").split()
        self._commits = {*commits, _git("rev-parse", "--short", since)}
        self._known = FOLDER / "results.jsonl"

    def run(self, rows: list[Row]) -> list[Result]:
        """The results in the order of the rows; a row is left out if another build has the same name."""
        known = {result.row: result for result in self._read()}
        wanted = [row for row in rows if row not in known]
        suites = list(dict.fromkeys(row.suite for row in wanted))
        with ExitStack() as stack, ThreadPoolExecutor(max(self._jobs, len(suites))) as installing:
            made = installing.map(lambda suite: stack.enter_context(BareSystem(suite, FOLDER)), suites)
            systems = dict(zip(suites, made, strict=True))
            with ThreadPoolExecutor(self._jobs) as pool:
                try:
                    for result in pool.map(lambda row: self._try(systems[row.suite], row), wanted):
                        if result is not None:
                            known[result.row] = result
                except BaseException:
                    pool.shutdown(wait=False, cancel_futures=True)
                    for system in systems.values():
                        system.stop()
                    raise
        return [known[row] for row in rows if row in known]

    def _try(self, system: BareSystem, row: Row) -> Result | None:
        variables = {"TORCH": row.torch, "TORCH_BUILD": row.build}
        python = _inside(system, "import sys; print('cp%d%d' % sys.version_info[:2])")
        if row.build == "auto" and self._index.has(python, row.torch.partition("==")[2]):
            variables["TORCH_CPU_INDEX"] = self._index.url
        clone = system.clone(ROOT, row.name)
        if row.build == "auto" and not self._has_cpu_build(system, row, variables):
            print(f"{row.name}: no CPU build of torch is to be had for its Python, so this is the CUDA row")
            system.forget(row.name)
            return None
        commit = _git("rev-parse", "--short", "HEAD", folder=clone)
        result = Result(row, commit, date.today().isoformat())
        result.python = _inside(system, "import platform; print(platform.python_version())")
        for command in row.commands:
            log = FOLDER / f"{row.name}-{command.split()[1]}.log"
            done = system.run(command, row.name, log, limit=self._limit, variables=variables)
            text = log.read_text(errors="replace")
            result.outcomes[command] = (done.status, _last_words(text), done.seconds)
            what = f"{row.name}: {' '.join(command.split()[:2])}"
            print(f"{what}: exit {done.status}, {done.seconds:.0f} s: {_last_words(text)}", flush=True)
        for version in clone.glob(".venv/lib/python3*/site-packages/torch/version.py"):
            result.torch = re.findall(r"__version__ = '(.*)'", version.read_text())[0]
        result.megabytes = int(subprocess.check_output(["du", "-sm", str(clone.parent)]).split()[0])
        system.forget(row.name)
        self._keep(result)
        return result

    def _has_cpu_build(self, system: BareSystem, row: Row, variables: dict[str, str]) -> bool:
        log = FOLDER / f"{row.name}-torch.log"
        index = f"--cpu-index {variables['TORCH_CPU_INDEX']}" if "TORCH_CPU_INDEX" in variables else ""
        command = (
            f"python3 -m venv ~/choose && ~/choose/bin/python cmake/choose_torch.py '{row.torch}' {index}"
        )
        system.run(command, row.name, log, limit=120, variables={})
        return "CPU build of" in log.read_text()

    def _keep(self, result: Result) -> None:
        with self._known.open("a") as file:
            file.write(json.dumps(asdict(result)) + "\n")

    def _read(self) -> Iterator[Result]:
        for line in self._known.read_text().splitlines() if self._known.exists() else ():
            document = json.loads(line)
            if document["commit"] in self._commits:
                yield Result(**{**document, "row": Row(**document["row"])})


def table(results: list[Result]) -> str:
    """The results as markdown, by system and version of torch."""
    results = sorted(results, key=lambda result: (SUITES.index(result.row.suite), result.torch))
    lines = [
        "| system | Python | torch | `make demo` | tests | disk | commit |",
        "|---|---|---|---|---|---:|---|",
    ]
    for result in results:
        demo, tests = (_cell(result, name) for name in ("make demo", "make test"))
        selected = " (12 files)" if result.row.tests else ""
        disk = f"{result.megabytes / 1024:.1f} GiB"
        lines.append(
            f"| {result.row.suite} | {result.python} | {result.torch} | {demo} | {tests}{selected} | {disk} "
            f"| {result.commit} |"
        )
    return "\n".join(lines)


def _cell(result: Result, name: str) -> str:
    for command, (status, words, seconds) in result.outcomes.items():
        if command.startswith(name):
            minutes = f"{seconds / 60:.0f} min"
            counts = ", ".join(_COUNTS.findall(words))
            if status == 0:
                return f"{counts}, {minutes}" if counts else f"ok, {minutes}"
            return f"**failed**: {counts or words}" if status is not None else f"**not ended** in {minutes}"
    return "not run"


def _last_words(text: str) -> str:
    """The last line that says something, of pytest its counts."""
    lines = [line.strip(" =") for line in text.splitlines() if line.strip()]
    counts = [line for line in lines if _COUNTS.search(line) and " in " in line]
    return (counts or lines or [""])[-1][:150]


def _inside(system: BareSystem, code: str) -> str:
    command = ["chroot", str(system.root), "/usr/bin/python3", "-c", code]
    return subprocess.check_output(command, text=True).strip()


def _git(*arguments: str, folder: Path = ROOT) -> str:
    command = ["git", "-c", "safe.directory=*", "-C", str(folder), *arguments]
    return subprocess.check_output(command, text=True).strip()


def _local_wheels() -> list[Path]:
    """Folders that pip is configured to look for wheels in."""
    command = [sys.executable, "-m", "pip", "config", "get", "global.find-links"]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    places = f"{os.environ.get('PIP_FIND_LINKS', '')} {said}".split()
    return [Path(place) for place in dict.fromkeys(places) if Path(place).is_dir()]


def write_table(text: str) -> None:
    """Put the table between its marks in docs/versions.md."""
    page = VERSIONS.read_text()
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    VERSIONS.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")


def write_row(row: str) -> None:
    """Put one row into the table of docs/versions.md, in place of an older one of the same versions."""
    page = VERSIONS.read_text()
    before, rest = page.split(BEGIN)
    text, after = rest.split(END)
    lines = [line for line in text.split("\n") if line[:1] != "|" or _versions(line) != _versions(row)]
    last = max(index for index, line in enumerate(lines) if line.startswith("|"))
    lines.insert(last + 1, row)
    VERSIONS.write_text(f"{before}{BEGIN}{chr(10).join(lines)}{END}{after}")


def _versions(row: str) -> list[str]:
    """System, Python and torch of a row."""
    return [cell.strip() for cell in row.split("|")[1:4]]


def main() -> None:
    parser = argparse.ArgumentParser(description="The README's commands on bare systems.")
    parser.add_argument("what", choices=("fresh", "matrix", "newest"))
    parser.add_argument("suites", nargs="*", default=SUITES, help="bookworm trixie sid")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) // 2), help="rows at a time")
    parser.add_argument("--limit", type=float, default=5400, help="seconds for a command")
    parser.add_argument("--since", default="HEAD", metavar="COMMIT", help="results from there on count")
    given = parser.parse_args()
    rows = rows_of(given.what, given.suites)
    FOLDER.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    began = time.monotonic()
    try:
        with WheelIndex(_local_wheels()) as index:
            results = Systems(given.jobs, given.limit, index, given.since).run(rows)
    except NoSystemError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit("stopped; what had ended is kept and not run again for this commit")
    days = sorted({result.day for result in results})
    text = f"Run on {' and '.join(days)}, without a GPU and without an NVIDIA driver:\n\n{table(results)}"
    print(f"\n{text}\n\n{(time.monotonic() - began) / 60:.0f} minutes")
    if given.what == "matrix" and set(given.suites) == set(SUITES):
        write_table(text)
    if given.what == "newest" and results:
        write_row(table(results).splitlines()[-1])
    sys.exit(not all(result.passed for result in results))


if __name__ == "__main__":
    main()
