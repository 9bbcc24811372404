"""A request to another process, and the wait for its answer."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tracer.attach.ticket import ENDED, FAILED, STARTED, Ticket


@pytest.fixture
def ticket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ticket:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return Ticket({"path": "run.trace"}, os.getuid())


def answer(ticket: Ticket, kind: str, **facts: object) -> None:
    (ticket.folder / f"{kind}.json").write_text(json.dumps(facts))


def test_the_answer_of_a_process_that_ends_right_after_it(ticket: Ticket) -> None:
    """Whoever waits looks for an answer once more after the process has ended."""

    def lives() -> bool:
        answer(ticket, ENDED, hops=3)
        return False

    assert ticket.wait([ENDED], None, lives) == (ENDED, {"hops": 3})


def test_nobody_waits_for_a_process_that_has_ended(ticket: Ticket) -> None:
    answer(ticket, STARTED)
    assert ticket.wait([ENDED, FAILED], None, lambda: False) is None
    assert ticket.wait([ENDED], 0, lambda: True) is None, "for no longer than it should"


def test_a_request_is_taken_or_withdrawn(ticket: Ticket) -> None:
    request = ticket.folder / "request.json"
    assert json.loads(request.read_text())["path"] == "run.trace"
    assert not ticket.taken()
    request.rename(ticket.folder / "taken.json")
    assert ticket.taken()
    assert not ticket.withdraw()
    (ticket.folder / "taken.json").rename(request)
    assert ticket.withdraw()


@pytest.mark.parametrize(("answered", "stays"), [(False, True), (True, False)])
def test_what_is_left_to_the_process_stays_until_it_answers(
    ticket: Ticket, answered: bool, stays: bool
) -> None:
    with ticket:
        ticket.leave()
        if answered:
            answer(ticket, FAILED, why="it is another Python")
    assert ticket.folder.exists() == stays
