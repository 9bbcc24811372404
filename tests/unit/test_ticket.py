"""A request to another process, and the wait for its answer. Here this process answers itself."""

from __future__ import annotations

import json
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tracer.attach import inside
from tracer.attach.ticket import ENDED, ENDS, FAILED, STARTED, Ticket
from tracer.base.errors import RecordingError

ALL = (STARTED, ENDED, FAILED, ENDS)


@pytest.fixture
def ticket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ticket]:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with Ticket({"path": "run.trace"}, os.getpid(), os.getuid()) as made:
        yield made


def asker(ticket: Ticket) -> inside.Asker:
    return inside.Asker(str(ticket.folder))


def sent(ticket: Ticket, *packets: bytes) -> socket.socket:
    """A connection on which the process has sent these."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.connect(str(ticket.folder / "socket"))
    for packet in packets:
        connection.send(packet)
    return connection


def here(ticket: Ticket, *kinds: str) -> tuple[str, str] | None:
    """What has come until now."""
    return ticket.wait(kinds or ALL, None, lambda: False)


def test_the_answer_of_a_process_that_ends_right_after_it(ticket: Ticket) -> None:
    """Whoever waits looks for an answer once more after the process has ended."""

    def lives() -> bool:
        assert asker(ticket).answer(ENDED, "3 hops")
        return False

    assert ticket.wait([ENDED], None, lives) == (ENDED, "3 hops")


def test_nobody_waits_for_a_process_that_has_ended(ticket: Ticket) -> None:
    asker(ticket).answer(STARTED, "")
    assert here(ticket, ENDED, FAILED) is None
    assert ticket.wait([ENDED], 0, lambda: True) is None, "for no longer than it should"


def test_a_request_is_taken_or_withdrawn(ticket: Ticket) -> None:
    """Who has begun when it is withdrawn sees that, and so does who comes later."""
    assert ticket.withdraw()
    assert asker(ticket).has_gone()
    assert not asker(ticket).answer(STARTED, "")


def test_one_that_is_taken_is_not_withdrawn(ticket: Ticket) -> None:
    end = asker(ticket)
    assert not ticket.is_taken
    assert not ticket.withdraw()
    assert ticket.is_taken
    assert not end.has_gone()
    with ticket:
        pass
    assert end.has_gone()
    assert not end.answer(STARTED, "")


def test_one_that_comes_while_it_is_withdrawn(ticket: Ticket) -> None:
    end = asker(ticket)
    with ticket:
        pass  # its connection was not accepted
    assert end.has_gone()


def test_later_answers_come_on_connections_of_their_own(ticket: Ticket) -> None:
    """The program may have closed the first one, and given its number to a file."""
    end = asker(ticket)
    assert end.answer(STARTED, "no CUDA")
    assert here(ticket) == (STARTED, "no CUDA")
    assert end.answer(ENDED, "3 hops")
    assert here(ticket, ENDED) == (ENDED, "3 hops")


@pytest.mark.parametrize(
    "packet",
    [
        b"{",
        b"[" * 60_000,
        b"\xff",
        b"1",
        b'["started"]',
        b'["started", 1]',
        b'["started", "", ""]',
        b'["sudo", ""]',
        b'[[], ""]',
        b'{"text": "x"}',
        json.dumps([ENDED, "x" * (1 << 16)]).encode(),
    ],
    ids=lambda packet: str(packet[:20]),
)
def test_nonsense_is_a_failure(ticket: Ticket, packet: bytes) -> None:
    with sent(ticket, packet):
        assert here(ticket) == (FAILED, "its answer is not one of this version of tracer")


def test_what_a_terminal_would_obey_is_shown(ticket: Ticket) -> None:
    text = "\x1b]0;title\x07fine\r\u202e\n  the second line\n"
    with sent(ticket, json.dumps([ENDED, text]).encode()):
        assert here(ticket) == (ENDED, "\\x1b]0;title\\x07fine\\r\\u202e\n  the second line\n")


def test_one_that_never_answers(ticket: Ticket) -> None:
    """It gets its time twice at most: until it begins, and from then on."""
    with sent(ticket):
        assert ticket.wait(ALL, 0.05, lambda: True) is None
    assert ticket.is_taken
    ends = [sent(ticket) for _ in range(5)]
    assert ticket.wait(ALL, 0.05, lambda: True) is None
    for end in ends:
        end.close()


def test_answers_of_other_processes_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with Ticket({}, os.getpid() + 1, os.getuid()) as ticket:
        ends = [sent(ticket, b'["ended", ""]') for _ in range(3)]
        assert here(ticket) is None
        assert not ticket.is_taken
        for end in ends:
            end.close()


def test_a_folder_that_others_may_change_is_not_for_other_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    tmp_path.chmod(0o777)
    with pytest.raises(RecordingError, match="set TMPDIR to another folder"):
        Ticket({}, os.getpid(), os.getuid() + 1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("is_taken", [False, True])
def test_the_script_as_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_taken: bool) -> None:
    """Whole before others see it. It stays for a process that has not read it yet, which then removes it."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = os.umask(0o077)
    try:
        with Ticket({}, os.getpid(), os.getuid(), as_file=True) as ticket:
            assert ticket.file is not None
            assert ticket.file.read_text() == ticket.script
            assert stat.S_IMODE(ticket.file.stat().st_mode) == 0o444
            if is_taken:
                assert asker(ticket).answer(ENDED, "")
                assert here(ticket) == (ENDED, "")
    finally:
        os.umask(before)
    assert [file.name for file in ticket.folder.glob("*")] == ([] if is_taken else ["script.py"])
    inside.act(str(ticket.folder), ticket.request)
    assert not ticket.folder.exists()


def test_a_long_name_of_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The path of a socket has 108 bytes at most."""
    folder = tmp_path / ("x" * 200)
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    with Ticket({}, os.getpid(), os.getuid()) as ticket:
        assert asker(ticket).answer(ENDED, "")
        assert here(ticket) == (ENDED, "")
