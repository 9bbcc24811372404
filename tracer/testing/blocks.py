"""Recorded blocks of a test, and their check."""

from __future__ import annotations

import tempfile
import warnings
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import pytest

from tracer.testing.rules import RuleError, Rules, rules_of

if TYPE_CHECKING:
    from tracer.recording.recording import Recording
    from tracer.trace import Trace


class DispatchWarning(UserWarning):
    """What a recording lacks, so that a rule may have been broken unseen."""


class Block(AbstractContextManager["Block"]):
    """One recorded block. At its end `trace` has the tables, and the rules are checked."""

    _open: Block | None = None
    """The one that is being recorded; there is one recording in a process"""

    def __init__(self, test: Test, rules: Rules, name: str) -> None:
        self._test = test
        self._rules = rules
        self._name = name
        self._recording: Recording | None = None
        self._path = Path()
        self.trace: Trace | None = None

    def __enter__(self) -> Block:
        from tracer.base.errors import RecordingError
        from tracer.recording.recording import record

        if Block._open is not None:
            pytest.fail(
                "dispatch: a block is already being recorded; end its `with` before the next one begins, "
                "or give all rules to one block",
                pytrace=False,
            )
        folder = tempfile.mkdtemp(prefix="tracer-dispatch-")
        self._path = Path(folder) / "run.trace"
        why = ""
        try:
            self._recording = record(self._path).start()
        except RecordingError as error:
            why = str(error)
        if why:
            self._remove()
            pytest.fail(f"dispatch: {why}", pytrace=False)
        Block._open = self
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        from tracer.trace import load

        assert self._recording is not None
        Block._open = None
        self._recording.stop()
        if kind is not None:  # the test's own failure is what matters
            self._remove()
            return
        if not self._path.exists():
            self._remove()
            pytest.fail(
                "dispatch: this process is already being recorded, so the test has no trace of its own; "
                "run pytest without tracer record",
                pytrace=False,
            )
        self.trace = load(self._path)
        if not self.trace.certificate["complete"]:
            said = f"dispatch: the recording is {self.trace.certificate['verdict']}"
            warnings.warn(said, DispatchWarning, stacklevel=2)
        found = self._broken()
        if not found:
            self._remove()
            return
        found.append(f"to see all of it: tracer tree {self._path}")
        pytest.fail("\n".join(f"dispatch: {text}" for text in found), pytrace=False)

    def _broken(self) -> list[str]:
        from tracer.testing import snapshots
        from tracer.testing.verdict import broken_rules, unknown_ops

        assert self.trace is not None
        found = [*unknown_ops(self._rules, self.trace), *broken_rules(self._rules, self.trace)]
        if self._rules.snapshot:
            path = snapshots.place(self._test.file, self._name)
            if self._test.updating:
                if snapshots.update(path, self._test.file, self.trace):
                    self._test.written.append(str(path))
            elif difference := snapshots.difference(path, self._test.file, self.trace):
                found.append(difference)
        return found

    def _remove(self) -> None:
        self._path.unlink(missing_ok=True)
        if self._path.parent.exists():
            self._path.parent.rmdir()


class Test:
    """The blocks of one test. The fixture `dispatch` is one: `with dispatch(max_launches=12): ...`"""

    __test__ = False

    def __init__(self, file: Path, name: str, rules: Rules, updating: bool) -> None:
        self.file, self.name, self.rules, self.updating = file, name, rules, updating
        self.blocks = 0
        self.written: list[str] = []
        """Snapshots that were written"""

    def __call__(self, **rules: Any) -> Block:
        """A block to record, with the rules of the test's marker and these."""
        wrong = ""
        try:
            checked = rules_of(rules, self.rules)
        except RuleError as error:
            wrong = str(error)
        if wrong:  # outside of `except`: pytest would show the RuleError too
            pytest.fail(wrong, pytrace=False)
        self.blocks += 1
        name = self.name if self.blocks == 1 else f"{self.name}.{self.blocks}"
        return Block(self, checked, name)
