"""Tries mutations in a sandbox, one after the other."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from mutation import Mutation, PatchError
from sandbox import ROOT, Sandbox
from trial import Trial

sys.path.append(str(ROOT / "cmake" / "checks"))

import room_tests

CAUGHT, SURVIVED, NOT_TRIED = "caught", "SURVIVED", "NOT TRIED"
_OF_MUTATIONS = ("tests/unit/test_mutations.py", "tests/system/test_mutation_runner.py")
"""They fail with any mutation, since its patch is applied already"""


class BrokenError(Exception):
    """A test fails without any mutation; one line."""


@dataclass(frozen=True)
class Verdict:
    """`why`: the test that noticed it, or what else happened."""

    name: str
    state: str
    why: str
    seconds: float

    def line(self, width: int) -> str:
        return f"{self.name:<{width}}  {self.state:<9}  {self.seconds:>5.0f} s  {self.why}"


class Runner:
    """Tries mutations in a sandbox."""

    def __init__(self, sandbox: Sandbox, minutes: float, jobs: int, nearest_only: bool) -> None:
        self._sandbox = sandbox
        self._minutes, self._jobs, self._nearest_only = minutes, jobs, nearest_only
        self._trial = Trial(sandbox.pytest, sandbox.tree, sandbox.environment, sandbox.logs)

    def check(self, mutations: Sequence[Mutation]) -> None:
        """Raises BrokenError if a nearest test fails without a mutation."""
        tests = list(dict.fromkeys(test for each in mutations for test in each.tests))
        outcome = self._trial.run("unmutated", tests, 60 * self._minutes * max(len(mutations), 1))
        if outcome.failed or outcome.trouble:
            raise BrokenError(f"without any mutation: {outcome.failed or outcome.trouble}")

    def verdict(self, tried: Mutation) -> Verdict:
        began = time.monotonic()
        in_room = False
        try:
            self._sandbox.apply(tried)
            state, why = self._by_nearest(tried)
            if state == SURVIVED and not self._nearest_only:
                state, why = self._by_room(tried, began + 60 * self._minutes)
                in_room = state == CAUGHT
        except PatchError as error:
            state, why = NOT_TRIED, str(error)
        finally:
            self._sandbox.restore(tried)
        # Of the nearest tests it is known that they pass without a mutation.
        if in_room and self._fails_without(tried, why):
            state, why = NOT_TRIED, f"{why} fails without it, too"
        return Verdict(tried.name, state, why, time.monotonic() - began)

    def _by_nearest(self, tried: Mutation) -> tuple[str, str]:
        outcome = self._trial.run(tried.name, tried.tests, 60 * self._minutes)
        if outcome.failed:
            return CAUGHT, outcome.failed
        return (NOT_TRIED, outcome.trouble) if outcome.trouble else (SURVIVED, "its nearest tests pass")

    def _by_room(self, tried: Mutation, end: float) -> tuple[str, str]:
        """A room of csrc has nearly all of tests/cpu: it may not end in time."""
        files = [path for room in tried.rooms for path in room_tests.tests_of(room)]
        tests = list(dict.fromkeys(str(path.relative_to(ROOT)) for path in files))
        tests = [test for test in tests if test not in _OF_MUTATIONS]
        if not tests:
            return SURVIVED, "its nearest tests pass, and it is in no room"
        left = max(end - time.monotonic(), 1)
        outcome = self._trial.run_room(f"{tried.name}.room", tests, left, self._jobs)
        if outcome.failed:
            return CAUGHT, outcome.failed
        return SURVIVED, outcome.trouble or f"{len(tests)} files of tests pass"

    def _fails_without(self, tried: Mutation, test: str) -> bool:
        outcome = self._trial.run(f"{tried.name}.again", [test], 60 * self._minutes)
        return bool(outcome.failed or outcome.trouble)


def summary(verdicts: Sequence[Verdict], count: int) -> str:
    """The last lines: a table in markdown, and how many of each state."""
    lines = ["", "| mutation | result | seconds | by |", "|---|---|---:|---|"]
    lines += [f"| {each.name} | {each.state} | {each.seconds:.0f} | {each.why} |" for each in verdicts]
    states = [verdict.state for verdict in verdicts]
    counts = ", ".join(f"{states.count(state)} {state.lower()}" for state in (CAUGHT, SURVIVED, NOT_TRIED))
    minutes = sum(verdict.seconds for verdict in verdicts) / 60
    return "\n".join([*lines, "", f"{len(verdicts)} of {count} mutations in {minutes:.0f} minutes: {counts}"])


def status_of(verdicts: Sequence[Verdict]) -> int:
    states = {verdict.state for verdict in verdicts}
    return 2 if NOT_TRIED in states else int(SURVIVED in states)
