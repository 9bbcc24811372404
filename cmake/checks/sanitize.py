"""Builds the extension with a sanitizer and runs a selection of tests/cpu on it.

    python cmake/checks/sanitize.py address   AddressSanitizer and UndefinedBehaviorSanitizer
    python cmake/checks/sanitize.py thread    ThreadSanitizer

First a fault is planted in a copy of the extension: if the sanitizer does not report it, a clean run means
nothing. What is built, and the reports, are in build/sanitize. The exit status is 1 if the planted fault was
not reported, if there is a report, or if a test failed.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from compiling import CSRC, ROOT, default_jobs
from sanitizers import SANITIZERS, Plant, Sanitizer

FOLDER = ROOT / "build" / "sanitize"
# How a report begins. Everything else in a log is a remark, such as an allocation that was too large.
_BEGIN = re.compile(
    r"^(?:==\d+==\s*ERROR: |.*: runtime error: |WARNING: ThreadSanitizer: |\w+Sanitizer:? CHECK failed)",
    re.MULTILINE,
)
_OURS = re.compile(r"\btracer::|/csrc/|/_C\.cpython")
_NUMBERS = re.compile(r"0x[0-9a-f]+|==\d+==|\(pid=\d+\)|\b[TM]\d+\b")


class SanitizeError(Exception):
    """The extension could not be built, or the sanitizer does not work here; one line."""


@dataclass(frozen=True)
class Report:
    """One report of a sanitizer: its text, and the log that it is in."""

    text: str
    log: Path

    @property
    def is_ours(self) -> bool:
        return _OURS.search(self.text) is not None

    @property
    def title(self) -> str:
        """What happened, and the first function of ours: the same for each report of one fault."""
        first = self.text.strip().splitlines()[0]
        ours = next((line.strip() for line in self.text.splitlines()[1:] if _OURS.search(line)), "")
        return _NUMBERS.sub("...", f"{first} {ours}".replace(f"{ROOT}{os.sep}", ""))


def reports(logs: Path) -> list[Report]:
    """The reports of all processes that wrote into a folder."""
    found = []
    for log in sorted(logs.iterdir()):
        text = log.read_text(errors="replace")
        starts = [*(match.start() for match in _BEGIN.finditer(text)), len(text)]
        found += [Report(text[begin:end], log) for begin, end in pairwise(starts)]
    return found


def faults(found: Sequence[Report]) -> dict[str, list[Report]]:
    """Those that count, by title: all but those of ThreadSanitizer in which nothing of ours runs."""
    by_title: dict[str, list[Report]] = {}
    for report in found:
        if report.is_ours or "ThreadSanitizer" not in report.text:
            by_title.setdefault(report.title, []).append(report)
    return by_title


@dataclass(frozen=True)
class Place:
    """The folders of one sanitizer, and how Python is started in them."""

    name: str
    sanitizer: Sanitizer
    jobs: int

    @property
    def folder(self) -> Path:
        return FOLDER / self.name

    @property
    def build(self) -> Path:
        return self.folder / "build"

    @property
    def site(self) -> Path:
        return self.folder / "site"

    def run(
        self, arguments: Sequence[str], logs: Path, site: Path, cwd: Path
    ) -> subprocess.CompletedProcess[str]:
        """Python with the sanitizer and with the tracer of `site`. Its output is shown as it comes."""
        shutil.rmtree(logs, ignore_errors=True)
        logs.mkdir(parents=True)
        command = [sys.executable, *arguments]
        if self.sanitizer.fixed_addresses:
            command = ["setarch", "-R", *command]  # ThreadSanitizer has fixed places for its own memory
        return subprocess.run(command, cwd=cwd, env=self.environment(logs, site), text=True, check=False)

    def environment(self, logs: Path, site: Path) -> Mapping[str, str]:
        options = {name: text.format(log=logs / "report") for name, text in self.sanitizer.options.items()}
        libraries = ":".join(map(library, self.sanitizer.libraries))
        return {**os.environ, **options, "LD_PRELOAD": libraries, "PYTHONPATH": str(site)}


def library(name: str) -> str:
    """The compiler's own. Raises SanitizeError."""
    compiler = os.environ.get("CXX", "g++")
    path = subprocess.run(
        [compiler, f"-print-file-name={name}"], capture_output=True, text=True
    ).stdout.strip()
    if not os.path.isabs(path):
        raise SanitizeError(f"{compiler} has no {name}: install libasan, libubsan and libtsan of its version")
    return os.path.realpath(path)


def build(place: Place) -> None:
    """Build and install into a folder of its own. Raises SanitizeError."""
    environment = {"CMAKE_BUILD_PARALLEL_LEVEL": str(place.jobs), **os.environ}
    if shutil.which("ccache"):
        cached = {
            "CMAKE_CXX_COMPILER_LAUNCHER": "ccache",
            "CCACHE_BASEDIR": str(ROOT),
            "CCACHE_NOHASHDIR": "1",
        }
        environment = cached | environment
    shutil.rmtree(place.site, ignore_errors=True)  # a module that is no longer there would stay
    settings = [
        f"build-dir={place.build}",
        f"cmake.define.TRACER_SANITIZE={place.name}",
        "install.strip=false",  # reports name functions and lines
    ]
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps"]
    command += ["--no-build-isolation", "--target", str(place.site), str(ROOT)]
    command += [part for setting in settings for part in ("-C", setting)]
    if subprocess.run(command, env=environment, check=False).returncode != 0:
        raise SanitizeError("the extension could not be built with it")


def check(place: Place) -> None:
    """Python starts with the sanitizer, and its tracer is the one that was built. Raises SanitizeError."""
    code = f"import tracer._C as C; assert C.__file__.startswith({str(place.site)!r}), C.__file__"
    done = place.run(["-c", "import torch; " + code], place.folder / "start", place.site, place.folder)
    if done.returncode != 0:
        raise SanitizeError("Python does not start with it, or finds another tracer")


