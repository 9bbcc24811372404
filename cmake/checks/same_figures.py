"""Compares what two commits say of the same traces: every table, tree, report and export.

    python cmake/checks/same_figures.py OLD [NEW]      NEW: this working tree, if it is not given

Traces: those of reports/traces and tests/data, and examples, recorded once with the installed tracer
(build/same_figures/traces). With --python, an environment that has an older tracer records them: so two
commits are compared that write different formats. What differs is named with its first lines; then the
exit status is 1.
Both results stay in build/same_figures.
"""

from __future__ import annotations

import argparse
import difflib
import io
import lzma
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "same_figures"
TRACES = FOLDER / "traces"
FIGURES = Path(__file__).with_name("figures.py")
MOST_TRACES = 30
RECORDING = 120  # seconds that a script of the gallery may take
SHOWN = 12  # lines of a difference


class CommitError(Exception):
    """There is no such commit; one line."""


def traces(python: str) -> list[Path]:
    """Traces as tracer reads them; scripts that cannot run here are left out."""
    TRACES.mkdir(parents=True, exist_ok=True)
    for packed in sorted([*ROOT.glob("reports/traces/*.xz"), *ROOT.glob("tests/data/*.xz")]):
        plain = TRACES / packed.stem
        if not plain.exists():
            plain.write_bytes(lzma.decompress(packed.read_bytes()))
    for script in sorted([*ROOT.glob("examples/*.py"), *ROOT.glob("examples/gallery/*.py")]):
        if len(found := sorted(TRACES.glob("*.trace"))) >= MOST_TRACES:
            break
        trace = TRACES / f"{script.stem}.recorded.trace"
        if not trace.exists():
            record(python, script, trace)
    return found[:MOST_TRACES]


def record(python: str, script: Path, trace: Path) -> None:
    command = [python, "-m", "tracer", "record", "--force", "-o", str(trace), str(script)]
    quiet = subprocess.DEVNULL
    try:
        done = subprocess.run(command, cwd=FOLDER, timeout=RECORDING, stdout=quiet, stderr=quiet)
    except subprocess.TimeoutExpired:
        done = None
    if done is None or done.returncode:
        trace.unlink(missing_ok=True)


def source_of(commit: str | None) -> Path:
    """A folder with `tracer` as that commit has it; this working tree, if it is None. Raises CommitError."""
    if commit is None:
        return ROOT
    named = subprocess.run(
        ["git", "rev-parse", "--short=12", f"{commit}^{{commit}}"], cwd=ROOT, capture_output=True
    )
    if named.returncode:
        raise CommitError(f"{commit} is no commit of this repository; git log lists them")
    folder = FOLDER / named.stdout.decode().strip()
    if not folder.exists():
        packed = subprocess.run(
            ["git", "archive", commit, "tracer"], cwd=ROOT, capture_output=True, check=True
        )
        with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as files:
            files.extractall(folder, filter="data")
    return folder


def figures(commit: str | None, found: list[Path]) -> Path:
    """A folder with what the tracer of that commit says, a folder for each trace."""
    source = source_of(commit)
    folder = FOLDER / f"figures.{source.name if commit else 'tree'}"
    shutil.rmtree(folder, ignore_errors=True)
    environment = {**os.environ, "PYTHONPATH": str(source)}
    command = [sys.executable, "-P", str(FIGURES), str(folder), *map(str, found)]
    subprocess.run(command, cwd=FOLDER, env=environment, check=True)
    return folder


def differences(old: Path, new: Path) -> Iterator[tuple[str, list[str]]]:
    """The files that differ, with the first lines that do."""
    names = sorted(
        {str(path.relative_to(top)) for top in (old, new) for path in top.rglob("*") if path.is_file()}
    )
    for name in names:
        before, after = (top.joinpath(name) for top in (old, new))
        texts = [path.read_text().splitlines() if path.exists() else [] for path in (before, after)]
        if texts[0] != texts[1]:
            lines = list(difflib.unified_diff(*texts, lineterm="", n=0))[2:]
            yield name, [line[:160] for line in lines if not line.startswith("@@")]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("old")
    parser.add_argument("new", nargs="?")
    parser.add_argument("--python", default=sys.executable, help="what records the traces that are not there")
    given = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    found = traces(given.python)
    try:
        old, new = (figures(commit, found) for commit in (given.old, given.new))
    except CommitError as error:
        print(error, file=sys.stderr)
        return 2
    different = list(differences(old, new))
    for name, lines in different:
        print(f"{name}: {len(lines)} lines differ", *lines[:SHOWN], sep="\n  ")
    files = sum(path.is_file() for path in old.rglob("*"))
    print(f"{len(found)} traces, {files} tables, trees, reports and exports; {len(different)} differ")
    return int(bool(different))


if __name__ == "__main__":
    sys.exit(main())
