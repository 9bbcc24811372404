"""Commands whose stdin, stdout or stderr is closed do their work, and end as they would with open ones."""

from __future__ import annotations

import pytest
from launching import Launcher


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
