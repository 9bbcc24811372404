"""Work in forks: what ends the process is named, and the rest is done."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable

import pytest

from tracer.compare import forks
from tracer.compare.forks import Done, Ended, Waits, in_forks

WORK: dict[str, Callable[[], object]] = {
    "right": lambda: "made",
    "crashes": lambda: ctypes.string_at(0),  # what is at address 0
    "aborts": os.abort,
    "leaves": lambda: os._exit(0),
    "raises": lambda: 1 / 0,
}


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ((), []),
        (("right", "right"), ["made", "made"]),
        (("crashes",), ["by signal 11 (Segmentation fault)"]),
        (("right", "aborts", "right"), ["made", "by signal 6 (Aborted)", "made"]),
        (("leaves", "right", "crashes"), ["with status 0", "made", "by signal 11 (Segmentation fault)"]),
        (("raises", "right"), ["with status 1", "made"]),
    ],
)
def test_the_rest_is_done(names: tuple[str, ...], said: list[str]) -> None:
    found = dict(in_forks(len(names), lambda place: WORK[names[place]]()))
    assert [str(one.result if isinstance(one, Done) else one) for one in found.values()] == said
    assert list(found) == [*range(len(names))]


def test_what_is_no_longer_wanted_is_left_after_an_end() -> None:
    wanted = [True, True, True]

    def is_wanted(place: int) -> bool:
        return wanted[place]

    places = []
    for place, found in in_forks(3, lambda place: place or os.abort(), is_wanted):
        places.append(place)
        if isinstance(found, Ended):
            wanted[1] = False
    assert places == [0, 2]


def test_work_that_waits_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forks, "_LONGEST", 0.2)
    begun = time.monotonic()
    found = [one for _, one in in_forks(3, lambda place: time.sleep(600 * place))]
    assert found == [Done(None), Waits()]
    assert time.monotonic() - begun < 60


def test_work_that_takes_long_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine gives it a part of its time only."""
    monkeypatch.setattr(forks, "_LONGEST", 0.1)

    def work(_: int) -> str:
        end = time.process_time() + 0.5
        while time.process_time() < end:
            pass
        return "made"

    assert [one for _, one in in_forks(1, work)] == [Done("made")]


def test_a_fork_in_which_backward_cannot_run_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine with a GPU autograd refuses a fork once it has started threads."""
    assert forks.may_differentiate()

    def refuse(*_: object) -> None:
        raise RuntimeError(
            "Unable to handle autograd's threading in combination with fork-based multiprocessing"
        )

    monkeypatch.setattr("torch.Tensor.backward", refuse)
    assert not forks.may_differentiate()
