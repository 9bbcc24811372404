"""Commands whose stdin, stdout or stderr is closed, or on a full disk, end as they should."""

from __future__ import annotations

import pytest
from launching import Launcher

pytestmark = pytest.mark.fresh


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Launcher:
    launcher = Launcher(tmp_path_factory.mktemp("closed"))
    launcher.write("import torch\ntorch.ones(3).add(1)\n")
    run = launcher.record("-o", "run.trace", "script.py")
    assert run.status == 0, run.err
    return launcher


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize(
    "words", ["report run.trace", "sql run.trace .schema", "export --to chrome run.trace"]
)
def test_reading(recorded: Launcher, words: str, closed: str) -> None:
    output = recorded.folder / "run.chrome.json"
    output.unlink(missing_ok=True)
    run = recorded.run(["sh", "-c", f'exec "$0" {words} {closed}', str(recorded.tracer)])
    assert (run.status, "Traceback" in run.err) == (0, False), run.err
    if words.startswith("export"):
        assert output.stat().st_size > 100


def test_a_debugger_needs_a_stdin(recorded: Launcher) -> None:
    command = f'exec "{recorded.tracer}" gdb --interactive script.py <&-'
    run = recorded.run(["sh", "-c", command])
    assert run.status == 2
    assert run.err.startswith("tracer: --interactive needs a terminal")
    assert run.err.count("\n") == 1


@pytest.mark.parametrize(
    "words", ["report run.trace", "sql run.trace .schema", "certificate run.trace", "doctor"]
)
def test_stdout_is_on_a_full_disk(recorded: Launcher, words: str) -> None:
    run = recorded.run(["sh", "-c", f'exec "$0" {words} >/dev/full', str(recorded.tracer)])
    assert (run.status, run.err) == (1, "tracer: cannot write to stdout: No space left on device\n")


@pytest.mark.parametrize(
    ("words", "status"), [("report none.trace", 2), ("lock run.trace --force -o run.lock", 0)]
)
def test_stderr_is_on_a_full_disk(recorded: Launcher, words: str, status: int) -> None:
    run = recorded.run(["sh", "-c", f'exec "$0" {words} 2>/dev/full', str(recorded.tracer)])
    assert run.status == status


def test_an_error_does_not_go_where_it_was_not_sent(recorded: Launcher) -> None:
    run = recorded.run(["sh", "-c", 'exec "$0" nosuch 2>&- >out.txt', str(recorded.tracer)])
    assert run.status == 2
    assert (recorded.folder / "out.txt").read_text() == ""
