"""`make fuzz`: reads mutated traces with everything that reads traces, for as long as is wanted.

Cases are numbered, and a number makes the same case each time, so workers share no state. A worker that dies
or hangs fails its case, and another one goes on with the next. Inputs that fail are kept in the folder, each
with what went wrong beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import selectors
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hostile_strings
from bases import bases
from checks import VERBS, faults_of, limit_memory, own_folder
from mutations import Base, mutated
from readers import PROGRAM, Readers, build

_SILENT_SECONDS = 900
"""Longer than the limits of a case together: what does not heed them, as in native code, hangs"""
_KEPT = 3
"""Inputs of one fault"""


def main() -> int:
    options = _options()
    if options.worker is not None:
        work(options)
        return 0
    if options.file:
        return _check_files(options)
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.readers:
        build(options.folder)
    found = Fuzzing(options)
    found.run()
    print(found.summary())
    return 1 if found.faults else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("file", nargs="*", type=Path, help="check these files, and make none")
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--cases", type=int, help="stop after so many")
    parser.add_argument("--verbs", type=int, default=2, help="commands that read a case")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--recorded", action="store_true", help="also mutate traces that are recorded now")
    parser.add_argument("--readers", action="store_true", help="also those of csrc, as when a recording ends")
    parser.add_argument("--only", metavar="COMMAND", help="only this command of tracer")
    parser.add_argument("--strings", action="store_true", help="only hostile strings")
    parser.add_argument("--folder", type=Path, default=Path("build/fuzz"))
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--first", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.folder = options.folder.resolve()  # workers have folders of their own
    return options


def _verbs(only: str | None) -> list[list[str]]:
    return [verb for verb in VERBS if only in (None, verb[0])]


def _check_files(options: argparse.Namespace) -> int:
    faults = 0
    paths = [path.resolve() for path in options.file]
    with own_folder() as folder, Readers(build(folder) if options.readers else folder) as readers:
        limit_memory()
        for path in paths:
            of_readers = [readers.fault_of(path)] if options.readers else []
            for fault in filter(None, [*faults_of(path, _verbs(options.only)), *of_readers]):
                print(f"{path}: {fault}")
                faults += 1
    print(f"{len(paths)} files, {faults} faults")
    return 1 if faults else 0


# ---- a worker ---------------------------------------------------------------------------------------


def work(options: argparse.Namespace) -> None:
    """Writes a line before each case, and one with its faults after it."""
    known = bases(recorded=options.recorded)
    file = options.folder / f"case{options.worker}.trace"
    number = options.first
    known_verbs = _verbs(options.only)
    with own_folder(), Readers(options.folder / PROGRAM) as readers:
        limit_memory()
        while options.cases is None or number < options.cases:
            kind, data = made(known, options, number)
            file.write_bytes(data)
            _say({"case": number, "kind": kind})
            verbs = random.Random(number).sample(known_verbs, options.verbs)
            faults = list(faults_of(file, [list(verb) for verb in verbs]))
            if options.readers and (fault := readers.fault_of(file)):
                faults.append(fault)
            if faults:
                kept_name(options, kind, number).write_bytes(data)
            _say({"faults": faults})
            number += options.jobs


def made(known: list[Base], options: argparse.Namespace, number: int) -> tuple[str, bytes]:
    """Every fourth case, or each, is of hostile strings; the others of any mutation."""
    if options.strings or number % 4 == 3:
        return hostile_strings.case(options.seed, number)
    return mutated(known, options.seed, number)


def kept_name(options: argparse.Namespace, kind: str, number: int) -> Path:
    return options.folder / f"{kind}-{options.seed}-{number}.trace"


def _say(line: dict[str, Any]) -> None:
    print(json.dumps(line), flush=True)


# ---- those who watch workers ---------------------------------------------------------------------------


@dataclass
class _Worker:
    number: int
    process: subprocess.Popen[bytes]
    heard: float
    case: int | None = None
    kind: str = ""
    rest: bytes = b""


@dataclass
class Fuzzing:
    options: argparse.Namespace
    cases: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    began: float = field(default_factory=time.monotonic)

    def run(self) -> None:
        self.options.folder.mkdir(parents=True, exist_ok=True)
        with selectors.DefaultSelector() as selector:
            for number in range(self.options.jobs):
                self._start(selector, number, number)
            while selector.get_map():
                for key, _ in selector.select(timeout=1):
                    self._hear(selector, key.data)
                for key in list(selector.get_map().values()):
                    if time.monotonic() - key.data.heard > _SILENT_SECONDS:
                        key.data.process.kill()

    @property
    def _is_over(self) -> bool:
        return time.monotonic() - self.began > self.options.seconds

    def _start(self, selector: selectors.BaseSelector, number: int, first: int) -> None:
        command = [sys.executable, __file__, "--worker", str(number), "--first", str(first)]
        for name in ("cases", "verbs", "jobs", "seed", "folder", "only"):
            if (value := getattr(self.options, name)) is not None:
                command += [f"--{name}", str(value)]
        command += ["--recorded"] * self.options.recorded + ["--readers"] * self.options.readers
        command += ["--recorded"] * self.options.recorded + ["--strings"] * self.options.strings
        errors = (self.options.folder / f"worker{number}.log").open("ab")
        with errors:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, env={**os.environ})
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        worker = _Worker(number, process, time.monotonic())
        selector.register(process.stdout, selectors.EVENT_READ, worker)

    def _hear(self, selector: selectors.BaseSelector, worker: _Worker) -> None:
        assert worker.process.stdout is not None
        data = worker.process.stdout.read()
        worker.heard = time.monotonic()
        *lines, worker.rest = (worker.rest + (data or b"")).split(b"\n")
        for line in lines:
            self._take(worker, json.loads(line))
            if self._is_over and worker.case is None:
                worker.process.kill()
                break
        if data:
            return
        selector.unregister(worker.process.stdout)
        worker.process.stdout.close()
        status = worker.process.wait()
        if worker.case is not None and not self._is_over:
            case = self.options.folder / f"case{worker.number}.trace"
            case.replace(kept_name(self.options, worker.kind, worker.case))
            self._keep(worker, [f"the process ended with status {status}"])
            self._start(selector, worker.number, worker.case + self.options.jobs)
        elif status > 0:
            log = self.options.folder / f"worker{worker.number}.log"
            raise SystemExit(f"fuzz: a worker failed, see {log}")

    def _take(self, worker: _Worker, line: dict[str, Any]) -> None:
        if "case" in line:
            worker.case, worker.kind = line["case"], line["kind"]
            return
        self.cases[worker.kind] += 1
        if line["faults"]:
            self._keep(worker, line["faults"])
        worker.case = None

    def _keep(self, worker: _Worker, faults: list[str]) -> None:
        assert worker.case is not None
        kept = kept_name(self.options, worker.kind, worker.case)
        self.faults.update(faults)
        shown = [fault for fault in faults if self.faults[fault] <= _KEPT]
        if not shown:
            kept.unlink()
            return
        kept.with_suffix(".txt").write_text("".join(f"{fault}\n" for fault in faults))
        for fault in shown:
            print(f"{kept}: {fault}", flush=True)

    def summary(self) -> str:
        kinds = ", ".join(f"{kind} {count:,}" for kind, count in sorted(self.cases.items()))
        seconds = time.monotonic() - self.began
        lines = [f"{self.cases.total():,} mutated traces in {seconds:.0f} s: {kinds}"]
        lines += [f"{count:,} x {fault}" for fault, count in self.faults.most_common()]
        return "\n".join([*lines, f"{self.faults.total():,} faults"])


if __name__ == "__main__":
    sys.exit(main())
