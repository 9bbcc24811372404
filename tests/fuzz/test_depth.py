"""What a reader does grows with a trace, and not with how deep it nests."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from calls import JOB, NEEDS_TORCH, TRACE, every_call, typed
from checks import own_folder
from towers import towers
from typer.testing import CliRunner

from tracer.cli.app import app
from tracer.report import chain

DEPTHS = (60, 120, 240)
MOST = 2.5
"""Between two steps of twice the depth: 2 is linear, 4 quadratic"""
SPARE = 3000
"""Calls that do not count: caches are filled, and widths differ"""


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("deep")
    return [
        towers(depth, modules=depth // 8).write(folder / f"{depth}.trace") for depth in (DEPTHS[0], *DEPTHS)
    ]


def commands() -> Iterator[list[str]]:
    """Each command that reads traces as it is, and with each kind of output."""
    for call in every_call():
        begin = call[: call.index(JOB if JOB in call else TRACE) + 1]
        plain = call == begin and call[0] != "lock"
        queried = (call[0], call[-1]) == ("sql", "select * from hops")
        if call[0] not in (*NEEDS_TORCH, "fleet") and (
            plain or queried or (call[-1] == "--json" and call[0] != "lock") or "--force" in call
        ):
            yield call
    yield ["tree", TRACE, "--limit", "0", "--depth", "9000"]
    yield ["top", TRACE, "--by", "module"]
    yield ["tree", TRACE, "--api"]


@contextmanager
def counted() -> Iterator[list[int]]:
    """The calls of functions in the block, those of C too."""
    count = [0]

    def one_more(_frame: object, event: str, _argument: object) -> None:
        if event in ("call", "c_call"):
            count[0] += 1

    sys.setprofile(one_more)
    try:
        yield count
    finally:
        sys.setprofile(None)


@pytest.mark.slow
@pytest.mark.parametrize("command", [*commands()], ids=" ".join)
def test_work_grows_with_the_trace(
    traces: list[Path], command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first trace is read twice: the first time, modules are imported.

    The chain of hops that the time goes to, of tree and report, is left out: it looks at all rows for each
    level.
    """
    monkeypatch.setattr(chain, "_places", lambda rows: [0][: len(rows)], raising=False)
    work = []
    with own_folder():
        for trace in traces:
            with counted() as calls:
                done = CliRunner().invoke(app, typed(command, trace))
            assert done.exit_code in (0, 1), done.stderr or done.exception
            assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
            work.append(calls[0])
    _, once, twice, four_times = work
    assert four_times - twice <= MOST * (twice - once) + SPARE, work


def test_a_lock_of_a_tower(tmp_path: Path) -> None:
    """It is made by functions that call themselves, so it ends at some depth."""
    trace = towers(1500).write(tmp_path / "t.trace")
    lock = tmp_path / "t.lock"
    for command in (["lock", str(trace), "-o", str(lock)], ["lock", str(trace), "--check", str(lock)]):
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 0, done.stderr or done.exception
    lines = lock.read_text().splitlines()
    assert max(len(line) - len(line.lstrip()) for line in lines) < 2 * 210
    lock.write_text("\n".join([*lines, "  " * 5000 + "aten::mm"]))
    done = CliRunner().invoke(app, ["lock", str(trace), "--check", str(lock)])
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
