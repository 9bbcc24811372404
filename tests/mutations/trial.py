"""Tests in a sandbox: the first one that fails."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import commands

# Its parameters may have blanks; what went wrong comes behind ` - `.
_FAILED = re.compile(r"^(?:FAILED|ERROR) (tests/\S+?\.py(?:::[\w:]+(?:\[.*?\])?)?)(?: - .*)?$", re.MULTILINE)
_PASSED, _NOTHING_CHOSEN = 0, 5  # of pytest
_MARKS = "not slow and not gpu and not gallery and not compiler and not browser"


@dataclass(frozen=True)
class Outcome:
    """`failed`: the first test that failed, "" if none did. `trouble`: why there is no answer, else ""."""

    failed: str = ""
    trouble: str = ""


@dataclass(frozen=True)
class Trial:
    """How tests are run: with this pytest, in a folder that has tests/."""

    pytest: Path
    folder: Path
    environment: Mapping[str, str]
    logs: Path

    def run(self, name: str, tests: Sequence[str], seconds: float) -> Outcome:
        """All of these tests, one after the other, until one fails."""
        return self._run(name, tests, seconds)

    def run_room(self, name: str, tests: Sequence[str], seconds: float, jobs: int) -> Outcome:
        """Of these files what `make test` runs, several at a time."""
        return self._run(name, [*tests, "-m", _MARKS, "-n", str(jobs)], seconds)

    def _run(self, name: str, arguments: Sequence[str], seconds: float) -> Outcome:
        log = self.logs / f"{name}.log"
        options = ["-x", "-q", "-rfE", "--color=no", "--tb=short", "-p", "no:cacheprovider"]
        status = commands.run(
            [str(self.pytest), *arguments, *options], self.folder, self.environment, log, seconds
        )
        failed = _FAILED.findall(log.read_text(encoding="utf-8", errors="replace"))
        tests = [test for test in failed if "::" in test]
        if tests:
            return Outcome(failed=tests[0])
        if failed:
            return Outcome(trouble=f"{failed[0]} cannot be imported: see {log}")
        if status is None:
            return Outcome(trouble=f"no test failed within {seconds / 60:.0f} minutes")
        if status not in (_PASSED, _NOTHING_CHOSEN):
            return Outcome(trouble=f"pytest ended with exit status {status}: see {log}")
        return Outcome()