# ---- the planted fault ------------------------------------------------------------------------------


def planted_sources(plant: Plant, folder: Path) -> Path:
    """A copy of csrc with the fault. Raises SanitizeError."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(CSRC, folder)
    file = folder / plant.file
    text = file.read_text()
    if text.count(plant.before) != 1:
        raise SanitizeError(f"{plant.file} has changed: the fault that is planted there needs a new place")
    file.write_text(text.replace(plant.before, plant.after))
    return folder


def planted_site(place: Place) -> Path:
    """A copy of what was installed, with the fault in its extension. Raises SanitizeError."""
    plant = place.sanitizer.plant
    sources = planted_sources(plant, place.folder / "planted" / "csrc")
    site = place.folder / "planted" / "site"
    shutil.rmtree(site, ignore_errors=True)
    shutil.copytree(place.site, site)
    extension = next((site / "tracer").glob("_C.*.so"))
    objects = _object_of(place.build, plant.source)
    compile_line, link_line = _commands(place.build, objects), _commands(place.build, extension.name)
    planted = place.folder / "planted" / "planted.o"
    _shell(
        compile_line.replace(str(CSRC), str(sources)).replace(f"-o {objects}", f"-o {planted}"), place.build
    )
    link_line = link_line.replace(f" {objects} ", f" {planted} ").replace(
        f"-o {extension.name}", f"-o {shlex.quote(str(extension))}"
    )
    _shell(link_line, place.build)
    return site


def _object_of(build_folder: Path, source: str) -> str:
    """The object of a file of csrc, in the part of the build that has it; older builds left others."""
    known = (build_folder / "build.ninja").read_text()
    found = re.search(rf"^build (CMakeFiles/\w+\.dir/csrc/{re.escape(source)}\.o):", known, re.MULTILINE)
    if found is None:
        raise SanitizeError(f"ninja does not know how csrc/{source} is compiled")
    return found[1]


def _commands(build_folder: Path, target: str) -> str:
    """The last command that makes a target of the build."""
    done = subprocess.run(
        ["ninja", "-C", str(build_folder), "--quiet", "-t", "commands", "-s", target],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise SanitizeError(f"ninja does not know how {target} is made: {done.stderr.strip()}")
    return done.stdout.strip().splitlines()[-1]


def _shell(line: str, folder: Path) -> None:
    done = subprocess.run(line, shell=True, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SanitizeError(f"the planted fault does not build: {done.stderr.strip().splitlines()[:1]}")


def finds_the_planted(place: Place) -> bool:
    plant = place.sanitizer.plant
    site, logs = planted_site(place), place.folder / "planted" / "logs"
    with tempfile.TemporaryDirectory() as folder:
        place.run(["-c", plant.script], logs, site, Path(folder))
    return any(plant.function in report.text for report in reports(logs))


# ---- the tests ----------------------------------------------------------------------------------------


def run_tests(place: Place, logs: Path, chosen: Sequence[str]) -> bool:
    """Whether all passed. They run in tests/, from where the sanitized tracer is the one that is found."""
    files = chosen or [f"cpu/{name}" for name in place.sanitizer.tests]
    left_out = [option for name in place.sanitizer.left_out for option in ("--deselect", f"tests/cpu/{name}")]
    marks = "not slow and not gpu and not gallery and not compiler"
    options = [
        "-q",
        "-n",
        str(place.jobs),
        "-m",
        marks,
        "-p",
        "no:cacheprovider",
        "--durations=10",
        *left_out,
    ]
    return place.run(["-m", "pytest", *files, *options], logs, place.site, ROOT / "tests").returncode == 0


def _spent(since: tuple[float, float]) -> str:
    wall, cpu = _clocks()
    return f"{(wall - since[0]) / 60:.1f} min, {(cpu - since[1]) / 60:.1f} min of CPU time"


def _clocks() -> tuple[float, float]:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.monotonic(), used.ru_utime + used.ru_stime


def sanitize(place: Place, chosen: Sequence[str]) -> int:
    """The exit status. Raises SanitizeError."""
    say = lambda text: print(f"{place.name}: {text}", flush=True)  # noqa: E731
    began = _clocks()
    build(place)
    check(place)
    say(f"built ({_spent(began)})")
    if not finds_the_planted(place):
        say("FAILED: the planted fault was not reported")
        return 1
    say(f"the planted fault is reported (in {place.sanitizer.plant.function})")
    for name, why in place.sanitizer.left_out.items():
        say(f"left out: {name}: {why}")
    logs, began = place.folder / "logs", _clocks()
    passed = run_tests(place, logs, chosen)
    found = faults(reports(logs))
    for title, same in found.items():
        say(f"FAILED: {title} ({len(same)} times, {same[0].log.relative_to(ROOT)})")
    if not passed:
        say("FAILED: tests")
    verdict = "clean" if passed and not found else "FAILED"
    say(f"{verdict}: {len(found)} faults reported; the tests took {_spent(began)}")
    return int(bool(found) or not passed)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("sanitizer", choices=SANITIZERS)
    parser.add_argument(
        "tests", nargs="*", help="files below tests/ instead of the selection, or pytest's options"
    )
    parser.add_argument("--jobs", type=int, default=default_jobs(), help="compilers, and tests, at a time")
    arguments = parser.parse_args()
    place = Place(arguments.sanitizer, SANITIZERS[arguments.sanitizer], arguments.jobs)
    try:
        return sanitize(place, arguments.tests)
    except SanitizeError as error:
        print(f"{place.name}: FAILED: {error}")
        return 1


if __name__ == "__main__":
    sys.exit(main())
