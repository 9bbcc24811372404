"""Tries the fault matrix, and prints how often each fault was tried, survived and lost.

    make faults                      about half an hour
    make faults FAULT_MINUTES=5      one round at least, so that each variant is tried
    make faults FAULTS="killed disk" rows whose name has one of these words

A round tries each variant of each row. The folder of a trial that was lost stays in build/faults. The exit
status is 1 if one was lost.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "cpu"), str(TESTS)]  # launching, lazily

import descriptors  # noqa: E402, F401
import disk  # noqa: E402, F401
import files  # noqa: E402, F401
import forks  # noqa: E402, F401
import kills  # noqa: E402, F401
import memory  # noqa: E402, F401
import processes  # noqa: E402, F401
import programs  # noqa: E402, F401
from case import Case  # noqa: E402
from rows import ROWS, Row, SkippedError  # noqa: E402

FOLDER = TESTS.parent / "build" / "faults"


@dataclass(frozen=True)
class Trial:
    row: Row
    variant: str
    value: Any
    seed: int


@dataclass
class Tally:
    """What became of a row's trials."""

    tried: int = 0
    lost: list[str] = field(default_factory=list)
    skipped: str = ""

    @property
    def survived(self) -> int:
        return self.tried - len(self.lost)


def rounds(rows: Sequence[Row], minutes: float, draw: random.Random) -> Iterator[Trial]:
    """One round whole, and more as long as there is time."""
    end = time.monotonic() + 60 * minutes
    first = True
    while first or time.monotonic() < end:
        trials = [
            Trial(row, variant, value, draw.randrange(1 << 32))
            for row in rows
            for variant, value in row.variants.items()
            for _ in range(row.times)
        ]
        draw.shuffle(trials)  # so that what runs at one time is not all of one kind
        for trial in trials:
            if not first and time.monotonic() >= end:
                return
            yield trial
        first = False


class Matrix:
    """Runs trials, several at a time, and counts."""

    def __init__(self, rows: Sequence[Row], folder: Path) -> None:
        self.tallies = {row.name: Tally() for row in rows}
        self._folder = folder
        self._lock = threading.Lock()
        self._number = 0

    def run(self, trials: Iterator[Trial], jobs: int) -> None:
        def work() -> None:
            while (trial := self._next(trials)) is not None:
                self._try(*trial)

        with ThreadPoolExecutor(jobs) as pool:
            for worker in [pool.submit(work) for _ in range(jobs)]:
                worker.result()

    def _next(self, trials: Iterator[Trial]) -> tuple[Trial, Path] | None:
        with self._lock:
            trial = next(trials, None)
            self._number += 1
            return None if trial is None else (trial, self._folder / f"{self._number}")

    def _try(self, trial: Trial, folder: Path) -> None:
        (folder / "work").mkdir(parents=True)
        tally, lost, skipped = self.tallies[trial.row.name], "", ""
        try:
            trial.row.trial(Case(folder / "work", trial.seed), trial.value)
        except SkippedError as reason:
            skipped = str(reason)
        except Exception as error:  # whatever it is: the promise was not kept, and the matrix goes on
            lost = " ".join(f"{type(error).__name__}: {error}".split())[:400]
        with self._lock:
            if skipped:
                tally.skipped = skipped
            else:
                tally.tried += 1
            if lost:
                where = folder.relative_to(TESTS.parent) if folder.is_relative_to(TESTS.parent) else folder
                tally.lost.append(f"{trial.row.name}, {trial.variant}: {lost} (seed {trial.seed}, {where})")
                print(f"LOST {tally.lost[-1]}", file=sys.stderr, flush=True)
        if not lost:
            shutil.rmtree(folder, ignore_errors=True)


def markdown(rows: Sequence[Row], tallies: dict[str, Tally]) -> str:
    """The table of docs/reliability.md."""
    lines = ["| fault | what holds | tried | survived |", "|---|---|---:|---:|"]
    for row in rows:
        tally = tallies[row.name]
        lines.append(f"| {row.name} | {row.promise} | {tally.tried:,} | {tally.survived:,} |")
    return "\n".join(lines)


def table(tallies: dict[str, Tally]) -> str:
    lines = [("fault", "tried", "survived", "lost")]
    lines += [
        (name, str(tally.tried), str(tally.survived), str(len(tally.lost))) for name, tally in tallies.items()
    ]
    sums = [sum(int(line[column]) for line in lines[1:]) for column in (1, 2, 3)]
    lines.append(("all", *map(str, sums)))
    width = max(len(line[0]) for line in lines)
    text = [f"{line[0]:<{width}}  {line[1]:>6}  {line[2]:>8}  {line[3]:>5}" for line in lines]
    text += [f"{name}: not tried: {tally.skipped}" for name, tally in tallies.items() if tally.skipped]
    return "\n".join(text)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("words", nargs="*", help="rows whose name has one of these words (default: all)")
    parser.add_argument("--minutes", type=float, default=30, help="one round at least is made (default 30)")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="trials at a time")
    parser.add_argument("--markdown", action="store_true", help="the table as docs/reliability.md has it")
    parser.add_argument("--seed", type=int, help="of an earlier run")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="emptied first")
    chosen = parser.parse_args(arguments)
    rows = [row for row in ROWS if not chosen.words or any(word in row.name for word in chosen.words)]
    if not rows:
        parser.error(f"no row has such a name; choose from {', '.join(row.name for row in ROWS)}")
    seed = random.randrange(1 << 32) if chosen.seed is None else chosen.seed
    shutil.rmtree(chosen.folder, ignore_errors=True)
    chosen.folder.mkdir(parents=True)
    matrix = Matrix(rows, chosen.folder.resolve())
    matrix.run(rounds(rows, chosen.minutes, random.Random(seed)), chosen.jobs)
    print(markdown(rows, matrix.tallies) if chosen.markdown else table(matrix.tallies))
    print(f"seed {seed}")
    return int(any(tally.lost for tally in matrix.tallies.values()))


if __name__ == "__main__":
    sys.exit(main())
