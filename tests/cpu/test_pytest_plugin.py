"""The pytest plugin, by pytest inside pytest: the marker, the fixture, snapshots, xdist."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from launching import Launcher, Run

TESTS = """\
import pytest
import torch


def work():
    x = torch.ones(8, 8)
    y = x.double() @ x.double()
    return y.relu()


@pytest.mark.dispatch(no_sync=True, max_launches=0, must_run=["aten::mm"], never=["aten::bmm"])
def test_kept():
    work()


@pytest.mark.dispatch(never=["aten::copy_"])
def test_never():
    work()


@pytest.mark.dispatch(must_run=["aten::_flash_attention_forward"])
def test_must_run():
    work()


@pytest.mark.dispatch(max_launch=3)
def test_misspelled():
    work()


@pytest.mark.dispatch(12)
def test_by_position():
    work()


@pytest.mark.dispatch(never=["aten::mm"])
def test_its_own_failure():
    work()
    assert 1 == 2


@pytest.mark.dispatch(never=["aten::mm"])
class TestClass:
    @pytest.mark.dispatch(never=[])
    def test_the_nearest_marker_counts(self):
        work()

    def test_the_marker_of_the_class(self):
        work()


def test_fixture(dispatch):
    work()
    with dispatch(never=["aten::mm"], must_run=["aten::neg"]) as block:
        torch.ones(2).neg()
    assert "aten::neg" in block.trace.hops["op"].to_list()
    with pytest.raises(pytest.fail.Exception, match="aten::neg"):
        with dispatch(never=["aten::neg"]):
            torch.ones(2).neg()


@pytest.mark.dispatch(never=["aten::mm"])
def test_marker_and_fixture(dispatch):
    work()
    with dispatch():
        torch.ones(2).neg()


@pytest.mark.dispatch()
def test_no_block(dispatch):
    work()


def test_inside_another(dispatch):
    with dispatch():
        with dispatch():
            work()


@pytest.mark.dispatch(never=["aten::mm"])
def test_nothing_ran():
    pass


@pytest.mark.dispatch(never=["nosuch::op", "aten::coppy_"])
def test_unknown_op():
    pass


@pytest.mark.dispatch(never=["aten::no_such_*", "copy_", "aten::add.Tensor"], must_run=["aten::neg"])
def test_unknown_pattern():
    torch.ones(2).neg()


def test_wrong_value(dispatch):
    with dispatch(max_launches="x"):
        work()


def test_after_the_others(dispatch):
    with dispatch(never=["aten::mm"]):
        torch.ones(2).neg()


def test_plain():
    work()
"""
SNAPSHOTS = """\
import pytest
import torch


@pytest.mark.dispatch(snapshot=True)
@pytest.mark.parametrize("size", [2, 3])
def test_snapshot(size):
    x = torch.ones(size)
    assert len(x.neg()) == size


def test_two(dispatch):
    for _ in range(2):
        with dispatch(snapshot=True):
            torch.ones(2).neg()
