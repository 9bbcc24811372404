"""Whose a SIGINT is: Ctrl-C counts as the user's, what the script sends itself is its own."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from tracer.debugger.session import Session

KERNEL, USER, TGKILL = 0x80, 0, -6  # si_code
SCRIPT, ANOTHER = 111, 222  # processes


def stopped(code: int, sender: int) -> Session:
    facts = {"si_code": code, "_sifields._kill.si_pid": sender}
    session = object.__new__(Session)
    session._delivered, session.interrupted = None, False
    session._mi = SimpleNamespace(  # type: ignore[assignment]
        command=lambda text: {"value": str(facts[text.removeprefix("-data-evaluate-expression $_siginfo.")])}
    )
    return session


@pytest.mark.parametrize(("code", "sender"), [(TGKILL, SCRIPT), (USER, SCRIPT), (USER, ANOTHER)])
def test_a_sigint_of_the_script_is_handed_on_each_time(code: int, sender: int) -> None:
    session = stopped(code, sender)
    for _ in range(3):
        session._answer("SIGINT")
        assert (session._delivered, session.interrupted) == ("SIGINT", False)


@pytest.mark.parametrize(
    ("code", "sender"), [(KERNEL, 0), (USER, os.getpid())], ids=["of the terminal", "of this process"]
)
def test_the_second_ctrl_c_ends_the_session(code: int, sender: int) -> None:
    session = stopped(code, sender)
    session._answer("SIGINT")
    assert (session._delivered, session.interrupted) == ("SIGINT", True)
    with pytest.raises(KeyboardInterrupt):
        session._answer("SIGINT")
