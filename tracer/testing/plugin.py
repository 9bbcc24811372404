"""pytest: the marker and the fixture `dispatch`, and `--dispatch-update`.

    @pytest.mark.dispatch(no_sync=True, max_launches=12, never=["aten::copy_"])
    def test_step(): ...

pytest loads this module in every run, so it imports nothing that a test without `dispatch` does not need.
"""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tracer.testing.blocks import Test
    from tracer.testing.rules import Rules

_WRITTEN = "dispatch snapshot"
_TEST = pytest.StashKey["Test"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("dispatch", "dispatch paths (tracer)")
    group.addoption(
        "--dispatch-update",
        action="store_true",
        help="Write the dispatch snapshots of the tests that run, instead of comparing with them.",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "dispatch(no_sync, max_launches, must_run, never, snapshot): record the test, and fail if its "
        "dispatch paths break one of these rules (tracer).",
    )


@pytest.fixture
def dispatch(request: pytest.FixtureRequest) -> Test:
    """Record a block and check its dispatch paths: `with dispatch(never=["aten::copy_"]) as block: ...`

    The rules of the test's marker hold for each block. Afterwards `block.trace` has the tables of the block.
    """
    return _test_of(request.node)


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Records a test with the marker: all of it, or the blocks for which it uses the fixture."""
    marked = item.get_closest_marker("dispatch") is not None
    if not marked:
        return (yield)
    test = _test_of(item)
    if "dispatch" not in getattr(item, "fixturenames", ()):
        with test():
            return (yield)
    result = yield
    if not test.blocks:
        pytest.fail(
            "dispatch: the test has the fixture and recorded no block; with dispatch(): ...", pytrace=False
        )
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    test = item.stash.get(_TEST, None)
    if test is not None:  # a report carries this to the process that prints the summary
        item.user_properties += [(_WRITTEN, path) for path in test.written]
    return (yield)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [report for reports in terminalreporter.stats.values() for report in reports]
    pairs = (pair for report in reports for pair in getattr(report, "user_properties", ()))
    written = {path for name, path in pairs if name == _WRITTEN}
    if written:
        snapshots = f"{len(written)} snapshot{'s' * (len(written) != 1)}"
        terminalreporter.write_line(f"dispatch: {snapshots} written; review them before you commit")


def _test_of(item: pytest.Item) -> Test:
    """The dispatch of a test; made when it is first asked for."""
    if _TEST not in item.stash:
        from tracer.testing.blocks import Test

        name = item.nodeid.partition("::")[2] or item.name
        updating = item.config.getoption("--dispatch-update")
        item.stash[_TEST] = Test(Path(item.path), name.replace("::", "."), _marked(item), updating)
    return item.stash[_TEST]


def _marked(item: pytest.Item) -> Rules:
    """The rules of the markers: those of the test itself before those of its class and module."""
    from tracer.testing.rules import RuleError, Rules, rules_of

    rules = Rules()
    for marker in reversed(list(item.iter_markers("dispatch"))):
        if marker.args:
            pytest.fail("dispatch: give the marker's rules by name, e.g. max_launches=12", pytrace=False)
        wrong = ""
        try:
            rules = rules_of(marker.kwargs, rules)
        except RuleError as error:
            wrong = str(error)
        if wrong:  # outside of `except`: pytest would show the RuleError too
            pytest.fail(wrong, pytrace=False)
    return rules