"""
PASSED = {
    *("test_kept", "test_fixture", "test_marker_and_fixture", "test_nothing_ran", "test_plain"),
    *("test_the_nearest_marker_counts", "test_unknown_pattern", "test_after_the_others"),
}


# hypothesis takes longer to load than all else, and again in each worker.
PLUGINS = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest")


def run_pytest(launcher: Launcher, *arguments: str) -> Run:
    return launcher.run([sys.executable, "-m", "pytest", "-q", "-rA", *PLUGINS, *arguments])


def outcomes(run: Run, outcome: str) -> set[str]:
    return set(re.findall(rf"^{outcome} \S+::(\w+)(?:\[|$| )", run.out, re.MULTILINE))


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, list[Path]]:
    """A run of all tests above, and the traces that it left."""
    launcher = Launcher(tmp_path_factory.mktemp("plugin"))
    launcher.environment["TMPDIR"] = str(launcher.folder)
    launcher.write(TESTS, "test_net.py")
    run = run_pytest(launcher)
    return run, list(launcher.folder.glob("tracer-dispatch-*/*"))


def part(run: Run, test: str) -> str:
    """What pytest shows of a failure."""
    after = run.out.split(f" {test} ___", 1)[1].partition("\n")[2]
    return re.split(r"^(?:___|===)", after, maxsplit=1, flags=re.MULTILINE)[0]


@pytest.mark.promise("pytest", "docs/diff.md#pytest")
def test_which_tests_pass(ran: tuple[Run, list[Path]]) -> None:
    run, _ = ran
    assert outcomes(run, "PASSED") == PASSED
    assert run.status == 1


@pytest.mark.promise("pytest", "docs/diff.md#pytest")
def test_a_failure_shows_the_line_and_the_chain(ran: tuple[Run, list[Path]]) -> None:
    lines = part(ran[0], "test_never").splitlines()
    start = lines.index('dispatch: never=["aten::copy_"]: it ran, 2 calls')
    assert lines[start + 1] == "  test_net.py:7  y = x.double() @ x.double()  (2 times)"
    assert lines[start + 2].startswith("    aten::to.dtype [AutogradCPU] ")
    assert re.match(r" +aten::copy_ \[CPU\] wrapper_", lines[start + 6])
    assert "Traceback" not in part(ran[0], "test_never")


def test_the_trace_of_a_failure_is_kept_and_others_are_not(ran: tuple[Run, list[Path]]) -> None:
    run, traces = ran
    named = set(re.findall(r"to see all of it: tracer tree (\S+)", run.out))
    assert len(named) == 4, "never, must_run, an unknown op and the marker of the class"
    assert named < {str(trace) for trace in traces}
    assert len(traces) == 5, "and the failure that test_fixture expects"


@pytest.mark.parametrize(
    ("test", "words"),
    [
        ("test_must_run", 'must_run=["aten::_flash_attention_forward"]: it did not run; ran: '),
        ("test_misspelled", "unknown rule 'max_launch'; choose no_sync, max_launches"),
        ("test_by_position", "give the marker's rules by name, e.g. max_launches=12"),
        ("test_its_own_failure", "assert 1 == 2"),
        ("TestClass.test_the_marker_of_the_class", 'never=["aten::mm"]: it ran, 1 call'),
        ("test_no_block", "the test has the fixture and recorded no block; with dispatch(): ..."),
        ("test_inside_another", "a block is already being recorded; end its `with` before the next one"),
        ("test_unknown_op", 'never=["nosuch::op"]: torch has no such operator; '),
        ("test_unknown_op", 'never=["aten::coppy_"]: torch has no such operator; near: aten::copy_'),
        ("test_wrong_value", "max_launches='x': give a number from 0"),
    ],
)
def test_what_failures_say(ran: tuple[Run, list[Path]], test: str, words: str) -> None:
    shown = part(ran[0], test)
    assert words in shown
    assert "During handling" not in shown


def test_an_incomplete_recording_is_a_warning(ran: tuple[Run, list[Path]]) -> None:
    assert "DispatchWarning: dispatch: the recording is incomplete: " in ran[0].out


def test_snapshots_with_xdist(launcher: Launcher) -> None:
    launcher.environment["TMPDIR"] = str(launcher.folder)  # traces of failures stay there
    launcher.write(SNAPSHOTS, "parts/test_net.py")
    missing = run_pytest(launcher)
    assert missing.status == 1
    assert "parts/__dispatch__/test_net/test_two.lock does not exist; pytest --dispatch-update" in missing.out
    written = run_pytest(launcher, "-n", "2", "--dispatch-update")
    assert written.status == 0, written.out
    assert "dispatch: 4 snapshots written; review them before you commit" in written.out
    folder = launcher.folder / "parts" / "__dispatch__" / "test_net"
    names = ["test_snapshot[2].lock", "test_snapshot[3].lock", "test_two.2.lock", "test_two.lock"]
    assert sorted(path.name for path in folder.iterdir()) == names
    assert "\ntest_net.py: torch.ones(2).neg()\n  aten::neg [" in (folder / "test_two.lock").read_text()
    launcher.write("# moved\n" + SNAPSHOTS.replace("x.neg()", "x.abs()"), "parts/test_net.py")
    changed = run_pytest(launcher)
    assert outcomes(changed, "PASSED") == {"test_two"}
    assert outcomes(changed, "FAILED") == {"test_snapshot"}
    assert re.search(r"^ +\+aten::abs \[", changed.out, re.MULTILINE)


def test_under_tracer_record(launcher: Launcher) -> None:
    launcher.write(SNAPSHOTS, "test_net.py")
    run = launcher.record("-m", "pytest", "-q", *PLUGINS, "-k", "two")
    assert run.status == 1
    assert "dispatch: this process is already being recorded" in run.out
